"""Read a batch of Avro datums at once with DataFusion's Avro reader (arrow-avro), where its result can be proved right.

The proof is where an encoder puts each value. A native decoder may be more lenient than Avro: it reads any branch number other
than one as the union's other branch. So its columns are not trusted: they give the size of each value in its shortest form, hence
the position of every branch number, and the byte there must be the column's branch. A datum in another form (padded numbers,
arrays in several blocks or with their sizes) does not pass, even if it is valid.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionConfig, SessionContext

from hudi_ingest.records.avro_bytes import container_header, long_bytes
from hudi_ingest.records.convert.avro.exact import FIXED_SIZES, FLOATS, INTEGERS, TIMESTAMPS, item_type
from hudi_ingest.records.convert.fast_path import (
    Doubt,
    Finish,
    Member,
    Proved,
    of_field,
    struct_column,
    struct_member,
    within,
)
from hudi_ingest.records.schema.avro import Resolution, wire_schema
from hudi_ingest.records.schema.wire_type import WireType
from hudi_ingest.records.times import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND

_GUARD = b"\xf3/hudi-ingest/\x00\x01"
"""Follows each datum. No suffix of it is also a prefix, so its occurrences do not overlap."""
_SYNC = bytes(16)
_ROWS_CLAIMED = 1 << 40
"""The number of rows that the block claims: more than it can have. If bytes remain after a block's last row, arrow-avro tries
to read the next one for ever; from this block it reads as many rows as requested, and fails beyond its end."""


class BatchReader:
    """Reads datums of one writer's schema to rows of `schema`. Raises Doubt at construction when it cannot.

    The first `header_bytes` of each value are skipped. The datums become an Object Container File of one block, each
    followed by a guard. Why an accepted batch has one row per datum, in order:

    - The file has as many guards as datums, and the reader read as many rows, each ending in the guard. So it read every
      guard in its place, and each datum from start to end.
    - `fits` proves that each datum is the encoding of its row.

    Why a row has the exact path's values: their meaning is decided here, on columns of plain numbers and bytes.
    """

    def __init__(self, writer: WireType, schema: pa.Schema, resolution: Resolution, header_bytes: int = 0) -> None:
        self._writer = writer
        self._schema = schema
        self._header_bytes = header_bytes
        members = [
            {"name": "header", "type": {"type": "fixed", "name": "header", "size": header_bytes}},
            {"name": "datum", "type": wire_schema(writer)},
            {"name": "guard", "type": {"type": "fixed", "name": "guard", "size": len(_GUARD)}},
        ]
        if not header_bytes:
            del members[0]
        self._file_header = container_header({"type": "record", "name": "guarded", "fields": members}, _SYNC)
        _require_plain_unions(writer)
        self._finish = _finish_struct(writer, list(schema), "", resolution)

    def read(self, datums: pa.BinaryArray) -> Proved:
        """Return one row per datum. `datums`: at least one, no nulls, less than 2 GiB in total. Raises as `fast_path.Fast`
        does."""
        try:
            return Proved(self._rows(datums))
        except (OverflowError, IndexError) as error:  # a decimal of too many bytes, an enum's number beyond its symbols
            raise Doubt(str(error)) from None

    def _rows(self, datums: pa.BinaryArray) -> pa.RecordBatch:
        seams = pa.array([0, len(datums)], pa.int32())
        joined = pc.binary_join(pa.ListArray.from_arrays(seams, datums), _GUARD)[0].as_buffer()
        body = joined.to_pybytes()
        if body.count(_GUARD) != len(datums) - 1:
            raise Doubt("a datum holds the guard")
        block = long_bytes(_ROWS_CLAIMED) + long_bytes(len(body) + len(_GUARD))
        batch = _read_rows(len(datums), self._file_header, block, body, _GUARD, _SYNC)
        read, guards = batch.column("datum"), batch.column("guard")
        if len(read) != len(datums) or guards.cast(pa.binary()).unique().to_pylist() != [_GUARD]:
            raise Doubt("a datum does not end where its schema says")
        lengths = np.asarray(pc.binary_length(datums).to_numpy(zero_copy_only=False)).astype(np.int64)
        starts = np.cumsum(lengths + len(_GUARD)) - lengths - len(_GUARD) + self._header_bytes
        if not fits(self._writer, read, body, starts, lengths - self._header_bytes):
            raise Doubt("a datum is not in the form in which the columns would be written")
        columns = self._finish(read)
        return pa.RecordBatch.from_arrays(columns.flatten(), schema=self._schema)


@lru_cache(maxsize=16)
def _session(rows: int) -> SessionContext:
    """Return a session that reads this many rows at once."""
    # One thread: tasks run in parallel already. A session belongs to its process, and worker processes begin without one.
    return SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(rows))


def _read_rows(count: int, *parts: bytes) -> pa.RecordBatch:
    """Read the first `count` rows of an Object Container File. Raises Doubt when they cannot be read."""
    try:
        with tempfile.TemporaryDirectory(prefix="hudi-ingest-avro-") as folder:
            path = Path(folder, "batch.avro")
            with path.open("wb") as file:
                file.writelines(parts)
            return next(_session(count).read_avro(str(path)).execute_stream()).to_pyarrow()
    except Exception as error:  # noqa: BLE001  # a full disk, or DataFusion, which has no class of its own; the exact path then judges
        raise Doubt(str(error)) from None


def _require_plain_unions(type_: WireType) -> None:
    if type_.kind == "union" and (type_.inner[0] is type_ or len(type_.parts) != 2):
        raise Doubt("a union of other than null and one type")
    for part in type_.parts:
        _require_plain_unions(part)


def _finish_field(writer: WireType, field: pa.Field, path: str, resolution: Resolution) -> Finish:
    return of_field(field, _finish_type(writer.inner[0], field.type, path, resolution))


def _finish_type(writer: WireType, type_: pa.DataType, path: str, resolution: Resolution) -> Finish:
    kind, logical = writer.kind, writer.logical
    if pa.types.is_struct(type_) and kind == "record":
        return _finish_struct(writer, list(type_), path, resolution)
    if pa.types.is_list(type_) and kind == "array":
        return _finish_list(type_, _finish_field(writer.parts[0], type_.value_field, f"{path}[]", resolution))
    if pa.types.is_map(type_) and kind == "map":
        return _finish_map(type_, _finish_field(writer.parts[0], type_.item_field, f"{path}[]", resolution))
    if pa.types.is_decimal128(type_) and logical == "decimal":
        return _finish_decimal(type_, writer.scale)
    if logical == "decimal":
        raise Doubt("a type that no column can have")
    if (
        (pa.types.is_boolean(type_) and kind == "boolean")
        or kind in INTEGERS.get(type_, ())
        or kind in FLOATS.get(type_, ())
        or (pa.types.is_string(type_) and kind in ("string", "bytes"))
        or (pa.types.is_binary(type_) and kind in ("bytes", "fixed", "string"))
    ):
        return lambda column: column.cast(type_)  # verifies UTF-8, and that a float holds the number
    if pa.types.is_date32(type_) and logical == "date" and kind == "int":
        return lambda column: within(column, FIRST_DAY, LAST_DAY).cast(type_)
    unit = TIMESTAMPS.get(type_, {}).get(str(logical))
    if unit and kind == "long":
        return lambda column: within(pc.multiply_checked(column, unit), FIRST_MICROSECOND, LAST_MICROSECOND).cast(type_)
    if pa.types.is_string(type_) and kind == "enum":
        symbols = pa.array(writer.names, pa.string())
        return lambda column: pa.DictionaryArray.from_arrays(column, symbols).cast(pa.string())  # checks the range
    raise Doubt("a type that the exact path reads or refuses")


def _finish_decimal(type_: pa.DataType, scale: int) -> Finish:
    if scale > 38:
        raise Doubt("a decimal of more digits than Arrow has")
    read_as = pa.decimal128(38, scale)

    def finish(column: pa.Array) -> pa.Array:
        if pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
            raise Doubt("a decimal of no bytes")
        # 16 bytes, little-endian: OverflowError for numbers that need more.
        numbers = b"".join(
            int.from_bytes(number or b"", "big", signed=True).to_bytes(16, "little", signed=True)
            for number in column.to_pylist()
        )
        valid = column.is_valid()
        decimals = pa.Array.from_buffers(read_as, len(column), [None, pa.py_buffer(numbers)])
        decimals.validate(full=True)
        if column.null_count:
            decimals = pc.if_else(valid, decimals, None)
        return decimals.cast(type_)

    return finish


def _finish_list(type_: pa.DataType, finish_item: Finish) -> Finish:
    return lambda column: pa.ListArray.from_arrays(_offsets(column), finish_item(column.flatten()), type=type_)


def _finish_map(type_: pa.DataType, finish_value: Finish) -> Finish:
    def finish(column: pa.ListArray) -> pa.Array:
        entries = column.flatten()
        keys = entries.field("f0").cast(pa.string())
        values = finish_value(entries.field("f1"))
        rows = pc.list_parent_indices(column)
        distinct = pa.table({"row": rows, "key": keys}).group_by(["row", "key"], use_threads=False).aggregate([])
        if len(distinct) != len(keys):
            raise Doubt("a key more than once")
        return pa.MapArray.from_arrays(_offsets(column), keys, values, type=type_)

    return finish


def _offsets(column: pa.ListArray) -> pa.Array:
    """Return offsets into the flattened items, which omit anything below null lists; null where a list is null."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)))
    nulls = np.append(column.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(offsets, pa.int32(), mask=nulls if column.null_count else None)


def _finish_struct(writer: WireType, fields: Sequence[pa.Field], path: str, resolution: Resolution) -> Finish:
    members = [_member(writer, field, f"{path}.{field.name}".removeprefix("."), resolution) for field in fields]
    return struct_column(fields, members)


def _member(writer: WireType, field: pa.Field, path: str, resolution: Resolution) -> Member:
    name = resolution.written_name(path, writer.names)
    if name is None:
        if path in resolution.unfit or (not field.nullable and path not in resolution.defaults):
            raise Doubt("a required field that is not there")
        missing = pa.scalar(resolution.defaults.get(path), field.type)
        return lambda structs: pa.repeat(missing, len(structs))
    index = writer.names.index(name)
    return struct_member(
        index, field.nullable, _finish_type(writer.parts[index].inner[0], field.type, path, resolution)
    )


Numbers = npt.NDArray[np.int64]


def fits(type_: WireType, column: pa.Array, body: bytes, starts: Numbers, lengths: Numbers) -> bool:
    """Return whether `column`, decoded from `body`, matches its bytes. `starts` and `lengths` of the datums are in bytes.

    The decoder must have read each datum from its start to its end. Then, if each row's shortest form is as long as the
    datum, the datum is in that form except perhaps for its branch numbers, which are compared.
    """
    if not np.array_equal(_sizes(type_, column), lengths):
        return False
    encoded = np.frombuffer(body, np.uint8)
    return all(np.array_equal(encoded[places], numbers) for places, numbers in _branch_bytes(type_, column, starts))


def _sizes(type_: WireType, column: pa.Array) -> Numbers:
    """Return each value's size in its shortest form, in bytes; undefined for values inside null ones."""
    inner, nullable = type_.inner
    if nullable:
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        return np.where(present, _sizes(inner, column), 0) + 1
    if inner.kind == "fixed":
        return np.full(len(column), inner.size, np.int64)
    if inner.kind in FIXED_SIZES:
        return np.full(len(column), FIXED_SIZES[inner.kind], np.int64)
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


def _branch_bytes(type_: WireType, column: pa.Array, starts: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
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
        yield from _branch_bytes(item_type(inner), items, np.repeat(begin, counts) + before[:-1])


def _items(type_: WireType, column: pa.ListArray) -> tuple[Numbers, pa.Array, Numbers]:
    """Return each list's number of items, the items of all lists, and the running total of their bytes, starting at 0."""
    items = column.flatten()
    before = np.concatenate(([0], np.cumsum(_sizes(item_type(type_), items))))
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
