"""Extend a pipeline's rows to all columns of their table. Pure.

A table may have more columns than its newest records, and wider numbers; see `evolution`. Missing columns become null,
and a number becomes the nearest one of the wider type.
"""

from __future__ import annotations

import pyarrow as pa


def table_rows(rows: pa.RecordBatch, columns: pa.Schema) -> pa.Table:
    """Return `rows` with exactly the columns `columns`, which `evolve` returned for a table and these rows."""
    names = set(rows.schema.names)
    arrays = [
        _fitted(rows[column.name], column.type) if column.name in names else pa.nulls(rows.num_rows, column.type)
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        return _fitted_struct(array, kind)
    if pa.types.is_list(kind):
        return _with_content(array, kind, _fitted(array.values, kind.value_type))
    if pa.types.is_map(kind):
        entry = [pa.field("key", kind.key_type, False), kind.item_field]
        items = _fitted(array.items, kind.item_type)
        return _with_content(array, kind, pa.StructArray.from_arrays([array.keys, items], fields=entry))
    # Not safe: a whole number that a float cannot hold becomes the nearest one.
    return array.cast(kind, safe=False)


def _fitted_struct(array: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    positions = {member.name: index for index, member in enumerate(array.type)}
    members = [
        _fitted(array.field(positions[member.name]), member.type)
        if member.name in positions
        else pa.nulls(len(array), member.type)
        for member in kind
    ]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())


def _with_content(array: pa.Array, kind: pa.DataType, content: pa.Array) -> pa.Array:
    """Return lists or maps with the same lengths and nulls but other content; not copied, even if `array` is a slice."""
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[content])
