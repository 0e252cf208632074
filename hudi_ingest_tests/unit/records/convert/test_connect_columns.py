"""The columns of a table that nobody declared, from Connect's schemas or from payloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.records.convert.connect_columns import avro_event_columns, infer_columns
from hudi_ingest.records.convert.connect_json import ConnectJsonConverter
from hudi_ingest.records.convert.debezium import DebeziumConverter, NamingFields, event_schema
from hudi_ingest.records.convert.unavailable import AvailableValues
from hudi_ingest.records.schema.avro import record_schema
from hudi_ingest.records.schema.columns import SchemaProblem, ddl
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest_tests.unit.records.convert.test_connect_avro import NEW
from hudi_ingest_tests.unit.records.convert.test_connect_json import DECIMAL, SCHEMA, framed, of, struct

pytestmark = pytest.mark.fast


def recorded(name: str) -> list[tuple[str, bytes]]:
    text = (Path(__file__).parent / "debezium" / f"{name}.jsonl").read_text(encoding="utf-8")
    values = [json.loads(line)["value"] for line in text.splitlines()]
    return [(f"customers:0:{place}", value.encode()) for place, value in enumerate(values) if value is not None]


def inferred(*values: bytes, of_events: bool = False) -> str:
    found = infer_columns([(f"t:0:{place}", value) for place, value in enumerate(values)], of_events)
    return "; ".join(found.problems) or ddl(found.schema)


def test_columns_of_recorded_events_come_from_their_schemas_the_added_one_too() -> None:
    sample = recorded("postgresql_with_schemas")
    found = infer_columns(sample, of_events=True)
    assert not found.problems
    assert ddl(found.schema) == (
        "id long, name string, country string, balance decimal(12,2), rate string, ratio double, small int, flag boolean, "
        "created date, at timestamp, at3 timestamp, seen timestamp, tod long, raw binary, doc string, tags array<string>, "
        "uid string, mood string, email string"
    )
    events = ConnectJsonConverter(event_schema(found.schema, NamingFields(("id",))), framed=False)
    rows = AvailableValues(DebeziumConverter(events, found.schema, NamingFields(("id",))))
    outcome = rows.decode(pa.array([value for _, value in sample], pa.binary()))
    assert [refusal.field for refusal in outcome.rejected] == ["doc", "op"]
    assert outcome.rows["rate"][0].as_py() == "1.2345"


def test_columns_of_events_without_schemas_come_from_after() -> None:
    found = infer_columns(recorded("postgresql_with_decimals_as_strings"), of_events=True)
    assert ddl(found.schema).startswith(
        "id long, name string, country string, balance string, rate string, ratio double"
    )
    assert ddl(found.schema).endswith("mood string, email string")


def test_columns_of_a_payload() -> None:
    assert inferred(framed({"id": 1})) == (
        "id long, cents decimal(38,2), at timestamp, day date, name string, inner struct<cents:decimal(38,2),at:timestamp>, "
        "days array<date>, times map<string,timestamp>"
    )
    assert inferred(framed({}, struct(a=of("int8"))), framed({}, struct(a=of("int64"), b=DECIMAL))) == (
        "a long, b decimal(38,2)"
    )
    assert inferred(b'{"schema":null,"payload":{"a":1}}') == "a long"


@pytest.mark.parametrize(
    ("values", "of_events", "problem"),
    [
        (
            [framed({}, struct(**{"a-b": of("int8")}))],
            False,
            "the schema of t:0:0: column a-b: Hudi cannot store this name",
        ),
        ([framed({}, of("string"))], False, "the schema of t:0:0: its schema is of type string, not a struct"),
        ([framed({}, struct(a=of("union")))], False, "column a: no table has a type for union"),
        ([framed({}, SCHEMA)], True, "its schema is of type nothing, not a struct"),
        ([framed({}, struct(a=of("int8"))), framed({}, struct(a=of("string")))], False, "a"),
        ([b"{}", b"nonsense"], True, "there is no record with a value"),
    ],
)
def test_what_gives_no_columns(values: list[bytes], of_events: bool, problem: str) -> None:
    found: Any = infer_columns([(f"t:0:{place}", value) for place, value in enumerate(values)], of_events)
    assert problem in "; ".join(found.problems)


def test_columns_of_registered_events() -> None:
    schema = RegisteredSchema(NEW)
    assert ddl(avro_event_columns(schema, record_schema(schema))) == (
        "id long NOT NULL, name string NOT NULL, balance decimal(12,2), rate string, created date, at timestamp, "
        "seen timestamp, sent timestamp, days array<date>, tod long, email string"
    )
    flat = RegisteredSchema('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}')
    with pytest.raises(SchemaProblem, match="no schema of Debezium's events"):
        avro_event_columns(flat, record_schema(flat))
