"""Dagster definitions of one pipeline: its assets, checks, transaction job and sensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagster import AssetSpec, Definitions, JobDefinition, ResourceDefinition

from hudi_ingest.orchestration.coordinator.sensor import coordinator_sensor
from hudi_ingest.orchestration.jobs.maintenance import Maintenance
from hudi_ingest.orchestration.jobs.request_jobs import REQUESTS
from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, RESOURCES
from hudi_ingest.orchestration.jobs.table_asset import table_asset
from hudi_ingest.orchestration.jobs.transaction_job import transaction_job
from hudi_ingest.orchestration.jobs.upkeep import UPKEEP
from hudi_ingest.orchestration.reports.checks import table_checks
from hudi_ingest.pipeline.pipeline import Pipeline

MAINTENANCE = (*UPKEEP, *REQUESTS)
"""The kinds of jobs that the pipelines of a code location share."""


def pipeline_definitions(
    pipeline: Pipeline,
    topics: Sequence[AssetSpec],
    resources: Mapping[str, ResourceDefinition] = RESOURCES,
    io_manager_key: str = IO_MANAGER,
    catalog: JobDefinition | None = None,
) -> Definitions:
    """Build the definitions of a pipeline, with those of its topics that no other pipeline of the code location provides.
    `catalog`: the job that syncs tables to their catalogs, if the pipeline has one.

    They fit into any code location: executor and IO manager are the location's.
    """
    transaction = transaction_job(pipeline)
    return Definitions(
        assets=[table_asset(pipeline, io_manager_key), *topics],
        asset_checks=[table_checks(pipeline)],
        jobs=[transaction],
        sensors=[coordinator_sensor(pipeline, transaction, catalog)],
        resources=resources,
    )


def maintenance_of(pipelines: Sequence[Pipeline], suffix: str = "") -> Maintenance:
    """Build the maintenance jobs and schedules that the pipelines share. `suffix`: of their names."""
    return Maintenance.of(MAINTENANCE, pipelines, suffix)
