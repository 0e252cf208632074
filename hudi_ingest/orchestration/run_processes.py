"""Processes that execute runs on this machine: forked from one that has imported everything, and kept for the next run.

A server that multiprocessing keeps beside Dagster's daemon holds modules only, and each run reads the pipeline files again. A process that
has executed a run also has its connections, Spark's driver and the commits of the table, so the next run takes two thirds of the CPU.
It executes one run at a time, and no other after one that did not succeed.
"""

from __future__ import annotations

import fcntl
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, DagsterRun

from hudi_ingest.home.folder import RUN_ASSETS_VARIABLE, RUN_PIPELINE_VARIABLE, Home
from hudi_ingest.home.liveness import IDLE_RUN_NAME, RUN_NAME, set_process_name
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.run_launcher import captured_interrupts, execute, has_interrupt
from hudi_ingest.orchestration.embedded.sqlite_storage import close_run_logs
from hudi_ingest.orchestration.executor import IMPORTED_BY_OPS

IMPORTED_BY_RUNS = [
    "hudi_ingest.orchestration.run_processes",
    *IMPORTED_BY_OPS,
    # All that the definitions need, and not these: each run loads the pipeline files.
    "hudi_ingest.orchestration.code_location",
    # The last: it rehearses a run with all of the above.
    "hudi_ingest.orchestration.rehearsal",
]
_KEPT_SECONDS = 60.0
"""A process ends if it has been given no run for so long."""
_OLDEST_SECONDS = 300.0
"""And so long after its first: it does not notice a user's module that has changed."""
_BEGINS_SECONDS = 2.0
_BEGINS, _READY = "begins", "ready"
"""The messages of a process: that the run names it now, so that run monitoring misses it if it dies, and that it can take the next run."""


@dataclass(slots=True, eq=False)
class _Process:
    """One that takes further runs, by our end of its pipe. It ends when we close it."""

    runs: Connection
    made_at: float
    used_at: float
    pipeline: str
    is_idle: bool = False

    def take(self, run_id: str) -> bool:
        """Execute the run if no other is at work. Raises OSError or EOFError if the process has ended, and has not begun it."""
        while self.runs.poll():
            self.is_idle = self.runs.recv() == _READY
        if not self.is_idle:
            return False
        self.is_idle = False
        self.runs.send(run_id)
        # One that is stopped may still begin it, so nobody else may.
        if self.runs.poll(_BEGINS_SECONDS):
            self.runs.recv()
        return True


class RunProcesses:
    """The processes that one launcher has started and can give further runs. Safe to share between threads."""

    def __init__(self, module: str) -> None:
        """`module`: of the definitions, which each run loads anew."""
        self._module = module
        self._kept: list[_Process] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        # At exit, multiprocessing waits for the processes to end, after this.
        Finalize(self, self.close, exitpriority=1)

    def start(self, instance: Any, run_id: str, pipeline: str, *, keep: bool) -> None:
        """Start the run, in a process that has executed others if it is one to `keep`; others fork processes of their own, which a
        process cannot safely do once it has threads. `pipeline`: whose definitions it needs, "" if those of several."""
        with self._lock:
            self._end_unused()
            if not (keep and self._given(run_id, pipeline)):
                self._fork(instance, run_id, pipeline, keep=keep)
            self._set_timer()

    def close(self) -> None:
        """Let each process end when its run has ended."""
        with self._lock:
            for process in self._kept:
                process.runs.close()
            self._kept = []

    def _given(self, run_id: str, pipeline: str) -> bool:
        """Give the run to an idle process, by preference to one that knows the pipeline's table; False if there is none."""
        now = time.monotonic()
        for process in sorted(self._kept, key=lambda each: (each.pipeline == pipeline, each.used_at), reverse=True):
            try:
                if process.take(run_id):
                    process.used_at, process.pipeline = now, pipeline
                    return True
            except (OSError, EOFError):
                # It was killed, or its last run did not succeed.
                self._end(process)
        return False

    def _fork(self, instance: Any, run_id: str, pipeline: str, *, keep: bool) -> None:
        forked = multiprocessing.get_context("forkserver")
        forked.set_forkserver_preload(IMPORTED_BY_RUNS)
        runs, theirs = forked.Pipe()
        with theirs:
            forked.Process(target=execute_runs, args=(instance, theirs, self._module), name="hudi-ingest-run").start()
        runs.send(run_id)
        now = time.monotonic()
        if keep:
            self._kept.append(_Process(runs, now, now, pipeline))
        else:
            runs.close()

    def _end(self, process: _Process) -> None:
        process.runs.close()
        self._kept.remove(process)

    def _end_unused(self) -> None:
        now = time.monotonic()
        for process in [*self._kept]:
            if now - process.used_at > _KEPT_SECONDS or now - process.made_at > _OLDEST_SECONDS:
                self._end(process)

    def _set_timer(self) -> None:
        if self._kept and self._timer is None:
            self._timer = threading.Timer(_KEPT_SECONDS, self._time_is_up)
            self._timer.daemon = True
            self._timer.start()

    def _time_is_up(self) -> None:
        with self._lock:
            self._timer = None
            self._end_unused()
            self._set_timer()


