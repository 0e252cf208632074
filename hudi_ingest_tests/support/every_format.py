"""Each format with a converter, good records and bad ones: what hypothesis and `make fuzz` change at will."""

from __future__ import annotations

import importlib
import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.records.convert.avro.converter import (
    AvroValuesOf,
    ConfluentWireFormat,
    OneSchema,
    SingleObjectEncoding,
    Writers,
)
from hudi_ingest.records.convert.connect.debezium import (
    UNAVAILABLE,
    AvailableValues,
    DebeziumConverter,
    NamingFields,
    event_schema,
)
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Converter
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.convert.json.framed import RegisteredSchemas
from hudi_ingest.records.convert.protobuf.converter import RegisteredMessages
from hudi_ingest.records.convert.protobuf.schema import ProtobufSchema, compile_protos
from hudi_ingest.records.convert.protobuf.schema import record_schema as protobuf_record_schema
from hudi_ingest.records.schema.avro import crc_64, record_schema
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import DECIMAL

SCHEMA_ID = 7

Records = tuple[tuple[bytes, ...], tuple[bytes, ...]]
"""Good ones and bad ones."""


@dataclass(frozen=True)
class Subject:
    """A converter, and records of its format."""

    converter: Converter
    schema: pa.Schema
    good: tuple[bytes, ...]
    """Each becomes a row."""
    bad: tuple[bytes, ...]
    """None does."""
    nested: bytes = b""
    """A record, or what begins like one, nested 10,000 deep."""


@dataclass(frozen=True)
class OneId:
    """A registry with one schema."""

    text: str = "{}"
    compiled: bytes = b""

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return RegisteredSchema(self.text) if schema_id == SCHEMA_ID else None

    def descriptor_set(self, schema_id: int) -> bytes | None:
        return self.compiled if schema_id == SCHEMA_ID else None


def framed(payload: bytes, schema_id: int = SCHEMA_ID) -> bytes:
    """Confluent's wire format."""
    return struct.pack(">BI", 0, schema_id) + payload


FLAT = parse_ddl(
    "id string not null, n long, small int, amount double, ratio float, ok boolean, price decimal(20,4), day date, "
    "at timestamp, raw binary, tags array<string>, place struct<lat: double, name: string not null>"
)
MAPPED = pa.schema([*FLAT, pa.field("counts", pa.map_(pa.string(), pa.int64()))])
_FULL: Mapping[str, Any] = {
    "id": "ü-1",
    "n": 2**63 - 1,
    "small": -(2**31),
    "amount": 1e308,
    "ratio": 0.5,
    "ok": True,
    "price": 1234.5678,
    "day": "9999-12-31",
    "at": "0001-01-01T00:00:00Z",
    "raw": "AP8=",
    "tags": ["a", None, ""],
    "place": {"lat": -0.0, "name": "x\n\\u0000"},
    "counts": {"": 1, "k": None},
}


def _json(**changes: Any) -> bytes:
    return json.dumps({**_FULL, **changes}).encode()


_JSON_GOOD = (_json(), b'{"id":""}', b' {"id":"x","n":null,"place":null,"ignored":[{"a":[1]}]}\n')
_JSON_BAD = (
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b'{"id":"a"}{"id":"b"}',
    b'{"id":"a"',
    b'{"id":"a","id":"b"}',
    b'{"id":"\xff"}',
    b'{"id":"\\ud800"}',
    b'\xef\xbb\xbf{"id":"a"}',
    _json(n=2**63),
    _json(small=2**31),
    b'{"id":"a","amount":NaN}',
    b'{"id":"a","amount":-Infinity}',
    b'{"id":"a","amount":1e400}',
    _json(price=10**16),
    _json(price=0.00001),
    _json(day="0000-01-01"),
    _json(day="2026-02-30"),
    _json(at="10000-01-01T00:00:00Z"),
    _json(at="0000-12-31T23:59:59Z"),
    _json(raw="A"),
    _json(place={}),
    _json(tags="a"),
)
_JSON_NESTED = b'{"id":"x","tags":' + b"[" * 10_000 + b"]" * 10_000 + b"}"


_AVRO = """{"type": "record", "name": "Full", "fields": [
  {"name": "id", "type": "string"},
  {"name": "n", "type": ["null", "long"]},
  {"name": "amount", "type": "double"},
  {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
  {"name": "day", "type": {"type": "int", "logicalType": "date"}},
  {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
  {"name": "raw", "type": "bytes"},
  {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
  {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "name", "type": "string"}]}}%s]}"""
AVRO = _AVRO % ""
AVRO_MAPPED = _AVRO % ', {"name": "counts", "type": {"type": "map", "values": "long"}}'


