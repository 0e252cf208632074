"""Which of a pipeline's unfinished runs can do nothing more: judged by their transactions, whatever the instance watches itself.

Dagster's run monitoring is off by default, and its own launcher cannot tell whether a run's process lives. Without it a run that died
together with its code server is shown as started for ever.
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
    """A run as Dagster shows it. `since`: when it was started, or before that last heard of."""

    status: DagsterRunStatus
    since: datetime


def why_dead(
    run: UnfinishedRun,
    newest: TransactionRow | None,
    leased_until: datetime | None,
    max_runtime_seconds: float,
    now: datetime,
) -> str | None:
    """Why the run can make no progress any more, or None while it may.

    `newest`: the last transaction that it began; `leased_until`: when the lease of that one's instant ends, which a commit
    renews while it is at work. Past both it can neither write nor commit, and one that the run might still begin is refused
    while another is open.
    """
    if run.status is DagsterRunStatus.QUEUED:
        return None
    if newest is None:
        due = run.since + timedelta(seconds=max_runtime_seconds)
        reason = f"it has begun no transaction within {max_runtime_seconds:g} s"
    elif newest.state is TransactionState.COMMITTED and newest.ended_at is not None:
        due = newest.ended_at + timedelta(seconds=ENDING_SECONDS)
        reason = f"its transaction {newest.transaction_id} was committed at {newest.ended_at:%H:%M:%S} UTC"
    else:
        # An aborted one may be tried again by the same run, as long as its time is not up.
        over = max(newest.deadline, leased_until or newest.deadline)
        due = over + timedelta(seconds=ENDING_SECONDS)
        reason = f"the deadline of its transaction {newest.transaction_id} passed at {over:%H:%M:%S} UTC"
    return reason if now > due else None


def report_dead(instance: DagsterInstance, run: DagsterRun, reason: str) -> None:
    """Tells Dagster that the run has ended: it would count against the instance's limits, and keep its places in pools, for ever."""
    text = f"The run can make no progress any more: {reason}. The coordinator goes on without it."
    if run.status is DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, text)
    else:
        instance.report_run_failed(run, text)
    if instance.event_log_storage.supports_global_concurrency_limits:
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
