"""Dagster's names for a launcher that starts the runs of one module itself, and for their execution."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from dagster import DagsterEventType, DagsterInstance, DagsterRun, DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._grpc.impl import core_execute_run
from dagster._utils.hosted_user_process import recon_job_from_origin
from dagster._utils.interrupts import capture_interrupts, check_captured_interrupt

captured_interrupts: Callable[[], AbstractContextManager[None]] = capture_interrupts
"""A context in which an interrupt waits until an op asks for it, or `has_interrupt` does."""
has_interrupt: Callable[[], bool] = check_captured_interrupt


class ModuleRunLauncher(DefaultRunLauncher):
    """Starts the runs of one module, if it is to run in this Python. Runs of other code locations, and of other Pythons, are started by
    their code servers, as with Dagster's own launcher."""

    @property
    @abstractmethod
    def module(self) -> str: ...

    @abstractmethod
    def start(self, run: DagsterRun) -> None:
        """Start a process for the run and return."""

    @abstractmethod
    def death_of(self, run: DagsterRun) -> str | None:
        """Return how the run's process has ended before the run, None if it has not or nobody knows."""

    def launch_run(self, context: LaunchRunContext) -> None:
        """Start the run's process and return. The run's own events, within `start_timeout_seconds`, show that it works."""
        if _is_of_this_python(context, self.module):
            self.start(context.dagster_run)
        else:
            super().launch_run(context)

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Check the run's process; run monitoring fails runs whose process has died."""
        death = self.death_of(run)
        return CheckRunHealthResult(WorkerStatus.FAILED if death else WorkerStatus.RUNNING, death)


def _is_of_this_python(context: LaunchRunContext, module: str) -> bool:
    origin = context.job_code_origin
    if origin is None or origin.repository_origin.container_image or origin.executable_path != sys.executable:
        return False
    return getattr(origin.get_repo_pointer(), "module", None) == module


def execute(instance: DagsterInstance, run: DagsterRun) -> bool:
    """Execute the run in this process, with its code loaded anew. Returns whether it succeeded; why not is in its log."""
    succeeded = False
    if run.job_code_origin is not None:
        # Dagster reports to the run's log why a run fails before it raises that.
        with suppress(BaseException):
            job = recon_job_from_origin(run.job_code_origin)
            for event in core_execute_run(job, run, instance, inject_env_vars=True):
                succeeded = event.event_type is DagsterEventType.RUN_SUCCESS
    return succeeded
