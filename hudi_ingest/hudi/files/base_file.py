"""Write base files of new file groups with pyarrow: marker first, then data, and reports of closed files only."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.file_groups import RowSource
from hudi_ingest.hudi.files.new_files import BaseFileLayout, DiscardedOnError, NewFiles
from hudi_ingest.hudi.files.partition_split import (
    ONE_TEXT,
    Pieces,
    Split,
    parts_of,
    same_for_all,
    split_rows,
    with_column,
)
from hudi_ingest.hudi.iceberg.field_ids import with_field_ids
from hudi_ingest.hudi.iceberg.statistics import column_statistics
from hudi_ingest.hudi.storage.paths import marker_path, path_in
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import BaseFile
from hudi_ingest.records.hudi_keys import record_keys
from hudi_ingest.records.kafka_columns import OFFSET, TIMESTAMP, TOPIC

SEQUENCE_NUMBER = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
META_COLUMNS = (
    "_hoodie_commit_time",
    SEQUENCE_NUMBER,
    RECORD_KEY,
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
ROW_GROUP_ROWS = 128 * 1024
BUFFERED_BYTES = 64 * 1024 * 1024
"""Limit for rows of all table partitions waiting for a full row group; above it the largest partitions are written early."""
MOST_OPEN_FILES = 500
"""Lower if the process may open fewer; above it the largest file is closed, and its table partition continues in a new one."""
SPARK_VERSION = "3.5.7"
"""Spark reads dates before 1582 and times before 1900 unchanged only if the file's footer names Spark 3.0 or later;
otherwise it refuses to read them."""
_ASCENDING = (OFFSET, TIMESTAMP)
_HIGH_CARDINALITY = frozenset({SEQUENCE_NUMBER, RECORD_KEY, *_ASCENDING})
_WITHOUT_STATISTICS = frozenset({SEQUENCE_NUMBER, "_hoodie_file_name"})
"""Columns that no query filters by."""
_SAMPLE_ROWS = 4096
_MOST_DISTINCT = _SAMPLE_ROWS * 7 // 8
"""In the sample. With more, a column has about 16,000 values or more, and looking each up costs more than it saves."""


@dataclass(slots=True)
class _OpenFile:
    source: TopicPartition
    file_id: str
    path: str
    stream: IO[bytes]
    writer: pq.ParquetWriter
    first_offset: int
    last_offset: int
    rows: int = 0


class BaseFileWriter(DiscardedOnError):
    """Writes rows to base files of new file groups, at most one open file per table partition.

    Pass rows in offset order, one Kafka partition after another. A base file holds rows of exactly one Kafka partition:
    when the next one begins, the files of the previous one are closed.

    `files` holds the reports of closed files by Kafka partition, complete after `close`. Memory is bounded by BUFFERED_BYTES and
    one row group's encoding, whatever the length of the range.
    """

    superseded: Mapping[TopicPartition, int] = MappingProxyType({})
    truncated = superseded
    """Rows that were left out, and deletes of truncates, as KeyedFileWriter has them; none here."""

    def __init__(self, storage: TableStorage, layout: BaseFileLayout) -> None:
        self._new_files: NewFiles[BaseFile] = NewFiles(storage, layout.instant, layout.epoch)
        self._layout = layout
        self._source: RowSource | None = None
        self._buffered: list[pa.Table] = []
        """Rows of all table partitions, not split yet: splitting many rows at once costs little more than splitting a few."""
        self._rows = 0
        self._bytes = 0
        self._full = min(ROW_GROUP_ROWS, layout.rows_per_file)
        """Rows of a table partition that are worth a row group."""
        self._rows_to_split = self._full
        """How many buffered rows may hold a full row group."""
        self._implied = [name for name in layout.partition_by if name not in layout.record_key]
        """Partition columns that are not needed for keys."""
        self._open: dict[str, _OpenFile] = {}
        """The open files, by table partition."""
        self._most_open = _most_open_files()

    @property
    def files(self) -> dict[TopicPartition, list[BaseFile]]:
        return self._new_files.files

    def write(self, source: RowSource, rows: pa.Table) -> None:
        """Write rows of `source` with the table's columns (Kafka columns included). Raises Fenced, OSError."""
        if source != self._source:
            self._finish_source()
            self._source = source
        if TOPIC in rows.column_names:
            rows = with_column(rows, TOPIC, same_for_all(source.source.topic, rows.num_rows))
        self._buffer(rows)
        while self._bytes > BUFFERED_BYTES or self._rows >= self._rows_to_split:
            self._write_largest()

    def close(self) -> None:
        self._finish_source()
        if self._source is not None:
            self._new_files.finish(self._source)

    def _finish_source(self) -> None:
        if self._source is None:
            return
        self._new_files.check_if_due(self._source)
        if self._buffered:
            split = self._split()
            pieces, _ = split.pieces(split.paths, self._implied)
            self._drop_buffered()
            self._write_pieces(self._source, pieces, last=True)
        for path in [*self._open]:
            self._close_file(path)

    def discard(self) -> None:
        for file in self._open.values():
            # The file is deleted next, so errors of a full disk or a lost connection do not matter here.
            with suppress(OSError, pa.ArrowException):
                file.writer.close()
        self._open.clear()
        self._new_files.discard()
        self._drop_buffered()

    def _buffer(self, rows: pa.Table) -> None:
        self._buffered.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes

    def _drop_buffered(self) -> None:
        self._buffered, self._rows, self._bytes = [], 0, 0

    def _split(self) -> Split:
        layout = self._layout
        return split_rows(self._buffered, layout.partition_by, layout.hive_style, layout.escaped_folders)

    def _write_largest(self) -> None:
        """Write the table partitions with most rows, if one has a full row group or the buffer is full."""
        if self._source is None:
            return
        split = self._split()
        counts = split.rows_of_paths()
        # Those with half a row group, too, or they would be copied to the next buffer.
        least = self._full / 2 if max(counts.values()) >= self._full else np.inf
        rows_to_keep = self._rows / 2 if self._bytes > BUFFERED_BYTES else np.inf
        paths: list[str] = []
        remaining = self._rows
        for path, count in sorted(counts.items(), key=lambda item: -item[1]):
            if count < least and remaining <= rows_to_keep:
                break
            paths.append(path)
            remaining -= count
        if paths:
            pieces, rest = split.pieces(paths, self._implied)
            self._drop_buffered()
            if rest and 4 * sum(rows.nbytes for rows in rest) < BUFFERED_BYTES:
                # Rows that wait for long would become ever more small tables.
                rest = [pa.concat_tables(rest).combine_chunks()]
            for rows in rest:
                self._buffer(rows)
            self._new_files.check_if_due(self._source)
            self._write_pieces(self._source, pieces)
        largest = max((count for path, count in counts.items() if path not in paths), default=0)
        # When the largest will have a full row group if rows go on as they came; the buffer's limit holds anyway.
        self._rows_to_split = self._rows * self._full // largest if largest else self._full

    def _write_pieces(self, source: RowSource, pieces: Pieces, last: bool = False) -> None:
        pieces = replace(pieces, tables=[self._with_keys(source, table) for table in pieces.tables])
        for path, part in parts_of(pieces, self._layout.partition_by):
            self._write_row_group(source, path, part)
            if last:
                self._close_file(path)

    def _write_row_group(self, source: RowSource, path: str, rows: pa.Table) -> None:
        start = 0
        while start < rows.num_rows:
            file = self._open.get(path) or self._open_file(source, path, rows.slice(start))
            part = rows.slice(start, self._layout.rows_per_file - file.rows)
            start += part.num_rows
            file.rows += part.num_rows
            file.last_offset = part[OFFSET][part.num_rows - 1].as_py()
            file.writer.write_table(with_meta_columns(part, self._layout.instant, path, file.path.rpartition("/")[2]))
            self._new_files.rows_are_written()
            if file.rows >= self._layout.rows_per_file or file.stream.tell() >= self._layout.target_file_bytes:
                self._close_file(path)

    def _open_file(self, source: RowSource, path: str, rows: pa.Table) -> _OpenFile:
        if len(self._open) >= self._most_open:
            self._close_file(max(self._open, key=lambda other: self._open[other].stream.tell()))
        instant, first_offset = self._layout.instant, rows[OFFSET][0].as_py()
        file_id = file_groups.file_id(source.source.topic, source.source.partition, first_offset, path, instant)
        name = f"{file_id}_{source.write_token}_{instant}.parquet"
        relative = path_in(path, name)
        stream = self._new_files.open(source, path, relative)
        writer = parquet_writer(stream, with_field_ids(file_schema(rows.schema)), rows, self._layout.compression)
        file = self._open[path] = _OpenFile(
            source.source, file_id, relative, stream, writer, first_offset, first_offset
        )
        return file

    def _close_file(self, path: str) -> None:
        file = self._open.get(path)
        if file is None:
            return
        if self._source is not None:
            self._new_files.rows_are_complete(self._source)
        file.writer.close()
        size = self._new_files.close(file.path)
        del self._open[path]
        columns = (
            column_statistics(file.writer.writer.metadata, self._layout.partition_by) if self._layout.statistics else ()
        )
        closed = BaseFile(path, file.file_id, file.path, file.rows, size, file.first_offset, file.last_offset, columns)
        self._new_files.report(file.source, closed)

    def _with_keys(self, source: RowSource, rows: pa.Table) -> pa.Table:
        keys = record_keys(rows, self._layout.record_key) if self._layout.record_key else None
        topic, generation = source.source.topic, self._layout.generations.get(source.source.topic, 0)
        return with_keys(f"{topic}-{source.source.partition}", rows, keys, generation)


