"""Takes runs from Dagster's queue as soon as one is submitted or has ended.

Dagster's own daemon looks once a second at best, so a small transaction waited for half a second on average, and so did the
next run after each that ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster._daemon.daemon import DaemonIterator
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

_LOOK_SECONDS = 0.02
_LOOKS_BEFORE_HEARTBEAT = 10


class PromptRunQueue(QueuedRunCoordinatorDaemon):
    """Dagster's queue, looked at when `changed` says that something about runs has, and at the latest after `seconds`."""

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
