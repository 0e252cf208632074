"""Hudi's own services of a table, through its client: clustering merges small files into large ones, compaction the log files of a
keyed table into base files; cleaning deletes replaced files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import DeadlineExceeded, TransactionInFlight
from hudi_ingest.hudi.java_errors import java_errors, java_messages
from hudi_ingest.hudi.options import BY_LISTING, clustering_options, compaction_options
from hudi_ingest.hudi.storage.open import storage_at
from hudi_ingest.hudi.storage.storage import NoDurability, durability_of, reaching
from hudi_ingest.hudi.timeline.ownership import Service, ServiceClaim
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import in_services_pool, job_group, reported_tasks


class FencedService(HudiWriter):
    """Plans and executes one table service. Of several tries at a plan only the newest can commit: an earlier one that was taken
    for dead is refused inside Hudi's lock."""

    service: Service

    def __init__(self, spark: SparkSession, pipeline: Pipeline, options: Mapping[str, str]) -> None:
        super().__init__(spark, pipeline)
        # What a try that died has written is looked for in the folders: a power cut may have taken the markers.
        self.options = {**options, **BY_LISTING}
        self._storage = storage_at(self._base_path, pipeline.table.storage_options)
        self._durability = durability_of(self._storage, pipeline.table.fsync)
        self._claim = ServiceClaim(self._storage, self.service)

    def _plan(self, schedule: Callable[[Any], Any]) -> str | None:
        """Have Hudi's client make a plan, and flush it; returns its instant, or None if there is nothing to do.

        Raises TableUnreachable, EngineLost, and TransactionInFlight if other services take the claim at this moment.
        """
        newest = Timeline.of(self._pipeline.table).newest_instant()
        with reaching(self._storage, f"claim a {self.service}"):
            self._claim.plan(newest)
            before = self._durability.look()
        with (
            java_errors(f"plan a {self.service} of {self._base_path}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            planned = schedule(client)
            instant = str(planned.get()) if planned.isPresent() else None
        with reaching(self._storage, "flush the plan"):
            if instant is None:
                self._claim.drop()
            # Before anyone begins it: a plan that a power cut leaves empty cannot be read by any client of Hudi.
            self._durability.sync_changes(before)
        return instant

    def _execute(self, client: Any, instant: str) -> tuple[int, ...]:
        """Execute a plan, after removing files of an earlier try that died, and flush what it wrote; returns the figures of
        TableService.java. Raises TransactionInFlight if another try has taken over, TableUnreachable, Py4JJavaError."""
        with reaching(self._storage, f"claim {self.service} {instant}"):
            claim = self._claim.take(instant)
        flush = "" if isinstance(self._durability, NoDurability) else "flush"
        place = f"{self._base_path}/{self._claim.path}"
        service = self._java_object("TableService", self.service, place, claim, instant, flush)
        try:
            figures: str = self._apply(service, client)
        except Py4JJavaError as error:
            if any("hudi-ingest claim:" in message for message in java_messages(error.java_exception)):
                raise TransactionInFlight(
                    f"{self.service} {instant} of {self._base_path}: this try paused for so long that another run of services "
                    "took it for dead and took over. It committed nothing."
                ) from error
            raise
        return tuple(map(int, figures.split(",")))


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

    def __init__(self, spark: SparkSession, pipeline: Pipeline, pieces: int, below_bytes: int | None = None) -> None:
        super().__init__(spark, pipeline, clustering_options(pipeline.table, pieces, below_bytes))

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


@dataclass(frozen=True, slots=True)
class PlannedCompaction:
    """A compaction that is not completed; `leased` while a process executes it, or did until recently."""

    instant: str
    file_groups: int
    leased: bool = False


@dataclass(frozen=True, slots=True)
class Compaction:
    """A completed compaction: what it merged, and the rows and bytes of the base files that it wrote."""

    instant: str
    file_groups: int
    log_files: int
    rows: int
    log_bytes: int
    size_bytes: int


class HudiCompaction(FencedService):
    """Compaction of one pipeline's keyed table. It changes no row: readers get the same from the new base files."""

    service = "compaction"

    def __init__(self, spark: SparkSession, pipeline: Pipeline, piece_bytes: int) -> None:
        super().__init__(spark, pipeline, compaction_options(pipeline.table, piece_bytes))

    def pending_compactions(self) -> tuple[PlannedCompaction, ...]:
        """List those that are planned, also by other writers, oldest first: no later plan has their file groups, so somebody must
        execute them. Raises TableUnreachable, EngineLost."""
        pending = []
        with (
            java_errors(f"read the pending compactions of {self._base_path}"),
            self._client(meta := self._meta_client()) as client,
        ):
            timeline = meta.getActiveTimeline().filterPendingCompactionTimeline()
            for instant in (str(entry.requestedTime()) for entry in timeline.getInstantsAsStream().toArray()):
                leased = not client.getHeartbeatClient().isHeartbeatExpired(instant)
                pending.append(PlannedCompaction(instant, self._planned_groups(meta, instant), leased))
        return tuple(sorted(pending, key=lambda compaction: compaction.instant))

    def plan_compaction(self) -> PlannedCompaction | None:
        """Plan to merge the log files of completed commits, up to one piece; None if there are none that no pending plan has.

        Raises TableUnreachable, EngineLost, TransactionInFlight.
        """
        instant = self._plan(lambda client: client.scheduleCompaction(self._hudi.common.util.Option.empty()))
        if instant is None:
            return None
        with java_errors(f"read the plan of compaction {instant} of {self._base_path}"):
            return PlannedCompaction(instant, self._planned_groups(self._meta_client(), instant))

    def compact(self, planned: PlannedCompaction, report: Callable[[str], None]) -> Compaction:
        """Execute a plan; `report` receives progress.

        Raises DeadlineExceeded, TransactionInFlight if another try has taken over, TableUnreachable, EngineLost.
        """
        instant, seconds = planned.instant, self._pipeline.table.compaction.timeout_seconds
        group = f"compaction of {self._base_path}"
        with (
            java_errors(f"compact {self._base_path} at {instant}", self._lock),
            self._locking_client(self._meta_client()) as client,
            job_group(self._spark, group, f"{self._pipeline.name}: compaction {instant}", seconds) as expired,
            in_services_pool(self._spark),
            reported_tasks(self._spark, group, f"compaction {instant}", "file groups", report, planned.file_groups),
        ):
            try:
                groups, _, logs, rows, log_bytes, size_bytes = self._execute(client, instant)
            except Py4JJavaError as error:
                if expired.is_set():
                    raise DeadlineExceeded(
                        f"compaction {instant} of {self._base_path} was not done within table.compaction.timeout_seconds "
                        f"{seconds:g}, and was cancelled. Readers still see every row, from the log files. The next run of "
                        "services begins it again: raise that setting, or give the engine more cores."
                    ) from error
                raise
        return Compaction(instant, groups, logs, rows, log_bytes, size_bytes)

    def _planned_groups(self, meta: Any, instant: str) -> int:
        return len(self._hudi.common.util.CompactionUtils.getCompactionPlan(meta, instant).getOperations())
