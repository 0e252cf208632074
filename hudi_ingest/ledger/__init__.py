"""The ledger: the SQL record of transactions, slices, attempts and requests.

Imports `model`, `home` and `exceptions`. Public: the names in `__all__`.

The Hudi table is the source of truth. A ledger may be wiped at any time and never overrules the table: a committed
transaction that it does not know is not an error, and what the table says replaces what the ledger says. Its fencing is
only an early check: a transaction that is not open here gets no new attempts.

Each call takes a connection of its own, so threads and forked processes may share a ledger. Between calls a process keeps
at most one to a PostgreSQL server, and none once an attempt has started: a hundred writing ops do not hold a hundred
connections.
"""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import add
from pathlib import Path
from types import TracebackType

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError

from hudi_ingest.exceptions import EnvironmentProblem, LedgerUnreachable, TransactionInFlight
from hudi_ingest.ledger import counters, locks, migrations
from hudi_ingest.ledger.attempts import Attempts
from hudi_ingest.ledger.counters import Counters
from hudi_ingest.ledger.database import Database, open_engine, shown_url, translated
from hudi_ingest.ledger.notes import (
    PendingChange,
    PendingChanges,
    Service,
    ServiceRun,
    ServiceRuns,
    Topics,
    newest_runs,
)
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.requests import Request, RequestProgress, Requests, RequestState
from hudi_ingest.ledger.retention import Kept, Retention
from hudi_ingest.ledger.tables import (
    COORDINATORS,
    METADATA,
    REQUESTS,
    TRANSACTIONS,
    AttemptRow,
    AttemptState,
    TransactionRow,
    normal_base_path,
)
from hudi_ingest.ledger.transactions import Transactions
from hudi_ingest.model.transaction import TransactionState

__all__ = [
    "AttemptRow",
    "AttemptState",
    "Kept",
    "Ledger",
    "Owner",
    "PendingChange",
    "Request",
    "RequestProgress",
    "RequestState",
    "Service",
    "ServiceRun",
    "TransactionRow",
]

_LEAST_WAIT_SECONDS = 0.05
"""Shorter waits for a lock are not worth counting."""
_MIGRATION_WAIT_SECONDS = 120.0
_MIGRATION = 0x6875646969
"""The key of PostgreSQL's lock on migrations, for this database."""
_RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Overview:
    """`counters` and `open` are by base path, `ticked` by pipeline, `requests` (the active ones) by pipeline and kind, `rows` by
    table of the ledger. `size_bytes` counts its tables, with SQLite the whole file."""

    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    open: Mapping[str, TransactionRow] = field(default_factory=dict)
    ticked: Mapping[str, datetime] = field(default_factory=dict)
    requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    services: tuple[ServiceRun, ...] = ()


class _NotKept(Exception):
    """Rolls a database transaction back."""


class Ledger:
    """Access to the ledger, one repository for each kind of row. Leaving `with` keeps a connection for this process's next
    ledger. Each method, also of the repositories, is one database transaction. Safe to share between threads.

    Every method raises LedgerUnreachable, and EnvironmentProblem when the file is not a database.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.transactions = Transactions(database)
        self.attempts = Attempts(database)
        self.requests = Requests(database)
        self.counters = Counters(database)
        self.service_runs = ServiceRuns(database)
        self.pending_changes = PendingChanges(database)
        self.topics = Topics(database)
        self.retention = Retention(database)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown_url(self.database.engine.url)}>"

    @property
    def place(self) -> str:
        """Where the ledger is, without a password. Two places that differ may still be one ledger, under two names."""
        where = self.database.where
        return f"{where} on {socket.gethostname()}" if self.database.is_sqlite else where

    @property
    def file(self) -> Path | None:
        """The SQLite file; None of a PostgreSQL ledger."""
        return Path(str(self.database.engine.url.database)) if self.database.is_sqlite else None

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Open `sqlite:///<path>` or `postgresql+psycopg2://…`, and create or migrate its tables.

        Any number of processes may do so at once. Raises ConfigError (bad URL), EnvironmentProblem (a newer hudi-ingest
        used this ledger; no write-ahead log on that file system; no driver) or LedgerUnreachable.
        """
        ledger = cls(Database(open_engine(url)))
        try:
            with translated(ledger.database.where):
                _bring_up_to_date(ledger.database)
        except BaseException:
            ledger.dispose()
            raise
        return ledger

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do nothing: the next call, or the process's next ledger, goes on with the same connection."""

    def dispose(self) -> None:
        """Close the idle connection. A held table lock is not affected."""
        self.database.engine.dispose()

    def damage(self) -> str:
        """Say what is wrong with the database's file; "" if nothing is, or if its server looks after that."""
        if not self.database.is_sqlite:
            return ""
        with self.database.reading() as connection:
            answer = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
        return "" if answer == "ok" else answer

    def require_writable(self) -> None:
        """Write a row in a database transaction that is rolled back. Raises LedgerUnreachable and EnvironmentProblem."""
        with suppress(_NotKept), self.database.writing() as connection:
            counters.add(connection, "", {"written on trial": 1})
            raise _NotKept

    def clock(self) -> datetime | None:
        """Return the time of the database's server; None if it has no server."""
        if self.database.is_sqlite:
            return None
        with self.database.reading() as connection:
            return connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()  # type: ignore[no-any-return]

    @contextmanager
    def table_lock(
        self, table: str, timeout_seconds: float = 60, stale_seconds: float | None = None, unfenced: bool = False
    ) -> Iterator[None]:
        """Keep all other processes and threads out of this table's begin, commit, recover and abort.

        The lock is free when its holder has died (on another machine: within a minute), and is taken from one that has held it for
        longer than `stale_seconds`, unless that holder is `unfenced`; locks.py says what a holder must ensure. Not reentrant. Raises
        TransactionInFlight when the lock is not free in time.
        """
        started = time.monotonic()
        name = f"table {normal_base_path(table)}"
        try:
            held = locks.acquire(self.database, name, timeout_seconds, stale_seconds, unfenced)
        except TransactionInFlight:
            self._count_wait(table, time.monotonic() - started)
            raise
        waited = time.monotonic() - started
        try:
            self._count_wait(table, waited)
            yield
        finally:
            held.release()

    def _count_wait(self, table: str, seconds: float) -> None:
        if seconds >= _LEAST_WAIT_SECONDS:
            self.counters.add(table, {counters.LOCK_WAITS: 1, counters.LOCK_WAIT_SECONDS: seconds})

    def overview(self) -> Overview:
        """Return what the ledger holds of all pipelines."""
        with self.database.reading() as connection:
            opened = sa.select(TRANSACTIONS).where(TRANSACTIONS.c.state == TransactionState.OPEN.value)
            rows = map(TransactionRow.from_mapping, connection.execute(opened).mappings())
            ticked = connection.execute(sa.select(COORDINATORS.c.pipeline, COORDINATORS.c.ticked_at))
            active = (
                sa.select(REQUESTS.c.pipeline, REQUESTS.c.kind, sa.func.count())
                .where(REQUESTS.c.state == RequestState.ACTIVE.value)
                .group_by(REQUESTS.c.pipeline, REQUESTS.c.kind)
            )
            tables = METADATA.sorted_tables
            counted = sa.select(*(sa.select(sa.func.count()).select_from(table).scalar_subquery() for table in tables))
            return Overview(
                counters=counters.read(connection),
                open={row.table: row for row in rows},
                ticked={row.pipeline: row.ticked_at for row in ticked},
                requests={(pipeline, kind): count for pipeline, kind, count in connection.execute(active)},
                rows=dict(zip((table.name for table in tables), connection.execute(counted).one(), strict=True)),
                size_bytes=_size(connection),
                services=newest_runs(connection),
            )


