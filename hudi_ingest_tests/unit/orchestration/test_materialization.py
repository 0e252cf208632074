"""What the asset shows of a commit."""

from __future__ import annotations

import pyarrow as pa

from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.orchestration.column_metadata import column_schema
from hudi_ingest.orchestration.materialization import materialization
from hudi_ingest.records.schema.ddl import parse_ddl


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
