"""Problems that have a place in a file, and values and numbers in the words of messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

Place = tuple[str | int, ...]
"""Where a value is in the file: mapping keys and list indexes from the top."""


class PlacedProblems(ValueError):
    """Problems of one value, each with its place below the value."""

    def __init__(self, problems: Iterable[tuple[Place, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(text for _, text in self.problems))


class ProblemsFromTop(PlacedProblems):
    """Problems whose places begin at the top of the file, because several of its values together are wrong."""


def quoted(value: str) -> str:
    """A text as messages show it: in quotes, and not too long."""
    return repr(value if len(value) <= 60 else value[:57] + "…")


def describe(value: object) -> str:
    """A value as messages show it."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    return str(value) if isinstance(value, (int, float)) else kind_of(value)


def kind_of(value: object) -> str:
    """What kind of value it is, without the value: it may be a secret."""
    if value is None:
        return "nothing"
    for kind, name in ((bool, "a boolean"), (str, "text"), (Mapping, "a mapping"), ((int, float), "a number")):
        if isinstance(value, kind):
            return name
    return "a list"


def suggestion(found: str, known: Iterable[str]) -> str:
    """The end of a message: the known name that was probably meant, or nothing."""
    close = difflib.get_close_matches(found.lower(), [*known], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`, `1,200 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
