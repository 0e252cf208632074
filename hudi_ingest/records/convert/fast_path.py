"""A batch by a fast path where it proves its rows; in smaller pieces, then record by record, where it does not.

What becomes of a value must be the same on both paths and in every piece, so that it depends on neither. The
checks of whole columns that fast paths share raise Doubt, or one of Arrow's errors, for a wrong value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Decoded, Mismatch, Rejected
from hudi_ingest.records.convert.json.exact import bytes_of
from hudi_ingest.records.convert.values import Indexes, decoded, regrouped
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND

EXACT_ROWS = 256
"""A doubtful batch is cut down to pieces of this size before it is read record by record."""

_PIECES = 16


class Doubt(Exception):
    """The fast path cannot prove that its result is the exact one."""


_IN_DOUBT = (Doubt, ValueError, pa.ArrowNotImplementedError, pa.ArrowCapacityError)
"""The errors of a fast path for a piece in doubt; Arrow's error for wrong content is a ValueError."""


class Proved(NamedTuple):
    """A fast path's result."""

    rows: pa.RecordBatch
    which: npt.NDArray[np.bool_] | None = None
    """Which values the rows are, the others being for the exact path; None when all values became rows."""


Fast = Callable[[pa.BinaryArray], Proved]
"""Takes at least one value. Raises Doubt, or one of Arrow's errors, when the piece as a whole is in doubt."""
Exact = Callable[[pa.BinaryArray], tuple[pa.RecordBatch, list[Rejected]]]
"""Rows of the good values in their order, and the others by their places in the piece. Never raises for bad content."""


@dataclass(frozen=True)
class Limits:
    """How much a fast path is given at once, and how many doubts of it are tolerated."""

    rows: int = sys.maxsize
    bytes: int = sys.maxsize
    """In all values of a piece; a piece of one value may be larger."""
    doubts: int = sys.maxsize
    """Doubtful pieces of a batch after which the rest of it is read record by record."""


_UNLIMITED = Limits()


def decode_in_pieces(
    schema: pa.Schema, values: pa.BinaryArray, fast: Fast | None, exact: Exact, limits: Limits = _UNLIMITED
) -> Decoded:
    """`values`: binary, no nulls. Without a fast path all of them are read exactly."""
    decoding = _Decoding(fast, exact, limits)
    decoding.read(values, 0)
    return regrouped(schema, len(values), decoding.groups, ())


def record_by_record(
    schema: pa.Schema,
    read: Callable[[Any], Mapping[str, Any]],
    parsed: Callable[[pa.BinaryArray], Iterable[Any]] = pa.BinaryArray.to_pylist,
) -> Exact:
    """The exact path of a format whose records are read one at a time. `parsed`: the values as `read` takes them, which raises
    Mismatch."""

    def exact(values: pa.BinaryArray) -> tuple[pa.RecordBatch, list[Rejected]]:
        rows, rejected = [], []
        for index, value in enumerate(parsed(values)):
            try:
                rows.append(read(value))
            except Mismatch as mismatch:
                rejected.append(mismatch.rejected(index))
        columns = [pa.array([row[column.name] for row in rows], column.type) for column in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema), rejected

    return exact


@dataclass(frozen=True)
class _Decoding:
    """One batch on its way through both paths."""

    fast: Fast | None
    exact: Exact
    limits: Limits
    groups: list[tuple[Indexes, Decoded]] = field(default_factory=list)
    """The outcomes of the values so far, with their places in the batch."""

    def read(self, values: pa.BinaryArray, start: int) -> bool:
        """Whether the fast path could read `values` as a whole. Their first is number `start` of the batch."""
        if self._too_large(values):
            middle = len(values) // 2
            self.read(values.slice(0, middle), start)
            self.read(values.slice(middle), start + middle)
            return False
        proved = self._proved(values)
        if proved is not None:
            self._keep(values, start, proved)
            return True
        if self.fast is None or len(values) <= EXACT_ROWS:
            self._read_exactly(values, np.arange(start, start + len(values)))
        else:
            self._read_pieces(values, start)
        return False

    def _too_large(self, values: pa.BinaryArray) -> bool:
        if len(values) <= 1:
            return False
        return len(values) > self.limits.rows or pc.sum(pc.binary_length(values)).as_py() > self.limits.bytes

    def _proved(self, values: pa.BinaryArray) -> Proved | None:
        if self.fast is None or not len(values):
            return None
        try:
            return self.fast(values)
        except _IN_DOUBT:
            return None

    def _keep(self, values: pa.BinaryArray, start: int, proved: Proved) -> None:
        places = np.arange(start, start + len(values))
        which = np.ones(len(values), np.bool_) if proved.which is None else proved.which
        self.groups.append((places[which], Decoded(proved.rows, None, ())))
        if not which.all():
            self._read_exactly(values.filter(pa.array(~which)), places[~which])

    def _read_pieces(self, values: pa.BinaryArray, start: int) -> None:
        # One bad record must not send thousands of good ones down the slow path. Where every record is in doubt,
        # limits.doubts keeps each from being tried several times.
        size = max(-(-len(values) // _PIECES), EXACT_ROWS // _PIECES)
        doubts = 0
        for offset in range(0, len(values), size):
            piece = values.slice(offset, size)
            if doubts < self.limits.doubts:
                doubts += not self.read(piece, start + offset)
            else:
                self._read_exactly(piece, np.arange(start + offset, start + offset + len(piece)))

    def _read_exactly(self, values: pa.BinaryArray, places: Indexes) -> None:
        rows, rejected = self.exact(values)
        self.groups.append((places, decoded(rows, len(values), rejected)))


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
