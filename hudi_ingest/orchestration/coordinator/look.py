"""A look at one pipeline: observes its table, broker, ledger and runs, has `decision.py` decide on that, and requests a run or catches up on
the work that a commit left. `fleet.py` has whose turn it is; the report of a look comes after the decisions of all."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from dagster import DagsterInstance, RunRequest

from hudi_ingest.exceptions import (
    IngestError,
    KafkaUnreachable,
    LedgerUnreachable,
    OffsetsLost,
    TableUnreachable,
    TransactionInFlight,
)
from hudi_ingest.faults import reach
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.shared_clusters import answering_cluster
from hudi_ingest.ledger import Ledger, Request, RequestState
from hudi_ingest.ledger.counters import TICK_FAILURES
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.operations.observation import Observation
from hudi_ingest.operations.requests.planning import next_transaction, settled_progress
from hudi_ingest.operations.requests.work import end_as_done, has_worker
from hudi_ingest.orchestration.coordinator.decision import EndedRequest, decide
from hudi_ingest.orchestration.coordinator.memory import PipelineMemory
from hudi_ingest.orchestration.coordinator.runs import (
    FailedRun,
    active_run,
    busy_text,
    failed_in_a_row,
    failed_live_runs,
)
from hudi_ingest.orchestration.jobs.run_config import run_is_finished, run_request
from hudi_ingest.orchestration.reports.complete_periods import said_through
from hudi_ingest.orchestration.switch import PAUSED
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.schema_change import pending_approval
from hudi_ingest.transaction.plan.planning import (
    Situation,
    keep_letters_copied,
    mark_if_committed,
    observe,
    plan_next,
)
from hudi_ingest.transaction.timeline_repair import repair_timeline

_LOG = logging.getLogger(__name__)
PASSES = (KafkaUnreachable, LedgerUnreachable, TableUnreachable, TransactionInFlight)
"""Errors that may be gone by the next tick."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a pipeline, `now`: the `answer` of the decision, which is a run to request, why there is none, or an error that a person
    has to act on; and what is to be reported. `observed`: table and broker, or why they could not be read; None if nothing was."""

    pipeline: Pipeline
    now: datetime
    observed: Observation | BaseException | None
    answer: RunRequest | str | IngestError = ""
    busy: str = ""
    """The run or process at work, in words."""
    repairs: Sequence[str] = ()
    blind_since: float | None = None
    """Since when broker, table or ledger could not be read, in seconds since 1970."""
    on: bool = True
    """Whether the pipeline is on; one that is off is not looked at."""

    @property
    def decision(self) -> tuple[str, str]:
        """The decision in a word or two, and why."""
        if not self.on:
            return PAUSED, str(self.answer)
        if self.busy:
            return "waits for a run", self.busy
        if isinstance(self.answer, RunRequest):
            return "begins a run", f"records are waiting; {self.answer.run_key} takes them"
        if isinstance(self.answer, str) and not isinstance(self.observed, BaseException):
            return "waits", self.answer
        error = self.answer or self.observed
        return "cannot decide", str(error)


def look_at(memory: PipelineMemory, instance: DagsterInstance, now: datetime) -> Look:
    """Look at one pipeline and decide. Nothing is reported to Dagster but the end of runs that are dead."""
    pipeline = memory.pipeline
    memory.forget()
    repairs, busy = tuple[str, ...](), ""
    with ExitStack() as resources:
        try:
            ledger = resources.enter_context(Ledger.open(Home.from_environment().ledger_url))
            with _failure_counted(pipeline, ledger):
                ledger.requests.note_tick(pipeline.name, now)
                changed_at = ledger.requests.note_settings(pipeline.name, fingerprint(pipeline), now)
                table = PipelineTable(pipeline)
                # Whatever comes after reads the timeline.
                repairs = tuple(repair_timeline(table, ledger))
                # Must precede observe(): a run that ended between would let a plan begin at offsets that are already committed.
                busy = busy_with(instance, table, ledger, now)
                cluster = resources.enter_context(answering_cluster(pipeline.source))
                situation = memory.with_plan_time(observe(pipeline, cluster, table))
                observation = Observation(table, now, situation.committed, situation, busy=busy)
        except IngestError as error:
            return _blind(memory, now, error, busy, repairs)
        memory.blind_since = None
        if busy:
            memory.remember_busy()
            return Look(pipeline, now, observation, busy, busy, repairs)
        changed = changed_at.timestamp() if changed_at else 0.0
        answer = answer_to(Sight(instance, ledger, observation, memory, changed), cluster)
        return Look(pipeline, now, observation, answer, repairs=repairs)


def answer_to(sight: Sight, cluster: KafkaCluster) -> RunRequest | str | IngestError:
    """Return the run to request, why there is none, or an error that a person has to act on."""
    try:
        answer = decided(sight)
        return answer if isinstance(answer, RunRequest) else caught_up(answer, sight, cluster)
    except IngestError as error:
        # The next tick looks anew.
        sight.memory.forget()
        return _as_answer(error)


def decided(sight: Sight) -> RunRequest | str | OffsetsLost:
    """Decide on what was observed, and carry the decision out: end a request, remember until when there is nothing to do, and return the run
    to request, why there is none, or the loss that a person has to accept. Raises KafkaUnreachable, TableUnreachable, LedgerUnreachable."""
    decision, memory = decide(sight), sight.memory
    if decision.request is not None:
        sight.end(decision.request)
    if decision.plan is not None:
        reach("tick_planned")
        memory.remember_requested(sight.situation, decision.plan, sight.now)
        return run_request(sight.pipeline, decision.plan, sight.ledger.place)
    if decision.lost is not None:
        return decision.lost.with_traceback(None)
    if decision.may_rest and not sight.situation.leaderless:
        memory.remember_waiting(sight.situation, decision.reason, sight.now)
    return decision.reason


def caught_up(answer: str | OffsetsLost, sight: Sight, cluster: KafkaCluster) -> str | OffsetsLost:
    """Set the consumer group and copy dead letters in place of a next commit, if the last one could not. Return the answer, with the
    reason why that failed. Raises KafkaRefused."""
    memory = sight.memory
    trouble = [memory.keep_group_told(sight.situation, cluster)]
    try:
        keep_letters_copied(sight.pipeline, sight.situation)
    except PASSES as error:
        # The next tick tries again.
        memory.forget()
        trouble.append(str(error))
    if not isinstance(answer, str):
        return answer
    reason = "; ".join(filter(None, (answer, *trouble)))
    if memory.idle is not None:
        memory.idle = replace(memory.idle, reason=reason)
    return reason


def _blind(memory: PipelineMemory, now: datetime, error: IngestError, busy: str, repairs: Sequence[str]) -> Look:
    """Return the look that could not read everything."""
    if busy:
        memory.remember_busy()
    if memory.blind_since is None:
        memory.blind_since = now.timestamp()
    return Look(memory.pipeline, now, _bare(error), busy or _as_answer(error), busy, repairs, memory.blind_since)


def _bare(error: IngestError) -> IngestError:
    """Return the error without its frames, which refer back to it: a client that was refused would keep trying to log in until the next
    garbage collection."""
    return error.with_traceback(None)


def _as_answer(error: IngestError) -> str | IngestError:
    return str(error) if isinstance(error, PASSES) else _bare(error)


def busy_with(instance: DagsterInstance, table: PipelineTable, ledger: Ledger, now: datetime) -> str:
    """Say why no run may be launched, whatever is waiting; "" if one may. Raises TableUnreachable and LedgerUnreachable."""
    active = active_run(instance, table, ledger, now)
    return busy_text(active) if active is not None else _held_elsewhere(instance, table, ledger)


def _held_elsewhere(instance: DagsterInstance, table: PipelineTable, ledger: Ledger) -> str:
    """Say why a run would have to wait for a process outside this Dagster, such as `hudi-ingest run`.

    If that process is gone, record in the ledger a commit that landed before its op could record it.
    """
    row = ledger.transactions.open_in(table.pipeline.table.base_path)
    if row is None:
        return ""
    if is_over(row, run_is_finished(instance)):
        # On an idle topic no later run would correct this.
        mark_if_committed(table, ledger, row.transaction_id)
        return ""
    return (
        f"{row.owner} is working on transaction {row.transaction_id}, until {row.deadline:%H:%M:%S} UTC at the latest"
    )


@dataclass(frozen=True, slots=True)
class Sight:
    """The facts of a look at a pipeline that is not busy, each read when the decision asks for it. `changed_at`: when the pipeline file
    last changed, in seconds since 1970."""

    instance: DagsterInstance
    ledger: Ledger
    observation: Observation
    memory: PipelineMemory
    changed_at: float = 0.0

    def end(self, ended: EndedRequest) -> None:
        if ended.state is RequestState.DONE:
            end_as_done(self.ledger, ended.request_id)
        else:
            self.ledger.requests.end(ended.request_id, ended.state, ended.reason)

    @property
    def pipeline(self) -> Pipeline:
        return self.observation.pipeline

    @property
    def situation(self) -> Situation:
        return self.observation.situation

    @property
    def now(self) -> datetime:
        return self.observation.at

    @property
    def next_sequence(self) -> int:
        checkpoint = self.situation.committed.checkpoint
        return checkpoint.sequence + 1 if checkpoint else 1

    def live_plan(self) -> TransactionPlan:
        plan = plan_next(self.pipeline, self.situation, now=self.now)
        return replace(plan, said_through=said_through(self.pipeline, self.instance, self.memory.reported.periods))

    def failed_runs(self, plan: TransactionPlan) -> Sequence[FailedRun]:
        return failed_live_runs(self.instance, self.pipeline, plan.sequence, self.changed_at)

    def unapproved_change(self) -> str:
        change = pending_approval(self.pipeline, self.ledger, self.observation.table.timeline)
        return change.sentence if change else ""

    def next_request(self) -> Request | None:
        timeout_seconds, now = self.pipeline.transaction.timeout_seconds, datetime.now(timezone.utc)
        requests = self.ledger.requests.active(self.pipeline.name)
        return next((each for each in requests if not has_worker(self.ledger, each, timeout_seconds, now)), None)

    def last_tried(self, request: Request) -> int | None:
        return self.ledger.requests.last_tried(request.table)

    def failed_runs_of(self, request: Request) -> Sequence[FailedRun]:
        return failed_in_a_row(self.instance, request.request_id)

    def why_rolled_back(self, request: Request) -> str:
        return self.ledger.requests.progress(request.request_id).reason

    def plan_of(self, request: Request) -> TransactionPlan | None:
        progress = settled_progress(self.pipeline, self.ledger, request.request_id)
        return next_transaction(self.observation, request, progress)


def fingerprint(pipeline: Pipeline) -> str:
    """Return a hash of the pipeline's settings and declared columns, without secrets, which repr hides."""
    columns = str(pipeline.table_schema.columns) if pipeline.table.declares_schema else ""
    return hashlib.sha256(f"{pipeline!r}{columns}".encode()).hexdigest()[:16]


@contextmanager
def _failure_counted(pipeline: Pipeline, ledger: Ledger) -> Iterator[None]:
    """Count a tick that could not look. The error of the block is raised either way."""
    try:
        yield
    except IngestError as error:
        try:
            ledger.counters.add(pipeline.table.base_path, {f"{TICK_FAILURES}{type(error).__name__}": 1})
        except IngestError as uncounted:
            _LOG.warning("%s: the ledger could not count a failed tick: %s", pipeline.name, uncounted)
        raise
