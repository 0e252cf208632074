"""How a run's ops get their processes: none of their own when there is little to read, else one each, forked where that is safe."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

from dagster import DagsterEvent, Executor, InitExecutorContext, executor, multiple_process_executor_requirements
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.in_process import InProcessExecutor
from dagster._core.executor.multiprocess import MultiprocessExecutor

from hudi_ingest.orchestration import tags

OPS_AT_ONCE = 4
IMPORTED_BY_OPS = [
    "hudi_ingest.orchestration.pipeline_definitions",
    # What Dagster and pyspark import only when an op runs, a second of CPU in each; a name that is not there is passed over.
    "dagster._core.storage.sqlite_storage",
    "dagster_postgres",
    "distutils.version",
    "hudi_ingest.records.convert.json",
    "hudi_ingest.orchestration.step_logs",
    "pandas",
]
"""Modules that a process which others are forked from has imported before."""


def start_method() -> str:
    """How a process for an op is made, by multiprocessing's names.

    A process whose only thread is the main one may be forked as it is, all imports done: no other thread can hold a lock that
    the child would wait for. The native threads of numpy and pyarrow are safe: both libraries take care of a fork. So a run that
    the forking launcher started forks its ops. Dagster's own launcher starts a thread in the run's process; there the ops are
    forked from a server, which has to import everything first.
    """
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "forkserver"


class QuickExecutor(Executor):
    """Runs each op in a process of its own; where the run's tag `hudi_ingest/in_process` is `true`, one after another in the
    run's process, which is sooner done when there is little to read. A tag and not config, which other executors would refuse."""

    @property
    def retries(self) -> RetryMode:
        return RetryMode.ENABLED

    def execute(self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
        in_process = plan_context.dagster_run.tags.get(tags.IN_PROCESS) == "true"
        chosen = InProcessExecutor(retries=self.retries) if in_process else _multiprocess(self.retries)
        return chosen.execute(plan_context, execution_plan)


def _multiprocess(retries: RetryMode) -> Executor:
    return MultiprocessExecutor(
        max_concurrent=OPS_AT_ONCE,
        retries=retries,
        start_method=start_method(),
        explicit_forkserver_preload=IMPORTED_BY_OPS,
    )


@executor(name="hudi_ingest", requirements=multiple_process_executor_requirements())
def EXECUTOR(context: InitExecutorContext) -> Executor:
    """Of our own code location, and of any other that names it in its Definitions."""
    return QuickExecutor()
