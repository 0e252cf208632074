"""Notes that processes leave for one another: the topics that templates have matched, the changes of columns that wait for approval,
and the newest run of each service."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

import sqlalchemy as sa

from hudi_ingest.ledger import counters
from hudi_ingest.ledger.database import Repository, inserting
from hudi_ingest.ledger.tables import PENDING_CHANGES, SERVICE_RUNS, TOPICS, normal_base_path, storable
from hudi_ingest.model.offsets import SeenTopic

_LISTED = ""
"""No topic has this name. Its row says that the topics have been listed, even if there were none."""


class Topics(Repository):
    """The topics that have matched the patterns of templates.

    Every process makes the same pipelines of them, and a topic that disappears keeps its pipeline, which then fails loudly. A
    wiped ledger sees the topics that still exist again. `template` is a template's `name`.
    """

    def of_template(self, template: str) -> tuple[SeenTopic, ...]:
        """Return the topics that have matched the template's pattern, oldest first."""
        with self._database.reading() as connection:
            return _topics_of(connection, template)

    def of_all(self) -> dict[str, tuple[SeenTopic, ...]]:
        """Return the topics of each template that has seen some, oldest first."""
        named = sa.select(TOPICS.c.template).where(TOPICS.c.topic != _LISTED).distinct()
        with self._database.reading() as connection:
            return {template: _topics_of(connection, template) for template in connection.execute(named).scalars()}

    def remember(self, template: str, topics: Iterable[str], now: datetime) -> tuple[str, ...]:
        """Remember the topics that match now, and return those that are new."""
        with self._database.writing() as connection:
            known = set(connection.execute(sa.select(TOPICS.c.topic).where(TOPICS.c.template == template)).scalars())
            new: Sequence[str] = sorted({_LISTED, *topics} - known)
            if new:
                first = _LISTED not in known
                rows = [{"template": template, "topic": topic, "seen_at": now, "at_start": first} for topic in new]
                # Another process may have remembered them since.
                connection.execute(inserting(connection, TOPICS).on_conflict_do_nothing(), rows)
            return tuple(topic for topic in new if topic != _LISTED)

    def forget(self, template: str, topic: str) -> bool:
        """Forget a topic, which then has no pipeline any more. Returns False if it is not known."""
        statement = TOPICS.delete().where(TOPICS.c.template == template, TOPICS.c.topic == topic)
        with self._database.writing() as connection:
            return bool(connection.execute(statement).rowcount)

    def forget_template(self, template: str) -> None:
        """Forget all topics of a template, and that they were ever listed."""
        with self._database.writing() as connection:
            connection.execute(TOPICS.delete().where(TOPICS.c.template == template))


def _topics_of(connection: sa.Connection, template: str) -> tuple[SeenTopic, ...]:
    rows = connection.execute(
        sa.select(TOPICS.c.topic, TOPICS.c.seen_at, TOPICS.c.at_start)
        .where(TOPICS.c.template == template, TOPICS.c.topic != _LISTED)
        .order_by(TOPICS.c.seen_at, TOPICS.c.topic)
    )
    return tuple(SeenTopic(topic, seen_at, at_start) for topic, seen_at, at_start in rows)


@dataclass(frozen=True, slots=True)
class PendingChange:
    """How a table's columns would change. `base_path` is the table's, without a trailing slash."""

    base_path: str
    pipeline: str
    fingerprint: str
    origin: str
    """Where the columns come from."""
    changes: tuple[str, ...]
    found_at: datetime

    @property
    def sentence(self) -> str:
        return (
            f"the table's columns would change ({'; '.join(self.changes)}), by {self.origin}, and table.on_schema_change is refuse. "
            f"No transaction begins before `hudi-ingest approve-schema {self.pipeline} --fingerprint {self.fingerprint}` has "
            "approved this, or it is undone where it was made"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint,
            "origin": self.origin,
            "changes": list(self.changes),
            "found_at": self.found_at.isoformat(),
            "text": self.sentence,
        }


