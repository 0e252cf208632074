"""The limit of Spark's Kafka source: the same decoding, then one plain parquet file per Spark task. No Hudi, no orchestration.

Spark's Kafka source → Arrow → the same converter → pyarrow, with the same Kafka columns, codec, level and dictionaries. The
difference to hudi-ingest is the cost of its promises: the split by table partition, Hudi's meta columns, markers, the commit.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.contenders import Assignment, Outcome
from benchmarks.contenders.plain_write import PlainWrite, write_plainly
from benchmarks.contenders.spark_source import read_slices
from hudi_ingest.kafka.backlog import BATCH_BYTES, BATCH_ROWS
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.transaction.columns.decoding import converter_of
from hudi_ingest.transaction.plan.planning import plan_now
from hudi_ingest.transaction.write.job import rows_per_task


def run(spark: SparkSession, assignment: Assignment) -> Outcome:
    """Write the whole topic to parquet files in the folder. Raises what Spark raises."""
    pipeline = load_pipeline(Path(assignment.pipeline_file))
    slices = plan_now(pipeline).slices
    files = Path(assignment.folder) / "files"
    files.mkdir()
    write = PlainWrite(str(files), converter_of(pipeline), pipeline.table.compression)
    session = spark.newSession()
    # Its records are all the same size, so it need not guard against larger ones.
    batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, assignment.record_bytes)))
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch_rows))
    count = sum(slice_.count for slice_ in slices)
    most_rows = rows_per_task(count, spark.sparkContext.defaultParallelism, assignment.record_bytes)
    began = time.time()
    records = read_slices(session, pipeline.source, slices, most_rows)
    records.mapInArrow(partial(write_plainly, write), "rows long").collect()
    ended = time.time()
    return Outcome(began, ended, sum(pq.read_metadata(path).num_rows for path in files.glob("*.parquet")))
