"""What recover makes of a commit's metadata, of open instants and of group offsets; the rest of it needs a table."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hudi_ingest.cli.views import recovery_text
from hudi_ingest.exceptions import KafkaUnreachable, TableMismatch, TransactionInFlight
from hudi_ingest.hudi.files.live_files import unlisted_files
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Instants
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import SliceReport
from hudi_ingest.model.transaction import OpenInstant
from hudi_ingest.operations.upkeep.recovery import (
    Recovery,
    _rebuilt,
    committed_transaction,
    moved_offsets,
    unknown_instants,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.commit_contents import commit_metadata
from hudi_ingest.transaction.protocol import _attempt
from hudi_ingest_tests.support.pipeline_files import Write, load

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
BEGAN = datetime(2026, 11, 21, 14, 4, 5, 123000, tzinfo=timezone.utc)


def test_p5_a_commits_metadata_gives_the_transaction_back(write: Write) -> None:
    pipeline: Pipeline = load(write)
    slices = (Slice("orders", 0, 10, 20), Slice("orders", 1, 5, 5))
    reports = (SliceReport(slices[1], 1), SliceReport(slices[0], 0, rows=7, skipped=2, gaps=1))
    plan = IngestPlan("orders", "orders-000004-ab", 4, slices)
    metadata = commit_metadata(pipeline, plan, Checkpoint(4, "orders-000004-ab", {P0: 20, P1: 5}), reports)
    commit = CommittedInstant("20261121140405123", metadata, BEGAN + timedelta(seconds=3), {"a": 4000, "b": 96})
    found = committed_transaction(pipeline.name, pipeline.transaction_key, commit)
    assert (found.plan.pipeline, found.plan.transaction_id, found.plan.sequence) == ("orders", "orders-000004-ab", 4)
    assert found.plan.slices == slices
    assert (found.began_at, found.ended_at) == (BEGAN, BEGAN + timedelta(seconds=3))
    assert (found.rows, found.files, found.size_bytes) == (7, 2, 4096)


def test_the_moved_offsets_are_those_that_the_group_has_otherwise() -> None:
    assert moved_offsets({}, {P0: 3}) == {P0: (None, 3)}
    assert moved_offsets({P0: 3, P1: 9}, {P0: 3, P1: 4}) == {P1: (9, 4)}
    assert moved_offsets({P0: 3, TopicPartition("other", 0): 1}, {P0: 3}) == {}


def test_what_recover_says_is_what_it_found_and_did() -> None:
    found = unknown_instants((OpenInstant("20261121140405123", "t9", True),), None, timedelta(seconds=60))
    recovery = Recovery("orders", "/data/orders", 3, ("t1",), "group", {P0: (None, 20)}, None, found)
    text = recovery_text(recovery)
    assert "restored 1: t1" in text
    assert "orders:0 none → 20" in text
    assert "the first begin after 14:05:05 UTC rolls it back, or --roll-back does so now" in text
    assert json.loads(json.dumps(recovery.to_dict()))["unknown"][0]["expires_at"] == "2026-11-21T14:05:05.123000+00:00"


def test_whatever_fails_after_a_durable_commit_is_a_warning_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    def overflows() -> None:
        raise OverflowError("date value out of range")

    def refused() -> None:
        raise KafkaUnreachable("no broker answered")

    assert _attempt(lambda: None, "nobody was told") == ""
    assert _attempt(refused, "the group was not told") == (
        "the commit is durable, but the group was not told: no broker answered"
    )
    told = _attempt(overflows, "its dead letters are not copied yet")
    assert told == (
        "the commit is durable, but its dead letters are not copied yet: OverflowError: date value out of range"
    )
    assert [record.getMessage() for record in caplog.records][-1] == told
    assert caplog.records[-1].exc_info, "with its place in the code"


class Rebuilt:
    """What a rebuild of the metadata table needs of a protocol. `listed`: what the table lists afterwards."""

    def __init__(self, tmp_path: Path, listed: set[str], pending: set[str]) -> None:
        self.done: list[str] = []
        path = f"dt=1/a_0-0-0_{INSTANT}.parquet"
        commits = (CommittedInstant(INSTANT, {}, BEGAN, {path: 4}),)
        storage = LocalStorage(str(tmp_path))
        storage.write_whole(path, b"rows")
        self.state = CommittedState(True, commits=commits)
        self.protocol: Any = SimpleNamespace(
            pipeline=SimpleNamespace(name="orders", table=SimpleNamespace(base_path=str(tmp_path))),
            timeline=SimpleNamespace(
                storage=storage,
                instants=lambda: Instants(frozenset(pending), frozenset([INSTANT])),
                completed=lambda: commits,
                live_paths=lambda: frozenset(listed),
            ),
            table=SimpleNamespace(unlisted=lambda commits, newest: unlisted_files(commits, listed)),
            instants=SimpleNamespace(rebuild_metadata_table=lambda: self.done.append("rebuilt")),
            kept=lambda: nullcontext(),
        )
        self.path = path


INSTANT = "20261121140405123"


def test_p5_a_metadata_table_is_built_again_and_compared(tmp_path: Path) -> None:
    site = Rebuilt(tmp_path, {f"dt=1/a_0-0-0_{INSTANT}.parquet"}, set())
    assert (_rebuilt(site.protocol, site.state), site.done) == (1, ["rebuilt"])


def test_p5_a_metadata_table_is_not_built_beside_open_instants(tmp_path: Path) -> None:
    site = Rebuilt(tmp_path, set(), {"20261121140406000"})
    with pytest.raises(TransactionInFlight, match="instants 20261121140406000 are open"):
        _rebuilt(site.protocol, site.state)
    assert not site.done


def test_p5_a_metadata_table_is_not_built_while_that_would_show_rows_of_no_commit(tmp_path: Path) -> None:
    site = Rebuilt(tmp_path, set(), set())
    site.protocol.timeline.storage.write_whole("dt=1/stray.parquet", b"rows")
    with pytest.raises(
        TableMismatch, match=r"1 stored file would show as rows.*dt=1/stray\.parquet.*sweep orders --delete"
    ):
        _rebuilt(site.protocol, site.state)
    assert not site.done


def test_p5_a_file_that_is_still_not_listed_is_told_to_be_gone(tmp_path: Path) -> None:
    site = Rebuilt(tmp_path, set(), set())
    site.protocol.timeline.storage.delete(site.path)
    with pytest.raises(
        TableMismatch, match=f"still {site.path} of commits {INSTANT} are not listed; 1 file of these cannot be found"
    ):
        _rebuilt(site.protocol, site.state)
    assert site.done
