"""Starts runs on this machine by forking a process that has imported everything, so a run starts seconds sooner.

Dagster's own launcher makes the code server spawn a Python for each run, which then imports Dagster, pyarrow, pandas and
hudi-ingest. Here a server that multiprocessing keeps beside Dagster's daemon does that once. It holds modules only: each run
reads the pipeline files again. After a package upgrade, restart the daemon.

It requires that daemon and code share a machine and an environment; Dagster's own launcher starts the runs of the instance's
other code locations. In dagster.yaml:

    run_launcher:
      module: hudi_ingest.orchestration.embedded.run_launcher
      class: ForkingRunLauncher
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import suppress

import psutil
from dagster import DagsterInstance, DefaultRunLauncher
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.origin import JobPythonOrigin
from dagster._core.storage.dagster_run import DagsterRun
from dagster._utils.interrupts import capture_interrupts

from hudi_ingest.ledger.owner import Owner, is_dead, is_of_this_host, living_process
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.executor import IMPORTED_BY_OPS

FORKED_MODULE = "hudi_ingest.orchestration.definitions"
RUN_PIPELINE = "HUDI_INGEST_RUN_PIPELINE"
"""Names the only pipeline of a run in its process, which then builds no definitions of others: each takes 20 ms of CPU."""
RUN_ASSETS = "HUDI_INGEST_RUN_ASSETS"
"""Not empty in the process of a run of assets, which has no use for maintenance jobs."""
IMPORTED_BY_RUNS = [
    "dagster._cli.api",
    *IMPORTED_BY_OPS,
    # All that the definitions need, and not these: each run loads the pipeline files.
    "hudi_ingest.orchestration.code_location",
    # The last: it rehearses a run with all of the above.
    "hudi_ingest.orchestration.embedded.preload",
]


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
        forked = multiprocessing.get_context("forkserver")
        forked.set_forkserver_preload(IMPORTED_BY_RUNS)
        process = forked.Process(
            target=_execute, args=(self._instance.get_ref(), context.dagster_run.run_id), name="hudi-ingest-run"
        )
        process.start()

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run's process, as Ctrl-C would. False if the run has ended or its process is not on this machine."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or tags.WORKER not in run.tags:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        if run.is_finished:
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


def _execute(instance_ref: InstanceRef, run_id: str) -> None:
    """Execute the run, in its own process."""
    from dagster._cli.api import _execute_run_command_body

    with capture_interrupts(), DagsterInstance.from_ref(instance_ref) as instance:
        instance.add_run_tags(run_id, {tags.WORKER: str(Owner.this_process())})
        build_only_for(instance.get_run_by_id(run_id))
        _execute_run_command_body(run_id, instance, lambda event: None, set_exit_code_on_failure=False)


def build_only_for(run: DagsterRun | None) -> None:
    """Have this process build no definitions but those that the run needs."""
    os.environ[RUN_PIPELINE] = pipeline_of(run) if run is not None else ""
    os.environ[RUN_ASSETS] = "yes" if run is not None and run.asset_selection else ""


def pipeline_of(run: DagsterRun) -> str:
    """Return the name of the only pipeline that the run may concern; "" if it may concern several. A run from an asset's page has
    no tag of ours yet, and the asset may be none of a pipeline."""
    selected = [key.path for key in run.asset_selection or ()]
    if len(selected) == 1 and len(selected[0]) == 1:
        return selected[0][0]
    return "" if selected else run.tags.get(tags.PIPELINE, "")
