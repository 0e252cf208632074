"""What is new to a catalog, decided from commits alone; and what a failure costs the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.exceptions import CatalogNotSynced
from hudi_ingest.hudi.services.catalog_client import not_synced_text, sync_options
from hudi_ingest.hudi.services.catalog_state import COMMITS_BEHIND, RECENT_PARTITIONS, CatalogState, read_state
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, Timeline
from hudi_ingest.operations.health.judgement import catalog_synced
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.asset import Catalog
from hudi_ingest.transaction.catalog_sync import CatalogSync
from hudi_ingest_tests.support.pipeline_files import Write, load

BEGAN = datetime(2026, 1, 31, tzinfo=timezone.utc)
CATALOG = {"type": "hms", "uris": "thrift://h:9083"}


def commit(number: int, *partitions: str, schema: str = "s", operation: str = "BULK_INSERT") -> CommittedInstant:
    return CommittedInstant(
        instant=f"2026013100000{number:04}",
        metadata={"schema": schema},
        completed_at=BEGAN + timedelta(milliseconds=number),
        files={f"{partition}/f{number}.parquet": 1 for partition in partitions},
        operation=operation,
    )


def after(*commits: CommittedInstant) -> CatalogState:
    return CatalogState().with_commits("here", commits)


@pytest.mark.parametrize(
    ("state", "commits", "expected"),
    [
        (CatalogState(), [], ""),
        (CatalogState(), [commit(1, "a")], "it is not there yet"),
        (after(commit(1, "a")), [commit(2, "a"), commit(1, "a")], ""),
        (after(commit(1, "a")), [commit(2, "a", "b"), commit(1, "a")], "1 partition may be missing there, such as b"),
        (after(commit(1, "a")), [commit(2, "a", schema="t"), commit(1, "a")], "its columns have changed"),
        (after(commit(1, "a")), [commit(2, operation="DELETE_PARTITION"), commit(1, "a")], "partitions were dropped"),
        (after(commit(1, "a")), [commit(3, "a"), commit(2, "a")], "commits that it does not have are already archived"),
        (after(commit(2, "a", schema="t"), commit(1, "a")), [commit(1, "a")], "its columns have changed"),
    ],
)
def test_s4_what_is_new_to_a_catalog(state: CatalogState, commits: list[CommittedInstant], expected: str) -> None:
    assert state.news("here", commits) == expected
    assert CatalogState.from_json(state.to_json()) == state


def test_another_catalog_gets_the_table_anew_and_only_recent_partitions_are_remembered() -> None:
    state = after(*(commit(number, f"p{number}") for number in range(RECENT_PARTITIONS + 5, 0, -1)))
    assert state.news("there", [commit(1, "a")]) == "previously it was in here"
    assert (len(state.partitions), state.partitions[0]) == (RECENT_PARTITIONS, f"p{RECENT_PARTITIONS + 5}")


class Writer:
    """A catalog in memory: what each sync wrote to it, and what it is to do meanwhile."""

    def __init__(self) -> None:
        self.synced: list[tuple[str, bool]] = []
        self.meanwhile: list[list[CommittedInstant]] = []
        self.error: Exception | None = None
        self.timeline: FakeTimeline | None = None

    def sync(
        self, catalog: Catalog, columns: pa.Schema, state: CatalogState, *, full: bool, complete_through: str = ""
    ) -> None:
        self.synced.append((state.instant, full))
        if self.error:
            raise self.error
        if self.meanwhile and self.timeline:
            self.timeline.commits = self.meanwhile.pop(0)


class FakeTimeline(Timeline):
    commits: Sequence[CommittedInstant] = ()

    def completed(self) -> tuple[CommittedInstant, ...]:
        return tuple(self.commits)

    def schema(self) -> pa.Schema:
        return pa.schema([("dt", pa.string())])


@pytest.fixture
def pipeline(write: Write, tmp_path: Path) -> Pipeline:
    return load(write, table__base_path=str(tmp_path / "table"), catalog=CATALOG)


def syncing(pipeline: Pipeline, *commits: CommittedInstant) -> tuple[CatalogSync, Writer]:
    timeline, writer = FakeTimeline(pipeline.table.base_path), Writer()
    timeline.commits, writer.timeline = commits, timeline
    return CatalogSync(pipeline, timeline, writer), writer


def test_a_commit_without_news_does_not_ask_the_catalog_and_archival_does_not_reach_the_state(
    pipeline: Pipeline,
) -> None:
    commits = [commit(1, "a")]
    sync, writer = syncing(pipeline, *commits)
    assert sync.if_due(commits) == "it is not there yet"
    for number in range(2, COMMITS_BEHIND + 2):
        commits = [commit(number, "a"), *commits]
        assert sync.if_due(commits) == ""
    assert len(writer.synced) == 1
    assert read_state(sync.timeline.storage).instant == commits[0].instant
    assert sync.if_due([commit(50, "b"), *commits]) != ""
    assert writer.synced[1] == (commits[0].instant, False), "only newer commits are looked through"


def test_a_sync_that_was_overtaken_syncs_again(pipeline: Pipeline) -> None:
    first, second = commit(1, "a"), commit(2, "b", schema="t")
    sync, writer = syncing(pipeline, first)
    writer.meanwhile = [[second, first]]
    sync.if_due([first])
    assert len(writer.synced) == 2
    assert read_state(sync.timeline.storage).news(pipeline.catalog_place, [second, first]) == ""


def test_s4_a_failed_sync_shows_and_is_tried_again_after_a_while(pipeline: Pipeline) -> None:
    commits = [commit(1, "a")]
    sync, writer = syncing(pipeline, *commits)
    writer.error = CatalogNotSynced("no metastore answers there.")
    with pytest.raises(CatalogNotSynced):
        sync.if_due(commits)
    assert sync.if_due(commits) == "", "not that soon"
    assert len(writer.synced) == 1
    state, now = read_state(sync.timeline.storage), datetime.now(timezone.utc)
    finding = catalog_synced(pipeline, state, commits, now)
    assert not finding.passed
    for part in (
        "it is not there yet",
        "no metastore answers there",
        "hudi-ingest sync-catalog orders",
        "not affected",
    ):
        assert part in finding.text
    writer.error = None
    assert sync.if_due(commits, now + timedelta(seconds=31)) == "it is not there yet"
    assert catalog_synced(pipeline, read_state(sync.timeline.storage), commits, now).passed


def test_the_waits_between_failed_syncs_grow_to_a_quarter_of_an_hour() -> None:
    state, waits = CatalogState(), []
    for _ in range(8):
        state = state.failed("away", BEGAN)
        assert state.retry_at is not None
        waits.append((state.retry_at - BEGAN).total_seconds())
    assert waits == [30, 60, 120, 240, 480, 900, 900, 900]


def test_the_tool_gets_the_tables_partitions_and_a_location_that_readers_can_use(write: Write) -> None:
    table: dict[str, Any] = {"table__base_path": "s3://bucket/orders", "table__schema": "id string, dt string, n int"}
    pipeline = load(write, **table, table__partition_by=["dt", "n"], catalog={**CATALOG, "location_scheme": "s3"})
    options = sync_options(pipeline, pipeline.table_schema.columns, full=False)
    assert options["hoodie.datasource.meta.sync.base.path"] == "s3://bucket/orders"
    assert options["hoodie.datasource.hive_sync.partition_fields"] == "dt,n"
    assert options["hoodie.datasource.hive_sync.filter_pushdown_enabled"] == "false", "n is a number"
    pipeline = load(write, **table, table__partition_by=[], catalog=CATALOG)
    options = sync_options(pipeline, pipeline.table_schema.columns, full=True)
    assert options["hoodie.datasource.meta.sync.base.path"] == "s3a://bucket/orders"
    assert options["hoodie.meta.sync.incremental"] == "false"


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        (["MetaException: Could not connect to meta store", "ConnectException: refused"], "Start it, or correct"),
        (["hudi-ingest catalog: no answer within 45 s"], "no answer within 45 s, so it was given up"),
        (["IllegalStateException: hudi-ingest catalog: it already has a table"], "Set catalog.table to another name"),
        (["HoodieException: a", "HoodieHiveSyncException: b", "TException: c"], "c <- HoodieHiveSyncException: b"),
    ],
)
def test_why_a_sync_failed_and_what_to_do(pipeline: Pipeline, causes: list[str], expected: str) -> None:
    assert pipeline.catalog is not None
    text = not_synced_text(pipeline, pipeline.catalog, causes)
    assert expected in text
    assert "default.orders at thrift://h:9083" in text
