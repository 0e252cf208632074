"""What the asset shows of a commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import CommitReceipt, LogFile, SliceReport
from hudi_ingest.orchestration.reports.materialization import column_schema, materialization, row_count
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest_tests.support.pipeline_files import Write, load


def receipt(*changes: str) -> CommitReceipt:
    plan = IngestPlan("orders", "t1", 1, (), schema_changes=changes)
    return CommitReceipt(plan, "20260101000000000", Checkpoint(1, "t1", {}), ())


def test_d2_changes_of_the_tables_columns_are_shown() -> None:
    changes = ("column n becomes long; it was int", "column note string is added")
    assert materialization(receipt(*changes), {}, "")["schema changes"] == "\n".join(changes)
    assert "schema changes" not in materialization(receipt(), {}, "")


def test_k9_the_columns_are_shown() -> None:
    columns: pa.Schema = parse_ddl("id string NOT NULL, s struct<x:int>")
    shown = column_schema(columns)["dagster/column_schema"].columns
    assert [(each.name, each.type) for each in shown] == [("id", "string"), ("s", "struct<x:int>")]


@pytest.fixture
def two_parts() -> tuple[SliceReport, SliceReport]:
    file = LogFile("dt=a", "00000001-x-0", "dt=a/.00000001-x-0_1.log.1_0-1-0", 3, 2, 500, 10, 16, file_rows=9)
    other = replace(file, upserts=4, deletes=0, size_bytes=400, first_offset=2, last_offset=5)
    return (
        SliceReport(Slice("orders", 0, 10, 17), 1, rows=7, superseded=2, log_files=(file,)),
        SliceReport(Slice("orders", 1, 2, 6), 1, rows=4, log_files=(other,)),
    )


def test_d2_a_commit_to_a_keyed_table_shows_its_deletes_and_its_log_files() -> None:
    file = LogFile("dt=a", "00000001-x-0", "dt=a/.00000001-x-0_1.log.1_0-1-0", 3, 2, 500, 10, 20)
    report = SliceReport(
        Slice("orders", 0, 10, 17),
        1,
        rows=7,
        deletes=4,
        superseded=3,
        moves=1,
        truncated=9,
        log_files=(file,),
        seconds=1.0,
    )
    assert "deletes" not in materialization(receipt(), {}, "")
    shown = materialization(replace(receipt(), reports=(report,)), {}, "")
    assert (shown["rows"], shown["deletes"], shown["superseded"], shown["moves"]) == (7, 4, 3, 1)
    assert shown["truncated"] == 9
    assert (shown["files"], shown["bytes"]) == (1, 500)
    assert [record.data["rows"] for record in shown["written files"].records] == [5]


def test_d2_a_log_file_of_two_kafka_partitions_counts_once(two_parts: tuple[SliceReport, SliceReport]) -> None:
    shown = materialization(replace(receipt(), reports=two_parts), {}, "")
    assert (shown["files"], shown["bytes"]) == (1, 900)
    records = [record.data for record in shown["written files"].records]
    assert [(record["partition"], record["rows"]) for record in records] == [("orders:0", 5), ("orders:1", 4)]


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        ({}, {"dagster/row_count": 5}),
        ({"table__mode": "upsert", "table__key": ["id"]}, {}),
        ({"table__partition_by": ["dt"], "table__ttl": {"days": 3, "by": "commit"}}, {}),
    ],
    ids=["append", "keyed", "ttl"],
)
def test_d2_a_tables_rows_are_counted_unless_others_than_transactions_delete_some(
    write: Write, table: dict[str, Any], shown: dict[str, int]
) -> None:
    checkpoint = Checkpoint(1, "t1", {}, totals={"ingest": {"transactions": 1, "rows": 5}})
    assert row_count(load(write, **table), checkpoint) == shown
