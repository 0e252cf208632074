"""The process that forks Spark's Python workers. It has imported what a write task needs, which takes a worker a second, and Spark
ends workers that were idle for a minute. None of it starts a thread that a fork would lose."""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

from hudi_ingest.spark import require_same_version

# Before anything else, which an environment of another version may lack.
require_same_version()

import pyarrow as pa  # noqa: E402
from pyspark.daemon import manager  # noqa: E402

import hudi_ingest.kafka.range_reader  # noqa: E402
import hudi_ingest.transaction.write.task  # noqa: E402
from hudi_ingest.records.convert.json.kernel import is_kept  # noqa: E402


class _KeptArchive(zipimporter):
    """An archive that stays as it is while this process lives, as Spark's do; those of tasks come later."""

    def invalidate_caches(self) -> None:
        """Keep the directory. A worker drops its import caches before each task, in case the task brings new archives, and Python would
        then read the directory of each one, PySpark's above all: 40 ms of CPU."""


def _read_archives_once() -> None:
    for path, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, zipimporter):
            sys.path_importer_cache[path] = _KeptArchive(path)


if __name__ == "__main__":
    if is_kept():
        # Otherwise the first worker that needs it compiles it, and a job of few records does not wait for that.
        import hudi_ingest.records.convert.json.kernel.records
        import hudi_ingest.records.digests  # noqa: F401
    # Arrow imports pandas for the first array that it makes of an object. Each worker would do so for itself, and look through it after
    # each task.
    pa.array([None])
    # Each worker collects garbage after each task. It would look through all that is imported here, for a tenth of a second, and
    # get a copy of its own of that memory.
    gc.collect()
    gc.freeze()
    _read_archives_once()
    manager()
