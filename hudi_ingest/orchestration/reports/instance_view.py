"""What Dagster's instance says about all pipelines: which sensors are on, and whether runs succeed. Three queries for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from dagster import DagsterInstance

from hudi_ingest.home.folder import Home
from hudi_ingest.metrics.records import DagsterRecord
from hudi_ingest.operations.health.judgement import RUNS_SUCCEED
from hudi_ingest.orchestration.coordinator.sensor import sensor_name
from hudi_ingest.orchestration.coordinator.switch import switches_of
from hudi_ingest.orchestration.embedded.home_instance import dagster_folder, open_instance
from hudi_ingest.orchestration.reports.check_results import newest_results
from hudi_ingest.pipeline.pipeline import Pipeline


class InstanceView:
    """The instance of $DAGSTER_HOME, or else of the home's embedded Dagster, which may appear later. For one thread at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._instance: DagsterInstance | None = None

    def close(self) -> None:
        if self._instance is not None:
            self._instance.dispose()

    def look(self, pipelines: Sequence[Pipeline]) -> DagsterRecord:
        """Raises what Dagster's storage raises when it cannot be reached."""
        if self._instance is None:
            folder = dagster_folder(self._home)
            if folder is None:
                return DagsterRecord(is_there=False)
            self._instance = open_instance(folder)
        instance = self._instance
        switches = switches_of(instance)
        sensors = {pipeline.name: sensor_name(pipeline.name) for pipeline in pipelines}
        results = newest_results(instance, pipelines, RUNS_SUCCEED)
        return DagsterRecord(
            # Where nobody has switched the sensor, the pipeline file decides.
            running={name: switches[sensor] for name, sensor in sensors.items() if sensor in switches},
            findings={name: tuple(by_check.values()) for name, by_check in results.items() if by_check},
        )
