"""Dagster's PostgreSQL storage with connections that stay open.

Dagster's own opens a connection for each statement, 27 for a sensor's tick that does nothing, and reads the names of all tables for
half of them. PostgreSQL starts a process for each connection, so a tick cost it more than all the rest of Dagster. The tables and
their content are the same.

In dagster.yaml, with the settings of Dagster's own storage:

    storage:
      custom:
        module: hudi_ingest.orchestration.postgres_storage
        class: PooledPostgresStorage
        config:
          postgres_url: postgresql+psycopg2://dagster@postgres/dagster
          max_connections: 20
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa
from dagster import Field, IntSource

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.ledger.database import kept_connections, shown_url
from hudi_ingest.orchestration.embedded import once

try:
    from dagster_postgres import (
        DagsterPostgresStorage,
        PostgresEventLogStorage,
        PostgresRunStorage,
        PostgresScheduleStorage,
    )
    from dagster_postgres.utils import pg_url_from_config, retry_pg_connection_fn, set_pg_statement_timeout
except ModuleNotFoundError as missing:
    raise EnvironmentProblem(
        f"dagster.yaml: the storage {__name__} needs {missing.name}, not installed here; install hudi-ingest[postgres] in this environment"
    ) from None

if TYPE_CHECKING:
    from dagster_postgres.auth import PgTokenProvider

_KEPT = 2
"""Connections that a process keeps between uses. It seldom needs more at once, and closes those afterwards."""
MOST = 20
WAIT_SECONDS = 30.0
"""How long a thread waits for a connection when all are in use."""
_LOOK_SECONDS = 1.0
_TABLES = "all tables"

_engines: dict[tuple[str, int, int], sa.Engine] = {}
"""Engines by URL, most connections and statement timeout: Dagster makes storages anew in each tick, so they share the process's engines."""


def _engine(url: str, most: int, provider: PgTokenProvider | None, statement_timeout: int = 0) -> sa.Engine:
    """Return this process's engine. `statement_timeout`: in ms, 0 for none."""
    key = (url, most, statement_timeout)
    if key not in _engines:
        engine = kept_connections(
            sa.make_url(url),
            isolation_level="AUTOCOMMIT",
            pool_size=min(_KEPT, most),
            max_overflow=max(most - _KEPT, 0),
            pool_timeout=_LOOK_SECONDS,
        )
        if provider is not None:
            from dagster_postgres.auth import register_do_connect_hook

            register_do_connect_hook(engine, provider)
        if statement_timeout:
            sa.event.listen(engine, "connect", lambda opened, _: set_pg_statement_timeout(opened, statement_timeout))
        _engines.setdefault(key, engine)
    return _engines[key]


class _Pooled:
    """The part that the three storages share. Each sets `_engine`, by which Dagster's own methods connect."""

    _engine: sa.Engine
    postgres_url: str
    provider: PgTokenProvider | None = None

    def share(self, most: int, provider: PgTokenProvider | None) -> None:
        """Use the connections that this process has, from now on."""
        self.provider = provider
        self._engine = _engine(self.postgres_url, most, provider)

    def optimize_for_webserver(self, statement_timeout: int, pool_recycle: int, max_overflow: int) -> None:
        # Engines of its own, because other storages in the process must not have its timeout. Ours recycles sooner.
        self._engine = _engine(self.postgres_url, _KEPT + max_overflow, self.provider, statement_timeout)

    def _once(self, fact: str, ask: Callable[[], bool]) -> bool:
        return once(self.postgres_url, fact, ask)

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        engine = self._engine

        def take() -> sa.Connection:
            deadline = time.monotonic() + WAIT_SECONDS
            while True:
                try:
                    return engine.connect()
                except sa.exc.TimeoutError as error:
                    # SQLAlchemy closes connections beyond _KEPT without waking those who wait: they may open one.
                    if time.monotonic() >= deadline:
                        raise _exhausted(engine) from error

        # As Dagster does: a server that restarts is back after some seconds.
        with retry_pg_connection_fn(take) as connection:
            yield connection