def execute_runs(instance_ref: Any, runs: Connection, module: str) -> None:
    """Execute runs, in a process of their own, until there are no more to come, or one of them does not succeed."""
    # What was inherited stays, and the collector would copy its pages.
    gc.freeze()
    # An idle process ends with the daemon, and not by an interrupt, which could come together with a run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with DagsterInstance.from_ref(instance_ref) as instance:
        while (run_id := _next_run(runs)) and _is_fit_after(instance, run_id, runs, module):
            close_run_logs()
            set_process_name(IDLE_RUN_NAME)
            _send(runs, _READY)


def _next_run(runs: Connection) -> str:
    """Wait for the next run; "" if the launcher has none, or has ended."""
    try:
        return str(runs.recv())
    except (EOFError, ConnectionError):
        return ""


def _send(runs: Connection, message: str) -> None:
    # A launcher that has no more runs for this process, or has ended, does not wait for it.
    with suppress(ConnectionError):
        runs.send(message)


def _is_fit_after(instance: DagsterInstance, run_id: str, runs: Connection, module: str) -> bool:
    """Execute the run. Returns whether this process is fit for another: not one that had no engine and has started a Spark."""
    from hudi_ingest.spark.session import has_own_driver

    set_process_name(RUN_NAME)
    with captured_interrupts():
        instance.add_run_tags(run_id, {tags.WORKER: str(Owner.this_process())})
        _send(runs, _BEGINS)
        succeeded = _execute(instance, run_id, module)
        with interrupts(instance, shared=True):
            # An interrupt that was meant for this run has come: the next one is for another.
            interrupted = has_interrupt()
    return succeeded and not interrupted and not has_own_driver(Home.from_environment())


def _execute(instance: DagsterInstance, run_id: str, module: str) -> bool:
    run = instance.get_run_by_id(run_id)
    build_only_for(run)
    sys.modules.pop(module, None)
    return run is not None and execute(instance, run)


@contextmanager
def interrupts(instance: DagsterInstance, *, shared: bool = False) -> Iterator[None]:
    """A lock across processes: whoever interrupts a run's process makes sure under it that the run has not ended, and the process takes
    it, `shared` with other runs' processes, between one run's end and the next run's start."""
    with open(Path(instance.root_directory, "hudi_ingest_interrupts.lock"), "ab") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def build_only_for(run: DagsterRun | None) -> None:
    """Have this process build no definitions but those that the run needs."""
    os.environ[RUN_PIPELINE_VARIABLE] = pipeline_of(run) if run is not None else ""
    os.environ[RUN_ASSETS_VARIABLE] = "yes" if run is not None and run.asset_selection else ""


def pipeline_of(run: DagsterRun) -> str:
    """Return the name of the only pipeline that the run may concern; "" if it may concern several. A run from an asset's page has
    no tag of ours yet, and the asset may be none of a pipeline."""
    selected = [key.path for key in run.asset_selection or ()]
    if len(selected) == 1 and len(selected[0]) == 1:
        return selected[0][0]
    return "" if selected else run.tags.get(tags.PIPELINE, "")
