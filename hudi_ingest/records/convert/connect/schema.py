"""Types of Kafka Connect, as they are in the schemas that its converters write. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hudi_ingest.records.convert.values import UNKNOWN
from hudi_ingest.records.schema.avsc import CONNECT_DECIMAL
from hudi_ingest.records.schema.columns import MAX_DEPTH
from hudi_ingest.records.schema.registered import RegisteredSchema

DECIMAL = CONNECT_DECIMAL
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
"""Types of times that are numbers since 1970, and their units."""


@dataclass(frozen=True, slots=True)
class ConnectType:
    """A type, and what its values mean."""

    kind: str
    """int8 … int64, float, double, boolean, string, bytes, struct, array or map."""
    name: str = ""
    """The meaning of the values, such as DECIMAL; "" for nothing but themselves."""
    scale: int = 0
    """The scale of a DECIMAL."""
    precision: int = 38
    """The precision of a DECIMAL, if its schema says it."""
    members: Mapping[str, ConnectType] = field(default_factory=dict)
    """The fields of a struct."""
    items: ConnectType | None = None
    """The items of an array, or the values of a map."""

    @property
    def digits(self) -> int:
        """Of a DECIMAL's column. PostgreSQL's numeric(3,5) has three digits after two zeros."""
        return max(self.precision, self.scale)

    @property
    def shape(self) -> pa.DataType:
        """As `required_fields` has it."""
        if self.members:
            return pa.struct([pa.field(name, member.shape) for name, member in self.members.items()])
        if self.items is None:
            return UNKNOWN
        return pa.map_(pa.string(), self.items.shape) if self.kind == "map" else pa.list_(self.items.shape)


def parse_connect_schema(text: bytes) -> ConnectType | None:
    """Parse the `schema` of a JSON record; None if it is null. Raises ValueError when it is no schema of Connect."""
    try:
        schema = json.loads(text)
        return None if schema is None else _type_of(schema, 0)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no schema of Kafka Connect: {type(error).__name__}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def parse_avro_schema(schema: RegisteredSchema) -> ConnectType:
    """Parse an Avro schema as Kafka Connect's converter registers it. Types that are Avro's own logical types have no name here.
    Raises ValueError when it is no schema."""
    named: dict[str, ConnectType] = {}
    try:
        for text in schema.references:
            _type_of_avro(json.loads(text), "", named, 0)
        return _type_of_avro(json.loads(schema.text), "", named, 0)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no schema of Kafka Connect: {type(error).__name__}") from None


def _type_of_avro(schema: Any, namespace: str, named: dict[str, ConnectType], depth: int) -> ConnectType:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(schema, str):
        return named.get(schema) or named.get(f"{namespace}.{schema}") or ConnectType(schema)
    if isinstance(schema, list):
        types = [_type_of_avro(branch, namespace, named, depth + 1) for branch in schema if branch != "null"]
        return types[0] if len(types) == 1 else ConnectType("union")
    kind = schema["type"]
    if not isinstance(kind, str) or kind in named or f"{namespace}.{kind}" in named:
        return _type_of_avro(kind, namespace, named, depth + 1)
    if kind in ("array", "map"):
        items = _type_of_avro(schema["items" if kind == "array" else "values"], namespace, named, depth + 1)
        return ConnectType(kind, items=items)
    own = _text(schema.get("connect.name") or "")
    if "logicalType" in schema or own == DECIMAL:
        own = ""
    if kind != "record":
        return ConnectType(kind, own)
    name = schema["name"]
    namespace = name.rpartition(".")[0] or schema.get("namespace") or namespace
    members = {
        member["name"]: _type_of_avro(member["type"], namespace, named, depth + 1) for member in schema["fields"]
    }
    record = ConnectType("struct", own, members=members)
    named[f"{namespace}.{name.rpartition('.')[2]}".removeprefix(".")] = record
    return record


def parse_json_schema(text: str) -> ConnectType | None:
    """Parse a JSON Schema as Kafka Connect's converter registers it; None if it is of another producer. Raises ValueError when it is
    no schema."""
    if '"connect.' not in text:
        return None
    try:
        return _type_of_json(json.loads(text), 0)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no schema of Kafka Connect: {type(error).__name__}") from None


def _type_of_json(schema: Any, depth: int) -> ConnectType:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(schema, dict):
        return ConnectType("any")
    branches = [branch for branch in schema.get("oneOf") or () if branch != {"type": "null"}]
    if len(branches) == 1:
        return _type_of_json(branches[0], depth + 1)
    parameters = schema.get("connect.parameters") or {}
    items = schema.get("items", schema.get("additionalProperties"))
    return ConnectType(
        _text(schema.get("connect.type") or "any"),
        _text(schema.get("title") or ""),
        int(parameters.get("scale", 0)),
        int(parameters.get("connect.decimal.precision", 38)),
        {name: _type_of_json(member, depth + 1) for name, member in (schema.get("properties") or {}).items()},
        _type_of_json(items, depth + 1) if isinstance(items, dict) else None,
    )


def _type_of(schema: Mapping[str, Any], depth: int) -> ConnectType:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    items = schema.get("items", schema.get("values"))
    parameters = schema.get("parameters") or {}
    return ConnectType(
        _text(schema["type"]),
        _text(schema.get("name") or ""),
        int(parameters.get("scale", 0)),
        int(parameters.get("connect.decimal.precision", 38)),
        {_text(member["field"]): _type_of(member, depth + 1) for member in schema.get("fields") or ()},
        None if items is None else _type_of(items, depth + 1),
    )
