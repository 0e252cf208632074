"""The table services job, which runs beside transactions, and its schedules: a daily one, and for a keyed table one that runs a
compaction whenever it is due."""

from collections.abc import Sequence
from datetime import datetime, time, timezone
from itertools import takewhile
from typing import Any
from zlib import crc32

from dagster import (
    AssetObservation,
    Config,
    DagsterInstance,
    DagsterRunStatus,
    DefaultScheduleStatus,
    JobDefinition,
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
    TableColumn,
    job,
    op,
    schedule,
)
from pydantic import Field

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.read_amplification import read_amplification, why_due
from hudi_ingest.hudi.services.table_services import Clustering, Compaction
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.operations.upkeep.table_services import ServicesResult, services_for
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.coordinator.runs import backoff_seconds
from hudi_ingest.orchestration.jobs.daily_schedule import daily_schedule
from hudi_ingest.orchestration.jobs.failures import as_dagster_failures
from hudi_ingest.orchestration.jobs.op_settings import ACTIVE, retry_policy
from hudi_ingest.orchestration.jobs.resources import LEDGER, SPARK
from hudi_ingest.orchestration.reports.materialization import metadata_table
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import leased_until_of

DAILY_HOUR = 2
MOST_SECONDS = 6 * 3600


class ServicesConfig(Config):
    """Which services to run."""

    cluster: bool | None = Field(
        default=None, description="Merge small files into large ones; by default if the table's mode is append"
    )
    compact: bool | None = Field(
        default=None, description="Merge log files into base files; by default if the table's mode is upsert"
    )
    clean: bool = Field(default=True, description="Delete files that were replaced table.retain_commits ago")


def services_job(pipeline: Pipeline) -> JobDefinition:
    """Build the job that merges the table's small files or log files and deletes replaced ones."""
    files = "log files" if pipeline.table.is_keyed else "small files"

    @op(
        name=services_op_name(pipeline),
        description=f"Merges {files} and cleans replaced ones, while readers and transactions continue.",
        out=Out(Nothing),
        required_resource_keys={SPARK, LEDGER},
        retry_policy=retry_policy(pipeline),
    )
    def services(context: OpExecutionContext, config: ServicesConfig) -> Output[None]:
        with as_dagster_failures(), getattr(context.resources, LEDGER).open() as ledger:
            spark = getattr(context.resources, SPARK).spark_session
            result = services_for(pipeline, ledger, spark, Home.from_environment()).run(
                cluster=config.cluster, compact=config.compact, clean=config.clean, report=context.log.info
            )
        metadata = services_metadata(result)
        context.log_event(
            AssetObservation(table_key(pipeline), description=services_sentence(result), metadata=metadata)
        )
        return Output(None, metadata=metadata)

    @job(
        name=f"{pipeline.name}_services",
        description=f"Merges {files} of {pipeline.name} into large ones, and deletes what was replaced.",
        tags={tags.PIPELINE_SERVICES: pipeline.name, tags.MAX_RUNTIME: str(MOST_SECONDS)},
    )
    def run() -> None:
        services()

    return run


def services_op_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}__services"


def services_schedule(pipeline: Pipeline, serving: JobDefinition) -> ScheduleDefinition:
    """Return the schedule that runs all services of the table every night: on from the start if nothing else merges the table's
    files, else once turned on. Each table has its own minute, so that many do not keep transactions from the queue's places."""
    merges = "Compacts" if pipeline.table.is_keyed else "Clusters"
    is_on = pipeline.enabled and not pipeline.table.is_keyed
    return daily_schedule(
        serving,
        time(DAILY_HOUR, crc32(pipeline.name.encode()) % 60),
        f"{merges} and cleans the table of {pipeline.name}",
        status=DefaultScheduleStatus.RUNNING if is_on else DefaultScheduleStatus.STOPPED,
    )


