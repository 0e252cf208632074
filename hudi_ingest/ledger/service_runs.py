"""The newest run of each service of a table, and of housekeeping: when, how long, with what result. Called inside the ledger's
database transactions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from hudi_ingest.ledger import counters
from hudi_ingest.ledger.tables import SERVICE_RUNS, storable


class Service(str, Enum):
    """What runs beside transactions. The values are labels of metrics."""

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


def began(connection: sa.Connection, base_path: str, pipeline: str, service: Service, at: datetime) -> None:
    _upsert(connection, base_path, pipeline, service, {"began_at": at, "ended_at": None})


def ended(connection: sa.Connection, run: ServiceRun) -> None:
    """Record how a run ended, and count it. It succeeded if it has no error."""
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


def read(connection: sa.Connection) -> tuple[ServiceRun, ...]:
    return tuple(ServiceRun(**row) for row in connection.execute(sa.select(SERVICE_RUNS)).mappings())


def _upsert(connection: sa.Connection, base_path: str, pipeline: str, service: Service, values: dict[str, Any]) -> None:
    key = {"base_path": base_path, "service": service.value}
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(SERVICE_RUNS).values(**key, pipeline=pipeline, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=[*key], set_={"pipeline": pipeline, **values}))
