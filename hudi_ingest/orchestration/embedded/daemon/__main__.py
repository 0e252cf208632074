"""Runs Dagster's daemons until SIGTERM or SIGINT; the one that takes runs from the queue does so as soon as one is submitted or has
ended. Dagster's own checks once a second at best, so a small transaction waited for half a second on average, and so did the next run
after each that ended. The one that evaluates sensors looks for due ones as often as the shortest interval needs, and lets a
sensor tick at the time that its cursor names (`next_tick.py`).

In a package of its own, because a process that multiprocessing starts imports its parent's main module, unless that is a
`__main__`: each run would import Dagster's daemons.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from weakref import WeakKeyDictionary

from dagster import DagsterInstance, DagsterRunStatus, QueuedRunCoordinator, RunsFilter
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
from dagster._core.scheduler.instigation import InstigatorState, SensorInstigatorData
from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon import (
    DagsterDaemon,
    QueuedRunCoordinatorDaemon,
    SensorDaemon,
    daemon_controller_from_instance,
    sensor,
)
from dagster._daemon.controller import create_daemons_from_instance
from dagster._daemon.daemon import DaemonIterator, SpanMarker
from dagster._utils.interrupts import capture_interrupts, setup_interrupt_handlers

from hudi_ingest.orchestration.embedded.next_tick import NextTick
from hudi_ingest.orchestration.embedded.sqlite_storage import QuickRunStorage

_ENDED = {DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED}
_ACTIVE = [status for status in DagsterRunStatus if status not in _ENDED]
_LOG_LEVEL = "warning"
_LOOK_SECONDS = 0.02
_LOOKS_BEFORE_HEARTBEAT = 10
_SENSOR_LOOP_SECONDS: float = sensor.MIN_INTERVAL_LOOP_TIME
_IS_UNDER_MIN_INTERVAL = sensor.is_under_min_interval
_LOOKS_AN_INTERVAL = 8
_LOOKING_SHARE = 0.05
_GET_JOB = GrpcServerCodeLocation.get_job
_KEPT_JOBS = 64
_ENDED_SECONDS = 600.0
"""Seconds for which it is known when a run has ended. Its sensor's next tick, which names it no more, comes at once."""


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


class EndedRuns:
    """When runs ended, to the daemon's loop. `changed` says whether something about runs has changed since it was last called."""

    def __init__(self, instance: DagsterInstance, changed: Callable[[], bool]) -> None:
        self._instance = instance
        self._changed = changed
        self._active: frozenset[str] = frozenset()
        self._ended: dict[str, float] = {}

    def read(self) -> None:
        """Read which runs are active, in the loop's thread: a connection of SQLite's serves one."""
        if self._changed():
            self._active = frozenset(self._instance.get_run_ids(RunsFilter(statuses=_ACTIVE)))
            forgotten = time.time() - _ENDED_SECONDS
            self._ended = {
                each: at for each, at in [*self._ended.items()] if at > forgotten and each not in self._active
            }

    def ended_at(self, run_id: str) -> float:
        """Return when the run was first found to have ended, in seconds since 1970; infinity if it has not."""
        return math.inf if run_id in self._active else self._ended.setdefault(run_id, time.time())


def must_wait(ended: EndedRuns, state: InstigatorState, *more: Any) -> bool:
    """Whether the sensor's minimum interval has not passed, and nothing that its cursor names has become due."""
    data = state.instigator_data
    if not isinstance(data, SensorInstigatorData) or (next_tick := NextTick.of(data.cursor)) is None:
        return _IS_UNDER_MIN_INTERVAL(state, *more)
    ticked = max(data.last_tick_start_timestamp or 0.0, data.last_tick_timestamp or 0.0)
    return not next_tick.is_due(ticked, time.time(), ended.ended_at) and _IS_UNDER_MIN_INTERVAL(state, *more)


def kept_jobs() -> Callable[[GrpcServerCodeLocation, Any], Any]:
    """Return Dagster's `get_job`, which asks the code server for the job of a run of assets each time, with a memory: the job stays the same
    until the code is loaded anew, as another location."""
    jobs: WeakKeyDictionary[GrpcServerCodeLocation, dict[Any, Any]] = WeakKeyDictionary()

    def get_job(location: GrpcServerCodeLocation, selector: Any) -> Any:
        kept = jobs.setdefault(location, {})
        if selector not in kept:
            if len(kept) >= _KEPT_JOBS:
                kept.clear()
            kept[selector] = _GET_JOB(location, selector)
        return kept[selector]

    return get_job


class _Pause(Event):
    """The event for which Dagster's loop waits between two looks for due sensors, `seconds` at most from the beginning of one to the next."""

    def __init__(self, shutdown: Event) -> None:
        super().__init__()
        self._shutdown = shutdown
        self.seconds = _SENSOR_LOOP_SECONDS

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the daemon. `timeout`: Dagster's, which is what its own loop's time leaves."""
        return self._shutdown.wait(max(0.0, (timeout or 0.0) - (_SENSOR_LOOP_SECONDS - self.seconds)))


class PromptSensors(SensorDaemon):
    """Dagster's sensors, of which those with an interval below five seconds are not late either, and some tick also when their cursor says
    so."""

    def core_loop(
        self, workspace_process_context: IWorkspaceProcessContext[Any], shutdown_event: Event
    ) -> DaemonIterator:
        began = time.thread_time()
        ended = EndedRuns(workspace_process_context.instance, _changes(workspace_process_context.instance))
        sensor.is_under_min_interval = partial(must_wait, ended)
        GrpcServerCodeLocation.get_job = kept_jobs()  # type: ignore[method-assign,assignment]
        pause = _Pause(shutdown_event)
        for event in super().core_loop(workspace_process_context, pause):
            if event is SpanMarker.START_SPAN:
                began = time.thread_time()
                ended.read()
            elif event is SpanMarker.END_SPAN:
                intervals = _sensor_intervals(workspace_process_context)
                pause.seconds = sensor_loop_seconds(intervals, time.thread_time() - began)
            yield event


def _changes(instance: DagsterInstance) -> Callable[[], bool]:
    runs = instance.run_storage
    return runs.changes() if isinstance(runs, QuickRunStorage) else lambda: True


def _sensor_intervals(context: IWorkspaceProcessContext[Any]) -> Iterable[int]:
    for entry in context.create_request_context().get_code_location_entries().values():
        if entry.code_location is not None:
            for repository in entry.code_location.get_repositories().values():
                yield from (each.min_interval_seconds for each in repository.get_sensors())


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
