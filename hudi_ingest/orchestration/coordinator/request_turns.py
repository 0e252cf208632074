"""Requests in a tick: whether it is the turn of a backfill, replay or retry, and of which transaction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from itertools import takewhile

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from hudi_ingest.exceptions import LeaderMissing, RangeRefused
from hudi_ingest.ledger import Ledger, Request, RequestState
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.operations.requests.planning import next_transaction, request_goes_first, settled_progress
from hudi_ingest.operations.requests.work import end_as_done, has_worker
from hudi_ingest.orchestration import tags
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import Situation

MOST_TRIES = 3
"""How many runs of a request may fail in a row before the request fails."""
LOOKED_AT_RUNS = 10
FAILED = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)


def requested_transaction(
    pipeline: Pipeline,
    instance: DagsterInstance,
    ledger: Ledger,
    situation: Situation,
    live_is_due: bool,
    backoff: Callable[[list[tuple[str, float]]], str | None],
) -> TransactionPlan | str | None:
    """Return the next transaction of the pipeline's oldest request if it is its turn, why it waits if it is not, or None if there
    is no request. Requests that are done, or cannot be done, end here.

    `backoff` takes the runs that failed in a row, as id and end, newest first, and says why the next must wait. Raises KafkaUnreachable,
    TableUnreachable, LedgerUnreachable.
    """
    request = _next_request(pipeline, ledger)
    if request is None:
        return None
    checkpoint = situation.committed.checkpoint
    next_sequence = checkpoint.sequence + 1 if checkpoint else 1
    if not request_goes_first(live_is_due, next_sequence, ledger.last_request_tried(request.table)):
        return f"{request.request_id} continues after the live transaction that is due"
    failed = _failed_in_a_row(instance, request)
    if len(failed) >= MOST_TRIES:
        reason = ledger.progress(request.request_id).reason
        reason = reason or f"its last {len(failed)} runs failed; see the error of the newest, {failed[0][0][:8]}"
        ledger.end_request(request.request_id, RequestState.FAILED, reason)
        return f"{request.request_id} has failed: {reason}"
    wait = backoff(failed)
    if wait:
        return f"{request.request_id} waits: {wait}"
    try:
        progress = settled_progress(pipeline, ledger, request.request_id)
        plan = next_transaction(pipeline, situation, request, progress)
    except LeaderMissing as error:
        # Live transactions of the other partitions need not wait for it.
        return f"{request.request_id} waits: {error}"
    except RangeRefused as error:
        ledger.end_request(request.request_id, RequestState.FAILED, str(error))
        return f"{request.request_id} has failed: {error}"
    if plan is None:
        end_as_done(ledger, request.request_id)
        return f"{request.request_id} is done"
    return plan


def _next_request(pipeline: Pipeline, ledger: Ledger) -> Request | None:
    """Return the oldest request that no other process runs."""
    timeout_seconds, now = pipeline.transaction.timeout_seconds, datetime.now(timezone.utc)
    requests = ledger.active_requests(pipeline.name)
    return next((request for request in requests if not has_worker(ledger, request, timeout_seconds, now)), None)


def _failed_in_a_row(instance: DagsterInstance, request: Request) -> list[tuple[str, float]]:
    records = instance.get_run_records(RunsFilter(tags={tags.REQUEST: request.request_id}), limit=LOOKED_AT_RUNS)
    failed = takewhile(lambda record: record.dagster_run.status in FAILED, records)
    return [(record.dagster_run.run_id, record.end_time or 0.0) for record in failed]
