"""What in a code location, and so in a Dagster instance, is hudi-ingest's: pipelines, jobs, sensors, schedules and assets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dagster import AssetKey, JobDefinition, RepositoryDefinition, SensorDefinition

from hudi_ingest.orchestration import tags
from hudi_ingest.pipeline.folder import JOBS


@dataclass(frozen=True, slots=True)
class OwnDefinitions:
    """Names by which our runs, ticks and events are told from a team's own. `assets`: the tables and their topics."""

    pipelines: tuple[str, ...]
    jobs: frozenset[str]
    instigators: frozenset[str]
    tables: tuple[AssetKey, ...]
    assets: frozenset[AssetKey]

    @classmethod
    def of(cls, repository: RepositoryDefinition) -> OwnDefinitions:
        jobs = {job.name: job for job in repository.get_all_jobs() if tags.OF_PIPELINES & job.tags.keys()}
        pipelines = sorted({name for job in jobs.values() if (name := _pipeline(job))})
        sensors = {sensor.name for sensor in repository.sensor_defs if _targets(sensor) & jobs.keys()}
        schedules = {schedule.name for schedule in repository.schedule_defs if schedule.job_name in jobs}
        tables = tuple(AssetKey([name]) for name in pipelines)
        topics = {
            parent
            for table in tables
            for parent in repository.asset_graph.get(table).parent_keys
            if parent.path[0] == TOPICS
        }
        return cls(
            tuple(pipelines), frozenset(jobs), frozenset(sensors | schedules), tables, frozenset({*tables, *topics})
        )

    @classmethod
    def of_deleted(cls, names: Iterable[str]) -> OwnDefinitions:
        """What pipelines of these names had. Their topics may be read by others."""
        pipelines = tuple(sorted(names))
        tables = tuple(AssetKey([name]) for name in pipelines)
        return cls(
            pipelines,
            frozenset(f"{name}{ending}" for name in pipelines for ending in JOBS),
            frozenset(f"{name}{ending}" for name in pipelines for ending in _INSTIGATORS),
            tables,
            frozenset(tables),
        )


_INSTIGATORS = ("_coordinator", "_compaction", "_sweep_daily", "_services_daily", "_ttl_daily")
TOPICS = "kafka"
"""The first part of the key of a topic's asset."""


def _targets(sensor: SensorDefinition) -> set[str]:
    return {target.job_name for target in sensor.targets}


def _pipeline(job: JobDefinition) -> str:
    return next((job.tags[kind] for kind in tags.KINDS if kind in job.tags), "")
