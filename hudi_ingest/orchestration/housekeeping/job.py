"""The housekeeping job of a code location, and its schedule, which is on from the start."""

from datetime import datetime, timedelta, timezone
from functools import cache

from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultScheduleStatus,
    Definitions,
    MetadataValue,
    Nothing,
    OpExecutionContext,
    Out,
    Output,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    job,
    op,
    schedule,
)

from hudi_ingest.home.folder import Home
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.housekeeping.housekeeping import Housekeeping
from hudi_ingest.orchestration.jobs.op_settings import ACTIVE, NO_RUN_RETRIES, as_dagster_failures
from hudi_ingest.orchestration.jobs.resources import LEDGER, LEDGER_ONLY
from hudi_ingest.orchestration.pipeline_definitions import OwnDefinitions
from hudi_ingest.orchestration.reports.checks import why_failed
from hudi_ingest.pipeline.code_location import load_housekeeping_settings
from hudi_ingest.pipeline.folder import load_each

JOB = "hudi_ingest_housekeeping"
_MOST_SECONDS = 3600
_APART = timedelta(minutes=30)


@op(
    name=f"{JOB}_op",
    description="Deletes old runs, events, ticks and rows of the ledger; see housekeeping.yaml.",
    out=Out(Nothing),
    required_resource_keys={LEDGER},
)
def _housekeeping(context: OpExecutionContext) -> Output[None]:
    with as_dagster_failures(), getattr(context.resources, LEDGER).open() as ledger:
        home = Home.from_environment()
        settings = load_housekeeping_settings(home)
        own = OwnDefinitions.of(context.repository_def)
        loaded, broken = load_each(home.pipelines)
        pipelines = [pipeline for pipeline in loaded if pipeline.name in own.pipelines]
        housekeeping = Housekeeping(settings, own, ledger, context.instance, _location(context.run), pipelines, broken)
        done = housekeeping.run(datetime.now(timezone.utc), context.log.info)
    context.log.info(done.sentence)
    metadata = {
        name.replace("_", " "): MetadataValue.int(value) if type(value) is int else value
        for name, value in done.to_dict().items()
    }
    return Output(None, metadata=metadata)


@job(
    name=JOB,
    description="Deletes expired runs and events of the code location's pipelines in Dagster, and their expired rows in the ledger.",
    tags={
        tags.HOUSEKEEPING: "true",
        tags.MAX_RUNTIME: str(_MOST_SECONDS),
        tags.MAX_RETRIES: NO_RUN_RETRIES,
        tags.IN_PROCESS: "true",
    },
)
def HOUSEKEEPING_JOB() -> None:
    """The same object in all definitions of a code location, so that they can be merged: the run finds the pipelines."""
    _housekeeping()


def housekeeping_definitions(enabled: bool, suffix: str = "") -> Definitions:
    """Return the job and its schedule, whose runs fail while housekeeping.yaml is wrong. `enabled`: whether it is on from the start."""
    return Definitions(
        jobs=[HOUSEKEEPING_JOB],
        schedules=[housekeeping_schedule(enabled, f"{JOB}_hourly{suffix}")],
        resources=LEDGER_ONLY,
    )


@cache
def housekeeping_schedule(enabled: bool, name: str) -> ScheduleDefinition:
    """Return the schedule that runs the job once an hour. `name`: of its own if a code location merges several."""

    @schedule(
        name=name,
        job=HOUSEKEEPING_JOB,
        cron_schedule="17 * * * *",
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING if enabled else DefaultScheduleStatus.STOPPED,
        description="Deletes old runs, events, ticks and rows of the ledger; see housekeeping.yaml. Once an hour.",
    )
    def hourly(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        return next_run(context.instance, datetime.now(timezone.utc))

    return hourly


def next_run(instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Request a run, unless one has not ended, or has just begun: the code location may have several schedules."""
    ours = {tags.HOUSEKEEPING: "true"}
    active = instance.get_runs(RunsFilter(tags=ours, statuses=ACTIVE), limit=1)
    if active:
        return SkipReason(f"run {active[0].run_id[:8]} of housekeeping has not ended")
    recent = instance.get_runs(RunsFilter(tags=ours, created_after=now - _APART), limit=1)
    if recent:
        return SkipReason(f"run {recent[0].run_id[:8]} has done the housekeeping in the last half hour")
    return RunRequest()


def why_it_failed(instance: DagsterInstance) -> str:
    """Why the newest run of housekeeping that has ended failed; "" if it succeeded, or none has ended."""
    statuses = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
    runs = instance.get_runs(RunsFilter(tags={tags.HOUSEKEEPING: "true"}, statuses=statuses), limit=1)
    if not runs or runs[0].status is DagsterRunStatus.SUCCESS:
        return ""
    reason = why_failed(instance, runs[0].run_id) or "its page says why"
    return (
        f"The last run of {JOB}, {runs[0].run_id[:8]}, failed: {reason} While it fails, old runs, events and rows of the ledger pile "
        "up. The next one comes within an hour; `hudi-ingest housekeeping` does its work now."
    )


def _location(run: DagsterRun) -> str | None:
    origin = run.remote_job_origin
    return origin.repository_origin.code_location_origin.location_name if origin else None
