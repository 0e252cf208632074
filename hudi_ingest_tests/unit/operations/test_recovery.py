"""What recover makes of a commit's metadata, of open instants and of group offsets; the rest of it needs a table."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from hudi_ingest.cli.views import recovery_text
from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import SliceReport
from hudi_ingest.model.transaction import OpenInstant
from hudi_ingest.operations.upkeep.recovery import Recovery, committed_transaction, moved_offsets, unknown_instants
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.commit_contents import commit_metadata
from hudi_ingest.transaction.protocol import _tell
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

    assert _tell(lambda: None, "nobody was told") == ""
    assert _tell(refused, "the group was not told") == (
        "the commit is durable, but the group was not told: no broker answered"
    )
    told = _tell(overflows, "its dead letters are not copied yet")
    assert told == (
        "the commit is durable, but its dead letters are not copied yet: OverflowError: date value out of range"
    )
    assert [record.getMessage() for record in caplog.records][-1] == told
    assert caplog.records[-1].exc_info, "with its place in the code"
