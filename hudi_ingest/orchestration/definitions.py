"""What Dagster loads: an asset, its jobs, a coordinator sensor and a sweep schedule for each pipeline file. workspace.yaml names it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagster import AssetSelection, Definitions, Field, configured, define_asset_job, multi_or_in_process_executor

from hudi_ingest.config import Pipeline
from hudi_ingest.home import Home
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.dead_letters_check import dead_letters_check
from hudi_ingest.orchestration.offsets_check import offsets_check
from hudi_ingest.orchestration.range_jobs import range_jobs
from hudi_ingest.orchestration.run_config import IN_PROCESS
from hudi_ingest.orchestration.sensor import coordinator_sensor
from hudi_ingest.orchestration.sweep_job import sweep_job, sweep_schedule
from hudi_ingest.orchestration.table_asset import RESOURCES, max_runtime, table_asset, topic_assets
from hudi_ingest.pipeline_file import load_pipelines

OPS_AT_ONCE = 4
_IMPORTED_BY_OPS = [
    "hudi_ingest.orchestration.table_asset",
    # What Dagster and pyspark import only when an op runs, a second of CPU in each; a name that is not there is passed over.
    "dagster._core.storage.sqlite_storage",
    "dagster_postgres",
    "pandas",
]


def _executor_config(chosen: dict[str, Any]) -> dict[str, Any]:
    if chosen[IN_PROCESS]:
        return {"in_process": {}}
    # Forked from a process that has done the imports already: an op starts in a fraction of the time.
    forked = {"forkserver": {"preload_modules": _IMPORTED_BY_OPS}}
    return {"multiprocess": {"max_concurrent": OPS_AT_ONCE, "start_method": forked}}


EXECUTOR = configured(
    multi_or_in_process_executor,
    name="hudi_ingest",
    config_schema={
        IN_PROCESS: Field(
            bool,
            default_value=False,
            description="Ops run one after another in the run's process: sooner done when there is little to do.",
        )
    },
)(_executor_config)


def build_definitions(pipelines: Sequence[Pipeline]) -> Definitions:
    """All pipelines' assets, jobs, sensors and schedules."""
    topics = {spec.key: spec for pipeline in pipelines for spec in topic_assets(pipeline)}
    jobs = {pipeline.name: _job(pipeline) for pipeline in pipelines}
    sweeps = {pipeline.name: sweep_job(pipeline) for pipeline in pipelines}
    return Definitions(
        assets=[*(table_asset(pipeline) for pipeline in pipelines), *topics.values()],
        asset_checks=[check(pipeline) for pipeline in pipelines for check in (offsets_check, dead_letters_check)],
        jobs=[*jobs.values(), *sweeps.values(), *(each for pipeline in pipelines for each in range_jobs(pipeline))],
        sensors=[coordinator_sensor(pipeline, jobs[pipeline.name]) for pipeline in pipelines],
        schedules=[sweep_schedule(pipeline, sweeps[pipeline.name]) for pipeline in pipelines],
        resources=RESOURCES,
        executor=EXECUTOR,
    )


def job_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_transaction"


def _job(pipeline: Pipeline) -> Any:
    return define_asset_job(
        job_name(pipeline),
        # The ticks report the check; a step for it would make each run a second longer.
        selection=AssetSelection.assets([pipeline.name]).without_checks(),
        description=f"One transaction of {pipeline.name}: without config it takes all that waits, up to the limits.",
        tags={
            tags.PIPELINE: pipeline.name,
            tags.MAX_RUNTIME: max_runtime(pipeline),
        },
    )


defs = build_definitions(load_pipelines(Home.from_environment().pipelines))
