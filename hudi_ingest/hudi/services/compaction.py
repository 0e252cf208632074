"""Hudi's compaction through its own client: it merges the log files of a keyed table into base files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import DeadlineExceeded
from hudi_ingest.hudi.options import compaction_options
from hudi_ingest.hudi.services.fenced_service import FencedService
from hudi_ingest.hudi.write_client import java_errors
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import in_services_pool, job_group

REPORT_SECONDS = 15.0


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
            reported_progress(self._spark, group, planned, report),
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


@contextmanager
def reported_progress(
    spark: SparkSession, group: str, planned: PlannedCompaction, report: Callable[[str], None]
) -> Iterator[None]:
    """Report every REPORT_SECONDS how many file groups the job group has merged."""
    done = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not done.wait(REPORT_SECONDS):
            # The driver may go away at any moment, and the compaction's own error says so.
            with suppress(Py4JError, OSError, AttributeError):
                jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
                stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
                merged = [
                    stage.numCompletedTasks for stage in stages if stage and stage.numTasks == planned.file_groups
                ]
                if merged:
                    report(f"compaction {planned.instant}: {max(merged)} of {planned.file_groups} file groups")

    watcher = threading.Thread(target=watch, name=f"progress of {planned.instant}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