def _exhausted(engine: sa.Engine) -> EnvironmentProblem:
    pool = cast(sa.QueuePool, engine.pool)
    return EnvironmentProblem(
        f"Dagster's storage {shown_url(engine.url)}: all {pool.checkedout()} connections that this process may have are in use, and "
        f"none became free within {WAIT_SECONDS:g} s. Nothing was written. Raise max_connections of the storage in dagster.yaml (for the "
        "webserver its option --db-pool-max-overflow), and PostgreSQL's own max_connections if all processes together need more; if "
        "statements take so long, see pg_stat_activity."
    )


class PooledRunStorage(_Pooled, PostgresRunStorage):
    """Dagster's storage of runs."""

    connect = _Pooled._connected

    def has_built_index(self, migration_name: str) -> bool:
        return self._once(f"runs: {migration_name}", partial(super().has_built_index, migration_name))

    def has_run_stats_index_cols(self) -> bool:
        return self._once("times of runs", super().has_run_stats_index_cols)


class PooledScheduleStorage(_Pooled, PostgresScheduleStorage):
    """Dagster's storage of schedules, sensors and their ticks."""

    def connect(self, run_id: str | None = None) -> Any:
        return self._connected()

    def has_instigators_table(self) -> bool:
        return self._once("instigators", super().has_instigators_table)

    def _has_instigators_table(self, conn: sa.Connection) -> bool:
        return self._once("instigators", partial(super()._has_instigators_table, conn))

    def has_built_index(self, migration_name: str) -> bool:
        return self._once(f"schedules: {migration_name}", partial(super().has_built_index, migration_name))


class PooledEventLogStorage(_Pooled, PostgresEventLogStorage):
    """Dagster's event log."""

    _connect = _Pooled._connected

    def has_table(self, table_name: str) -> bool:
        return self._once(table_name, partial(super().has_table, table_name))

    def has_secondary_index(self, name: str) -> bool:
        return self._once(f"events: {name}", partial(super().has_secondary_index, name))


class PooledPostgresStorage(DagsterPostgresStorage):
    """Runs, events and ticks in one PostgreSQL database, through at most `max_connections` connections of each process."""

    def __init__(
        self,
        postgres_url: str,
        should_autocreate_tables: bool = True,
        inst_data: Any = None,
        token_provider: PgTokenProvider | None = None,
        max_connections: int = MOST,
    ) -> None:
        self.postgres_url = postgres_url
        self.should_autocreate_tables = should_autocreate_tables
        self._inst_data = inst_data
        create = should_autocreate_tables and not once(postgres_url, _TABLES, lambda: False)
        # The oldest dagster-postgres has no token provider.
        more: dict[str, Any] = {} if token_provider is None else {"token_provider": token_provider}
        self._run_storage = PooledRunStorage(postgres_url, create, **more)
        self._event_log_storage = PooledEventLogStorage(postgres_url, create, **more)
        self._schedule_storage = PooledScheduleStorage(postgres_url, create, **more)
        for storage in (self._run_storage, self._event_log_storage, self._schedule_storage):
            storage.share(max_connections, token_provider)
        if create:
            once(postgres_url, _TABLES, lambda: True)

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        most = Field(
            IntSource,
            default_value=MOST,
            description="The most connections that a process may have open at the same time.",
        )
        return {**cast("dict[str, Any]", DagsterPostgresStorage.config_type()), "max_connections": most}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> PooledPostgresStorage:
        provider = None
        if config_value.get("auth_provider"):
            from dagster_postgres.utils import get_token_provider_from_config

            provider = get_token_provider_from_config(config_value)
        if config_value["max_connections"] < 1:
            raise EnvironmentProblem(
                f"Dagster's storage in dagster.yaml: max_connections is {config_value['max_connections']}, and without a connection "
                f"nothing can be stored. Set it to 1 or more; without the setting it is {MOST}."
            )
        return cls(
            pg_url_from_config(config_value),
            config_value["should_autocreate_tables"],
            inst_data,
            provider,
            config_value["max_connections"],
        )
