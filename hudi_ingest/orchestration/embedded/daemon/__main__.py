"""Runs Dagster's daemons until SIGTERM or SIGINT; the one that takes runs from the queue does so as soon as one is submitted or has
ended. Dagster's own checks once a second at best, so a small transaction waited for half a second on average, and so did the next run
after each that ended. The one that evaluates sensors looks for due ones as often as the shortest interval needs, and lets a
coordinator tick when its next transaction is due.

In a package of its own, because a process that multiprocessing starts imports its parent's main module, unless that is a
`__main__`: each run would import Dagster's daemons.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import dagster._daemon.sensor
from dagster import DagsterInstance
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator
from dagster._core.scheduler.instigation import InstigatorState, SensorInstigatorData
from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import create_daemons_from_instance, daemon_controller_from_instance
from dagster._daemon.daemon import DaemonIterator, DagsterDaemon, SensorDaemon, SpanMarker
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._utils.interrupts import capture_interrupts, setup_interrupt_handlers

from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.sqlite_storage import QuickRunStorage

_LOG_LEVEL = "warning"
_LOOK_SECONDS = 0.02
_LOOKS_BEFORE_HEARTBEAT = 10
_SENSOR_LOOP_SECONDS: float = dagster._daemon.sensor.MIN_INTERVAL_LOOP_TIME
_IS_UNDER_MIN_INTERVAL = dagster._daemon.sensor.is_under_min_interval
_LOOKS_AN_INTERVAL = 8
_LOOKING_SHARE = 0.05


class PromptRunQueue(QueuedRunCoordinatorDaemon):
    """Dagster's queue, read when `changed` says that something about runs has changed, and at the latest after `seconds`."""

    def __init__(self, changed: Callable[[], bool], seconds: float) -> None:
        super().__init__(interval_seconds=0)
        self._changed = changed
        self._seconds = seconds

    def run_iteration(
        self, workspace_process_context: IWorkspaceProcessContext[Any], fixed_iteration_time: float | None = None
    ) -> DaemonIterator:
        due = time.monotonic() + self._seconds
        looks = 0
        while not self._changed() and time.monotonic() < due:
            time.sleep(_LOOK_SECONDS)
            looks += 1
            if looks % _LOOKS_BEFORE_HEARTBEAT == 0:
                # Dagster writes this daemon's heartbeat, or ends it.
                yield None
        yield from super().run_iteration(workspace_process_context, fixed_iteration_time)


def sensor_loop_seconds(intervals: Iterable[int], look_seconds: float) -> float:
    """Return the seconds between two looks for due sensors, of which these are the shortest intervals: Dagster's five, or less if one
    is shorter than four, with which it is due at each of those looks. Then an eighth of it, because a look just before a sensor is due
    leaves it to the next; but so many that looks, which take `look_seconds` of CPU each, need a twentieth of a core at most (0.2 ms for
    each sensor)."""
    shortest = min(intervals, default=_SENSOR_LOOP_SECONDS)
    if shortest >= _SENSOR_LOOP_SECONDS - 1:
        return _SENSOR_LOOP_SECONDS
    return min(_SENSOR_LOOP_SECONDS, max(max(shortest, 1) / _LOOKS_AN_INTERVAL, look_seconds / _LOOKING_SHARE))


def is_due(state: InstigatorState) -> bool:
    """Whether a transaction has become due since the coordinator's last tick, which said when it would."""
    data = state.instigator_data
    cursor = (data.cursor or "") if isinstance(data, SensorInstigatorData) else ""
    if not isinstance(data, SensorInstigatorData) or not cursor.startswith(tags.DUE):
        return False
    ticked = max(data.last_tick_start_timestamp or 0.0, data.last_tick_timestamp or 0.0)
    return ticked < float(cursor.removeprefix(tags.DUE)) <= time.time()


def _must_wait(state: InstigatorState, *sensor: Any) -> bool:
    return _IS_UNDER_MIN_INTERVAL(state, *sensor) and not is_due(state)


class PromptSensors(SensorDaemon):
    """Dagster's sensors, of which those with an interval below five seconds are not late either, and coordinators tick also when a
    transaction is due."""

    def core_loop(
        self, workspace_process_context: IWorkspaceProcessContext[Any], shutdown_event: Event
    ) -> DaemonIterator:
        began = time.thread_time()
        dagster._daemon.sensor.is_under_min_interval = _must_wait  # type: ignore[assignment]
        for event in super().core_loop(workspace_process_context, shutdown_event):
            if event is SpanMarker.START_SPAN:
                began = time.thread_time()
            elif event is SpanMarker.END_SPAN:
                # A constant of Dagster's, which this loop reads only after this point, to know how long to sleep.
                intervals = _sensor_intervals(workspace_process_context)
                seconds = sensor_loop_seconds(intervals, time.thread_time() - began)
                dagster._daemon.sensor.MIN_INTERVAL_LOOP_TIME = seconds  # type: ignore[assignment]
            yield event


def _sensor_intervals(context: IWorkspaceProcessContext[Any]) -> Iterable[int]:
    for entry in context.create_request_context().get_code_location_entries().values():
        if entry.code_location is not None:
            for repository in entry.code_location.get_repositories().values():
                yield from (sensor.min_interval_seconds for sensor in repository.get_sensors())


def daemons(instance: DagsterInstance) -> Iterable[DagsterDaemon[Any]]:
    """Return Dagster's daemons, with our own sensors, and our own queue where the runs are in SQLite."""
    runs, coordinator = instance.run_storage, instance.run_coordinator
    for daemon in create_daemons_from_instance(instance):
        is_queue = isinstance(daemon, QueuedRunCoordinatorDaemon)
        if is_queue and isinstance(coordinator, QueuedRunCoordinator) and isinstance(runs, QuickRunStorage):
            yield PromptRunQueue(runs.changes(), coordinator.dequeue_interval_seconds)
        elif isinstance(daemon, SensorDaemon):
            yield PromptSensors(settings=instance.get_sensor_settings())
        else:
            yield daemon


def main(workspace: Path) -> None:
    """Run until the process is stopped."""
    setup_interrupt_handlers()
    with (
        suppress(KeyboardInterrupt),
        capture_interrupts(),
        DagsterInstance.get() as instance,
        daemon_controller_from_instance(
            instance,
            WorkspaceFileTarget([str(workspace)]),
            gen_daemons=daemons,
            log_level=_LOG_LEVEL,
            code_server_log_level=_LOG_LEVEL,
        ) as controller,
    ):
        controller.check_daemon_loop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
