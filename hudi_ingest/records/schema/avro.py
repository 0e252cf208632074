"""Parse the schema that a record was written with into a tree of types, and describe the layout of its bytes.

Decoders get only the bytes' layout (`wire_schema`): no logical types, strings and enums as the bytes and numbers that
they are written as, and maps as the arrays of key-value records that they are written as. So nothing that matters to a row
is left to a decoder: not UTF-8, not the range of dates, not repeated keys.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from itertools import count
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, parse_schema, to_parsing_canonical_form

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.schema.avsc import CONNECT_DECIMAL, UNKNOWN_PRECISION, parse_avsc
from hudi_ingest.records.schema.columns import MAX_DEPTH, MAX_FIELDS
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_KINDS = _PRIMITIVES | {"record", "error", "enum", "fixed", "array", "map"}
_LOGICAL_COLUMNS = {
    ("bytes", "decimal"),
    ("fixed", "decimal"),
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
}
_DEFAULT = "hudi_ingest.default"
_NO_DEFAULT = object()
_NO_DECIMAL = "decimal, ignored for its "
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
    precision: int = 0
    scale: int = 0
    """Precision and scale of a decimal."""
    aliases: tuple[tuple[str, ...], ...] = ()
    defaults: tuple[Any, ...] = ()
    """Defaults of a record's fields, as in JSON; _NO_DEFAULT for none."""

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
        remedy = "; declare binary" if (self.logical or "").startswith(_NO_DECIMAL) else ""
        return f"{self.kind} ({self.logical}){remedy}" if self.logical else self.kind


def parse_writer(schema: RegisteredSchema) -> AvroType:
    """Parse a writer's schema into a tree. Raises WriterSchemaProblem."""
    return _parsed(schema)[2]


def _parsed(schema: RegisteredSchema) -> tuple[Any, dict[str, Any], AvroType]:
    """Return a schema with full names, the declarations by name, and its tree. Raises WriterSchemaProblem."""
    named: dict[str, Any] = {}
    try:
        for text in schema.references:
            parse_schema(_readable(json.loads(text)), named)
        parsed = parse_schema(_readable(json.loads(schema.text)), named)
        return parsed, named, _Tree(named).type(parsed, (), 0)
    except json.JSONDecodeError as error:
        # A registry may return a schema of one primitive type as its bare name.
        if schema.text in _PRIMITIVES:
            return schema.text, {}, AvroType(schema.text)
        raise WriterSchemaProblem(f"its schema is not JSON: {error}") from None
    except WriterSchemaProblem:
        raise
    except (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError, ValueError) as error:
        raise WriterSchemaProblem(f"its schema is not Avro: {error}") from None
    except RecursionError:
        raise WriterSchemaProblem(f"its schema is nested deeper than {MAX_DEPTH} levels") from None


def record_schema(schema: RegisteredSchema) -> pa.Schema:
    """Return the columns of a record schema. Raises SchemaProblem when no table can have them, and WriterSchemaProblem.

    A logical type that tables do not have is read as its plain type, as Avro requires.
    """
    parsed, named, tree = _parsed(schema)
    if not isinstance(parsed, dict) or parsed["type"] != "record":
        raise SchemaProblem([f"the schema is {_named_union(parsed) or tree}, not a record"])
    return parse_avsc(json.dumps(_self_contained(parsed, named, set())))


def _named_union(parsed: Any) -> str:
    """Show a union with the names of its records; "" for anything else."""
    if not isinstance(parsed, list):
        return ""
    return f"a union of [{', '.join(part if isinstance(part, str) else part.get('name', part['type']) for part in parsed)}]"


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


@dataclass(frozen=True)
class Resolution:
    """How fields are found that a writer's schema lacks, by the fields' paths (`customer.zip`, `lines[].price`)."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values as `pyarrow.scalar` takes them."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Other names that a field may have in writers' schemas."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Defaults that do not fit their types, in words. Registries accept them; only a record that needs one is bad."""

    def written_name(self, path: str, names: Sequence[str]) -> str | None:
        """Return which of a record's `names` is the field's; None if it has no such field."""
        known = (path.rpartition(".")[2], *self.aliases.get(path, ()))
        return next((name for name in known if name in names), None)

    def under(self, path: str) -> Resolution:
        """Return the same for a record that is the field `path` of another."""
        parts = ({f"{path}.{name}": of_field for name, of_field in part.items()} for part in vars(self).values())
        return Resolution(*parts)

    def or_else(self, other: Resolution) -> Resolution:
        """Return this, completed by `other`."""
        return Resolution(
            *({**theirs, **ours} for theirs, ours in zip(vars(other).values(), vars(self).values(), strict=True))
        )


NO_RESOLUTION = Resolution()


def resolution_of(schema: RegisteredSchema) -> Resolution:
    """Return the defaults and aliases of a reader's schema. Raises WriterSchemaProblem."""
    found = Resolution({}, {}, {})
    _add_fields(parse_writer(schema), "", found.defaults, found.aliases, found.unfit)  # type: ignore[arg-type]
    return found


def _add_fields(
    type_: AvroType, path: str, defaults: dict[str, Any], aliases: dict[str, tuple[str, ...]], unfit: dict[str, str]
) -> None:
    for at, part in enumerate(type_.parts):
        inner = path if type_.kind == "union" else f"{path}[]"
        if type_.kind == "record":
            inner = f"{path}.{type_.names[at]}".removeprefix(".")
            if type_.aliases[at]:
                aliases[inner] = type_.aliases[at]
            if type_.defaults[at] is not _NO_DEFAULT:
                try:
                    defaults[inner] = _default(part, type_.defaults[at])
                except (ValueError, OverflowError):
                    unfit[inner] = f"default {json.dumps(type_.defaults[at])[:40]}, which is no {part}"
        _add_fields(part, inner, defaults, aliases, unfit)


