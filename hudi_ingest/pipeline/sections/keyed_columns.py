"""Which columns can be the key, the ordering and the delete field of a keyed table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa

from hudi_ingest.exceptions.problems import Place, quoted, suggestion
from hudi_ingest.records.hudi_keys import KEY_TYPES, is_ordering_type
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, OFFSET
from hudi_ingest.records.schema.columns import ddl_type

UNSTEADY = ("timestamp", "offset", "headers")
"""Kafka columns that differ between records of a key."""
KEY_TYPES_TEXT = "string, int or long"
ORDERING_TYPES_TEXT = "long, timestamp, string, or decimal(p,s) with s and p - s up to 15"


def keyed_column_problems(
    columns: pa.Schema,
    key: Sequence[str],
    ordering: str | None,
    delete_field: str | None,
    partition_columns: Sequence[str],
) -> Iterator[tuple[Place, str]]:
    """Yield why a keyed table cannot have these columns, by their place in `table`. `columns`: those after the transforms."""
    for index, name in enumerate(key):
        if problem := _problem(name, columns, KEY_TYPES.__contains__, KEY_TYPES_TEXT):
            yield ("key", index), problem
    if ordering == OFFSET:
        yield ("ordering",), f"found {OFFSET}, which decides anyway; remove it"
    elif ordering is not None and (problem := _problem(ordering, columns, is_ordering_type, ORDERING_TYPES_TEXT)):
        yield ("ordering",), problem
    if delete_field is None:
        return
    if problem := _problem(delete_field, columns, pa.types.is_boolean, "boolean"):
        yield ("delete_field",), problem
    elif delete_field in (*key, ordering, *partition_columns):
        yield (
            ("delete_field",),
            f"found {quoted(delete_field)}, which the key, the ordering or partition_by needs as a column of the table",
        )


def unsteady_partition(sources: Collection[str]) -> str:
    """Why a keyed table cannot be partitioned by a column with these sources; "" if it can."""
    unsteady = [KAFKA_FIELDS[kind].name for kind in UNSTEADY if KAFKA_FIELDS[kind].name in sources]
    if not unsteady:
        return ""
    return (
        f"computed from {unsteady[0]}, which differs between the records of a key, so that each of them would be another row; use "
        "a field that stays the same"
    )


def _problem(name: str, columns: pa.Schema, is_allowed: Callable[[pa.DataType], bool], types_text: str) -> str:
    if name not in columns.names:
        known = ", ".join(columns.names)
        return f"found {quoted(name)}; allowed: a column of the rows ({known}){suggestion(name, columns.names)}"
    kind = columns.field(name).type
    return "" if is_allowed(kind) else f"column {name} has type {ddl_type(kind)}; allowed: {types_text}"
