"""Starts runs on this machine in processes that have imported everything, so a run starts seconds sooner.

Dagster's own launcher makes the code server spawn a Python for each run, which then imports Dagster, pyarrow, pandas and
hudi-ingest. Here a server beside Dagster's daemon does that once: see run_processes.py. After a package upgrade, restart the daemon.

It requires that daemon and code share a machine and an environment; Dagster's own launcher starts the runs of the instance's
other code locations. In dagster.yaml:

    run_launcher:
      module: hudi_ingest.orchestration.run_launcher
      class: ForkingRunLauncher
"""

from __future__ import annotations

import signal
from contextlib import suppress
from functools import cached_property

import psutil
from dagster import DagsterRun

from hudi_ingest.ledger.owner import Owner, is_dead, is_of_this_host, living_process
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.run_launcher import ModuleRunLauncher
from hudi_ingest.orchestration.run_processes import RunProcesses, interrupts, pipeline_of

FORKED_MODULE = "hudi_ingest.orchestration.definitions"


class ForkingRunLauncher(ModuleRunLauncher):
    """Launches runs in forked processes. The hidden tag `tags.WORKER` names a run's process, so any Dagster process on the
    machine can check or end it."""

    @property
    def module(self) -> str:
        return FORKED_MODULE

    def start(self, run: DagsterRun) -> None:
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

    def death_of(self, run: DagsterRun) -> str | None:
        if tags.WORKER not in run.tags:
            return None
        worker = Owner.parse(run.tags[tags.WORKER])
        if is_dead(worker, lambda _: None):
            return f"The run's worker ({worker}) died before the run ended"
        if not is_of_this_host(worker):
            # Runs are forked beside the daemon, which asks, so they cannot outlive its machine or container.
            return f"The run's worker ({worker}) was on a machine or in a container that has ended"
        return None
