"""Housekeeping in Dagster's own databases: the deletion of old events that ticks have reported without a run, old ticks, and snapshots
of jobs that no run has any more.

Dagster has no calls for most of it: it can delete all events of an asset or none, and keeps snapshots for ever. So this is SQL on its
own table definitions, which its SQLite and PostgreSQL storages share. It works on any instance with such a storage, the embedded one
or a team's own, and leaves other storages alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dagster import AssetKey, DagsterInstance
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.runs import SqliteRunStorage, SqlRunStorage
from dagster._core.storage.runs.schema import RunsTable, SnapshotsTable
from dagster._core.storage.schedules import SqliteScheduleStorage

EVENTS_AT_ONCE = 500
"""Rows in one transaction: a tick that reports meanwhile waits some milliseconds."""
TICKS_AT_ONCE = 1000
ASSET_JOB = "__ASSET_JOB"
"""How the name of the job begins in which Dagster runs a selection of assets."""
SNAPSHOTS_AT_ONCE = 1000
"""Snapshots without a run that are deleted at once, those of other people's jobs included."""
_EVENTS = SqlEventLogStorageTable.c
INDEX_SHARD_NAME = "index"
RUNLESS_RUN_ID = ""
"""Dagster's names of the database with the events of all runs, and of the run of events that have none."""
_EVALUATIONS = AssetCheckExecutionsTable.c
_SNAPSHOTS = SnapshotsTable.c


def delete_events(
    instance: DagsterInstance,
    assets: Iterable[AssetKey],
    checks: Iterable[tuple[AssetKey, str]],
    since: datetime,
    most: int,
    least: int,
    *,
    dry_run: bool,
) -> int:
    """Delete events of these assets and checks that need not be kept: evaluations of the checks, and observations, materializations and
    freshness states of the assets that no run has reported. Events of runs go with their runs. The `least` newest of each kind are kept,
    and of the others those since `since` that are among the `most` newest. Return how many there were to delete; 0 if the instance's
    storage is no SQL database of Dagster's own kinds."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return 0
    events = EventTables(storage, since, most, least)
    deleted = 0
    for key in sorted(assets, key=str):
        for expired in events.expired_of_asset(key):
            deleted += len(expired) if dry_run else events.delete_events(expired)
    for table, check in checks:
        expired = events.expired_evaluations(table, check)
        deleted += len(expired) if dry_run else events.delete_evaluations(expired)
    return deleted


class EventTables:
    """The tables of Dagster's event log, and which of their rows are kept. SQLite has an event without a run twice, in the index of all
    runs and in a database of its own."""

    def __init__(self, storage: SqlEventLogStorage, since: datetime, most: int, least: int) -> None:
        self._storage = storage
        # Dagster stores UTC without a time zone.
        self._since = since.astimezone(timezone.utc).replace(tzinfo=None)
        self._most = most
        self._least = least

    def expired_of_asset(self, key: AssetKey) -> Iterator[list[int]]:
        """Yield the ids of the asset's expired events, kind by kind."""
        runless = (_EVENTS.asset_key == key.to_string(), _EVENTS.run_id == RUNLESS_RUN_ID)
        with self._index() as connection:
            kinds = connection.execute(sa.select(_EVENTS.dagster_event_type).where(*runless).distinct()).scalars().all()
        for kind in kinds:
            yield self._expired(_EVENTS.id, _EVENTS.timestamp, (*runless, _EVENTS.dagster_event_type == kind))

    def expired_evaluations(self, table: AssetKey, check: str) -> list[int]:
        """Return the ids of the check's expired evaluations, also of those that runs have made."""
        of_check = (_EVALUATIONS.asset_key == table.to_string(), _EVALUATIONS.check_name == check)
        return self._expired(_EVALUATIONS.id, _EVALUATIONS.evaluation_event_timestamp, of_check)

    def delete_events(self, ids: Sequence[int]) -> int:
        for batch in _batches(ids):
            self._delete_batch(batch)
        return len(ids)

    def delete_evaluations(self, ids: Sequence[int]) -> int:
        for batch in _batches(ids):
            evaluated = sa.select(_EVALUATIONS.evaluation_event_storage_id).where(_EVALUATIONS.id.in_(batch))
            runless = sa.select(_EVENTS.id).where(_EVENTS.run_id == RUNLESS_RUN_ID, _EVENTS.id.in_(evaluated))
            with self._index() as connection:
                reported = [*connection.execute(runless).scalars()]
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
    ) -> list[int]:
        """Rows are ranked by id, as Dagster does to find the newest."""
        with self._index() as connection:
            newest_first = sa.select(row_id).where(*which).order_by(row_id.desc())
            kept: list[sa.ColumnElement[bool]] = []
            if self._least:
                least = connection.execute(newest_first.offset(self._least - 1).limit(1)).scalar()
                if least is None:
                    return []
                kept = [row_id < least]
            most = connection.execute(newest_first.offset(self._most - 1).limit(1)).scalar()
            expired = sa.or_(reported_at < self._since, *([row_id < most] if most is not None else []))
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
    return (ids[start : start + EVENTS_AT_ONCE] for start in range(0, len(ids), EVENTS_AT_ONCE))


def delete_ticks(
    instance: DagsterInstance, instigators: Collection[str], since: datetime, location: str | None, *, dry_run: bool
) -> int:
    """Delete the ticks of these sensors and schedules before `since`, with their logs, and return how many there were. Dagster's own
    `retention` of an instance keeps those of schedules for ever by default, and never deletes the logs. `location`: the code location
    of the sensors and schedules; any if it is None."""
    deleted = 0
    for state in instance.all_instigator_state():
        where = state.origin.repository_origin.code_location_origin.location_name
        if state.instigator_name not in instigators or location not in (None, where):
            continue
        origin, selector = state.instigator_origin_id, state.selector_id
        for tick in _ticks(instance, origin, selector, since):
            deleted += 1
            if tick.log_key and not dry_run:
                instance.compute_log_manager.delete_logs(log_key=tick.log_key)
        if not dry_run:
            instance.purge_ticks(origin, selector, since.timestamp())
    return deleted


