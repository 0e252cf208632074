"""The embedded stack's daemon looks at the queue when a run is submitted or ends, not once a second, and for sensors that are due as often
as the shortest interval needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData
from dagster._daemon import sensor as dagster_sensors
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from hudi_ingest.orchestration.embedded.daemon import __main__ as run_queue
from hudi_ingest.orchestration.embedded.daemon.__main__ import (
    EndedRuns,
    PromptRunQueue,
    PromptSensors,
    daemons,
    must_wait,
    sensor_loop_seconds,
)
from hudi_ingest.orchestration.embedded.next_tick import NextTick

QUEUE = "QUEUED_RUN_COORDINATOR"


@pytest.mark.parametrize("storage", ["QuickSqliteStorage", ""])
def test_the_queue_is_our_own_with_our_storage_and_the_sensors_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    custom = f"storage: {{custom: {{module: hudi_ingest.orchestration.embedded.sqlite_storage, class: {storage}}}}}\n"
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n" + custom * bool(storage))
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        found = {daemon.daemon_type(): daemon for daemon in daemons(instance)}
        assert set(found) == set(instance.get_required_daemon_types())
        assert isinstance(found.pop(QUEUE), PromptRunQueue) == bool(storage)
        assert isinstance(found.pop("SENSOR"), PromptSensors)
        assert not any(isinstance(daemon, (PromptRunQueue, PromptSensors)) for daemon in found.values())


def test_a_look_waits_for_a_change_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def look(*_: object) -> Iterator[None]:
        looks.append(1)
        yield None

    monkeypatch.setattr(QueuedRunCoordinatorDaemon, "run_iteration", look)
    monkeypatch.setattr(run_queue, "_LOOKS_BEFORE_HEARTBEAT", 2)
    answers = iter([False, False, False, False, True])
    heartbeats = list(PromptRunQueue(lambda: next(answers), 60).run_iteration(None))[:-1]  # type: ignore[arg-type]
    assert len(heartbeats) == 2
    assert len(list(PromptRunQueue(lambda: False, 0.0).run_iteration(None))) == 1  # type: ignore[arg-type]
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("intervals", "look", "seconds"),
    [
        ([], 0.001, 5),
        ([30, 5], 0.001, 5),
        ([30, 4], 0.001, 5),
        ([30, 3], 0.001, 0.375),
        ([2, 30, 1], 0.001, 0.125),
        ([30, 0], 0.001, 0.125),
        ([1], 0.05, 1),
        ([1], 1, 5),
    ],
)
def test_due_sensors_are_looked_for_as_often_as_the_shortest_interval_needs_within_a_twentieth_of_a_core(
    intervals: list[int], look: float, seconds: float
) -> None:
    assert sensor_loop_seconds(intervals, look) == seconds


def test_the_loop_sleeps_for_as_long_as_the_sensors_of_the_moment_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dagster_sensors, "MIN_INTERVAL_LOOP_TIME", 5)
    monkeypatch.setattr(dagster_sensors, "get_current_timestamp", lambda: 0.0)
    monkeypatch.setattr("time.thread_time", lambda: 0.0)
    monkeypatch.setattr(dagster_sensors, "execute_sensor_iteration", lambda *_, **__: iter([None]))
    intervals = [30]
    slept = []

    class Sleeps(Event):
        def wait(self, timeout: float | None = None) -> bool:
            slept.append(timeout or 0)
            return False

    repository = SimpleNamespace(
        get_sensors=lambda: [SimpleNamespace(min_interval_seconds=seconds) for seconds in intervals]
    )
    location = SimpleNamespace(get_repositories=lambda: {"": repository})
    entries = {
        "loaded": SimpleNamespace(code_location=location),
        "with an error": SimpleNamespace(code_location=None),
    }
    context = context_of(entries)
    loop = PromptSensors({}).core_loop(context, Sleeps())  # type: ignore[arg-type]
    while len(slept) < 3:
        next(loop)
        intervals[:] = [[30], [30, 1], [30]][len(slept) % 3]
    assert slept == [5, 0.125, 5]


def context_of(entries: dict[str, SimpleNamespace]) -> SimpleNamespace:
    return SimpleNamespace(
        instance=DagsterInstance.ephemeral(),
        create_request_context=lambda: SimpleNamespace(get_code_location_entries=lambda: entries),
    )


def state_of(cursor: str | None, ticked: float) -> InstigatorState:
    data = SensorInstigatorData(last_tick_start_timestamp=ticked, cursor=cursor, min_interval=1)
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    return InstigatorState(
        RemoteInstigatorOrigin(origin, "hudi_ingest_coordinator"), InstigatorType.SENSOR, InstigatorStatus.RUNNING, data
    )


@pytest.mark.parametrize(
    ("cursor", "ticked", "waits"),
    [
        (NextTick(1000.25).cursor, 1000.1, False),
        (NextTick(1000.25).cursor, 1000.5, True),
        (NextTick(1001.25).cursor, 1000.1, True),
        (NextTick(1001.25).cursor, 999.0, False),
        (None, 1000.5, True),
        (None, 999.0, False),
    ],
)
def test_a_sensor_ticks_after_its_interval_or_when_its_cursor_says_that_a_transaction_is_due(
    monkeypatch: pytest.MonkeyPatch, cursor: str | None, ticked: float, waits: bool
) -> None:
    monkeypatch.setattr("time.time", lambda: 1001.0)
    monkeypatch.setattr("dagster._daemon.sensor.get_current_timestamp", lambda: 1001.0)
    ended = EndedRuns(DagsterInstance.ephemeral(), lambda: True)
    assert must_wait(ended, state_of(cursor, ticked), SimpleNamespace(min_interval_seconds=1)) == waits


def test_a_run_has_ended_when_it_is_first_found_so(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [True]
    with DagsterInstance.ephemeral() as instance:
        ended = EndedRuns(instance, lambda: changed[0])
        run = instance.add_run(DagsterRun(job_name="__ASSET_JOB", status=DagsterRunStatus.STARTED))
        ended.read()
        assert ended.ended_at(run.run_id) == math.inf
        instance.report_run_failed(run)
        changed[0] = False
        ended.read()
        assert ended.ended_at(run.run_id) == math.inf, "nothing has changed, so nobody asked"
        changed[0] = True
        monkeypatch.setattr("time.time", lambda: 1000.0)
        ended.read()
        assert ended.ended_at(run.run_id) == 1000
        monkeypatch.setattr("time.time", lambda: 1599.0)
        ended.read()
        assert ended.ended_at(run.run_id) == 1000, "else its sensor would tick for it twice"
        monkeypatch.setattr("time.time", lambda: 1601.0)
        ended.read()
        assert ended.ended_at(run.run_id) == 1601, "it was forgotten"


def test_a_coordinator_ticks_within_its_interval_when_a_transaction_is_due_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    looked, slept, cursor = [], [], [NextTick(1000.6).cursor]

    def look(*_: object, **__: object) -> Iterator[None]:
        looked.append(dagster_sensors.is_under_min_interval(state_of(cursor[0], 999.9), sensor))  # type: ignore[arg-type]
        yield None

    class Sleeps(Event):
        def wait(self, timeout: float | None = None) -> bool:
            slept.append(round(timeout or 0, 3))
            clock[0] += timeout or 0
            return False

    monkeypatch.setattr("time.time", lambda: clock[0])
    monkeypatch.setattr("time.thread_time", lambda: 0.0)
    monkeypatch.setattr(dagster_sensors, "get_current_timestamp", lambda: clock[0])
    for name in ("MIN_INTERVAL_LOOP_TIME", "is_under_min_interval"):
        monkeypatch.setattr(dagster_sensors, name, getattr(dagster_sensors, name))
    monkeypatch.setattr(dagster_sensors, "execute_sensor_iteration", look)
    sensor = SimpleNamespace(min_interval_seconds=1)
    repository = SimpleNamespace(get_sensors=lambda: [sensor])
    location = SimpleNamespace(get_repositories=lambda: {"": repository})
    entries = {"loaded": SimpleNamespace(code_location=location)}
    context = context_of(entries)
    loop = PromptSensors({}).core_loop(context, Sleeps())  # type: ignore[arg-type]
    while len(looked) < 6:
        next(loop)
    assert slept == [0.125] * 5
    assert looked == [True] * 5 + [False]


def test_a_job_is_asked_for_once_until_the_code_is_loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    class Location:
        """Stands for one load of the code."""

    asked = list[tuple[Location, str]]()

    def ask(location: Location, selector: str) -> str:
        asked.append((location, selector))
        return selector

    monkeypatch.setattr(run_queue, "_GET_JOB", ask)
    monkeypatch.setattr(run_queue, "_KEPT_JOBS", 2)
    before, after = Location(), Location()
    get: Any = run_queue.kept_jobs()
    for location, selector in ((before, "a"), (before, "b"), (before, "a"), (after, "a"), (before, "c"), (before, "a")):
        assert get(location, selector) == selector
    assert asked == [(before, "a"), (before, "b"), (after, "a"), (before, "c"), (before, "a")]
