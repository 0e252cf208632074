"""Write tasks that use their own consumer for what Spark's Kafka source cannot deliver: times beyond the year 294,247, which
overflow there, times before 1582, which it shifts, and records whose batch does not fit into its JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.exceptions import concerning
from hudi_ingest.kafka.records import batches_of
from hudi_ingest.model.offsets import Slice
from hudi_ingest.pipeline.source import KafkaSource
from hudi_ingest.transaction.write.task import WriteTask, outcomes


@dataclass(frozen=True, slots=True)
class Consumption:
    """The ranges of the tasks, by task number. Pickled to the Python workers."""

    source: KafkaSource
    group: str
    ranges: tuple[Slice, ...]


def run_consumption(
    task: WriteTask, consumption: Consumption, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark Python worker like `run_task`, on the ranges whose numbers are the batches' `id`."""
    ranges = [consumption.ranges[number] for batch in batches for number in batch["id"].to_pylist()]
    yield from outcomes(task, _consumed(consumption, ranges))


def _consumed(consumption: Consumption, ranges: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
    for slice_ in ranges:
        with concerning(slice_.topic, slice_.partition, slice_.start):
            yield from batches_of(consumption.source, consumption.group, slice_)


def pieces(slices: Sequence[Slice], most_rows: int) -> tuple[Slice, ...]:
    """Cut the slices into ranges of at most `most_rows` offsets."""
    return tuple(
        Slice(slice_.topic, slice_.partition, start, min(start + most_rows, slice_.end))
        for slice_ in slices
        for start in range(slice_.start, slice_.end, most_rows)
    )
