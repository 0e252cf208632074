"""`table.cdc` and columns whose values Hudi's CDC queries do not show."""

from __future__ import annotations

from typing import Any

import pytest

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import ddl, parse_spark_json, table_schema
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.transaction.columns.schema_change import proposed_schema

pytestmark = pytest.mark.fast


class _Timeline(Timeline):
    """Of a table with these columns; without columns there is no table."""

    def __init__(self, columns: str | None) -> None:
        super().__init__("/t")
        self._columns = columns

    def exists(self) -> bool:
        return self._columns is not None

    def is_empty(self) -> bool:
        return False

    def properties(self) -> dict[str, str]:
        return {"hoodie.table.recordkey.fields": "id"}

    def schema(self) -> Any:
        return table_schema(parse_ddl(f"{self._columns}"), ("topic", "partition", "offset", "timestamp")).columns


def proposed(columns: str, existing: str | None = None, **settings: object) -> str:
    """The columns of the next transaction of a table that has those of `existing`."""
    table = {"base_path": "/t", "schema": columns, "mode": "upsert", "key": ["id"], "cdc": True, **settings}
    source = {"bootstrap_servers": "127.0.0.1:1", "topics": ["orders"]}
    pipeline = Pipeline.model_validate({"name": "orders", "source": source, "table": table})
    return ddl(parse_spark_json(proposed_schema(pipeline, _Timeline(existing)).columns))


DECIMALS = (
    ("decimal(10,2)", "amount"),
    ("struct<a: int, b: decimal(10,2)>", "amount.b"),
    ("array<decimal(10,2)>", "amount.element"),
    ("map<string, array<decimal(3,1)>>", "amount.value.element"),
)


@pytest.mark.parametrize(("kind", "path"), DECIMALS)
def test_a_table_with_decimals_is_not_created_with_cdc(kind: str, path: str) -> None:
    with pytest.raises(
        SchemaRefused, match=rf"cannot have `cdc` with {path}: .* Nothing was created.* transform `cast`"
    ):
        proposed(f"id string not null, amount {kind}")
    assert "amount" in proposed(f"id string not null, amount {kind}", cdc=False)


@pytest.mark.parametrize(("kind", "path"), DECIMALS)
def test_a_table_with_cdc_gets_no_decimals_later(kind: str, path: str) -> None:
    old, new = "id string not null, n int", f"id string not null, n int, amount {kind}"
    with pytest.raises(
        SchemaRefused, match=rf"has `cdc` and cannot get {path}: .* Nothing was written.* `cast`.* ignore"
    ):
        proposed(new, old)
    assert "amount" in proposed(new, old, cdc=False)
    assert "amount" not in proposed(new, old, on_schema_change="ignore")


def test_decimals_that_a_table_has_stay_and_their_structs_get_no_more() -> None:
    had = "id string not null, s struct<a: decimal(9,2)>"
    assert "s struct<a:decimal(9,2)>" in proposed(had, had)
    assert "note string" in proposed(f"{had}, note string", had)
    with pytest.raises(SchemaRefused, match=r"cannot get s\.b:"):
        proposed("id string not null, s struct<a: decimal(9,2), b: decimal(9,2)>", had)


def test_other_columns_are_shown() -> None:
    assert proposed("id string not null, d date, t timestamp, b binary, m map<string, int>, s struct<a: array<double>>")
