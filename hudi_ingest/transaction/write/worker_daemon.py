"""The process that forks Spark's Python workers. It has imported what a write task needs, which takes a worker a second, and Spark
ends workers that were idle for a minute."""

from __future__ import annotations

from hudi_ingest.spark.worker_version import require_same_version

# Before anything else, which an environment of another version may lack.
require_same_version()

from pyspark.daemon import manager  # noqa: E402

import hudi_ingest.kafka.range_reader  # noqa: E402
import hudi_ingest.transaction.write.task  # noqa: E402, F401

if __name__ == "__main__":
    manager()
