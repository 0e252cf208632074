"""Plain Spark as an expert would upsert: Structured Streaming from Kafka, `from_json`, and `foreachBatch` with Hudi's `upsert`.

The table is MERGE_ON_READ with the simple bucket index (no look-up, no key index to read) and as many buckets as ours. What
makes it fast without changing the result: no inline services, direct markers, no timeline server, an in-process lock, no
column statistics, one shuffle task per core. Records and log blocks are Avro, Hudi's default: with Spark's own rows and Parquet
blocks, changes took as long and a third more CPU, and only reads were faster. Ordering is by Kafka offset, as ours; a
micro-batch combines the changes of a key before it writes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contenders import Assignment, Outcome, Task
from benchmarks.contenders.spark_source import spark_options, tasks_for
from benchmarks.contenders.spark_streaming import NOT_FOR_STREAMS, parsed_rows, shared_options, topic_slices
from benchmarks.contenders.table_reads import compact, read_totals
from benchmarks.upsert_load import BUCKETS, KEY
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.write.job import rows_per_task

_ORDERING = "_kafka_offset"


def run(spark: SparkSession, assignment: Assignment) -> Outcome:
    """Upsert what the topic has since the last time in one micro-batch, compact, or read. Raises what Spark raises.

    The seconds of an upsert are those of the micro-batch alone: a stream that goes on would not start a query for each.
    """
    pipeline = load_pipeline(Path(assignment.pipeline_file))
    if assignment.task is Task.READ:
        return read_totals(spark, pipeline.table.base_path)
    if assignment.task is Task.COMPACT:
        return compact(spark, pipeline.table.base_path)
    query = _stream(spark, pipeline, assignment).start()
    query.awaitTermination()
    ended = time.time()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    if len(batches) != 1:
        raise RuntimeError(f"{len(batches)} micro-batches had records; one was expected")
    milliseconds = batches[0]["durationMs"]["triggerExecution"]
    return Outcome(ended - milliseconds / 1000, ended, batches[0]["numInputRows"])


def _stream(spark: SparkSession, pipeline: Pipeline, assignment: Assignment) -> Any:
    slices = topic_slices(pipeline.source)
    count, cores = sum(slice_.count for slice_ in slices), spark.sparkContext.defaultParallelism
    most_rows = rows_per_task(count, cores, assignment.record_bytes)
    options = spark_options(pipeline.source, slices, max(len(slices), tasks_for(slices, most_rows)))
    reader = spark.readStream.format("kafka")
    for key, value in options.items():
        if key not in NOT_FOR_STREAMS:
            reader = reader.option(key, value)

    def upsert(batch: DataFrame, number: int) -> None:
        batch.write.format("hudi").options(**hudi_options(pipeline, cores)).mode("append").save(
            pipeline.table.base_path
        )

    return (
        parsed_rows(reader.load(), pipeline)
        .writeStream.foreachBatch(upsert)
        .option("checkpointLocation", f"{assignment.folder}/checkpoint")
        .trigger(availableNow=True)
    )


def hudi_options(pipeline: Pipeline, cores: int) -> dict[str, str]:
    """Return the sink's options. Pure."""
    return {
        **shared_options(pipeline),
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.datasource.write.precombine.field": _ORDERING,
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": str(BUCKETS),
        "hoodie.upsert.shuffle.parallelism": str(cores),
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.datasource.compaction.async.enable": "false",
    }
