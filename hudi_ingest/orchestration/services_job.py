"""The table services job and its daily schedule, which is off until turned on. It runs beside transactions."""

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
    """Build the job that merges the table's small files and deletes replaced ones."""

    @op(
        name=f"{pipeline.name}__services",
        description="Clusters small files and cleans replaced ones, while readers and transactions continue.",
        out=Out(Nothing),
        required_resource_keys={SPARK, LEDGER},
        retry_policy=retry_policy(pipeline),
    )
    def services(context: OpExecutionContext, config: ServicesConfig) -> Output[None]:
        with as_dagster_failures(), getattr(context.resources, LEDGER).open() as ledger:
            spark = getattr(context.resources, SPARK).spark_session
            result = services_for(pipeline, ledger, spark, Home.from_environment()).run(
                cluster=config.cluster, clean=config.clean, report=context.log.info
            )
        metadata = services_metadata(result)
        text = f"Table services: {result.replaced} files became {result.written}."
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
    """Return the schedule that runs both services every night, once turned on."""
    return daily_schedule(serving, DAILY, f"Clusters and cleans the table of {pipeline.name}")


def services_metadata(result: ServicesResult) -> dict[str, Any]:
    """Return the metadata of the run and the asset. Its names are plots of the asset, separate from those of commits."""
    columns = [TableColumn("instant", "string"), *(TableColumn(figure, "int") for figure in _FIGURES)]
    rows = [
        {"instant": clustering.instant, **{name: getattr(clustering, name) for name in _FIGURES}}
        for clustering in result.clusterings
    ]
    return {
        "services/files replaced": result.replaced,
        "services/files written": result.written,
        "services/bytes written": result.size_bytes,
        **({} if result.cleaned is None else {"services/files cleaned": result.cleaned}),
        "clusterings": metadata_table(columns, rows),
    }


_FIGURES = ("replaced", "written", "rows", "size_bytes")
