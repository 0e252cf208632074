"""Starts runs on this machine in processes that have imported everything, so a run starts seconds sooner.

Dagster's own launcher makes the code server spawn a Python for each run, which then imports Dagster, pyarrow, pandas and
hudi-ingest. Here a server beside Dagster's daemon does that once: see run_processes.py. After a package upgrade, restart the daemon.

It requires that daemon and code share a machine and an environment; Dagster's own launcher starts the runs of the instance's
other code locations. In dagster.yaml:

    run_launcher:
      module: hudi_ingest.orchestration.embedded.run_launcher
      class: ForkingRunLauncher
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from functools import cached_property

import psutil
from dagster import DagsterRun, DefaultRunLauncher
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.origin import JobPythonOrigin

from hudi_ingest.ledger.owner import Owner, is_dead, is_of_this_host, living_process
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.run_processes import RunProcesses, interrupts, pipeline_of

FORKED_MODULE = "hudi_ingest.orchestration.definitions"


class ForkingRunLauncher(DefaultRunLauncher):
    """Launches runs in forked processes. The hidden tag `tags.WORKER` names a run's process, so any Dagster process on the
    machine can check or end it.

    Runs of other code locations, and of other Pythons, are started by their code servers, as with Dagster's own launcher.
    """

    def launch_run(self, context: LaunchRunContext) -> None:
        """Start the run's process and return. The run's own events, within `start_timeout_seconds`, show that it works."""
        if not _is_of_this_python(context.job_code_origin):
            super().launch_run(context)
            return
        run = context.dagster_run
        in_process = run.tags.get(tags.IN_PROCESS) == "true"
        self._processes.start(self._instance.get_ref(), run.run_id, pipeline_of(run), keep=in_process)

    @cached_property
    def _processes(self) -> RunProcesses:
        return RunProcesses(FORKED_MODULE)

    def dispose(self) -> None:
        if "_processes" in vars(self):
            self._processes.close()
        super().dispose()

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run's process, as Ctrl-C would. False if the run has ended or its process is not on this machine."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or tags.WORKER not in run.tags:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        # Its process executes no other run before this one has ended.
        with interrupts(self._instance):
            run = self._instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                return False
            self._instance.report_run_canceling(run)
            process = living_process(Owner.parse(run.tags[tags.WORKER]))
            if process is None:
                self._instance.report_engine_event("The run's process is not on this machine, or has ended.", run)
                return False
            try:
                process.send_signal(signal.SIGINT)
            except psutil.NoSuchProcess:
                return False
        # A process that is stopped would not notice it, and its op would be shown as in progress for ever. Others ignore SIGCONT.
        with suppress(psutil.NoSuchProcess):
            for stopped in (*process.children(recursive=True), process):
                stopped.send_signal(signal.SIGCONT)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Check the run's process; run monitoring fails runs whose process has died."""
        if tags.WORKER not in run.tags:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "was started by another launcher")
        worker = Owner.parse(run.tags[tags.WORKER])
        if is_dead(worker, lambda _: None):
            return CheckRunHealthResult(WorkerStatus.FAILED, f"The run's worker ({worker}) died before the run ended")
        if not is_of_this_host(worker):
            # Runs are forked beside the daemon, which asks, so they cannot outlive its machine or container.
            return CheckRunHealthResult(
                WorkerStatus.FAILED, f"The run's worker ({worker}) was on a machine or in a container that has ended"
            )
        return CheckRunHealthResult(WorkerStatus.RUNNING)


def _is_of_this_python(origin: JobPythonOrigin | None) -> bool:
    """Whether the server that runs are forked from has imported this run's code."""
    if origin is None or origin.repository_origin.container_image or origin.executable_path != sys.executable:
        return False
    pointer = origin.get_repo_pointer()
    return isinstance(pointer, ModuleCodePointer) and pointer.module == FORKED_MODULE
