"""The one tree of a record's schema, whichever language that is written in, and the columns and the shape that follow from it. Pure.

Parsers make the tree, and note at a type why no column can have it; readers go by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hudi_ingest.records.schema.columns import TIMESTAMP, UNREADABLE, decimal_type, list_of, map_of

NO_DEFAULT = object()
UNKNOWN = pa.null()
"""The shape of whatever has no fields, or may have any. The shape of a schema is a struct of its fields' names and shapes, by the names
of the columns that take them, and a list or map of its items' shape."""

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
ISO_TIMESTAMP = "io.debezium.time.IsoTimestamp"
ISO_DATE = "io.debezium.time.IsoDate"
DAYS = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
EPOCHS: Mapping[str, str] = {
    "io.debezium.time.Timestamp": "milliseconds",
    "org.apache.kafka.connect.data.Timestamp": "milliseconds",
    "io.debezium.time.MicroTimestamp": "microseconds",
    "io.debezium.time.NanoTimestamp": "nanoseconds",
}
"""Meanings of times that are numbers since 1970, and their units."""

_COLUMNS: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("int", "int8", "int16", "int32"), pa.int32()),
    **dict.fromkeys(("long", "int64", "uint32", "integer"), pa.int64()),
    "uint64": pa.decimal128(20, 0),
    **dict.fromkeys(("float", "float32"), pa.float32()),
    **dict.fromkeys(("double", "float64", "number"), pa.float64()),
    **dict.fromkeys(("string", "enum"), pa.string()),
    **dict.fromkeys(("bytes", "fixed"), pa.binary()),
    "date-time": TIMESTAMP,
    "date": pa.date32(),
}
"""Columns of kinds. uint64 has numbers that a long does not."""
LOGICAL_COLUMNS: Mapping[tuple[str, str | None], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
}
"""Columns of kinds with a logical type, except for decimals; other logical types are read as their kinds."""
MEANT_COLUMNS: Mapping[str, pa.DataType] = {
    **dict.fromkeys(DAYS, pa.date32()),
    **dict.fromkeys(EPOCHS, TIMESTAMP),
    **dict.fromkeys((ZONED_TIMESTAMP, ISO_TIMESTAMP), TIMESTAMP),
    ISO_DATE: pa.date32(),
    # Its scale may differ from value to value.
    VARIABLE_SCALE_DECIMAL: pa.string(),
}
"""Columns of Kafka Connect's meanings, except for DECIMAL."""


@dataclass(frozen=True, slots=True)
class WireType:
    """A type as records are written with, all names resolved."""

    kind: str
    """record, array, map, union, fixed, enum, or what the language calls a plain type; "unknown" or "refused" for one that cannot be
    read, whose `problem` says why."""
    logical: str | None = None
    """Avro's logical type."""
    plain: str = ""
    """The kind in the schema's own language, where `kind` is Kafka Connect's; "" where it is the same."""
    meaning: str = ""
    """Kafka Connect's name of the values' meaning, such as DECIMAL; "" for nothing but themselves."""
    name: str = ""
    """The full name of a type that has one."""
    names: tuple[str, ...] = ()
    """Fields of a record, symbols of an enum."""
    parts: tuple[WireType, ...] = ()
    """Types of a record's fields, of a union's branches, of an array's items or of a map's values (one)."""
    size: int = 0
    """Bytes of a fixed."""
    precision: int = 38
    scale: int = 0
    """Precision and scale of a decimal."""
    nullable: bool = False
    aliases: tuple[str, ...] = ()
    default: Any = NO_DEFAULT
    """Other names, and default as in JSON, of the field that has this type."""
    doc: str = ""
    """What the schema says about the field that has this type: Avro's `doc`, JSON Schema's `description` or else `title`."""
    problem: str = ""
    """Why no column can have it."""

    @property
    def inner(self) -> tuple[WireType, bool]:
        """The type of values that are not null, and whether null is allowed; for unions of several other types, the union."""
        values = [part for part in self.parts if part.kind != "null"]
        if self.kind != "union" or len(values) != 1:
            return self, False
        return values[0], len(self.parts) > 1

    @property
    def members(self) -> dict[str, WireType]:
        """The fields of a record."""
        return dict(zip(self.names, self.parts, strict=False))

    @property
    def items(self) -> WireType | None:
        """The items of an array, or the values of a map."""
        return self.parts[0] if (self.plain or self.kind) in ("array", "map") and self.parts else None

    @property
    def descriptions(self) -> dict[str, str]:
        """What the schema says about top-level columns, as catalogs and Dagster show no others."""
        return {name: " ".join(part.doc.split()) for name, part in self.members.items() if part.doc.strip()}

    @property
    def digits(self) -> int:
        """Digits of a decimal's column. PostgreSQL's numeric(3,5) has three digits after two zeros."""
        return max(self.precision, self.scale)

    @property
    def is_decimal(self) -> bool:
        return self.logical == "decimal" and self.kind in ("bytes", "fixed")

    @property
    def values(self) -> WireType:
        """The type of its values as Kafka Connect has them: without unions with null."""
        found = self.inner[0]
        if found.kind == "union":
            return WireType("union", problem=self.problem)
        return replace(found, parts=tuple(part.values for part in found.parts), nullable=self.nullable)

    @property
    def shape(self) -> pa.DataType:
        """The names of the fields at any depth, as `RequiredFields` compares them."""
        found = self.inner[0]
        if found.members:
            return pa.struct([pa.field(name, part.shape) for name, part in found.members.items()])
        if found.items is None:
            return UNKNOWN
        return pa.map_(pa.string(), found.items.shape) if found.kind == "map" else pa.list_(found.items.shape)

    def __str__(self) -> str:
        if self.kind == "union":
            return f"a union of [{', '.join(map(str, self.parts))}]"
        remedy = "; declare binary" if (self.logical or "").startswith("decimal,") else ""
        return f"{self.kind} ({self.logical}){remedy}" if self.logical else self.kind