def _datum(text: str, **changes: Any) -> bytes:
    # Without logical types, so that values can be written that Avro's own types would not let through.
    plain = json.loads(text)
    for each in plain["fields"]:
        if isinstance(each["type"], dict) and "logicalType" in each["type"]:
            each["type"] = each["type"]["type"]
        elif isinstance(each["type"], list):
            each["type"] = [kind["type"] if isinstance(kind, dict) else kind for kind in each["type"]]
    record = {
        "id": "ü-1",
        "n": 2**63 - 1,
        "amount": float("inf"),
        "price": (1234).to_bytes(4, "big"),
        "day": 2_932_896,
        "at": -62_135_596_800_000_000,
        "raw": b"\xff\0",
        "tags": ["a", None],
        "place": {"name": "x"},
        "counts": {"a": 1, "b": 2},
    }
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(plain), {**record, **changes})
    return target.getvalue()


def _avro_records(text: str) -> Records:
    whole = _datum(text)
    good = (whole, _datum(text, n=None, at=None, tags=[], id=""), _datum(text, amount=float("nan"), price=b"\0"))
    bad = (
        b"",
        whole[:-1],
        whole[:3],
        whole + b"\0",
        b"\xff" * 40,
        _datum(text, price=b""),
        _datum(text, day=2_932_897),
        _datum(text, day=-719_163),
        _datum(text, at=253_402_300_800_000_000),
        _datum(text, at=-62_135_596_800_000_001),
        _datum(text, price=(10**20).to_bytes(12, "big")),
        whole.replace("ü".encode(), b"\xff\xfe"),
    )
    return good, bad


_PROTO = """syntax = "proto3";
package every;
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Full {
  string id = 1;
  int64 n = 2;
  optional double amount = 3;
  uint32 small = 4;
  google.protobuf.Timestamp at = 5;
  bytes raw = 6;
  repeated string tags = 7;
  message Place { string name = 1; Place inner = 2; }
  repeated int32 numbers = 9;
  uint64 big = 10;
%s}
"""
PROTOBUF = compile_protos("every.proto", {"every.proto": _PROTO % "  bool ok = 8;\n"})
PROTOBUF_MAPPED = compile_protos(
    "every.proto", {"every.proto": _PROTO % "  map<string, int64> counts = 8;\n  Place place = 11;\n"}
)


def _protobuf_schema(descriptors: bytes) -> pa.Schema:
    message = ProtobufSchema(descriptors).message("every.Full")
    if "place" not in message.fields_by_name:
        found = protobuf_record_schema(message)
    else:
        found = parse_ddl(
            "id string, n long, amount double, at timestamp, raw binary, tags array<string>, counts map<string, long>, "
            "place struct<name: string, inner: struct<name: string>>"
        )
    return pa.schema([pa.field("big", pa.int64()) if each.name == "big" else each for each in found])


def _protobuf_records(descriptors: bytes) -> Records:
    make = GetMessageClass(ProtobufSchema(descriptors).message("every.Full"))
    full = make(id="ü", n=-(2**63), amount=float("nan"), small=2**32 - 1, raw=b"\xff", tags=["a", ""], numbers=[1, -1])
    full.at.seconds = 253_402_300_799
    mapped = "counts" in make.DESCRIPTOR.fields_by_name
    if mapped:
        full.counts["k"] = 1
        full.place.inner.inner.name = "x"
    whole: bytes = full.SerializeToString()
    late, fine = make(), make()
    late.at.seconds = 253_402_300_800
    fine.at.nanos = 1
    good = (whole, b"", make(n=1).SerializeToString())
    bad = [
        whole[:-1],
        b"\xff" * 40,
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a\x02\xff\xfe",
        late.SerializeToString(),
        fine.SerializeToString(),
    ]
    if not mapped:
        bad.append(make(big=2**63).SerializeToString())
    return good, tuple(bad)


def _protobuf_nested() -> bytes:
    record = b""
    for _ in range(10_000):
        size, head = len(record), b"\x12"
        while size > 0x7F:
            head += bytes([size & 0x7F | 0x80])
            size >>= 7
        record = head + bytes([size]) + record
    size, head = len(record), b"\x5a"
    while size > 0x7F:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size]) + record


