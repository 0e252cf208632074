"""Deletes old events that ticks have reported to Dagster without a run: evaluations of our checks, and observations,
materializations and freshness states of our assets. Events of runs go with their runs.

Dagster can only delete all events of an asset, so this is SQL on its own table definitions, which its SQLite and PostgreSQL storages
share. SQLite has such an event twice, in the index of all runs and in a database of events without a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa
from dagster import AssetKey, DagsterInstance
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from hudi_ingest.operations.health.judgement import CATALOG_SYNCED, COMPACTED_IN_TIME, QUESTIONS
from hudi_ingest.orchestration.housekeeping.own_definitions import OwnDefinitions

CHECKS = (*QUESTIONS, CATALOG_SYNCED, COMPACTED_IN_TIME)
AT_ONCE = 500
"""Rows in one transaction: a tick that reports meanwhile waits some milliseconds."""
_EVENTS = SqlEventLogStorageTable.c
_EVALUATIONS = AssetCheckExecutionsTable.c


@dataclass(frozen=True, slots=True)
class EventLimits:
    """The `least` newest of each asset and kind, and of each check, are kept, and of the others those since `since` that are among
    the `most` newest."""

    since: datetime
    most: int
    least: int


def delete_events(instance: DagsterInstance, own: OwnDefinitions, limits: EventLimits, *, dry_run: bool) -> int:
    """Delete what need not be kept, and return how many there were. Does nothing, and returns 0, if the instance's storage is no SQL
    database of Dagster's own kinds."""
    storage = _sql_storage(instance)
    if storage is None:
        return 0
    events = EventTables(storage)
    deleted = 0
    for key in sorted(own.assets, key=str):
        for expired in events.expired_of_asset(key, limits):
            deleted += len(expired) if dry_run else events.delete_events(expired)
    for table in own.tables:
        for check in CHECKS:
            expired = events.expired_evaluations(table, check, limits)
            deleted += len(expired) if dry_run else events.delete_evaluations(expired)
    return deleted


def _sql_storage(instance: DagsterInstance) -> SqlEventLogStorage | None:
    storage = instance.event_log_storage
    return storage if isinstance(storage, SqlEventLogStorage) else None


class EventTables:
    """The tables of Dagster's event log."""

    def __init__(self, storage: SqlEventLogStorage) -> None:
        self._storage = storage

    def expired_of_asset(self, key: AssetKey, limits: EventLimits) -> Iterator[list[int]]:
        """Yield the ids of the asset's expired events, kind by kind."""
        runless = (_EVENTS.asset_key == key.to_string(), _EVENTS.run_id == RUNLESS_RUN_ID)
        with self._index() as connection:
            kinds = connection.execute(sa.select(_EVENTS.dagster_event_type).where(*runless).distinct()).scalars().all()
        for kind in kinds:
            yield self._expired(_EVENTS.id, _EVENTS.timestamp, (*runless, _EVENTS.dagster_event_type == kind), limits)

    def expired_evaluations(self, table: AssetKey, check: str, limits: EventLimits) -> list[int]:
        """Return the ids of the check's expired evaluations, also of those that runs have made."""
        of_check = (_EVALUATIONS.asset_key == table.to_string(), _EVALUATIONS.check_name == check)
        return self._expired(_EVALUATIONS.id, _EVALUATIONS.evaluation_event_timestamp, of_check, limits)

    def delete_events(self, ids: Sequence[int]) -> int:
        for batch in _batches(ids):
            self._delete_batch(batch)
        return len(ids)

    def delete_evaluations(self, ids: Sequence[int]) -> int:
        for batch in _batches(ids):
            with self._index() as connection:
                reported = (
                    connection.execute(
                        sa.select(_EVENTS.id).where(
                            _EVENTS.run_id == RUNLESS_RUN_ID,
                            _EVENTS.id.in_(
                                sa.select(_EVALUATIONS.evaluation_event_storage_id).where(_EVALUATIONS.id.in_(batch))
                            ),
                        )
                    )
                    .scalars()
                    .all()
                )
            # The evaluations last: they name the events, and this may be interrupted.
            self._delete_batch(reported)
            with self._index() as connection:
                connection.execute(AssetCheckExecutionsTable.delete().where(_EVALUATIONS.id.in_(batch)))
        return len(ids)

    def _expired(
        self,
        row_id: sa.Column[int],
        reported_at: sa.Column[datetime],
        which: Sequence[sa.ColumnElement[bool]],
        limits: EventLimits,
    ) -> list[int]:
        """Rows are ranked by id, as Dagster does to find the newest."""
        # Dagster stores UTC without a time zone.
        since = limits.since.astimezone(timezone.utc).replace(tzinfo=None)
        with self._index() as connection:
            newest_first = sa.select(row_id).where(*which).order_by(row_id.desc())
            kept: list[sa.ColumnElement[bool]] = []
            if limits.least:
                least = connection.execute(newest_first.offset(limits.least - 1).limit(1)).scalar()
                if least is None:
                    return []
                kept = [row_id < least]
            most = connection.execute(newest_first.offset(limits.most - 1).limit(1)).scalar()
            expired = sa.or_(reported_at < since, *([row_id < most] if most is not None else []))
            return [*connection.execute(sa.select(row_id).where(*which, *kept, expired)).scalars()]

    def _delete_batch(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        with self._index() as connection:
            copies = connection.execute(sa.select(_EVENTS.timestamp, _EVENTS.event).where(_EVENTS.id.in_(ids))).all()
        if isinstance(self._storage, SqliteEventLogStorage):
            self._delete_copies([tuple(copy) for copy in copies])
        with self._index() as connection:
            connection.execute(AssetEventTagsTable.delete().where(AssetEventTagsTable.c.event_id.in_(ids)))
            connection.execute(SqlEventLogStorageTable.delete().where(_EVENTS.id.in_(ids)))

    def _delete_copies(self, copies: Sequence[tuple[Any, ...]]) -> None:
        """Delete the same events from SQLite's database of events without a run, where they have other ids."""
        with self._storage.run_connection(RUNLESS_RUN_ID) as connection:
            same = sa.tuple_(_EVENTS.timestamp, _EVENTS.event).in_(copies)
            connection.execute(SqlEventLogStorageTable.delete().where(_EVENTS.run_id == RUNLESS_RUN_ID, same))

    def _index(self) -> AbstractContextManager[sa.Connection]:
        return self._storage.index_connection()


def _batches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE))
