"""The job that syncs a table to its catalog. Commits sync by themselves; the coordinator runs it after a failure."""

from datetime import datetime

from dagster import (
    DagsterInstance,
    JobDefinition,
    Nothing,
    OpExecutionContext,
    Out,
    RunRequest,
    RunsFilter,
    job,
    op,
)

from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.jobs.failures import as_dagster_failures
from hudi_ingest.orchestration.jobs.op_settings import ACTIVE, NO_RUN_RETRIES
from hudi_ingest.orchestration.jobs.resources import SPARK
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import Situation
from hudi_ingest.transaction.run import catalog_syncer

MOST_SECONDS = 600
"""A run of the job takes a minute at most; one that has not ended after this long is dead."""
_SECONDS_A_KEY = 60


def catalog_job_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_catalog"


def catalog_job(pipeline: Pipeline) -> JobDefinition:
    """Build the job of a pipeline that has a catalog."""

    @op(
        name=f"{pipeline.name}__catalog",
        description=f"Brings the table's columns and partitions to {pipeline.catalog_place}.",
        out=Out(Nothing),
        required_resource_keys={SPARK},
    )
    def sync(context: OpExecutionContext) -> None:
        with as_dagster_failures():
            table = PipelineTable(pipeline)
            news = catalog_syncer(pipeline, table, getattr(context.resources, SPARK).spark_session)(
                table.timeline.completed()
            )
        context.log.info(f"synced: {news}" if news else "nothing to sync, or the last try was a moment ago")

    @job(
        name=catalog_job_name(pipeline),
        description=f"Syncs {pipeline.name} to {pipeline.catalog_place}, if it has anything new for it.",
        tags={
            tags.PIPELINE_CATALOG: pipeline.name,
            tags.MAX_RUNTIME: str(MOST_SECONDS),
            tags.MAX_RETRIES: NO_RUN_RETRIES,
            tags.IN_PROCESS: "true",
        },
    )
    def run() -> None:
        sync()

    return run


def catalog_run(
    pipeline: Pipeline, instance: DagsterInstance, situation: Situation, now: datetime
) -> RunRequest | None:
    """Request a run of the job if the catalog lacks something and a sync is due. Raises TableUnreachable."""
    if pipeline.catalog is None or not situation.committed.commits:
        return None
    state, commits = read_state(PipelineTable(pipeline).storage), situation.committed.commits
    if not state.news(pipeline.catalog_place, commits) or not state.may_try(now):
        return None
    records = instance.get_run_records(
        RunsFilter(tags={tags.PIPELINE_CATALOG: pipeline.name}, statuses=ACTIVE), limit=1
    )
    if any(now.timestamp() - record.create_timestamp.timestamp() < MOST_SECONDS for record in records):
        return None
    # Dagster never reuses a run key, and a run may die before it can note that it failed.
    key = f"{pipeline.name}-catalog-{int(now.timestamp()) // _SECONDS_A_KEY}"
    return RunRequest(run_key=key, job_name=catalog_job_name(pipeline))
