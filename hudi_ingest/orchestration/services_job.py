"""Table services as a job, and its daily schedule, which is off until somebody turns it on. They run beside transactions."""

from datetime import time
from typing import Any

from dagster import (
    AssetObservation,
    Config,
    JobDefinition,
    Nothing,
    OpExecutionContext,
    Out,
    Output,
    ScheduleDefinition,
    TableColumn,
    job,
    op,
)
from pydantic import Field

from hudi_ingest.home.folder import Home
from hudi_ingest.operations.table_services import ServicesResult, services_for
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.daily_schedule import daily_schedule
from hudi_ingest.orchestration.failures import as_dagster_failures
from hudi_ingest.orchestration.materialization import metadata_table
from hudi_ingest.orchestration.op_settings import retry_policy
from hudi_ingest.orchestration.resources import LEDGER, SPARK
from hudi_ingest.pipeline.pipeline import Pipeline

DAILY = time(2, 30)
MOST_SECONDS = 6 * 3600


class ServicesConfig(Config):
    """Which services to run."""

    cluster: bool = Field(default=True, description="Merge small files into large ones")
    clean: bool = Field(default=True, description="Delete files that were replaced table.retain_commits ago")


def services_job(pipeline: Pipeline) -> JobDefinition:
    """Merges the table's small files and deletes replaced ones."""

    @op(
        name=f"{pipeline.name}__services",
        description="Clusters small files and cleans replaced ones; readers and transactions go on meanwhile.",
        out=Out(Nothing),
        required_resource_keys={SPARK, LEDGER},
        retry_policy=retry_policy(pipeline),
    )
    def services(context: OpExecutionContext, config: ServicesConfig) -> Output[None]:
        with as_dagster_failures(), context.resources.ledger.open() as ledger:
            spark = context.resources.pyspark.spark_session
            done = services_for(pipeline, ledger, spark, Home.from_environment()).run(
                cluster=config.cluster, clean=config.clean, report=context.log.info
            )
        metadata = services_metadata(done)
        text = f"Table services: {done.replaced} files became {done.written}."
        context.log_event(AssetObservation(table_key(pipeline), description=text, metadata=metadata))
        return Output(None, metadata=metadata)

    @job(
        name=f"{pipeline.name}_services",
        description=f"Merges small files of {pipeline.name} into large ones, and deletes what was replaced.",
        tags={tags.PIPELINE_SERVICES: pipeline.name, tags.MAX_RUNTIME: str(MOST_SECONDS)},
    )
    def run() -> None:
        services()

    return run


def services_schedule(pipeline: Pipeline, serving: JobDefinition) -> ScheduleDefinition:
    """Both services every night, once it is turned on."""
    return daily_schedule(serving, DAILY, f"Clusters and cleans the table of {pipeline.name}")


def services_metadata(done: ServicesResult) -> dict[str, Any]:
    """What the run and the asset show. The names are the asset's own plots, apart from those of commits."""
    columns = [TableColumn("instant", "string"), *(TableColumn(each, "int") for each in _FIGURES)]
    rows = [{"instant": each.instant, **{name: getattr(each, name) for name in _FIGURES}} for each in done.clusterings]
    return {
        "services/files replaced": done.replaced,
        "services/files written": done.written,
        "services/bytes written": done.size_bytes,
        **({} if done.cleaned is None else {"services/files cleaned": done.cleaned}),
        "clusterings": metadata_table(columns, rows),
    }


_FIGURES = ("replaced", "written", "rows", "size_bytes")