_NUMBERS: Mapping[tuple[str, str | None], tuple[int, int, int]] = {
    ("int", "date"): (FIRST_DAY, LAST_DAY, 1),
    ("int", None): (-(1 << 31), (1 << 31) - 1, 1),
    ("long", "timestamp-millis"): (-(-FIRST_MICROSECOND // 1000), LAST_MICROSECOND // 1000, 1000),
    ("long", "timestamp-micros"): (FIRST_MICROSECOND, LAST_MICROSECOND, 1),
    ("long", None): (-(1 << 63), (1 << 63) - 1, 1),
}
"""By type: the least and the greatest number, and its unit."""


def _default(type_: AvroType, value: Any) -> Any:
    """Convert a default's JSON to its value. Raises ValueError or OverflowError when it does not fit the type."""
    if type_.kind == "union":
        for part in type_.parts:
            try:
                return _default(part, value)
            except (ValueError, OverflowError):
                continue
    elif type_.kind in ("int", "long") and type(value) is int:
        plain = (type_.kind, None)
        least, greatest, unit = _NUMBERS.get((type_.kind, type_.logical), _NUMBERS[plain])
        if least <= value <= greatest:
            return value * unit
    elif type_.kind in ("float", "double") and type(value) in (int, float):
        return float(value)
    elif type_.kind in ("bytes", "fixed") and isinstance(value, str):
        content = value.encode("latin-1")
        if type_.kind == "fixed" and len(content) != type_.size:
            raise ValueError("of another size")
        if type_.logical != "decimal":
            return content
        number = int.from_bytes(content, "big", signed=True)
        if content and abs(number) < 10 ** min(type_.precision, 38):
            return Decimal(number).scaleb(-type_.scale, Context(prec=type_.precision))
    elif type_.kind == "record" and isinstance(value, dict):
        members = zip(type_.names, type_.parts, type_.defaults, strict=True)
        return {name: _default(part, value.get(name, default)) for name, part, default in members}
    elif type_.kind == "array" and isinstance(value, list):
        return [_default(type_.parts[0], item) for item in value]
    elif type_.kind == "map" and isinstance(value, dict):
        return [(key, _default(type_.parts[0], item)) for key, item in value.items()]
    elif (
        (type_.kind == "null" and value is None)
        or (type_.kind == "boolean" and isinstance(value, bool))
        or (type_.kind == "string" and isinstance(value, str))
        or (type_.kind == "enum" and value in type_.names)
    ):
        return value
    raise ValueError("of another type")


def _readable(schema: Any) -> Any:
    """Return a schema that fastavro parses if it is Avro: it refuses defaults that do not fit, which occur in practice and few
    readers need, decimals that are none, which Avro ignores, and `{"type": "Address"}` for a type that was declared before."""
    if isinstance(schema, list):
        return [*map(_readable, schema)]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and kind not in _KINDS and "name" not in schema:
        return kind
    readable = {_DEFAULT if key == "default" else key: part for key, part in schema.items()}
    for key in readable.keys() & {"type", "items", "values"}:
        readable[key] = _readable(readable[key])
    if isinstance(readable.get("fields"), list):
        readable["fields"] = [*map(_readable, readable["fields"])]
    if readable.get("connect.name") == CONNECT_DECIMAL and "precision" not in readable:
        parameters = readable.get("connect.parameters")
        scale = parameters.get("scale") if isinstance(parameters, dict) else None
        known = int(scale) if isinstance(scale, str) and scale.isdecimal() else 0
        readable = {"scale": known, **readable, "precision": UNKNOWN_PRECISION, "logicalType": "decimal"}
    if readable.get("logicalType") == "decimal":
        problem = _decimal_problem(readable)
        if problem:
            readable = {**readable, "logicalType": f"{_NO_DECIMAL}{problem}", "scale": 0}
    return readable


def _decimal_problem(schema: Mapping[str, Any]) -> str:
    """Return why a decimal is none by Avro's rules; "" if it is one."""
    precision, scale, size = schema.get("precision"), schema.get("scale", 0), schema.get("size")
    if type(precision) is not int or precision < 1:
        return f"precision {precision}"
    if type(scale) is not int or not 0 <= scale <= precision:
        return f"scale {scale} of precision {precision}"
    if (
        schema.get("type") == "fixed"
        and type(size) is int
        and 10 ** min(precision, 1000) > 2 ** (8 * min(size, 500) - 1)
    ):
        return f"precision {precision} in {size} bytes"
    return ""


def crc_64(text: str) -> bytes:
    """Return a schema's fingerprint in single-object encoding, its 8 bytes in the encoding's order. Raises
    WriterSchemaProblem."""
    canonical = to_parsing_canonical_form(_parsed(RegisteredSchema(text))[0])
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
            aliases = tuple(tuple(map(str, field.get("aliases", ()))) for field in schema["fields"])
            defaults = tuple(field.get(_DEFAULT, _NO_DEFAULT) for field in schema["fields"])
            return AvroType("record", names=names, parts=parts, aliases=aliases, defaults=defaults)
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
            return AvroType(kind, "decimal", size=size, precision=schema["precision"], scale=scale)
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


def plain_values(schema: RegisteredSchema, data: Sequence[bytes]) -> tuple[Any, list[Any]]:
    """Return the schema as fastavro parses it, and the data as it reads them: for a look at values, not for rows."""
    names: dict[str, Any] = {}
    for text in schema.references:
        parse_schema(_readable(json.loads(text)), named_schemas=names)
    parsed = parse_schema(_readable(json.loads(schema.text)), named_schemas=names)
    return parsed, [schemaless_reader(io.BytesIO(each), parsed, None) for each in data]
