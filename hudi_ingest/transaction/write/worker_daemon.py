"""The process that forks Spark's Python workers. It has imported what a write task needs, which takes a worker a second, and Spark
ends workers that were idle for a minute. None of it starts a thread that a fork would lose."""

from __future__ import annotations

import gc

from hudi_ingest.spark.worker_version import require_same_version

# Before anything else, which an environment of another version may lack.
require_same_version()

from pyspark.daemon import manager  # noqa: E402

import hudi_ingest.kafka.range_reader  # noqa: E402
import hudi_ingest.transaction.write.task  # noqa: E402
from hudi_ingest.records.convert.json_kernel.kept_code import is_kept  # noqa: E402

if __name__ == "__main__":
    if is_kept():
        # Otherwise the first worker that needs it compiles it, and a job of few records does not wait for that.
        import hudi_ingest.records.convert.json_kernel.records  # noqa: F401
    # Each worker collects garbage after each task. It would look through all that is imported here, for a tenth of a second, and
    # get a copy of its own of that memory.
    gc.collect()
    gc.freeze()
    manager()
