"""The limit: what this machine can do with the same records. No Spark, no Hudi, no orchestration.

One plain process per core: librdkafka → Arrow → the same converter → one plain parquet file per range, with the same Kafka
columns, codec, level and encodings. Reader and converter are hudi-ingest's own, because nothing faster is known; the
difference to hudi-ingest is the cost of its promises and of Spark: the split by table partition, Hudi's meta columns, markers,
the commit, handing out tasks.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders import Assignment, Outcome
from benchmarks.contenders.plain_write import PlainWrite, write_file
from hudi_ingest.model.offsets import Slice
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.transaction.columns.decoding import converter_of
from hudi_ingest.transaction.plan.planning import plan_now
from hudi_ingest.transaction.write.job import ranges_of_tasks, rows_of_a_slice, rows_per_task


def processes() -> ProcessPoolExecutor:
    """One process per core; they live as long as the contender, as Spark's Python workers do."""
    # Forked from a process without threads: librdkafka's would not survive a fork.
    return ProcessPoolExecutor(os.cpu_count() or 1, multiprocessing.get_context("forkserver"))


def run(pool: ProcessPoolExecutor, assignment: Assignment) -> Outcome:
    """Write the whole topic to parquet files in the folder. Raises what reading and writing raise."""
    pipeline = load_pipeline(Path(assignment.pipeline_file))
    slices = plan_now(pipeline).slices
    files = Path(assignment.folder) / "files"
    files.mkdir()
    write = PlainWrite(str(files), converter_of(pipeline), pipeline.table.compression)
    tasks = tasks_of(pipeline, slices, assignment.record_bytes)
    began = time.time()
    list(pool.map(partial(_write_ranges, write, pipeline.source), tasks))
    ended = time.time()
    return Outcome(began, ended, sum(pq.read_metadata(path).num_rows for path in files.glob("*.parquet")))


def tasks_of(pipeline: Pipeline, slices: Sequence[Slice], record_bytes: int) -> tuple[tuple[Slice, ...], ...]:
    """Return the ranges of each process's tasks, cut as the data path cuts them."""
    slice_rows = rows_of_a_slice(record_bytes)
    count = sum(slice_.count + slice_rows for slice_ in slices)
    most_rows = rows_per_task(count, os.cpu_count() or 1, record_bytes)
    return ranges_of_tasks(slices, most_rows, slice_rows)


def _write_ranges(write: PlainWrite, source: KafkaSource, ranges: Sequence[Slice]) -> int:
    return write_file(write, _records(source, ranges))


def _records(source: KafkaSource, ranges: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
    # Imported here because it loads compiled code, which only these processes need.
    from hudi_ingest.kafka.range_reader import read_ranges

    for partition, batch in read_ranges(source, "benchmark-limit", ranges):
        count = batch.num_rows
        place = [_same_for_all(partition.topic, count), pa.repeat(pa.scalar(partition.partition, pa.int32()), count)]
        yield pa.RecordBatch.from_arrays([*place, *batch.columns], names=["topic", "partition", *batch.schema.names])


def _same_for_all(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), [value])
