"""Which rows of a table come from which Kafka offsets, by the rows' own Kafka columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.hudi.storage import TableStorage
from hudi_ingest.model.offset_ranges import Ranges, union
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import ReplacedFile
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC


def read_kafka_columns(storage: TableStorage, path: str) -> pa.Table:
    """The Kafka columns of a base file, those that it has. Raises OSError."""
    with storage.parquet_file(path) as found:
        names = [name for name in (TOPIC, PARTITION, OFFSET) if name in found.schema_arrow.names]
        return found.read(columns=names)


def offsets_in_files(
    storage: TableStorage, files: Iterable[ReplacedFile], slices: Sequence[Slice]
) -> dict[TopicPartition, Ranges]:
    """The offsets of the slices that have a row in the files. Raises OSError."""
    found: dict[TopicPartition, Ranges] = {}
    for each in files:
        for source, offsets in offsets_by_slice(read_kafka_columns(storage, each.path), slices).items():
            found[source] = union(found.get(source, ()), offsets)
    return found


def in_slices(rows: pa.Table, slices: Iterable[Slice]) -> pa.Array:
    """Per row whether it is of one of the slices. `rows` have the partition and the offset, and the topic unless all rows of
    the table are of one topic. A row with a null in them is of none."""
    found = pa.repeat(False, rows.num_rows)
    for each in slices:
        here = pc.and_(
            pc.equal(rows[PARTITION], each.partition),
            pc.and_(pc.greater_equal(rows[OFFSET], each.start), pc.less(rows[OFFSET], each.end)),
        )
        if TOPIC in rows.column_names:
            here = pc.and_(here, pc.equal(rows[TOPIC], each.topic))
        found = pc.or_(found, pc.fill_null(here, False))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def offsets_by_slice(rows: pa.Table, slices: Iterable[Slice]) -> dict[TopicPartition, Ranges]:
    """The offsets of the slices that have a row among `rows`; partitions without one are left out."""
    found = {}
    for each in slices:
        offsets = rows[OFFSET].filter(in_slices(rows, [each]))
        if len(offsets):
            found[each.source] = runs(offsets.to_numpy())
    return found


def runs(offsets: Sequence[int] | np.ndarray) -> Ranges:
    """The ranges of exactly these offsets, in any order, repeated or not."""
    values = np.unique(np.asarray(offsets, dtype=np.int64))
    if not len(values):
        return ()
    breaks = np.flatnonzero(np.diff(values) > 1)
    starts = values[np.concatenate(([0], breaks + 1))]
    ends = values[np.concatenate((breaks, [len(values) - 1]))] + 1
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))


def within(offsets: pa.Array, found: Ranges) -> pa.Array:
    """Per offset whether it is in the ranges."""
    bounds = np.array([bound for pair in found for bound in pair], dtype=np.int64)
    # Behind an odd number of bounds is inside: each start opens and each end closes.
    inside = np.searchsorted(bounds, offsets.to_numpy(zero_copy_only=False), side="right") % 2 == 1
    return pa.array(inside)