CSV = parse_ddl(
    "id string not null, n long, amount double, price decimal(20,4), day date, at timestamp, ok boolean, raw binary"
)
_CSV_GOOD = (
    "ü,9223372036854775807,1e308,1.5,9999-12-31,0001-01-01T00:00:00Z,true,AP8=".encode(),
    b'"a ""b"", c",,,,,,,\n',
    b'"",-1,-0.0,-0.0001,0001-01-01,2026-01-31T00:00:00+02:00,false,\r\n',
)
_CSV_BAD = (
    b"",
    b"a",
    b",,,,,,,",
    b"a,,,,,,,,",
    b"a,9223372036854775808,,,,,,",
    b"a,,NaN,,,,,",
    b"a,,Infinity,,,,,",
    b"a,,,,0000-01-01,,,",
    b"a,,,,,10000-01-01T00:00:00Z,,",
    b'"a,,,,,,,',
    b'a"b,,,,,,,',
    b"a,,,,,,,\nb,,,,,,,",
    b"\xff,,,,,,,",
    b"a,,,,,,,A",
)


_UNFRAMED: tuple[bytes, ...] = (
    b"",
    b"\0",
    b"\0\0\0\0",
    b"\1" + b"\0" * 16,
    b"{}",
    framed(b"{}", 8),
    framed(b"", 2**32 - 1),
)


def _subject(
    converter: Converter,
    schema: pa.Schema,
    records: Records,
    frame: bytes = b"",
    bad: Sequence[bytes] = (),
    nested: bytes = b"",
) -> Subject:
    """`frame` stands before the records; `bad` are more of them, as they are."""
    good, wrong = (tuple(frame + each for each in some) for some in records)
    return Subject(converter, schema, good, (*wrong, *bad), frame + nested if nested else b"")


@cache
def subjects() -> Mapping[str, Subject]:
    """By name."""
    # Without it the JSON converters would leave so few records to their exact path.
    importlib.import_module("hudi_ingest.records.convert.json.kernel.records")
    in_json, in_csv = (_JSON_GOOD, _JSON_BAD), (_CSV_GOOD, _CSV_BAD)
    text, raw = parse_ddl("value string not null"), parse_ddl("value binary not null")
    plain = (b"", "ü\0\n".encode(), b"x" * 300)
    behind_ids = converter_for("json_schema", FLAT, {"registered": RegisteredSchemas(OneId())})
    return {
        "json": _subject(converter_for("json", FLAT), FLAT, in_json, nested=_JSON_NESTED),
        "json with a map": _subject(converter_for("json", MAPPED), MAPPED, in_json, nested=_JSON_NESTED),
        "json_schema": _subject(behind_ids, FLAT, in_json, framed(b""), _UNFRAMED, _JSON_NESTED),
        "connect": _connect(),
        "debezium": _debezium(framed=False),
        "debezium with schemas": _debezium(framed=True),
        "csv": _subject(converter_for("csv", CSV), CSV, in_csv),
        "string": _subject(converter_for("string", text), text, (plain, (b"\xff", b"\xed\xa0\x80", b"a\xc3"))),
        "bytes": _subject(converter_for("bytes", raw), raw, (plain, ())),
        **_avro("avro", AVRO),
        **_avro("avro with a map", AVRO_MAPPED),
        **_protobuf("protobuf", PROTOBUF, b""),
        **_protobuf("protobuf with a map", PROTOBUF_MAPPED, _protobuf_nested()),
    }


TYPED = parse_ddl(
    "id string, price decimal(12,2), day date, at timestamp, times array<timestamp>, more map<string, date>"
)
TYPED_FIELDS: list[dict[str, Any]] = [
    {"field": "id", "type": "string"},
    {"field": "price", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "at", "type": "int64", "name": "io.debezium.time.NanoTimestamp"},
    {"field": "times", "type": "array", "items": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}},
    {
        "field": "more",
        "type": "map",
        "keys": {"type": "string"},
        "values": {"type": "int32", "name": "io.debezium.time.Date"},
    },
]
_TYPED_ROW: dict[str, Any] = {
    "id": "ü-1",
    "price": "+w==",
    "day": -1,
    "at": 1_769_862_896_123_456_000,
    "times": [0, None],
}


def enveloped(payload: Any, fields: Sequence[Mapping[str, Any]], separators: tuple[str, str] = (",", ":")) -> bytes:
    schema = {"type": "struct", "fields": fields}
    return json.dumps({"schema": schema, "payload": payload}, separators=separators).encode()


