"""Sizes of tables, which take a listing of all their files: read one after the other in the background, and kept for a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hudi_ingest.exceptions import IngestError
from hudi_ingest.hudi.files.read_amplification import files_to_merge
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.metrics.records import TableSize
from hudi_ingest.operations.upkeep.partition_age import aged_partitions
from hudi_ingest.pipeline.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
KEPT_SECONDS = 600.0


class TableSizes:
    """`of` answers at once, with None until the table's files have been listed for the first time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, "table-sizes")
        self._known: dict[str, tuple[float, str, TableSize | None]] = {}
        self._queued = set[str]()
        self._lock = threading.Lock()

    def of(self, pipeline: Pipeline, instant: str) -> TableSize | None:
        """The size as of some minutes ago. `instant`: the table's newest commit; without a new one nothing is read again."""
        path = pipeline.table.base_path
        with self._lock:
            read_at, known_instant, size = self._known.get(path, (0.0, "", None))
            outdated = known_instant != instant and (size is None or self._clock() - read_at > KEPT_SECONDS)
            if outdated and path not in self._queued:
                self._queued.add(path)
                self._pool.submit(self._read, pipeline, instant)
        return size

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, pipeline: Pipeline, instant: str) -> None:
        path = pipeline.table.base_path
        size = None
        try:
            size = _size(pipeline)
        except IngestError as error:
            _LOG.warning("the size of the table of %s is unknown: %s", pipeline.name, error)
        with self._lock:
            self._known[path] = (self._clock(), instant, size)
            self._queued.discard(path)


def _size(pipeline: Pipeline) -> TableSize:
    table = pipeline.table
    groups = PipelineTable(pipeline).timeline.file_groups()
    partitions = aged_partitions(table, groups)
    return TableSize(
        sum(partition.size_bytes for partition in partitions),
        len(partitions),
        None if table.is_keyed else files_to_merge(groups, table.target_file_bytes),
        tuple(partition.ended_at for partition in partitions if partition.ended_at) if table.ttl else (),
    )
