"""Dagster definitions of one pipeline: its assets, checks, jobs, sensor and schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagster import AssetSpec, Definitions, JobDefinition, ResourceDefinition

from hudi_ingest.orchestration.coordinator.sensor import coordinator_sensor
from hudi_ingest.orchestration.jobs.catalog_job import catalog_job
from hudi_ingest.orchestration.jobs.request_jobs import request_jobs
from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, RESOURCES
from hudi_ingest.orchestration.jobs.services_job import compaction_schedule, services_job, services_schedule
from hudi_ingest.orchestration.jobs.sweep_job import sweep_job, sweep_schedule
from hudi_ingest.orchestration.jobs.table_asset import table_asset
from hudi_ingest.orchestration.jobs.transaction_job import OneAssetJob, transaction_job
from hudi_ingest.orchestration.jobs.ttl_job import ttl_job, ttl_schedule
from hudi_ingest.orchestration.reports.checks import table_checks
from hudi_ingest.pipeline.pipeline import Pipeline


def pipeline_definitions(
    pipeline: Pipeline,
    topics: Sequence[AssetSpec],
    resources: Mapping[str, ResourceDefinition] = RESOURCES,
    io_manager_key: str = IO_MANAGER,
) -> Definitions:
    """Build the definitions of a pipeline, with those of its topics that no other pipeline of the code location provides.

    They fit into any code location: executor and IO manager are the location's.
    """
    transaction, sweep, services = transaction_job(pipeline), sweep_job(pipeline), services_job(pipeline)
    compaction = [compaction_schedule(pipeline, services)] if pipeline.table.is_keyed else []
    ttl = [ttl_job(pipeline)] if pipeline.table.ttl else []
    coordinated: list[JobDefinition | OneAssetJob] = [
        transaction,
        *([catalog_job(pipeline)] if pipeline.catalog else []),
    ]
    return Definitions(
        assets=[table_asset(pipeline, io_manager_key), *topics],
        asset_checks=[table_checks(pipeline)],
        jobs=[*coordinated, sweep, services, *ttl, *request_jobs(pipeline)],
        sensors=[coordinator_sensor(pipeline, coordinated)],
        schedules=[
            sweep_schedule(pipeline, sweep),
            services_schedule(pipeline, services),
            *compaction,
            *(ttl_schedule(pipeline, dropping) for dropping in ttl),
        ],
        resources=resources,
    )
