"""Compares two sets of rows, value by value. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class RowComparison:
    """How rows differ from those that are expected. `examples`: a sentence each."""

    rows: int
    """Rows found."""
    missing: int
    extra: int
    duplicate: int
    """Rows beyond the first of their key."""
    different: int
    """Rows with another value in at least one column, or with other columns."""
    examples: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.duplicate or self.different)


def compare_rows(expected: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]], key: str) -> RowComparison:
    """Compare rows by their key, in any order. Each key is expected once."""
    wanted = {row[key]: row for row in expected}
    seen: Counter[Any] = Counter()
    different, examples = set(), []
    for row in found:
        identifier = row[key]
        seen[identifier] += 1
        if identifier not in wanted:
            continue
        other = wanted[identifier]
        names = [name for name in {**other, **row} if not _same(row, other, name)]
        if names:
            different.add(identifier)
        examples += [
            f"{key} {identifier}: {name} is {_shown(row, name)} instead of {_shown(other, name)}" for name in names
        ]
    missing = [identifier for identifier in wanted if identifier not in seen]
    extra = [identifier for identifier in seen if identifier not in wanted]
    duplicate = [identifier for identifier, count in seen.items() if count > 1]
    examples += [f"{key} {identifier} is missing" for identifier in missing]
    examples += [f"{key} {identifier} should not be there" for identifier in extra]
    examples += [f"{key} {identifier} is there {seen[identifier]} times" for identifier in duplicate]
    return RowComparison(
        rows=sum(seen.values()),
        missing=len(missing),
        extra=len(extra),
        duplicate=sum(seen.values()) - len(seen),
        different=len(different),
        examples=tuple(examples[:_MOST_EXAMPLES]),
    )


def _same(row: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    """Whether both have the value. `True == 1` in Python, hence the types."""
    if name not in row or name not in other:
        return False
    return type(row[name]) is type(other[name]) and bool(row[name] == other[name])


def _shown(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return "no column"
    text = repr(row[name])
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
