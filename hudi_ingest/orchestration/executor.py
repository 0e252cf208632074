"""Runs a run's ops: in the run's own process when there is little to read, else one process each, forked where that is safe."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

from dagster import (
    DagsterEvent,
    Executor,
    ExecutorDefinition,
    InitExecutorContext,
    executor,
    in_process_executor,
    multiple_process_executor_requirements,
    multiprocess_executor,
)

from hudi_ingest.orchestration import tags

OPS_AT_ONCE = 4
IMPORTED_BY_OPS = [
    "hudi_ingest.orchestration.pipeline_definitions",
    # What Dagster and pyspark import only when an op runs, a second of CPU in each; names that do not exist are ignored.
    "hudi_ingest.orchestration.embedded.sqlite_storage",
    "dagster_postgres",
    "distutils.version",
    "hudi_ingest.records.convert.json.converter",
    "hudi_ingest.orchestration.embedded.step_logs",
    "hudi_ingest.hudi.storage.local",
    "hudi_ingest.hudi.storage.s3",
    "encodings.idna",
    "encodings.utf_8_sig",
    "pandas",
]
"""Modules that a process imports before ops are forked from it."""


def start_method() -> str:
    """Return multiprocessing's start method for an op's process.

    A process with only its main thread can be forked as it is, with all imports done: no other thread can hold a lock that the
    child would wait for. The native threads of numpy and pyarrow are safe, because both libraries handle a fork. So a run from
    the forking launcher forks its ops. Dagster's own launcher starts a thread in the run's process; there, ops are forked from
    a server, which has to import everything first.
    """
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "forkserver"


class QuickExecutor(Executor):
    """Runs each op in its own process or, if the run's tag `hudi_ingest/in_process` is `true`, one after another in the run's
    process, which is faster when there is little to read. It is a tag because other executors would refuse unknown config."""

    def __init__(self, context: InitExecutorContext) -> None:
        self._context = context

    @property
    def retries(self) -> Any:
        return self._dagsters(in_process_executor).retries

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[DagsterEvent]:
        if plan_context.dagster_run.tags.get(tags.IN_PROCESS) == "true":
            chosen = self._dagsters(in_process_executor)
        else:
            method, options = start_method(), {"preload_modules": IMPORTED_BY_OPS}
            # Dagster's schema does not allow "fork", because most processes have threads.
            start = {method: options if method == "forkserver" else {}}
            chosen = self._dagsters(multiprocess_executor, max_concurrent=OPS_AT_ONCE, start_method=start)
        return chosen.execute(plan_context, execution_plan)

    def _dagsters(self, definition: ExecutorDefinition, **config: Any) -> Executor:
        """Create Dagster's own executor of that definition."""
        create = definition.executor_creation_fn
        assert create is not None
        return create(self._context._replace(executor_config={"retries": {"enabled": {}}, **config}))


@executor(name="hudi_ingest", requirements=multiple_process_executor_requirements())
def EXECUTOR(context: InitExecutorContext) -> Executor:
    """The executor of our own code location, and of any other that names it in its Definitions."""
    return QuickExecutor(context)
