"""Requests: backfills, replays and retries of dead letters that users have filed.

A request says what to do. Its progress is derived from the transactions that name it, so a crash between a commit and a
note about it cannot make the two disagree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

import sqlalchemy as sa

from hudi_ingest.ledger import transactions
from hudi_ingest.ledger.database import Database, Repository, inserting
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.tables import COORDINATORS, REQUESTS, SWITCHES, TRANSACTIONS, normal_base_path, storable
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.transaction import TransactionState

TICK_NOTED_SECONDS = 30
"""Ticks are noted no more often than this, because each note is a write."""


class RequestState(str, Enum):
    """States of a request. All but `active` are final."""

    ACTIVE = "active"
    """Waiting for its turn, or running one of its transactions."""
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
    """Empty for a retry."""
    skip_covered: bool = False
    """Backfill: skip ranges that the table covers; without it such ranges refuse the request."""
    respect_deletes: bool = False
    """Replay: write only offsets that have a row in the table."""
    state: RequestState = RequestState.ACTIVE
    worker: Owner | None = None
    """The process that runs it without the coordinator."""
    ended_at: datetime | None = None
    reason: str | None = None
    """Why it failed or was cancelled, or what remains of it; None while it is active."""
    passed_over: tuple[str, ...] = ()
    """Dead-letter files in which no letter can become a row."""

    @property
    def asks(self) -> tuple[Any, ...]:
        """The content of the request, regardless of when and by whom it was filed."""
        return (self.pipeline, self.table, self.kind, self.ranges, self.skip_covered, self.respect_deletes)

    @classmethod
    def from_mapping(cls, row: sa.RowMapping) -> Request:
        values: dict[str, Any] = dict(row)
        values["table"] = values.pop("base_path")
        values["kind"] = TransactionKind(values["kind"])
        values["state"] = RequestState(values["state"])
        values["ranges"] = tuple(Slice(**piece) for piece in values["ranges"])
        values["worker"] = Owner.parse(values["worker"]) if values["worker"] else None
        values["passed_over"] = tuple(values["passed_over"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class RequestedCommit:
    """One committed transaction of a request."""

    transaction_id: str
    instant: str
    rows: int | None
    """None if the commit was found in the timeline and its receipt is lost."""
    files: int | None
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """The results of a request's transactions so far."""

    commits: tuple[RequestedCommit, ...] = ()
    """Oldest first."""
    failures: int = 0
    """Number of its transactions rolled back since its last commit, or since it was filed."""
    reason: str = ""
    """Why the last of them was rolled back."""

    @property
    def done(self) -> tuple[Slice, ...]:
        return tuple(piece for commit in self.commits for piece in commit.slices)

    @property
    def rows(self) -> int:
        return sum(commit.rows or 0 for commit in self.commits)


@dataclass(frozen=True, slots=True)
class Wishes:
    """`switches`: which pipelines have been switched on or off, where the others do what their file says; `requested`: the
    pipelines with active requests."""

    switches: Mapping[str, bool]
    requested: frozenset[str]


