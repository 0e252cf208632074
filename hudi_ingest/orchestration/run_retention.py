"""Which of our Dagster runs may be deleted, and their deletion with events, step logs and results; and how the space of deleted rows
returns to the disk.

Deleting a run cannot make its transaction happen twice, although Dagster then no longer knows the run key, which is the
transaction's id. A tick plans each transaction from the table's checkpoint, under a new id, so it never asks for an old key. And if
an old plan were begun again, by whatever means, begin refuses it: its sequence number is not the one that follows the table's.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from hudi_ingest.ledger import Kept
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.retention import ASSET_JOB, run_database
from hudi_ingest.orchestration.pipeline_definitions import OwnDefinitions

PAGES_AT_ONCE = 2000
"""Some milliseconds, and 8 MB with pages of the usual size."""
LEAST_FREE_BYTES = 8 << 20
"""Less than this is not worth it: the next rows fill it."""
MOST_COPIED_BYTES = 128 << 20
"""A VACUUM of that takes one or two seconds."""
_BUSY_SECONDS = 5.0
_INCREMENTAL = 2
ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]


def expired_runs(instance: DagsterInstance, own: OwnDefinitions, limits: Kept) -> list[str]:
    """Return the ids of runs that may be deleted, oldest first of each pipeline and kind.

    Never one that has not ended, that an active run re-executes, or that reported one of the newest materializations of a table: ticks
    ask which commits have one, and freshness, checks and plots read them.
    """
    kept = {*_reexecuted(instance), *(_materializers(instance, own, limits.least) if limits.least else ())}
    expired, counted = list[str](), set[str]()
    for kind, name in _kinds(own):
        ended = RunsFilter(tags={kind: name}, statuses=ENDED)
        old = {*instance.get_run_ids(RunsFilter(tags={kind: name}, statuses=ENDED, created_before=limits.since))}
        # A run has the tag of all runs of its pipeline, too, which comes last.
        newest_first = [run_id for run_id in instance.get_run_ids(ended) if run_id not in counted]
        counted.update(newest_first)
        expired += [
            run_id
            for place, run_id in reversed([*enumerate(newest_first)])
            if place >= limits.least and (place >= limits.most or run_id in old) and run_id not in kept
        ]
    return [run_id for run_id in expired if _is_ours_alone(instance, own, run_id)]


def pipelines_of_runs(
    instance: DagsterInstance, own: OwnDefinitions, since: datetime, location: str | None
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the pipelines that runs name and that are not ours, and those of them that have a run which was created at `since` or
    later, or launched by another code location than `location`."""
    names = {name for kind in tags.KINDS for _, values in instance.get_run_tags(tag_keys=[kind]) for name in values}
    names -= {*own.pipelines}
    return frozenset(names), frozenset(name for name in names if _is_in_use(instance, name, since, location))


def _is_in_use(instance: DagsterInstance, name: str, since: datetime, location: str | None) -> bool:
    for kind in tags.KINDS:
        for record in instance.get_run_records(RunsFilter(tags={kind: name}), limit=1):
            origin = record.dagster_run.remote_job_origin
            launched_by = origin.repository_origin.code_location_origin.location_name if origin else location
            if record.create_timestamp.timestamp() >= since.timestamp() or location not in (None, launched_by):
                return True
    return False


def run_bytes(instance: DagsterInstance, run_id: str) -> int:
    """Return the size of the run's files on this machine; rows in shared databases are not counted."""
    return sum(file.stat().st_size for path in _paths(instance, run_id) for file in _files(path))


def delete_run(instance: DagsterInstance, run_id: str) -> None:
    """Delete an ended run with everything that belongs to it."""
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.delete_run(run_id)
    # Dagster empties the database of the run's events, but leaves the file.
    for path in _paths(instance, run_id):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(FileNotFoundError):
                path.unlink()


def delete_runs(instance: DagsterInstance, run_ids: Sequence[str], is_late: Callable[[], bool]) -> Iterator[int]:
    """Delete the runs, one at a time, and yield the bytes that each freed. Stops when it `is_late`."""
    for run_id in run_ids:
        if is_late():
            return
        size = run_bytes(instance, run_id)
        delete_run(instance, run_id)
        yield size


