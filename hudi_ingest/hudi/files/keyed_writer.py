"""Write changes of keyed tables as Hudi log files with pyarrow: one file per bucket, with the last change of each key.

A reader's cost is that of opening blocks: with Hudi 1.2 and Spark each Parquet block takes as long as some thousand rows, because
Parquet's reader parses Hadoop's settings anew. So all Kafka partitions of a task share files, and few rows are an Avro block,
unless they have arrays or maps, or times inside structs: hudi-rs does not read such times from Avro blocks, nor arrays and maps once the
table has a column more than the block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.hudi.files.base_file import RECORD_KEY, parquet_writer, with_keys, with_meta_columns
from hudi_ingest.hudi.files.buckets import bucket_ids, last_places
from hudi_ingest.hudi.files.current_rows import CurrentRows, Found
from hudi_ingest.hudi.files.file_groups import RowSource, log_token
from hudi_ingest.hudi.files.late_changes import LateChanges
from hudi_ingest.hudi.files.left_out import Slots, fill
from hudi_ingest.hudi.files.log_file import avro_block, delete_block, log_file_name, parquet_block
from hudi_ingest.hudi.files.new_files import RECORD, DiscardedOnError, KeyedLayout, NewFiles
from hudi_ingest.hudi.files.partition_split import ONE_TEXT, split_rows, with_column
from hudi_ingest.hudi.storage.paths import path_in
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import LogFile
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest.records.hudi_keys import record_keys
from hudi_ingest.records.kafka_columns import OFFSET, TOPIC

BUFFERED_BYTES = 128 * 1024 * 1024
"""Limit for changes that wait; above it the last change of each key is kept, or all are written."""

MOST_AVRO_BYTES = 2 * 1024 * 1024
"""Rows in memory that make an Avro block; more make a Parquet block, which has a tenth of the bytes."""
_MOST_AVRO_ROWS = 16 * 1024
"""Texts that repeat take little memory, but are written out for each row."""
_MOST_DELETE_BLOCKS = 16
"""Delete blocks of a truncate in a file, which a later lookup reads whole: about a million keys, and 50 MB."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The last change of each key among some rows, and where it belongs."""

    places: np.ndarray
    """Places in the rows, ascending."""
    sources: np.ndarray
    """Index of the Kafka partition."""
    keys: pa.Array
    """Record keys."""
    folders: np.ndarray
    """Index of the table partition in `paths`."""
    buckets: np.ndarray
    paths: list[str]

    def without(self, newest: Mapping[int, int | None], sources: np.ndarray) -> _Last:
        """Put other changes of the same keys in the place of some, or none."""
        places = self.places.copy()
        places[np.searchsorted(places, [*newest])] = [-1 if place is None else place for place in newest.values()]
        order = np.argsort(places)
        order = order[places[order] >= 0]
        places = places[order]
        return replace(
            self,
            places=places,
            sources=sources[places],
            keys=self.keys.take(pa.array(order)),
            folders=self.folders[order],
            buckets=self.buckets[order],
        )


Refuse = Callable[[TopicPartition, pa.Table, Sequence[str]], None]
"""Takes rows of a Kafka partition that cannot be filled, or that come late and are held, and the reason for each."""


