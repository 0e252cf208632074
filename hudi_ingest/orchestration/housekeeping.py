"""Housekeeping: deletes expired runs and events in Dagster and expired rows in the ledger. Its job in a code location has a schedule that
is on from the start.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

from dagster import (
    DagsterInstance,
    DagsterRun,
    DefaultScheduleStatus,
    Definitions,
    JobDefinition,
    MetadataValue,
    Nothing,
    OpExecutionContext,
    Out,
    Output,
    RepositoryDefinition,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    job,
    op,
    schedule,
)

from hudi_ingest.exceptions import IngestError
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.storage.storage import StoredFile
from hudi_ingest.ledger import Kept, Ledger, Service
from hudi_ingest.operations.topic_discovery import deserted_templates
from hudi_ingest.operations.upkeep.service_log import logged
from hudi_ingest.operations.upkeep.sweep import TableLeftovers
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.retention import (
    delete_events,
    delete_snapshots,
    delete_ticks,
    sqlite_files,
)
from hudi_ingest.orchestration.failures import HOUSEKEEPING, as_dagster_failures
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE, dagster_folder, open_instance
from hudi_ingest.orchestration.jobs.resources import LEDGER, LEDGER_ONLY
from hudi_ingest.orchestration.jobs.run_config import NO_RUN_RETRIES
from hudi_ingest.orchestration.pipeline_definitions import OwnDefinitions
from hudi_ingest.orchestration.run_retention import (
    delete_runs,
    expired_runs,
    is_job_of_ours,
    pipelines_of_runs,
    run_bytes,
    shorten_logs,
    shrink,
    stored_bytes,
)
from hudi_ingest.pipeline.code_location import LEAST, HousekeepingSettings, load_housekeeping_settings
from hudi_ingest.pipeline.folder import BrokenFile, load_each
from hudi_ingest.pipeline.pipeline import Pipeline

MOST_SECONDS = 1500.0
"""The most seconds of a run; the rest is left to the next hour's run."""
_REPORTED_RUNS = 100
_TICK_DAYS = 7
_TRANSACTIONS = 10_000
"""Most transactions, and most requests, of a pipeline in the ledger."""
_RUN_SECONDS = 3600
_APART = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class HousekeepingReport:
    """Counts of deleted things or, in a dry run, of those that would be. `freed_bytes`: the size of files on this machine; a PostgreSQL
    server reuses the space of deleted rows itself."""

    dry_run: bool
    runs: int
    events: int
    ticks: int
    transactions: int
    requests: int
    topics: int
    """Topics of templates that have no pipeline."""
    files: int
    """Expired files of tables: dead letters, listings, and instants put aside."""
    snapshots: int
    """Snapshots of jobs that no run has any more."""
    deleted_pipelines: tuple[str, ...]
    """Pipelines without a file of which everything goes; it is counted above."""
    unreadable: tuple[str, ...]
    """Why tables could not be examined."""
    freed_bytes: int
    runs_left: int
    """Runs of ours that remain, whatever their state."""
    database_bytes: int
    """Size of Dagster's and the ledger's SQLite databases now, without those of single runs."""
    runs_expired: int
    """Expired runs, with those that are left for the next time when time runs out."""

    @property
    def complete(self) -> bool:
        """Whether nothing expired is left for the next time."""
        return self.runs == self.runs_expired

    @property
    def deleted(self) -> int:
        parts = (
            self.runs,
            self.events,
            self.ticks,
            self.transactions,
            self.requests,
            self.topics,
            self.files,
            self.snapshots,
        )
        return sum(parts)

    @property
    def due(self) -> int:
        return self.deleted + self.runs_expired - self.runs

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers and lists: Dagster takes no tuple as metadata."""
        facts = asdict(self)
        del facts["runs_expired"]
        names = {"deleted_pipelines": list(self.deleted_pipelines), "unreadable": list(self.unreadable)}
        return {**facts, **names, "complete": self.complete}

    @property
    def sentence(self) -> str:
        done = "would delete" if self.dry_run else "deleted"
        counts = (
            (self.runs, "run", ""),
            (self.events, "event", ""),
            (self.ticks, "tick", ""),
            (self.transactions, "transaction", " of the ledger"),
            (self.requests, "request", ""),
            (self.topics, "topic", " of deleted templates"),
            (self.files, "file", " of tables"),
            (self.snapshots, "snapshot", " of jobs"),
        )
        parts = [f"{counted(count, name)}{place}" for count, name, place in counts if count]
        sizes = [counted(self.freed_bytes, "byte")] if parts or self.freed_bytes else ["nothing"]
        what = ", ".join([*parts, *sizes])
        rest = "" if self.complete else " Time ran out; the next run continues."
        gone = f" All of {', '.join(self.deleted_pipelines)}, which no file has." if self.deleted_pipelines else ""
        tables = "".join(f" {text}" for text in self.unreadable)
        return f"Housekeeping {done} {what}.{gone}{rest}{tables}"


@dataclass(frozen=True)
class Housekeeping:
    """Housekeeping of one code location. `instance`: None where there is no Dagster, and only the ledger is kept small."""

    settings: HousekeepingSettings
    own: OwnDefinitions
    ledger: Ledger
    instance: DagsterInstance | None
    location: str | None = None
    """The code location whose ticks are ours; of any if it is None."""
    pipelines: Sequence[Pipeline] = ()
    """Pipelines whose tables are examined, too."""
    broken: Sequence[BrokenFile] = ()
    """Files that cannot be loaded. While there are some, no pipeline counts as deleted: it may be one of theirs."""

    def run(self, now: datetime, report: Callable[[str], None], *, dry_run: bool = False) -> HousekeepingReport:
        """Delete what has expired at `now`. `report` receives progress. Raises LedgerUnreachable, and what Dagster's storage raises."""
        if dry_run:
            return self._run(now, report, dry_run=True)
        with logged(self.ledger, Service.HOUSEKEEPING) as work:
            done = self._run(now, report, dry_run=False)
            work.due, work.done = done.due, done.deleted
        return done

    def _run(self, now: datetime, report: Callable[[str], None], *, dry_run: bool) -> HousekeepingReport:
        began = time.monotonic()
        databases = self._databases()
        before = stored_bytes(databases)
        runs, freed, runs_expired = 0, 0, 0
        events = ticks = snapshots = 0
        since, ledger_since = (now - timedelta(days=days) for days in (self.settings.days, self.settings.ledger_days))
        known, active = self._pipelines(ledger_since)
        deleted = OwnDefinitions.of_deleted(frozenset() if self.broken else known - active, self.own.jobs)
        files, unreadable = self._tables(ledger_since, since, dry_run)
        freed += sum(file.size_bytes for file in files)
        if self.instance is not None:
            expired = expired_runs(self.instance, self.own, Kept(since, self.settings.keep, LEAST))
            expired += expired_runs(self.instance, deleted, Kept(ledger_since, sys.maxsize, 0))
            runs_expired = len(expired)
            report(f"{counted(runs_expired, 'run')} expired")
            if dry_run:
                runs = len(expired)
                freed += sum(run_bytes(self.instance, run_id) for run_id in expired)
            else:
                for size in delete_runs(self.instance, expired, lambda: time.monotonic() - began > MOST_SECONDS):
                    runs, freed = runs + 1, freed + size
                    if runs % _REPORTED_RUNS == 0:
                        report(f"{runs} of {counted(runs_expired, 'run')} deleted")
                freed += shorten_logs(self.instance, self.own)
            limits = ((self.own, since, 2 * self.settings.keep, LEAST), (deleted, ledger_since, sys.maxsize, 0))
            events = sum(
                delete_events(self.instance, own.assets, own.checks, oldest, most, least, dry_run=dry_run)
                for own, oldest, most, least in limits
            )
            report(f"{counted(events, 'event')} without a run expired")
            ticked_since = max(since, now - timedelta(days=_TICK_DAYS))
            ticks = sum(
                delete_ticks(self.instance, own.instigators, ticked_since, self.location, dry_run=dry_run)
                for own in (self.own, deleted)
            )
            snapshots = delete_snapshots(self.instance, is_job_of_ours, dry_run=dry_run)
            report(f"{counted(ticks, 'tick')} expired")
        transactions, requests = self._ledger(Kept(ledger_since, _TRANSACTIONS, LEAST), dry_run)
        for name in deleted.pipelines:
            forgotten = self.ledger.retention.forget_pipeline(name, dry_run=dry_run)
            transactions, requests = transactions + forgotten[0], requests + forgotten[1]
        topics = self._topics(active, ledger_since, dry_run)
        report(f"{counted(transactions, 'transaction')} and {counted(requests, 'request')} of the ledger expired")
        if not dry_run:
            for database in databases:
                shrink(database)
        after = stored_bytes(databases)
        return HousekeepingReport(
            dry_run=dry_run,
            runs=runs,
            events=events,
            ticks=ticks,
            transactions=transactions,
            requests=requests,
            topics=topics,
            files=len(files),
            snapshots=snapshots,
            deleted_pipelines=deleted.pipelines,
            unreadable=tuple(unreadable),
            freed_bytes=freed + max(0, before - after),
            runs_left=self._runs_left(),
            database_bytes=after,
            runs_expired=runs_expired,
        )

    def _pipelines(self, since: datetime) -> tuple[frozenset[str], frozenset[str]]:
        """All pipelines, and those that a file has or of which something has happened since then, here or in Dagster. Another code
        location may have the same ledger: its pipelines tick."""
        known, active = self.ledger.retention.pipelines(since)
        if self.instance is not None:
            of_runs, active_runs = pipelines_of_runs(self.instance, self.own, since, self.location)
            known, active = known | of_runs, active | active_runs
        return known, active | {*self.own.pipelines}

    def _topics(self, active: frozenset[str], since: datetime, dry_run: bool) -> int:
        """Forget the topics of templates of which no pipeline is left, and count them."""
        templates = {} if self.broken else self.ledger.topics.of_all()
        deserted = deserted_templates(templates, active, since)
        for template in () if dry_run else deserted:
            self.ledger.topics.forget_template(template)
        return sum(len(templates[template]) for template in deserted)

    def _tables(
        self, put_aside_since: datetime, letters_since: datetime, dry_run: bool
    ) -> tuple[list[StoredFile], list[str]]:
        """The leftovers of tables, which are deleted, and why some tables could not be examined."""
        found, unreadable = list[StoredFile](), list[str]()
        for pipeline in self.pipelines:
            leftovers = TableLeftovers(pipeline, put_aside_since, letters_since)
            try:
                files = leftovers.find()
                if not dry_run:
                    leftovers.delete(files)
                found += files
            except IngestError as error:
                unreadable.append(f"{pipeline.name}: {error}")
        return found, unreadable

    def _ledger(self, kept: Kept, dry_run: bool) -> tuple[int, int]:
        work = self.ledger.retention.expired if dry_run else self.ledger.retention.forget
        counts = [work(pipeline, kept) for pipeline in self.own.pipelines]
        return sum(transactions for transactions, _ in counts), sum(requests for _, requests in counts)

    def _runs_left(self) -> int:
        if self.instance is None:
            return 0
        filters = [RunsFilter(tags={kind: [*self.own.pipelines]}) for kind in tags.KINDS if self.own.pipelines]
        filters.append(RunsFilter(tags={tags.HOUSEKEEPING: "true"}))
        return len({run_id for each in filters for run_id in self.instance.get_run_ids(each)})

    def _databases(self) -> Sequence[Path]:
        own = [self.ledger.file] if self.ledger.file else []
        return [*own, *(sqlite_files(self.instance) if self.instance is not None else [])]