class Requests(Repository):
    """Requests, and the coordinators that work on them."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._known: tuple[object, Wishes] | None = None
        """What people wanted, with the mark of the database that it is from."""

    def find(self, request_id: str) -> Request | None:
        with self._database.reading() as connection:
            return _find(connection, request_id)

    def standing(self, request: Request) -> Request | None:
        """Return the active request that asks for the same, which `file` would return; None if there is none."""
        with self._database.reading() as connection:
            return _standing(connection, _normal(request))

    def active(self, pipeline: str) -> tuple[Request, ...]:
        """Return the pipeline's active requests, oldest first."""
        with self._database.reading() as connection:
            return _active(connection, pipeline)

    def wishes(self) -> Wishes:
        """Return what people want of the pipelines. One statement; none with SQLite once two seconds have passed without a write, until
        the next one."""
        mark, known = self._database.mark(), self._known
        if mark is not None and known is not None and known[0] == mark:
            return known[1]
        active = sa.select(REQUESTS.c.pipeline, sa.null()).where(REQUESTS.c.state == RequestState.ACTIVE.value)
        statement = sa.select(SWITCHES.c.pipeline, SWITCHES.c.is_on).union(active)
        # No other process may write while a mark is taken.
        with self._database.reading() if mark is None else self._database.writing() as connection:
            mark = None if mark is None else self._database.mark()
            rows = [(name, is_on) for name, is_on in connection.execute(statement)]
        wishes = Wishes(
            {name: is_on for name, is_on in rows if is_on is not None},
            frozenset(name for name, is_on in rows if is_on is None),
        )
        self._known = (mark, wishes)
        return wishes

    def newest(self, pipeline: str | None = None, limit: int = 20) -> tuple[Request, ...]:
        """Return requests of all states, newest first; of all pipelines with None."""
        statement = sa.select(REQUESTS).order_by(REQUESTS.c.filed_at.desc(), REQUESTS.c.request_id).limit(limit)
        if pipeline is not None:
            statement = statement.where(REQUESTS.c.pipeline == pipeline)
        with self._database.reading() as connection:
            return tuple(map(Request.from_mapping, connection.execute(statement).mappings()))

    def progress(self, request_id: str) -> RequestProgress:
        with self._database.reading() as connection:
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
                slices = transactions.slices(connection, row["transaction_id"])
                commits.append(
                    RequestedCommit(row["transaction_id"], row["instant"], row["rows"], row["files"], slices)
                )
            return RequestProgress(tuple(commits), failures, reason)

    def last_deadline(self, request_id: str) -> datetime | None:
        """Return the latest deadline of the request's transactions, None if it has had none."""
        with self._database.reading() as connection:
            return connection.execute(
                sa.select(TRANSACTIONS.c.deadline)
                .where(TRANSACTIONS.c.request_id == request_id)
                .order_by(TRANSACTIONS.c.deadline.desc())
                .limit(1)
            ).scalar_one_or_none()

    def last_tried(self, table: str) -> int | None:
        """Return the sequence of the last transaction made for a request, in the Hudi table at base path `table`; None if there
        was none."""
        last = sa.select(sa.func.max(TRANSACTIONS.c.sequence)).where(
            TRANSACTIONS.c.base_path == normal_base_path(table), TRANSACTIONS.c.request_id.is_not(None)
        )
        with self._database.reading() as connection:
            sequence: int | None = connection.execute(last).scalar_one()
        return sequence

    def file(self, request: Request) -> Request:
        """File a request and return it, or return the active request that already asks for the same."""
        request = _normal(request)
        with self._database.writing() as connection:
            filed = _standing(connection, request)
            if filed is not None:
                return filed
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

    def end(self, request_id: str, state: RequestState, reason: str | None = None) -> bool:
        """End an active request. Returns False, and changes nothing, if it had already ended."""
        ended_at = datetime.now(timezone.utc)
        stored = storable(reason) if reason is not None else None
        with self._database.writing() as connection:
            return _change(connection, request_id, state=state.value, ended_at=ended_at, reason=stored)

    def work_on(self, request_id: str, worker: Owner | None) -> bool:
        """Record which process runs an active request; None leaves it to the coordinator."""
        with self._database.writing() as connection:
            return _change(connection, request_id, worker=str(worker) if worker else None)

    def pass_over(self, request_id: str, paths: Iterable[str]) -> None:
        """Record that no dead letter in these files can become a row now."""
        with self._database.writing() as connection:
            request = _find(connection, request_id)
            if request is not None:
                _change(connection, request_id, passed_over=sorted({*request.passed_over, *paths}))

    def ticked_at(self, pipeline: str) -> datetime | None:
        """Return when the pipeline's coordinator last ticked, accurate to TICK_NOTED_SECONDS; None if it never has."""
        statement = sa.select(COORDINATORS.c.ticked_at).where(COORDINATORS.c.pipeline == pipeline)
        with self._database.reading() as connection:
            return connection.execute(statement).scalar_one_or_none()

    def ticked(self) -> frozenset[str]:
        """Return the pipelines whose coordinators have ever ticked."""
        statement = sa.select(COORDINATORS.c.pipeline).where(COORDINATORS.c.ticked_at.is_not(None))
        with self._database.reading() as connection:
            return frozenset(connection.execute(statement).scalars())

    def note_tick(self, pipeline: str, now: datetime) -> None:
        """Note the tick of one pipeline; see `note_ticks`."""
        self.note_ticks([pipeline], now)

    def note_ticks(self, pipelines: Collection[str], now: datetime) -> None:
        """Note that the pipelines' coordinators tick, unless they noted a tick in the last TICK_NOTED_SECONDS.

        A note from the future does not count: the clock was set back.
        """
        own = COORDINATORS.c.pipeline.in_(pipelines)
        statement = sa.select(COORDINATORS.c.pipeline, COORDINATORS.c.ticked_at).where(own)
        with self._database.reading() as connection:
            last = {row.pipeline: row.ticked_at for row in connection.execute(statement)}
        noted = timedelta(seconds=TICK_NOTED_SECONDS)
        late = [name for name in pipelines if not (at := last.get(name)) or not timedelta(0) <= now - at < noted]
        if late:
            with self._database.writing() as connection:
                _note(connection, COORDINATORS, late, ticked_at=now)

    def note_settings(self, pipeline: str, settings: str, now: datetime) -> datetime | None:
        """Note a hash of the pipeline's settings at a tick. Returns when they were last seen to change, None if they never were."""
        statement = sa.select(COORDINATORS.c.settings, COORDINATORS.c.changed_at)
        with self._database.reading() as connection:
            row = connection.execute(statement.where(COORDINATORS.c.pipeline == pipeline)).one_or_none()
        if row is not None and row.settings == settings:
            return row.changed_at  # type: ignore[no-any-return]
        changed_at = now if row is not None and row.settings is not None else None
        with self._database.writing() as connection:
            _note(connection, COORDINATORS, [pipeline], ticked_at=now, settings=settings, changed_at=changed_at)
        return changed_at

    def switches(self) -> dict[str, bool]:
        """Return which pipelines have been switched on or off; the others do what their file says."""
        with self._database.reading() as connection:
            return {row.pipeline: row.is_on for row in connection.execute(sa.select(SWITCHES))}

    def switch(self, pipeline: str, on: bool) -> None:
        """Switch a pipeline on or off."""
        with self._database.writing() as connection:
            _note(connection, SWITCHES, [pipeline], is_on=on)