class KeyedFileWriter(DiscardedOnError):
    """Writes changes to log files, one for each bucket of each table partition that they touch.

    Pass rows in offset order, one Kafka partition after another, with the column DELETED. They wait until all are there or
    BUFFERED_BYTES are reached; then the last change of each key is written. So memory is bounded by a few times
    BUFFERED_BYTES, whatever the length of the range, and many changes make several log files per bucket, whose changes of
    the same key Hudi merges. Rows may have the column LEFT_OUT; those that no earlier row can fill go to `refuse`, and count neither
    as written nor as superseded. So do late ones that are held; with those a newer row or delete in the table counts as superseding.

    `files` holds, by Kafka partition, the reports of its part of closed files, complete after `close`; `superseded` how many of its
    rows were left out because a newer one of the same key was written, or because of a later `truncate`; `truncated` how many deletes
    its truncates wrote.
    """

    def __init__(self, storage: TableStorage, layout: KeyedLayout, refuse: Refuse | None = None) -> None:
        self.superseded: Counter[TopicPartition] = Counter()
        self.truncated: Counter[TopicPartition] = Counter()
        self._truncated_at: int | None = None
        """The offset of the last truncate."""
        self._has_to_delete = False
        """Whether that one's deletes are yet to be written."""
        self._refuse = refuse
        self._current = CurrentRows(storage, layout)
        self._written: dict[tuple[str, int], list[str]] = {}
        """The paths of the files of each bucket, in their order."""
        self._new_files: NewFiles[LogFile] = NewFiles(storage, layout.instant, layout.epoch)
        self._layout = layout
        self._first: RowSource | None = None
        """The first row's source. It names the files, and stands for the task in messages."""
        self._next_number = 0
        """Counter in the next files' write tokens."""
        self._buffered: list[tuple[TopicPartition, pa.Table]] = []
        self._bytes = 0

    @property
    def files(self) -> dict[TopicPartition, list[LogFile]]:
        return self._new_files.files

    def write(self, source: RowSource, rows: pa.Table) -> None:
        """Write rows of `source` with the table's columns (Kafka columns included) and DELETED. Raises Fenced, OSError."""
        if self._truncated_at is not None:
            count = rows.num_rows
            rows = rows.filter(pc.greater(rows[OFFSET], self._truncated_at))
            self.superseded[source.source] += count - rows.num_rows
        if not rows.num_rows:
            return
        if self._first is None:
            self._first, self._next_number = source, pc.min(rows[OFFSET]).as_py()
        self._buffer(source.source, rows)
        if self._bytes > BUFFERED_BYTES:
            # The key that the last row deletes may have become that of the next row, which then needs what was before the delete.
            holds = self._refuse is not None and rows[DELETED][-1].as_py()
            held = rows.slice(rows.num_rows - int(holds))
            self._buffered[-1] = source.source, rows.slice(0, rows.num_rows - held.num_rows)
            self._write_buffered(may_wait=True)
            if held.num_rows:
                self._buffer(source.source, held)

    def truncate(self, source: RowSource, offset: int) -> None:
        """Delete all rows that are ordered before the offset: those that the table had when the transaction began, and those written here,
        also if they are passed later. For tables ordered by offsets whose rows all come from `source`, by this writer alone.

        The deletes are ordered by the offset of the truncate, so what comes after it wins in whichever order files are read. They are
        written before such rows all the same, because CDC queries go by the order of files. Raises Fenced, OSError.
        """
        for buffered, rows in self._buffered:
            self.superseded[buffered] += rows.num_rows
        self._drop_buffered()
        if self._first is None:
            self._first, self._next_number = source, offset
        self._truncated_at, self._has_to_delete = offset, True

    def close(self) -> None:
        self._write_buffered()
        if self._first is not None:
            self._new_files.finish(self._first)

    def discard(self) -> None:
        self._new_files.discard()
        self._drop_buffered()
        self.superseded.clear()
        self.truncated.clear()

    def _buffer(self, source: TopicPartition, rows: pa.Table) -> None:
        self._buffered.append((source, rows))
        self._bytes += rows.nbytes

    def _drop_buffered(self) -> None:
        self._buffered, self._bytes = [], 0

    def _write_buffered(self, may_wait: bool = False) -> None:
        """Write the last change of each key. Those of keys that change often `may_wait` for more."""
        if self._has_to_delete:
            self._write_deletes()
        if self._first is None or not self._buffered:
            return
        sources = sorted({source for source, _ in self._buffered})
        numbers = np.array([sources.index(source) for source, _ in self._buffered], np.int32)
        # Few rows lack a value, so most tables have no such column.
        rows = pa.concat_tables([rows for _, rows in self._buffered], promote_options="default")
        of_rows = np.repeat(numbers, [rows.num_rows for _, rows in self._buffered])
        self._drop_buffered()
        if not rows.num_rows:
            return
        slots, paths = _slots(rows, self._layout)
        last = _last_changes(slots, paths, of_rows, self._layout)
        refused: dict[int, str] = {}
        if self._layout.past is not None:
            late = LateChanges(
                self._layout,
                self._layout.past,
                self._current,
                rows,
                [sources[number] for number in of_rows.tolist()],
                slots,
                paths,
            )
            self._new_files.wait_closed()
            judged = late.judge(last.places, last.buckets, self._written)
            last, refused = last.without(judged.newest, of_rows), judged.held
            may_wait = False
        if LEFT_OUT in rows.column_names:
            rows, last, unfilled = self._filled(rows, of_rows, slots, last, refused)
            refused = unfilled | refused
            may_wait = False
        # Frees the keys that are not the last.
        del slots
        self._hand_over(rows, of_rows, sources, refused)
        rows = rows.drop_columns([name for name in (LEFT_OUT, OLD_KEY, RECORD) if name in rows.column_names])
        left_out = np.bincount(of_rows, minlength=len(sources)) - np.bincount(last.sources, minlength=len(sources))
        left_out -= np.bincount(of_rows[[*refused]], minlength=len(sources)) if refused else 0
        self.superseded.update(dict(zip(sources, left_out.tolist(), strict=True)))
        if not len(last.places):
            return
        if may_wait and 2 * len(last.places) < rows.num_rows:
            for number in dict.fromkeys(numbers.tolist()):
                self._buffer(sources[number], rows.take(pa.array(last.places[last.sources == number])))
            if self._bytes > BUFFERED_BYTES / 2:
                self._write_buffered()
            return
        deleted = rows[DELETED].to_numpy()[last.places]
        groups = last.folders * np.int64(self._layout.buckets) + last.buckets
        # Group by group, and in each first the upserts, in offset order. numpy radix-sorts 16-bit numbers.
        kinds = 2 * groups + deleted
        order = np.argsort(kinds.astype(np.uint16) if kinds.max() < 1 << 16 else kinds, kind="stable")
        # Frees the rows that are not the last.
        rows = rows.drop_columns(DELETED).take(pa.array(last.places[order]))
        origins = last.sources[order]
        kafka_partitions, topics = _named(sources, origins)
        if TOPIC in rows.column_names:
            rows = with_column(rows, TOPIC, topics)
        rows = with_keys(kafka_partitions, rows, last.keys.take(pa.array(order)))
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            first = order[start]
            path, bucket = last.paths[last.folders[first]], int(last.buckets[first])
            upserts = int(end - start - deleted[order[start:end]].sum())
            blocks = self._blocks(path, bucket, rows.slice(start, end - start), upserts)
            file = self._write_file(self._first, path, bucket, blocks, upserts, int(end - start) - upserts)
            offsets = rows[OFFSET].slice(start, end - start).to_numpy()
            for number, part in _parts(file, origins[start:end], offsets):
                self._new_files.report(sources[number], part)
        self._next_number += 1

    def _write_deletes(self) -> None:
        """Delete the rows before the last truncate, bucket by bucket, with some of their keys in memory at a time."""
        source, offset = self._first, self._truncated_at
        assert source is not None and offset is not None
        self._has_to_delete = False
        # Those of this task are read, too.
        self._new_files.wait_closed()
        written = {place: tuple(paths) for place, paths in self._written.items()}
        first = last = self._next_number
        for (folder, bucket), parts in groupby(self._current.keys_before(offset, written), itemgetter(0, 1)):
            self._next_number = first
            keys_of_blocks = (keys for *_, keys in parts if len(keys))
            while some := [*islice(keys_of_blocks, _MOST_DELETE_BLOCKS)]:
                blocks = [self._delete_block(folder, keys, [pa.repeat(offset, len(keys))]) for keys in some]
                file = self._write_file(source, folder, bucket, blocks, 0, sum(map(len, some)))
                self._new_files.report(source.source, replace(file, first_offset=offset, last_offset=offset))
                self.truncated[source.source] += file.deletes
                self._next_number += 1
                last = max(last, self._next_number)
        self._next_number = last

    def _filled(
        self, rows: pa.Table, of_rows: np.ndarray, slots: Slots, last: _Last, held: Mapping[int, str]
    ) -> tuple[pa.Table, _Last, dict[int, str]]:
        """Fill what the database left out. Returns the rows, the changes to write, and those that cannot be filled, with the reason."""

        def lookup(folder: int, bucket: int, keys: pa.Array, columns: Mapping[str, pa.DataType]) -> Found:
            self._new_files.wait_closed()
            path = last.paths[folder]
            return self._current.find(path, bucket, keys, columns, self._written.get((path, bucket), ()))

        layout = self._layout
        filled = fill(
            rows, of_rows, slots, last.places, lambda keys: bucket_ids(keys, layout.key, layout.buckets), lookup
        )
        if filled.newest:
            newest = {place: None if other in held else other for place, other in filled.newest.items()}
            last = last.without(newest, of_rows)
        return filled.rows, last, filled.refused

    def _hand_over(
        self, rows: pa.Table, of_rows: np.ndarray, sources: Sequence[TopicPartition], refused: Mapping[int, str]
    ) -> None:
        """Give the refused rows back, by their places and reasons."""
        if not refused:
            return
        assert self._refuse is not None, "a task can refuse records"
        places = np.array(sorted(refused))
        for number in np.unique(of_rows[places]).tolist():
            own = places[of_rows[places] == number].tolist()
            self._refuse(sources[number], rows.take(pa.array(own)), [refused[place] for place in own])

    def _blocks(self, partition_path: str, bucket: int, rows: pa.Table, upserts: int) -> Iterator[bytes]:
        """Yield the blocks of a file of rows, of which the first `upserts` are upserts and the others deletes."""
        layout, deletes = self._layout, rows.slice(upserts)
        if upserts:
            file_id = layout.file_id(partition_path, bucket)
            yield self._data_block(with_meta_columns(rows.slice(0, upserts), layout.instant, partition_path, file_id))
        if deletes.num_rows:
            ordering = [deletes[name] for name in layout.ordering]
            yield self._delete_block(partition_path, deletes[RECORD_KEY], ordering)

    def _write_file(
        self, source: RowSource, partition_path: str, bucket: int, blocks: Iterable[bytes], upserts: int, deletes: int
    ) -> LogFile:
        """Write a file of blocks with so many upserts and deletes. Its offsets are not in the report yet."""
        file_id = self._layout.file_id(partition_path, bucket)
        token = log_token(source.source.topic, source.write_token, self._next_number)
        path = path_in(partition_path, log_file_name(file_id, self._layout.instant, token))
        # Encoded before there is a file.
        blocks = [*blocks]
        stream = self._new_files.open(source, partition_path, path)
        for block in blocks:
            stream.write(block)
            self._new_files.rows_are_written()
        self._new_files.rows_are_complete(source)
        size = self._new_files.close(path)
        self._written.setdefault((partition_path, bucket), []).append(path)
        return LogFile(partition_path, file_id, path, upserts, deletes, size, 0, 0)

    def _delete_block(
        self, partition_path: str, keys: pa.Array, ordering: Sequence[pa.Array | pa.ChunkedArray]
    ) -> bytes:
        layout = self._layout
        return delete_block(layout.instant, layout.schema_json, partition_path, keys, ordering)

    def _data_block(self, rows: pa.Table) -> bytes:
        """Encode rows with Hudi's columns."""
        layout = self._layout
        few = rows.nbytes <= MOST_AVRO_BYTES and rows.num_rows <= _MOST_AVRO_ROWS
        if few and not any(map(_needs_parquet, rows.schema.types)):
            return avro_block(layout.instant, layout.schema_json, rows)
        return parquet_block(layout.instant, layout.schema_json, _parquet(rows, layout.compression))


