"""The coordinator: one sensor per pipeline that turns the table's and the broker's offsets into the next run."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    JobDefinition,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from hudi_ingest.config import TICK_SECONDS, Pipeline
from hudi_ingest.coordinator import (
    keep_group_told,
    keep_letters_copied,
    mark_if_committed,
    observe,
    plan_next,
)
from hudi_ingest.exceptions import IngestError, KafkaUnreachable, LedgerUnreachable, TableUnreachable
from hudi_ingest.faults import reach
from hudi_ingest.home import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.check_reports import report_checks, report_trouble
from hudi_ingest.orchestration.run_config import BEGIN, executor_tags, run_config, run_tags
from hudi_ingest.orchestration.table_asset import run_is_finished, table_key
from hudi_ingest.planning import Skip
from hudi_ingest.transaction import is_over

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
    """The pipeline's sensor. It starts no JVM; each tick plans anew from the table, so it needs no cursor."""

    @sensor(
        name=sensor_name(pipeline),
        job=job,
        minimum_interval_seconds=TICK_SECONDS,
        description=f"Begins a transaction of {pipeline.name} at most every {pipeline.transaction.interval_seconds:g} s.",
    )
    def coordinator(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        found = tick(pipeline, context.instance, datetime.now(timezone.utc))
        if isinstance(found, RunRequest):
            context.log.info(request_text(found))
        for tag in (tags.STOPPED, tags.RESET):
            if isinstance(found, RunRequest) and tag in found.tags:
                context.log.warning(f"{tag}: {found.tags[tag]}; the run's begin op says why")
        return found

    return coordinator


def sensor_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_coordinator"


def tick(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """What to do at `now`: one run, or the reason why none. Raises OffsetsLost, TopicMissing and KafkaRefused: the tick fails, loudly."""
    active = _active_run(instance, pipeline)
    if active is not None:
        return SkipReason(
            f"run {active.run_id[:8]} ({active.status.value.lower()}) has the transaction "
            f"{active.tags.get(tags.TRANSACTION, 'that it will plan itself')}; one at a time"
        )
    try:
        held = _held_elsewhere(pipeline, instance)
        if held is not None:
            return SkipReason(held)
        situation = observe(pipeline)
    except IngestError as error:
        report_trouble(pipeline, instance, error, now)
        if isinstance(error, _PASSES):
            return SkipReason(str(error))
        raise
    try:
        report_checks(pipeline, instance, situation, now)
        plan = plan_next(pipeline, situation, now=now)
        if isinstance(plan, Skip):
            keep_group_told(pipeline, situation)
            keep_letters_copied(pipeline, situation)
    except _PASSES as error:
        return SkipReason(str(error))
    if isinstance(plan, Skip):
        return SkipReason(plan.reason)
    failed = _failed_runs(instance, pipeline, plan.sequence)
    wait = _backoff_left(instance, pipeline, failed, now)
    if wait:
        return SkipReason(wait)
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


def _active_run(instance: DagsterInstance, pipeline: Pipeline) -> DagsterRun | None:
    """A run of the pipeline that has not ended. One launched from the asset's page has our tags only once it has begun."""
    for run in instance.get_runs(RunsFilter(statuses=_ACTIVE)):
        if run.tags.get(tags.PIPELINE) == pipeline.name or table_key(pipeline) in (run.asset_selection or ()):
            return run
    return None


def _held_elsewhere(pipeline: Pipeline, instance: DagsterInstance) -> str | None:
    """Why a run would have to wait for somebody outside this Dagster, such as `hudi-ingest run`.

    Where nobody is left, the ledger is told of a commit that landed before its op could.
    """
    ledger = Ledger.open(Home.from_environment().ledger_url)
    try:
        row = ledger.open_transaction(pipeline.table.base_path)
        if row is None:
            return None
        if is_over(row, run_is_finished(instance)):
            # On an idle topic no further run would come to put this right.
            mark_if_committed(pipeline, ledger, row.transaction_id)
            return None
    finally:
        ledger.dispose()
    return f"{row.owner} has the transaction {row.transaction_id}, at the longest until {row.deadline:%H:%M:%S} UTC"


def _failed_runs(instance: DagsterInstance, pipeline: Pipeline, sequence: int) -> list[DagsterRun]:
    """Runs that tried this very transaction and failed, newest first: while it is not committed, its number stays."""
    return list(
        instance.get_runs(
            RunsFilter(
                tags={tags.TABLE: pipeline.table.base_path, tags.SEQUENCE: str(sequence)},
                statuses=[DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED],
            )
        )
    )


def _backoff_left(instance: DagsterInstance, pipeline: Pipeline, failed: list[DagsterRun], now: datetime) -> str | None:
    seconds = backoff_seconds(len(failed), pipeline.transaction.interval_seconds)
    if not seconds:
        return None
    record = instance.get_run_record_by_id(failed[0].run_id)
    if record is None or record.end_time is None:
        return None
    due = datetime.fromtimestamp(record.end_time, timezone.utc) + timedelta(seconds=seconds)
    if now >= due:
        return None
    return (
        f"the last {len(failed)} runs of this transaction failed, the newest is {failed[0].run_id[:8]}: see its error. "
        f"The next attempt is due in {(due - now).total_seconds():.0f} s"
    )
