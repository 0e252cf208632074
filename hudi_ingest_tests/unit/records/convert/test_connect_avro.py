"""Debezium's events as Connect's Avro converter registers and writes them."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.changes import BEFORE, DELETED
from hudi_ingest.records.convert.avro.converter import ConfluentWireFormat
from hudi_ingest.records.convert.connect.avro import ConnectAvroConverter
from hudi_ingest.records.convert.connect.columns import avro_event_columns, meant_columns
from hudi_ingest.records.convert.connect.debezium import DebeziumConverter, NamingFields, event_schema
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.schema.avro import (
    WriterSchemaProblem,
    parse_connect_avro,
    record_schema,
    resolution_of,
)
from hudi_ingest.records.schema.columns import ddl
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema

pytestmark = pytest.mark.fast

COLUMNS = parse_ddl(
    "id long not null, name string not null, balance decimal(12,2), rate decimal(10,4), created date, at timestamp, "
    "seen timestamp, sent timestamp, days array<date>, email string"
)
NAMING = NamingFields(("id", "at"), whole=True)


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


DECIMAL = connect("bytes", "org.apache.kafka.connect.data.Decimal", scale=2, precision=12, logicalType="decimal")
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
VALUE: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": "string"},
    field("balance", DECIMAL),
    field("rate", VARIABLE),
    field("created", connect("int", "io.debezium.time.Date")),
    field("at", connect("long", "io.debezium.time.MicroTimestamp")),
    field("seen", connect("string", "io.debezium.time.ZonedTimestamp")),
    field("sent", connect("long", "org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis")),
    field("days", {"type": "array", "items": ["null", connect("int", "io.debezium.time.Date")]}),
    field("tod", connect("long", "io.debezium.time.MicroTime")),
]


def envelope(value: list[dict[str, Any]]) -> str:
    row = {"type": "record", "name": "Value", "fields": value, "connect.name": "shop.public.customers.Value"}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}
    return json.dumps(
        {
            "type": "record",
            "name": "Envelope",
            "namespace": "shop.public.customers",
            "fields": [
                field("before", row),
                field("after", "Value"),
                {"name": "source", "type": source},
                {"name": "op", "type": "string"},
                field("ts_ms", "long"),
            ],
            "connect.name": "shop.public.customers.Envelope",
        }
    )


OLD, NEW = envelope(VALUE), envelope([*VALUE, field("email", "string")])


@dataclass(frozen=True)
class Registry:
    texts: Mapping[int, str]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return RegisteredSchema(self.texts[schema_id]) if schema_id in self.texts else None


def event(schema_id: int, op: str, before: Any = None, after: Any = None) -> bytes:
    target = io.BytesIO(b"")
    parsed = fastavro.parse_schema(json.loads({1: OLD, 2: NEW}[schema_id]))
    value = {"before": before, "after": after, "source": {"lsn": 7}, "op": op, "ts_ms": 5}
    fastavro.schemaless_writer(target, parsed, value)
    return b"\0" + schema_id.to_bytes(4, "big") + target.getvalue()


def decode(*values: bytes) -> Decoded:
    writers = ConfluentWireFormat(Registry({1: OLD, 2: NEW, 3: '"string"', 4: "nonsense"}))
    events = ConnectAvroConverter(event_schema(COLUMNS, NAMING), writers)
    converter = pickle.loads(pickle.dumps(DebeziumConverter(events, COLUMNS, NAMING)))
    outcome: Decoded = converter.decode(pa.array(values, pa.binary()))
    return outcome


ANN: dict[str, Any] = {
    "id": 1,
    "name": "ann",
    "balance": Decimal("-1.25"),
    "rate": {"scale": 4, "value": b"\x30\x39"},
    "created": 20484,
    "at": 1769862896123456,
    "seen": "2026-01-31T14:34:56.123456+02:00",
    "sent": 1769862896123,
    "days": [0, None],
    "tod": 1,
}
AT = datetime(2026, 1, 31, 12, 34, 56, 123456, timezone.utc)


def test_events_of_old_and_new_schemas_are_rows_and_deletes() -> None:
    outcome = decode(
        event(1, "c", None, ANN),
        event(2, "u", ANN, {**ANN, "email": "a@b", "at": None}),
        event(1, "d", ANN, None),
        event(2, "r", None, {**ANN, "balance": None, "rate": None, "seen": None, "days": None}),
    )
    assert outcome.rejected == ()
    first, updated, deleted, last = outcome.rows.to_pylist()
    assert first == {
        "id": 1,
        "name": "ann",
        "balance": Decimal("-1.25"),
        "rate": Decimal("1.2345"),
        "created": date(2026, 1, 31),
        "at": AT,
        "seen": AT,
        "sent": AT.replace(microsecond=123000),
        "days": [date(1970, 1, 1), None],
        "email": None,
        DELETED: False,
        BEFORE: None,
    }
    assert (updated["email"], updated["at"], updated[BEFORE]) == ("a@b", None, {"id": 1, "at": AT})
    assert (deleted[DELETED], deleted["id"], deleted["at"], deleted["name"]) == (True, 1, AT, None)
    assert (last["balance"], last["rate"], last["seen"], last["days"]) == (None, None, None, None)


def test_what_cannot_be_applied_is_bad() -> None:
    outcome = decode(
        event(1, "c", None, ANN),
        event(1, "c", None, {**ANN, "seen": "infinity"}),
        event(1, "c", None, {**ANN, "rate": {"scale": 5, "value": b"\x30\x39"}}),
        event(1, "c", None, {**ANN, "rate": {"scale": 1, "value": b""}}),
        event(1, "c", None, {**ANN, "at": 2**62}),
        event(1, "u", None, ANN),
        event(1, "t"),
        b"\0\0\0\0\x09x",
        b"\0\0\0\0\x03x",
        b"\0\0\0\0\x04x",
        b"",
    )
    assert outcome.rows.num_rows == 1
    assert [refusal.index for refusal in outcome.rejected] == [*range(1, 11)]
    assert [refusal.field for refusal in outcome.rejected][:6] == ["seen", "rate", "rate", "at", "before", "op"]


def test_names_are_found_in_their_namespace_and_among_references() -> None:
    reference = json.dumps({"type": "record", "name": "a.b.Inner", "fields": [field("x", DECIMAL)]})
    text = json.dumps(
        {
            "type": "record",
            "name": "Outer",
            "namespace": "a.b",
            "fields": [
                {"name": "one", "type": "Inner"},
                {"name": "two", "type": {"type": "map", "values": "a.b.Inner"}},
                {"name": "three", "type": ["int", "string"]},
            ],
        }
    )
    parsed = parse_connect_avro(RegisteredSchema(text, (reference,)))
    assert [*parsed.members] == ["one", "two", "three"]
    assert [*parsed.members["one"].members] == ["x"]
    items = parsed.members["two"].items
    assert items is not None and [*items.members] == ["x"]
    assert parsed.members["three"].kind == "union"
    loop = '{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}'
    with pytest.raises(WriterSchemaProblem, match="is refused: field r: record R contains itself"):
        parse_connect_avro(RegisteredSchema(loop))


@pytest.mark.parametrize(
    ("scale", "number", "text"),
    [(60, 1, f"0.{'0' * 59}1"), (-3, 5, "5000"), (5, -(10**45), f"-1{'0' * 40}.00000"), (2, 12345, "123.45")],
)
def test_numbers_of_any_length_are_texts_in_avro_too(scale: int, number: int, text: str) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "q", "type": VARIABLE}]})
    target = io.BytesIO()
    value = {"scale": scale, "value": number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)}
    fastavro.schemaless_writer(target, fastavro.parse_schema(json.loads(schema)), {"q": value})
    values = pa.array([b"\0\0\0\0\1" + target.getvalue()], pa.binary())
    writers = ConfluentWireFormat(Registry({1: schema}))
    assert ConnectAvroConverter(parse_ddl("q string"), writers).decode(values).rows.to_pylist() == [{"q": text}]
    outcome = ConnectAvroConverter(parse_ddl("q decimal(20,4)"), writers).decode(values)
    if text in ("5000", "123.45"):
        assert outcome.rows.to_pylist() == [{"q": Decimal(text)}]
    else:
        (refusal,) = outcome.rejected
        assert "set Debezium's decimal.handling.mode to string" in refusal.expected
        assert "digit" in refusal.found


UNKNOWN = connect("bytes", "org.apache.kafka.connect.data.Decimal", **{"connect.parameters": {"scale": "2"}})


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "bytes", "logicalType": "decimal", "scale": 2, "precision": 64},
        {**UNKNOWN, "logicalType": "decimal", "scale": 2, "precision": 64},
        {**UNKNOWN, "logicalType": "decimal", "scale": 2},
        UNKNOWN,
    ],
)
def test_a_decimal_of_unknown_precision_has_38_digits_as_in_json(kind: dict[str, Any]) -> None:
    """PostgreSQL's money, and numbers of JDBC sources."""
    text = envelope([{"name": "id", "type": "long"}, field("balance", kind)])
    columns = avro_event_columns(RegisteredSchema(text), record_schema(RegisteredSchema(text)))
    assert ddl(columns) == "id long NOT NULL, balance decimal(38,2)"
    target = io.BytesIO()
    fastavro.schemaless_writer(
        target,
        fastavro.parse_schema(json.loads(text.replace("logicalType", "not"))),
        {"before": None, "after": {"id": 1, "balance": b"09"}, "source": {"lsn": 7}, "op": "c", "ts_ms": 5},
    )
    writers = ConfluentWireFormat(Registry({1: text}))
    events = ConnectAvroConverter(event_schema(columns, NamingFields(("id",))), writers)
    outcome = events.decode(pa.array([b"\0\0\0\0\1" + target.getvalue()], pa.binary()))
    assert [row["after"] for row in outcome.rows.to_pylist()] == [{"id": 1, "balance": Decimal("123.45")}]


