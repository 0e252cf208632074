"""Pause and resume: what is switched in Dagster's instance is what its own switch would leave there."""

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
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE, dagster_folder, open_instance
from hudi_ingest.orchestration.switch import Switches, activities, switch, switched, switches_of
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
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


def pipeline_of(home: Home, enabled: bool) -> Pipeline:
    path = home.pipelines / "orders.yaml"
    path.write_text(yaml.safe_dump(document(enabled=enabled)))
    return load_pipeline(path)


def test_an_instance_without_sensors_has_switched_nothing(home: Home) -> None:
    with DagsterInstance.ephemeral() as instance:
        assert switches_of(instance, [pipeline_of(home, enabled=True)]) == Switches()


def seen(status: InstigatorStatus) -> InstigatorState:
    """What the daemon notes of a sensor that it has seen."""
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("hudi_ingest"), "__repository__")
    origin = RemoteInstigatorOrigin(repository, "orders_coordinator")
    data = SensorInstigatorData(sensor_type=SensorType.STANDARD)
    return InstigatorState(origin, InstigatorType.SENSOR, status, data)


def test_a_sensor_is_switched_once_and_stays(home: Home) -> None:
    with open_instance(home.dagster) as instance:
        instance.add_instigator_state(seen(InstigatorStatus.DECLARED_IN_CODE))
        for enabled in (True, False):
            pipeline = pipeline_of(home, enabled)
            instance.update_instigator_state(seen(InstigatorStatus.DECLARED_IN_CODE))
            assert switched(home, [pipeline]).is_on(pipeline) == enabled
            assert not switch(home, pipeline, enabled)
            for on in (not enabled, enabled):
                assert switch(home, pipeline, on)
                assert not switch(home, pipeline, on)
                assert switched(home, [pipeline]).is_on(pipeline) == on
                (state,) = instance.all_instigator_state()
                assert state.status is (InstigatorStatus.RUNNING if on else InstigatorStatus.STOPPED)
                assert isinstance(state.instigator_data, SensorInstigatorData)
                assert (state.instigator_data.last_sensor_start_timestamp is not None) == (on or not enabled)


def test_without_a_state_the_file_decides_and_the_sensor_has_to_be_found(home: Home) -> None:
    for enabled in (True, False):
        pipeline = pipeline_of(home, enabled)
        assert switched(home, [pipeline]).is_on(pipeline) == enabled
        assert not switch(home, pipeline, enabled)
        with pytest.raises(
            EnvironmentProblem, match=r"has not seen sensor orders_coordinator.*Turn .* in Dagster's UI"
        ):
            switch(home, pipeline, not enabled)


def test_dagster_home_goes_before_the_embedded_one(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert dagster_folder(home, {}) == home.dagster
    assert dagster_folder(home, {DAGSTER_VARIABLE: str(other)}) is None
    other.mkdir()
    (other / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    assert dagster_folder(home, {DAGSTER_VARIABLE: str(other)}) == other
    (home.dagster / "dagster.yaml").unlink()
    assert switched(home, []) == Switches()
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
    with open_instance(home.dagster) as instance:
        instance.add_instigator_state(seen(InstigatorStatus.STOPPED))
    assert activities(home, [enabled]) == {"orders": (False, "paused: `hudi-ingest resume orders` turns it on")}
    (home.dagster / "dagster.yaml").unlink()
    assert activities(home, [enabled])["orders"][0] is None
