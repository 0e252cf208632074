"""Runs Dagster's daemons until SIGTERM or SIGINT; the one that takes runs from the queue does so as soon as one is submitted or has
ended. Dagster's own checks once a second at best, so a small transaction waited for half a second on average, and so did the next run
after each that ended.

In a package of its own, because a process that multiprocessing starts imports its parent's main module, unless that is a
`__main__`: each run would import Dagster's daemons.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dagster import DagsterInstance
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator
from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import create_daemons_from_instance, daemon_controller_from_instance
from dagster._daemon.daemon import DaemonIterator, DagsterDaemon
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._utils.interrupts import capture_interrupts, setup_interrupt_handlers

from hudi_ingest.orchestration.embedded.sqlite_storage import QuickRunStorage

_LOG_LEVEL = "warning"
_LOOK_SECONDS = 0.02
_LOOKS_BEFORE_HEARTBEAT = 10


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


def daemons(instance: DagsterInstance) -> Iterable[DagsterDaemon[Any]]:
    """Return Dagster's daemons, with our own queue where the runs are in SQLite."""
    runs, coordinator = instance.run_storage, instance.run_coordinator
    for daemon in create_daemons_from_instance(instance):
        is_queue = isinstance(daemon, QueuedRunCoordinatorDaemon)
        if is_queue and isinstance(coordinator, QueuedRunCoordinator) and isinstance(runs, QuickRunStorage):
            yield PromptRunQueue(runs.changes(), coordinator.dequeue_interval_seconds)
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
