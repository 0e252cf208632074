"""The ledger: the SQL record of transactions, slices and attempts.

The Hudi table is the source of truth. A ledger may be wiped at any time and never overrules the table: a committed
transaction that it does not know is not an error, and what the table says replaces what the ledger says. Its fencing is
only an early check: a transaction that is not open here gets no new attempts.

Each call opens and closes its own connection, so threads and forked processes may share a ledger, and a hundred waiting
ops do not hold a hundred connections to a PostgreSQL server.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, InterfaceError, OperationalError

from hudi_ingest.exceptions import EnvironmentProblem, Fenced, LedgerUnreachable, TransactionInFlight
from hudi_ingest.ledger import locks, migrations, requests
from hudi_ingest.ledger.database import WRITES, open_engine, shown_url
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.requests import Request, RequestProgress, RequestState
from hudi_ingest.ledger.tables import (
    ATTEMPTS,
    SLICES,
    TRANSACTIONS,
    AttemptRow,
    AttemptState,
    SliceRow,
    TransactionRow,
)
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import CommitReceipt, SliceReport
from hudi_ingest.model.transaction import CommittedTransaction, TransactionState

_MIGRATION_WAIT_SECONDS = 120.0
_BEGIN_TRIES = 20
_TEXT_LIMIT = 20_000
"""Maximum length of a stored error or reason, in characters."""
# PostgreSQL's error codes.
_UNDEFINED_TABLE = "42P01"
_INSUFFICIENT_PRIVILEGE = "42501"
_INVALID_SCHEMA_NAME = "3F000"


class LedgerReader:
    """Read access to the ledger. Safe to share between threads.

    Every method raises LedgerUnreachable, and EnvironmentProblem when the file is not a database.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._where = f"ledger {shown_url(engine.url)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown_url(self._engine.url)}>"

    def open_transaction(self, table: str) -> TransactionRow | None:
        """Return the open transaction of the Hudi table at base path `table`, None if there is none."""
        with self._reading() as connection:
            return _open_transaction(connection, _base_path(table))

    def transaction(self, transaction_id: str) -> TransactionRow | None:
        with self._reading() as connection:
            return _transaction(connection, transaction_id)

    def history(self, pipeline: str, limit: int = 10) -> tuple[TransactionRow, ...]:
        """Return the pipeline's transactions of all states, newest first. Raises ValueError unless `limit` is positive."""
        if limit < 1:
            raise ValueError(f"the limit of a history must be at least 1, found {limit}")
        statement = (
            sa.select(TRANSACTIONS)
            .where(TRANSACTIONS.c.pipeline == pipeline)
            .order_by(TRANSACTIONS.c.began_at.desc(), TRANSACTIONS.c.epoch.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            return tuple(TransactionRow.from_mapping(row) for row in connection.execute(statement).mappings())

    def slices(self, transaction_id: str) -> tuple[SliceRow, ...]:
        """Return the planned slices by topic and partition; empty for an unknown transaction."""
        statement = (
            sa.select(SLICES)
            .where(SLICES.c.transaction_id == transaction_id)
            .order_by(SLICES.c.topic, SLICES.c.partition)
        )
        with self._reading() as connection:
            return tuple(SliceRow.from_mapping(row) for row in connection.execute(statement).mappings())

    def attempts(self, transaction_id: str) -> tuple[AttemptRow, ...]:
        """Return all attempts by topic, partition and number; empty for an unknown transaction."""
        statement = (
            sa.select(ATTEMPTS)
            .where(ATTEMPTS.c.transaction_id == transaction_id)
            .order_by(ATTEMPTS.c.topic, ATTEMPTS.c.partition, ATTEMPTS.c.attempt)
        )
        with self._reading() as connection:
            return tuple(AttemptRow.from_mapping(row) for row in connection.execute(statement).mappings())

    def request(self, request_id: str) -> Request | None:
        with self._reading() as connection:
            return requests.find(connection, request_id)

    def standing_request(self, request: Request) -> Request | None:
        """Return the active request that asks for the same, which `file_request` would return; None if there is none."""
        with self._reading() as connection:
            return requests.standing(connection, _of_base_path(request))

    def active_requests(self, pipeline: str) -> tuple[Request, ...]:
        """Return the pipeline's active requests, oldest first."""
        with self._reading() as connection:
            return requests.active(connection, pipeline)

    def newest_requests(self, pipeline: str | None = None, limit: int = 20) -> tuple[Request, ...]:
        """Return requests of all states, newest first; of all pipelines with None."""
        with self._reading() as connection:
            return requests.newest(connection, pipeline, limit)

    def progress(self, request_id: str) -> RequestProgress:
        with self._reading() as connection:
            return requests.progress(connection, request_id)

    def last_request_tried(self, table: str) -> int | None:
        """Return the sequence of the last transaction made for a request, in the Hudi table at base path `table`."""
        with self._reading() as connection:
            return requests.last_tried(connection, _base_path(table))

    def coordinator_ticked_at(self, pipeline: str) -> datetime | None:
        """Return when the pipeline's coordinator last ticked, accurate to TICK_NOTED_SECONDS; None if it never has."""
        with self._reading() as connection:
            return requests.ticked(connection, pipeline)

    def dispose(self) -> None:
        """Close all connections. A held table lock is not affected."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._translated(), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            translated = self._translate(error)
            if translated is error:
                raise
            raise translated from error

    def _translate(self, error: DBAPIError) -> Exception:
        """Translate a database error into ours; return a programming error as it is."""
        code = getattr(error.orig, "pgcode", None)
        message = f"{self._where}: {str(error.orig).strip()}"
        if isinstance(error, (OperationalError, InterfaceError)) or code == _UNDEFINED_TABLE:
            return LedgerUnreachable(
                f"{message}. The Hudi table is not affected. Try again; if the error persists, check that the database is "
                "running, has free space, and is the one that HUDI_INGEST_LEDGER_URL should name. A wiped ledger is "
                "recreated when it is opened again."
            )
        if code in (_INSUFFICIENT_PRIVILEGE, _INVALID_SCHEMA_NAME):
            return EnvironmentProblem(
                f"{message}. The ledger's user needs a schema in its search_path, with USAGE and CREATE on it: run "
                "`CREATE SCHEMA hudi_ingest AUTHORIZATION <user>` and add ?options=-csearch_path%3Dhudi_ingest to "
                "HUDI_INGEST_LEDGER_URL."
            )
        if type(error) is DatabaseError:
            return EnvironmentProblem(
                f"{message}. The file is damaged or not a ledger. Move it aside: the Hudi tables are the source of truth, and "
                "a new ledger is created when it is opened again."
            )
        return error


class Ledger(LedgerReader):
    """Read and write access to the ledger. Each method is one database transaction."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine)
        self._writer = engine.execution_options(**{WRITES: True})

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Open `sqlite:///<path>` or `postgresql+psycopg2://…`, and create or migrate its tables.

        Any number of processes may do so at once. Raises ConfigError (bad URL), EnvironmentProblem (a newer hudi-ingest
        used this ledger; no write-ahead log on that file system; no driver) or LedgerUnreachable.
        """
        ledger = cls(open_engine(url))
        try:
            ledger._migrate()
        except BaseException:
            ledger.dispose()
            raise
        return ledger

    def begin(self, plan: TransactionPlan, *, table: str, owner: Owner, deadline: datetime, above: int = 0) -> int:
        """Record the plan as the table's open transaction and return its epoch.

        A table's epochs grow with each begin; `above` is the epoch stored in the table itself, which a wiped ledger does
        not know. `deadline` is timezone-aware.
        Raises TransactionInFlight when the table has an open transaction, Fenced when the transaction id was used
        before, ValueError when a partition is planned twice or the deadline has no time zone.
        """
        sources = [planned.source for planned in plan.slices]
        if len(set(sources)) < len(sources):
            repeated = sorted({str(source) for source in sources if sources.count(source) > 1})
            raise ValueError(f"plan {plan.transaction_id} has more than one slice of {', '.join(repeated)}")
        if deadline.utcoffset() is None:
            raise ValueError(f"the deadline of {plan.transaction_id} needs a time zone, found {deadline!r}")
        base_path = _base_path(table)
        for retries in reversed(range(_BEGIN_TRIES)):
            try:
                with self._writing() as connection:
                    return _insert(connection, plan, base_path, owner, deadline, above)
            except IntegrityError:
                # PostgreSQL: another begin came between our check and our insert. The next check sees it.
                if not retries:
                    raise
        raise AssertionError("unreachable")

    def record_instant(self, transaction_id: str, instant: str) -> None:
        """Record the Hudi instant of an open transaction. Idempotent.

        Raises Fenced when the transaction is not open, or has another instant.
        """
        with self._writing() as connection:
            row = _require_open(connection, transaction_id, f"instant {instant} cannot be recorded")
            if row.instant not in (None, instant):
                raise Fenced(
                    f"transaction {transaction_id} already has instant {row.instant}, so {instant} cannot be recorded: two "
                    "begins ran for it. Abort it; the next transaction reads the same offsets."
                )
            _update(connection, transaction_id, {"instant": instant})

    def start_attempt(self, transaction_id: str, source: TopicPartition) -> int:
        """Start an attempt at a slice and return its number: 0, 1, 2…, never the same twice.

        Raises Fenced when the transaction is no longer open or is unknown (the ledger was wiped), ValueError when
        `source` is not in its plan.
        """
        with self._writing() as connection:
            _require_open(connection, transaction_id, f"no attempt at {source} may start")
            planned = connection.execute(
                sa.select(sa.literal(1)).where(
                    SLICES.c.transaction_id == transaction_id,
                    SLICES.c.topic == source.topic,
                    SLICES.c.partition == source.partition,
                )
            ).first()
            if planned is None:
                raise ValueError(f"transaction {transaction_id} has no slice of {source} in its plan")
            # The transaction's row is locked, so no other attempt can take this number before the insert.
            attempt: int = connection.execute(
                sa.select(sa.func.coalesce(sa.func.max(ATTEMPTS.c.attempt) + 1, 0)).where(*_of(transaction_id, source))
            ).scalar_one()
            connection.execute(
                ATTEMPTS.insert().values(
                    transaction_id=transaction_id,
                    topic=source.topic,
                    partition=source.partition,
                    attempt=attempt,
                    state=AttemptState.RUNNING.value,
                    started_at=_now(),
                )
            )
        return attempt

    def finish_attempt(self, transaction_id: str, attempt: int, report: SliceReport) -> None:
        """Record that the attempt is done. Idempotent for an equal report.

        Raises Fenced when the transaction is no longer open, or the attempt is unknown, has failed, or is done with
        another report: what it wrote must not be published.
        """
        source = report.slice.source
        name = f"attempt {attempt} at {source} of transaction {transaction_id}"
        with self._writing() as connection:
            row = _transaction(connection, transaction_id, lock=True)
            rows = connection.execute(
                sa.select(ATTEMPTS).where(*_of(transaction_id, source), ATTEMPTS.c.attempt == attempt)
            ).mappings()
            recorded = next(map(AttemptRow.from_mapping, rows), None)
            if recorded is not None and recorded.report == report:
                return
            if row is None or row.state is not TransactionState.OPEN:
                raise Fenced(_not_open(row, transaction_id, f"attempt {attempt} at {source} does not count"))
            if recorded is None:
                raise Fenced(f"{name} was never started in this ledger. Start one and write the slice again.")
            if recorded.state is not AttemptState.RUNNING:
                raise Fenced(
                    f"{name} is already recorded as {recorded.state.value} ({recorded.error or 'with another report'}), so it "
                    "cannot be recorded as done. Its files are not published; start another attempt."
                )
            _end_attempts(connection, transaction_id, source, attempt, {"state": "done", "report": report.to_dict()})

    def fail_attempt(self, transaction_id: str, source: TopicPartition, attempt: int, error: str) -> None:
        """Record why a running attempt failed. Leaves an unknown or ended attempt unchanged, and never raises Fenced, which
        would hide the reported failure."""
        with self._writing() as connection:
            _transaction(connection, transaction_id, lock=True)
            _end_attempts(connection, transaction_id, source, attempt, {"state": "failed", "error": _storable(error)})

    def mark_committed(self, receipt: CommitReceipt) -> bool:
        """Record a commit that is in the table, even over an abort: the table is the source of truth. Idempotent.

        Returns False, and records nothing, when this ledger does not know the transaction (it was wiped). Raises Fenced
        when the transaction is recorded as committed by another instant.
        """
        figures = {"rows": receipt.rows, "files": receipt.files, "size_bytes": receipt.size_bytes}
        return self._commit(receipt.plan.transaction_id, receipt.instant, figures, receipt.reports)

    def mark_committed_as_found(self, transaction_id: str, instant: str) -> bool:
        """Record a commit that was found in the table's timeline and whose receipt is lost; see `mark_committed`.

        Rows, files and size stay None until `mark_committed` sets them.
        """
        return self._commit(transaction_id, instant, {}, ())

    def restore_committed(self, found: CommittedTransaction, *, table: str, owner: Owner, deadline: datetime) -> bool:
        """Make the ledger agree with the table about a committed transaction; False when it already does.

        The caller holds the table's lock. A transaction unknown to this ledger becomes `owner`'s. Raises Fenced
        when the transaction is recorded as committed by another instant.
        """
        plan = found.plan
        figures = {"rows": found.rows, "files": found.files, "size_bytes": found.size_bytes}
        row = self.transaction(plan.transaction_id)
        if row is not None:
            recorded = row.state is TransactionState.COMMITTED and row.instant == found.instant and row.rows is not None
            return not recorded and self._commit(plan.transaction_id, found.instant, figures, ())
        values = {
            "state": TransactionState.COMMITTED.value,
            "instant": found.instant,
            "began_at": found.began_at,
            "ended_at": found.ended_at,
            **figures,
        }
        with self._writing() as connection:
            _add(connection, plan, _base_path(table), owner, deadline, 0, values)
        return True

    def mark_aborted(self, transaction_id: str, reason: str) -> bool:
        """Record that an open transaction was rolled back. An aborted one keeps its first reason.

        Returns False when this ledger does not know the transaction. Raises Fenced when it is committed: that is final.
        """
        with self._writing() as connection:
            row = _transaction(connection, transaction_id, lock=True)
            if row is None:
                return False
            if row.state is TransactionState.COMMITTED:
                raise Fenced(
                    f"transaction {transaction_id} of table {row.table} was committed by instant {row.instant} at "
                    f"{_shown_time(row.ended_at)} and cannot be aborted ({reason}). Its rows are in the table; to "
                    "replace them, replay the offsets."
                )
            if row.state is TransactionState.OPEN:
                _update(
                    connection,
                    transaction_id,
                    {"state": TransactionState.ABORTED.value, "ended_at": _now(), "reason": _storable(reason)},
                )
                _fail_running(connection, transaction_id, f"the transaction was aborted: {reason}")
        return True

    def file_request(self, request: Request) -> Request:
        """File a request and return it, or return the active request that already asks for the same."""
        with self._writing() as connection:
            return requests.file(connection, _of_base_path(request))

    def end_request(self, request_id: str, state: RequestState, reason: str | None = None) -> bool:
        """End an active request. Returns False, and changes nothing, if it had already ended."""
        stored = _storable(reason) if reason is not None else None
        with self._writing() as connection:
            return requests.change(connection, request_id, state=state.value, ended_at=_now(), reason=stored)

    def work_on_request(self, request_id: str, worker: Owner | None) -> bool:
        """Record which process runs an active request; None leaves it to the coordinator."""
        with self._writing() as connection:
            return requests.change(connection, request_id, worker=str(worker) if worker else None)

    def pass_over(self, request_id: str, paths: Iterable[str]) -> None:
        """Record that no dead letter in these files can become a row now."""
        with self._writing() as connection:
            requests.pass_over(connection, request_id, paths)

    def note_tick(self, pipeline: str, now: datetime) -> None:
        """Note that the pipeline's coordinator ticks, unless it noted a tick in the last TICK_NOTED_SECONDS."""
        with self._reading() as connection:
            noted = requests.is_noted(connection, pipeline, now)
        if noted:
            return
        with self._writing() as connection:
            requests.note_tick(connection, pipeline, now)

    @contextlib.contextmanager
    def table_lock(
        self, table: str, timeout_seconds: float = 60, stale_seconds: float | None = None, unfenced: bool = False
    ) -> Iterator[None]:
        """Keep all other processes and threads out of this table's begin, commit, recover and abort.

        The lock is released when its holder dies, and taken from one that has held it for longer than `stale_seconds`,
        unless that holder is `unfenced`; locks.py says what a holder must ensure. Not reentrant. Raises TransactionInFlight
        when the lock is not free in time.
        """
        with self._translated():
            held = locks.acquire(self._engine, f"table {_base_path(table)}", timeout_seconds, stale_seconds, unfenced)
        try:
            yield
        finally:
            held.release()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._translated(), self._writer.begin() as connection:
            yield connection

    def _commit(
        self, transaction_id: str, instant: str, figures: Mapping[str, int], reports: Iterable[SliceReport]
    ) -> bool:
        with self._writing() as connection:
            row = _transaction(connection, transaction_id, lock=True)
            if row is None:
                return False
            values: dict[str, Any] = dict(figures) if row.rows is None else {}
            if row.state is TransactionState.COMMITTED:
                if row.instant != instant:
                    raise Fenced(
                        f"transaction {transaction_id} of table {row.table} is recorded as committed by instant "
                        f"{row.instant} and now reported as committed by {instant}. Check both in the table's timeline: "
                        "if both are completed, its rows are in the table twice."
                    )
            else:
                values |= {
                    "state": TransactionState.COMMITTED.value,
                    "instant": instant,
                    "ended_at": _now(),
                    "reason": None,
                }
            if values:
                _update(connection, transaction_id, values)
            for report in reports:
                # The commit published this attempt, so it was done, even if the ledger never recorded that.
                done = {"state": "done", "report": report.to_dict()}
                _end_attempts(connection, transaction_id, report.slice.source, report.attempt, done)
            _fail_running(connection, transaction_id, "the transaction was committed without this attempt")
        return True

    def _migrate(self) -> None:
        with self._translated():
            # Switching SQLite to a write-ahead log needs exclusive access, so there even the check needs the lock.
            if self._engine.dialect.name != "sqlite" and self._revision() == migrations.HEAD:
                return
            try:
                held = locks.acquire(self._engine, "the ledger's tables", _MIGRATION_WAIT_SECONDS)
            except TransactionInFlight as error:
                raise LedgerUnreachable(f"{self._where}: another process is migrating it. {error}") from error
            try:
                if self._engine.dialect.name == "sqlite":
                    self._use_write_ahead_log()
                if self._revision() != migrations.HEAD:
                    with self._writer.begin() as connection:
                        migrations.upgrade(connection, self._where)
            finally:
                held.release()

    def _revision(self) -> str | None:
        with self._engine.connect() as connection:
            return migrations.revision(connection)

    def _use_write_ahead_log(self) -> None:
        # Outside any transaction: SQLite cannot change the journal mode within one.
        with contextlib.closing(self._engine.raw_connection()) as connection:
            try:
                cursor = connection.cursor()
                cursor.execute("PRAGMA journal_mode = WAL")
                (mode,) = cursor.fetchone() or ("unknown",)
            except sqlite3.OperationalError as error:
                raise LedgerUnreachable(
                    f"{self._where}: {error}. Try again; check that the file is writable."
                ) from error
            except sqlite3.DatabaseError as error:
                raise DatabaseError(None, None, error) from error
        if mode != "wal":
            raise EnvironmentProblem(
                f"{self._where}: its file system does not support SQLite's write-ahead log (journal mode {mode}). Put the ledger "
                "on a local disk, or use PostgreSQL."
            )


def _insert(
    connection: sa.Connection, plan: TransactionPlan, base_path: str, owner: Owner, deadline: datetime, above: int
) -> int:
    blocking = _open_transaction(connection, base_path)
    if blocking is not None:
        raise TransactionInFlight(
            f"table {base_path}: transaction {plan.transaction_id} cannot begin, transaction {blocking.transaction_id} of "
            f"pipeline {blocking.pipeline} is open, owned by {blocking.owner}, since "
            f"{_shown_time(blocking.began_at)} until {_shown_time(blocking.deadline)} at the latest. Only one transaction "
            "per table runs at a time: wait for it, or end its owner, and the next begin recovers."
        )
    used = _transaction(connection, plan.transaction_id)
    if used is not None:
        raise Fenced(
            f"transaction id {plan.transaction_id} was used before: it has been {used.state.value} on table {used.table} since "
            f"{_shown_time(used.ended_at or used.began_at)}. Plan a new transaction; it reads what is not committed."
        )
    values = {"state": TransactionState.OPEN.value, "began_at": _now()}
    return _add(connection, plan, base_path, owner, deadline, above, values)


def _add(
    connection: sa.Connection,
    plan: TransactionPlan,
    base_path: str,
    owner: Owner,
    deadline: datetime,
    above: int,
    values: Mapping[str, Any],
) -> int:
    last: int = connection.execute(
        sa.select(sa.func.coalesce(sa.func.max(TRANSACTIONS.c.epoch), 0)).where(TRANSACTIONS.c.base_path == base_path)
    ).scalar_one()
    epoch = max(last, above) + 1
    connection.execute(
        TRANSACTIONS.insert().values(
            transaction_id=plan.transaction_id,
            pipeline=plan.pipeline,
            base_path=base_path,
            sequence=plan.sequence,
            epoch=epoch,
            owner=str(owner),
            deadline=deadline,
            resets=[reset.to_dict() for reset in plan.resets] or None,
            request_id=plan.request or None,
            **values,
        )
    )
    if plan.slices:
        connection.execute(
            SLICES.insert(),
            [
                {
                    "transaction_id": plan.transaction_id,
                    "topic": planned.topic,
                    "partition": planned.partition,
                    "start_offset": planned.start,
                    "end_offset": planned.end,
                }
                for planned in plan.slices
            ],
        )
    return epoch


def _open_transaction(connection: sa.Connection, base_path: str) -> TransactionRow | None:
    statement = sa.select(TRANSACTIONS).where(
        TRANSACTIONS.c.base_path == base_path, TRANSACTIONS.c.state == TransactionState.OPEN.value
    )
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else TransactionRow.from_mapping(row)


def _transaction(connection: sa.Connection, transaction_id: str, *, lock: bool = False) -> TransactionRow | None:
    """Read a transaction; `lock` keeps its other writers out until the end of the database transaction.

    SQLite has no row locks and needs none: its writers exclude one another from BEGIN IMMEDIATE on.
    """
    statement = sa.select(TRANSACTIONS).where(TRANSACTIONS.c.transaction_id == transaction_id)
    if lock:
        statement = statement.with_for_update(key_share=True)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else TransactionRow.from_mapping(row)


def _require_open(connection: sa.Connection, transaction_id: str, consequence: str) -> TransactionRow:
    row = _transaction(connection, transaction_id, lock=True)
    if row is None or row.state is not TransactionState.OPEN:
        raise Fenced(_not_open(row, transaction_id, consequence))
    return row


def _not_open(row: TransactionRow | None, transaction_id: str, consequence: str) -> str:
    if row is None:
        state = "is unknown to this ledger (was it wiped, or is this a different one?)"
    else:
        state = f"of table {row.table} was {row.state.value} at {_shown_time(row.ended_at)}"
        state += f" ({row.reason})" if row.reason else ""
    return (
        f"transaction {transaction_id} {state}, so {consequence}. Stop this run; the next transaction reads what is not "
        "committed."
    )


def _update(connection: sa.Connection, transaction_id: str, values: Mapping[str, Any]) -> None:
    connection.execute(TRANSACTIONS.update().where(TRANSACTIONS.c.transaction_id == transaction_id).values(**values))


def _of(transaction_id: str, source: TopicPartition) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        ATTEMPTS.c.transaction_id == transaction_id,
        ATTEMPTS.c.topic == source.topic,
        ATTEMPTS.c.partition == source.partition,
    )


def _end_attempts(
    connection: sa.Connection, transaction_id: str, source: TopicPartition, attempt: int, values: Mapping[str, Any]
) -> None:
    """End one attempt if it is running."""
    connection.execute(
        ATTEMPTS.update()
        .where(
            *_of(transaction_id, source),
            ATTEMPTS.c.attempt == attempt,
            ATTEMPTS.c.state == AttemptState.RUNNING.value,
        )
        .values(ended_at=_now(), **values)
    )


def _fail_running(connection: sa.Connection, transaction_id: str, error: str) -> None:
    connection.execute(
        ATTEMPTS.update()
        .where(ATTEMPTS.c.transaction_id == transaction_id, ATTEMPTS.c.state == AttemptState.RUNNING.value)
        .values(state=AttemptState.FAILED.value, ended_at=_now(), error=_storable(error))
    )


def _of_base_path(request: Request) -> Request:
    return replace(request, table=_base_path(request.table))


def _base_path(table: str) -> str:
    """Normalize a base path: `/data/orders` and `/data/orders/` are the same table."""
    return table.rstrip("/") or table


def _storable(text: str) -> str:
    """Make text storable in both backends: no NUL (PostgreSQL), no lone surrogates, no endless stack traces."""
    limited = text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}… ({len(text)} characters)"
    return limited.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _shown_time(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _now() -> datetime:
    return datetime.now(timezone.utc)
