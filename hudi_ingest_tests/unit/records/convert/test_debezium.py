"""Debezium's events: which rows they write and delete, and which of them cannot be applied."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from hudi_ingest.records.changes import BEFORE, DELETED
from hudi_ingest.records.convert.connect_json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.convert.debezium import UNAVAILABLE, DebeziumConverter, NamingFields, event_schema
from hudi_ingest.records.schema.ddl import parse_ddl

pytestmark = pytest.mark.fast

ROW = parse_ddl("id long not null, name string not null, country string, tags array<string>, raw binary")
ANN = {"id": 1, "name": "ann", "country": "eu", "tags": ["x"], "raw": "AP8="}
BY_KEY = NamingFields(("id", "country"))
MOVABLE = NamingFields(("id", "country"), placed_by_key=False)


def event(op: str | None, before: Any = None, after: Any = None, **more: Any) -> bytes:
    members = {"before": before, "after": after, "source": {"lsn": 7, "op": "x"}, "op": op, "ts_ms": 5, **more}
    return json.dumps(members, separators=(",", ":")).encode()


def decode(*values: bytes, naming: NamingFields = BY_KEY) -> Decoded:
    events = ConnectJsonConverter(event_schema(ROW, naming), framed=False)
    return DebeziumConverter(events, ROW, naming).decode(pa.array(values, pa.binary()))


def test_inserts_updates_and_snapshots_write_after_and_deletes_name_before() -> None:
    moved = {**ANN, "country": "us"}
    outcome = decode(event("r", None, ANN), event("c", None, ANN), event("u", ANN, moved), event("d", ANN, None))
    assert outcome.rejected == ()
    rows = outcome.rows.to_pylist()
    row = {**ANN, "raw": b"\x00\xff"}
    before = {"id": 1, "country": "eu"}
    assert rows == [
        {**row, DELETED: False, BEFORE: None},
        {**row, DELETED: False, BEFORE: None},
        {**row, "country": "us", DELETED: False, BEFORE: before},
        {"id": 1, "name": None, "country": "eu", "tags": None, "raw": None, DELETED: True, BEFORE: before},
    ]


def test_a_key_that_comes_from_the_records_key_needs_no_before() -> None:
    outcome = decode(event("d", {"id": "not even a number"}, None), naming=NamingFields(()))
    assert outcome.rows.to_pylist() == [{**dict.fromkeys(ROW.names), DELETED: True}]


@pytest.mark.parametrize(
    ("value", "field", "expected", "found"),
    [
        (event("t"), "op", "delete the table's rows with Spark SQL", "t, a truncate"),
        (event("m"), "op", "r, c, u or d", "another operation"),
        (event(None, None, ANN), "op", "string, not null", "null"),
        (b'{"id":1,"name":"ann"}', "op", "string, not null", "no such field"),
        (event("u", ANN, None), "after", "a row, because op is r, c or u", "null"),
        (event("d", None, None), "before", "replica identity full", "null"),
        (event("c", None, {**ANN, "name": None}), "name", "string, not null", "null"),
        (event("d", {"id": "x"}, None), "id", "int (64 bit), in `before`", '"x"'),
        (event("u", ANN, {**ANN, "name": UNAVAILABLE}), "name", "replica identity full", UNAVAILABLE),
        (event("u", ANN, {**ANN, "tags": [UNAVAILABLE]}), "tags", "replica identity full", UNAVAILABLE),
        (
            event("u", ANN, {**ANN, "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}),
            "raw",
            "replica identity full",
            UNAVAILABLE,
        ),
        (b"{", "", "a JSON object", "no JSON"),
    ],
)
def test_what_cannot_be_applied_is_bad_and_says_why(value: bytes, field: str, expected: str, found: str) -> None:
    outcome = decode(event("c", None, ANN), value, event("d", ANN, None))
    assert outcome.kept is not None and outcome.kept.to_pylist() == [0, 2]
    (refusal,) = outcome.rejected
    assert (refusal.index, refusal.field) == (1, field)
    assert expected in refusal.expected
    assert found in refusal.found


def test_an_update_must_say_where_the_row_was_unless_its_key_does() -> None:
    update = event("u", None, ANN)
    assert decode(update).rejected == ()
    (refusal,) = decode(update, naming=MOVABLE).rejected
    assert (refusal.field, refusal.found) == ("before", "null")
    assert decode(event("r", None, ANN), event("u", ANN, ANN), naming=MOVABLE).rejected == ()


def test_null_and_short_values_are_no_placeholder() -> None:
    assert decode(event("u", ANN, {**ANN, "tags": [None], "raw": None})).rejected == ()
    assert decode(event("u", ANN, {**ANN, "tags": [], "country": None})).rejected == ()


def test_fields_that_are_not_declared_are_ignored() -> None:
    outcome = decode(
        event("u", {**ANN, "email": 1}, {**ANN, "email": {"new": [1]}}, transaction={"id": "9"}, more=[{}])
    )
    assert outcome.rejected == () and outcome.rows.num_rows == 1


def test_connects_schema_says_what_after_and_before_hold() -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    fields = [{"field": "id", "type": "int32"}, {**decimal, "field": "cents"}]
    row = {"type": "struct", "optional": True, "fields": fields}
    schema = {
        "type": "struct",
        "fields": [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}],
    }
    columns = parse_ddl("id long not null, cents decimal(12,2)")
    naming = NamingFields(("id", "cents"))
    converter = DebeziumConverter(ConnectJsonConverter(event_schema(columns, naming), framed=False), columns, naming)

    def framed(payload: bytes) -> bytes:
        return json.dumps({"schema": schema, "payload": json.loads(payload)}, separators=(",", ":")).encode()

    values = [
        framed(event("u", {"id": 1, "cents": "AP8="}, {"id": 1, "cents": "/w=="})),
        framed(event("d", {"id": 1, "cents": "/w=="}, None)),
        framed(event("c", None, {"id": 1, "cents": "?"})),
    ]
    outcome = converter.decode(pa.array(values, pa.binary()))
    assert [(str(row["cents"]), row[DELETED]) for row in outcome.rows.to_pylist()] == [
        ("-0.01", False),
        ("-0.01", True),
    ]
    assert [(refusal.index, refusal.field) for refusal in outcome.rejected] == [(2, "cents")]
