"""Parse the schema that a record was written with into a tree of types, and describe the layout of its bytes.

Decoders get only the bytes' layout (`wire_schema`): no logical types, strings and enums as the bytes and numbers that
they are written as, and maps as the arrays of key-value records that they are written as. So nothing that matters to a row
is left to a decoder: not UTF-8, not the range of dates, not repeated keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import count
from typing import Any

import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, parse_schema, to_parsing_canonical_form

from hudi_ingest.records.schema.avsc import parse_avsc
from hudi_ingest.records.schema.columns import MAX_DEPTH, MAX_FIELDS
from hudi_ingest.records.schema.registered import RegisteredSchema

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_LOGICAL_COLUMNS = {
    ("bytes", "decimal"),
    ("fixed", "decimal"),
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
}
_WIRE = {"string": "bytes", "enum": "int"}


class WriterSchemaProblem(ValueError):
    """The schema cannot be used to read records; the text says why."""


@dataclass(frozen=True, slots=True)
class AvroType:
    """A writer's type with all names resolved."""

    kind: str
    """null, boolean, int, long, float, double, bytes, string, fixed, enum, record, array, map or union."""
    logical: str | None = None
    names: tuple[str, ...] = ()
    """Fields of a record, symbols of an enum."""
    parts: tuple[AvroType, ...] = ()
    """Types of a record's fields, of a union's branches, of an array's items or of a map's values (one)."""
    size: int = 0
    """Bytes of a fixed."""
    scale: int = 0
    """The scale of a decimal."""

    @property
    def inner(self) -> tuple[AvroType, bool]:
        """The type of values that are not null, and whether null is allowed; for unions of several other types, the union."""
        values = [part for part in self.parts if part.kind != "null"]
        if self.kind != "union" or len(values) != 1:
            return self, False
        return values[0], len(self.parts) > 1

    def __str__(self) -> str:
        if self.kind == "union":
            return f"a union of [{', '.join(map(str, self.parts))}]"
        return f"{self.kind} ({self.logical})" if self.logical else self.kind


def parse_writer(schema: RegisteredSchema) -> AvroType:
    """Parse a writer's schema into a tree. Raises WriterSchemaProblem."""
    named: dict[str, Any] = {}
    try:
        for text in schema.references:
            parse_schema(_loads(text), named)
        schema_json = parse_schema(_loads(schema.text), named)
        return _Tree(named).type(schema_json, (), 0)
    except json.JSONDecodeError as error:
        # A registry may return a schema of one primitive type as its bare name.
        if schema.text in _PRIMITIVES:
            return AvroType(schema.text)
        raise WriterSchemaProblem(f"its schema is not JSON: {error}") from None
    except (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, WriterSchemaProblem):
            raise
        raise WriterSchemaProblem(f"its schema is not Avro: {error}") from None
    except RecursionError:
        raise WriterSchemaProblem(f"its schema is nested deeper than {MAX_DEPTH} levels") from None


def record_schema(schema: RegisteredSchema) -> pa.Schema:
    """Return the columns of a record schema. Raises SchemaProblem when no table can have them, and WriterSchemaProblem.

    A logical type that tables do not have is read as its plain type, as Avro requires.
    """
    parse_writer(schema)  # ensures that all names are declared, and no record contains itself
    named: dict[str, Any] = {}
    for text in schema.references:
        parse_schema(_loads(text), named)
    return parse_avsc(json.dumps(_self_contained(parse_schema(_loads(schema.text), named), named, set())))


def _self_contained(schema: Any, named: Mapping[str, Any], declared: set[str]) -> Any:
    """Replace the first use of every name in the schema by its declaration."""
    if isinstance(schema, str) and schema in named and schema not in declared:
        schema = named[schema]
    if isinstance(schema, list):
        return [_self_contained(branch, named, declared) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] in ("record", "enum", "fixed"):
        declared.add(schema["name"])
    resolved = {key: value for key, value in schema.items() if not key.startswith("__")}
    if (resolved["type"], resolved.get("logicalType")) not in _LOGICAL_COLUMNS:
        resolved.pop("logicalType", None)
    for key in resolved.keys() & {"items", "values"}:
        resolved[key] = _self_contained(resolved[key], named, declared)
    if "fields" in resolved:
        resolved["fields"] = [
            {**field, "type": _self_contained(field["type"], named, declared)} for field in resolved["fields"]
        ]
    return resolved


def field_defaults(schema: RegisteredSchema) -> dict[str, Any]:
    """Return the defaults in a record schema, as `pyarrow.scalar` takes them, by field path (`customer.zip`,
    `lines[].price`). Raises WriterSchemaProblem."""
    defaults: dict[str, Any] = {}
    named: dict[str, Any] = {}
    parse_writer(schema)
    for text in schema.references:
        parse_schema(json.loads(text), named)
    _add_defaults(parse_schema(json.loads(schema.text), named), "", named, defaults)
    return defaults


def _add_defaults(schema: Any, path: str, named: Mapping[str, Any], defaults: dict[str, Any]) -> None:
    if isinstance(schema, str):
        schema = named.get(schema)
    if isinstance(schema, list):
        for branch in schema:
            _add_defaults(branch, path, named, defaults)
    elif isinstance(schema, dict) and schema["type"] == "record":
        for field in schema["fields"]:
            inner = f"{path}.{field['name']}".removeprefix(".")
            if "default" in field:
                defaults[inner] = _default(_Tree(named).type(field["type"], (), 0), field["default"])
            _add_defaults(field["type"], inner, named, defaults)
    elif isinstance(schema, dict):
        _add_defaults(schema.get("items", schema.get("values")), f"{path}[]", named, defaults)


