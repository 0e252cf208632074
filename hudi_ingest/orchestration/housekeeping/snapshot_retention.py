"""Deletes snapshots of our jobs that no run has any more: each change of a pipeline file, each topic of a template and each upgrade
leaves some, and Dagster keeps them for ever.

Dagster has no call for that, so this is SQL on its own tables, which its SQLite and PostgreSQL storages share.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from dagster import DagsterInstance
from dagster._core.snap import ExecutionPlanSnapshot, JobSnap
from dagster._core.storage.runs.schema import RunsTable, SnapshotsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage

from hudi_ingest.orchestration import tags

AT_ONCE = 1000
"""Of the snapshots that no run has, those of other people's jobs included."""
_SNAPSHOTS = SnapshotsTable.c


def delete_snapshots(instance: DagsterInstance, *, dry_run: bool) -> int:
    """Delete them, and return how many there were. Does nothing, and returns 0, if the instance's storage is no SQL database of
    Dagster's own kinds."""
    storage = instance.run_storage
    if not isinstance(storage, SqlRunStorage):
        return 0
    jobs = [snapshot_id for snapshot_id in _unused(storage) if _is_ours(storage.get_job_snapshot(snapshot_id))]
    plans = _plans_of(storage, jobs) if jobs else []
    if jobs and not dry_run:
        _delete(storage, jobs, plans)
    return len(jobs) + len(plans)


def _unused(storage: SqlRunStorage) -> list[str]:
    query = (
        sa.select(_SNAPSHOTS.snapshot_id)
        .where(_SNAPSHOTS.snapshot_type == "PIPELINE", ~_has_run(_SNAPSHOTS.snapshot_id))
        .order_by(_SNAPSHOTS.id.desc())
        .limit(AT_ONCE)
    )
    with storage.connect() as connection:
        return [*connection.execute(query).scalars()]


def _has_run(snapshot_id: sa.ColumnElement[str]) -> sa.Exists:
    return sa.exists().where(RunsTable.c.snapshot_id == snapshot_id)


def _is_ours(snapshot: JobSnap) -> bool:
    return bool(tags.OF_PIPELINES & snapshot.tags.keys())


def _plans_of(storage: SqlRunStorage, jobs: Collection[str]) -> list[str]:
    with storage.connect() as connection:
        plans = sa.select(_SNAPSHOTS.snapshot_id).where(_SNAPSHOTS.snapshot_type == "EXECUTION_PLAN")
        ids = [*connection.execute(plans).scalars()]
    return [plan for plan in ids if _job_of(storage.get_execution_plan_snapshot(plan)) in jobs]


def _job_of(plan: ExecutionPlanSnapshot) -> str:
    return plan.job_snapshot_id


def _delete(storage: SqlRunStorage, jobs: Collection[str], plans: Collection[str]) -> None:
    with storage.connect() as connection:
        rows: list[dict[str, Any]] = [
            dict(row)
            for row in connection.execute(
                sa.select(SnapshotsTable).where(_SNAPSHOTS.snapshot_id.in_([*jobs, *plans]))
            ).mappings()
        ]
        connection.execute(SnapshotsTable.delete().where(_SNAPSHOTS.snapshot_id.in_([*jobs, *plans])))
    # A run that was made meanwhile may have found its snapshot, and so not have added it again.
    with storage.connect() as connection:
        used = {
            *connection.execute(sa.select(RunsTable.c.snapshot_id).where(RunsTable.c.snapshot_id.in_(jobs))).scalars()
        }
    if used:
        with storage.connect() as connection:
            connection.execute(SnapshotsTable.insert(), [row for row in rows if row["snapshot_id"] in {*used, *plans}])
