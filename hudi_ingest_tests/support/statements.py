"""The SQL that an engine of this process sends."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa


def statements_of(engine: sa.Engine, act: Callable[[], object]) -> list[str]:
    """Return the statements that `act` sends through the engine, without those that begin and end database transactions."""
    sent = list[str]()

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        act()
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    return [statement for statement in sent if not statement.startswith("BEGIN")]
