"""The ledger's database, SQLite or PostgreSQL: opened for several processes, and its errors translated into hudi_ingest's own."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError

from hudi_ingest.exceptions import ConfigError, EnvironmentProblem, LedgerUnreachable
from hudi_ingest.home.folder import file_version

_BUSY_SECONDS = 30
"""How long a statement waits for another writer."""
_REUSED_SECONDS = 60
"""Firewalls forget connections that are silent for longer."""
_CONNECTION = {
    # psycopg2 would encode texts as the database does, and fail at the first letter that is not ASCII in one that was made in the
    # locale C.
    "client_encoding": "utf8",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Settings of libpq, unless the URL has them. A host that is gone is noticed within half a minute."""
_SETTINGS = (
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
    f"SET LOCAL lock_timeout = '{_BUSY_SECONDS}s'; "
    f"SET LOCAL statement_timeout = '{_BUSY_SECONDS + 10}s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{2 * _BUSY_SECONDS}s'"
)
"""Timeouts of each transaction that writes: a process that hangs inside one must not block all the others. They end with it, because behind a
pooler the next transaction on the same connection may be another program's."""
WRITES = "hudi_ingest_writes"
_INODE = "hudi_ingest_inode"
"""In a connection's record: the file that it has opened."""
_COMPILED = sa.util.LRUCache[Any, Any](500)
"""Compiled statements of all SQLite ledgers, also for the processes that are forked from this one. Otherwise each run would compile them."""
_parents_pools: list[sa.Pool] = []
"""Pools of the parent in a forked process, which must not be collected: that would close its connections."""
_SAME_TIME_SECONDS = 2.0
"""Two changes of a file may get the same time of modification if less lies between them; on most file systems it is a few ms."""

# PostgreSQL's error codes.
_UNDEFINED_TABLE = "42P01"
_INSUFFICIENT_PRIVILEGE = "42501"
_INVALID_SCHEMA_NAME = "3F000"
_OF_ANOTHER_SERVER = frozenset({"25006", "57P01", "57P02", "57P03"})
"""Errors after which the next connection may reach a server that works."""


class Database:
    """One database, of which each call takes a connection of its own: threads and forked processes may share it."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.where = f"ledger {shown_url(engine.url)}"
        """Names the ledger in errors, without its password."""
        self._writer = engine.execution_options(**{WRITES: True})

    @property
    def is_sqlite(self) -> bool:
        return bool(self.engine.dialect.name == "sqlite")

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Yield a connection for one read. Raises LedgerUnreachable and EnvironmentProblem."""
        with translated(self.where), self.engine.connect() as connection:
            if self.is_sqlite:
                yield connection
                return
            # PostgreSQL gives each statement of a read a snapshot of its own anyway, so BEGIN and ROLLBACK would only cost.
            driver = commit_each_statement(connection)
            try:
                yield connection
            finally:
                if not driver.closed:
                    driver.autocommit = False

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Yield a connection within one database transaction. Raises LedgerUnreachable and EnvironmentProblem."""
        with translated(self.where), self._writer.begin() as connection:
            yield connection

    def mark(self) -> object:
        """Return a mark, without a statement, that is another one after the next commit of any process. None if there is none: a server
        has no files here, and a file that has just changed may change once more at the same time.

        What a mark stands for must be read together with it within `writing`. SQLite writes a commit to its log before readers see it;
        only while no other process may write is there nothing in the log that they do not see yet.
        """
        if not self.is_sqlite:
            return None
        path = str(self.engine.url.database)
        # Readers make an empty log and delete it. A checkpoint changes both files without a commit, which costs one reading.
        versions = [version for file in (path, f"{path}-wal") if (version := file_version(Path(file))) and version[1]]
        newest = max((modified for _, _, modified in versions), default=0)
        return tuple(versions) if versions and newest / 1e9 < time.time() - _SAME_TIME_SECONDS else None


class Repository:
    """One kind of the ledger's rows. Each method is one database transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database


def open_engine(url: str) -> sa.Engine:
    """Open the ledger at this URL; a process has one engine for each. Raises ConfigError and EnvironmentProblem."""
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
    return _sqlite_file(path)


