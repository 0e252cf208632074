"""The job that drops table partitions older than `table.ttl`, and its nightly schedule; both exist only with that setting."""

from datetime import datetime, time, timezone
from typing import Any

from dagster import (
    AssetObservation,
    Config,
    DefaultScheduleStatus,
    JobDefinition,
    MetadataValue,
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

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.operations.upkeep.partition_ttl import TtlResult, ttl_for
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.jobs.daily_schedule import daily_schedule
from hudi_ingest.orchestration.jobs.failures import as_dagster_failures
from hudi_ingest.orchestration.jobs.op_settings import retry_policy
from hudi_ingest.orchestration.jobs.resources import LEDGER, SPARK
from hudi_ingest.orchestration.reports.materialization import metadata_table
from hudi_ingest.pipeline.pipeline import Pipeline

DAILY = time(1, 30)
MOST_SECONDS = 3600


class TtlConfig(Config):
    """What to do. Without config, expired partitions are dropped."""

    plan_only: bool = Field(default=False, description="Only show which partitions would be dropped")
    savepoint: bool = Field(default=False, description="Make a savepoint before; nothing is archived while it exists")


def ttl_job(pipeline: Pipeline) -> JobDefinition:
    """Build the job. Its run's metadata has the partitions, and so has the asset's observation if any was dropped."""

    @op(
        name=f"{pipeline.name}__ttl",
        description="Drops table partitions that are older than table.ttl, while readers and transactions continue.",
        out=Out(Nothing),
        required_resource_keys={SPARK, LEDGER},
        retry_policy=retry_policy(pipeline),
    )
    def ttl(context: OpExecutionContext, config: TtlConfig) -> Output[None]:
        with as_dagster_failures(), getattr(context.resources, LEDGER).open() as ledger:
            spark = getattr(context.resources, SPARK).spark_session
            result = ttl_for(pipeline, ledger, spark).run(
                datetime.now(timezone.utc), context.log.info, plan_only=config.plan_only, savepoint=config.savepoint
            )
        metadata = ttl_metadata(result)
        if result.instant is not None:
            sentence = f"Retention: {counted(len(result.expired), 'partition')} dropped."
            context.log_event(AssetObservation(table_key(pipeline), description=sentence, metadata=metadata))
        return Output(None, metadata=metadata)

    @job(
        name=f"{pipeline.name}_ttl",
        description=f"Drops partitions of {pipeline.name} that are older than table.ttl.",
        tags={tags.PIPELINE_TTL: pipeline.name, tags.MAX_RUNTIME: str(MOST_SECONDS)},
    )
    def run() -> None:
        ttl()

    return run


def ttl_schedule(pipeline: Pipeline, dropping: JobDefinition) -> ScheduleDefinition:
    """Return the nightly schedule. On from the start if the pipeline is, because the pipeline file asks for it."""
    on = DefaultScheduleStatus.RUNNING if pipeline.enabled else DefaultScheduleStatus.STOPPED
    return daily_schedule(dropping, DAILY, f"Drops partitions of {pipeline.name} older than table.ttl", status=on)


def ttl_metadata(result: TtlResult) -> dict[str, Any]:
    """Return the metadata of the run and the asset."""
    rows = [
        {
            "partition": partition.path,
            "ended_at": f"{partition.ended_at:%Y-%m-%d %H:%M}" if partition.ended_at else "",
            "file_groups": partition.file_groups,
            "bytes": partition.size_bytes,
        }
        for partition in result.expired
    ]
    return {
        "ttl/partitions expired": len(result.expired),
        "ttl/bytes expired": result.size_bytes,
        "ttl/partitions kept": result.kept,
        **({"instant": result.instant} if result.instant else {}),
        **({"savepoint": result.savepoint} if result.savepoint else {}),
        **({"age unknown": MetadataValue.text(", ".join(result.unknown))} if result.unknown else {}),
        "partitions": metadata_table(_COLUMNS, rows),
    }


_COLUMNS = [
    TableColumn("partition", "string"),
    TableColumn("ended_at", "string"),
    TableColumn("file_groups", "int"),
    TableColumn("bytes", "int"),
]
