"""Types of Kafka Connect, as they are in the schema that its JSON converter sends along. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hudi_ingest.records.schema.columns import MAX_DEPTH

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
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
    """What the values mean, such as DECIMAL; "" for nothing but themselves."""
    scale: int = 0
    """Of a DECIMAL."""
    optional: bool = True
    members: Mapping[str, ConnectType] = field(default_factory=dict)
    """Of a struct."""
    items: ConnectType | None = None
    """Of an array, or the values of a map."""


def parse_connect_schema(text: bytes) -> ConnectType | None:
    """Parse the `schema` of a JSON record; None if it is null. Raises ValueError when it is no schema of Connect."""
    try:
        schema = json.loads(text)
        return None if schema is None else _type_of(schema, 0)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _type_of(schema: Mapping[str, Any], depth: int) -> ConnectType:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    items = schema.get("items", schema.get("values"))
    parameters = schema.get("parameters") or {}
    return ConnectType(
        schema["type"],
        schema.get("name") or "",
        int(parameters.get("scale", 0)),
        bool(schema.get("optional", False)),
        {member["field"]: _type_of(member, depth + 1) for member in schema.get("fields", ())},
        None if items is None else _type_of(items, depth + 1),
    )
