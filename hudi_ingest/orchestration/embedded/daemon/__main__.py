"""Runs Dagster's daemons until SIGTERM or SIGINT; the one that takes runs from the queue does so at once.

In a package of its own, because a process that multiprocessing starts imports its parent's main module, unless that is a
`__main__`: each run would import Dagster's daemons.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dagster import DagsterInstance
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import create_daemons_from_instance, daemon_controller_from_instance
from dagster._daemon.daemon import DagsterDaemon
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._utils.interrupts import capture_interrupts, setup_interrupt_handlers

from hudi_ingest.orchestration.embedded.daemon.run_queue import PromptRunQueue
from hudi_ingest.orchestration.embedded.sqlite_storage import QuickRunStorage

_LOG_LEVEL = "warning"


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