def _needs_parquet(kind: pa.DataType) -> bool:
    """Whether hudi-rs may not read such values from an Avro block: an array or a map at any depth, or a time within a struct."""
    if not pa.types.is_struct(kind):
        return bool(pa.types.is_nested(kind))
    return any(pa.types.is_timestamp(field.type) or _needs_parquet(field.type) for field in kind)


def _named(sources: Sequence[TopicPartition], numbers: np.ndarray) -> tuple[pa.Array, pa.DictionaryArray]:
    """The Kafka partition of each row as text, and its topic."""
    texts = pa.array([f"{source.topic}-{source.partition}" for source in sources])
    topics = sorted({source.topic for source in sources})
    of_sources = np.array([topics.index(source.topic) for source in sources], np.int32)
    return texts.take(pa.array(numbers)), pa.DictionaryArray.from_arrays(
        pa.array(of_sources[numbers], ONE_TEXT.index_type), pa.array(topics)
    )


def _parts(file: LogFile, numbers: np.ndarray, offsets: np.ndarray) -> Iterator[tuple[int, LogFile]]:
    """Return each Kafka partition's part of the file. `numbers` and `offsets` are those of its rows, upserts first."""
    bytes_before = rows_before = 0
    present = np.unique(numbers).tolist()
    for number in present:
        own = numbers == number
        own_offsets, upserts = offsets[own], int(own[: file.upserts].sum())
        rows_before += len(own_offsets)
        # Rounded so that the parts make the whole.
        bytes_of_rows = file.size_bytes * rows_before // file.rows
        yield (
            number,
            replace(
                file,
                upserts=upserts,
                deletes=len(own_offsets) - upserts,
                size_bytes=bytes_of_rows - bytes_before,
                first_offset=int(own_offsets.min()),
                last_offset=int(own_offsets.max()),
                file_rows=file.rows if len(present) > 1 else None,
            ),
        )
        bytes_before = bytes_of_rows