def write_empty_base_file(
    storage: TableStorage, instant: str, partition_path: str, file_id: str, columns: pa.Schema, compression: str
) -> BaseFile:
    """Write the first base file of a keyed table's file group, whose rows are in log files, as part of the instant. Without it,
    readers that begin with base files (hudi-rs, read-optimized queries) would not see the file group at all. Writing it twice does
    no harm. Raises OSError."""
    name = f"{file_id}_0-0-0_{instant}.parquet"
    path = path_in(partition_path, name)
    schema = pa.schema([*(pa.field(meta, pa.string()) for meta in META_COLUMNS), *columns])
    buffer = pa.BufferOutputStream()
    with parquet_writer(buffer, schema, schema.empty_table(), compression):
        pass
    content = buffer.getvalue().to_pybytes()
    # The marker comes first: at commit and rollback Hudi only cleans up files that have one.
    storage.write(marker_path(instant, path), b"")
    storage.write_whole(path, content)
    return BaseFile(partition_path, file_id, path, 0, len(content), 0, 0)


def with_keys(
    kafka_partitions: str | pa.Array, rows: pa.Table, keys: pa.Array | pa.ChunkedArray | None, generation: int = 0
) -> pa.Table:
    """Append Hudi's columns that differ from row to row. Without `keys`, a row's key is its place in Kafka; see TopicVersion
    for the generation. `kafka_partitions`: `<topic>-<number>`, of all rows or of each."""
    place = pc.binary_join_element_wise(
        kafka_partitions, rows[OFFSET].cast(pa.string()), *([f"g{generation}"] if generation else []), "-"
    )
    return rows.append_column(SEQUENCE_NUMBER, place).append_column(RECORD_KEY, place if keys is None else keys)


