"""The sweep job and its daily schedule, which is off until turned on.

It may run beside transactions: listing is safe without a lock, and it deletes under the table's lock.
"""

from datetime import time
from typing import Any

from dagster import (
    Config,
    Failure,
    JobDefinition,
    MetadataValue,
    Nothing,
    OpExecutionContext,
    Out,
    Output,
    RunConfig,
    ScheduleDefinition,
    TableColumn,
    job,
    op,
)
from pydantic import Field

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.operations.upkeep.sweep import SweepResult, safe_age, sweep_for
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.jobs.daily_schedule import daily_schedule
from hudi_ingest.orchestration.jobs.failures import as_dagster_failures
from hudi_ingest.orchestration.jobs.op_settings import retry_policy
from hudi_ingest.orchestration.jobs.resources import LEDGER, SPARK
from hudi_ingest.orchestration.reports.materialization import metadata_table
from hudi_ingest.pipeline.pipeline import Pipeline

DAILY = time(3, 30)
MOST_SECONDS = 6 * 3600
_LOGGED_KEPT = 100


class SweepConfig(Config):
    """What to sweep. Without config, nothing is deleted."""

    older_than_hours: float | None = Field(
        default=None, description="Leave younger files alone; default: 6, but at least twice timeout_seconds"
    )
    delete: bool = Field(default=False, description="Delete the files found; otherwise only list them")


def sweep_job(pipeline: Pipeline) -> JobDefinition:
    """Build the job that finds files no transaction needs, and deletes them if its config says so."""

    @op(
        name=f"{pipeline.name}__sweep",
        description="Compares the table's folder with what the table lists.",
        out=Out(Nothing),
        required_resource_keys={SPARK, LEDGER},
        retry_policy=retry_policy(pipeline),
    )
    def sweep(context: OpExecutionContext, config: SweepConfig) -> Output[None]:
        try:
            age = safe_age(pipeline, config.older_than_hours)
        except ValueError as error:
            raise Failure(f"older_than_hours: {error}", allow_retries=False) from error
        with as_dagster_failures(), getattr(context.resources, LEDGER).open() as ledger:
            result = sweep_for(pipeline, ledger, getattr(context.resources, SPARK).spark_session).run(
                age, delete=config.delete, report=context.log.info
            )
        outcome = "deleted" if result.deleted else "found, not deleted"
        context.log.info(f"{counted(len(result.orphans), 'orphan')}, {counted(result.size_bytes, 'byte')}: {outcome}")
        for kept in result.kept[:_LOGGED_KEPT]:
            context.log.info(f"left alone: {kept.file.path}: {kept.reason}")
        return Output(None, metadata=sweep_metadata(result))

    @job(
        name=f"{pipeline.name}_sweep",
        description=f"Finds files in the folder of {pipeline.name} that no transaction needs; deletes them if its config says so.",
        tags={tags.PIPELINE_SWEEP: pipeline.name, tags.MAX_RUNTIME: str(MOST_SECONDS)},
    )
    def run() -> None:
        sweep()

    return run


def sweep_schedule(pipeline: Pipeline, sweeping: JobDefinition) -> ScheduleDefinition:
    """Return the schedule that deletes orphans every night, once turned on."""
    config = RunConfig(ops={f"{pipeline.name}__sweep": SweepConfig(delete=True)})
    return daily_schedule(sweeping, DAILY, f"Deletes files that no transaction of {pipeline.name} needs", config)


def sweep_metadata(result: SweepResult) -> dict[str, Any]:
    """Return the metadata of one sweep."""
    return {
        "orphans": len(result.orphans),
        "bytes": result.size_bytes,
        "deleted": result.deleted,
        "older than hours": MetadataValue.float(result.safe_age.total_seconds() / 3600),
        "files": metadata_table(_COLUMNS, result.rows()),
        "left alone": len(result.kept),
    }


_COLUMNS = [
    TableColumn("path", "string"),
    TableColumn("bytes", "int"),
    TableColumn("age_hours", "float"),
    TableColumn("instant", "string"),
    TableColumn("kafka_partition", "int"),
    TableColumn("first_offset", "int"),
    TableColumn("why", "string"),
]