def _slots(rows: pa.Table, layout: KeyedLayout) -> tuple[Slots, list[str]]:
    """Find where rows belong, and the table partitions. `rows` lie in offset order, one Kafka partition after another."""
    split = split_rows([rows], layout.partition_by, layout.hive_style, layout.escaped_folders)
    paths = split.paths
    folders = np.array([paths.index(group.path) for group in split.groups], np.int64)[split.codes]
    keys = record_keys(rows, layout.key, layout.names_single_key).combine_chunks()
    return Slots(keys, folders, _by_ordering(rows[layout.ordering[0]])), paths


def _last_changes(slots: Slots, paths: list[str], sources: np.ndarray, layout: KeyedLayout) -> _Last:
    """Find the last change of each key in each table partition. `sources` numbers the Kafka partition of each row."""
    last = last_places(slots.keys, slots.folders, slots.order)
    keys = slots.keys.take(pa.array(last))
    return _Last(last, sources[last], keys, slots.folders[last], bucket_ids(keys, layout.key, layout.buckets), paths)


def _by_ordering(values: pa.ChunkedArray) -> np.ndarray:
    """Places of values by value; equal ones keep their order."""
    if len(values) < 2 or pc.all(pc.less_equal(values.slice(0, len(values) - 1), values.slice(1))).as_py():
        return np.arange(len(values))
    places: np.ndarray = pc.sort_indices(values).to_numpy().astype(np.int64)
    return places


def _parquet(rows: pa.Table, compression: str) -> bytes:
    stream = pa.BufferOutputStream()
    with parquet_writer(stream, rows.schema, rows, compression) as writer:
        writer.write_table(rows)
    content: bytes = stream.getvalue().to_pybytes()
    return content