@cache
def _sqlite_dialect() -> sa.Dialect:
    engine = sa.create_engine("sqlite://")
    with engine.connect():
        # It knows SQLite's version from the first connection on.
        return engine.dialect


@cache
def _sqlite_file(path: Path) -> sa.Engine:
    """Keep one connection between calls: the last of all processes to close one writes the log back into the file, which takes longer than
    a commit."""
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        execution_options={"compiled_cache": _COMPILED},
        pool_size=1,
        max_overflow=-1,
    )
    # SQLAlchemy keeps compiled statements by dialect, of which it makes one for each engine.
    engine.dialect = _sqlite_dialect()

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the listener below begins transactions, not the driver
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
        connection.execute("PRAGMA foreign_keys = ON")
        record.info[_INODE] = _inode(path)

    @event.listens_for(engine, "checkout")
    def check(_connection: object, record: Any, _proxy: object) -> None:
        if record.info[_INODE] != _inode(path):
            raise sa.exc.InvalidatePoolError("the file has been deleted or replaced")

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # BEGIN IMMEDIATE for writers: SQLite refuses to upgrade a reader, without waiting, if another process wrote meanwhile.
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    os.register_at_fork(after_in_child=partial(_leave_to_parent, engine))
    return engine


def _inode(path: Path) -> int | None:
    version = file_version(path)
    return version[0] if version else None


def _leave_to_parent(engine: sa.Engine) -> None:
    """Let a forked process open connections of its own. It must never close those of its parent, even by collecting them as garbage."""
    _parents_pools.append(engine.pool)
    engine.dispose(close=False)


@cache
def _postgresql_engine(url: sa.URL) -> sa.Engine:
    """Keep one connection between calls, because opening one costs the server more than a transaction's statements; threads that
    need more at the same time open and close their own."""
    try:
        from hudi_ingest.ledger.answer_limit import LimitedConnection, LimitedCursor

        engine = kept_connections(
            url,
            connect_args={"connection_factory": LimitedConnection, "cursor_factory": LimitedCursor},
            pool_size=1,
            max_overflow=-1,
            # What a statement writes is nobody's business who reads its error.
            hide_parameters=True,
            # It would ask the server for the type's id on each connection.
            use_native_hstore=False,
            # One message for 100 rows instead of one for each.
            executemany_mode="values_plus_batch",
        )
    except ModuleNotFoundError as error:
        raise EnvironmentProblem(
            f"ledger {shown_url(url)}: the PostgreSQL driver is missing ({error}). Install hudi-ingest[postgres] in this environment."
        ) from error

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get(WRITES, False):
            connection.exec_driver_sql(_SETTINGS)

    @event.listens_for(engine, "handle_error")
    def replace(context: sa.engine.ExceptionContext) -> None:
        # After a failover the kept connection may still lead to the server that was the primary.
        if getattr(context.original_exception, "pgcode", None) in _OF_ANOTHER_SERVER:
            context.is_disconnect = True

    return engine


def kept_connections(url: sa.URL, connect_args: Mapping[str, Any] | None = None, **options: Any) -> sa.Engine:
    """Open a PostgreSQL server with connections that stay open between uses, for a minute each. A connection that the server has ended
    is replaced before its next use, and forked processes open their own. `options`: those of SQLAlchemy's create_engine."""
    settings = {name: value for name, value in _CONNECTION.items() if name not in url.query}
    engine = sa.create_engine(
        url, connect_args={**settings, **(connect_args or {})}, **{"pool_recycle": _REUSED_SECONDS, **options}
    )

    @event.listens_for(engine, "checkout")
    def check(connection: Any, _record: object, _proxy: object) -> None:
        # A ping before each use would double what most uses cost. What a server that ends leaves behind can be read at once.
        try:
            if _can_be_read(connection.fileno()):
                engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.InvalidatePoolError(str(error)) from error

    # A forked process forgets the connections instead of closing or even trying them: its parent uses them.
    os.register_at_fork(after_in_child=partial(engine.dispose, close=False))
    return engine


