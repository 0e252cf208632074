"""The limit: the same reading and decoding, then one plain parquet file for each Spark task. No Hudi, no orchestration.

Kafka source → Arrow → the same converter → pyarrow, with the same Kafka columns, codec, level and dictionaries. What
hudi-ingest is slower by is what its promises cost: the split by table partition, Hudi's meta columns, markers, the commit.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from hudi_ingest.benchmark.contenders import Assignment, Outcome
from hudi_ingest.convert import converter_for
from hudi_ingest.coordinator import plan_now
from hudi_ingest.kafka import spark_options
from hudi_ingest.pipeline_file import load_pipeline
from hudi_ingest.write import batch_rows, spark_partitions

_KAFKA = ("topic", "partition", "offset", "timestamp")
_DISTINCT = ("_kafka_offset", "_kafka_timestamp")
"""Columns whose values hardly repeat, so that a dictionary would only cost."""


@dataclass(frozen=True, slots=True)
class PlainWrite:
    """What a task needs. Crosses to the Python workers by pickle."""

    folder: str
    format: str
    record_schema: pa.Schema
    compression: str


def run(spark: SparkSession, assignment: Assignment) -> Outcome:
    """Writes all that the topic holds to parquet files in the folder. Raises what Spark raises."""
    pipeline = load_pipeline(Path(assignment.pipeline_file))
    slices = plan_now(pipeline).slices
    files = Path(assignment.folder) / "files"
    files.mkdir(parents=True)
    write = PlainWrite(str(files), pipeline.source.format, pipeline.table.record, pipeline.table.compression)
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch_rows(assignment.record_bytes)))
    reader = session.read.format("kafka")
    for key, value in spark_options(pipeline.source, slices, spark_partitions(slices, pipeline)).items():
        reader = reader.option(key, value)
    began = time.time()
    records = reader.load().select(*_KAFKA, "value")
    records.mapInArrow(partial(write_plainly, write), "rows long").collect()
    ended = time.time()
    return Outcome(began, ended, sum(pq.read_metadata(each).num_rows for each in files.glob("*.parquet")))


def write_plainly(write: PlainWrite, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Spark Python worker: all its batches into one file. Raises ValueError for a value that is no row."""
    converter = converter_for(write.format, write.record_schema)
    writer: pq.ParquetWriter | None = None
    count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        decoded = converter.decode(batch["value"])
        if decoded.rejected:
            raise ValueError(f"a value of the benchmark's own is not a row: {decoded.rejected[0]}")
        rows = pa.table(
            [*decoded.rows.columns, *(batch[name] for name in _KAFKA)],
            names=[*decoded.rows.schema.names, *(f"_kafka_{name}" for name in _KAFKA)],
        )
        if writer is None:
            writer = pq.ParquetWriter(
                f"{write.folder}/{uuid.uuid4().hex}.parquet",
                rows.schema,
                compression=write.compression,
                compression_level=1 if write.compression == "zstd" else None,
                use_dictionary=[name for name in rows.schema.names if name not in _DISTINCT],
                store_schema=False,
            )
        writer.write_table(rows)
        count += rows.num_rows
    if writer is not None:
        writer.close()
        yield pa.RecordBatch.from_pydict({"rows": pa.array([count], pa.int64())})