def _ticks(instance: DagsterInstance, origin: str, selector: str, before: datetime) -> Iterator[Any]:
    """Yield newest first."""
    until = before.timestamp()
    while True:
        ticks = instance.get_ticks(origin, selector, before=until, limit=TICKS_AT_ONCE)
        yield from ticks
        if len(ticks) < TICKS_AT_ONCE:
            return
        until = ticks[-1].timestamp


def delete_snapshots(instance: DagsterInstance, is_ours: Callable[[Any], bool], *, dry_run: bool) -> int:
    """Delete snapshots of jobs that no run has any more, and return how many there were: each change of a definition leaves some.
    `is_ours`: whether the job of such a snapshot is one of those. Returns 0 if the instance's storage is no SQL database of Dagster's own
    kinds."""
    storage = instance.run_storage
    if not isinstance(storage, SqlRunStorage):
        return 0
    unused = {found: storage.get_job_snapshot(found) for found in _unused_snapshots(storage)}
    ours = {found: snapshot for found, snapshot in unused.items() if is_ours(snapshot)}
    of_all_assets = [found for found, snapshot in ours.items() if _is_of_all_assets(snapshot)]
    # The newest is likely that of the current definitions, from which the next run takes its part.
    kept = {*of_all_assets[:1], *(_whole_jobs_of_runs(storage) if len(of_all_assets) > 1 else ())}
    jobs = [found for found in ours if found not in kept]
    plans = _plans_of(storage, jobs) if jobs else []
    if jobs and not dry_run:
        _delete_snapshots(storage, jobs, plans)
    return len(jobs) + len(plans)


def _unused_snapshots(storage: SqlRunStorage) -> list[str]:
    query = (
        sa.select(_SNAPSHOTS.snapshot_id)
        .where(_SNAPSHOTS.snapshot_type == "PIPELINE", ~_has_run(_SNAPSHOTS.snapshot_id))
        .order_by(_SNAPSHOTS.id.desc())
        .limit(SNAPSHOTS_AT_ONCE)
    )
    with storage.connect() as connection:
        return [*connection.execute(query).scalars()]


def _has_run(snapshot_id: sa.ColumnElement[str]) -> sa.Exists:
    return sa.exists().where(RunsTable.c.snapshot_id == snapshot_id)


def _is_of_all_assets(snapshot: Any) -> bool:
    return snapshot.name.startswith(ASSET_JOB) and snapshot.lineage_snapshot is None


def _whole_jobs_of_runs(storage: SqlRunStorage) -> set[str]:
    """Return the snapshots of jobs of which runs have a part. No run has them, but Dagster shows those runs with them."""
    query = sa.select(_SNAPSHOTS.snapshot_id).where(
        _SNAPSHOTS.snapshot_type == "PIPELINE", _has_run(_SNAPSHOTS.snapshot_id)
    )
    with storage.connect() as connection:
        found = [*connection.execute(query).scalars()]
    lineages = (storage.get_job_snapshot(snapshot_id).lineage_snapshot for snapshot_id in found)
    return {lineage.parent_snapshot_id for lineage in lineages if lineage is not None}


def _plans_of(storage: SqlRunStorage, jobs: Collection[str]) -> list[str]:
    with storage.connect() as connection:
        plans = sa.select(_SNAPSHOTS.snapshot_id).where(_SNAPSHOTS.snapshot_type == "EXECUTION_PLAN")
        ids = [*connection.execute(plans).scalars()]
    return [plan for plan in ids if storage.get_execution_plan_snapshot(plan).job_snapshot_id in jobs]


def _delete_snapshots(storage: SqlRunStorage, jobs: Collection[str], plans: Collection[str]) -> None:
    unused = _SNAPSHOTS.snapshot_id.in_([*jobs, *plans])
    with storage.connect() as connection:
        rows = [{**row} for row in connection.execute(sa.select(SnapshotsTable).where(unused)).mappings()]
        connection.execute(SnapshotsTable.delete().where(unused))
    # A run that was made meanwhile may have found its snapshot, and so not have added it again.
    of_runs = sa.select(RunsTable.c.snapshot_id).where(RunsTable.c.snapshot_id.in_(jobs))
    with storage.connect() as connection:
        used = {*connection.execute(of_runs).scalars()}
    if used:
        with storage.connect() as connection:
            connection.execute(SnapshotsTable.insert(), [row for row in rows if row["snapshot_id"] in {*used, *plans}])


def sqlite_files(instance: DagsterInstance) -> list[Path]:
    """Return the instance's SQLite databases that all runs share; none if its storage is not SQLite in files."""
    files = []
    events, schedules = instance.event_log_storage, instance.schedule_storage
    if isinstance(events, SqliteEventLogStorage):
        files += [Path(events.path_for_shard(shard)) for shard in (INDEX_SHARD_NAME, RUNLESS_RUN_ID)]
    for storage in (instance.run_storage, schedules):
        if isinstance(storage, (SqliteRunStorage, SqliteScheduleStorage)):
            with storage.connect() as connection:
                files.append(Path(connection.exec_driver_sql("PRAGMA database_list").fetchall()[0][2]))
    return files


def run_database(instance: DagsterInstance, run_id: str) -> Path | None:
    """Return the SQLite database of the run's events; None if the instance has none for each run."""
    events = instance.event_log_storage
    return Path(events.path_for_shard(run_id)) if isinstance(events, SqliteEventLogStorage) else None
