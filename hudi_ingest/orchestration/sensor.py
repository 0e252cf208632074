"""The coordinator: one sensor per pipeline that turns the table's and the broker's offsets into the next run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultSensorStatus,
    JobDefinition,
    RunRecord,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from hudi_ingest.exceptions import IngestError, KafkaUnreachable, LedgerUnreachable, OffsetsLost, TableUnreachable
from hudi_ingest.faults import reach
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger, Owner
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.dead_runs import UnfinishedRun, report_dead, why_dead
from hudi_ingest.orchestration.op_settings import max_runtime, run_is_finished
from hudi_ingest.orchestration.reports import report
from hudi_ingest.orchestration.request_turns import FAILED, requested_transaction
from hudi_ingest.orchestration.run_config import BEGIN, executor_tags, job_name, run_config, run_tags
from hudi_ingest.orchestration.sensor_cursor import SensorCursor, fingerprint
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.transaction import TICK_SECONDS
from hudi_ingest.transaction.planning import Skip
from hudi_ingest.transaction.situation import (
    Situation,
    keep_group_told,
    keep_letters_copied,
    leased_until_of,
    mark_if_committed,
    observe,
    plan_next,
)

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

LONGEST_BACKOFF_SECONDS = 900
_SHOWN_RANGES = 10
_PASSES = (KafkaUnreachable, LedgerUnreachable, TableUnreachable)
"""What the next tick may find otherwise."""
_ACTIVE = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


def coordinator_sensor(pipeline: Pipeline, job: JobDefinition | UnresolvedAssetJobDefinition) -> SensorDefinition:
    """The pipeline's sensor. It starts no JVM; each tick plans anew from the table. The cursor is for what people are told, and
    may be lost."""

    @sensor(
        name=sensor_name(pipeline.name),
        job=job,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=DefaultSensorStatus.RUNNING if pipeline.enabled else DefaultSensorStatus.STOPPED,
        description=f"Begins a transaction of {pipeline.name} at most every {pipeline.transaction.interval_seconds:g} s.",
    )
    def coordinator(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        found = tick(
            pipeline, context.instance, datetime.now(timezone.utc), context.cursor or "", context.update_cursor
        )
        if isinstance(found, RunRequest):
            context.log.info(request_text(found))
        for tag in (tags.STOPPED, tags.RESET):
            if isinstance(found, RunRequest) and tag in found.tags:
                context.log.warning(f"{tag}: {found.tags[tag]}; the run's begin op says why")
        return found

    return coordinator


def sensor_name(pipeline: str) -> str:
    return f"{pipeline}_coordinator"


def tick(
    pipeline: Pipeline,
    instance: DagsterInstance,
    now: datetime,
    cursor: str = "",
    remember: Callable[[str], None] = lambda cursor: None,
) -> RunRequest | SkipReason:
    """What to do at `now`: one run, or the reason why none. Whatever it is, Dagster is told first of the checks, the lag and the
    commits that others made. Raises OffsetsLost, TopicMissing and KafkaRefused: the tick fails, loudly."""
    busy = ""
    seen: Situation | IngestError
    with ExitStack() as opened:
        try:
            ledger = Ledger.open(Home.from_environment().ledger_url)
            opened.callback(ledger.dispose)
            ledger.note_tick(pipeline.name, now)
            # Before the look at the table: what ended after that would let a plan begin at offsets that are committed already.
            busy = _busy(pipeline, instance, ledger, now)
            seen = observe(pipeline)
        except IngestError as error:
            # Without its frames, which hold this error in turn: a client that was refused would go on trying to log in until the
            # next garbage collection.
            seen = error.with_traceback(None)
        memory = SensorCursor.read(cursor).after(fingerprint(pipeline), isinstance(seen, IngestError), now)
        remember(memory.to_text())
        try:
            report(pipeline, instance, seen, now, busy, memory.blind_since)
        except _PASSES as error:
            return SkipReason(busy or str(error))
        if busy:
            return SkipReason(busy)
        if isinstance(seen, _PASSES):
            return SkipReason(str(seen))
        if isinstance(seen, IngestError):
            try:
                raise seen
            finally:
                del seen
        try:
            return _next_run(pipeline, instance, ledger, seen, memory.changed_at, now)
        except _PASSES as error:
            return SkipReason(str(error))


def _next_run(
    pipeline: Pipeline,
    instance: DagsterInstance,
    ledger: Ledger,
    situation: Situation,
    changed_at: float,
    now: datetime,
) -> RunRequest | SkipReason:
    """The next live transaction, the next one of a request, or why neither. `changed_at`: when the pipeline file was."""
    lost: OffsetsLost | None = None
    plan: TransactionPlan | Skip
    try:
        plan = plan_next(pipeline, situation, now=now)
    except OffsetsLost as error:
        # Ranges before what is lost may still be asked for.
        lost, plan = error, Skip(str(error))
    if isinstance(plan, Skip):
        keep_group_told(pipeline, situation)
        keep_letters_copied(pipeline, situation)
    else:
        wait = _backoff_left(pipeline, _failed_runs(instance, pipeline, plan.sequence, changed_at), now)
        plan = Skip(wait) if wait else plan
    requested = requested_transaction(
        pipeline,
        instance,
        ledger,
        situation,
        isinstance(plan, TransactionPlan),
        lambda failed: _backoff_left(pipeline, failed, now),
    )
    if isinstance(requested, TransactionPlan):
        plan = requested
    elif lost is not None:
        raise lost
    if isinstance(plan, Skip):
        return SkipReason(f"{plan.reason}; {requested}" if requested else plan.reason)
    reach("tick_planned")
    return RunRequest(
        # A run key blocks for ever once used, also by a failed run; a transaction's id is used once.
        run_key=plan.transaction_id,
        run_config=run_config(pipeline, plan),
        tags={**run_tags(pipeline, plan), **executor_tags(pipeline, plan)},
    )


def request_text(request: RunRequest) -> str:
    """What the requested run is to do, in one sentence."""
    (begin,) = (op["ops"][BEGIN]["config"] for op in request.run_config["ops"].values())
    ranges = [f"{each['topic']}:{each['partition']} [{each['start']},{each['end']})" for each in begin["slices"]]
    ranges = [text for text, each in zip(ranges, begin["slices"], strict=True) if each["end"] > each["start"]]
    offsets = sum(each["end"] - each["start"] for each in begin["slices"])
    shown = ", ".join(ranges[:_SHOWN_RANGES]) + (
        f" and {len(ranges) - _SHOWN_RANGES} more" * (len(ranges) > _SHOWN_RANGES)
    )
    return f"{begin['transaction_id']} is to take {offsets:,} offsets: {shown or 'none'}"


def backoff_seconds(failures: int, interval_seconds: float) -> float:
    """How long to wait after the last of `failures` failed runs in a row: none after the first, then doubling."""
    if failures < 2:
        return 0.0
    return float(min(LONGEST_BACKOFF_SECONDS, interval_seconds * 2 ** min(failures - 2, 20)))


def _busy(pipeline: Pipeline, instance: DagsterInstance, ledger: Ledger, now: datetime) -> str:
    """Why no run may be launched, whatever waits; "" where one may."""
    active = _active_run(instance, pipeline, ledger, now)
    if active is not None:
        return (
            f"run {active.run_id[:8]} ({active.status.value.lower()}) is at work on "
            f"{_transaction_text(active)}; a table takes one transaction at a time"
        )
    return _held_elsewhere(pipeline, instance, ledger) or ""


def _transaction_text(run: DagsterRun) -> str:
    planned = run.tags.get(tags.TRANSACTION)
    return f"transaction {planned}" if planned else "a transaction that it has yet to plan"


def _active_run(instance: DagsterInstance, pipeline: Pipeline, ledger: Ledger, now: datetime) -> DagsterRun | None:
    """A run of the pipeline that has not ended and may still make progress; what is dead is reported. One launched from the asset's
    page has our tags only once it has begun. Raises LedgerUnreachable."""
    for record in instance.get_run_records(RunsFilter(statuses=_ACTIVE)):
        run = record.dagster_run
        if run.tags.get(tags.PIPELINE) == pipeline.name or table_key(pipeline) in (run.asset_selection or ()):
            reason = _why_dead(pipeline, ledger, record, now)
            if reason is None:
                return run
            _report_dead(instance, pipeline, run.run_id, reason)
    return None


def _why_dead(pipeline: Pipeline, ledger: Ledger, record: RunRecord, now: datetime) -> str | None:
    run, owner = record.dagster_run, Owner.dagster_run(record.dagster_run.run_id)
    since = datetime.fromtimestamp(record.start_time, timezone.utc) if record.start_time else record.update_timestamp
    newest = next((row for row in ledger.history(pipeline.name) if row.owner == owner), None)
    leased_until = leased_until_of(pipeline, newest.instant) if newest and newest.instant else None
    return why_dead(UnfinishedRun(run.status, since), newest, leased_until, float(max_runtime(pipeline)), now)


def _report_dead(instance: DagsterInstance, pipeline: Pipeline, run_id: str, reason: str) -> None:
    # Looked at once more: it may have ended since. A run of other assets besides has more to do than our transaction.
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished and run.job_name == job_name(pipeline):
        report_dead(instance, run, reason)


def _held_elsewhere(pipeline: Pipeline, instance: DagsterInstance, ledger: Ledger) -> str | None:
    """Why a run would have to wait for somebody outside this Dagster, such as `hudi-ingest run`.

    Where nobody is left, the ledger is told of a commit that landed before its op could.
    """
    row = ledger.open_transaction(pipeline.table.base_path)
    if row is None:
        return None
    if is_over(row, run_is_finished(instance)):
        # On an idle topic no further run would come to put this right.
        mark_if_committed(pipeline, ledger, row.transaction_id)
        return None
    return (
        f"{row.owner} is at work on transaction {row.transaction_id}, until {row.deadline:%H:%M:%S} UTC at the latest"
    )


def _failed_runs(
    instance: DagsterInstance, pipeline: Pipeline, sequence: int, changed_at: float
) -> list[tuple[str, float]]:
    """Runs, as id and end, that tried this very live transaction and failed, newest first: while it is not committed, its number
    stays. What ended before the pipeline file was changed, at `changed_at`, says nothing of the file that it is now."""
    records = instance.get_run_records(
        RunsFilter(tags={tags.TABLE: pipeline.table.base_path, tags.SEQUENCE: str(sequence)}, statuses=list(FAILED))
    )
    ended = [
        (record.dagster_run.run_id, record.end_time)
        for record in records
        if tags.REQUEST not in record.dagster_run.tags
    ]
    return [(run_id, end) for run_id, end in ended if end is not None and end > changed_at]


def _backoff_left(pipeline: Pipeline, failed: Sequence[tuple[str, float]], now: datetime) -> str | None:
    """Why no run may follow those that `failed` in a row, newest first; None when one may."""
    seconds = backoff_seconds(len(failed), pipeline.transaction.interval_seconds)
    if not seconds:
        return None
    run_id, ended = failed[0]
    due = datetime.fromtimestamp(ended, timezone.utc) + timedelta(seconds=seconds)
    if now >= due:
        return None
    return (
        f"the last {len(failed)} runs of this transaction failed, the newest is {run_id[:8]}: see its error, or the check "
        f"runs_succeed. The next attempt is due in {(due - now).total_seconds():.0f} s; a changed pipeline file, Materialize on "
        f"the asset's page or `hudi-ingest run {pipeline.name}` tries at once"
    )
