"""Dagster's server of the code (`dagster api grpc`), whose runs are forked from a process that has imported everything.

Dagster's own launcher asks this server to start a run, and it spawns a Python, of whose CPU four fifths are imports. Here a server that
multiprocessing keeps beside it has done them once, as for the forking launcher. It holds modules only: each run reads the pipeline
files again. It ends with this server, which a reload of the code replaces; runs go on.
"""

from __future__ import annotations

import gc
import multiprocessing.forkserver
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

import dagster._grpc.server
from dagster import DagsterInstance, deserialize_value
from dagster._cli import main
from dagster._grpc.types import ExecuteExternalJobArgs

from hudi_ingest.orchestration.embedded.run_processes import IMPORTED_BY_RUNS, build_only_for

_Server: type[Any] = dagster._grpc.server.DagsterApiServer


class _ForkedRuns(ForkServerContext):
    """The processes of Dagster's runs, in place of multiprocessing's spawned ones."""

    def Process(self, *, target: Callable[..., None], args: Sequence[Any]) -> ForkServerProcess:  # type: ignore[override]
        return ForkServerProcess(target=_start_run, args=(target, args))


class ForkingServer(_Server):  # type: ignore[misc]
    """Dagster's, but for the processes of runs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._mp_ctx = _ForkedRuns()
        self._mp_ctx.set_forkserver_preload(
            ["hudi_ingest.orchestration.postgres_storage", "dagster._grpc.impl", *IMPORTED_BY_RUNS]
        )
        # The imports are done before the first run needs them.
        multiprocessing.forkserver.ensure_running()


def _start_run(start: Callable[..., None], args: Sequence[Any]) -> None:
    """Start the run, in its own process. `args`: those of Dagster's `start`, of which the first says which run."""
    gc.freeze()
    asked = deserialize_value(args[0], ExecuteExternalJobArgs)
    if asked.instance_ref is not None:
        with DagsterInstance.from_ref(asked.instance_ref) as instance:
            build_only_for(instance.get_run_by_id(asked.run_id))
    start(*args)


def serve() -> None:
    """Serve as `dagster api grpc` with this process's arguments, until the process is stopped."""
    dagster._grpc.server.DagsterApiServer = ForkingServer  # type: ignore[misc]
    main()  # type: ignore[no-untyped-call]
