"""The process that forks Spark's Python workers. It has imported what a write task needs, which takes a worker a second, and Spark
ends workers that were idle for a minute. None of it starts a thread that a fork would lose."""

from __future__ import annotations

from pyspark.daemon import manager

import hudi_ingest.kafka.range_reader
import hudi_ingest.transaction.write.task
from hudi_ingest.records.convert.json_kernel.kept_code import is_kept

if __name__ == "__main__":
    if is_kept():
        # Otherwise the first worker that needs it compiles it, and a job of few records does not wait for that.
        import hudi_ingest.records.convert.json_kernel.records  # noqa: F401
    manager()