def _note(connection: sa.Connection, table: sa.Table, pipelines: Collection[str], **values: Any) -> None:
    """Change these values of the pipelines' rows, or insert the rows."""
    statement = inserting(connection, table).on_conflict_do_update(index_elements=[table.c.pipeline], set_=values)
    # In one order everywhere, so that two processes never wait for each other's rows.
    connection.execute(statement, [{"pipeline": pipeline, **values} for pipeline in sorted(pipelines)])


def _normal(request: Request) -> Request:
    return replace(request, table=normal_base_path(request.table))


def _find(connection: sa.Connection, request_id: str) -> Request | None:
    row = connection.execute(sa.select(REQUESTS).where(REQUESTS.c.request_id == request_id)).mappings().one_or_none()
    return None if row is None else Request.from_mapping(row)


def _standing(connection: sa.Connection, request: Request) -> Request | None:
    """Return the active request that asks for the same, None if there is none."""
    return next((filed for filed in _active(connection, request.pipeline) if filed.asks == request.asks), None)


def _active(connection: sa.Connection, pipeline: str) -> tuple[Request, ...]:
    """Return the pipeline's active requests, oldest first."""
    statement = (
        sa.select(REQUESTS)
        .where(REQUESTS.c.pipeline == pipeline, REQUESTS.c.state == RequestState.ACTIVE.value)
        .order_by(REQUESTS.c.filed_at, REQUESTS.c.request_id)
    )
    return tuple(map(Request.from_mapping, connection.execute(statement).mappings()))


def _change(connection: sa.Connection, request_id: str, **values: Any) -> bool:
    """Change an active request. Returns False, and changes nothing, if it has ended."""
    changed = connection.execute(
        REQUESTS.update()
        .where(REQUESTS.c.request_id == request_id, REQUESTS.c.state == RequestState.ACTIVE.value)
        .values(**values)
    )
    return bool(changed.rowcount)
