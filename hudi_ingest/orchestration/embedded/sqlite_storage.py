"""Dagster's SQLite storage with connections that stay open.

Dagster's own opens and closes a connection for each event. Closing the last one copies the write-ahead log into the database and
flushes both, and each process first loads all of Alembic's migrations, several times, to look for missing ones. A small
transaction spent more time on that than on its records. The databases, their places and their content are the same.

In dagster.yaml:

    storage:
      custom:
        module: hudi_ingest.orchestration.embedded.sqlite_storage
        class: QuickSqliteStorage

`python -m hudi_ingest.orchestration.embedded.sqlite_storage FOLDER` creates the databases, or migrates them to the installed version.
Run it while no Dagster process uses that $DAGSTER_HOME.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.script import ScriptDirectory
from dagster import DagsterInstance, EventLogEntry, Field, StringSource
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS, EVENT_TYPE_TO_PIPELINE_RUN_STATUS
from dagster._core.storage import sqlite_storage
from dagster._core.storage.event_log import SqlEventLogStorageTable, SqliteEventLogStorage
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.schedules import SqliteScheduleStorage
from dagster._core.storage.sql import get_alembic_config

from hudi_ingest.orchestration.embedded import once

_BUSY_SECONDS = 30
_COMPILED = sa.util.LRUCache[Any, Any](500)
"""Compiled statements of all databases, also for the processes that are forked from this one. Otherwise each run would compile them."""
_DATABASES = ("schedules/schedules.db", "history/runs.db", "history/runs/index.db")
_INDEXED_EVENTS = frozenset({*ASSET_EVENTS, *ASSET_CHECK_EVENTS, *EVENT_TYPE_TO_PIPELINE_RUN_STATUS})
"""Types of events that Dagster also keeps beside the log of their run."""
_INDEX_SHARD_NAME = "index"
"""Dagster's name of the database with the events of all runs."""
_INSERT_EVENT = SqlEventLogStorageTable.insert()
_TEMPORARY_FOLDER = "HUDI_INGEST_TEMPORARY_DAGSTER"
"""Environment variable by which the processes of one Dagster command share a temporary folder."""


class _Engines:
    """Engines whose connections stay open, by database file. A forked process opens its own: SQLite's must not cross a fork."""

    def __init__(self, synchronous: str, most: int) -> None:
        self._synchronous = synchronous
        self._most = most
        self._by_process: dict[int, _Opened] = {}

    def of(self, path: str) -> sa.Engine:
        """Return the engine of the database file, which need not exist."""
        # What a parent opened is kept, because closing it here could end the parent's locks.
        opened = self._by_process.setdefault(os.getpid(), _Opened())
        with opened.lock:
            engine = opened.engines.pop(path, None) or self._new(path)
            opened.engines[path] = engine
            if len(opened.engines) > self._most:
                opened.engines.popitem(last=False)[1].dispose()
            return engine

    def close(self) -> None:
        """Close what this process has opened."""
        opened = self._by_process.pop(os.getpid(), _Opened())
        for engine in opened.engines.values():
            engine.dispose()

    def _new(self, path: str) -> sa.Engine:
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=path),
            execution_options={"compiled_cache": _COMPILED},
            max_overflow=-1,
            connect_args={"timeout": _BUSY_SECONDS},
        )
        # SQLAlchemy keeps compiled statements by dialect, of which it makes one for each engine.
        engine.dialect = _dialect()

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: sqlite3.Connection, _record: object) -> None:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")

        return engine


@cache
def _dialect() -> sa.Dialect:
    engine = sa.create_engine("sqlite://")
    with engine.connect():
        # It knows SQLite's version from the first connection on.
        return engine.dialect


@dataclass(frozen=True, slots=True)
class _Opened:
    """The engines that one process has opened, the least recently used first."""

    engines: OrderedDict[str, sa.Engine] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_SHARED = _Engines("FULL", most=8)
"""Runs, ticks and what the events of all runs say about assets: on disk once they are committed."""
_OF_RUNS = _Engines("NORMAL", most=16)
"""Each run's own event log, which only people read. A power cut may lose its newest events, the end of a process none."""


def close_connections() -> None:
    """Close this process's connections; the next use opens new ones. No thread may be using one."""
    _SHARED.close()
    _OF_RUNS.close()


def close_run_logs() -> None:
    """Close this process's connections to the logs of runs, likewise. The last process that closes one deletes its write-ahead log."""
    _OF_RUNS.close()


