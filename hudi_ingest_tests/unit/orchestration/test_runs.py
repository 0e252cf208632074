"""P5: a run that died without a word is known by its transaction, on an instance that watches nothing itself."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from dagster import DagsterRunStatus

from hudi_ingest.ledger import Owner, TransactionRow
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.orchestration.coordinator.runs import ENDING_SECONDS, UnfinishedRun, why_dead

STARTED_AT = datetime(2026, 11, 22, 3, 0, tzinfo=timezone.utc)
MAX_RUNTIME = 420
LEASE = 300
JUST = 1


def transaction(state: TransactionState, ended_after: float | None = None) -> TransactionRow:
    return TransactionRow(
        transaction_id="orders-000007-abc",
        pipeline="orders",
        table="/data/orders",
        sequence=7,
        epoch=9,
        state=state,
        owner=Owner.dagster_run("run-1"),
        instant="20261122030001000",
        began_at=STARTED_AT,
        deadline=after(LEASE),
        ended_at=None if ended_after is None else after(ended_after),
        rows=None,
        files=None,
        size_bytes=None,
        reason=None,
    )


def after(seconds: float) -> datetime:
    return STARTED_AT + timedelta(seconds=seconds)


UNFINISHED = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


@pytest.mark.parametrize("status", UNFINISHED)
@pytest.mark.parametrize(
    ("newest", "ends", "says"),
    [
        (None, MAX_RUNTIME, "no transaction within 420 s"),
        (
            transaction(TransactionState.OPEN),
            LEASE + ENDING_SECONDS,
            "the deadline of its transaction orders-000007-abc",
        ),
        (transaction(TransactionState.ABORTED, 10), LEASE + ENDING_SECONDS, "passed at 03:05:00 UTC"),
        (transaction(TransactionState.COMMITTED, 40), 40 + ENDING_SECONDS, "was committed at 03:00:40 UTC"),
    ],
    ids=["no transaction", "open", "aborted", "committed"],
)
def test_p5_a_run_is_dead_when_its_transactions_time_is_up(
    status: DagsterRunStatus, newest: TransactionRow | None, ends: float, says: str
) -> None:
    run = UnfinishedRun(status, STARTED_AT)
    assert why_dead(run, newest, None, MAX_RUNTIME, after(ends)) is None
    assert says in str(why_dead(run, newest, None, MAX_RUNTIME, after(ends + JUST)))


def test_p5_a_queued_run_is_never_dead() -> None:
    queued = UnfinishedRun(DagsterRunStatus.QUEUED, STARTED_AT)
    assert why_dead(queued, None, None, MAX_RUNTIME, after(10**6)) is None


def test_p2_a_run_whose_commit_renews_its_lease_is_not_dead() -> None:
    run, newest = UnfinishedRun(DagsterRunStatus.STARTED, STARTED_AT), transaction(TransactionState.OPEN)
    leased_until = after(2 * LEASE)
    assert why_dead(run, newest, leased_until, MAX_RUNTIME, after(2 * LEASE + ENDING_SECONDS)) is None
    assert why_dead(run, newest, leased_until, MAX_RUNTIME, after(2 * LEASE + ENDING_SECONDS + JUST))