@contextmanager
def housekeeping_of(
    home: Home, settings: HousekeepingSettings, ledger: Ledger, repository: RepositoryDefinition
) -> Iterator[Housekeeping]:
    """Yield the housekeeping of the home's pipelines, whose definitions are in `repository`, outside a run of Dagster's, in the Dagster at
    `$DAGSTER_HOME` or, without it, the embedded stack's. Raises ConfigError."""
    own = OwnDefinitions.of(repository)
    pipelines, broken = load_each(home.pipelines)
    # A variable that names no instance is an error here, not a home without Dagster: what is not deleted there piles up.
    folder = os.environ.get(DAGSTER_VARIABLE) or dagster_folder(home)
    with open_instance(Path(folder)) if folder else nullcontext() as instance:
        yield Housekeeping(settings, own, ledger, instance, pipelines=pipelines, broken=broken)


@op(
    name=f"{HOUSEKEEPING}_op",
    description="Deletes old runs, events, ticks and rows of the ledger; see housekeeping.yaml.",
    out=Out(Nothing),
    required_resource_keys={LEDGER},
)
def _housekeeping(context: OpExecutionContext) -> Output[None]:
    with as_dagster_failures(), getattr(context.resources, LEDGER).open() as ledger:
        home = Home.from_environment()
        settings = load_housekeeping_settings(home)
        own = OwnDefinitions.of(context.repository_def)
        loaded, broken = load_each(home.pipelines)
        pipelines = [pipeline for pipeline in loaded if pipeline.name in own.pipelines]
        housekeeping = Housekeeping(settings, own, ledger, context.instance, _location(context.run), pipelines, broken)
        done = housekeeping.run(datetime.now(timezone.utc), context.log.info)
    context.log.info(done.sentence)
    metadata = {
        name.replace("_", " "): MetadataValue.int(value) if type(value) is int else value
        for name, value in done.to_dict().items()
    }
    return Output(None, metadata=metadata)


