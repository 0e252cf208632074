"""`table.cdc` and columns whose values Hudi's CDC queries do not show."""

from __future__ import annotations

import pytest

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import spark_json
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.transaction.table_preparation import require_cdc_values

pytestmark = pytest.mark.fast


def prepared(columns: str, cdc: bool = True) -> None:
    table = {"base_path": "/t", "schema": columns, "mode": "upsert", "key": ["id"], "cdc": cdc}
    source = {"bootstrap_servers": "127.0.0.1:1", "topics": ["orders"]}
    pipeline = Pipeline.model_validate({"name": "orders", "source": source, "table": table})
    text = spark_json(parse_ddl(columns))
    require_cdc_values(pipeline, TransactionSchema("declared", text, text, declared=True))


@pytest.mark.parametrize(
    "kind",
    ["decimal(10,2)", "struct<a: int, b: decimal(10,2)>", "array<decimal(10,2)>", "map<string, array<decimal(3,1)>>"],
)
def test_a_table_with_decimals_is_not_created_with_cdc(kind: str) -> None:
    with pytest.raises(SchemaRefused, match=r"cannot have `cdc` with amount: .* transform `cast`"):
        prepared(f"id string not null, amount {kind}")
    prepared(f"id string not null, amount {kind}", cdc=False)


def test_other_columns_are_shown() -> None:
    prepared("id string not null, d date, t timestamp, b binary, m map<string, int>, s struct<a: array<double>>")
