"""hudi-ingest as it is used: a Spark engine, Dagster's daemon and webserver, and a coordinator sensor that is turned on.

The time is from the start of the tick that plans the run until the completed commit can be seen on the table's timeline:
the tick, the run queue, the run's start, each op's start and its attaching to the engine, write and commit are all in it. CPU
is counted until the run has ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contenders import Outcome
from benchmarks.contenders.hudi_ingest_api import table_rows
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.storage import TableStorage
from hudi_ingest.local import dagster_api as webserver
from hudi_ingest.local.processes import stop
from hudi_ingest.local.stack import BROKER, DAGSTER, ENGINE, Report, Stack, StackSettings, bring_down, bring_up
from hudi_ingest.pipeline.pipeline import Pipeline

_LOOK_SECONDS = 0.1
_ASK_SECONDS = 5.0
_TELL_SECONDS = 15.0
_NEWEST_TICKS = 20
_ALL_TICKS = 1000
_OVER = {"SUCCESS", "FAILURE", "CANCELED"}


class DagsterStack:
    """The stack in `home`; its broker is everybody's. Pipeline files are there before `renew`, or
    their sensors are not."""

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
        return next(each.pid for each in self.stack.processes if each.name == BROKER)

    @property
    def pids(self) -> tuple[int, ...]:
        """The contender's processes: all but the broker."""
        return tuple(each.pid for each in self.stack.processes if each.name != BROKER)

    def renew(self) -> None:
        """A fresh engine, and a Dagster that has read the pipeline files anew; a broker that runs stays. Raises EnvironmentProblem."""
        if self._stack is not None:
            by_name = {each.name: each for each in self._stack.processes}
            for names in (DAGSTER, (ENGINE,)):
                stop([by_name[name] for name in names])
        self._stack = bring_up(self._home, self._settings, self._report)

    def stop(self) -> None:
        bring_down(self._home, self._report)

    def run(self, pipelines: Sequence[Pipeline], timeout_seconds: float, commit: int = 1) -> list[Outcome]:
        """Turns the pipelines' sensors on until each has published its commit of that number. Raises EnvironmentProblem when
        one does not."""
        deadline = time.monotonic() + timeout_seconds
        for each in pipelines:
            webserver.start_sensor(self.stack.url, _sensor(each))
        try:
            committed = self._await_commits(pipelines, deadline, commit)
        finally:
            # Their next ticks would disturb what is measured next.
            for each in pipelines:
                webserver.stop_sensor(self.stack.url, _sensor(each))
        return [self._outcome(each, committed[each.name], deadline, commit) for each in pipelines]

    def _outcome(self, pipeline: Pipeline, committed: float, deadline: float, commit: int) -> Outcome:
        # The tick that began it may be hundreds of ticks ago.
        launched = [each for each in self.ticks(pipeline, _ALL_TICKS) if each.run_ids]
        began, run_id = sorted((each.began, each.run_ids[0]) for each in launched)[commit - 1]
        at_rest = self._await_end(run_id, deadline)
        return Outcome(began, committed, table_rows(pipeline.table.base_path), at_rest)

    def ticks(self, pipeline: Pipeline, limit: int = _NEWEST_TICKS) -> list[webserver.Tick]:
        """The pipeline's newest ticks, newest first."""
        return webserver.ticks(self.stack.url, _sensor(pipeline), limit)

    def _await_commits(self, pipelines: Sequence[Pipeline], deadline: float, commit: int) -> dict[str, float]:
        """By pipeline, when its commit of that number could be seen."""
        asked = told = began = time.monotonic()
        committed: dict[str, float] = {}
        while True:
            for each in pipelines:
                at = commit_time(each.table.base_path, commit) if each.name not in committed else None
                if at is not None:
                    committed[each.name] = at
            if len(committed) == len(pipelines):
                return committed
            waiting = [each for each in pipelines if each.name not in committed]
            now = time.monotonic()
            if now - asked > _ASK_SECONDS:
                asked = now
                for each in waiting:
                    self._refuse_failure(each)
            if now - told > _TELL_SECONDS:
                told = now
                self._report(f"{now - began:.0f} s: {len(committed)} of {len(pipelines)} pipelines have committed")
            if now > deadline:
                raise EnvironmentProblem(
                    f"{', '.join(each.name for each in waiting)} committed nothing in time; {self._where(waiting[0])}"
                )
            time.sleep(_LOOK_SECONDS)

    def _refuse_failure(self, pipeline: Pipeline) -> None:
        where = self._where(pipeline)
        for tick in self.ticks(pipeline):
            if tick.status == "FAILURE":
                raise EnvironmentProblem(f"a tick of {pipeline.name} failed: {tick.reason}; {where}")
            for run_id in tick.run_ids:
                state = webserver.run_state(self.stack.url, run_id)
                if state is not None and state.status in ("FAILURE", "CANCELED"):
                    raise EnvironmentProblem(f"run {run_id} of {pipeline.name} is over with {state.status}; {where}")

    def _await_end(self, run_id: str, deadline: float) -> float:
        while True:
            state = webserver.run_state(self.stack.url, run_id)
            if state is not None and state.status in _OVER:
                return state.ended or time.time()
            if time.monotonic() > deadline:
                raise EnvironmentProblem(
                    f"run {run_id} has committed and does not end; see {self.stack.url}/runs/{run_id}."
                )
            time.sleep(_LOOK_SECONDS * 5)

    def _where(self, pipeline: Pipeline) -> str:
        return (
            f"see {self.stack.url}/automation (sensor {_sensor(pipeline)}) while the benchmark runs, and the logs in "
            f"{self._home.logs}."
        )


def _sensor(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_coordinator"


def commit_time(base_path: str, number: int = 1) -> float | None:
    """When the table's completed commit of that number could be seen, in seconds since the epoch; None before."""
    storage = TableStorage(base_path)
    completed = [name for name in storage.names(".hoodie/timeline") if "_" in name and name.endswith(".commit")]
    if len(completed) < number:
        return None
    file = storage.file(str(Path(".hoodie/timeline", sorted(completed)[number - 1])))
    return None if file is None else file.modified.timestamp()