def _can_be_read(descriptor: int) -> bool:
    """Whether the other side has sent something, or closed its end."""
    polled = select.poll()
    polled.register(descriptor, select.POLLIN)
    return bool(polled.poll(0))


def inserting(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Build an insert that may name what to do on a conflict, in the connection's dialect."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def commit_each_statement(connection: sa.Connection) -> Any:
    """Begin no transactions on this connection to PostgreSQL, and return the driver's."""
    # For SQLAlchemy's isolation level AUTOCOMMIT the driver would send a SET at its end, which undoes ours.
    driver: Any = connection.connection.dbapi_connection
    driver.autocommit = True
    return driver


def close_afterwards(connection: sa.Connection) -> None:
    """Let the end of its use close the connection to the server, instead of keeping it for the next call."""
    if connection.dialect.name == "postgresql":
        connection.detach()


def shown_url(url: sa.URL) -> str:
    """Render the URL without its passwords."""
    hidden = {key: "***" for key in url.query if "password" in key.lower()}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate errors of the database; `where` names the ledger.

    Raises LedgerUnreachable, and EnvironmentProblem when the file is not a database, or the user lacks a right.
    """
    try:
        yield
    except DBAPIError as error:
        translation = _translation(error, where)
        if translation is error:
            raise
        raise translation from error.orig


def _translation(error: DBAPIError, where: str) -> Exception:
    """Translate a database error into ours; return a programming error as it is."""
    code = getattr(error.orig, "pgcode", None)
    # Of a statement that failed PostgreSQL's whole message has several lines, and quotes the statement.
    said = (error.orig.diag.message_primary if code else None) or str(error.orig)  # type: ignore[union-attr]
    message = f"{where}: {' '.join(str(said).split())}"
    if code in (_INSUFFICIENT_PRIVILEGE, _INVALID_SCHEMA_NAME):
        return EnvironmentProblem(
            f"{message}. The ledger's user needs a schema in its search_path, with USAGE and CREATE on it, and to own the tables "
            "there (or SELECT, INSERT, UPDATE and DELETE on them): run `CREATE SCHEMA hudi_ingest AUTHORIZATION <user>` and "
            "`ALTER ROLE <user> SET search_path = hudi_ingest`."
        )
    # InternalError: a transaction that the server has made read-only, failed or ended, and faults of the server itself.
    if isinstance(error, (OperationalError, InterfaceError, InternalError)) or code == _UNDEFINED_TABLE:
        remedy = _remedy(code)
        if remedy:
            return LedgerUnreachable(f"{message}. The Hudi table is not affected. " + remedy)
        return LedgerUnreachable(
            f"{message}. The Hudi table is not affected. Try again; if the error persists, check that the database is "
            "running, has free space, and is the one that HUDI_INGEST_LEDGER_URL should name. A wiped ledger is "
            "recreated when it is opened again."
        )
    if type(error) is DatabaseError:
        return EnvironmentProblem(
            f"{message}. The file is damaged or not a ledger. Move it aside: the Hudi tables are the source of truth, and "
            "a new ledger is created when it is opened again."
        )
    return error


def _remedy(code: str | None) -> str:
    """Say what an error of the server that passes means, and what to do; "" for one that says neither."""
    match code:
        case "25006":
            return (
                "The server is read-only: a standby, or a primary that was set so. After a failover the next try reaches the new primary. If "
                "the error persists, let HUDI_INGEST_LEDGER_URL name the primary (with several hosts: &target_session_attrs=read-write), or "
                "end what made it read-only (`SHOW transaction_read_only`)."
            )
        case "53100":
            return "The server's disk is full. Free some space there; then try again."
        case "53200":
            return "The server is out of memory. See its log; then try again."
        case "53300":
            return "The server has no connection left. Raise its max_connections, or let a pooler share them; then try again."
        case "57P01":
            return "An administrator has ended the connection, or the server is being shut down. See that it is started; then try again."
        case "57P02":
            return "The server has crashed and is recovering. See its log; then try again."
        case "57P03":
            return "The server is starting up, recovering or shutting down. Wait until it accepts connections; then try again."
    return ""
