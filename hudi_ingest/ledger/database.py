"""Open the ledger's database: SQLite or PostgreSQL, configured for several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError

from hudi_ingest.exceptions import ConfigError, EnvironmentProblem

_BUSY_SECONDS = 30
"""How long a statement waits for another writer."""
WRITES = "hudi_ingest_writes"


def open_engine(url: str) -> sa.Engine:
    """Open the ledger at this URL. Raises ConfigError and EnvironmentProblem."""
    setting = "the ledger's URL (HUDI_INGEST_LEDGER_URL)"
    forms = "use sqlite:///<path> or postgresql+psycopg2://<user>:<password>@<host>/<database>"
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):
        # Keep the URL out of the error and its chain: it may contain a password.
        raise ConfigError(setting, [f"not a valid URL; {forms}"]) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg2")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        return _sqlite_engine(parsed, setting)
    if parsed.drivername == "postgresql+psycopg2":
        return _postgresql_engine(parsed)
    raise ConfigError(setting, [f"{shown_url(parsed)}: {parsed.drivername!r} is not supported; {forms}"])


def _sqlite_engine(url: sa.URL, setting: str) -> sa.Engine:
    if url.database in (None, "", ":memory:") or str(url.database).startswith("file:"):
        raise ConfigError(
            setting, [f"{shown_url(url)}: several processes share the ledger, so it needs a file: sqlite:///<path>"]
        )
    # Absolute and with symbolic links resolved, so that all processes agree on the lock folder.
    path = Path(str(url.database)).resolve()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentProblem(
            f"ledger {shown_url(url)}: cannot create its folder {path.parent} ({error}). Create it, or set "
            "HUDI_INGEST_LEDGER_URL to a location that this user can write to."
        ) from error
    engine = sa.create_engine(url.set(database=str(path)), poolclass=sa.NullPool)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the listener below begins transactions, not the driver
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # BEGIN IMMEDIATE for writers: SQLite refuses to upgrade a reader, without waiting, if another process wrote meanwhile.
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql_engine(url: sa.URL) -> sa.Engine:
    timeouts = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
    try:
        engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="READ COMMITTED", connect_args=timeouts)
    except ModuleNotFoundError as error:
        raise EnvironmentProblem(
            f"ledger {shown_url(url)}: the PostgreSQL driver is missing ({error}). Run `pip install psycopg2-binary`."
        ) from error

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        # A process that hangs inside a transaction must not block all the others.
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = '{_BUSY_SECONDS}s'")
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{2 * _BUSY_SECONDS}s'")
        connection.commit()

    return engine


def shown_url(url: sa.URL) -> str:
    """Render the URL without its passwords."""
    hidden = {key: "***" for key in url.query if "password" in key.lower()}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)
