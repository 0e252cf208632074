"""Plain Spark as an expert would write it: Structured Streaming from Kafka, `from_json` or `from_avro`, Hudi `bulk_insert`.

It is made as fast as it honestly can be: no record key and no index, sort mode NONE with the row writer (no shuffle), no
inline services, the smallest bloom filter that Hudi can write, direct markers and no timeline server (the alternatives cost
more on one machine), an in-process lock, the checkpoint on the local disk, permissive parsing, and the Kafka consumer
options that measured best. It must do the same work: the same columns, codec and level, Hudi's meta columns, and
the metadata table with the same indexes. Its guarantees are no stronger: its offsets are in Spark's checkpoint, not in the
table.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from benchmarks.contenders import Assignment, Outcome
from benchmarks.contenders.hudi_ingest_api import table_rows
from benchmarks.contenders.spark_source import spark_options, tasks_for
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.storage_options import bucket_and_key, is_s3
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.records.schema.columns import spark_json
from hudi_ingest.spark.s3 import connect_bucket
from hudi_ingest.transaction.write.job import rows_per_task

_KAFKA = ("topic", "partition", "offset", "timestamp")
NOT_FOR_STREAMS = ("endingOffsets",)
"""A stream has no end; Trigger.AvailableNow stops at the offsets that the topic has when it starts."""


def run(spark: SparkSession, assignment: Assignment) -> Outcome:
    """Publish the whole topic in one micro-batch. Raises what Spark raises."""
    pipeline = load_pipeline(Path(assignment.pipeline_file))
    table = pipeline.table
    slices = topic_slices(pipeline.source)
    count, cores = sum(slice_.count for slice_ in slices), spark.sparkContext.defaultParallelism
    most_rows = rows_per_task(count, cores, assignment.record_bytes)
    options = spark_options(pipeline.source, slices, max(len(slices), tasks_for(slices, most_rows)))
    reader = spark.readStream.format("kafka")
    for key, value in options.items():
        if key not in NOT_FOR_STREAMS:
            reader = reader.option(key, value)
    _connect(spark, pipeline)
    began = time.time()
    rows = parsed_rows(reader.load(), pipeline)
    query = (
        rows.writeStream.format("hudi")
        .options(**hudi_options(pipeline))
        .option("checkpointLocation", f"{assignment.folder}/checkpoint")
        .outputMode("append")
        .trigger(availableNow=True)
        .start(table.base_path)
    )
    query.awaitTermination()
    ended = time.time()
    return Outcome(began, ended, table_rows(pipeline))


def _connect(spark: SparkSession, pipeline: Pipeline) -> None:
    """Give Spark the S3 client that hudi-ingest uses, with the same settings, if the table is on S3."""
    if is_s3(pipeline.table.base_path):
        bucket, _ = bucket_and_key(pipeline.table.base_path)
        context: Any = spark.sparkContext
        connect_bucket(context._jvm, context._jsc, bucket, pipeline.table.storage_options)


def topic_slices(source: KafkaSource) -> list[Slice]:
    """The whole topic. Not planned as for hudi-ingest, which treats the second commit's table as another system's."""
    cluster = KafkaCluster(source)
    watermarks = cluster.watermarks(place for topic in cluster.topics().values() for place in topic.partitions)
    return [Slice(place.topic, place.partition, marks.begin, marks.end) for place, marks in sorted(watermarks.items())]


def parsed_rows(records: Any, pipeline: Pipeline) -> Any:
    """The table's columns of Kafka records."""
    parsed = _parsed(pipeline).alias("record")
    kafka = {f"_kafka_{name}": F.col(name).alias(f"_kafka_{name}") for name in _KAFKA}
    return records.select(parsed, *kafka.values()).select("record.*", *kafka)


def _parsed(pipeline: Pipeline) -> Any:
    """Parse the value into a struct; permissive, so that a bad record becomes nulls in either format."""
    if pipeline.source.format == "avro":
        written = pipeline.source.avro.schema_files[0].read_text(encoding="utf-8")
        return from_avro(F.col("value"), written, {"mode": "PERMISSIVE"})
    schema = StructType.fromJson(json.loads(spark_json(pipeline.table.record)))
    return F.from_json(F.col("value").cast("string"), schema)


def hudi_options(pipeline: Pipeline) -> dict[str, str]:
    """Return the sink's options. Pure."""
    return {
        **shared_options(pipeline),
        "hoodie.datasource.write.operation": "bulk_insert",
        "hoodie.datasource.write.row.writer.enable": "true",
        "hoodie.bulkinsert.sort.mode": "NONE",
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.metadata.index.column.stats.enable": str(pipeline.table.column_statistics).lower(),
        "hoodie.populate.meta.fields": "true",
        # Hudi's row writer always puts a bloom filter of the keys into each file. hudi-ingest writes none, so this one is sized
        # for a single key, which leaves the cost of one hash per key.
        "hoodie.bloom.index.filter.type": "SIMPLE",
        "hoodie.index.bloom.num_entries": "1",
        "hoodie.index.bloom.fpp": "0.5",
    }


def shared_options(pipeline: Pipeline) -> dict[str, str]:
    """Return the options that appends and upserts share: the layout of the table, and nothing beside the writes. Pure."""
    return {
        "hoodie.table.name": pipeline.name,
        "hoodie.datasource.write.partitionpath.field": ",".join(pipeline.table.partition_by),
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.metadata.enable": "true",
        "hoodie.parquet.compression.codec": pipeline.table.compression,
        "hoodie.parquet.max.file.size": str(pipeline.table.target_file_bytes),
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.embed.timeline.server": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.compact.inline": "false",
        "hoodie.clustering.inline": "false",
        "hoodie.datasource.hive_sync.enable": "false",
    }
