"""Files that a replay replaces: the Kafka offsets of their rows, by the rows' Kafka columns, and copies of the rows to keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.base_file import ROW_GROUP_ROWS, parquet_writer
from hudi_ingest.hudi.files.file_groups import RowSource
from hudi_ingest.hudi.files.new_files import BaseFileLayout, Fence
from hudi_ingest.hudi.iceberg.field_ids import with_field_ids
from hudi_ingest.hudi.iceberg.statistics import column_statistics
from hudi_ingest.hudi.storage.paths import marker_path, path_in
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition, union
from hudi_ingest.model.plan import ReplacedFile
from hudi_ingest.model.report import BaseFile
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC


def read_kafka_columns(storage: TableStorage, path: str) -> pa.Table:
    """Read the Kafka columns that a base file has. Raises OSError."""
    with storage.parquet_file(path) as file:
        names = [name for name in (TOPIC, PARTITION, OFFSET) if name in file.schema_arrow.names]
        return file.read(columns=names)


def offsets_in_files(
    storage: TableStorage, files: Iterable[ReplacedFile], slices: Sequence[Slice]
) -> dict[TopicPartition, Ranges]:
    """Return the offsets of the slices that have a row in the files. Raises OSError."""
    ranges: dict[TopicPartition, Ranges] = {}
    for file in files:
        for source, offsets in offsets_by_slice(read_kafka_columns(storage, file.path), slices).items():
            ranges[source] = union(ranges.get(source, ()), offsets)
    return ranges


def in_slices(rows: pa.Table, slices: Iterable[Slice]) -> pa.Array:
    """Compute for each row whether it is in one of the slices. `rows` have the partition and offset columns, and the topic
    column unless all rows of the table are from one topic. A row with a null in them is in none."""
    inside = pa.repeat(False, rows.num_rows)
    for piece in slices:
        in_piece = pc.and_(
            pc.equal(rows[PARTITION], piece.partition),
            pc.and_(pc.greater_equal(rows[OFFSET], piece.start), pc.less(rows[OFFSET], piece.end)),
        )
        if TOPIC in rows.column_names:
            in_piece = pc.and_(in_piece, pc.equal(rows[TOPIC], piece.topic))
        inside = pc.or_(inside, pc.fill_null(in_piece, False))
    return inside.combine_chunks() if isinstance(inside, pa.ChunkedArray) else inside


def offsets_by_slice(rows: pa.Table, slices: Iterable[Slice]) -> dict[TopicPartition, Ranges]:
    """Return the offsets of the slices that have a row in `rows`, without partitions that have none."""
    ranges = {}
    for piece in slices:
        offsets = rows[OFFSET].filter(in_slices(rows, [piece]))
        if len(offsets):
            ranges[piece.source] = runs(offsets.to_numpy())
    return ranges


def runs(offsets: Sequence[int] | np.ndarray) -> Ranges:
    """Collapse offsets, in any order and possibly repeated, into ranges."""
    values = np.unique(np.asarray(offsets, dtype=np.int64))
    if not len(values):
        return ()
    breaks = np.flatnonzero(np.diff(values) > 1)
    starts = values[np.concatenate(([0], breaks + 1))]
    ends = values[np.concatenate((breaks, [len(values) - 1]))] + 1
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))


def within(offsets: pa.Array, ranges: Ranges) -> pa.Array:
    """Compute for each offset whether it is in the ranges."""
    bounds = np.array([bound for pair in ranges for bound in pair], dtype=np.int64)
    # After an odd number of bounds an offset is inside: each start opens a range and each end closes it.
    inside = np.searchsorted(bounds, offsets.to_numpy(zero_copy_only=False), side="right") % 2 == 1
    return pa.array(inside)


_FILE_NAME = "_hoodie_file_name"


def copy_other_rows(
    storage: TableStorage, layout: BaseFileLayout, source: RowSource, old: ReplacedFile, slices: Sequence[Slice]
) -> BaseFile:
    """Write the rows of `old` that are in none of the slices to a new base file in the same table partition.

    Rows keep their commit times, so incremental readers do not see them again. The file id is made from the first row that
    has Kafka columns, so a sweep recognizes the file as ours. `source` identifies the writer in messages and in the write
    token. Raises Fenced, OSError, and WriteIncomplete when there are not `old.kept` such rows.
    """
    fence = Fence(storage, layout.instant, layout.epoch)
    fence.require_open(source)
    with storage.parquet_file(old.path) as file:
        tables = (pa.Table.from_batches([batch]) for batch in file.iter_batches(batch_size=ROW_GROUP_ROWS))
        kept = (rows.filter(pc.invert(in_slices(rows, slices))) for rows in tables)
        kept = (rows for rows in kept if rows.num_rows)
        buffered: list[pa.Table] = []
        first = None
        for rows in kept:
            buffered.append(rows)
            with_offset = rows.filter(pc.is_valid(rows[OFFSET]))
            if with_offset.num_rows:
                first = with_offset.slice(0, 1)
                break
        if first is None:
            raise WriteIncomplete(
                f"{old.path}: no row other than those of {source} has Kafka columns. Nothing is visible."
            )
        topic = first[TOPIC][0].as_py() if TOPIC in first.column_names else source.source.topic
        partition, first_offset = first[PARTITION][0].as_py(), first[OFFSET][0].as_py()
        folder = old.partition_path
        file_id = file_groups.file_id(topic, partition, first_offset, folder, layout.instant)
        name = f"{file_id}_{source.write_token}_{layout.instant}.parquet"
        path = path_in(folder, name)
        storage.write(marker_path(layout.instant, path), b"")
        try:
            with storage.open_output(path) as stream:
                with parquet_writer(
                    stream, with_field_ids(buffered[0].schema), buffered[0], layout.compression
                ) as writer:
                    count = 0
                    for part in (*buffered, *kept):
                        writer.write_table(_renamed(part, name))
                        count += part.num_rows
                    fence.require_open(source)
                size = stream.tell()
                columns = column_statistics(writer.writer.metadata, layout.partition_by) if layout.statistics else ()
            # Closing may take long: see BaseFileWriter.
            fence.require_open(source)
            if count != old.kept:
                raise WriteIncomplete(f"{old.path}: {count} rows were copied, but the plan says {old.kept}")
        except BaseException:
            # pyarrow completes even an unfinished file. One that cannot be deleted now has a marker.
            with suppress(OSError):
                storage.delete(path)
            raise
    return BaseFile(folder, file_id, path, count, size, first_offset, first_offset, columns)


def _renamed(rows: pa.Table, name: str) -> pa.Table:
    place = rows.schema.get_field_index(_FILE_NAME)
    return rows.set_column(place, rows.schema.field(place), pa.repeat(name, rows.num_rows))
