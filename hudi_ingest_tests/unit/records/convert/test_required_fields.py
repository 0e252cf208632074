"""Records of registered schemas that lack a column of a keyed table, in every format."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from hudi_ingest.records.convert.avro.converter import ConfluentWireFormat, SingleObjectEncoding
from hudi_ingest.records.convert.connect.avro import ConnectAvroConverter
from hudi_ingest.records.convert.converter import Converter, Decoded
from hudi_ingest.records.convert.json.framed import JsonSchemaConverter
from hudi_ingest.records.convert.protobuf.converter import (
    ProtobufConverter,
    ProtobufOptions,
    RegisteredMessages,
    RegisteredProtobufConverter,
)
from hudi_ingest.records.convert.protobuf.schema import CompiledSchemas, ProtobufSchema, compiled
from hudi_ingest.records.convert.values import RequiredFields
from hudi_ingest.records.schema.avro import Resolution, crc_64
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import UNKNOWN

pytestmark = pytest.mark.fast

ROW = parse_ddl("id string not null, city string, lines array<struct<sku: string, price: int>>, planned string")
FIRST = {"id": "a"}
WHOLE = {"id": "a", "city": "Ulm", "lines": [{"sku": "s", "price": 1}]}
RENAMED = {"id": "a", "town": "Ulm", "lines": [{"sku": "s", "price": 1}]}
DEEP = {"id": "a", "city": "Ulm", "lines": [{"sku": "s"}]}
SHAPES: list[dict[str, Any]] = [FIRST, WHOLE, RENAMED, DEEP]
"""Records of the versions of a schema, ascending, each with all fields of its version."""


@dataclass(frozen=True)
class Registry:
    """Schemas with the ids from 1 on."""

    schemas: tuple[RegisteredSchema, ...]

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        return self.schemas[schema_id - 1]


def avro_type(value: Any, name: str = "r") -> Any:
    if isinstance(value, str):
        return ["null", "string"]
    if isinstance(value, int):
        return "int"
    if isinstance(value, list):
        return {"type": "array", "items": avro_type(value[0], f"{name}_")}
    return {"type": "record", "name": name, "fields": [{"name": k, "type": avro_type(v, k)} for k, v in value.items()]}


def json_type(value: Any, **more: Any) -> Any:
    if isinstance(value, list):
        return {"type": "array", "items": json_type(value[0], **more)}
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: json_type(v, **more) for name, v in value.items()}, **more}
    return {"type": "string" if isinstance(value, str) else "integer"}


NUMBERS = {"id": 1, "city": 2, "lines": 3, "town": 4, "sku": 1, "price": 2}


def proto_type(name: str, value: Mapping[str, Any]) -> str:
    def field(key: str, of: Any) -> str:
        if isinstance(of, list):
            return f"{proto_type('Line', of[0])} repeated Line {key} = {NUMBERS[key]};"
        return f"{'string' if isinstance(of, str) else 'int32'} {key} = {NUMBERS[key]};"

    return f"message {name} {{ {' '.join(field(*item) for item in value.items())} }}"


def registered(format: str, shape: Mapping[str, Any], **more: Any) -> RegisteredSchema:
    if format == "avro":
        return RegisteredSchema(json.dumps(avro_type(shape)))
    if format == "json_schema":
        return RegisteredSchema(json.dumps(json_type(shape, **more)))
    return RegisteredSchema(f'syntax = "proto3"; package shop; {proto_type("Order", shape)}')


def written(format: str, schema_id: int, schema: RegisteredSchema, record: Mapping[str, Any]) -> bytes:
    head = b"\0" + schema_id.to_bytes(4, "big")
    if format == "avro":
        target = io.BytesIO()
        fastavro.schemaless_writer(target, fastavro.parse_schema(json.loads(schema.text)), dict(record))
        return head + target.getvalue()
    if format == "json_schema":
        return head + json.dumps(record).encode()
    message = GetMessageClass(ProtobufSchema(compiled(schema)).message("shop.Order"))
    return head + b"\0" + bytes(message(**record).SerializeToString())


def converter(format: str, schemas: tuple[RegisteredSchema, ...], required: RequiredFields) -> Converter:
    lookup = Registry(schemas)
    made: Converter
    if format == "avro":
        made = ConnectAvroConverter(required.row, ConfluentWireFormat(lookup), required=required)
    elif format == "json_schema":
        made = JsonSchemaConverter(required.row, lookup, required)
    else:
        settings = RegisteredMessages(CompiledSchemas(lookup), "shop.Order", required=required)
        made = RegisteredProtobufConverter(required.row, settings)
    copy: Converter = pickle.loads(pickle.dumps(made))
    return copy


@pytest.mark.parametrize("format", ["avro", "json_schema", "protobuf"])
def test_a_record_is_bad_whose_schema_lacks_a_column_that_one_before_had(format: str) -> None:
    schemas = tuple(registered(format, shape, additionalProperties=False) for shape in SHAPES)
    values = [written(format, at + 1, schema, SHAPES[at]) for at, schema in enumerate(schemas)]

    def outcome(*optional: str, known: int = 4) -> Decoded:
        required = RequiredFields(ROW, frozenset(optional), versions=(schemas[:known], (registered(format, WHOLE),)))
        return converter(format, schemas, required).decode(pa.array([*values, values[1]], pa.binary()))

    # No schema has `planned` yet, and the first had no `city` before.
    found = outcome()
    assert [(bad.index, bad.field) for bad in found.rejected] == [(2, "city"), (3, "lines.element.price")]
    assert "`source.optional_fields: [city]`" in found.rejected[0].expected
    assert found.rejected[0].found == "no such field; not among the columns: town"
    assert [row["city"] or None for row in found.rows.to_pylist()] == [None, "Ulm", "Ulm"]
    # Schemas that are registered later come after those that are known.
    assert outcome(known=2).rejected == found.rejected
    assert outcome("city", "lines.element.price").rejected == ()
    # A subject that is not looked up has no versions.
    required = RequiredFields(ROW, versions=())
    assert converter(format, schemas, required).decode(pa.array(values, pa.binary())).rejected == ()


def test_a_json_schema_that_allows_other_fields_lacks_none() -> None:
    schemas = tuple(registered("json_schema", shape) for shape in SHAPES[:3])
    required = RequiredFields(ROW, versions=(schemas,))
    values = pa.array([written("json_schema", 3, schemas[2], RENAMED)], pa.binary())
    assert converter("json_schema", schemas, required).decode(values).rejected == ()


def test_a_json_schema_that_refers_to_its_parts_is_judged_like_another() -> None:
    def referring(shape: Mapping[str, Any], *, nested: bool) -> RegisteredSchema:
        definitions = {
            "Line": json_type({"sku": "s", "price": 1} if nested else {"sku": "s"}, additionalProperties=False)
        }
        order = json_type(shape, additionalProperties=False)
        order["properties"]["lines"]["items"] = {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/Line"}]}
        order["properties"]["parent"] = {"$ref": "#/$defs/Order"}
        return RegisteredSchema(json.dumps({"$ref": "#/$defs/Order", "$defs": {**definitions, "Order": order}}))

    schemas = (
        referring(WHOLE, nested=True),
        referring(RENAMED, nested=True),
        referring(DEEP, nested=False),
        RegisteredSchema(json.dumps({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})),
        RegisteredSchema(json.dumps({"$ref": "https://example.org/order.json"})),
    )
    records: list[dict[str, Any]] = [WHOLE, RENAMED, DEEP, FIRST, FIRST]
    values = [written("json_schema", at + 1, schemas[at], record) for at, record in enumerate(records)]
    required = RequiredFields(ROW, versions=(schemas,))
    outcome = converter("json_schema", schemas, required).decode(pa.array(values, pa.binary()))
    assert [(bad.index, bad.field) for bad in outcome.rejected] == [(1, "city"), (2, "lines.element.price")]


def test_a_schema_in_a_file_has_to_have_every_column() -> None:
    """Nothing shows what it was before."""
    row = pa.schema([field for field in ROW if field.name != "planned"])
    schemas = [registered("avro", shape) for shape in SHAPES]
    values = [
        b"\xc3\x01" + crc_64(schema.text) + written("avro", 0, schema, shape)[5:]
        for schema, shape in zip(schemas, SHAPES, strict=True)
    ]
    writers = SingleObjectEncoding.of(*(schema.text for schema in schemas))
    lacking = [(0, "city"), (2, "city"), (3, "lines.element.price")]
    for required, expected in (
        (RequiredFields(row), lacking),
        (RequiredFields(row, frozenset({"city", "lines"})), lacking[2:]),
    ):
        made = ConnectAvroConverter(row, writers, required=required)
        outcome = made.decode(pa.array(values, pa.binary()))
        assert [(bad.index, bad.field) for bad in outcome.rejected] == expected

    descriptors = compiled(registered("protobuf", DEEP))
    options = ProtobufOptions("shop.Order", descriptors)
    message = pa.array([written("protobuf", 0, registered("protobuf", DEEP), DEEP)[6:]], pa.binary())
    strict: ProtobufConverter = pickle.loads(pickle.dumps(ProtobufConverter(row, options, RequiredFields(row))))
    assert [bad.field for bad in strict.decode(message).rejected] == ["lines.element.price"]
    assert ProtobufConverter(row, options).decode(message).rejected == ()


def test_a_field_of_avro_under_an_alias_is_not_lacking() -> None:
    schemas = tuple(registered("avro", shape) for shape in (WHOLE, RENAMED))
    required = RequiredFields(ROW, versions=(schemas,))
    resolution = Resolution(aliases={"city": ("town",)})
    made = ConnectAvroConverter(ROW, ConfluentWireFormat(Registry(schemas)), resolution, required)
    outcome = made.decode(pa.array([written("avro", 2, schemas[1], RENAMED)], pa.binary()))
    assert [row["city"] for row in outcome.rows.to_pylist()] == ["Ulm"]


def test_each_record_of_a_union_is_compared_with_itself() -> None:
    """The second record of the union never had the column, the first has lost it."""
    row = parse_ddl("id string, city string")
    gone = {"type": "record", "name": "Gone", "fields": [{"name": "id", "type": "string"}]}
    old, new = (
        RegisteredSchema(json.dumps([{**avro_type(shape), "name": "Order"}, gone]))
        for shape in ({"id": "a", "city": "Ulm"}, {"id": "a", "town": "Ulm"})
    )
    required = RequiredFields(row, versions=((old, new),))
    values = [
        written("avro", 2, new, {"-type": "Order", "id": "a", "town": "Ulm"}),
        written("avro", 2, new, {"-type": "Gone", "id": "a"}),
    ]
    outcome = converter("avro", (old, new), required).decode(pa.array(values, pa.binary()))
    assert [(bad.index, bad.field) for bad in outcome.rejected] == [(0, "city")]


def test_what_a_schema_may_lack_for_now_is_not_advised_as_optional() -> None:
    row = pa.schema([(name, pa.string()) for name in ("id", "old", "new")])
    required = RequiredFields(row, frozenset({"id"}), recent=frozenset({"new"}))
    assert required.refusal_of(pa.struct([("old", UNKNOWN)])) is None
    refusal = required.refusal_of(pa.struct([("id", UNKNOWN)]))
    assert refusal is not None
    assert "source.optional_fields: [id, old]`" in refusal.fault.expected
