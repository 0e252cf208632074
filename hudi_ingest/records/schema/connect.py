"""Parse schemas of Kafka Connect, as its JSON converter writes them beside the payload, into the tree of types. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hudi_ingest.records.schema.columns import MAX_DEPTH, decimal_type
from hudi_ingest.records.schema.wire_type import DECIMAL, WireType

_OTHER_DECIMALS = (
    "have the connector send it as string or double (decimal.handling.mode), or not at all (column.exclude.list)"
)


def parse_connect_schema(text: bytes) -> WireType | None:
    """Parse the `schema` of a JSON record; None if it is null. Raises ValueError when it is no schema of Connect."""
    try:
        schema = json.loads(text)
        return None if schema is None else _type_of(schema, 0)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no schema of Kafka Connect: {type(error).__name__}") from None


def text_of(value: Any) -> str:
    """Return a text as it is. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def decimals_of(parameters: Mapping[str, Any] | None) -> tuple[int, int]:
    """Return precision and scale of a DECIMAL with these parameters; 38 and 0 unless they say otherwise."""
    known = parameters or {}
    return int(known.get("connect.decimal.precision", 38)), int(known.get("scale", 0))


def _type_of(schema: Mapping[str, Any], depth: int) -> WireType:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    kind, meaning = text_of(schema["type"]), text_of(schema.get("name") or "")
    precision, scale = decimals_of(schema.get("parameters"))
    fields = {text_of(each["field"]): _type_of(each, depth + 1) for each in schema.get("fields") or ()}
    items = schema.get("items", schema.get("values"))
    parts = fields.values() if items is None else [_type_of(items, depth + 1)]
    problem = ""
    if meaning == DECIMAL and decimal_type(max(precision, scale), scale) is None:
        # Debezium has 2046 for PostgreSQL's scale of -2, which is at least -1000.
        shown = scale if scale <= 1000 else scale - 2048
        problem = f"no table has a type for numeric({precision},{shown}); {_OTHER_DECIMALS}"
    return WireType(
        kind,
        meaning=meaning,
        names=tuple(fields),
        parts=tuple(parts),
        precision=precision,
        scale=scale,
        nullable=True,
        problem=problem,
    )
