"""Write base files of new file groups with pyarrow: marker first, then data, and reports of closed files only."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hudi_ingest.exceptions import Fenced
from hudi_ingest.faults import reach
from hudi_ingest.hudi import file_ids
from hudi_ingest.hudi.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.paths import heartbeat_path, marker_path, partition_metadata_path
from hudi_ingest.hudi.storage import TableStorage
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import BaseFile
from hudi_ingest.records.kafka_columns import OFFSET, TIMESTAMP, TOPIC
from hudi_ingest.records.partition_paths import partition_path
from hudi_ingest.records.record_keys import record_keys

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
ROW_GROUP_ROWS = 128 * 1024
BUFFERED_BYTES = 64 * 1024 * 1024
"""Limit for rows of all table partitions waiting for a full row group; above it the largest partition is written early."""
MOST_OPEN_FILES = 500
"""Lower if the process may open fewer; above it the largest file is closed, and its table partition continues in a new one."""
SPARK_VERSION = "3.5.7"
"""Spark reads dates before 1582 and times before 1900 unchanged only if the file's footer names Spark 3.0 or later;
otherwise it refuses to read them."""

_ONE_VALUE = pa.scalar(0, pa.int32())
_ASCENDING = (OFFSET, TIMESTAMP)
_HIGH_CARDINALITY = frozenset({"_hoodie_commit_seqno", "_hoodie_record_key", *_ASCENDING})
_SAMPLE_ROWS = 4096
_LEAST_PIECE = 256
"""Rows; smaller pieces of a table cost more than a copy."""
_MOST_DISTINCT = _SAMPLE_ROWS * 7 // 8
"""In the sample. With more, a column has about 16,000 values or more, and looking each up costs more than it saves."""


@dataclass(frozen=True, slots=True)
class BaseFileLayout:
    """How rows become base files; the same for all tasks of a transaction."""

    instant: str
    epoch: Epoch
    partition_by: tuple[str, ...]
    rows_per_file: int
    target_file_bytes: int
    compression: str
    generations: Mapping[str, int] = field(default_factory=dict)
    """Generation of each topic whose offsets have started over; see TopicVersion."""
    hive_style: bool = True
    """Whether folders are named `column=value`."""
    escaped_folders: bool = True
    """Whether unsafe characters of a value are escaped in folder names."""
    record_key: tuple[str, ...] = ()
    """Columns that form the record key; empty if it is made of topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class RowSource:
    """The Kafka partition of rows, and the write token of files whose first row comes from it."""

    source: TopicPartition
    write_token: str

    def __str__(self) -> str:
        return str(self.source)


@dataclass(slots=True)
class _OpenFile:
    origin: RowSource
    file_id: str
    path: str
    stream: IO[bytes]
    writer: pq.ParquetWriter
    first_offset: int
    last_offset: int
    rows: int = 0


@dataclass(slots=True)
class _TablePartition:
    buffered: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    file: _OpenFile | None = None