def shorten_logs(instance: DagsterInstance, own: OwnDefinitions) -> int:
    """Empty the write-ahead logs of ended runs' SQLite databases, and return the bytes freed: processes that are killed, or end
    without closing their connections, leave a megabyte each."""
    freed = 0
    for kind, name in _kinds(own):
        for run_id in instance.get_run_ids(RunsFilter(tags={kind: name}, statuses=ENDED)):
            database = run_database(instance, run_id)
            if database is not None and with_suffix(database, "wal").exists():
                freed += empty_log(database)
    return freed


def _is_ours_alone(instance: DagsterInstance, own: OwnDefinitions, run_id: str) -> bool:
    """Whether the run concerns nothing but our tables. A team's own job may materialize them, too."""
    run = instance.get_run_by_id(run_id)
    if run is None or not run.is_finished:
        return False
    selected = run.asset_selection or frozenset()
    of_tables = run.job_name.startswith(ASSET_JOB) and bool(selected) and selected <= {*own.tables}
    return run.job_name in own.jobs or of_tables


def is_job_of_ours(snapshot: Any) -> bool:
    """Whether Dagster's snapshot of a job is of one of ours, or of assets with a table of ours among them."""
    ops = {op.name for op in snapshot.node_defs_snapshot.op_def_snaps}
    graphs = snapshot.node_defs_snapshot.graph_def_snaps if snapshot.name.startswith(ASSET_JOB) else ()
    return bool(tags.OF_PIPELINES & snapshot.tags.keys()) or any(f"{graph.name}__begin" in ops for graph in graphs)


def _kinds(own: OwnDefinitions) -> Iterator[tuple[str, str]]:
    yield from ((kind, name) for name in own.pipelines for kind in tags.KINDS)
    yield tags.HOUSEKEEPING, "true"


def _reexecuted(instance: DagsterInstance) -> Iterator[str]:
    for run in instance.get_runs(RunsFilter(statuses=tags.ACTIVE)):
        yield from (run_id for run_id in (run.parent_run_id, run.root_run_id) if run_id)


def _materializers(instance: DagsterInstance, own: OwnDefinitions, least: int) -> Iterator[str]:
    for table in own.tables:
        yield from (record.run_id for record in instance.fetch_materializations(table, limit=least).records)


def _paths(instance: DagsterInstance, run_id: str) -> list[Path]:
    paths = [Path(instance.storage_directory(), run_id)]
    database = run_database(instance, run_id)
    if database is not None:
        paths += [database, with_suffix(database, "wal"), with_suffix(database, "shm")]
    return [path for path in paths if path.exists()]


def _files(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else iter([path])


def stored_bytes(databases: Iterable[Path]) -> int:
    """Return the size of the databases with their write-ahead logs."""
    files = [file for database in databases for file in (database, with_suffix(database, "wal"))]
    return sum(file.stat().st_size for file in files if file.exists())


def with_suffix(database: Path, suffix: str) -> Path:
    """Return the file that SQLite keeps beside the database, `wal` or `shm`."""
    return database.with_name(f"{database.name}-{suffix}")


def empty_log(database: Path) -> int:
    """Copy a write-ahead log that a process has left behind into the database, and return how much smaller both are. Leaves it if
    another process has the database open. Raises sqlite3.DatabaseError."""
    before = stored_bytes([database])
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return before - stored_bytes([database])


def shrink(database: Path) -> None:
    """Give free pages back without keeping other writers waiting for long. Does nothing if there is no such file, and leaves the rest
    for the next time if other processes are in the way. Raises sqlite3.DatabaseError.

    A database whose `auto_vacuum` is incremental gives back some pages at a time. Others need one VACUUM to become like that, for
    which other writers wait while the rest is copied, so it is done only where little is left to copy. In larger ones new rows
    fill the space.
    """
    if not database.exists():
        return
    try:
        with closing(sqlite3.connect(database, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
            _shrink(connection)
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise


def _shrink(connection: sqlite3.Connection) -> None:
    page_bytes, pages, free = (_number(connection, name) for name in ("page_size", "page_count", "freelist_count"))
    if free * page_bytes < LEAST_FREE_BYTES:
        return
    if _number(connection, "auto_vacuum") == _INCREMENTAL:
        for _ in range(0, free, PAGES_AT_ONCE):
            # Each is a transaction of its own. As a script, because `execute` takes only the first step, which is one page.
            connection.executescript(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")
    elif (pages - free) * page_bytes <= MOST_COPIED_BYTES and free * 2 >= pages:
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        connection.execute("VACUUM")
    else:
        return
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
