"""Examines a whole installation for `hudi-ingest doctor` and the REST API: machine, ledger, engine, Dagster, every pipeline.

Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.local.processes import is_alive
from hudi_ingest.local.stack import Stack, hanging_parts
from hudi_ingest.model.finding import Finding, State, distinct, examined, ok, problem, worst
from hudi_ingest.model.storage_options import is_s3
from hudi_ingest.operations.health.doctor import ENGINE, LEDGER, engine_diagnoses, ledger_diagnoses, machine_diagnoses
from hudi_ingest.operations.health.pipeline_doctor import folder_diagnoses, pipelines_diagnoses
from hudi_ingest.orchestration.reports.instance_view import dagster_diagnoses
from hudi_ingest.orchestration.switch import switched
from hudi_ingest.pipeline.folder import load_each
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.decoding import format_problems


@dataclass(frozen=True, slots=True)
class Examination:
    """The diagnoses of an installation. `state`: the most urgent of them."""

    state: State
    diagnoses: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"state": self.state.value, "diagnoses": [diagnosis.to_dict() for diagnosis in self.diagnoses]}


def examine(home: Home, report: Callable[[str], None]) -> Examination:
    """Examine the installation of this home. What cannot be reached becomes a diagnosis. Raises ConfigError if the pipelines
    folder cannot be read."""
    diagnoses = distinct(_diagnoses(home, report))
    return Examination(worst(diagnoses), tuple(diagnoses))


def _diagnoses(home: Home, report: Callable[[str], None]) -> Iterator[Finding]:
    report("examining this machine")
    pipelines, broken = load_each(home.pipelines, check=format_problems) if home.pipelines.is_dir() else ((), ())
    paths = [pipeline.table.base_path for pipeline in pipelines]
    yield from machine_diagnoses(home, [Path(path) for path in paths if not is_s3(path)])
    yield from examined(LEDGER, lambda: ledger_diagnoses(home))
    report("examining the engine and Dagster")
    yield from examined(STACK, lambda: stack_diagnoses(home))
    yield from examined(ENGINE, lambda: engine_diagnoses(home))
    yield from dagster_diagnoses(home, pipelines)
    yield from folder_diagnoses(home, pipelines, broken)
    yield from pipelines_diagnoses(home, pipelines, report, _off(home, pipelines))


def _off(home: Home, pipelines: Sequence[Pipeline]) -> frozenset[str]:
    """Pipelines whose sensors are off; none if Dagster cannot be asked, which has a diagnosis of its own."""
    try:
        switches = switched(home)
    except EnvironmentProblem:
        return frozenset()
    return frozenset(pipeline.name for pipeline in pipelines if not switches.is_on(pipeline))


STACK = "stack"


def stack_diagnoses(home: Home) -> Iterator[Finding]:
    """Examine the stack that `up` or `demo` started in this home, if there ever was one. Raises EnvironmentProblem."""
    stack = Stack.read(home)
    if stack is None:
        if home.kafka.exists():
            text = f"The stack of {home.root} is down: its broker, its engine and its Dagster do not run."
            yield problem(STACK, text, "`hudi-ingest up` starts it.")
        return
    dead = [record for record in stack.processes if not is_alive(record)]
    for record in dead:
        text = f"{record.name} of the stack in {home.root} has ended; the end of {record.log} says why."
        yield problem(STACK, text, "`hudi-ingest up` starts the missing services.")
    hanging = hanging_parts(home)
    for why in hanging:
        text, _, remedy = why.rpartition(": ")
        yield problem(STACK, f"{text}.", f"{remedy}.")
    if not dead and not hanging:
        yield ok(STACK, f"all {len(stack.processes)} processes run; the UI is at {stack.url}")
