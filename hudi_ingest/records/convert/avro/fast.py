"""Read a batch of Avro datums at once, by a compiled pass over their bytes, and check its columns as a whole.

A datum that is not whole is left to the exact path, like a batch with a value that its column does not hold, and all datums of a schema
with a column that only the exact path reads. The meaning of values is decided here, on columns of plain numbers and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.avro.exact import FLOATS, INTEGERS, TIMESTAMPS
from hudi_ingest.records.convert.avro.layout import Layout, Node, node_of, whole_layout
from hudi_ingest.records.convert.connect.values import decimals_of_bytes
from hudi_ingest.records.convert.fast_path import (
    Doubt,
    Finish,
    Member,
    Proved,
    list_column,
    of_field,
    struct_column,
    struct_member,
    within,
)
from hudi_ingest.records.schema.avro import Resolution
from hudi_ingest.records.schema.wire_type import WireType
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND


class BatchReader:
    """Reads datums of one writer's schema to rows of `schema`. Raises Doubt at construction when it cannot.

    The first `header_bytes` of each value are skipped.
    """

    def __init__(self, writer: WireType, schema: pa.Schema, resolution: Resolution, header_bytes: int = 0) -> None:
        self._schema = schema
        self._header_bytes = header_bytes
        self._node, self._finish = _struct(writer, list(schema), "", resolution)

    @cached_property
    def _layout(self) -> Layout:
        # Most readers are made only to find out whether they can be.
        return Layout(self._node)

    def read(self, datums: pa.BinaryArray) -> Proved:
        """Return one row for each whole datum. `datums`: at least one, no nulls, less than 2 GiB in total. Raises as
        `fast_path.Fast` does."""
        read, whole = self._layout.read(datums, self._header_bytes)
        rows = pa.RecordBatch.from_arrays(self._finish(read).flatten(), schema=self._schema)
        return Proved(rows, None if whole.all() else whole)


_Read = tuple[Node, Finish]
"""The layout of a type, and how the column of its values is finished."""


def _field(tree: WireType, field: pa.Field, path: str, resolution: Resolution) -> _Read:
    node, finish = _value(tree, field.type, path, resolution)
    return node, of_field(field, finish)


def _value(tree: WireType, type_: pa.DataType, path: str, resolution: Resolution) -> _Read:
    if tree.kind != "union":
        return _plain(tree, type_, path, resolution)
    inner = tree.inner[0]
    if inner is tree or inner.kind == "null":
        raise Doubt("a union of other than null and one type")
    node, finish = _plain(inner, type_, path, resolution)
    parts = tuple(node if part is inner else whole_layout(part, False) for part in tree.parts)
    return node_of(tree, parts), finish


def _plain(tree: WireType, type_: pa.DataType, path: str, resolution: Resolution) -> _Read:
    kind, logical = tree.kind, tree.logical
    node = node_of(tree)
    if pa.types.is_struct(type_) and kind == "record":
        return _struct(tree, list(type_), path, resolution)
    if pa.types.is_list(type_) and kind == "array":
        item, finish = _field(tree.parts[0], type_.value_field, f"{path}[]", resolution)
        return node_of(tree, (item,)), list_column(type_, finish)
    if pa.types.is_map(type_) and kind == "map":
        item, finish = _field(tree.parts[0], type_.item_field, f"{path}[]", resolution)
        return node_of(tree, (item,)), _finish_map(type_, finish)
    if pa.types.is_decimal128(type_) and logical == "decimal":
        return node, lambda column: decimals_of_bytes(column, tree.scale).cast(type_)
    if logical == "decimal":
        raise Doubt("a type that no column can have")
    if (
        (pa.types.is_boolean(type_) and kind == "boolean")
        or kind in INTEGERS.get(type_, ())
        or kind in FLOATS.get(type_, ())
        or (pa.types.is_string(type_) and kind in ("string", "bytes"))
        or (pa.types.is_binary(type_) and kind in ("bytes", "fixed", "string"))
    ):
        # A cast verifies UTF-8, and that an int or a float holds the number.
        return node, lambda column: (within(column, -(1 << 31), (1 << 31) - 1) if kind == "int" else column).cast(type_)
    if pa.types.is_date32(type_) and logical == "date" and kind == "int":
        return node, lambda column: within(column, FIRST_DAY, LAST_DAY).cast(pa.int32()).cast(type_)
    unit = TIMESTAMPS.get(type_, {}).get(str(logical))
    if unit and kind == "long":
        return node, lambda column: within(pc.multiply_checked(column, unit), FIRST_MICROSECOND, LAST_MICROSECOND).cast(
            type_
        )
    if pa.types.is_string(type_) and kind == "enum":
        symbols = pa.array(tree.names, pa.string())
        return node, lambda column: symbols.take(within(column, 0, len(symbols) - 1))
    raise Doubt("a type that the exact path reads or refuses")


def _finish_map(type_: pa.DataType, finish_value: Finish) -> Finish:
    def finish(column: pa.ListArray) -> pa.Array:
        entries = column.values
        keys, values = entries.field(0).cast(pa.string()), finish_value(entries.field(1))
        rows = pc.list_parent_indices(column)
        distinct = pa.table({"row": rows, "key": keys}).group_by(["row", "key"], use_threads=False).aggregate([])
        if len(distinct) != len(keys):
            raise Doubt("a key more than once")
        content = pa.StructArray.from_arrays([keys, values], fields=[type_.key_field, type_.item_field])
        return pa.Array.from_buffers(type_, len(column), column.buffers()[:2], column.null_count, children=[content])

    return finish


def _struct(tree: WireType, fields: Sequence[pa.Field], path: str, resolution: Resolution) -> _Read:
    parts = [whole_layout(part, False) for part in tree.parts]
    members: list[Member] = []
    for field in fields:
        inner = f"{path}.{field.name}".removeprefix(".")
        name = resolution.written_name(inner, tree.names)
        if name is not None:
            index = tree.names.index(name)
            if parts[index].kept:
                raise Doubt("two columns of one field")
            parts[index], finish = _value(tree.parts[index], field.type, inner, resolution)
            members.append(struct_member(str(index), field.nullable, finish))
        elif inner in resolution.unfit or (not field.nullable and inner not in resolution.defaults):
            raise Doubt("a required field that is not there")
        else:
            members.append(_constant(pa.scalar(resolution.defaults.get(inner), field.type)))
    return node_of(tree, tuple(parts)), struct_column(fields, members)


def _constant(missing: pa.Scalar) -> Member:
    return lambda structs: pa.repeat(missing, len(structs))