class QuickRunStorage(SqliteRunStorage):
    """Dagster's storage of runs."""

    @classmethod
    def from_local(cls, base_dir: str, inst_data: Any = None) -> QuickRunStorage:
        path = str(Path(base_dir, "runs.db").absolute())
        if not _is_complete(_SHARED, path, "instance_info"):
            SqliteRunStorage.from_local(base_dir, inst_data)
        return cls(path, inst_data)

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        with _SHARED.of(self._conn_string).begin() as connection:
            yield connection

    def has_built_index(self, migration_name: str) -> bool:
        return once(self._conn_string, migration_name, partial(super().has_built_index, migration_name))

    def has_run_stats_index_cols(self) -> bool:
        # Each query for runs and each event that changes a run's status asks, by listing the columns.
        return once(self._conn_string, "times of runs", super().has_run_stats_index_cols)

    def changes(self) -> Callable[[], bool]:
        """Return a function, for one thread, that says whether any process has written here since its last call."""
        connection: sqlite3.Connection | None = None
        known = 0

        def changed() -> bool:
            nonlocal connection, known
            # SQLite counts the commits of others for each connection, so this one stays. Without SQLAlchemy, because the queue asks
            # fifty times a second.
            connection = connection or sqlite3.connect(self._conn_string, isolation_level=None)
            before, (known,) = known, connection.execute("PRAGMA data_version").fetchone()
            return bool(known != before)

        return changed


class QuickScheduleStorage(SqliteScheduleStorage):
    """Dagster's storage of schedules, sensors and their ticks."""

    @classmethod
    def from_local(cls, base_dir: str, inst_data: Any = None) -> QuickScheduleStorage:
        path = str(Path(base_dir, "schedules.db").absolute())
        if not _is_complete(_SHARED, path):
            SqliteScheduleStorage.from_local(base_dir, inst_data)
        return cls(path, inst_data)

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        with _SHARED.of(self._conn_string).begin() as connection:
            yield connection

    # Dagster asks for these up to five times in each look for due sensors, and in each tick.

    def has_instigators_table(self) -> bool:
        return once(self._conn_string, "instigators", super().has_instigators_table)

    def _has_instigators_table(self, conn: sa.Connection) -> bool:
        return once(self._conn_string, "instigators", partial(super()._has_instigators_table, conn))

    def has_built_index(self, migration_name: str) -> bool:
        return once(self._conn_string, migration_name, partial(super().has_built_index, migration_name))


class QuickEventLogStorage(SqliteEventLogStorage):
    """Dagster's event log: a database for each run, and one for what concerns all runs."""

    def __init__(self, base_dir: str, inst_data: Any = None) -> None:
        self._storing = threading.local()
        super().__init__(base_dir, inst_data)

    def has_table(self, table_name: str) -> bool:
        # Asked for each check that is stored. Dagster's own makes an engine for each answer.
        query = sa.text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name")

        def ask() -> bool:
            with self.index_connection() as connection:
                return connection.execute(query, {"name": table_name}).first() is not None

        return once(self.path_for_shard(_INDEX_SHARD_NAME), table_name, ask)

    def has_secondary_index(self, name: str) -> bool:
        return once(
            self.path_for_shard(_INDEX_SHARD_NAME), f"migration {name}", partial(super().has_secondary_index, name)
        )

    def _has_asset_key_col_on_connection(self, conn: sa.Connection, column_name: str) -> bool:
        ask = partial(super()._has_asset_key_col_on_connection, conn, column_name)
        return once(self.path_for_shard(_INDEX_SHARD_NAME), f"asset key's {column_name}", ask)

    def store_event(self, event: EventLogEntry) -> None:
        if event.dagster_event_type in _INDEXED_EVENTS:
            # Dagster writes the event, and then what it says about a check, each in a transaction of its own.
            with self.together():
                super().store_event(event)
            return
        # Dagster's own builds a statement for each event, which takes longer than its execution.
        with self.run_connection(event.run_id) as connection:
            connection.execute(_INSERT_EVENT, self._event_to_row(event))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Store what this thread says about assets within the block in one transaction, which other writers wait for."""
        if hasattr(self._storing, "connection"):
            yield
            return
        with self.index_connection() as connection:
            self._storing.connection = connection
            try:
                yield
            finally:
                del self._storing.connection

    @contextmanager
    def _connect(self, shard: str) -> Iterator[sa.Connection]:
        if shard == _INDEX_SHARD_NAME and hasattr(self._storing, "connection"):
            yield self._storing.connection
            return
        path, engines = self.path_for_shard(shard), _SHARED if shard == _INDEX_SHARD_NAME else _OF_RUNS
        if shard not in self._initialized_dbs:
            if not os.path.exists(path):
                _create_event_log(Path(path))
            if not _is_complete(engines, path):
                self._initdb(engines.of(path))
            self._initialized_dbs.add(shard)
        with engines.of(path).begin() as connection:
            yield connection


class QuickSqliteStorage(sqlite_storage.DagsterSqliteStorage):
    """Databases below `base_dir`, by default `$DAGSTER_HOME`, laid out like those of Dagster's own storage. Without either they are
    temporary, as Dagster's whole instance is then."""

    def __init__(self, base_dir: str, inst_data: Any = None) -> None:
        self.base_dir = base_dir
        self._run_storage = QuickRunStorage.from_local(str(Path(base_dir, "history")))
        self._event_log_storage = QuickEventLogStorage(str(Path(base_dir, "history", "runs")))
        self._schedule_storage = QuickScheduleStorage.from_local(str(Path(base_dir, "schedules")))
        self._inst_data = inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {"base_dir": Field(StringSource, is_required=False)}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> QuickSqliteStorage:
        return cls(config_value.get("base_dir") or os.environ.get("DAGSTER_HOME") or _temporary_folder(), inst_data)


