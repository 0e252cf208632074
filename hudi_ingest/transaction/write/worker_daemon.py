"""The process that forks Spark's Python workers. It has imported what a write task needs, which takes a worker a second, and Spark
ends workers that were idle for a minute."""

from __future__ import annotations

from pyspark.daemon import manager

import hudi_ingest.kafka.range_reader
import hudi_ingest.transaction.write.task  # noqa: F401

if __name__ == "__main__":
    manager()
