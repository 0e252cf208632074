"""A pipeline's runs in Dagster: the one at work, those that can make no more progress, and those that failed in a row.

Dagster's run monitoring is off by default, and its own launcher cannot tell whether a run's process is alive. Without
monitoring, a run that died together with its code server is shown as started for ever; its transaction shows that it is dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import takewhile

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter

from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger, Owner, TransactionRow
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.failures import backoff_seconds
from hudi_ingest.orchestration.jobs.run_config import max_runtime
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import leased_until_of

ENDING_SECONDS = 60
"""How long a run may take to end once its transaction is over."""
_FAILED = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A run as Dagster shows it. `since`: when it started, or if it has not, when it was last updated."""

    status: DagsterRunStatus
    since: datetime


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that failed or was canceled."""

    run_id: str
    ended_at: float
    """Seconds since 1970; 0 if Dagster has no end."""


def busy_text(run: DagsterRun) -> str:
    planned = run.tags.get(tags.TRANSACTION)
    transaction = f"transaction {planned}" if planned else "a transaction that it has not planned yet"
    return f"run {run.run_id[:8]} ({run.status.value.lower()}) is working on {transaction}; a table takes one transaction at a time"


def active_run(instance: DagsterInstance, table: PipelineTable, ledger: Ledger, now: datetime) -> DagsterRun | None:
    """Return a run of the pipeline that has not ended and may still make progress; report dead ones. A run launched from the asset's
    page has our tags only once it has begun. Raises LedgerUnreachable, TableUnreachable."""
    pipeline = table.pipeline
    # Those with our tag first: while one is active, Dagster need not load the runs of all pipelines.
    tagged = instance.get_run_records(tags.active_runs([pipeline]))
    alive = _first_alive(instance, table, ledger, tagged, now)
    if alive is not None:
        return alive
    selected = [
        record
        for record in instance.get_run_records(RunsFilter(statuses=tags.ACTIVE))
        if table_key(pipeline) in (record.dagster_run.asset_selection or ())
    ]
    return _first_alive(instance, table, ledger, selected, now)


def _first_alive(
    instance: DagsterInstance, table: PipelineTable, ledger: Ledger, records: Iterable[RunRecord], now: datetime
) -> DagsterRun | None:
    for record in records:
        reason = _why_dead(table, ledger, record, now)
        if reason is None:
            return record.dagster_run
        # It may have ended since.
        run = instance.get_run_by_id(record.dagster_run.run_id)
        # One that also materializes other assets has more to do than our transaction.
        is_ours = run is not None and run.asset_selection == frozenset({table_key(table.pipeline)})
        if run is not None and not run.is_finished and is_ours:
            report_dead(instance, run, reason)
    return None


def _why_dead(table: PipelineTable, ledger: Ledger, record: RunRecord, now: datetime) -> str | None:
    run, owner = record.dagster_run, Owner.dagster_run(record.dagster_run.run_id)
    since = datetime.fromtimestamp(record.start_time, timezone.utc) if record.start_time else record.update_timestamp
    newest = next((row for row in ledger.transactions.history(table.pipeline.name) if row.owner == owner), None)
    leased_until = leased_until_of(table, newest.instant) if newest and newest.instant else None
    return why_dead(UnfinishedRun(run.status, since), newest, leased_until, float(max_runtime(table.pipeline)), now)


def why_dead(
    run: UnfinishedRun,
    newest: TransactionRow | None,
    leased_until: datetime | None,
    max_runtime_seconds: float,
    now: datetime,
) -> str | None:
    """Say why the run can make no more progress, or None while it may.

    `newest`: the last transaction that it began; `leased_until`: when the lease of its instant ends, which a running
    commit renews. After both it can neither write nor commit, and a transaction that the run might still begin is refused while
    another is open.
    """
    if run.status is DagsterRunStatus.QUEUED:
        return None
    if newest is None:
        due = run.since + timedelta(seconds=max_runtime_seconds)
        reason = f"it began no transaction within {max_runtime_seconds:g} s"
    elif newest.state is TransactionState.COMMITTED and newest.ended_at is not None:
        due = newest.ended_at + timedelta(seconds=ENDING_SECONDS)
        reason = f"its transaction {newest.transaction_id} was committed at {newest.ended_at:%H:%M:%S} UTC"
    else:
        # The same run may retry an aborted transaction until its deadline.
        over = max(newest.deadline, leased_until or newest.deadline)
        due = over + timedelta(seconds=ENDING_SECONDS)
        reason = f"the deadline of its transaction {newest.transaction_id} passed at {over:%H:%M:%S} UTC"
    return reason if now > due else None


def report_dead(instance: DagsterInstance, run: DagsterRun, reason: str) -> None:
    """End the run's processes, if its launcher reaches them, and report the run as ended: otherwise it would count against the
    instance's limits and hold its pool slots for ever."""
    text = f"The run can make no more progress: {reason}. The coordinator continues without it."
    _end_processes(instance, run)
    if run.status is DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, text)
    else:
        instance.report_run_failed(run, text)
    if instance.event_log_storage.supports_global_concurrency_limits:
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def _end_processes(instance: DagsterInstance, run: DagsterRun) -> None:
    """Ask for it before the run is over: a hanging process would live on, because Dagster's run monitoring ends only processes of
    runs that are not over."""
    try:
        instance.run_launcher.terminate(run.run_id)
    except Exception as error:  # noqa: BLE001 - whatever a launcher raises: the run is over all the same
        instance.report_engine_event(
            f"The run's processes could not be asked to end: {type(error).__name__}: {error}. One that still runs can neither "
            "write nor commit; end it by hand.",
            run,
        )


def failed_in_a_row(instance: DagsterInstance, request_id: str) -> list[FailedRun]:
    """Return the newest runs of the request that failed one after the other, newest first."""
    records = instance.get_run_records(RunsFilter(tags={tags.REQUEST: request_id}), limit=_MOST_SHOWN)
    failed = takewhile(lambda record: record.dagster_run.status in _FAILED, records)
    return [FailedRun(record.dagster_run.run_id, record.end_time or 0.0) for record in failed]


def failed_live_runs(
    instance: DagsterInstance, pipeline: Pipeline, sequence: int, changed_at: float
) -> list[FailedRun]:
    """Return the runs that tried this live transaction and failed, newest first: until it is committed, its number stays. Runs
    that ended before `changed_at`, when the pipeline file changed, say nothing about the current file."""
    records = instance.get_run_records(
        RunsFilter(tags={tags.TABLE: pipeline.table.base_path, tags.SEQUENCE: str(sequence)}, statuses=list(_FAILED))
    )
    return [
        FailedRun(record.dagster_run.run_id, record.end_time)
        for record in records
        if tags.REQUEST not in record.dagster_run.tags and record.end_time is not None and record.end_time > changed_at
    ]


def backoff_left(pipeline: Pipeline, failed: Sequence[FailedRun], now: datetime) -> str | None:
    """Say why no run may follow those that `failed` in a row, newest first; None if one may."""
    seconds = backoff_seconds(len(failed), pipeline.transaction.interval_seconds)
    if not seconds:
        return None
    due = datetime.fromtimestamp(failed[0].ended_at, timezone.utc) + timedelta(seconds=seconds)
    if now >= due:
        return None
    return (
        f"the last {len(failed)} runs of this transaction failed; see the error of the newest, {failed[0].run_id[:8]}, or the "
        f"check runs_succeed. The next attempt is due in {(due - now).total_seconds():.0f} s. To try at once, change the pipeline "
        f"file, press Materialize on the asset's page, or use `hudi-ingest run {pipeline.name}`"
    )
