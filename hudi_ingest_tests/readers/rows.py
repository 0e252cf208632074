"""A row in one form, whichever engine read it: JSON with sorted keys. Uses the standard library only, as some environments have no more."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

HUDI = "_hoodie_"
"""How Hudi's own columns begin, whose values no source has."""


class Map(dict[Any, Any]):
    """A map, as opposed to a struct. Arrow has pairs instead."""


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each row, sorted, without Hudi's own columns. Rows that are there twice are two lines."""
    return sorted(
        json.dumps(_plain({name: value for name, value in row.items() if not name.startswith(HUDI)}), sort_keys=True)
        for row in rows
    )


def _plain(value: Any) -> Any:
    """Return the value of one column as JSON has it: values of different types are never equal, but decimals of another scale are."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, Decimal):
        # normalize() would round.
        digits = format(value, "f")
        return {"decimal": digits.rstrip("0").rstrip(".") if "." in digits else digits}
    if isinstance(value, datetime):
        return {"time": value.astimezone(timezone.utc).isoformat() if value.tzinfo else f"{value.isoformat()} nowhere"}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, Map):
        return {"map": sorted([_plain(key), _plain(each)] for key, each in value.items())}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if value and all(isinstance(each, tuple) for each in value):
        return _plain(Map(value))
    return [_plain(each) for each in value]
