"""Dagster definitions of one pipeline (its assets and checks), and which definitions of a code location, and
so of a Dagster instance, are hudi-ingest's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagster import (
    AssetKey,
    AssetSpec,
    Definitions,
    RepositoryDefinition,
    ResourceDefinition,
    SensorDefinition,
)

from hudi_ingest.operations.health.judgement import (
    CATALOG_SYNCED,
    COMPACTED_IN_TIME,
    EXPECTATION,
    ICEBERG_UP_TO_DATE,
    NOTHING_LATE,
    QUESTIONS,
)
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.jobs.maintenance_job import Maintenance
from hudi_ingest.orchestration.jobs.request_jobs import REQUESTS
from hudi_ingest.orchestration.jobs.resources import IO_MANAGER, RESOURCES
from hudi_ingest.orchestration.jobs.table_asset import table_asset
from hudi_ingest.orchestration.jobs.upkeep_jobs import UPKEEP
from hudi_ingest.orchestration.reports.checks import table_checks
from hudi_ingest.orchestration.reports.complete_periods import periods_assets
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline

MAINTENANCE = (*UPKEEP, *REQUESTS)
"""The kinds of jobs that the pipelines of a code location share."""


def pipeline_definitions(
    pipeline: Pipeline,
    topics: Sequence[AssetSpec],
    resources: Mapping[str, ResourceDefinition] = RESOURCES,
    io_manager_key: str = IO_MANAGER,
    spec: AssetSpec | None = None,
) -> Definitions:
    """Build the definitions of a pipeline, with those of its topics that no other pipeline of the code location provides.

    They fit into any code location: executor and IO manager are the location's. `spec`: of the table, instead of `table_spec`.
    """
    return Definitions(
        assets=[table_asset(pipeline, io_manager_key, spec), *periods_assets(pipeline), *topics],
        asset_checks=[table_checks(pipeline)],
        resources=resources,
    )


def maintenance_of(pipelines: Sequence[Pipeline], suffix: str = "") -> Maintenance:
    """Build the maintenance jobs and schedules that the pipelines share. `suffix`: of their names."""
    return Maintenance.of(MAINTENANCE, pipelines, suffix)


@dataclass(frozen=True, slots=True)
class OwnDefinitions:
    """Names by which our runs, ticks and events are told from a team's own. `assets`: the tables and their topics."""

    pipelines: tuple[str, ...]
    jobs: frozenset[str]
    instigators: frozenset[str]
    tables: tuple[AssetKey, ...]
    assets: frozenset[AssetKey]
    expectations: tuple[tuple[AssetKey, str], ...] = ()
    """The checks of the tables' expectations."""

    @classmethod
    def of(cls, repository: RepositoryDefinition) -> OwnDefinitions:
        jobs = {job.name: job for job in repository.get_all_jobs() if tags.OF_PIPELINES & job.tags.keys()}
        coordinators = [sensor for sensor in repository.sensor_defs if sensor.name.startswith(COORDINATOR)]
        selections = (sensor.asset_selection for sensor in coordinators)
        tables = {
            repository.assets_defs_by_key[key].node_def.name: key
            for selection in selections
            for key in (selection.resolve(repository.asset_graph) if selection else ())
        }
        sensors = {sensor.name for sensor in repository.sensor_defs if _targets(sensor) & jobs.keys()}
        schedules = {schedule.name for schedule in repository.schedule_defs if schedule.job_name in jobs}
        topics = {
            parent
            for table in tables.values()
            for parent in repository.asset_graph.get(table).parent_keys
            if parent.path[0] == TOPICS
        }
        former = cls.of_deleted(tables, jobs)
        return cls(
            former.pipelines,
            former.jobs,
            frozenset({*(sensor.name for sensor in coordinators), *sensors, *schedules}),
            tuple(tables[name] for name in former.pipelines),
            frozenset({*tables.values(), *topics}),
            tuple(
                (key.asset_key, key.name)
                for key in sorted(repository.asset_graph.asset_check_keys)
                if key.asset_key in tables.values() and key.name.startswith(EXPECTATION)
            ),
        )

    @classmethod
    def of_deleted(cls, names: Iterable[str], jobs: Iterable[str] = ()) -> OwnDefinitions:
        """Return what pipelines of these names had, and `jobs`. Their topics may be read by others."""
        pipelines = tuple(sorted(names))
        tables = tuple(AssetKey([name]) for name in pipelines)
        return cls(
            pipelines,
            frozenset([*jobs, *_SHARED]),
            frozenset(),
            tables,
            frozenset(tables),
        )

    @property
    def checks(self) -> Iterator[tuple[AssetKey, str]]:
        """Each table with each check that it may have."""
        checks = (*QUESTIONS, CATALOG_SYNCED, ICEBERG_UP_TO_DATE, COMPACTED_IN_TIME, NOTHING_LATE)
        yield from ((table, check) for table in self.tables for check in checks)
        yield from self.expectations


_SHARED = frozenset(kind.name for kind in MAINTENANCE)
TOPICS = "kafka"
"""The first part of the key of a topic's asset."""


def _targets(sensor: SensorDefinition) -> set[str]:
    return {target.job_name for target in sensor.targets}
