"""An executor like dagster-k8s' and dagster-docker's: each step is `dagster api execute_step` in a place of its own.

A step has neither the run's environment nor its home: only the variables that the JSON file at `PODS` lists, and folders that
are its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dagster import DagsterEvent, Executor, InitExecutorContext, executor, multiple_process_executor_requirements
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.step_delegating import (
    CheckStepHealthResult,
    StepDelegatingExecutor,
    StepHandler,
    StepHandlerContext,
)

from hudi_ingest.home.folder import HOME_VARIABLE

PODS = "HUDI_INGEST_TESTS_PODS"
HEALTH_SECONDS = 1


class Pods(StepHandler):
    """Starts and watches the steps' processes."""

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def name(self) -> str:
        return "pods"

    def launch_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        arguments = step_handler_context.execute_step_args
        place = Path(tempfile.mkdtemp(prefix="pod-"))
        variables = {**json.loads(Path(os.environ[PODS]).read_text()), HOME_VARIABLE: str(place / "home")}
        self._running[self._key(step_handler_context)] = subprocess.Popen(
            arguments.get_command_args(), env=variables, cwd=place, stdout=subprocess.DEVNULL
        )
        yield from ()

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        ended = self._running[self._key(step_handler_context)].poll()
        return CheckStepHealthResult.unhealthy(f"ended with {ended}") if ended else CheckStepHealthResult.healthy()

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        self._running[self._key(step_handler_context)].terminate()
        yield from ()

    @staticmethod
    def _key(context: StepHandlerContext) -> str:
        (key,) = context.execute_step_args.step_keys_to_execute or ()
        return key


@executor(name="pods", requirements=multiple_process_executor_requirements())
def pods(context: InitExecutorContext) -> Executor:
    """Runs each step in a place of its own."""
    return StepDelegatingExecutor(
        Pods(), retries=RetryMode.ENABLED, sleep_seconds=0.2, check_step_health_interval_seconds=HEALTH_SECONDS
    )
