"""Parse Avro schemas into the tree of types. Pure."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.schema.columns import MAX_DEPTH, MAX_FIELDS, checked_columns, decimal_type
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import (
    DECIMAL,
    LOGICAL_COLUMNS,
    NO_DEFAULT,
    Problems,
    WireType,
    columns,
)
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND

# fastavro is an extra that files of schemas do not need, so what needs it imports it.
AVRO_TYPES = (
    "boolean, int, long, float, double, string, bytes, fixed, enum, record, array, map, a union of null and one type, and "
    "the logical types decimal, date, timestamp-millis, timestamp-micros"
)
UNKNOWN_PRECISION = 64
"""The precision that Kafka Connect's converters register for a decimal of unknown precision, such as PostgreSQL's money."""
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_KINDS = _PRIMITIVES | _NAMED | {"array", "map"}
_DEFAULT = "hudi_ingest.default"
_NO_DECIMAL = "decimal, ignored for its "


class WriterSchemaProblem(ValueError):
    """The schema cannot be used to read records; the text says why."""


def parse_writer(schema: RegisteredSchema) -> WireType:
    """Parse a writer's schema into a tree that records can be read with. Raises WriterSchemaProblem."""
    if schema.text in _PRIMITIVES:
        # A registry may return a schema of one primitive type as its bare name.
        return WireType(schema.text)
    parser = _Parser(lenient=True)
    try:
        for text in schema.references:
            parser.type(_readable(json.loads(text)), "", (), 0)
        tree = parser.type(_readable(json.loads(schema.text)), "", (), 0)
    except json.JSONDecodeError as error:
        raise WriterSchemaProblem(f"its schema is not JSON: {error}") from None
    except SchemaProblem as problem:
        raise WriterSchemaProblem(f"its schema {problem}") from None
    except RecursionError:
        raise WriterSchemaProblem(f"its schema is nested deeper than {MAX_DEPTH} levels") from None
    for path, kind, reason in _unreadable(tree, ""):
        where = f"field {path}: " if path else ""
        raise WriterSchemaProblem(f"its schema {'is not Avro' if kind == 'unknown' else 'is refused'}: {where}{reason}")
    return tree


