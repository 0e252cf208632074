"""Read log files of MERGE_ON_READ tables, ours and those of other writers: the rows and deletes of some keys, or all rows. Pure.

log_file.py describes the bytes. Of a block, only the rows with a wanted key are decoded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal
from io import BytesIO  # files: none, bytes in memory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hudi_ingest.hudi.files.base_file import RECORD_KEY
from hudi_ingest.hudi.files.log_file import (
    AVRO_BLOCK,
    DECIMAL_SCALE,
    DELETE_BLOCK,
    FORMAT_VERSION,
    MAGIC,
    PARQUET_BLOCK,
    SCHEMA_HEADER,
)
from hudi_ingest.records.avro_bytes import AvroBytes, ValueReaders

_COMPACTED_HEADER, _PARTIAL_HEADER = 4, 7
"""Headers of blocks that stand for others, and of those whose rows have some of the columns only."""
_INT, _LONG, _STRING, _DECIMAL = 2, 3, 7, 9
"""Branches of the union of an ordering value."""
_EXACT = Context(prec=2 * 38)
Ordering = int | str | Decimal
"""An ordering value as deletes have it: a time is its number of microseconds."""


class UnreadableLog(Exception):
    """A log file has something that no writer of our tables leaves there."""


@dataclass(frozen=True, slots=True)
class Upserts:
    """Rows of some keys, in the order of their block. A column that the block's rows do not have is missing."""

    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Deletes:
    """Deleted keys, each with its ordering value; None deletes whatever there is."""

    ordering: Sequence[tuple[str, Ordering | None]]


def changes_in(content: bytes, keys: pa.Array, columns: Mapping[str, pa.DataType]) -> Iterator[Upserts | Deletes]:
    """Yield the changes of these record keys in a log file, block by block: rows with RECORD_KEY and these columns.

    Raises UnreadableLog."""
    wanted = frozenset(keys.to_pylist())
    for kind, header, body in _blocks(content):
        with _decoding(kind):
            if kind == DELETE_BLOCK:
                change: Upserts | Deletes = Deletes(
                    [(key, ordering) for key, ordering in _deletes(body) if key in wanted]
                )
            elif kind == PARQUET_BLOCK:
                change = Upserts(rows_of(_parquet(body), keys, columns))
            else:
                change = Upserts(_avro_rows(body, json.loads(header[SCHEMA_HEADER]), wanted, columns))
        yield change


def all_changes(content: bytes, schema: pa.Schema) -> Iterator[Upserts | Deletes]:
    """Yield all changes in a log file, block by block: rows with the columns of their block, those of the schema in its types. Decodes
    every byte, and compares pages with their checksums.

    Raises UnreadableLog."""
    for kind, header, body in _blocks(content):
        with _decoding(kind):
            if kind == DELETE_BLOCK:
                change: Upserts | Deletes = Deletes([*_deletes(body)])
            elif kind == PARQUET_BLOCK:
                change = Upserts(_parquet(body).read())
            else:
                names = [field["name"] for field in json.loads(header[SCHEMA_HEADER])["fields"]]
                types = {name: schema.field(name).type if name in schema.names else None for name in names}
                change = Upserts(_avro_rows(body, json.loads(header[SCHEMA_HEADER]), None, types, whole=True))
        yield change


