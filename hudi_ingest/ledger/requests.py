"""Requests: backfills, replays and retries of dead letters that people have asked for, and the SQL that keeps them.

A request says what is wanted. What has been done of it, its transactions say, which name it: so a crash between a commit and a
note about it cannot make the two differ. Functions here run inside the ledger's database transactions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import sqlalchemy as sa

from hudi_ingest.ledger.owner import Owner, is_dead
from hudi_ingest.ledger.tables import COORDINATORS, REQUESTS, SLICES, TRANSACTIONS
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.transaction import TransactionState

TICK_NOTED_SECONDS = 30
"""Ticks are noted no more often, because each note is a write."""


class RequestState(str, Enum):
    """States of a request. All but `active` are final."""

    ACTIVE = "active"
    """Waits for its turn, or one of its transactions runs."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Request:
    """Ranges to backfill or to replay, or all dead letters to retry. `table` is the Hudi table's base path."""

    request_id: str
    pipeline: str
    table: str
    kind: TransactionKind
    filed_at: datetime
    ranges: tuple[Slice, ...] = ()
    """None of a retry."""
    skip_covered: bool = False
    """Of a backfill: leaves out what the table has; else that refuses the request."""
    respect_deletes: bool = False
    """Of a replay: writes only offsets that have a row in the table."""
    state: RequestState = RequestState.ACTIVE
    worker: Owner | None = None
    """The process that works it off without the coordinator."""
    ended_at: datetime | None = None
    reason: str | None = None
    """Why it failed or was cancelled, or what is left of it; None while it is active."""
    passed_over: tuple[str, ...] = ()
    """Files of dead letters none of whose letters can become a row."""

    @property
    def asks(self) -> tuple[Any, ...]:
        """What is wanted, whenever and by whomever."""
        return (self.pipeline, self.table, self.kind, self.ranges, self.skip_covered, self.respect_deletes)

    @property
    def has_worker(self) -> bool:
        """Whether a process works it off itself, and is not proved to be dead."""
        return self.worker is not None and not is_dead(self.worker, lambda run: None)

    @classmethod
    def from_mapping(cls, found: sa.RowMapping) -> Request:
        values: dict[str, Any] = dict(found)
        values["table"] = values.pop("base_path")
        values["kind"] = TransactionKind(values["kind"])
        values["state"] = RequestState(values["state"])
        values["ranges"] = tuple(Slice(**piece) for piece in values["ranges"])
        values["worker"] = Owner.parse(values["worker"]) if values["worker"] else None
        values["passed_over"] = tuple(values["passed_over"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class RequestedCommit:
    """A committed transaction of a request."""

    transaction_id: str
    instant: str
    rows: int | None
    """None where the commit was found in the timeline, and its receipt is lost."""
    files: int | None
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """What the transactions of a request have come to."""

    commits: tuple[RequestedCommit, ...] = ()
    """Oldest first."""
    failures: int = 0
    """How many of its transactions were rolled back since the last commit, or since it was filed."""
    reason: str = ""
    """Why the last of them was."""

    @property
    def done(self) -> tuple[Slice, ...]:
        return tuple(piece for commit in self.commits for piece in commit.slices)

    @property
    def rows(self) -> int:
        return sum(commit.rows or 0 for commit in self.commits)


def file(connection: sa.Connection, request: Request) -> Request:
    """Keeps the request, and gives back the one that stands: an active one that asks for the same, if there is one."""
    known = standing(connection, request)
    if known is not None:
        return known
    connection.execute(
        REQUESTS.insert().values(
            request_id=request.request_id,
            pipeline=request.pipeline,
            base_path=request.table,
            kind=request.kind.value,
            ranges=[asdict(piece) for piece in request.ranges],
            skip_covered=request.skip_covered,
            respect_deletes=request.respect_deletes,
            state=request.state.value,
            filed_at=request.filed_at,
            passed_over=[],
        )
    )
    return request


def standing(connection: sa.Connection, request: Request) -> Request | None:
    """The active request that asks for the same; None when there is none."""
    return next((known for known in active(connection, request.pipeline) if known.asks == request.asks), None)


def find(connection: sa.Connection, request_id: str) -> Request | None:
    row = connection.execute(sa.select(REQUESTS).where(REQUESTS.c.request_id == request_id)).mappings().one_or_none()
    return None if row is None else Request.from_mapping(row)


def active(connection: sa.Connection, pipeline: str) -> tuple[Request, ...]:
    """The oldest first."""
    statement = (
        sa.select(REQUESTS)
        .where(REQUESTS.c.pipeline == pipeline, REQUESTS.c.state == RequestState.ACTIVE.value)
        .order_by(REQUESTS.c.filed_at, REQUESTS.c.request_id)
    )
    return tuple(map(Request.from_mapping, connection.execute(statement).mappings()))


def newest(connection: sa.Connection, pipeline: str | None, limit: int) -> tuple[Request, ...]:
    """The newest first, of all pipelines when none is named."""
    statement = sa.select(REQUESTS).order_by(REQUESTS.c.filed_at.desc(), REQUESTS.c.request_id).limit(limit)
    if pipeline is not None:
        statement = statement.where(REQUESTS.c.pipeline == pipeline)
    return tuple(map(Request.from_mapping, connection.execute(statement).mappings()))


def change(connection: sa.Connection, request_id: str, **values: Any) -> bool:
    """Changes an active request. False: it has ended, and nothing happens."""
    changed = connection.execute(
        REQUESTS.update()
        .where(REQUESTS.c.request_id == request_id, REQUESTS.c.state == RequestState.ACTIVE.value)
        .values(**values)
    )
    return bool(changed.rowcount)


def pass_over(connection: sa.Connection, request_id: str, paths: Iterable[str]) -> None:
    known = find(connection, request_id)
    if known is not None:
        change(connection, request_id, passed_over=sorted({*known.passed_over, *paths}))


def progress(connection: sa.Connection, request_id: str) -> RequestProgress:
    rows = connection.execute(
        sa.select(TRANSACTIONS)
        .where(TRANSACTIONS.c.request_id == request_id, TRANSACTIONS.c.state != TransactionState.OPEN.value)
        .order_by(TRANSACTIONS.c.began_at, TRANSACTIONS.c.epoch)
    ).mappings()
    commits: list[RequestedCommit] = []
    failures, reason = 0, ""
    for row in rows:
        if row["state"] == TransactionState.ABORTED.value:
            failures, reason = failures + 1, row["reason"] or ""
            continue
        failures, reason = 0, ""
        slices = connection.execute(
            sa.select(SLICES.c.topic, SLICES.c.partition, SLICES.c.start_offset, SLICES.c.end_offset)
            .where(SLICES.c.transaction_id == row["transaction_id"])
            .order_by(SLICES.c.topic, SLICES.c.partition)
        )
        pieces = tuple(Slice(*piece) for piece in slices)
        commits.append(RequestedCommit(row["transaction_id"], row["instant"], row["rows"], row["files"], pieces))
    return RequestProgress(tuple(commits), failures, reason)


def last_tried(connection: sa.Connection, base_path: str) -> int | None:
    """The sequence of the table's last transaction that was a request's; None while there was none."""
    found: int | None = connection.execute(
        sa.select(sa.func.max(TRANSACTIONS.c.sequence)).where(
            TRANSACTIONS.c.base_path == base_path, TRANSACTIONS.c.request_id.is_not(None)
        )
    ).scalar_one()
    return found


def ticked(connection: sa.Connection, pipeline: str) -> datetime | None:
    return connection.execute(
        sa.select(COORDINATORS.c.ticked_at).where(COORDINATORS.c.pipeline == pipeline)
    ).scalar_one_or_none()


def is_noted(connection: sa.Connection, pipeline: str, now: datetime) -> bool:
    """Whether a tick was noted so lately that this one need not be. A note from the future is none: the clock was set back."""
    last = ticked(connection, pipeline)
    return last is not None and timedelta(0) <= now - last < timedelta(seconds=TICK_NOTED_SECONDS)


def note_tick(connection: sa.Connection, pipeline: str, now: datetime) -> None:
    changed = connection.execute(COORDINATORS.update().where(COORDINATORS.c.pipeline == pipeline).values(ticked_at=now))
    if not changed.rowcount:
        connection.execute(COORDINATORS.insert().values(pipeline=pipeline, ticked_at=now))
