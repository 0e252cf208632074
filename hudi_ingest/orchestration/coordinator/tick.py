"""The decision for one pipeline: request its next run, or say why none may start. `fleet.py` has whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from dagster import DagsterInstance, RunRequest, SkipReason

from hudi_ingest.exceptions import LeaderMissing, NothingToDo, OffsetsLost, RangeRefused
from hudi_ingest.faults import reach
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger import Ledger, Request, RequestState
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.operations.requests.planning import next_transaction, request_goes_first, settled_progress
from hudi_ingest.operations.requests.work import end_as_done, has_worker
from hudi_ingest.orchestration.coordinator.quiet_ticks import (
    keep_group_told_now_and_then,
    remember_requested,
    remember_waiting,
)
from hudi_ingest.orchestration.coordinator.runs import (
    active_run,
    backoff_left,
    busy_text,
    failed_in_a_row,
    failed_live_runs,
)
from hudi_ingest.orchestration.jobs.run_config import run_is_finished, run_request
from hudi_ingest.orchestration.reports.complete_periods import said_through
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.schema_change import pending_approval
from hudi_ingest.transaction.plan.planning import (
    Situation,
    keep_letters_copied,
    mark_if_committed,
    plan_next,
)

_MOST_TRIES = 3
"""How many runs of a request may fail in a row before the request fails."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One evaluation of a pipeline's sensor at `now`, with the ledger and the table that it opened.

    Its methods raise KafkaUnreachable, TableUnreachable and LedgerUnreachable.
    """

    instance: DagsterInstance
    ledger: Ledger
    table: PipelineTable
    now: datetime

    @property
    def pipeline(self) -> Pipeline:
        return self.table.pipeline

    def busy(self) -> str:
        """Say why no run may be launched, whatever is waiting; "" if one may."""
        active = active_run(self.instance, self.table, self.ledger, self.now)
        return busy_text(active) if active is not None else self._held_elsewhere()

    def _held_elsewhere(self) -> str:
        """Say why a run would have to wait for a process outside this Dagster, such as `hudi-ingest run`.

        If that process is gone, record in the ledger a commit that landed before its op could record it.
        """
        row = self.ledger.transactions.open_in(self.pipeline.table.base_path)
        if row is None:
            return ""
        if is_over(row, run_is_finished(self.instance)):
            # On an idle topic no later run would correct this.
            mark_if_committed(self.table, self.ledger, row.transaction_id)
            return ""
        return f"{row.owner} is working on transaction {row.transaction_id}, until {row.deadline:%H:%M:%S} UTC at the latest"

    def next_run(self, situation: Situation, cluster: KafkaCluster, changed_at: float) -> RunRequest | SkipReason:
        """Request the next live transaction or the next one of a request, or say why neither. `changed_at`: when the pipeline file
        last changed. Raises OffsetsLost."""
        pipeline = self.pipeline
        lost: OffsetsLost | None = None
        plan: TransactionPlan | None = None
        wait: str | None
        try:
            plan = replace(
                plan_next(pipeline, situation, now=self.now), said_through=said_through(pipeline, self.instance)
            )
        except NothingToDo as error:
            wait = error.reason
        except OffsetsLost as error:
            # Requests may still cover ranges before the lost offsets.
            lost, wait = error, str(error)
        untold = ""
        if plan is None:
            untold = keep_group_told_now_and_then(pipeline, situation, cluster)
            keep_letters_copied(pipeline, situation)
        else:
            failed = failed_live_runs(self.instance, pipeline, plan.sequence, changed_at)
            wait = backoff_left(pipeline, failed, self.now)
        requested: TransactionPlan | str | None = None
        unapproved = pending_approval(pipeline, self.ledger, self.table.timeline)
        if unapproved is not None:
            # Neither a live transaction nor a request's could begin.
            plan, wait = None, unapproved.sentence
        else:
            requested = self._requested(situation, live_is_due=plan is not None and not wait)
        if isinstance(requested, TransactionPlan):
            plan = requested
        elif plan is None or wait:
            if lost is not None:
                raise lost
            reason = "; ".join(filter(None, (wait, requested, untold)))
            if plan is None and unapproved is None and requested is None and not situation.leaderless:
                remember_waiting(pipeline, situation, reason, self.now)
            return SkipReason(reason)
        reach("tick_planned")
        remember_requested(pipeline, situation, plan, self.now)
        return run_request(pipeline, plan, self.ledger.place)

    def _requested(self, situation: Situation, *, live_is_due: bool) -> TransactionPlan | str | None:
        """Return the next transaction of the pipeline's oldest request if it is its turn, why it waits if it is not, or None if
        there is no request. Requests that are done, or cannot be done, end here."""
        request = self._next_request()
        if request is None:
            return None
        name, ledger = request.request_id, self.ledger
        checkpoint = situation.committed.checkpoint
        next_sequence = checkpoint.sequence + 1 if checkpoint else 1
        if not request_goes_first(live_is_due, next_sequence, ledger.requests.last_tried(request.table)):
            return f"{name} continues after the live transaction that is due"
        failed = failed_in_a_row(self.instance, name)
        if len(failed) >= _MOST_TRIES:
            reason = ledger.requests.progress(name).reason
            reason = (
                reason or f"its last {len(failed)} runs failed; see the error of the newest, {failed[0].run_id[:8]}"
            )
            return self._failed_request(name, reason)
        wait = backoff_left(self.pipeline, failed, self.now)
        if wait:
            return f"{name} waits: {wait}"
        try:
            progress = settled_progress(self.pipeline, ledger, name)
            plan = next_transaction(self.pipeline, situation, request, progress)
        except LeaderMissing as error:
            # Live transactions of the other partitions need not wait for it.
            return f"{name} waits: {error}"
        except RangeRefused as error:
            return self._failed_request(name, str(error))
        if plan is None:
            end_as_done(ledger, name)
            return f"{name} is done"
        return plan

    def _failed_request(self, request_id: str, reason: str) -> str:
        self.ledger.requests.end(request_id, RequestState.FAILED, reason)
        return f"{request_id} has failed: {reason}"

    def _next_request(self) -> Request | None:
        """Return the oldest request that no other process runs."""
        timeout_seconds, now = self.pipeline.transaction.timeout_seconds, datetime.now(timezone.utc)
        requests = self.ledger.requests.active(self.pipeline.name)
        return next((each for each in requests if not has_worker(self.ledger, each, timeout_seconds, now)), None)
