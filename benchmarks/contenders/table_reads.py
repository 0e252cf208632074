"""What Spark reads from a keyed table, and Hudi's compaction of it; the same for all contenders."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from benchmarks.contenders import Outcome


def read_totals(spark: SparkSession, base_path: str) -> Outcome:
    """Sum a column over a snapshot; `checksum` is the sum."""
    began = time.time()
    totals = spark.read.format("hudi").load(base_path).selectExpr("count(*) rows", "sum(ts) total").first()
    ended = time.time()
    assert totals is not None
    return Outcome(began, ended, totals["rows"], checksum=totals["total"])


def compact(spark: SparkSession, base_path: str) -> Outcome:
    """Merge all log files into base files, with Hudi's own procedure. Raises what Spark raises."""
    options = (
        "hoodie.compact.inline.max.delta.commits=1,hoodie.metadata.index.column.stats.enable=false,"
        "hoodie.embed.timeline.server=false,hoodie.datasource.write.recordkey.field=id"
    )
    began = time.time()
    spark.sql(
        f"call run_compaction(op => 'scheduleAndExecute', path => '{base_path}', options => '{options}')"
    ).collect()
    return Outcome(began, time.time(), -1)
