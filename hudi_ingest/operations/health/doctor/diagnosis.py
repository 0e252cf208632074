"""A diagnosis: what is well or wrong with one part of an installation, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hudi_ingest.exceptions import IngestError


class State(str, Enum):
    """How urgent a diagnosis is."""

    OK = "ok"
    WARNING = "warning"
    """Works, but needs attention soon, or may be on purpose."""
    PROBLEM = "problem"
    """Something does not work until a person acts."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known about `subject`, like `pipeline orders`. `remedy`: what to do, if the text does not say it."""

    subject: str
    state: State
    text: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"subject": self.subject, "state": self.state.value, "text": self.text, "remedy": self.remedy}


def ok(subject: str, text: str) -> Diagnosis:
    return Diagnosis(subject, State.OK, text)


def warning(subject: str, text: str, remedy: str = "") -> Diagnosis:
    return Diagnosis(subject, State.WARNING, text, remedy)


def problem(subject: str, text: str, remedy: str = "") -> Diagnosis:
    return Diagnosis(subject, State.PROBLEM, text, remedy)


def failing(subject: str, check: str, text: str, is_warning: bool) -> Diagnosis:
    """The diagnosis of a check that fails."""
    return Diagnosis(subject, State.WARNING if is_warning else State.PROBLEM, f"{check}: {text.strip()}")


def examined(subject: str, examine: Callable[[], Iterable[Diagnosis]]) -> Iterator[Diagnosis]:
    """Yield the diagnoses of `examine`; an IngestError, which says what to do, is one, too."""
    try:
        yield from examine()
    except IngestError as error:
        yield problem(subject, str(error))


def worst(diagnoses: Iterable[Diagnosis]) -> State:
    """Return the most urgent state; OK if there are none."""
    states = {diagnosis.state for diagnosis in diagnoses}
    return next((state for state in (State.PROBLEM, State.WARNING) if state in states), State.OK)


def distinct(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Leave out those that say of a subject what an earlier one has said."""
    by_text: dict[tuple[str, str], Diagnosis] = {}
    for diagnosis in diagnoses:
        by_text.setdefault((diagnosis.subject, diagnosis.text), diagnosis)
    return [*by_text.values()]
