"""Where an encoder puts each value: the proof that decoded columns are what the bytes say.

A native decoder may be more lenient than Avro: it takes any branch number but one for the other branch of a union. So
its columns are not believed: from them follows how many bytes each value takes in its shortest form, from that the place
of every branch number, and there must stand the number that the column says. A datum in another form (padded numbers,
arrays in several blocks or with their sizes) does not pass, though it may be right.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.schema.avro import AvroType

Numbers = npt.NDArray[np.int64]

_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def fits(type_: AvroType, column: pa.Array, body: bytes, starts: Numbers, lengths: Numbers) -> bool:
    """Whether `column`, decoded from `body`, is what stands there. `starts`, `lengths`: of each datum, in bytes.

    The decoder must have read each datum from its start to its end. Then, if each row's shortest form is as long as the
    datum, the datum is in that form but for its branch numbers, and those are looked at.
    """
    if not np.array_equal(_sizes(type_, column), lengths):
        return False
    seen = np.frombuffer(body, np.uint8)
    return all(np.array_equal(seen[places], numbers) for places, numbers in _branch_bytes(type_, column, starts))


def _sizes(type_: AvroType, column: pa.Array) -> Numbers:
    """Bytes of each value in its shortest form; of values inside null ones, anything."""
    there, nullable = type_.inner
    if nullable:
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        return np.where(present, _sizes(there, column), 0) + 1
    if there.kind == "fixed":
        return np.full(len(column), there.size, np.int64)
    if there.kind in _FIXED_SIZES:
        return np.full(len(column), _FIXED_SIZES[there.kind], np.int64)
    if there.kind in ("int", "long", "enum"):
        return _number_sizes(_filled(column))
    if there.kind in ("bytes", "string"):
        lengths = _filled(pc.binary_length(column))
        return lengths + _number_sizes(lengths)
    if there.kind == "record":
        members = (_sizes(part, column.field(i)) for i, part in enumerate(there.parts))
        return sum(members, np.zeros(len(column), np.int64))
    counts, _, before = _items(there, column)
    ends = np.cumsum(counts)
    content = before[ends] - before[ends - counts]
    return np.where(counts > 0, content + _number_sizes(counts) + 1, 1)


def _branch_bytes(type_: AvroType, column: pa.Array, starts: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Places of branch numbers, and the byte that must be there. `starts`: of each value."""
    there, nullable = type_.inner
    if nullable:
        null = next(i for i, part in enumerate(type_.parts) if part.kind == "null")
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        yield starts, np.where(present, 2 * (1 - null), 2 * null)
        if there.parts:
            column, starts = column.filter(pa.array(present)), starts[present] + 1
    if there.kind == "record":
        for i, part in enumerate(there.parts):
            member = column.field(i)
            yield from _branch_bytes(part, member, starts)
            starts = starts + _sizes(part, member)
    elif there.kind in ("array", "map"):
        counts, items, before = _items(there, column)
        first = np.cumsum(counts) - counts
        begin = starts + _number_sizes(counts) - before[first]
        yield from _branch_bytes(_item_type(there), items, np.repeat(begin, counts) + before[:-1])


def _item_type(type_: AvroType) -> AvroType:
    if type_.kind == "array":
        return type_.parts[0]
    return AvroType("record", names=("key", "value"), parts=(AvroType("string"), type_.parts[0]))


def _items(type_: AvroType, column: pa.ListArray) -> tuple[Numbers, pa.Array, Numbers]:
    """How many items each list has, the items of all lists, and the bytes before each of those and after the last."""
    items = column.flatten()
    before = np.concatenate(([0], np.cumsum(_sizes(_item_type(type_), items))))
    return _filled(pc.list_value_length(column)), items, before


def _number_sizes(numbers: Numbers) -> Numbers:
    """Bytes of a zigzag number of 7 bits a byte."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    sizes = np.ones(len(numbers), np.int64)
    most = int(zigzag.max()) if len(zigzag) else 0
    for bits in range(7, max(most.bit_length(), 1), 7):
        sizes += zigzag >= np.uint64(1 << bits)
    return sizes


def _filled(column: pa.Array) -> Numbers:
    """Numbers as numpy has them, 0 for null."""
    filled = column.cast(pa.int64()).fill_null(0) if column.null_count else column.cast(pa.int64())
    return np.asarray(filled.to_numpy(zero_copy_only=False))
