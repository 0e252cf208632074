"""Examines the embedded stack for `hudi-ingest doctor`: which of its processes have ended."""

from __future__ import annotations

from collections.abc import Iterator

from hudi_ingest.home.folder import Home
from hudi_ingest.local.processes import is_alive
from hudi_ingest.local.stack import Stack
from hudi_ingest.model.finding import Finding, ok, problem

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
        yield problem(STACK, text, "`hudi-ingest up` starts what is not running.")
    if not dead:
        yield ok(STACK, f"all {len(stack.processes)} processes run; the UI is at {stack.url}")