def _temporary_folder() -> str:
    """Return a folder for this process and those that it starts, deleted when it ends."""
    if _TEMPORARY_FOLDER not in os.environ:
        os.environ[_TEMPORARY_FOLDER] = tempfile.mkdtemp(prefix="hudi-ingest-dagster-")
        atexit.register(_delete_folder, os.environ[_TEMPORARY_FOLDER], os.getpid())
    return os.environ[_TEMPORARY_FOLDER]


def _delete_folder(path: str, creator: int) -> None:
    # Forked processes inherit what is to be done at the end.
    if os.getpid() == creator:
        shutil.rmtree(path, ignore_errors=True)


def _is_complete(engines: _Engines, path: str, *tables: str) -> bool:
    """Whether Dagster has nothing left to create in the database: the last thing that it writes is the revision."""
    if not os.path.exists(path):
        return False
    with engines.of(path).connect() as connection:
        existing = {name for (name,) in connection.exec_driver_sql("SELECT name FROM sqlite_master")}
        if not {"alembic_version", *tables} <= existing:
            return False
        return connection.exec_driver_sql("SELECT 1 FROM alembic_version").first() is not None


def _create_event_log(path: Path) -> None:
    """Create a run's event log from a copy, at once, so that no process sees half of it."""
    partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.new")
    # If this fails, Dagster's own way says why.
    with suppress(OSError):
        partial.write_bytes(_empty_event_log())
        try:
            os.link(partial, path)
        finally:
            partial.unlink()


@cache
def _empty_event_log() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        with SqliteEventLogStorage(folder).run_connection("empty"):
            pass
        return Path(folder, "empty.db").read_bytes()


def prepare(folder: Path) -> None:
    """Repair, create and migrate the databases of a $DAGSTER_HOME before any process opens them. Raises Dagster's errors.

    Two processes that create one of them at the same time may leave it with two revisions, an old one and the newest, and then no
    Dagster process can open it. The older revision is kept: the migrations from there check what already exists, so they do no harm
    where nothing is left to migrate.
    """
    os.environ["DAGSTER_HOME"] = str(folder.absolute())
    for name in _DATABASES:
        if (folder / name).exists():
            _keep_one_revision(folder / name)
    with DagsterInstance.from_config(str(folder)) as instance:
        instance.upgrade()


def _keep_one_revision(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        has_table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
        revisions = (
            {row[0] for row in connection.execute("SELECT version_num FROM alembic_version")} if has_table else set()
        )
        if len(revisions) > 1:
            scripts = ScriptDirectory.from_config(get_alembic_config(sqlite_storage.__file__))
            newest_first = [script.revision for script in scripts.walk_revisions()]
            oldest = max(revisions, key=newest_first.index)
            connection.execute("DELETE FROM alembic_version WHERE version_num != ?", (oldest,))


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
