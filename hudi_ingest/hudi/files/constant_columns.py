"""Text columns with one value in all rows, as dictionaries, which are cheaper to write to Parquet."""

from __future__ import annotations

import pyarrow as pa

_ONE_VALUE = pa.scalar(0, pa.int32())
ONE_TEXT = pa.dictionary(_ONE_VALUE.type, pa.string())
"""Their type."""


def same_for_all(value: str | None, count: int) -> pa.DictionaryArray:
    indices = pa.nulls(count, _ONE_VALUE.type) if value is None else pa.repeat(_ONE_VALUE, count)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value or ""]))


def with_column(rows: pa.Table, name: str, column: pa.DictionaryArray) -> pa.Table:
    """Replace the column of this name."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place).with_type(column.type), column)