class BaseFileWriter:
    """Writes rows to base files of new file groups, one open file per table partition.

    Pass rows in offset order, one Kafka partition after another. A base file holds rows of exactly one Kafka partition:
    when the next one begins, the files of the previous one are closed.

    Use it as a context manager: if it exits with an error, it deletes every file it created, because pyarrow would
    complete an unfinished one as a valid file with fewer rows. `files` holds the reports of closed files by Kafka
    partition, complete after `close`. Memory is bounded by BUFFERED_BYTES and one row group's encoding, whatever the
    length of the range.
    """

    def __init__(self, storage: TableStorage, layout: BaseFileLayout) -> None:
        self.files: dict[TopicPartition, list[BaseFile]] = {}
        self._storage = storage
        self._layout = layout
        self._source: RowSource | None = None
        self._partitions: dict[str, _TablePartition] = {}
        self._open: set[str] = set()
        """Table partitions with an open file."""
        self._most_open = _most_open_files()
        self._buffered = 0
        self._created: list[str] = []

    def __enter__(self) -> BaseFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.discard()

    def write(self, source: RowSource, rows: pa.Table) -> None:
        """Write rows of `source` with the table's columns (Kafka columns included). Raises Fenced, OSError."""
        if source != self._source:
            self.close()
            self._source = source
        layout = self._layout
        if TOPIC in rows.column_names:
            rows = _with_column(rows, TOPIC, _same_for_all(source.source.topic, rows.num_rows))
        for path, part in split_by_partition(rows, layout.partition_by, layout.hive_style, layout.escaped_folders):
            state = self._partitions.setdefault(path, _TablePartition())
            state.buffered.append(part)
            state.rows += part.num_rows
            state.size += part.nbytes
            self._buffered += part.nbytes
            if state.rows >= min(ROW_GROUP_ROWS, self._layout.rows_per_file):
                self._write_row_group(path, state)
        while self._buffered > BUFFERED_BYTES:
            self._write_row_group(*max(self._partitions.items(), key=lambda item: item[1].size))

    def close(self) -> None:
        """Write buffered rows and close all files. Raises Fenced, OSError."""
        for path, state in self._partitions.items():
            self._write_row_group(path, state)
            self._close_file(path, state)
        self._partitions.clear()

    def discard(self) -> None:
        """Delete every file this writer created, closed or not."""
        for state in self._partitions.values():
            if state.file is not None:
                # The file is deleted next, so errors of a full disk or a lost connection do not matter here.
                with suppress(OSError, pa.ArrowException):
                    state.file.writer.close()
                with suppress(OSError, pa.ArrowException):
                    state.file.stream.close()
                state.file = None
        self._open.clear()
        for path in self._created:
            # A file that cannot be deleted now has a marker, so Hudi deletes it at commit or rollback.
            with suppress(OSError):
                self._storage.delete(path)
        self.files.clear()

    def _write_row_group(self, path: str, state: _TablePartition) -> None:
        if not state.buffered or self._source is None:
            return
        rows = pa.concat_tables(state.buffered)
        self._buffered -= state.size
        state.buffered, state.rows, state.size = [], 0, 0
        start = 0
        while start < rows.num_rows:
            file = state.file or self._open_file(path, self._source, rows.slice(start))
            state.file = file
            part = rows.slice(start, self._layout.rows_per_file - file.rows)
            start += part.num_rows
            file.rows += part.num_rows
            file.last_offset = part[OFFSET][part.num_rows - 1].as_py()
            self._append(path, state, file, self._with_meta_columns(part, self._source, path, file))

    def _append(self, path: str, state: _TablePartition, file: _OpenFile, rows: pa.Table) -> None:
        # Each batch has its own dictionaries, but the writer only uses those of a row group's first rows.
        file.writer.write_table(rows.unify_dictionaries())
        reach("rows_written")
        if file.rows >= self._layout.rows_per_file or file.stream.tell() >= self._layout.target_file_bytes:
            self._close_file(path, state)

    def _open_file(self, path: str, origin: RowSource, rows: pa.Table) -> _OpenFile:
        """`rows`: those that come first."""
        if len(self._open) >= self._most_open:
            largest = max(self._open, key=self._bytes_written)
            self._close_file(largest, self._partitions[largest])
        require_open_instant(self._storage, self._layout, origin)
        instant, first_offset = self._layout.instant, rows[OFFSET][0].as_py()
        file_id = file_ids.file_id(origin.source.topic, origin.source.partition, first_offset, path, instant)
        name = f"{file_id}_{origin.write_token}_{instant}.parquet"
        relative = f"{path}/{name}" if path else name
        # The marker comes first: at commit and rollback Hudi only cleans up files that have one.
        self._storage.write(marker_path(instant, relative), b"")
        reach("marker_written")
        self._ensure_partition_metadata(path)
        self._created.append(relative)
        stream = self._storage.open_output(relative)
        self._open.add(path)
        writer = parquet_writer(stream, _file_schema(rows.schema), rows, self._layout.compression)
        reach("file_opened")
        return _OpenFile(origin, file_id, relative, stream, writer, first_offset, first_offset)

    def _close_file(self, path: str, state: _TablePartition) -> None:
        file = state.file
        if file is None:
            return
        reach("file_ready")
        require_open_instant(self._storage, self._layout, file.origin)
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        state.file = None
        self._open.discard(path)
        reach("file_closed")
        # Closing may take long. If the instant was rolled back meanwhile, this file was too late to be cleaned up with it;
        # the error makes the writer delete it.
        require_open_instant(self._storage, self._layout, file.origin)
        self.files.setdefault(file.origin.source, []).append(
            BaseFile(path, file.file_id, file.path, file.rows, size, file.first_offset, file.last_offset)
        )

    def _bytes_written(self, path: str) -> int:
        file = self._partitions[path].file
        return file.stream.tell() if file is not None else 0

    def _with_meta_columns(self, rows: pa.Table, source: RowSource, path: str, file: _OpenFile) -> pa.Table:
        topic, partition = source.source.topic, source.source.partition
        generation = self._layout.generations.get(topic, 0)
        offsets = rows[OFFSET].cast(pa.string())
        place = pc.binary_join_element_wise(
            f"{topic}-{partition}", offsets, *([f"g{generation}"] if generation else []), "-"
        )
        meta = [
            _same_for_all(self._layout.instant, rows.num_rows),
            place,
            record_keys(rows, self._layout.record_key) if self._layout.record_key else place,
            _same_for_all(path, rows.num_rows),
            _same_for_all(file.path.rsplit("/", 1)[-1], rows.num_rows),
        ]
        return pa.table([*meta, *rows.columns], schema=_file_schema(rows.schema))

    def _ensure_partition_metadata(self, path: str) -> None:
        # Tasks may race here: each of their instants is valid, so the last write may win.
        metadata = partition_metadata_path(path)
        if not self._storage.exists(metadata):
            depth = path.count("/") + 1 if path else 0
            content = f"#partition metadata\ncommitTime={self._layout.instant}\npartitionDepth={depth}\n"
            self._storage.write(metadata, content.encode())


