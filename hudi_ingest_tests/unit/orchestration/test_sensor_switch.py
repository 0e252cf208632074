"""Pause and resume: each pipeline's switch is in the ledger, and the sensor's own in Dagster stops all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.definitions.sensor_definition import SensorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData
from dagster._daemon.types import DaemonHeartbeat

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE, dagster_folder, open_instance
from hudi_ingest.orchestration.switch import Switches, activities, switch, switched, switches_of
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline
from hudi_ingest_tests.support.pipeline_files import document

pytestmark = pytest.mark.fast


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """With an embedded Dagster, and no workspace.yaml in the working folder."""
    monkeypatch.chdir(tmp_path)
    found = Home(tmp_path, tmp_path / "pipelines", f"sqlite:///{tmp_path / 'ledger.db'}")
    found.dagster.mkdir()
    found.pipelines.mkdir()
    (found.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with mock.patch.dict(os.environ):
        os.environ.pop(DAGSTER_VARIABLE, None)
        yield found


def pipeline_of(home: Home, enabled: bool, name: str = "orders") -> Pipeline:
    path = home.pipelines / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document(name=name, enabled=enabled, table__base_path=f"/data/{name}")))
    return load_pipeline(path)


def test_an_instance_without_sensors_has_switched_nothing(home: Home) -> None:
    with DagsterInstance.ephemeral() as instance:
        assert switches_of(instance, home) == Switches()


def seen(status: InstigatorStatus, name: str = COORDINATOR) -> InstigatorState:
    """What the daemon notes of a sensor that it has seen."""
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("hudi_ingest"), "__repository__")
    origin = RemoteInstigatorOrigin(repository, name)
    data = SensorInstigatorData(sensor_type=SensorType.STANDARD)
    return InstigatorState(origin, InstigatorType.SENSOR, status, data)


def test_a_pipeline_is_switched_once_and_stays(home: Home) -> None:
    for name, enabled in (("first", True), ("second", False)):
        pipeline = pipeline_of(home, enabled, name)
        assert switched(home).is_on(pipeline) == enabled
        assert not switch(home, pipeline, enabled)
        for on in (not enabled, enabled):
            assert switch(home, pipeline, on)
            assert not switch(home, pipeline, on)
            switches = switched(home)
            assert switches.is_on(pipeline) == on
            assert switches.is_paused(pipeline) == (not on)
            with open_instance(home.dagster) as instance:
                newest = instance.fetch_observations(table_key(pipeline), limit=1).records[0].asset_observation
            assert newest is not None
            assert newest.metadata["on"].value == on


def test_the_sensors_own_switch_stops_all_and_a_pipeline_is_not_resumed_behind_it(home: Home) -> None:
    pipeline = pipeline_of(home, True)
    with open_instance(home.dagster) as instance:
        instance.add_instigator_state(seen(InstigatorStatus.STOPPED))
        assert not switches_of(instance, home).is_on(pipeline)
        assert switches_of(instance, home).is_paused(pipeline)
    assert activities(home, [pipeline])["orders"][1].startswith(
        f"paused with all pipelines: turn the sensor {COORDINATOR} on"
    )
    with pytest.raises(EnvironmentProblem, match=rf"sensor {COORDINATOR}, .* is off in Dagster.*turn the sensor"):
        switch(home, pipeline, True)
    assert switched(home).turned(pipeline) is None
    with open_instance(home.dagster) as instance:
        instance.update_instigator_state(seen(InstigatorStatus.DECLARED_IN_CODE))
        instance.add_instigator_state(seen(InstigatorStatus.STOPPED, f"{COORDINATOR}_other"))
        assert switches_of(instance, home).is_on(pipeline), "of other folders"


def test_dagster_home_goes_before_the_embedded_one(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert dagster_folder(home, {}) == home.dagster
    assert dagster_folder(home, {DAGSTER_VARIABLE: str(other)}) is None
    other.mkdir()
    (other / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    assert dagster_folder(home, {DAGSTER_VARIABLE: str(other)}) == other
    (home.dagster / "dagster.yaml").unlink()
    assert switched(home) == Switches()
    with pytest.raises(EnvironmentProblem, match="no Dagster instance is configured"):
        switch(home, pipeline_of(home, True), False)


def test_status_says_whether_a_pipeline_is_on_and_the_next_step(home: Home) -> None:
    never = activities(home, [pipeline_of(home, enabled=False)])
    assert never == {"orders": (False, "paused: never turned on; `hudi-ingest resume orders` turns it on")}
    enabled = pipeline_of(home, enabled=True)
    on, text = activities(home, [enabled])["orders"]
    assert (on, text.split(":")[0]) == (True, "on, but Dagster's daemon is down, so nothing begins")
    with open_instance(home.dagster) as instance:
        for daemon in instance.get_required_daemon_types():
            instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), daemon, "d", []))
    assert activities(home, [enabled]) == {"orders": (True, "on")}
    home.kafka.mkdir()
    assert "daemon is down" in activities(home, [enabled])["orders"][1], "a stack that was stopped is known at once"
    assert switch(home, enabled, False)
    assert activities(home, [enabled]) == {"orders": (False, "paused: `hudi-ingest resume orders` turns it on")}
    (home.dagster / "dagster.yaml").unlink()
    assert activities(home, [enabled])["orders"][0] is None
