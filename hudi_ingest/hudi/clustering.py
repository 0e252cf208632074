"""Hudi's table services through its own client: clustering, which makes few large files of many small ones, and cleaning."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from hudi_ingest.hudi.options import clustering_options
from hudi_ingest.hudi.write_client import HudiWriter, java_errors
from hudi_ingest.pipeline.pipeline import Pipeline

PLANNED_BY = "hudi_ingest.operations.table_services"
"""Key of a clustering plan's metadata that says which pipeline's services made it."""


@dataclass(frozen=True, slots=True)
class PendingClustering:
    """A clustering that is planned and not completed; `leased` while somebody is at work on it, or was until just now."""

    instant: str
    leased: bool


@dataclass(frozen=True, slots=True)
class Clustering:
    """A completed clustering: the files that it replaced and wrote, and the rows that it wrote."""

    instant: str
    replaced: int
    written: int
    rows: int
    size_bytes: int


class HudiServices(HudiWriter):
    """Services of one pipeline's table. Rows, record keys and Hudi's own columns stay what they are."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, pieces: int) -> None:
        super().__init__(spark, pipeline)
        self.options = clustering_options(pipeline.table, pieces)

    def pending_clusterings(self) -> tuple[PendingClustering, ...]:
        """Those that this pipeline's services planned, oldest first. Raises TableUnreachable, EngineLost."""
        found = []
        with java_errors(f"read the pending clusterings of {self._base_path}"), self._client() as client:
            meta = self._meta_client()
            timeline = meta.getActiveTimeline()
            requested = getattr(self._hudi.common.table.timeline, "HoodieInstant$State").REQUESTED
            for each in timeline.filterPendingClusteringTimeline().getInstantsAsStream().toArray():
                instant = str(each.requestedTime())
                planned = meta.createNewInstant(requested, each.getAction(), instant)
                told = timeline.readRequestedReplaceMetadata(planned).getExtraMetadata()
                if told is not None and told.get(PLANNED_BY) == self._pipeline.name:
                    leased = not client.getHeartbeatClient().isHeartbeatExpired(instant)
                    found.append(PendingClustering(instant, leased))
        return tuple(sorted(found, key=lambda each: each.instant))

    def plan_clustering(self) -> str | None:
        """Plans to merge the small files of each partition; None: there are none to merge. Raises TableUnreachable, EngineLost."""
        with java_errors(f"plan a clustering of {self._base_path}", self._lock), self._locking_client() as client:
            planned = client.scheduleClustering(self._option(self._java_map({PLANNED_BY: self._pipeline.name})))
            return str(planned.get()) if planned.isPresent() else None

    def cluster(self, instant: str) -> Clustering:
        """Does what is planned at `instant`; files of an earlier try that died are removed first.

        Nobody else may be at work on it: see `PendingClustering.leased`. Raises TableUnreachable, EngineLost.
        """
        working = _ClosedUnlessInterrupted(self._locking_client(self._table_schema()))
        with java_errors(f"cluster {self._base_path} at {instant}", self._lock), working as client:
            heartbeat = client.getHeartbeatClient()
            heartbeat.start(instant)
            try:
                done = client.cluster(instant, True)
            except Py4JJavaError:
                # The JVM has given up, so the next try need not wait until the lease runs out.
                heartbeat.stop(instant)
                raise
            heartbeat.stop(instant)
            stats = list(done.getWriteStats().get().toArray())
            replaced = sum(len(each) for each in done.getPartitionToReplaceFileIds().values())
        return Clustering(
            instant=instant,
            replaced=replaced,
            written=len(stats),
            rows=sum(each.getNumWrites() for each in stats),
            size_bytes=sum(each.getFileSizeInBytes() for each in stats),
        )

    def _table_schema(self) -> str:
        """Rows are read and written with all columns that the table has now."""
        with java_errors(f"read the columns of {self._base_path}"):
            resolver = self._hudi.common.table.TableSchemaResolver(self._meta_client())
            return str(resolver.getTableSchema(False).toString())

    def clean(self) -> int:
        """Deletes files that were replaced more than `table.retain_commits` commits ago, and says how many.

        Raises TableUnreachable, EngineLost.
        """
        with java_errors(f"clean {self._base_path}", self._lock), self._locking_client() as client:
            done: Any = client.clean()
            return int(done.getTotalFilesDeleted()) if done is not None else 0


class _ClosedUnlessInterrupted:
    """Closes the client on every way out but one: a caller that is interrupted leaves the JVM at work, and the clustering's
    heartbeat must beat for as long as that goes on."""

    def __init__(self, closing: AbstractContextManager[Any]) -> None:
        self._closing = closing

    def __enter__(self) -> Any:
        return self._closing.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            self._closing.__exit__(kind, error, trace)