def _default(type_: AvroType, value: Any) -> Any:
    """Convert a default's JSON to its value. A union's default belongs to its first branch."""
    if type_.kind == "union":
        return _default(type_.parts[0], value)
    if type_.kind in ("bytes", "fixed"):
        content = str(value).encode("latin-1")
        if type_.logical != "decimal":
            return content
        return Decimal(int.from_bytes(content, "big", signed=True)).scaleb(-type_.scale, Context(prec=76))
    if type_.logical in ("timestamp-millis", "local-timestamp-millis"):
        return value * 1000
    if type_.kind == "record":
        return {
            name: _default(part, value[name])
            for name, part in zip(type_.names, type_.parts, strict=True)
            if name in value
        }
    if type_.kind == "array":
        return [_default(type_.parts[0], item) for item in value]
    if type_.kind == "map":
        return [(key, _default(type_.parts[0], item)) for key, item in value.items()]
    return value


def _loads(text: str) -> Any:
    """Parse a schema's JSON without defaults: the writer's are not needed, and fastavro refuses some that occur in practice."""
    return json.loads(text, object_pairs_hook=lambda pairs: {key: value for key, value in pairs if key != "default"})


def crc_64(text: str) -> bytes:
    """Return a schema's fingerprint in single-object encoding, its 8 bytes in the encoding's order. Raises
    WriterSchemaProblem."""
    parse_writer(RegisteredSchema(text))
    canonical = to_parsing_canonical_form(parse_schema(_loads(text)))
    # fastavro writes the fingerprint's bytes as hex in the order of the encoding, the lowest byte first.
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


class _Tree:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._types = 0

    def type(self, schema: Any, within: tuple[str, ...], depth: int) -> AvroType:
        """Parse a type. `within`: names of the enclosing records."""
        self._types += 1
        if self._types > MAX_FIELDS or depth > MAX_DEPTH:
            raise WriterSchemaProblem(
                f"its schema has more than {MAX_FIELDS} types or is nested deeper than {MAX_DEPTH} levels"
            )
        if isinstance(schema, list):
            if any(isinstance(branch, list) for branch in schema):
                raise WriterSchemaProblem("its schema has a union inside a union")
            return AvroType("union", parts=tuple(self.type(branch, within, depth) for branch in schema))
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return AvroType(schema)
            if schema in within:
                raise WriterSchemaProblem(f"its schema's record {schema} contains itself")
            return self.type(self._named[schema], within, depth)
        kind, logical = schema["type"], schema.get("logicalType")
        logical = logical if isinstance(logical, str) else None
        if kind in ("record", "error"):
            within = (*within, schema["name"])
            names = tuple(field["name"] for field in schema["fields"])
            parts = tuple(self.type(field["type"], within, depth + 1) for field in schema["fields"])
            return AvroType("record", names=names, parts=parts)
        if kind == "array":
            item = self.type(schema["items"], within, depth + 1)
            if _may_be_no_bytes(item):
                # A few bytes could claim any number of such items.
                raise WriterSchemaProblem("its schema has an array whose items take no bytes")
            return AvroType("array", parts=(item,))
        if kind == "map":
            return AvroType("map", parts=(self.type(schema["values"], within, depth + 1),))
        if kind == "enum":
            return AvroType("enum", names=tuple(schema["symbols"]))
        size, scale = schema.get("size", 0), schema.get("scale", 0)
        if type(size) is not int or size < 0 or type(scale) is not int or scale < 0:
            raise WriterSchemaProblem("its schema has a size or scale that is not a whole number from 0 on")
        if kind in ("bytes", "fixed") and logical == "decimal":
            return AvroType(kind, "decimal", size=size, scale=scale)
        if kind == "fixed":
            return AvroType("fixed", logical, size=size)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return AvroType(kind, logical)
        return self.type(kind, within, depth)


def _may_be_no_bytes(type_: AvroType) -> bool:
    if type_.kind == "record":
        return all(_may_be_no_bytes(part) for part in type_.parts)
    return type_.kind == "null" or (type_.kind == "fixed" and type_.size == 0)


def wire_schema(type_: AvroType) -> Any:
    """Return an Avro schema with the same byte layout but no meaning. Its names are single letters with a number."""
    return _wire(type_, count())


def _wire(type_: AvroType, numbers: Iterator[int]) -> Any:
    if type_.kind == "record":
        name = f"r{next(numbers)}"
        fields = [{"name": f"f{i}", "type": _wire(part, numbers)} for i, part in enumerate(type_.parts)]
        return {"type": "record", "name": name, "fields": fields}
    if type_.kind == "union":
        # A record of one field is encoded like the field, and keeps branches apart that would look alike.
        many = type_.inner[0] is type_
        return [
            _wire(AvroType("record", names=("of",), parts=(part,)) if many and part.kind != "null" else part, numbers)
            for part in type_.parts
        ]
    if type_.kind == "array":
        return {"type": "array", "items": _wire(type_.parts[0], numbers)}
    if type_.kind == "map":
        # The same bytes as a map, but repeated keys can be detected.
        entry = AvroType("record", names=("key", "value"), parts=(AvroType("bytes"), type_.parts[0]))
        return {"type": "array", "items": _wire(entry, numbers)}
    if type_.kind == "fixed":
        return {"type": "fixed", "name": f"x{next(numbers)}", "size": type_.size}
    return _WIRE.get(type_.kind, type_.kind)
