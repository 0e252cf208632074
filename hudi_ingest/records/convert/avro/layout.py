"""Where an encoder puts each value: the proof that decoded columns match their bytes.

A native decoder may be more lenient than Avro: it reads any branch number other than one as the union's other branch. So
its columns are not trusted: they give the size of each value in its shortest form, hence the position of every branch
number, and the byte there must be the column's branch. A datum in another form (padded numbers, arrays in several blocks
or with their sizes) does not pass, even if it is valid.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.wire_format import read_zigzag
from hudi_ingest.records.schema.avro import AvroType

Numbers = npt.NDArray[np.int64]

_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def fits(type_: AvroType, column: pa.Array, body: bytes, starts: Numbers, lengths: Numbers) -> bool:
    """Return whether `column`, decoded from `body`, matches its bytes. `starts` and `lengths` of the datums are in bytes.

    The decoder must have read each datum from its start to its end. Then, if each row's shortest form is as long as the
    datum, the datum is in that form except perhaps for its branch numbers, which are compared.
    """
    if not np.array_equal(_sizes(type_, column), lengths):
        return False
    encoded = np.frombuffer(body, np.uint8)
    return all(np.array_equal(encoded[places], numbers) for places, numbers in _branch_bytes(type_, column, starts))


def end_of(type_: AvroType, datum: bytes, at: int) -> int:
    """Return where the value that begins there ends, in a datum that fastavro has read. Raises ValueError at a number of more
    than 64 bits."""
    kind = type_.kind
    if kind in ("int", "long", "enum"):
        return read_zigzag(datum, at)[1]
    if kind in ("bytes", "string"):
        size, at = read_zigzag(datum, at)
        return at + size
    if kind == "union":
        branch, at = read_zigzag(datum, at)
        return end_of(type_.parts[branch], datum, at)
    if kind == "record":
        for part in type_.parts:
            at = end_of(part, datum, at)
        return at
    if kind not in ("array", "map"):
        return at + (type_.size or _FIXED_SIZES.get(kind, 0))
    item = _item_type(type_)
    count, at = read_zigzag(datum, at)
    while count:
        if count < 0:  # followed by the block's size in bytes
            _, at = read_zigzag(datum, at)
        for _ in range(abs(count)):
            at = end_of(item, datum, at)
        count, at = read_zigzag(datum, at)
    return at


def _sizes(type_: AvroType, column: pa.Array) -> Numbers:
    """Return each value's size in its shortest form, in bytes; undefined for values inside null ones."""
    inner, nullable = type_.inner
    if nullable:
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        return np.where(present, _sizes(inner, column), 0) + 1
    if inner.kind == "fixed":
        return np.full(len(column), inner.size, np.int64)
    if inner.kind in _FIXED_SIZES:
        return np.full(len(column), _FIXED_SIZES[inner.kind], np.int64)
    if inner.kind in ("int", "long", "enum"):
        return _number_sizes(_filled(column))
    if inner.kind in ("bytes", "string"):
        lengths = _filled(pc.binary_length(column))
        return lengths + _number_sizes(lengths)
    if inner.kind == "record":
        members = (_sizes(part, column.field(i)) for i, part in enumerate(inner.parts))
        return sum(members, np.zeros(len(column), np.int64))
    counts, _, before = _items(inner, column)
    ends = np.cumsum(counts)
    content = before[ends] - before[ends - counts]
    return np.where(counts > 0, content + _number_sizes(counts) + 1, 1)


def _branch_bytes(type_: AvroType, column: pa.Array, starts: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the positions of branch numbers, and the bytes that must be there. `starts`: where each value begins."""
    inner, nullable = type_.inner
    if nullable:
        null = next(i for i, part in enumerate(type_.parts) if part.kind == "null")
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        yield starts, np.where(present, 2 * (1 - null), 2 * null)
        if inner.parts:
            column, starts = column.filter(pa.array(present)), starts[present] + 1
    if inner.kind == "record":
        for i, part in enumerate(inner.parts):
            member = column.field(i)
            yield from _branch_bytes(part, member, starts)
            starts = starts + _sizes(part, member)
    elif inner.kind in ("array", "map"):
        counts, items, before = _items(inner, column)
        first = np.cumsum(counts) - counts
        begin = starts + _number_sizes(counts) - before[first]
        yield from _branch_bytes(_item_type(inner), items, np.repeat(begin, counts) + before[:-1])


def _item_type(type_: AvroType) -> AvroType:
    if type_.kind == "array":
        return type_.parts[0]
    return AvroType("record", names=("key", "value"), parts=(AvroType("string"), type_.parts[0]))


def _items(type_: AvroType, column: pa.ListArray) -> tuple[Numbers, pa.Array, Numbers]:
    """Return each list's number of items, the items of all lists, and the running total of their bytes, starting at 0."""
    items = column.flatten()
    before = np.concatenate(([0], np.cumsum(_sizes(_item_type(type_), items))))
    return _filled(pc.list_value_length(column)), items, before


def _number_sizes(numbers: Numbers) -> Numbers:
    """Return the size of each number as a zigzag varint, in bytes."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    sizes = np.ones(len(numbers), np.int64)
    most = int(zigzag.max()) if len(zigzag) else 0
    for bits in range(7, max(most.bit_length(), 1), 7):
        sizes += zigzag >= np.uint64(1 << bits)
    return sizes


def _filled(column: pa.Array) -> Numbers:
    """Convert numbers to numpy, 0 for null."""
    filled = column.cast(pa.int64()).fill_null(0) if column.null_count else column.cast(pa.int64())
    return np.asarray(filled.to_numpy(zero_copy_only=False))