class PendingChanges(Repository):
    """Changes of tables' columns that wait for a person's approval, as the begin that was refused found them. `table` is a Hudi
    table's base path."""

    def of_table(self, table: str) -> PendingChange | None:
        """Return the change that was noted last for the table."""
        statement = sa.select(PENDING_CHANGES).where(PENDING_CHANGES.c.base_path == normal_base_path(table))
        with self._database.reading() as connection:
            row = connection.execute(statement).mappings().first()
        return PendingChange(**{**row, "changes": tuple(row["changes"])}) if row is not None else None

    def note(self, change: PendingChange) -> None:
        """Remember the change instead of any other of its table."""
        values: dict[str, Any] = {
            "base_path": normal_base_path(change.base_path),
            "pipeline": change.pipeline,
            "fingerprint": change.fingerprint,
            "origin": change.origin,
            "changes": list(change.changes),
            "found_at": change.found_at,
        }
        with self._database.writing() as connection:
            connection.execute(PENDING_CHANGES.delete().where(PENDING_CHANGES.c.base_path == values["base_path"]))
            connection.execute(PENDING_CHANGES.insert().values(**values))

    def forget(self, table: str) -> bool:
        """Forget the table's change, because it was approved or is gone. Returns whether there was one."""
        statement = PENDING_CHANGES.delete().where(PENDING_CHANGES.c.base_path == normal_base_path(table))
        with self._database.writing() as connection:
            return bool(connection.execute(statement).rowcount)


class Service(str, Enum):
    """The work that runs beside transactions. The values are labels of metrics."""

    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    CLEANING = "cleaning"
    TTL = "ttl"
    SWEEP = "sweep"
    HOUSEKEEPING = "housekeeping"


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """The newest run of a service, whose end is None while it runs or if it was killed. `seconds`, `error`, `due` and `done` are of
    the last one that ended: how much it found to do, and did, in the service's own unit."""

    base_path: str
    service: str
    pipeline: str
    began_at: datetime
    ended_at: datetime | None = None
    succeeded_at: datetime | None = None
    seconds: float | None = None
    error: str | None = None
    due: int | None = None
    done: int | None = None


class ServiceRuns(Repository):
    """The newest run of each table service, and of housekeeping."""

    def newest(self) -> tuple[ServiceRun, ...]:
        """Return the newest run of each service of all tables, and of housekeeping."""
        with self._database.reading() as connection:
            return newest_runs(connection)

    def began(self, table: str, pipeline: str, service: Service, at: datetime) -> None:
        """Record that a service begins to work on the Hudi table at base path `table`; "" for housekeeping."""
        with self._database.writing() as connection:
            _upsert(connection, normal_base_path(table), pipeline, service, {"began_at": at, "ended_at": None})

    def ended(self, run: ServiceRun) -> None:
        """Record how a run ended, and count it. It succeeded if it has no error."""
        run = replace(run, base_path=normal_base_path(run.base_path))
        with self._database.writing() as connection:
            assert run.ended_at is not None
            values = {
                "began_at": run.began_at,
                "ended_at": run.ended_at,
                "seconds": (run.ended_at - run.began_at).total_seconds(),
                "error": storable(run.error) if run.error is not None else None,
                "due": run.due,
                "done": run.done,
            }
            if run.error is None:
                values["succeeded_at"] = run.ended_at
            _upsert(connection, run.base_path, run.pipeline, Service(run.service), values)
            outcome = counters.SUCCEEDED if run.error is None else counters.FAILED
            counters.add(connection, run.base_path, {f"{counters.SERVICES}{run.service}/{outcome}": 1})


def newest_runs(connection: sa.Connection) -> tuple[ServiceRun, ...]:
    return tuple(ServiceRun(**row) for row in connection.execute(sa.select(SERVICE_RUNS)).mappings())


def _upsert(connection: sa.Connection, base_path: str, pipeline: str, service: Service, values: dict[str, Any]) -> None:
    key = {"base_path": base_path, "service": service.value}
    statement = inserting(connection, SERVICE_RUNS).values(**key, pipeline=pipeline, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=[*key], set_={"pipeline": pipeline, **values}))
