"""The switch of each pipeline, which the ledger has, and that of the sensor for all of them in Dagster."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dagster import AssetObservation, DagsterInstance

from hudi_ingest.exceptions import EnvironmentProblem, LedgerUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.home_instance import daemons_trouble, dagster_folder, home_instance
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline

_LOG = logging.getLogger(__name__)
DECISION, WHY = "decision", "why"
"""The metadata of the observations that show decisions."""
PAUSED = "paused"
_REMEDY = f"turn the sensor {COORDINATOR} on in Dagster's UI, under Automation"


@dataclass(frozen=True, slots=True)
class Switches:
    """How pipelines were switched, by name; those that never were do what their pipeline files say. `sensor`: whether the sensor is on that
    begins the transactions of all."""

    pipelines: Mapping[str, bool] = field(default_factory=dict)
    sensor: bool = True

    def is_on(self, pipeline: Pipeline) -> bool:
        """Whether transactions of the pipeline begin by themselves."""
        return self.sensor and self.own_is_on(pipeline)

    def own_is_on(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline's own switch is on, whatever the sensor's."""
        return self.pipelines.get(pipeline.name, pipeline.enabled)

    def is_paused(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline or the sensor was turned off. A pipeline that was never on may be run by hand or by another scheduler."""
        return not self.sensor or self.turned(pipeline) is False

    def turned(self, pipeline: Pipeline) -> bool | None:
        """How the pipeline was switched; None if it never was, so that its file decides."""
        return self.pipelines.get(pipeline.name)


def switched(home: Home) -> Switches:
    """Return how pipelines were switched; nothing if there is no Dagster. Raises EnvironmentProblem."""
    if dagster_folder(home) is None:
        return Switches()
    with home_instance(home) as instance:
        return switches_of(instance, home)


def switches_of(instance: DagsterInstance, home: Home | None = None) -> Switches:
    """Return how pipelines were switched. While the ledger cannot be reached, their files decide. `home`: by default the environment's."""
    try:
        with Ledger.open((home or Home.from_environment()).ledger_url) as ledger:
            return Switches(ledger.requests.switches(), _sensor_is_on(instance))
    except LedgerUnreachable as error:
        _LOG.warning("It is unknown which pipelines are paused: %s", error)
        return Switches(sensor=_sensor_is_on(instance))


def coordinators(instance: DagsterInstance) -> dict[str, bool]:
    """Return the sensors that begin transactions, which Dagster has seen, and whether each is on: of one code location, or of several
    folders or projects with an ending each."""
    # The instance of `materialize` in a process of one's own has no sensors.
    states = instance.all_instigator_state() if instance.schedule_storage is not None else []
    return {
        state.instigator_name: state.status.value != "STOPPED"
        for state in states
        if state.instigator_name.startswith(COORDINATOR)
    }


def _sensor_is_on(instance: DagsterInstance) -> bool:
    """Whether the sensor ticks, which it does unless it was switched off; of several, which may be of other folders, whether any does."""
    seen = coordinators(instance)
    return seen.get(COORDINATOR, any(seen.values()) or not seen)


def switch(home: Home, pipeline: Pipeline, on: bool) -> bool:
    """Turn the pipeline on or off. Returns False if it was so already. A transaction that is running still finishes.

    Raises EnvironmentProblem if there is no Dagster, or if the sensor of all pipelines is off; LedgerUnreachable.
    """
    with home_instance(home) as instance:
        if on and not _sensor_is_on(instance):
            raise EnvironmentProblem(
                f"the sensor {COORDINATOR}, which begins the transactions of all pipelines, is off in Dagster, so {pipeline.name} was not "
                f"turned on: {_REMEDY}, which resumes all pipelines that are not paused."
            )
        with Ledger.open(home.ledger_url) as ledger:
            before = Switches(ledger.requests.switches()).own_is_on(pipeline)
            ledger.requests.switch(pipeline.name, on)
        if on == before:
            return False
        decision, why = ("resumed", "its next tick decides") if on else (PAUSED, how_to_resume(pipeline))
        instance.report_runless_asset_event(observed_decision(pipeline, decision, why, on))
        return True


def observed_decision(pipeline: Pipeline, decision: str, why: str, on: bool) -> AssetObservation:
    """Build the observation of the table that shows the coordinator's last decision."""
    description = f"{decision.capitalize()}: {why}"
    return AssetObservation(
        table_key(pipeline), description=description, metadata={"on": on, DECISION: decision, WHY: why}
    )


def how_to_resume(pipeline: Pipeline) -> str:
    return f"`hudi-ingest resume {pipeline.name}` turns it on"


def activities(home: Home, pipelines: Sequence[Pipeline]) -> dict[str, tuple[bool | None, str]]:
    """By pipeline, whether it is on, None if there is no Dagster that would know, and in words with the next step."""
    folder = dagster_folder(home)
    if folder is None:
        return {pipeline.name: (None, by_hand(pipeline)) for pipeline in pipelines}
    try:
        with home_instance(home) as instance:
            switches, trouble = switches_of(instance, home), daemons_trouble(home, folder, instance)
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
    if not switches.sensor:
        return False, f"paused with all pipelines: {_REMEDY}"
    never = "never turned on; " if switches.turned(pipeline) is None else ""
    return False, f"{PAUSED}: {never}{how_to_resume(pipeline)}"
