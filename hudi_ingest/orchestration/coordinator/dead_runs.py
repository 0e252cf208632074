"""Recognizes unfinished runs that can make no more progress, by their transactions, whether or not Dagster monitors runs.

Dagster's run monitoring is off by default, and its own launcher cannot tell whether a run's process is alive. Without
monitoring, a run that died together with its code server is shown as started for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus

from hudi_ingest.ledger import TransactionRow
from hudi_ingest.model.transaction import TransactionState

ENDING_SECONDS = 60
"""How long a run may take to end once its transaction is over."""


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A run as Dagster shows it. `since`: when it started, or if it has not, when it was last updated."""

    status: DagsterRunStatus
    since: datetime


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