def test_a_decimal_whose_scale_no_column_has_is_refused_with_the_remedy() -> None:
    oracle = {**UNKNOWN, "logicalType": "decimal", "scale": 127, "precision": 64}
    schema = RegisteredSchema(json.dumps({"type": "record", "name": "R", "fields": [field("rate", oracle)]}))
    with pytest.raises(SchemaProblem, match=r"column rate: a decimal of Kafka Connect whose scale.*numeric\.mapping"):
        record_schema(schema)


@pytest.mark.parametrize("precision", [50, 64])
def test_a_default_of_more_digits_than_a_column_has_makes_only_records_bad_that_need_it(precision: int) -> None:
    default = (10**45).to_bytes(20, "big").decode("latin-1")
    kind = {"type": "bytes", "logicalType": "decimal", "scale": 2, "precision": precision}
    newer = {"type": "record", "name": "R", "fields": [{"name": "q", "type": kind, "default": default}]}
    resolution = resolution_of(RegisteredSchema(json.dumps(newer)))
    assert not resolution.defaults and "default" in resolution.unfit["q"]


@pytest.mark.parametrize("name", ["Address", "shop.Address"])
def test_a_declared_type_may_be_used_wrapped(name: str) -> None:
    """As Java's parser has it, and registries that keep a schema as it was registered."""
    city = {"name": "city", "type": {"type": "string"}}
    since = {"name": "since", "type": connect("long", "io.debezium.time.Timestamp")}
    fields = [
        {"name": "id", "type": {"type": "string"}},
        {"name": "bill", "type": {"type": "record", "name": "Address", "fields": [city, since]}},
        {"name": "ship", "type": {"type": name}},
        {"name": "more", "type": ["null", {"type": "array", "items": {"type": name}}]},
        {"name": "by", "type": {"type": "map", "values": [{"type": name}, "null"]}},
    ]
    schema = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    plain = json.loads(json.dumps(schema).replace(json.dumps({"type": name}), json.dumps(name)))
    at = datetime(2026, 1, 31, tzinfo=timezone.utc)
    rome, oslo, kiel = ({"city": city, "since": int(at.timestamp() * 1000)} for city in ("Rome", "Oslo", "Kiel"))
    target = io.BytesIO()
    value = {"id": "o1", "bill": rome, "ship": oslo, "more": [kiel], "by": {"x": rome}}
    fastavro.schemaless_writer(target, fastavro.parse_schema(plain), value)
    registered = RegisteredSchema(json.dumps(schema))
    found = meant_columns(record_schema(registered), parse_connect_avro(registered))
    for columns in (found, parse_ddl(ddl(found))):
        converter = ConnectAvroConverter(columns, ConfluentWireFormat(Registry({1: registered.text})))
        outcome = converter.decode(pa.array([b"\0\0\0\0\1" + target.getvalue()], pa.binary()))
        assert not outcome.rejected
        (row,) = outcome.rows.to_pylist()
        assert row["ship"] == {"city": "Oslo", "since": at}
        assert row["more"] == [{"city": "Kiel", "since": at}]
        assert row["by"] == [("x", {"city": "Rome", "since": at})]
    with pytest.raises(WriterSchemaProblem, match="not Avro"):
        record_schema(
            RegisteredSchema(
                json.dumps(schema).replace('{"type": "Address"}', '{"type": "Nothing"}', 1).replace(name, "No")
            )
        )