def compaction_schedule(pipeline: Pipeline, serving: JobDefinition) -> ScheduleDefinition:
    """Return the schedule that runs a compaction whenever it is due by `table.compaction`. Each tick reads the table's timeline;
    it starts no JVM. On from the start, because without it queries become slower with each transaction."""

    @schedule(
        name=f"{pipeline.name}_compaction",
        job=serving,
        cron_schedule="* * * * *",
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING if pipeline.enabled else DefaultScheduleStatus.STOPPED,
        description=f"Compacts the table of {pipeline.name} when it is due; see table.compaction. Looks every minute.",
    )
    def compact_when_due(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        return compaction_run(pipeline, context.instance, datetime.now(timezone.utc))

    return compact_when_due


def compaction_run(pipeline: Pipeline, instance: DagsterInstance, now: datetime) -> RunRequest | SkipReason:
    """Request a run of the services job that only compacts, or say why none."""
    run_tags = {tags.PIPELINE_SERVICES: pipeline.name}
    active = instance.get_run_records(RunsFilter(tags=run_tags, statuses=ACTIVE), limit=1)
    if active:
        return SkipReason(f"run {active[0].dagster_run.run_id[:8]} of table services has not ended")
    ended = instance.get_run_records(
        RunsFilter(tags=run_tags, statuses=[DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]), limit=10
    )
    failed = [*takewhile(lambda record: record.dagster_run.status is DagsterRunStatus.FAILURE, ended)]
    retry_at = (failed[0].end_time or 0) + backoff_seconds(len(failed), 60) if failed else 0
    if retry_at > now.timestamp():
        return SkipReason(
            f"the last {len(failed)} runs of table services failed; see {failed[0].dagster_run.run_id[:8]}. The next try is due in "
            f"{retry_at - now.timestamp():.0f} s"
        )
    table = PipelineTable(pipeline)
    timeline = table.timeline
    try:
        for instant in timeline.pending_compactions():
            leased_until = leased_until_of(table, instant)
            if leased_until is not None and leased_until > now:
                return SkipReason(
                    f"compaction {instant} is running in a Spark driver, or that driver died; the lease ends at "
                    f"{leased_until:%H:%M:%S} UTC"
                )
        found = read_amplification(timeline.completed() if timeline.exists() else ())
    except TableUnreachable as error:
        return SkipReason(str(error))
    reason = why_due(pipeline.table.compaction, found, now)
    if not reason:
        return SkipReason(f"not due: {counted(found.delta_commits, 'commit')} not compacted, {found.log_bytes:,} bytes")
    config = {"cluster": False, "compact": True, "clean": False}
    return RunRequest(run_config={"ops": {services_op_name(pipeline): {"config": config}}}, tags={tags.REASON: reason})


def services_sentence(result: ServicesResult) -> str:
    """Say in one sentence what the services did."""
    if result.compactions:
        logs = sum(compaction.log_files for compaction in result.compactions)
        groups = sum(compaction.file_groups for compaction in result.compactions)
        return f"Table services: {counted(logs, 'log file')} merged into {counted(groups, 'base file')}."
    return f"Table services: {result.replaced} files became {result.written}."


def services_metadata(result: ServicesResult) -> dict[str, Any]:
    """Return the metadata of the run and the asset. Its names are plots of the asset, separate from those of commits."""
    cleaned = {} if result.cleaned is None else {"services/files cleaned": result.cleaned}
    if result.compactions:
        return {
            "services/log files compacted": sum(compaction.log_files for compaction in result.compactions),
            "services/log bytes compacted": sum(compaction.log_bytes for compaction in result.compactions),
            "services/files written": sum(compaction.file_groups for compaction in result.compactions),
            "services/bytes written": sum(compaction.size_bytes for compaction in result.compactions),
            **cleaned,
            "compactions": _by_instant(result.compactions, _COMPACTED),
        }
    return {
        "services/files replaced": result.replaced,
        "services/files written": result.written,
        "services/bytes written": result.size_bytes,
        **cleaned,
        "clusterings": _by_instant(result.clusterings, _CLUSTERED),
    }


def _by_instant(done: Sequence[Clustering] | Sequence[Compaction], figures: Sequence[str]) -> MetadataValue[Any]:
    columns = [TableColumn("instant", "string"), *(TableColumn(figure, "int") for figure in figures)]
    rows = [
        {"instant": service.instant, **{figure: getattr(service, figure) for figure in figures}} for service in done
    ]
    return metadata_table(columns, rows)


_CLUSTERED = ("replaced", "written", "rows", "size_bytes")
_COMPACTED = ("file_groups", "log_files", "rows", "log_bytes", "size_bytes")