def file_schema(rows: pa.Schema) -> pa.Schema:
    """Hudi's meta columns, then the table's. In the file all meta columns are strings. Those with the same value in all rows
    of a file go to the writer as dictionaries, which saves it a lookup per row."""
    meta = [pa.field(name, pa.string() if name in _HIGH_CARDINALITY else ONE_TEXT) for name in META_COLUMNS]
    return pa.schema([*meta, *(column for column in rows if column.name not in (SEQUENCE_NUMBER, RECORD_KEY))])


def with_meta_columns(rows: pa.Table, instant: str, partition_path: str, file_name: str) -> pa.Table:
    """Put Hudi's columns first. `rows` has those that differ from row to row, SEQUENCE_NUMBER and RECORD_KEY."""
    count = rows.num_rows
    meta = [
        same_for_all(instant, count),
        rows[SEQUENCE_NUMBER],
        rows[RECORD_KEY],
        same_for_all(partition_path, count),
        same_for_all(file_name, count),
    ]
    schema = file_schema(rows.schema)
    return pa.table([*meta, *(rows[name] for name in schema.names[len(META_COLUMNS) :])], schema=schema)


def parquet_writer(stream: IO[bytes], schema: pa.Schema, first_rows: pa.Table, compression: str) -> pq.ParquetWriter:
    """Open a writer of a base file, or of a log file's block, with these columns, including Hudi's. Encodings are chosen by its first rows."""
    repeating = {column.name for column in schema if _repeats(column, first_rows)}
    writer = pq.ParquetWriter(
        stream,
        schema,
        compression=compression,
        compression_level=1 if compression == "zstd" else None,
        use_dictionary=[leaf for column in schema if column.name in repeating for leaf in _leaves(column)],
        column_encoding={
            column.name: "DELTA_BINARY_PACKED"
            for column in schema
            if column.name not in repeating and _is_whole_number(column.type)
        },
        write_statistics=[
            leaf for column in schema if column.name not in _WITHOUT_STATISTICS for leaf in _leaves(column)
        ],
        write_page_checksum=True,
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


def _is_whole_number(kind: pa.DataType) -> bool:
    """Whether Parquet stores it as a 64-bit number."""
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


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
