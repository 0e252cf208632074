"""Problems with their place in a file, and how messages show values and numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

Place = tuple[str | int, ...]
"""Path of a value in the file: mapping keys and list indexes from the top."""


class PlacedProblems(ValueError):
    """Problems of one value, each with its path below that value."""

    def __init__(self, problems: Iterable[tuple[Place, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(text for _, text in self.problems))


class ProblemsFromTop(PlacedProblems):
    """Problems whose paths start at the top of the file, because several values are wrong in combination."""


class SchemaProblem(ValueError):
    """A schema that no table can have. Carries all problems at once; each names its column."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))

    def __reduce__(self) -> tuple[type[SchemaProblem], tuple[tuple[str, ...]]]:
        return (SchemaProblem, (self.problems,))


def dotted(place: Place) -> str:
    """Render a place, like `transforms[1].cast`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def quoted(value: str) -> str:
    """Quote a text for a message, truncated to 60 characters."""
    return repr(value if len(value) <= 60 else value[:57] + "…")


def describe(value: object) -> str:
    """Render a value for a message."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    return str(value) if isinstance(value, (int, float)) else kind_of(value)


def kind_of(value: object) -> str:
    """Name the kind of value without showing it: it may be a secret."""
    if value is None:
        return "nothing"
    for kind, name in ((bool, "a boolean"), (str, "text"), (Mapping, "a mapping"), ((int, float), "a number")):
        if isinstance(value, kind):
            return name
    return "a list"


def suggestion(name: str, known: Iterable[str]) -> str:
    """End a message with the known name that was probably meant, or with nothing."""
    close = namesake(name, known, 0.6)
    return f"; did you mean {close}?" if close is not None else ""


def namesake(name: str, known: Iterable[str], likeness: float) -> str | None:
    """The known name that is most like `name` whatever their case, if it is at least as like as `likeness`, from 0 to 1."""
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), [*by_lower], n=1, cutoff=likeness)
    return by_lower[close[0]] if close else None


def unexpected(error: Exception) -> str:
    """Name an unforeseen error. Its message is left to the log: it may quote a secret."""
    return f"unexpected {type(error).__name__}; the log has its traceback. Please report it with the file"


def counted(count: int, noun: str) -> str:
    """Count a noun: `1 file`, `2 files`, `1,200 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(items: Sequence[object], most: int) -> str:
    """Name the first `most` of the items, and count the others: `a, b and 3 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more


def duration_text(seconds: float) -> str:
    """Format whole seconds up to ten minutes, then minutes, hours and days."""
    for unit, size, limit in (("s", 1, 600), ("min", 60, 10_800), ("h", 3600, 259_200)):
        if seconds < limit:
            return f"{max(0.0, seconds) / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"
