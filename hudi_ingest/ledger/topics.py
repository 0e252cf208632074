"""The topics that have matched the patterns of templates.

Every process makes the same pipelines of them, and a topic that disappears keeps its pipeline, which then fails loudly. A wiped
ledger sees the topics that still exist again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from hudi_ingest.ledger.tables import TOPICS
from hudi_ingest.model.seen_topic import SeenTopic

_LISTED = ""
"""No topic has this name. Its row says that the topics have been listed, even if there were none."""


def of_template(connection: sa.Connection, template: str) -> tuple[SeenTopic, ...]:
    rows = connection.execute(
        sa.select(TOPICS.c.topic, TOPICS.c.seen_at, TOPICS.c.at_start)
        .where(TOPICS.c.template == template, TOPICS.c.topic != _LISTED)
        .order_by(TOPICS.c.seen_at, TOPICS.c.topic)
    )
    return tuple(SeenTopic(topic, seen_at, at_start) for topic, seen_at, at_start in rows)


def of_all(connection: sa.Connection) -> dict[str, tuple[SeenTopic, ...]]:
    """The topics of each template that has some."""
    templates = connection.execute(sa.select(TOPICS.c.template).where(TOPICS.c.topic != _LISTED).distinct()).scalars()
    return {template: of_template(connection, template) for template in templates}


def remember(connection: sa.Connection, template: str, topics: Iterable[str], now: datetime) -> tuple[str, ...]:
    """Add the topics that are new, and return them."""
    known = set(connection.execute(sa.select(TOPICS.c.topic).where(TOPICS.c.template == template)).scalars())
    new: Sequence[str] = sorted({_LISTED, *topics} - known)
    if new:
        first = _LISTED not in known
        rows = [{"template": template, "topic": topic, "seen_at": now, "at_start": first} for topic in new]
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        # Another process may have remembered them since.
        connection.execute(insert(TOPICS).on_conflict_do_nothing(), rows)
    return tuple(topic for topic in new if topic != _LISTED)


def forget(connection: sa.Connection, template: str, topic: str) -> bool:
    removed = connection.execute(TOPICS.delete().where(TOPICS.c.template == template, TOPICS.c.topic == topic))
    return bool(removed.rowcount)


def forget_template(connection: sa.Connection, template: str) -> None:
    connection.execute(TOPICS.delete().where(TOPICS.c.template == template))
