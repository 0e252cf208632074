"""Map a table's rows to Kafka offsets by their Kafka columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.model.offset_ranges import Ranges, union
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import ReplacedFile
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
