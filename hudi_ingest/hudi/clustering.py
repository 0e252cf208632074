"""Hudi's table services through its own client: clustering, which merges small files into large ones, and cleaning."""

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
from hudi_ingest.spark.session import in_services_pool

PLANNED_BY = "hudi_ingest.operations.table_services"
"""Metadata key in a clustering plan: the pipeline whose services made it."""


@dataclass(frozen=True, slots=True)
class PendingClustering:
    """A planned clustering that is not completed; `leased` while a process runs it, or did until recently."""

    instant: str
    leased: bool


@dataclass(frozen=True, slots=True)
class Clustering:
    """A completed clustering: numbers of files replaced and written, and of rows written."""

    instant: str
    replaced: int
    written: int
    rows: int
    size_bytes: int


class HudiServices(HudiWriter):
    """Services of one pipeline's table. They do not change rows, record keys or Hudi's own columns."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, pieces: int) -> None:
        super().__init__(spark, pipeline)
        self.options = clustering_options(pipeline.table, pieces)

    def pending_clusterings(self) -> tuple[PendingClustering, ...]:
        """List those planned by this pipeline's services, oldest first. Raises TableUnreachable, EngineLost."""
        clusterings = []
        with (
            java_errors(f"read the pending clusterings of {self._base_path}"),
            self._client(meta := self._meta_client()) as client,
        ):
            timeline = meta.getActiveTimeline()
            requested = getattr(self._hudi.common.table.timeline, "HoodieInstant$State").REQUESTED
            for pending in timeline.filterPendingClusteringTimeline().getInstantsAsStream().toArray():
                instant = str(pending.requestedTime())
                planned = meta.createNewInstant(requested, pending.getAction(), instant)
                metadata = timeline.readRequestedReplaceMetadata(planned).getExtraMetadata()
                if metadata is not None and metadata.get(PLANNED_BY) == self._pipeline.name:
                    leased = not client.getHeartbeatClient().isHeartbeatExpired(instant)
                    clusterings.append(PendingClustering(instant, leased))
        return tuple(sorted(clusterings, key=lambda clustering: clustering.instant))

    def plan_clustering(self) -> str | None:
        """Plan to merge each partition's small files; None if there are none to merge. Raises TableUnreachable, EngineLost."""
        with (
            java_errors(f"plan a clustering of {self._base_path}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            planned = client.scheduleClustering(self._option(self._java_map({PLANNED_BY: self._pipeline.name})))
            return str(planned.get()) if planned.isPresent() else None

    def cluster(self, instant: str) -> Clustering:
        """Execute the plan of `instant`, after removing files of an earlier try that died.

        No other process may be running it: see `PendingClustering.leased`. Raises TableUnreachable, EngineLost.
        """
        closing = _ClosedUnlessInterrupted(self._locking_client(self._meta_client(), self._table_schema()))
        with (
            java_errors(f"cluster {self._base_path} at {instant}", self._lock),
            closing as client,
            in_services_pool(self._spark),
        ):
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
            replaced = sum(len(file_ids) for file_ids in done.getPartitionToReplaceFileIds().values())
        return Clustering(
            instant=instant,
            replaced=replaced,
            written=len(stats),
            rows=sum(stat.getNumWrites() for stat in stats),
            size_bytes=sum(stat.getFileSizeInBytes() for stat in stats),
        )

    def _table_schema(self) -> str:
        """Read the table's current columns: rows are read and written with all of them."""
        with java_errors(f"read the columns of {self._base_path}"):
            resolver = self._hudi.common.table.TableSchemaResolver(self._meta_client())
            return str(resolver.getTableSchema(False).toString())

    def clean(self) -> int:
        """Delete files replaced more than `table.retain_commits` commits ago, and return their number.

        Raises TableUnreachable, EngineLost.
        """
        with java_errors(f"clean {self._base_path}", self._lock), self._locking_client(self._meta_client()) as client:
            done: Any = client.clean()
            return int(done.getTotalFilesDeleted()) if done is not None else 0


class _ClosedUnlessInterrupted:
    """Closes the client unless the caller is interrupted: the JVM then continues, and the clustering's heartbeat must last
    for as long as it does."""

    def __init__(self, closing: AbstractContextManager[Any]) -> None:
        self._closing = closing

    def __enter__(self) -> Any:
        return self._closing.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            self._closing.__exit__(kind, error, trace)