def _size(connection: sa.Connection) -> int:
    if connection.dialect.name == "sqlite":
        pages = connection.exec_driver_sql("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        return int(pages.scalar_one())
    sizes = [sa.func.pg_total_relation_size(sa.func.to_regclass(table.name)) for table in METADATA.sorted_tables]
    return int(connection.execute(sa.select(reduce(add, sizes))).scalar_one())


_with_write_ahead_log: set[sa.URL] = set()
"""SQLite ledgers that this process has seen with one, which they keep."""


def _bring_up_to_date(database: Database) -> None:
    """Create or migrate the ledger's tables; any number of processes may do so at once.

    Raises EnvironmentProblem (a newer hudi-ingest used this ledger; no write-ahead log on that file system) or
    LedgerUnreachable.
    """
    engine, where = database.engine, database.where
    # Switching SQLite to a write-ahead log needs exclusive access, so a process does it once.
    has_log = not database.is_sqlite or engine.url in _with_write_ahead_log
    if has_log and _revision(engine) == migrations.HEAD:
        return
    deadline = time.monotonic() + _MIGRATION_WAIT_SECONDS
    if database.is_sqlite:
        _use_write_ahead_log(engine, where, deadline)
        _with_write_ahead_log.add(engine.url)
    while not _upgrade(database):
        if time.monotonic() > deadline:
            raise LedgerUnreachable(
                f"{where}: another process has been migrating it for {_MIGRATION_WAIT_SECONDS:g} s. Try again; if the error "
                "persists, end that process."
            )
        time.sleep(_RETRY_SECONDS)


def _upgrade(database: Database) -> bool:
    """Migrate the ledger's tables in one database transaction, unless they are up to date; False if another process is doing so."""
    with database.writing() as connection:
        # SQLite's writers exclude one another from BEGIN IMMEDIATE on. This lock ends with the transaction, as a pooler needs.
        alone = (
            database.is_sqlite
            or connection.execute(sa.select(sa.func.pg_try_advisory_xact_lock(_MIGRATION))).scalar_one()
        )
        if alone and migrations.revision(connection) != migrations.HEAD:
            migrations.upgrade(connection, database.where)
    return bool(alone)


def _revision(engine: sa.Engine) -> str | None:
    with engine.connect() as connection:
        return migrations.revision(connection)


def _use_write_ahead_log(engine: sa.Engine, where: str, deadline: float) -> None:
    # Outside any transaction: SQLite cannot change the journal mode within one.
    with closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        while True:
            try:
                cursor.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                # Of several processes that open a new file, SQLite refuses some without waiting.
                if "locked" in str(error) and time.monotonic() < deadline:
                    time.sleep(_RETRY_SECONDS)
                    continue
                raise LedgerUnreachable(f"{where}: {error}. Try again; check that the file is writable.") from error
            except sqlite3.DatabaseError as error:
                raise DatabaseError(None, None, error) from error
        (mode,) = cursor.fetchone() or ("unknown",)
    if mode != "wal":
        raise EnvironmentProblem(
            f"{where}: its file system does not support SQLite's write-ahead log (journal mode {mode}). Put the ledger "
            "on a local disk, or use PostgreSQL."
        )
