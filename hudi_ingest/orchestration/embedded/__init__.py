"""The embedded stack's own parts of Dagster, which start runs sooner and cost less than the stock ones."""

from __future__ import annotations

from collections.abc import Callable

_known: set[tuple[str, str]] = set()
"""Contents of databases, by file or URL: tables, columns and migrations, which do not go away."""


def once(where: str, fact: str, ask: Callable[[], bool]) -> bool:
    """Ask the database until it says yes."""
    if (where, fact) not in _known and ask():
        _known.add((where, fact))
    return (where, fact) in _known
