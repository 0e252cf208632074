"""D2: a table's columns evolve in the transaction's own commit, and old and new base files are read together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dagster import DagsterInstance, RunRequest, SkipReason
from hudi import HudiTable
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import SchemaNotApproved, SchemaRefused
from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.operations.state import state_now
from hudi_ingest.operations.upkeep.approvals import approve_schema_change
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.columns.schema_change import resolve_schema
from hudi_ingest.transaction.plan.planning import plan_now
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.ticks import tick

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

OLD = "id string, n int, i int, f float, s struct<x:int>, l array<struct<a:int>>, gone string, dt string"
NEW = "id string, n long, i double, f double, s struct<x:int,y:string>, l array<struct<a:int,b:date>>, note string, dt string"
CHANGES = (
    "column n becomes long; it was int",
    "column i becomes double; it was int",
    "column f becomes double; it was float",
    "column s.y string is added",
    "column l.element.b date is added",
    "column note string is added",
)
BIG = 2**40


def old_row(number: int) -> dict[str, Any]:
    more = {"n": number, "i": number, "f": number / 4, "s": {"x": number}, "l": [{"a": number}], "gone": f"g{number}"}
    return {"id": f"old-{number}", **more, "dt": f"2026-01-0{number % 2 + 1}"}


def new_row(number: int) -> dict[str, Any]:
    more = {"n": BIG + number, "i": number + 0.5, "f": number / 3, "s": {"x": number, "y": f"y{number}"}}
    listed = [{"a": number, "b": "2026-02-03"}, {"a": None, "b": None}]
    return {"id": f"new-{number}", **more, "l": listed, "note": f"note {number}", "dt": f"2026-01-0{number % 2 + 1}"}


def expected() -> dict[str, dict[str, Any]]:
    """By id: every row with all columns that the table has in the end."""
    rows = [{**old_row(n), "note": None, "s": {"x": n, "y": None}, "l": [{"a": n, "b": None}]} for n in range(10)]
    rows += [{**new_row(n), "gone": None} for n in range(10)]
    return {each["id"]: each for each in rows}


def plain(value: Any) -> Any:
    """A row's value as JSON has it."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def by_id(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = {row["id"]: {name: plain(row[name]) for name in expected()["old-0"]} for row in rows}
    assert len(found) == len(rows)
    return found


def by_spark(ground: Ground, spark: SparkSession, where: str = "true", **options: str) -> dict[str, Any]:
    frame = spark.read.format("hudi").options(**options).load(ground.base_path).where(where)
    return by_id([row.asDict(recursive=True) for row in frame.collect()])


def by_duckdb(ground: Ground) -> dict[str, Any]:
    live = HudiTable(ground.base_path).get_file_slices()
    paths = [str(Path(ground.base_path, each.partition_path, each.base_file_name)) for each in live]
    found = duckdb.connect().execute(
        "select * from read_parquet(?, union_by_name => true, hive_partitioning => false)", [paths]
    )
    return by_id(found.to_arrow_table().to_pylist())


def send(ground: Ground, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        ground.send(int(row["n"]) % 2, [json.dumps(row).encode()])


def published(ground: Ground, receipt: CommitReceipt, key: str) -> dict[str, Any]:
    timeline = HudiTable(ground.base_path).get_timeline()
    found = next(each for each in timeline.get_completed_commits() if each.timestamp == receipt.instant)
    accounting: dict[str, Any] = json.loads(
        json.loads(timeline.get_instant_metadata_in_json(found))["extraMetadata"][key]
    )
    return accounting


def indexes(ground: Ground) -> set[str]:
    """The partitions of the table's metadata table."""
    return set(Timeline(ground.base_path).properties()["hoodie.table.metadata.partitions"].split(","))


@pytest.mark.tier(1)
def test_d2_a_table_evolves_in_its_commit_and_all_readers_read_old_and_new(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(ground, [old_row(number) for number in range(10)])
    first = ground.run(make_pipeline(ground, table={"schema": OLD, "column_statistics": True}))
    assert first.plan.schema_changes == ()
    assert "column_stats" in indexes(ground)

    pipeline = make_pipeline(ground, table={"schema": NEW, "on_schema_change": "refuse"})
    send(ground, [new_row(number) for number in range(10)])
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
    with DagsterInstance.ephemeral() as instance:
        later = datetime.now(timezone.utc).replace(year=2100)
        assert isinstance(tick(pipeline, instance, later), RunRequest), "nobody knows of the change yet"
        with pytest.raises(SchemaNotApproved, match=CHANGES[0]):
            ground.run(pipeline)
        skipped = tick(pipeline, instance, later)
        assert isinstance(skipped, SkipReason)
        assert "`hudi-ingest approve-schema" in str(skipped.skip_message)
        shown = state_now(pipeline, ground.ledger).to_dict()["schema_change"]
        assert (shown["changes"], shown["text"]) == (list(CHANGES), skipped.skip_message)
        approve_schema_change(pipeline)
        assert isinstance(tick(pipeline, instance, later), RunRequest)
    assert resolve_schema(pipeline, Timeline(ground.base_path)).changes == CHANGES
    receipt = ground.run(pipeline)
    assert receipt.plan.schema_changes == CHANGES
    assert published(ground, receipt, pipeline.transaction_key)["schema_changes"] == list(CHANGES)
    assert resolve_schema(pipeline, Timeline(ground.base_path)).changes == (), "it has evolved"
    assert "column_stats" in indexes(ground), "they are kept, whatever the pipeline file says"

    spark = current_session(ground.home).newSession()
    rows = expected()
    assert by_spark(ground, spark) == rows
    assert by_spark(ground, spark, **{"hoodie.metadata.enable": "false"}) == rows
    # What statistics of older files, of narrower numbers and of missing columns leave out.
    for where, wanted in {
        "n = 3": {"old-3"},
        f"n > {BIG + 7}": {"new-8", "new-9"},
        "i < 1": {"old-0", "new-0"},
        "f > 2.9": {"new-9"},
        "note = 'note 5'": {"new-5"},
        "note is null and n = 6": {"old-6"},
        "gone is null and n < 0": set(),
        "s.x = 1 and s.y is null": {"old-1"},
    }.items():
        found = by_spark(ground, spark, where, **{"hoodie.enable.data.skipping": "true"})
        assert found == {name: rows[name] for name in wanted}, where
    assert by_id(ground.rows().to_pylist()) == rows
    assert by_duckdb(ground) == rows


@pytest.mark.tier(1)
def test_d2_what_a_table_cannot_take_over_is_refused_before_anything_is_written(ground: Ground, topic: str) -> None:
    ground.send_rows(0, 5)
    ground.run(make_pipeline(ground))
    assert indexes(ground) == {"files"}
    ground.send_rows(0, 5, 5)
    for schema, partition_by, problem in (
        ("id string, n string, dt string", ["dt"], "column n: expected long, as in the table, found string"),
        ("id string, n long, dt string, more int NOT NULL", ["dt"], "column more: expected one that may be null"),
    ):
        pipeline = make_pipeline(ground, table={"schema": schema, "partition_by": partition_by})
        plan = plan_now(pipeline)
        with pytest.raises(SchemaRefused, match=problem):
            ground.run(pipeline, plan)
    assert ground.ledger.transactions.open_in(ground.base_path) is None
    assert ground.run(make_pipeline(ground, table={"column_statistics": True})).rows == 5
    assert "column_stats" in indexes(ground), "made later, if somebody wants it"