def require_open_instant(storage: TableStorage, layout: BaseFileLayout, source: RowSource) -> None:
    """Raises Fenced when the instant is no longer open, or its transaction's epoch is over."""
    if not storage.exists(heartbeat_path(layout.instant)):
        raise Fenced(
            f"instant {layout.instant} of {storage.base_path} is no longer open (rolled back, or "
            f"committed by another process), so {source} must not write to it. "
            "Nothing of this attempt is visible; the next transaction reads the same offsets.",
            transaction_id=layout.epoch.transaction_id,
            instant=layout.instant,
        )
    TableEpoch(storage).require(layout.epoch, f"{source} must not be written")


def _file_schema(columns: pa.Schema) -> pa.Schema:
    """Hudi's meta columns, then the table's. In the file all meta columns are strings. Those with the same value in all rows
    of a file go to the writer as dictionaries, which saves it a lookup per row."""
    one_value = pa.dictionary(_ONE_VALUE.type, pa.string())
    meta = [pa.field(name, pa.string() if name in _HIGH_CARDINALITY else one_value) for name in META_COLUMNS]
    return pa.schema([*meta, *columns])


def _with_column(rows: pa.Table, name: str, column: pa.DictionaryArray) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place).with_type(column.type), column)


def _same_for_all(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(_ONE_VALUE, count), [value])


def parquet_writer(stream: IO[bytes], schema: pa.Schema, first_rows: pa.Table, compression: str) -> pq.ParquetWriter:
    """Open a writer of a base file with these columns, including Hudi's. Encodings are chosen by its first rows."""
    writer = pq.ParquetWriter(
        stream,
        schema,
        compression=compression,
        compression_level=1 if compression == "zstd" else None,
        use_dictionary=[leaf for column in schema if _repeats(column, first_rows) for leaf in _leaves(column)],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _ASCENDING if name in schema.names},
        store_schema=False,
    )
    writer.add_key_value_metadata({"org.apache.spark.version": SPARK_VERSION})
    return writer