def housekeeping_definitions(enabled: bool, suffix: str = "") -> Definitions:
    """Return the job and its schedule, whose runs fail while housekeeping.yaml is wrong. `enabled`: whether it is on from the start;
    `suffix`: of their names, if a code location merges several, which each delete for all of its pipelines."""
    return Definitions(
        jobs=[housekeeping_job(suffix)],
        schedules=[housekeeping_schedule(enabled, suffix)],
        resources=LEDGER_ONLY,
    )


@cache
def housekeeping_job(suffix: str = "") -> JobDefinition:
    """Return the same object for each suffix, or definitions could not be merged. Components of a project need one of their own: Dagster
    copies their jobs, to note where they come from."""

    @job(
        name=f"{HOUSEKEEPING}{suffix}",
        description="Deletes expired runs and events of the code location's pipelines in Dagster, and their expired rows in the ledger.",
        tags={
            tags.HOUSEKEEPING: "true",
            tags.MAX_RUNTIME: str(_RUN_SECONDS),
            tags.MAX_RETRIES: NO_RUN_RETRIES,
            tags.IN_PROCESS: "true",
        },
    )
    def deletes_what_expired() -> None:
        _housekeeping()

    return deletes_what_expired


@cache
def housekeeping_schedule(enabled: bool, suffix: str = "") -> ScheduleDefinition:
    """Return the schedule that runs the job once an hour."""

    @schedule(
        name=f"{HOUSEKEEPING}_hourly{suffix}",
        job=housekeeping_job(suffix),
        cron_schedule="17 * * * *",
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING if enabled else DefaultScheduleStatus.STOPPED,
        description="Deletes old runs, events, ticks and rows of the ledger; see housekeeping.yaml. Once an hour.",
    )
    def hourly(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        return next_run(context.instance, datetime.now(timezone.utc))

    return hourly


def next_run(instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Request a run, unless one has not ended, or has just begun: the code location may have several schedules."""
    ours = {tags.HOUSEKEEPING: "true"}
    active = instance.get_runs(RunsFilter(tags=ours, statuses=tags.ACTIVE), limit=1)
    if active:
        return SkipReason(f"run {active[0].run_id[:8]} of housekeeping has not ended")
    recent = instance.get_runs(RunsFilter(tags=ours, created_after=now - _APART), limit=1)
    if recent:
        return SkipReason(f"run {recent[0].run_id[:8]} has done the housekeeping in the last half hour")
    return RunRequest()


def _location(run: DagsterRun) -> str | None:
    origin = run.remote_job_origin
    return origin.repository_origin.code_location_origin.location_name if origin else None
