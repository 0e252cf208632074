"""A finding: what is well or wrong with one part of an installation, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from hudi_ingest.exceptions import IngestError

Figures = Mapping[str, int | float | str]


class State(str, Enum):
    """How urgent a finding is."""

    OK = "ok"
    WARNING = "warning"
    """Works, but needs attention soon, or may be on purpose."""
    PROBLEM = "problem"
    """Does not work until a person acts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact about `subject`, like `pipeline orders` or `ledger`. `remedy`: what to do, if the text does not say it. `check`:
    the check of the pipeline's table that this answers, if any."""

    subject: str
    state: State
    text: str
    remedy: str = ""
    check: str = ""
    figures: Figures = field(default_factory=dict)
    """Numbers to plot, and names that show a change."""
    at: datetime | None = None
    """When it was reported; None if it has just been found."""

    @property
    def passed(self) -> bool:
        return self.state is State.OK

    @property
    def warning(self) -> bool:
        return self.state is State.WARNING

    def to_dict(self) -> dict[str, Any]:
        return {"subject": self.subject, "state": self.state.value, "text": self.text, "remedy": self.remedy}


def ok(subject: str, text: str) -> Finding:
    return Finding(subject, State.OK, text)


def warning(subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(subject, State.WARNING, text, remedy)


def problem(subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(subject, State.PROBLEM, text, remedy)


def answer(
    pipeline: str,
    check: str,
    passed: bool,
    text: str,
    figures: Figures | None = None,
    warns: bool = False,
    at: datetime | None = None,
) -> Finding:
    """Return the answer to a check of a pipeline's table. `warns`: whether a failure is only a warning."""
    state = State.OK if passed else State.WARNING if warns else State.PROBLEM
    return Finding(f"pipeline {pipeline}", state, text, check=check, figures=figures or {}, at=at)


def stated(finding: Finding) -> Finding:
    """Return the answer to a check with the check's name in its text."""
    return replace(finding, text=f"{finding.check}: {finding.text.strip()}")


def examined(subject: str, examine: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of `examine`; an IngestError, which says what to do, is one, too."""
    try:
        yield from examine()
    except IngestError as error:
        yield problem(subject, str(error))


def worst(findings: Iterable[Finding]) -> State:
    """Return the most urgent state; OK if there are none."""
    states = {finding.state for finding in findings}
    return next((state for state in (State.PROBLEM, State.WARNING) if state in states), State.OK)


def distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Leave out those that say of a subject what an earlier one has said."""
    by_text: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        by_text.setdefault((finding.subject, finding.text), finding)
    return [*by_text.values()]


def first_sentence(text: str) -> str:
    """Return how a finding's text begins, without the period: up to one, or to the end of a line that no list's item follows."""
    beginning = re.split(r"\.\s|\n(?!\s*- )", text.removeprefix("- ").strip(), maxsplit=1)[0]
    return " ".join(beginning.split()).removesuffix(".")