def _unreadable(tree: WireType, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the path and the kind of types that cannot be read, and why."""
    if tree.kind in ("unknown", "refused"):
        yield path, tree.kind, tree.problem
    if tree.kind == "array" and _may_be_no_bytes(tree.parts[0]):
        # A few bytes could claim any number of such items.
        yield path, "refused", "an array whose items take no bytes"
    names = tree.names if tree.kind == "record" else [""] * len(tree.parts)
    for name, part in zip(names, tree.parts, strict=True):
        yield from _unreadable(part, f"{path}.{name}".strip("."))


def parse_connect_avro(schema: RegisteredSchema) -> WireType:
    """Parse an Avro schema as Kafka Connect's converter registers it: the types of values. Raises WriterSchemaProblem."""
    return parse_writer(schema).values


def record_schema(schema: RegisteredSchema) -> pa.Schema:
    """Return the columns of a record schema. Raises SchemaProblem when no table can have them, and WriterSchemaProblem.

    A logical type that tables do not have is read as its plain type, as Avro requires.
    """
    tree = parse_writer(schema)
    if tree.kind != "record":
        branches = ", ".join(part.name or part.kind for part in tree.parts)
        shown = f"a union of [{branches}]" if tree.kind == "union" else tree
        raise SchemaProblem([f"the schema is {shown}, not a record"])
    return _checked(tree)


def parse_avsc(text: str, renamable: bool = False) -> pa.Schema:
    """Return the columns of a file with an Avro record schema. Defaults and aliases are read by `resolution_of`, docs by `registered`.

    Raises SchemaProblem, but with `renamable` not for names of columns that only Hudi refuses.
    """
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaProblem([f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg}"]) from None
    except (RecursionError, ValueError):
        raise SchemaProblem(["is not readable JSON: too deeply nested, or a number with too many digits"]) from None
    if not isinstance(record, dict) or record.get("type") != "record":
        raise SchemaProblem(['is not an Avro record; the file must hold {"type": "record", "name": …, "fields": […]}'])
    return _checked(_Parser(lenient=False).type(record, "", (), 0), renamable)


def avro_descriptions(text: str, of_events: bool = False) -> dict[str, str]:
    """Return what an Avro record says about its fields; nothing for a text that no parser reads. `of_events`: of the record `after` of
    Debezium's events."""
    try:
        tree = _Parser(lenient=True).type(json.loads(text), "", (), 0)
    except (RecursionError, ValueError):
        return {}
    row = tree.members.get("after") if of_events else tree
    return row.inner[0].descriptions if row is not None else {}


def _checked(tree: WireType, renamable: bool = False) -> pa.Schema:
    problems: Problems = [("", tree.problem)] if tree.problem else []
    fields = columns(tree, problems)
    texts = [f"column {path}: {problem}" if path else problem for path, problem in problems]
    return checked_columns(fields, texts, renamable)


def _unknown(problem: str) -> WireType:
    return WireType("unknown", problem=problem)


class _Parser:
    """Parses schemas, keeping those that have a name. `lenient`: a logical type that no column has is its plain type."""

    def __init__(self, lenient: bool) -> None:
        self._lenient = lenient
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}
        """Declarations by their full names, each with the namespace around it."""
        self._fields = 0

    def type(self, schema: object, namespace: str, within: tuple[str, ...], depth: int) -> WireType:
        """Parse a type. `within`: full names of the enclosing records. Raises SchemaProblem if it has too many fields."""
        if depth > MAX_DEPTH:
            return WireType("refused", problem=f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(schema, str):
            return self._by_name(schema, namespace, within, depth)
        if isinstance(schema, list):
            return self._union(schema, namespace, within, depth)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(schema, dict) and isinstance(kind, (dict, list)):
            inner = self.type(kind, namespace, within, depth)
            problem = self._logical_problem(schema, kind) or "a type inside a type; write the inner one alone"
            return replace(inner, problem=problem)
        if not isinstance(schema, dict) or not isinstance(kind, str):
            return _unknown(f"no Avro type; allowed: {AVRO_TYPES}")
        if kind in _NAMED:
            return self._declared(schema, kind, namespace, within, depth)
        if kind in ("array", "map"):
            content = schema.get("items" if kind == "array" else "values")
            return WireType(kind, parts=(self.type(content, namespace, within, depth + 1),))
        return self._plain(schema, kind) if kind in _PRIMITIVES else self._by_name(kind, namespace, within, depth)

    def _by_name(self, name: str, namespace: str, within: tuple[str, ...], depth: int) -> WireType:
        unknown = f"found type {name!r}, which is unknown; allowed: {AVRO_TYPES}"
        if name in _PRIMITIVES:
            return WireType(name, problem=unknown if name == "null" else "")
        for full in (name if "." in name else f"{namespace}.{name}".lstrip("."), name):
            if full in within:
                return WireType("refused", name=full, problem=f"record {name} contains itself")
            if full in self._named:
                return self.type(*self._named[full], within, depth)
        return _unknown(unknown)

    def _union(self, schema: list[Any], namespace: str, within: tuple[str, ...], depth: int) -> WireType:
        if any(isinstance(branch, list) for branch in schema):
            return _unknown("a union inside a union; allowed: null and one other type")
        parts = tuple(self.type(branch, namespace, within, depth) for branch in schema)
        values = [part for part in parts if part.kind != "null"]
        problem = ""
        if len(values) != 1 or len(schema) > 2:
            shown = ", ".join(_shown(branch) for branch in schema)
            problem = f"found a union of [{shown}]; allowed: null and one other type"
        return WireType("union", parts=parts, nullable=len(values) < len(parts), problem=problem)

    def _declared(
        self, schema: Mapping[str, Any], kind: str, namespace: str, within: tuple[str, ...], depth: int
    ) -> WireType:
        name, inner = schema.get("name"), schema.get("namespace", namespace) or ""
        if not isinstance(name, str) or not isinstance(inner, str) or not name:
            return _unknown(f"a {kind} needs a name")
        if "." in name:
            inner, _, name = name.rpartition(".")
        full = f"{inner}.{name}".lstrip(".")
        if self._named.setdefault(full, (schema, namespace))[0] is not schema:
            return _unknown(f"the type name {full} is declared twice; refer to the first by its name")
        if kind == "fixed":
            return replace(self._plain(schema, kind), name=full)
        if kind == "enum":
            symbols = schema.get("symbols")
            names = tuple(map(str, symbols)) if isinstance(symbols, list) else ()
            return replace(self._plain(schema, kind), name=full, names=names)
        return replace(self._record(schema, inner, (*within, full), depth), name=full, meaning=_meaning(schema))

    def _record(self, schema: Mapping[str, Any], namespace: str, within: tuple[str, ...], depth: int) -> WireType:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            problem = "a record needs `fields`, a list of at least one"
            return WireType("record" if isinstance(fields, list) else "unknown", problem=problem)
        names, parts = [], []
        for index, each in enumerate(fields):
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
                return _unknown(f"fields[{index}] needs a name and a type")
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise SchemaProblem([f"has more than {MAX_FIELDS} columns; allowed: {MAX_FIELDS}, nested ones counted"])
            names.append(each["name"])
            part = self.type(each["type"], namespace, within, depth + 1)
            doc, aliases = each.get("doc"), each.get("aliases")
            parts.append(
                replace(
                    part,
                    aliases=tuple(map(str, aliases)) if isinstance(aliases, list) else (),
                    default=each.get(_DEFAULT, NO_DEFAULT),
                    doc=doc if isinstance(doc, str) else "",
                )
            )
        return WireType("record", names=tuple(names), parts=tuple(parts))

    def _plain(self, schema: Mapping[str, Any], kind: str) -> WireType:
        """Parse a type of numbers or bytes with its logical type."""
        logical, size = schema.get("logicalType"), schema.get("size", 0)
        logical = logical if isinstance(logical, str) else None
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(schema, kind, size)
        if kind == "fixed" and (type(size) is not int or size < 0):
            return _unknown("a fixed needs a `size`, a whole number from 0 on")
        problem = self._logical_problem(schema, kind)
        if not problem and schema.get("connect.name") == DECIMAL:
            problem = (
                "a decimal of Kafka Connect whose scale is not from 0 to 38; have the connector send it as string or double (Debezium's "
                "decimal.handling.mode, numeric.mapping of a JDBC source), or declare it as binary"
            )
        return WireType(kind, logical, meaning=_meaning(schema), size=size, problem=problem)

    def _logical_problem(self, schema: Mapping[str, Any], kind: object) -> str:
        logical = schema.get("logicalType")
        if self._lenient or logical is None or (str(kind), str(logical)) in LOGICAL_COLUMNS:
            return ""
        return (
            f"found logicalType {str(logical)[:60]} on {_shown(kind)}; allowed: decimal on bytes or fixed, date on "
            "int, timestamp-millis and timestamp-micros on long; remove the logicalType to read the plain type"
        )


def _shown(schema: object) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name") or schema.get("type"))[:60]
    return "a union" if isinstance(schema, list) else str(schema)[:60]


def _meaning(schema: Mapping[str, Any]) -> str:
    """Return Kafka Connect's name of the values' meaning, unless Avro has a logical type for it."""
    name = schema.get("connect.name")
    return name if isinstance(name, str) and name != DECIMAL and "logicalType" not in schema else ""


def _decimal(schema: Mapping[str, Any], kind: str, size: object) -> WireType:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        precision, scale = 0, -1
    elif precision == UNKNOWN_PRECISION:
        precision = 38
    found = WireType(
        kind, "decimal", precision=precision, scale=scale, size=size if type(size) is int and size > 0 else 0
    )
    problem = ""
    column = decimal_type(precision, scale)
    if column is None:
        problem = "decimal needs a whole `precision` from 1 to 38 and a whole `scale` from 0 to the precision"
    elif kind == "fixed" and 10**column.precision > 2 ** (8 * min(found.size, 32) - 1):
        problem = f"a fixed of size {size!r} cannot hold decimal precision {column.precision}"
    return replace(found, problem=problem)


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
    tree: WireType, path: str, defaults: dict[str, Any], aliases: dict[str, tuple[str, ...]], unfit: dict[str, str]
) -> None:
    for at, part in enumerate(tree.parts):
        inner = path if tree.kind == "union" else f"{path}[]"
        if tree.kind == "record":
            inner = f"{path}.{tree.names[at]}".removeprefix(".")
            if part.aliases:
                aliases[inner] = part.aliases
            if part.default is not NO_DEFAULT:
                try:
                    defaults[inner] = _default(part, part.default)
                except (ValueError, OverflowError):
                    unfit[inner] = f"default {json.dumps(part.default)[:40]}, which is no {part}"
        _add_fields(part, inner, defaults, aliases, unfit)


_NUMBERS: Mapping[tuple[str, str | None], tuple[int, int, int]] = {
    ("int", "date"): (FIRST_DAY, LAST_DAY, 1),
    ("int", None): (-(1 << 31), (1 << 31) - 1, 1),
    ("long", "timestamp-millis"): (-(-FIRST_MICROSECOND // 1000), LAST_MICROSECOND // 1000, 1000),
    ("long", "timestamp-micros"): (FIRST_MICROSECOND, LAST_MICROSECOND, 1),
    ("long", None): (-(1 << 63), (1 << 63) - 1, 1),
}
"""By type: the least and the greatest number, and its unit."""


def _default(tree: WireType, value: Any) -> Any:
    """Convert a default's JSON to its value. Raises ValueError or OverflowError when it does not fit the type."""
    kind, found = tree.kind, type(value)
    if kind == "union":
        for part in tree.parts:
            with suppress(ValueError, OverflowError):
                return _default(part, value)
    elif kind == "record" and found is dict:
        return {name: _default(part, value.get(name, part.default)) for name, part in tree.members.items()}
    elif kind == "array" and found is list:
        return [_default(tree.parts[0], item) for item in value]
    elif kind == "map" and found is dict:
        return [(key, _default(tree.parts[0], item)) for key, item in value.items()]
    elif found in _JSON_TYPES.get(kind, ()):
        return _plain_default(tree, value)
    raise ValueError("of another type")


_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("string", "enum", "bytes", "fixed"), (str,)),
}
"""Types that defaults of each kind have in JSON."""


def _plain_default(tree: WireType, value: Any) -> Any:
    if tree.kind in ("int", "long"):
        plain = (tree.kind, None)
        least, greatest, unit = _NUMBERS.get((tree.kind, tree.logical), _NUMBERS[plain])
        if not least <= value <= greatest:
            raise ValueError("beyond the type's numbers")
        return value * unit
    if tree.kind in ("float", "double"):
        return float(value)
    if tree.kind == "enum" and value not in tree.names:
        raise ValueError("no symbol")
    if tree.kind not in ("bytes", "fixed"):
        return value
    content = value.encode("latin-1")
    if tree.kind == "fixed" and len(content) != tree.size:
        raise ValueError("of another size")
    if tree.logical != "decimal":
        return content
    number = int.from_bytes(content, "big", signed=True)
    if not content or abs(number) >= 10 ** min(tree.precision, 38):
        raise ValueError("of more digits, or none")
    return Decimal(number).scaleb(-tree.scale, Context(prec=tree.precision))


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
    if readable.get("connect.name") == DECIMAL and "precision" not in readable:
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
    from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

    parse_writer(RegisteredSchema(text))
    canonical = to_parsing_canonical_form(parse_schema(_readable(json.loads(text))))
    # fastavro writes the fingerprint's bytes as hex in the order of the encoding, the lowest byte first.
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


def _may_be_no_bytes(type_: WireType) -> bool:
    if type_.kind == "record":
        return all(_may_be_no_bytes(part) for part in type_.parts)
    return type_.kind == "null" or (type_.kind == "fixed" and type_.size == 0)


def plain_values(schema: RegisteredSchema, data: Sequence[bytes]) -> tuple[Any, list[Any]]:
    """Return the schema as fastavro parses it, and the data as it reads them: for a look at values, not for rows."""
    from fastavro import schemaless_reader
    from fastavro.schema import parse_schema

    names: dict[str, Any] = {}
    for text in schema.references:
        parse_schema(_readable(json.loads(text)), named_schemas=names)
    parsed = parse_schema(_readable(json.loads(schema.text)), named_schemas=names)
    return parsed, [schemaless_reader(io.BytesIO(each), parsed, None) for each in data]
