"""Hudi's table services through its own client: clustering, which merges small files into large ones, and cleaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from hudi_ingest.hudi.options import clustering_options
from hudi_ingest.hudi.services.fenced_service import FencedService
from hudi_ingest.hudi.write_client import java_errors
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import in_services_pool

PLANNED_BY = "hudi_ingest.operations.upkeep.table_services"
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


class HudiServices(FencedService):
    """Services of one pipeline's table. They do not change rows, record keys or Hudi's own columns."""

    service = "clustering"

    def __init__(self, spark: SparkSession, pipeline: Pipeline, pieces: int) -> None:
        super().__init__(spark, pipeline, clustering_options(pipeline.table, pieces))

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
        """Plan to merge each partition's small files; None if there are none to merge.

        Raises TableUnreachable, EngineLost, TransactionInFlight.
        """
        planned_by = self._option(self._java_map({PLANNED_BY: self._pipeline.name}))
        return self._plan(lambda client: client.scheduleClustering(planned_by))

    def cluster(self, instant: str) -> Clustering:
        """Execute the plan of `instant`. Raises TransactionInFlight if another try has taken over, TableUnreachable, EngineLost."""
        with (
            java_errors(f"cluster {self._base_path} at {instant}", self._lock),
            self._locking_client(self._meta_client(), self.table_columns()) as client,
            in_services_pool(self._spark),
        ):
            written, replaced, _, rows, _, size_bytes = self._execute(client, instant)
        return Clustering(instant, replaced, written, rows, size_bytes)

    def clean(self) -> int:
        """Delete files replaced more than `table.retain_commits` commits ago, and return their number.

        Raises TableUnreachable, EngineLost.
        """
        with java_errors(f"clean {self._base_path}", self._lock), self._locking_client(self._meta_client()) as client:
            done: Any = client.clean()
            return int(done.getTotalFilesDeleted()) if done is not None else 0
