"""The coordinator: one sensor per pipeline that turns the table's and the broker's offsets into the next run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone

from dagster import (
    DagsterInstance,
    DagsterRun,
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

from hudi_ingest.exceptions import (
    IngestError,
    KafkaUnreachable,
    LedgerUnreachable,
    NothingToDo,
    OffsetsLost,
    TableUnreachable,
    TransactionInFlight,
)
from hudi_ingest.exceptions.problems import listed
from hudi_ingest.faults import reach
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.silent_clusters import answering_cluster
from hudi_ingest.ledger import Ledger, Owner
from hudi_ingest.ledger.counters import TICK_FAILURES
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.coordinator.cursor import SensorCursor, fingerprint
from hudi_ingest.orchestration.coordinator.dead_runs import UnfinishedRun, report_dead, why_dead
from hudi_ingest.orchestration.coordinator.quiet_ticks import (
    active_runs,
    busy_text,
    forget,
    remember_busy,
    remember_idle,
    still_quiet,
)
from hudi_ingest.orchestration.coordinator.request_turns import FAILED, requested_transaction
from hudi_ingest.orchestration.jobs.catalog_job import catalog_run
from hudi_ingest.orchestration.jobs.op_settings import ACTIVE, max_runtime, run_is_finished
from hudi_ingest.orchestration.jobs.run_config import BEGIN, executor_tags, job_name, run_config, run_tags
from hudi_ingest.orchestration.jobs.transaction_job import OneAssetJob
from hudi_ingest.orchestration.reports.tick_reports import report, report_repairs
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.pending_approval import pending_approval
from hudi_ingest.transaction.plan.situation import (
    Situation,
    keep_group_told,
    keep_letters_copied,
    leased_until_of,
    mark_if_committed,
    observe,
    plan_next,
)
from hudi_ingest.transaction.timeline_repair import repair_timeline

_LOG = logging.getLogger(__name__)
LONGEST_BACKOFF_SECONDS = 900
_SHOWN_RANGES = 10
_PASSES = (KafkaUnreachable, LedgerUnreachable, TableUnreachable, TransactionInFlight)
"""Errors that may be gone by the next tick."""


def coordinator_sensor(pipeline: Pipeline, jobs: Sequence[JobDefinition | OneAssetJob]) -> SensorDefinition:
    """Build the pipeline's sensor, which runs these jobs. It starts no JVM, and each tick plans from the table. The cursor only
    serves messages and backoff, and may be lost."""

    @sensor(
        name=sensor_name(pipeline.name),
        jobs=jobs,
        minimum_interval_seconds=pipeline.transaction.tick_seconds,
        default_status=DefaultSensorStatus.RUNNING if pipeline.enabled else DefaultSensorStatus.STOPPED,
        description=f"Begins a transaction of {pipeline.name} at most every {pipeline.transaction.interval_seconds:g} s.",
    )
    def coordinator(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        quiet = still_quiet(pipeline, context.instance)
        if quiet is not None:
            return SkipReason(quiet)
        outcome = tick(
            pipeline, context.instance, datetime.now(timezone.utc), context.cursor or "", context.update_cursor
        )
        if isinstance(outcome, RunRequest):
            context.log.info(request_text(outcome))
        for tag in (tags.STOPPED, tags.RESET):
            if isinstance(outcome, RunRequest) and tag in outcome.tags:
                context.log.warning(f"{tag}: {outcome.tags[tag]}; see the log of the run's begin op for the reason")
        return outcome

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
    """Decide what to do at `now`: request one run, or say why none. Either way, first report the checks, the lag and the commits of
    others to Dagster. Raises OffsetsLost, TopicMissing and KafkaRefused: the tick fails, loudly."""
    busy = ""
    observed: Situation | IngestError
    forget(pipeline)
    with ExitStack() as resources:
        try:
            ledger = resources.enter_context(Ledger.open(Home.from_environment().ledger_url))
            with _failure_counted(pipeline, ledger):
                ledger.note_tick(pipeline.name, now)
                # Whatever comes after reads the timeline.
                report_repairs(pipeline, instance, repair_timeline(pipeline, ledger))
                # Must precede observe(): a run that ended between would let a plan begin at offsets that are already committed.
                busy = _busy(pipeline, instance, ledger, now)
                cluster = resources.enter_context(answering_cluster(pipeline.source))
                observed = observe(pipeline, cluster)
        except IngestError as error:
            # Without its frames, which refer back to this error: a client that was refused would keep trying to log in until
            # the next garbage collection.
            observed = error.with_traceback(None)
        state = SensorCursor.read(cursor).after(fingerprint(pipeline), isinstance(observed, IngestError), now)
        remember(state.to_text())
        try:
            report(pipeline, instance, observed, now, busy, state.blind_since)
        except _PASSES as error:
            return SkipReason(busy or str(error))
        if busy:
            remember_busy(pipeline)
            return SkipReason(busy)
        if isinstance(observed, _PASSES):
            return SkipReason(str(observed))
        if isinstance(observed, IngestError):
            try:
                raise observed
            finally:
                del observed
        try:
            return _next_run(pipeline, instance, ledger, cluster, observed, state.changed_at, now)
        except _PASSES as error:
            return SkipReason(str(error))


@contextmanager
def _failure_counted(pipeline: Pipeline, ledger: Ledger) -> Iterator[None]:
    """Count a tick that could not look. The error of the block is raised either way."""
    try:
        yield
    except IngestError as error:
        try:
            ledger.count(pipeline.table.base_path, {f"{TICK_FAILURES}{type(error).__name__}": 1})
        except IngestError as uncounted:
            _LOG.warning("%s: the ledger could not count a failed tick: %s", pipeline.name, uncounted)
        raise


def _next_run(
    pipeline: Pipeline,
    instance: DagsterInstance,
    ledger: Ledger,
    cluster: KafkaCluster,
    situation: Situation,
    changed_at: float,
    now: datetime,
) -> RunRequest | SkipReason:
    """Request the next live transaction or the next one of a request, or say why neither. `changed_at`: when the pipeline file
    last changed."""
    lost: OffsetsLost | None = None
    plan: TransactionPlan | None = None
    wait: str | None
    try:
        plan = plan_next(pipeline, situation, now=now)
    except NothingToDo as error:
        wait = error.reason
    except OffsetsLost as error:
        # Requests may still cover ranges before the lost offsets.
        lost, wait = error, str(error)
    if plan is None:
        keep_group_told(pipeline, situation, cluster)
        keep_letters_copied(pipeline, situation)
    else:
        wait = _backoff_left(pipeline, _failed_runs(instance, pipeline, plan.sequence, changed_at), now)
    requested: TransactionPlan | str | None = None
    unapproved = pending_approval(pipeline, ledger, PipelineTable(pipeline).timeline)
    if unapproved is not None:
        # Neither a live transaction nor a request's could begin.
        plan, wait = None, unapproved.sentence
    else:
        requested = requested_transaction(
            pipeline,
            instance,
            ledger,
            situation,
            plan is not None and not wait,
            lambda failed: _backoff_left(pipeline, failed, now),
        )
    if isinstance(requested, TransactionPlan):
        plan = requested
    elif plan is None or wait:
        # A transaction syncs the catalog itself.
        resync = catalog_run(pipeline, instance, situation, now)
        if resync is not None:
            return resync
        if lost is not None:
            raise lost
        idle = not situation.lag.total and not situation.leaderless
        if requested is None and situation.committed.checkpoint is not None and idle:
            remember_idle(pipeline, situation, ledger, str(wait))
        return SkipReason(f"{wait}; {requested}" if requested else wait)
    reach("tick_planned")
    remember_busy(pipeline)
    return RunRequest(
        # Dagster never reuses a run key, not even after a failed run; a transaction's id is used only once.
        run_key=plan.transaction_id,
        job_name=job_name(pipeline),
        run_config=run_config(pipeline, plan),
        tags={**run_tags(pipeline, plan), **executor_tags(pipeline, plan), tags.LEDGER: ledger.place},
    )


def request_text(request: RunRequest) -> str:
    """Say what the requested run will do, in one sentence."""
    if not request.run_config:
        return "the catalog lacks something that the table has; a run of its job syncs it"
    (begin,) = (op["ops"][BEGIN]["config"] for op in request.run_config["ops"].values())
    ranges = [
        f"{slice_['topic']}:{slice_['partition']} [{slice_['start']},{slice_['end']})" for slice_ in begin["slices"]
    ]
    ranges = [text for text, slice_ in zip(ranges, begin["slices"], strict=True) if slice_["end"] > slice_["start"]]
    offsets = sum(slice_["end"] - slice_["start"] for slice_ in begin["slices"])
    return f"{begin['transaction_id']} will take {offsets:,} offsets: {listed(ranges, _SHOWN_RANGES) or 'none'}"


def backoff_seconds(failures: int, interval_seconds: float) -> float:
    """Return how long to wait after `failures` failed runs in a row: not at all after the first, then doubling."""
    if failures < 2:
        return 0.0
    return float(min(LONGEST_BACKOFF_SECONDS, interval_seconds * 2 ** min(failures - 2, 20)))


def _busy(pipeline: Pipeline, instance: DagsterInstance, ledger: Ledger, now: datetime) -> str:
    """Say why no run may be launched, whatever is waiting; "" if one may."""
    active = _active_run(instance, pipeline, ledger, now)
    if active is not None:
        return busy_text(active)
    return _held_elsewhere(pipeline, instance, ledger) or ""


def _active_run(instance: DagsterInstance, pipeline: Pipeline, ledger: Ledger, now: datetime) -> DagsterRun | None:
    """Return a run of the pipeline that has not ended and may still make progress; report dead ones. A run launched from the asset's
    page has our tags only once it has begun. Raises LedgerUnreachable."""
    # Those with our tag first: while one is active, Dagster need not load the runs of all pipelines.
    tagged = instance.get_run_records(active_runs(pipeline))
    alive = _first_alive(instance, pipeline, ledger, tagged, now)
    if alive is not None:
        return alive
    selected = [
        record
        for record in instance.get_run_records(RunsFilter(statuses=ACTIVE))
        if table_key(pipeline) in (record.dagster_run.asset_selection or ())
    ]
    return _first_alive(instance, pipeline, ledger, selected, now)


def _first_alive(
    instance: DagsterInstance, pipeline: Pipeline, ledger: Ledger, records: Iterable[RunRecord], now: datetime
) -> DagsterRun | None:
    for record in records:
        reason = _why_dead(pipeline, ledger, record, now)
        if reason is None:
            return record.dagster_run
        _report_dead(instance, pipeline, record.dagster_run.run_id, reason)
    return None


def _why_dead(pipeline: Pipeline, ledger: Ledger, record: RunRecord, now: datetime) -> str | None:
    run, owner = record.dagster_run, Owner.dagster_run(record.dagster_run.run_id)
    since = datetime.fromtimestamp(record.start_time, timezone.utc) if record.start_time else record.update_timestamp
    newest = next((row for row in ledger.history(pipeline.name) if row.owner == owner), None)
    leased_until = leased_until_of(pipeline, newest.instant) if newest and newest.instant else None
    return why_dead(UnfinishedRun(run.status, since), newest, leased_until, float(max_runtime(pipeline)), now)


def _report_dead(instance: DagsterInstance, pipeline: Pipeline, run_id: str, reason: str) -> None:
    # Look again, it may have ended since. A run that also materializes other assets has more to do than our transaction.
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished and run.job_name == job_name(pipeline):
        report_dead(instance, run, reason)


def _held_elsewhere(pipeline: Pipeline, instance: DagsterInstance, ledger: Ledger) -> str | None:
    """Say why a run would have to wait for a process outside this Dagster, such as `hudi-ingest run`.

    If that process is gone, record in the ledger a commit that landed before its op could record it.
    """
    row = ledger.open_transaction(pipeline.table.base_path)
    if row is None:
        return None
    if is_over(row, run_is_finished(instance)):
        # On an idle topic no later run would correct this.
        mark_if_committed(pipeline, ledger, row.transaction_id)
        return None
    return (
        f"{row.owner} is working on transaction {row.transaction_id}, until {row.deadline:%H:%M:%S} UTC at the latest"
    )


def _failed_runs(
    instance: DagsterInstance, pipeline: Pipeline, sequence: int, changed_at: float
) -> list[tuple[str, float]]:
    """Return the runs, as id and end, that tried this live transaction and failed, newest first: until it is committed, its number
    stays. Runs that ended before `changed_at`, when the pipeline file changed, say nothing about the current file."""
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
    """Say why no run may follow those that `failed` in a row, newest first; None if one may."""
    seconds = backoff_seconds(len(failed), pipeline.transaction.interval_seconds)
    if not seconds:
        return None
    run_id, ended = failed[0]
    due = datetime.fromtimestamp(ended, timezone.utc) + timedelta(seconds=seconds)
    if now >= due:
        return None
    return (
        f"the last {len(failed)} runs of this transaction failed; see the error of the newest, {run_id[:8]}, or the check "
        f"runs_succeed. The next attempt is due in {(due - now).total_seconds():.0f} s. To try at once, change the pipeline file, "
        f"press Materialize on the asset's page, or use `hudi-ingest run {pipeline.name}`"
    )
