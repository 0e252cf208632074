"""Hudi's compaction through its own client: it merges the log files of a keyed table into base files."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import DeadlineExceeded, TableUnreachable, TransactionInFlight
from hudi_ingest.hudi.durability import NoDurability, durability_of
from hudi_ingest.hudi.options import compaction_options
from hudi_ingest.hudi.paths import COMPACTION_CLAIM
from hudi_ingest.hudi.storage import WriteConflict, advice
from hudi_ingest.hudi.storage_at import storage_at
from hudi_ingest.hudi.write_client import HudiWriter, java_errors, java_messages
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


class HudiCompaction(HudiWriter):
    """Compaction of one pipeline's keyed table. It changes no row: readers get the same from the new base files."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, piece_bytes: int) -> None:
        super().__init__(spark, pipeline)
        self.options = compaction_options(pipeline.table, piece_bytes)
        self._storage = storage_at(self._base_path, pipeline.table.storage_options)

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

        Raises TableUnreachable, EngineLost.
        """
        durability = durability_of(self._storage, self._pipeline.table.fsync)
        with self._reaching_storage("list .hoodie"):
            before = durability.look()
        with (
            java_errors(f"plan a compaction of {self._base_path}", self._lock),
            self._locking_client(meta := self._meta_client()) as client,
        ):
            planned = client.scheduleCompaction(self._hudi.common.util.Option.empty())
            if not planned.isPresent():
                return None
            instant = str(planned.get())
            compaction = PlannedCompaction(instant, self._planned_groups(meta, instant))
        # Before anyone begins it: a plan that a power cut leaves empty cannot be read by any client of Hudi.
        with self._reaching_storage("flush the plan"):
            durability.sync_changes(before)
        return compaction

    def compact(self, planned: PlannedCompaction, report: Callable[[str], None]) -> Compaction:
        """Execute a plan, after removing files of an earlier try that died. `report` receives progress.

        Of several tries at a plan only the newest can commit: an earlier one that was taken for dead is refused inside Hudi's
        lock. Raises DeadlineExceeded, TransactionInFlight if another try has taken over, TableUnreachable, EngineLost.
        """
        instant, seconds = planned.instant, self._pipeline.table.compaction.timeout_seconds
        group = f"compaction of {self._base_path}"
        claim = self._claim(instant)
        durability = durability_of(self._storage, self._pipeline.table.fsync)
        flush = "" if isinstance(durability, NoDurability) else "flush"
        with self._reaching_storage("list .hoodie"):
            before = durability.look()
        with (
            java_errors(f"compact {self._base_path} at {instant}", self._lock),
            self._locking_client(self._meta_client()) as client,
            job_group(self._spark, group, f"{self._pipeline.name}: compaction {instant}", seconds) as expired,
            in_services_pool(self._spark),
            reported_progress(self._spark, group, planned, report),
        ):
            # Not called directly: py4j caches methods by class name, but each call compiles a new class.
            compaction = self._java_object("Compaction", f"{self._base_path}/{COMPACTION_CLAIM}", claim, instant, flush)
            try:
                figures: str = self._option(client).map(compaction).get()
            except Py4JJavaError as error:
                if expired.is_set():
                    raise DeadlineExceeded(
                        f"compaction {instant} of {self._base_path} was not done within table.compaction.timeout_seconds "
                        f"{seconds:g}, and was cancelled. Readers still see every row, from the log files. The next run of "
                        "services begins it again: raise that setting, or give the engine more cores."
                    ) from error
                if any("hudi-ingest claim:" in message for message in java_messages(error.java_exception)):
                    raise TransactionInFlight(
                        f"compaction {instant} of {self._base_path}: this try paused for so long that another run of services "
                        "took it for dead and took over. It committed nothing."
                    ) from error
                raise
        with self._reaching_storage("flush the timeline"):
            durability.sync_changes(before)
        return Compaction(instant, *map(int, figures.split(",")))

    def _planned_groups(self, meta: Any, instant: str) -> int:
        return len(self._hudi.common.util.CompactionUtils.getCompactionPlan(meta, instant).getOperations())

    def _claim(self, instant: str) -> str:
        """Make this try the only one that can commit, and return what the table's claim file says from now on."""
        claim = json.dumps({"compaction": instant, "try": uuid.uuid4().hex}, separators=(",", ":"))
        try:
            with self._reaching_storage(f"write {COMPACTION_CLAIM}"):
                self._storage.put_if(COMPACTION_CLAIM, claim.encode(), self._storage.read_versioned(COMPACTION_CLAIM))
        except WriteConflict:
            raise TransactionInFlight(
                f"table {self._base_path}: another run of services is beginning a compaction. Nothing was changed; try again "
                "later."
            ) from None
        return claim

    @contextmanager
    def _reaching_storage(self, operation: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TableUnreachable(
                f"cannot {operation} of the table at {self._base_path}: {error}. {advice(error)}"
            ) from error


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
