"""hudi-ingest as users run it: a Spark engine, Dagster's daemon and webserver, and a running coordinator sensor.

The time is from the start of the tick that plans the run until the completed commit is visible on the table's timeline. It
includes the tick, the run queue, the run's start, each op's start and its attaching to the engine, write and commit. CPU
is counted until the run has ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.contenders import Outcome
from benchmarks.contenders.dagster_runs import Tick, run_state, runs_of, ticks
from benchmarks.contenders.hudi_ingest_api import table_rows
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import stop
from hudi_ingest.local.progress import Report
from hudi_ingest.local.stack import BROKER, DAGSTER, ENGINE, Stack, StackSettings, bring_down, bring_up
from hudi_ingest.pipeline.pipeline import Pipeline

_LOOK_SECONDS = 0.1
_ASK_SECONDS = 20.0
"""Only to end early when something has failed: each question costs the webserver, which is measured, too."""
_TELL_SECONDS = 15.0
_NEWEST_TICKS = 20
_ALL_TICKS = 1000
_OVER = {"SUCCESS", "FAILURE", "CANCELED"}


class DagsterStack:
    """The stack in `home`, whose broker all contenders use. Only pipeline files that exist before `renew` get sensors."""

    def __init__(self, home: Home, settings: StackSettings, report: Report) -> None:
        self._home = home
        self._settings = settings
        self._report = report
        self._stack: Stack | None = None

    @property
    def stack(self) -> Stack:
        assert self._stack is not None, "started"
        return self._stack

    @property
    def broker_pid(self) -> int:
        return next(process.pid for process in self.stack.processes if process.name == BROKER)

    @property
    def pids(self) -> tuple[int, ...]:
        """Pids of the contender's processes: all but the broker."""
        return tuple(process.pid for process in self.stack.processes if process.name != BROKER)

    def renew(self) -> None:
        """Start a fresh engine, and a Dagster that has read the current pipeline files; a running broker is kept. Raises
        EnvironmentProblem."""
        if self._stack is not None:
            by_name = {process.name: process for process in self._stack.processes}
            for names in (DAGSTER, (ENGINE,)):
                stop([by_name[name] for name in names])
        self._stack = bring_up(self._home, self._settings, self._report)

    def stop(self) -> None:
        bring_down(self._home, self._report)

    def run(self, pipelines: Sequence[Pipeline], timeout_seconds: float, commit: int = 1) -> list[Outcome]:
        """Turn the pipelines on until each has published its commit number `commit`. Raises EnvironmentProblem if one
        does not."""
        deadline = time.monotonic() + timeout_seconds
        self._turn(pipelines, True)
        try:
            committed = self._await_commits(pipelines, deadline, commit)
        finally:
            # Their next ticks would disturb what is measured next.
            self._turn(pipelines, False)
        return [self._outcome(pipeline, committed[pipeline.name], deadline, commit) for pipeline in pipelines]

    def _turn(self, pipelines: Sequence[Pipeline], on: bool) -> None:
        with Ledger.open(self._home.ledger_url) as ledger:
            for pipeline in pipelines:
                ledger.requests.switch(pipeline.name, on)

    def _outcome(self, pipeline: Pipeline, committed: float, deadline: float, commit: int) -> Outcome:
        # The tick that launched it may be hundreds of ticks ago.
        launched = [(tick.began, run_id) for tick in self.ticks(pipeline, _ALL_TICKS) for run_id in tick.run_ids]
        began, run_id = sorted(launched)[commit - 1]
        at_rest = self._await_end(run_id, deadline)
        return Outcome(began, committed, table_rows(pipeline), at_rest)

    def ticks(self, pipeline: Pipeline, limit: int = _NEWEST_TICKS) -> list[Tick]:
        """The coordinator's newest ticks, newest first, each with the pipeline's own runs."""
        own = runs_of(self.stack.url, pipeline.name)
        found = ticks(self.stack.url, pipeline.coordinator, limit)
        return [replace(tick, run_ids=tuple(run for run in tick.run_ids if run in own)) for tick in found]

    def _await_commits(self, pipelines: Sequence[Pipeline], deadline: float, commit: int) -> dict[str, float]:
        """Return when each pipeline's commit of this number became visible."""
        asked_at = reported_at = began = time.monotonic()
        committed: dict[str, float] = {}
        while True:
            for pipeline in pipelines:
                at = commit_time(pipeline.table.base_path, commit) if pipeline.name not in committed else None
                if at is not None:
                    committed[pipeline.name] = at
            if len(committed) == len(pipelines):
                return committed
            waiting = [pipeline for pipeline in pipelines if pipeline.name not in committed]
            now = time.monotonic()
            if now - asked_at > _ASK_SECONDS:
                asked_at = now
                for pipeline in waiting:
                    self._refuse_failure(pipeline)
            if now - reported_at > _TELL_SECONDS:
                reported_at = now
                self._report(f"{now - began:.0f} s: {len(committed)} of {len(pipelines)} pipelines have committed")
            if now > deadline:
                raise EnvironmentProblem(
                    f"{', '.join(pipeline.name for pipeline in waiting)} committed nothing in time; {self._where(waiting[0])}"
                )
            time.sleep(_LOOK_SECONDS)

    def _refuse_failure(self, pipeline: Pipeline) -> None:
        where = self._where(pipeline)
        for tick in self.ticks(pipeline):
            if tick.status == "FAILURE":
                raise EnvironmentProblem(f"a tick of {pipeline.name} failed: {tick.reason}; {where}")
            for run_id in tick.run_ids:
                state = run_state(self.stack.url, run_id)
                if state is not None and state.status in ("FAILURE", "CANCELED"):
                    raise EnvironmentProblem(f"run {run_id} of {pipeline.name} ended with {state.status}; {where}")

    def _await_end(self, run_id: str, deadline: float) -> float:
        while True:
            state = run_state(self.stack.url, run_id)
            if state is not None and state.status in _OVER:
                return state.ended or time.time()
            if time.monotonic() > deadline:
                raise EnvironmentProblem(
                    f"run {run_id} has committed but does not end; see {self.stack.url}/runs/{run_id}."
                )
            time.sleep(_LOOK_SECONDS * 5)

    def _where(self, pipeline: Pipeline) -> str:
        return (
            f"see {self.stack.url}/automation (sensor {pipeline.coordinator}) while the benchmark runs, and the logs in "
            f"{self._home.logs}."
        )


def commit_time(base_path: str, number: int = 1) -> float | None:
    """Return when the table's completed commit of this number became visible, in seconds since the epoch; None before."""
    storage = LocalStorage(base_path)
    completed = [name for name in storage.names(".hoodie/timeline") if "_" in name and name.endswith(".commit")]
    if len(completed) < number:
        return None
    file = storage.file(str(Path(".hoodie/timeline", sorted(completed)[number - 1])))
    return None if file is None else file.modified.timestamp()