def _connect() -> Subject:
    good = (
        enveloped(_TYPED_ROW, TYPED_FIELDS),
        enveloped({**_TYPED_ROW, "other": [1], "more": None, "times": []}, TYPED_FIELDS, (", ", ": ")),
        enveloped({}, TYPED_FIELDS[:1]),
        b'{"schema":null,"payload":{"day":1}}',
    )
    bad = (
        *(
            enveloped({**_TYPED_ROW, **wrong}, TYPED_FIELDS)
            for wrong in ({"price": "x"}, {"at": 1}, {"times": [2**62]}, {"more": {"x": 2**31 - 1}})
        ),
        enveloped(None, TYPED_FIELDS),
        enveloped({}, [{"field": {}, "type": "string"}]),
        enveloped({}, [{"field": "id", "type": {}, "name": {}}]),
        enveloped(_TYPED_ROW, [{**TYPED_FIELDS[1], "name": {"a": 1}}]),
        enveloped(_TYPED_ROW, [{**TYPED_FIELDS[1], "parameters": {"scale": 10**30}}]),
        *_JSON_BAD,
    )
    return Subject(ConnectJsonConverter(TYPED, framed=True), TYPED, good, bad, b'{"schema":' + b"[" * 10_000)


def _debezium(framed: bool) -> Subject:
    naming = NamingFields(("id", "day"), whole=True)
    events = ConnectJsonConverter(event_schema(TYPED, naming, ["source.lsn"]), framed=False)
    converter = AvailableValues(DebeziumConverter(events, TYPED, naming, {"lsn": "source.lsn"}))
    row = {"type": "struct", "optional": True, "fields": TYPED_FIELDS}
    fields: list[dict[str, Any]] = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"field": "op", "type": "string"},
    ]
    plain = {**_TYPED_ROW, "price": "1.25", "at": "2026-01-31", "times": None, "more": {"x": 1}}

    def event(op: Any, before: Any = None, after: Any = None) -> bytes:
        payload = {"before": before, "after": after, "op": op, "source": {"lsn": 7}}
        return enveloped(payload, fields) if framed else json.dumps(payload).encode()

    image = _TYPED_ROW if framed else plain
    good = (event("c", None, image), event("u", {**image, "id": None}, image), event("d", image), event("r", None, {}))
    bad = (
        event("t"),
        event(7, None, image),
        event("d"),
        event("u", None, image),
        event("c", image, None),
        event("c", None, {**image, "price": "x"}),
        event("u", image, {**image, "id": UNAVAILABLE}),
        *_JSON_BAD,
    )
    schema = converter.decode(pa.array([], pa.binary())).rows.schema
    return Subject(converter, schema, good, bad, b'{"after":' + b"[" * 10_000)


def _avro(name: str, text: str) -> dict[str, Subject]:
    written = RegisteredSchema(text)
    schema, records = record_schema(written), _avro_records(text)
    single, start = SingleObjectEncoding.of(text), b"\xc3\x01"

    def reading(writers: Writers) -> Converter:
        return converter_for("avro", schema, {"values": AvroValuesOf(writers)})

    return {
        f"{name}, datum": _subject(reading(OneSchema(written)), schema, records),
        f"{name}, confluent": _subject(
            reading(ConfluentWireFormat(OneId(text))), schema, records, framed(b""), _UNFRAMED
        ),
        f"{name}, single object": _subject(
            reading(single), schema, records, start + crc_64(text), (b"\xc3", start + b"x" * 9)
        ),
    }


def _protobuf(name: str, descriptors: bytes, nested: bytes) -> dict[str, Subject]:
    schema, records = _protobuf_schema(descriptors), _protobuf_records(descriptors)
    plain = converter_for("protobuf", schema, {"descriptor_set": descriptors, "message": "every.Full"})
    messages = RegisteredMessages(OneId(compiled=descriptors), "every.Full")
    registered = converter_for("protobuf", schema, {"registered": messages})
    head = framed(b"\2\2")  # a list of one index, the second message type
    bad = (*_UNFRAMED, framed(b"\0"), framed(b"\2\x08"), framed(b"\1"), framed(b"\x02\xff\xff"))
    return {
        name: _subject(plain, schema, records, nested=nested),
        f"{name}, registered": _subject(registered, schema, records, head, bad, nested),
    }


def mutated(chance: Random, records: Sequence[bytes]) -> bytes:
    """One of the records, with a few of its bytes changed, cut out, doubled, or taken from another."""
    content = bytearray(chance.choice(records))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(content) + 1)
        end = min(len(content), at + chance.randrange(1, 9))
        match chance.randrange(6):
            case 0 if content:
                content[at % len(content)] ^= 1 << chance.randrange(8)
            case 1 if content:
                content[at % len(content)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x7B, 0x7D, 0x2C, 0x0A))
            case 2:
                del content[at:end]
            case 3:
                content[at:at] = content[at:end]
            case 4:
                other = chance.choice(records)
                begin = chance.randrange(len(other) + 1)
                content[at:] = other[begin:]
            case _:
                del content[at:]
    return bytes(content)