def named_by(
    tree: WireType, column: pa.DataType, written_name: Callable[[str, Sequence[str]], str | None], path: str = ""
) -> WireType:
    """Return the type with its fields by the names of the columns that take them, the others behind them by their own.
    `written_name`: which of a record's names is the field's at a path; None if none is."""
    inner = tree.inner[0]
    if pa.types.is_struct(column) and inner.members:
        members, own = {}, inner.members
        others = dict(own)
        for field in column:
            of_field = f"{path}.{field.name}".removeprefix(".")
            name = written_name(of_field, inner.names)
            if name is not None:
                members[field.name] = named_by(own[name], field.type, written_name, of_field)
                others.pop(name, None)
        members |= others
        return replace(inner, names=tuple(members), parts=tuple(members.values()))
    if inner.items is not None and (pa.types.is_list(column) or pa.types.is_map(column)):
        content = column.value_type if pa.types.is_list(column) else column.item_type
        return replace(inner, parts=(named_by(inner.items, content, written_name, f"{path}[]"),))
    return inner


Problems = list[tuple[str, str]]
"""Paths of columns, and why no table can have them."""


def columns(tree: WireType, problems: Problems, path: str = "", meant: bool = False) -> list[pa.Field]:
    """Return the columns of a record's fields, adding to `problems`. `meant`: those that Kafka Connect's meanings give them."""
    return [
        pa.field(name, column_type(part, problems, f"{path}.{name}".removeprefix("."), meant), part.nullable)
        for name, part in zip(tree.names, tree.parts, strict=False)
    ]


def column_type(tree: WireType, problems: Problems, path: str, meant: bool = False) -> pa.DataType:
    """Return the column that values of the type have, adding to `problems`."""
    inner = tree.inner[0]
    if meant and inner.meaning in MEANT_COLUMNS:
        return MEANT_COLUMNS[inner.meaning]
    if problem := tree.problem or inner.problem:
        problems.append((path, problem))
        return UNREADABLE
    if inner.is_decimal or (meant and inner.meaning == DECIMAL):
        kind = decimal_type(inner.digits, inner.scale)
        if kind is not None:
            return kind
    own = inner.kind if meant and inner.kind == "bytes" else inner.plain or inner.kind
    if inner.items is not None:
        make, place = (list_of, "element") if own == "array" else (map_of, "value")
        return make(column_type(inner.items, problems, f"{path}.{place}", meant), inner.items.nullable)
    if inner.members:
        return pa.struct(columns(inner, problems, path, meant))
    found = LOGICAL_COLUMNS.get((own, inner.logical)) or _COLUMNS.get(own)
    if found is None:
        problems.append((path, f"no table has a type for {inner.meaning or inner.kind}"))
    return found or UNREADABLE