def rows_in(content: bytes, columns: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """Yield all rows of a log file, with RECORD_KEY and these columns, without the deletes. Raises UnreadableLog."""
    for kind, header, body in _blocks(content):
        with _decoding(kind):
            if kind == PARQUET_BLOCK:
                parts = [*all_rows(_parquet(body), columns)]
            elif kind == AVRO_BLOCK:
                parts = [_avro_rows(body, json.loads(header[SCHEMA_HEADER]), None, columns)]
            else:
                parts = []
        yield from parts


def _parquet(body: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(body), page_checksum_verification=True)


@contextmanager
def _decoding(kind: int) -> Iterator[None]:
    """Raises UnreadableLog for content that is not what its block says: the bytes are in memory, so nothing else can be wrong."""
    try:
        yield
    except (struct.error, ValueError, LookupError, TypeError, ArithmeticError, OSError, pa.ArrowException) as error:
        raise UnreadableLog(
            f"a block of kind {kind} that cannot be decoded ({type(error).__name__}: {error})"
        ) from error


_BATCH_ROWS = 4096
"""Rows read at once, of which each may have large values."""
_BATCH_KEYS = 64 * 1024
"""Rows read at once of which only their keys and numbers are needed."""


def all_rows(file: pq.ParquetFile, columns: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """Yield all rows, some at a time, with RECORD_KEY and those of these columns, of numbers, that the file has."""
    names = file.schema_arrow.names
    kinds = {RECORD_KEY: pa.string(), **{name: kind for name, kind in columns.items() if name in names}}
    for batch in file.iter_batches(_BATCH_KEYS, columns=[*kinds]):
        yield pa.table({name: as_type(pa.chunked_array([batch[name]]), kind) for name, kind in kinds.items()})


def rows_of(file: pq.ParquetFile, keys: pa.Array, columns: Mapping[str, pa.DataType]) -> pa.Table:
    """Read the rows of these record keys, with RECORD_KEY and those of the columns that the file has. In memory are a row group's keys
    and a few of its rows; row groups without such a key are left out, by their statistics if they have any."""
    names = [name for name in columns if name in file.schema_arrow.names]
    schema = pa.schema([(RECORD_KEY, pa.string()), *((name, columns[name]) for name in names)])
    least, greatest = (bound.encode() for bound in pc.min_max(keys).as_py().values())
    # Columns that are nested have several places in the file.
    place = [file.schema.column(index).path for index in range(len(file.schema))].index(RECORD_KEY)
    found = []
    for number in range(file.num_row_groups):
        statistics = file.metadata.row_group(number).column(place).statistics
        if statistics is not None and statistics.has_min_max and isinstance(statistics.min, str):
            # Texts are ordered by their bytes in UTF-8, here as in the file.
            low, high = statistics.min.encode(), statistics.max.encode()
            if high < least or low > greatest:
                continue
        keys_there = file.read_row_group(number, columns=[RECORD_KEY])[RECORD_KEY].cast(pa.string())
        places = pc.indices_nonzero(pc.is_in(keys_there, keys)).to_numpy()
        if not len(places):
            continue
        start, parts = 0, []
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=names):
            end = start + batch.num_rows
            own = places[slice(*np.searchsorted(places, (start, end)))] - start
            if len(own):
                parts.append(batch.take(pa.array(own)))
            start = end
        rows = pa.Table.from_batches(parts)
        arrays = [as_type(rows[name], columns[name]) for name in names]
        found.append(pa.table([keys_there.take(pa.array(places)), *arrays], schema=schema))
    return pa.concat_tables(found) if found else schema.empty_table()


def as_type(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert values that a column had under an earlier schema, or that another writer names differently inside."""
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.chunked_array([pa.array(values.to_pylist(), kind)])


def _blocks(content: bytes) -> Iterator[tuple[int, dict[int, str], bytes]]:
    """Yield each block's kind, header and content."""
    place = 0
    while place < len(content):
        kind, header, body, place = _block(content, place)
        if {_COMPACTED_HEADER, _PARTIAL_HEADER} & header.keys() and header.get(_PARTIAL_HEADER, "true") != "false":
            raise UnreadableLog("a block of partial updates or of a log compaction")
        if kind not in (DELETE_BLOCK, PARQUET_BLOCK, AVRO_BLOCK):
            raise UnreadableLog(f"a block of kind {kind}")
        yield kind, header, body


def _block(content: bytes, place: int) -> tuple[int, dict[int, str], bytes, int]:
    """Return a block's kind, header and content, and where the next one begins."""
    if content[place : place + len(MAGIC)] != MAGIC:
        raise UnreadableLog(f"no block begins at byte {place}")
    begin = place
    place += len(MAGIC)
    try:
        length, version, kind = struct.unpack_from(">qii", content, place)
        if version != FORMAT_VERSION:
            raise UnreadableLog(f"a block of format version {version}, at byte {begin}")
        end = place + 8 + length
        if length < 0 or end > len(content):
            raise UnreadableLog(f"a block that is cut off, at byte {begin}")
        # Hudi's readers go by it, too: they pass over a block whose two lengths differ.
        if struct.unpack_from(">q", content, end - 8) != (len(MAGIC) + length,):
            raise UnreadableLog(f"a block with two lengths, at byte {begin}")
        data = BytesIO(content[place + 16 : end])
        header = {}
        for _ in range(_number(data)):
            key = _number(data)
            header[key] = data.read(_number(data)).decode()
        (size,) = struct.unpack(">q", data.read(8))
        body = data.read(size)
    except (struct.error, ValueError, OverflowError) as error:
        raise UnreadableLog(f"a block that cannot be parsed, at byte {begin} ({error})") from error
    if len(body) != size:
        raise UnreadableLog(f"a block that is cut off, at byte {begin}")
    return kind, header, body, end


def _number(data: BytesIO) -> int:
    (number,) = struct.unpack(">i", data.read(4))
    return int(number)


def _deletes(content: bytes) -> Iterator[tuple[str, Ordering | None]]:
    """Yield the keys of Avro's HoodieDeleteRecordList, each with its ordering value."""
    data = AvroBytes(content, 8)
    for _ in data.items():
        data.long()
        key = data.text()
        if data.long():
            data.bytes()
        yield key, _ordering(data)


def _ordering(data: AvroBytes) -> Ordering | None:
    branch = data.long()
    if branch == 0:
        return None
    if branch == _INT:
        # Spark's own deletes have an int 0, which is no value.
        return data.long() or None
    if branch == _LONG:
        return data.long()
    if branch == _STRING:
        return data.text()
    if branch == _DECIMAL:
        return Decimal(int.from_bytes(data.bytes(), "big", signed=True)).scaleb(-DECIMAL_SCALE, _EXACT)
    raise UnreadableLog(f"a delete that is ordered by a value of a kind that no ordering column has ({branch})")


def _avro_rows(
    content: bytes,
    schema: Mapping[str, Any],
    wanted: Collection[str] | None,
    columns: Mapping[str, pa.DataType | None],
    whole: bool = False,
) -> pa.Table:
    """Decode the rows of the `wanted` keys; all if None. A column without a type has that of its values. Raises ValueError if a row that
    is read `whole` is longer or shorter than the block says."""
    readers = ValueReaders()
    try:
        reads = [(field["name"], readers.of(field["type"])) for field in schema["fields"]]
    except KeyError as error:
        raise UnreadableLog(f"a column of Avro's type {error.args[0]}") from None
    names = [name for name, _ in reads]
    keys_end = names.index(RECORD_KEY) + 1
    needed = [name for name in names if name in columns]
    last = max((names.index(name) for name in needed), default=-1) + 1
    found: dict[str, list[Any]] = {name: [] for name in (RECORD_KEY, *needed)}
    place = 8
    for _ in range(struct.unpack_from(">i", content, 4)[0]):
        (size,) = struct.unpack_from(">i", content, place)
        data = AvroBytes(content[place + 4 : place + 4 + size])
        place += 4 + size
        row = {name: read(data) for name, read in reads[:keys_end]}
        if wanted is not None and row[RECORD_KEY] not in wanted:
            continue
        row |= {name: read(data) for name, read in reads[keys_end:last]}
        if whole and data.at != size:
            raise ValueError(f"a row of {size} bytes has {data.at}")
        for name, values in found.items():
            values.append(row[name])
    if whole and place != len(content):
        raise ValueError(f"rows of {place} bytes in a block of {len(content)}")
    kinds = {**columns, RECORD_KEY: pa.string()}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in found.items()})
