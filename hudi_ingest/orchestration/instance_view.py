"""What Dagster's instance says about all pipelines: which sensors are on, and whether runs succeed. Three queries for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from dagster import AssetCheckEvaluation, AssetCheckKey, AssetCheckSeverity, DagsterInstance

from hudi_ingest.home.folder import Home
from hudi_ingest.metrics.records import DagsterRecord
from hudi_ingest.operations.health import RUNS_SUCCEED, Finding
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.home_instance import dagster_folder, open_instance
from hudi_ingest.orchestration.sensor import sensor_name
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
        states = {state.instigator_name: state for state in instance.all_instigator_state()}
        sensors = {pipeline.name: states.get(sensor_name(pipeline.name)) for pipeline in pipelines}
        keys = {AssetCheckKey(table_key(pipeline), RUNS_SUCCEED): pipeline.name for pipeline in pipelines}
        newest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys))
        evaluations = {keys[key]: record.evaluation for key, record in newest.items() if key in keys}
        return DagsterRecord(
            running={
                name: state.is_running
                for name, state in sensors.items()
                # Nobody has switched it: the pipeline file decides.
                if state is not None and state.status.value != "DECLARED_IN_CODE"
            },
            findings={
                name: (
                    Finding(
                        RUNS_SUCCEED,
                        evaluation.passed,
                        evaluation.description or "",
                        warning=evaluation.severity is AssetCheckSeverity.WARN,
                    ),
                )
                for name, evaluation in evaluations.items()
                if isinstance(evaluation, AssetCheckEvaluation)
            },
        )