def _repeats(column: pa.Field, first_rows: pa.Table) -> bool:
    """Whether the column's values occur often enough for a dictionary, as all of a nested column's are taken to do."""
    if column.name in _HIGH_CARDINALITY:
        return False
    if pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type) or first_rows.num_rows < _SAMPLE_ROWS:
        return True
    values = first_rows[column.name].slice(0, _SAMPLE_ROWS)
    return bool(pc.count_distinct(values, mode="all").as_py() <= _MOST_DISTINCT)


def _leaves(column: pa.Field, path: str = "") -> Iterator[str]:
    """The column as Parquet names it, or what is in it."""
    path += column.name
    if pa.types.is_struct(column.type):
        for member in column.type:
            yield from _leaves(member, f"{path}.")
    elif pa.types.is_map(column.type):
        yield f"{path}.key_value.key"
        yield from _leaves(column.type.item_field.with_name("value"), f"{path}.key_value.")
    elif pa.types.is_list(column.type):
        yield from _leaves(column.type.value_field.with_name("element"), f"{path}.list.")
    else:
        yield path


def _most_open_files() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Leaves half for everything else that the process opens.
    return MOST_OPEN_FILES if limit == resource.RLIM_INFINITY else max(1, min(MOST_OPEN_FILES, limit // 2))


def split_by_partition(
    rows: pa.Table, columns: Sequence[str], hive_style: bool = True, escaped: bool = True
) -> list[tuple[str, pa.Table]]:
    """Split `rows` into (partition path, rows in their original order), one entry per table partition present.

    Returns text partition columns as dictionaries, which grouping needs anyway and which are cheaper to copy and to write
    to Parquet.
    """
    if not rows.num_rows:
        return []
    if not columns:
        return [("", rows)]
    codes: np.ndarray
    values: list[tuple[Any, ...]] = [()]
    for name in columns:
        encoded = rows[name].combine_chunks().dictionary_encode()
        if encoded.type.value_type == pa.string():
            rows = _with_column(rows, name, encoded)
        indices, options = encoded.indices, encoded.dictionary.to_pylist()
        if encoded.null_count:
            indices, options = indices.fill_null(len(options)), [*options, None]
        indices, width = indices.to_numpy(zero_copy_only=False), len(options)
        if len(values) == 1:
            # The earlier columns have one combination of values, so each option occurs with it.
            codes, values = indices, [(*values[0], option) for option in options]
        else:
            combined = pa.array(codes * np.int64(width) + indices).dictionary_encode()
            codes = combined.indices.to_numpy()
            values = [(*values[code // width], options[code % width]) for code in combined.dictionary.to_pylist()]
    paths = [partition_path(columns, combination, hive_style, escaped) for combination in values]
    if len(paths) == 1:
        return [(paths[0], rows)]
    # numpy radix-sorts 16-bit codes, and a stable sort keeps the row order within a partition.
    order = np.argsort(codes.astype(np.uint16) if len(paths) <= 1 << 16 else codes, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(np.bincount(codes, minlength=len(paths)))))
    by_path: dict[str, list[pa.Table]] = {}
    for index, path in enumerate(paths):
        partition_rows = _picked(rows, order[bounds[index] : bounds[index + 1]])
        by_path.setdefault(path, []).append(partition_rows)
    return [
        # Null and "" share one folder: put their rows back into offset order.
        (path, parts[0] if len(parts) == 1 else pa.concat_tables(parts).sort_by(OFFSET))
        for path, parts in by_path.items()
    ]


def _picked(rows: pa.Table, places: np.ndarray) -> pa.Table:
    """The rows at these places, which ascend: not copied if they are most of the rows, in few pieces.

    A piece keeps all rows in memory for as long as it waits for its row group, so fewer of them are copied.
    """
    ends = np.flatnonzero(np.diff(places) != 1) + 1
    if 2 * len(places) < rows.num_rows or _LEAST_PIECE * len(ends) > len(places):
        return rows.take(pa.array(places))
    return pa.concat_tables(rows.slice(piece[0], len(piece)) for piece in np.split(places, ends))
