"""Brings a ledger's database up to date when it is opened: its tables, and SQLite's write-ahead log."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError

from hudi_ingest.exceptions import EnvironmentProblem, LedgerUnreachable, TransactionInFlight
from hudi_ingest.ledger import locks, migrations
from hudi_ingest.ledger.database import WRITES

_WAIT_SECONDS = 120.0


def bring_up_to_date(engine: sa.Engine, where: str) -> None:
    """Create or migrate the ledger's tables; any number of processes may do so at once. `where` names the ledger.

    Raises EnvironmentProblem (a newer hudi-ingest used this ledger; no write-ahead log on that file system) or
    LedgerUnreachable.
    """
    # Switching SQLite to a write-ahead log needs exclusive access, so there even the check needs the lock.
    if engine.dialect.name != "sqlite" and _revision(engine) == migrations.HEAD:
        return
    try:
        held = locks.acquire(engine, "the ledger's tables", _WAIT_SECONDS)
    except TransactionInFlight as error:
        raise LedgerUnreachable(f"{where}: another process is migrating it. {error}") from error
    try:
        if engine.dialect.name == "sqlite":
            _use_write_ahead_log(engine, where)
        if _revision(engine) != migrations.HEAD:
            with engine.execution_options(**{WRITES: True}).begin() as connection:
                migrations.upgrade(connection, where)
    finally:
        held.release()


def _revision(engine: sa.Engine) -> str | None:
    with engine.connect() as connection:
        return migrations.revision(connection)


def _use_write_ahead_log(engine: sa.Engine, where: str) -> None:
    # Outside any transaction: SQLite cannot change the journal mode within one.
    with closing(engine.raw_connection()) as connection:
        try:
            cursor = connection.cursor()
            cursor.execute("PRAGMA journal_mode = WAL")
            (mode,) = cursor.fetchone() or ("unknown",)
        except sqlite3.OperationalError as error:
            raise LedgerUnreachable(f"{where}: {error}. Try again; check that the file is writable.") from error
        except sqlite3.DatabaseError as error:
            raise DatabaseError(None, None, error) from error
    if mode != "wal":
        raise EnvironmentProblem(
            f"{where}: its file system does not support SQLite's write-ahead log (journal mode {mode}). Put the ledger "
            "on a local disk, or use PostgreSQL."
        )
