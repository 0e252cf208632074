"""Checks of whole columns for the fast paths: each raises Doubt, or one of Arrow's errors, for a wrong value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.fast_path import Doubt
from hudi_ingest.records.convert.json.exact import bytes_of
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND

Finish = Callable[[pa.Array], pa.Array]
"""Column as a library reads it -> column of the declared type. Raises Doubt, ArrowInvalid or ValueError for a wrong value."""
Member = Callable[[pa.StructArray], pa.Array]
"""Column of structs as a library reads it -> finished column of one of their fields. Raises as Finish does."""


def of_field(field: pa.Field, finish: Finish) -> Finish:
    """Return `finish`, with a check for nulls if the field is not nullable."""
    return finish if field.nullable else lambda column: finish(without_nulls(column))


def without_nulls(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise Doubt("a null where none may be")
    return column


def finite(numbers: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(numbers)).as_py() is False:
        raise Doubt("a number that is not finite")
    return numbers


def within(numbers: pa.Array, lowest: int, highest: int) -> pa.Array:
    span = pc.min_max(numbers)
    least, most = span["min"].as_py(), span["max"].as_py()
    if least is not None and (least < lowest or most > highest):
        raise Doubt(f"a number beyond {lowest} to {highest}")
    return numbers


def within_precision(decimals: pa.Array) -> pa.Array:
    decimals.validate(full=True)  # 12345 fits decimal(5,2) by its digits and becomes 12345.00, which does not
    return decimals


def known_timestamps(timestamps: pa.Array) -> pa.Array:
    within(timestamps.cast(pa.int64()), FIRST_MICROSECOND, LAST_MICROSECOND)
    return timestamps


def dates_of(texts: pa.Array) -> pa.Array:
    dates = texts.cast(pa.date32())
    within(dates.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    return dates


def binary_of(texts: pa.Array) -> pa.Array:
    """Decode base64 texts."""
    return pa.array([None if text is None else bytes_of(text) for text in texts.to_pylist()], pa.binary())


def list_column(type_: pa.DataType, finish_items: Finish) -> Finish:
    """Finish lists of `type_`, for parsers whose null lists have no items: any null item then comes from a record."""

    def finish(lists: pa.ListArray) -> pa.Array:
        items = finish_items(lists.values)
        return pa.Array.from_buffers(
            type_, len(lists), lists.buffers()[:2], lists.null_count, lists.offset, children=[items]
        )

    return finish


def struct_column(fields: Sequence[pa.Field], members: Sequence[Member]) -> Finish:
    def finish(structs: pa.StructArray) -> pa.StructArray:
        columns = [member(structs) for member in members]
        nulls = structs.is_null() if structs.null_count else None
        return pa.StructArray.from_arrays(columns, fields=[*fields], mask=nulls)

    return finish


def struct_member(place: int | str, nullable: bool, finish: Finish) -> Member:
    """Finish the field with this number or name."""

    def member(structs: pa.StructArray) -> pa.Array:
        column = structs.field(place)
        # Ignore values below a null struct: only a null in a present struct comes from a record.
        if not nullable and column.null_count and pc.any(pc.and_(structs.is_valid(), column.is_null())).as_py():
            raise Doubt("a null where none may be")
        if structs.null_count and pa.types.is_binary(column.type):
            # Below a null struct a parser leaves no bytes, which are no number.
            column = pc.if_else(structs.is_valid(), column, pa.scalar(b"\0"))
        return finish(column)

    return member
