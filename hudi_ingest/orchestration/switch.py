"""Turns pipelines on and off: the sensor of one that is alone in its file, as the switch in Dagster's UI does, and one of a template in
the ledger, because its sensor is that of all the template's pipelines."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dagster import AssetObservation, DagsterInstance

# Tried: `dagster sensor start`, the public way, takes a Python of its own and seconds for each sensor and cannot say which are on; and
# the GraphQL mutations of the webserver, which may not run here, or ask for a login.
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget

from hudi_ingest.exceptions import EnvironmentProblem, LedgerUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.home_instance import daemons_trouble, dagster_folder, home_instance
from hudi_ingest.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from dagster._core.remote_representation.external import RemoteSensor

_LOG = logging.getLogger(__name__)
_LOADED_SECONDS = 30
"""In which our own stack loads a new file also on a busy machine."""


class SensorNotLoaded(EnvironmentProblem):
    """No code location has the sensor, which may come with the next reload."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What was switched. `sensors`: by sensor, whether it is on; `pipelines`: by pipeline of a template, likewise. Those that are in
    neither do what their pipeline file says."""

    sensors: Mapping[str, bool] = field(default_factory=dict)
    pipelines: Mapping[str, bool] = field(default_factory=dict)

    def is_on(self, pipeline: Pipeline) -> bool:
        """Whether transactions of the pipeline begin by themselves."""
        return self.sensor_is_on(pipeline) and self.own_is_on(pipeline)

    def own_is_on(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline's own switch is on, whatever the sensor's that it may share."""
        turned = self.turned(pipeline)
        return pipeline.enabled if turned is None else turned

    def is_paused(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline or its sensor was turned off. One that was never on may be run by hand or by another scheduler."""
        return self.turned(pipeline) is False or self.sensors.get(pipeline.coordinator) is False

    def sensor_is_on(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline's sensor ticks; that of a template does unless it was switched off, whatever its file says."""
        return self.sensors.get(pipeline.coordinator, pipeline.enabled or bool(pipeline.template))

    def turned(self, pipeline: Pipeline) -> bool | None:
        """How the pipeline was switched; None if it never was, so that its file decides."""
        switches, name = (self.pipelines, pipeline.name) if pipeline.template else (self.sensors, pipeline.coordinator)
        return switches.get(name)


def switched(home: Home, pipelines: Sequence[Pipeline]) -> Switches:
    """What was switched of these pipelines; nothing if there is no Dagster. Raises EnvironmentProblem."""
    if dagster_folder(home) is None:
        return Switches()
    with home_instance(home) as instance:
        return switches_of(instance, pipelines)


def switches_of(instance: DagsterInstance, pipelines: Sequence[Pipeline]) -> Switches:
    """What was switched of these pipelines. While the ledger cannot be reached, the file decides for those of templates."""
    sensors = {
        state.name: state.status is InstigatorStatus.RUNNING
        for state in _states(instance)
        if state.status is not InstigatorStatus.DECLARED_IN_CODE
    }
    if not any(pipeline.template for pipeline in pipelines):
        return Switches(sensors)
    try:
        with Ledger.open(Home.from_environment().ledger_url) as ledger:
            return Switches(sensors, ledger.requests.switches())
    except LedgerUnreachable as error:
        _LOG.warning("It is unknown which pipelines of templates are paused: %s", error)
        return Switches(sensors)


def switch(home: Home, pipeline: Pipeline, on: bool) -> bool:
    """Turn the pipeline on or off. Returns False if it was so already. A transaction that is running still finishes.

    A sensor that is not loaded yet is waited for, half a minute at most: the pipeline's file may be new. Raises EnvironmentProblem
    if there is no Dagster, or if the sensor that the pipeline shares is off; SensorNotLoaded; LedgerUnreachable.
    """
    with home_instance(home) as instance:
        if pipeline.template:
            return _switch_in_ledger(home, instance, pipeline, on)
        return _switch_sensor(home, instance, pipeline, on)


def _switch_in_ledger(home: Home, instance: DagsterInstance, pipeline: Pipeline, on: bool) -> bool:
    switches = switches_of(instance, [pipeline])
    if on and not switches.sensor_is_on(pipeline):
        raise EnvironmentProblem(
            f"the sensor {pipeline.coordinator}, which begins the transactions of all pipelines of {pipeline.template}, is off in "
            f"Dagster, so {pipeline.name} was not turned on. Turn the sensor on in Dagster's UI, under Automation, which resumes all of "
            "them that are not paused."
        )
    with Ledger.open(home.ledger_url) as ledger:
        ledger.requests.switch(pipeline.name, on)
    if on == switches.own_is_on(pipeline):
        return False
    text = "Resumed" if on else f"Paused: `hudi-ingest resume {pipeline.name}` resumes it"
    instance.report_runless_asset_event(
        AssetObservation(table_key(pipeline), description=f"{text}.", metadata={"on": on})
    )
    return True


def _switch_sensor(home: Home, instance: DagsterInstance, pipeline: Pipeline, on: bool) -> bool:
    name = pipeline.coordinator
    states = [state for state in _states(instance) if state.name == name]
    if on == (_is_running(states[0], pipeline.enabled) if states else pipeline.enabled):
        return False
    if states:
        for state in states:
            instance.update_instigator_state(_started(state) if on else _stopped(state))
        return True
    deadline = time.monotonic() + _LOADED_SECONDS
    while True:
        try:
            with _loaded_sensor(home, instance, name) as sensor:
                if on:
                    instance.start_sensor(sensor)
                else:
                    instance.stop_sensor(sensor.get_remote_origin_id(), sensor.selector_id, sensor)
            return True
        except SensorNotLoaded:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def activities(home: Home, pipelines: Sequence[Pipeline]) -> dict[str, tuple[bool | None, str]]:
    """By pipeline, whether it is on, None if there is no Dagster that would know, and in words with the next step."""
    folder = dagster_folder(home)
    if folder is None:
        return {pipeline.name: (None, by_hand(pipeline)) for pipeline in pipelines}
    try:
        with home_instance(home) as instance:
            switches, trouble = switches_of(instance, pipelines), daemons_trouble(home, folder, instance)
    except EnvironmentProblem as problem:
        return {pipeline.name: (None, f"? ({problem})") for pipeline in pipelines}
    return {pipeline.name: activity(pipeline, switches, trouble) for pipeline in pipelines}


def by_hand(pipeline: Pipeline) -> str:
    """How the pipeline gets a transaction without Dagster."""
    return f"paused: no Dagster is here; `hudi-ingest run {pipeline.name}` runs one transaction, `hudi-ingest up` starts Dagster"


def activity(pipeline: Pipeline, switches: Switches, trouble: str) -> tuple[bool, str]:
    """Whether the pipeline is on, and in words. `trouble`: why nothing begins all the same, "" if it does."""
    if switches.is_on(pipeline):
        return True, f"on, but {trouble}" if trouble else "on"
    if pipeline.template and not switches.sensor_is_on(pipeline):
        return (
            False,
            f"paused: with all of {pipeline.template}: turn its sensor {pipeline.coordinator} on in Dagster's UI",
        )
    never = "never turned on; " if switches.turned(pipeline) is None else ""
    return False, f"paused: {never}`hudi-ingest resume {pipeline.name}` turns it on"


def _states(instance: DagsterInstance) -> list[InstigatorState]:
    # The instance of `materialize` in a process of one's own has no sensors.
    if instance.schedule_storage is None:
        return []
    return [state for state in instance.all_instigator_state() if state.instigator_type is InstigatorType.SENSOR]


def _is_running(state: InstigatorState, enabled: bool) -> bool:
    return enabled if state.status is InstigatorStatus.DECLARED_IN_CODE else state.is_running


def _started(state: InstigatorState) -> InstigatorState:
    data = state.instigator_data
    if isinstance(data, SensorInstigatorData):
        state = state.with_data(data.with_sensor_start_timestamp(time.time()))
    return state.with_status(InstigatorStatus.RUNNING)


def _stopped(state: InstigatorState) -> InstigatorState:
    return state.with_status(InstigatorStatus.STOPPED)


@contextmanager
def _loaded_sensor(home: Home, instance: DagsterInstance, name: str) -> Iterator[RemoteSensor]:
    """The sensor from the code location: Dagster's instance knows only sensors that were switched or have ticked."""
    folder = dagster_folder(home)
    workspaces = [path / "workspace.yaml" for path in (folder, Path.cwd()) if path is not None]
    remedy = f"Turn {name} on or off once in Dagster's UI, under Automation, or set `enabled` in the pipeline file."
    workspace = next((path for path in workspaces if path.is_file()), None)
    if workspace is None:
        shown = " nor ".join(map(str, workspaces))
        raise EnvironmentProblem(
            f"Dagster has not seen sensor {name} yet, and neither {shown} says where it is. {remedy}"
        )
    with WorkspaceProcessContext(instance, WorkspaceFileTarget([str(workspace)])) as context:
        request = context.create_request_context()
        for location in request.code_locations:
            for repository in location.get_repositories().values():
                if repository.has_sensor(name):
                    yield repository.get_sensor(name)
                    return
        errors = "; ".join(str(error.message).strip() for error in request.code_location_errors())
    raise SensorNotLoaded(
        f"no code location of {workspace} has sensor {name}{f': {errors}' if errors else ''}. A new pipeline is loaded "
        f"within seconds by our own stack, and by others when their code location is reloaded. {remedy}"
    )
