"""The ids of columns, by which Iceberg's readers find them in files: a pure function of a column's path, so that each task, catch-up and
later version gives a column the same one without asking anybody. A column that is dropped and added again is the same one, as in Hudi."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import pyarrow as pa

LEAST = 1 << 16
"""Above all that engines use for themselves at the low end, such as the ids of partition fields."""
BEYOND = (1 << 31) - LEAST
"""Iceberg keeps the ids just below 2^31 for metadata columns."""


def field_id(path: str) -> int:
    """Return the id of the column with this path: a dot before each member of a struct, `element` in a list, `key` and `value` in a map."""
    number = int.from_bytes(blake2b(path.encode(), digest_size=8).digest(), "big")
    return LEAST + number % (BEYOND - LEAST)


def paths_of(fields: Iterator[pa.Field] | pa.Schema, above: str = "") -> Iterator[str]:
    """Yield the path of each column, of each member, and of what lists and maps hold."""
    for field in fields:
        path = f"{above}{field.name}"
        yield path
        yield from _paths_in(field.type, path)


def _paths_in(kind: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from paths_of(iter(kind), f"{path}.")
    elif pa.types.is_list(kind):
        yield f"{path}.element"
        yield from _paths_in(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        yield from (f"{path}.key", f"{path}.value")
        yield from _paths_in(kind.item_type, f"{path}.value")
