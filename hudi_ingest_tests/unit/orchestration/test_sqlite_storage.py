"""Dagster's SQLite storage with connections that stay open holds what Dagster's own would hold, in any process."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterInstance,
    job,
    op,
)
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage

from hudi_ingest.orchestration.embedded import retention, sqlite_storage
from hudi_ingest.orchestration.embedded.sqlite_storage import QuickEventLogStorage, QuickRunStorage, close_run_logs

CONFIG = "storage: {custom: {module: hudi_ingest.orchestration.embedded.sqlite_storage, class: QuickSqliteStorage}}\n"


@op
def greet() -> int:
    return 1


@job
def greeting() -> None:
    greet()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{CONFIG}")
    return tmp_path


def said(run_id: str, text: str) -> EventLogEntry:
    return EventLogEntry(  # type: ignore[no-untyped-call]
        error_info=None,
        level=20,
        user_message=text,
        run_id=run_id,
        timestamp=time.time(),
        step_key="greet",
        job_name="greeting",
        dagster_event=None,
    )


def texts(storage: SqliteEventLogStorage, run_id: str) -> list[str]:
    return [entry.user_message for entry in storage.get_logs_for_run(run_id)]


def tables(database: Path) -> dict[str, str]:
    with closing(sqlite3.connect(database)) as connection:
        found: dict[str, str] = dict(connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name"))
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        found["revision"] = str(connection.execute("SELECT version_num FROM alembic_version").fetchall())
        return found


def test_the_databases_are_those_that_dagster_makes(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    own = tmp_path_factory.mktemp("own")
    with SqliteEventLogStorage(str(own)).run_connection("a-run"):
        pass
    SqliteRunStorage.from_local(str(own))
    SqliteScheduleStorage.from_local(str(own))
    with DagsterInstance.from_config(str(home)) as instance:
        run_id = greeting.execute_in_process(instance=instance).run_id

    assert tables(home / "history/runs" / f"{run_id}.db") == tables(own / "a-run.db")
    assert tables(home / "history/runs/index.db") == tables(own / "index.db")
    assert tables(home / "history/runs.db") == tables(own / "runs.db")
    assert tables(home / "schedules/schedules.db") == tables(own / "schedules.db")
    assert [path.name for path in (home / "history/runs").iterdir() if path.name.endswith(".new")] == []


def test_dagsters_own_storage_reads_what_was_written_and_the_other_way_round(home: Path) -> None:
    with DagsterInstance.from_config(str(home)) as instance:
        assert isinstance(instance.event_log_storage, QuickEventLogStorage)
        run_id = greeting.execute_in_process(instance=instance).run_id
        messages = texts(instance.event_log_storage, run_id)
        assert messages
        own = SqliteEventLogStorage(str(home / "history/runs"))
        assert texts(own, run_id) == messages
        own.store_event(said(run_id, "by Dagster's own"))
        assert texts(instance.event_log_storage, run_id) == [*messages, "by Dagster's own"]
        (run,) = SqliteRunStorage.from_local(str(home / "history")).get_runs()
        assert run.is_success


def test_the_event_log_knows_its_tables(tmp_path: Path) -> None:
    storage = QuickEventLogStorage(str(tmp_path))
    names = ("asset_check_executions", "event_logs", "nothing")
    assert [storage.has_table(name) for name in names] == [True, True, False]
    assert [SqliteEventLogStorage.has_table(storage, name) for name in names] == [True, True, False]


@pytest.mark.parametrize(
    "event",
    [AssetCheckEvaluation(AssetKey("t"), "up_to_date", True), AssetMaterialization("t"), AssetObservation("t")],
    ids=lambda event: type(event).__name__,
)
def test_an_event_and_what_it_says_about_an_asset_are_committed_together(
    home: Path, event: AssetCheckEvaluation | AssetMaterialization | AssetObservation
) -> None:
    commits, pending = list[list[str]](), list[str]()

    def execute(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(("INSERT", "UPDATE")):
            pending.append(statement)

    def commit(connection: object) -> None:
        commits.append([*pending])
        pending.clear()

    with DagsterInstance.from_config(str(home)) as instance:
        assert isinstance(instance.event_log_storage, QuickEventLogStorage)
        instance.report_runless_asset_event(event)
        storage = instance.event_log_storage
        assert isinstance(storage, QuickEventLogStorage)
        with storage.index_connection() as connection:
            engine = connection.engine
        sa.event.listen(engine, "before_cursor_execute", execute)
        sa.event.listen(engine, "commit", commit)
        instance.report_runless_asset_event(event)
        assert len([each for each in commits if each]) == 1
        own = SqliteEventLogStorage(str(home / "history/runs"))
        if isinstance(event, AssetCheckEvaluation):
            key = AssetCheckKey(AssetKey("t"), "up_to_date")
            assert len(own.get_asset_check_execution_history(key, limit=5)) == 2
        else:
            assert own.has_asset_key(AssetKey("t"))


def test_several_events_can_be_committed_together_and_none_of_a_block_that_fails(home: Path) -> None:
    commits = list[object]()
    with DagsterInstance.from_config(str(home)) as instance:
        storage = instance.event_log_storage
        assert isinstance(storage, QuickEventLogStorage)
        with storage.index_connection() as connection:
            sa.event.listen(connection.engine, "commit", commits.append)
        commits.clear()
        keys = [AssetCheckKey(AssetKey("t"), name) for name in "abc"]
        with storage.together():
            for key in keys:
                instance.report_runless_asset_event(AssetCheckEvaluation(key.asset_key, key.name, True))
            assert not commits
        assert len(commits) == 1
        with pytest.raises(ZeroDivisionError), storage.together():
            instance.report_runless_asset_event(AssetCheckEvaluation(AssetKey("t"), "a", False))
            _ = 1 / 0
        own = SqliteEventLogStorage(str(home / "history/runs"))
        assert [len(own.get_asset_check_execution_history(key, limit=5)) for key in keys] == [1, 1, 1]


def test_a_statement_is_compiled_once_for_all_databases(tmp_path: Path) -> None:
    def store(name: str) -> None:
        storage = QuickEventLogStorage(str(tmp_path / name))
        storage.store_event(said(name, "hello"))
        assert [entry.user_message for entry in storage.get_logs_for_run(name)] == ["hello"]

    store("first")
    compiled = {*sqlite_storage._COMPILED}
    store("second")
    assert compiled
    assert {*sqlite_storage._COMPILED} == compiled


def test_only_the_first_query_for_runs_lists_the_columns(home: Path) -> None:
    statements = list[str]()

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        with DagsterInstance.get() as instance:
            instance.get_run_records()
            statements.clear()
            instance.get_run_records()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert statements and not [each for each in statements if "PRAGMA" in each]


def test_a_half_made_event_log_is_completed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a-run.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE other (id INTEGER)")
    storage = QuickEventLogStorage(str(tmp_path))
    storage.store_event(said("a-run", "hello"))
    assert texts(storage, "a-run") == ["hello"]


def test_forked_processes_and_threads_write_to_one_run(tmp_path: Path) -> None:
    """A child that used its parent's connection would corrupt the database or wait for ever."""
    storage = QuickEventLogStorage(str(tmp_path))
    storage.store_event(said("a-run", "parent before"))
    pid = os.fork()
    if pid == 0:
        for number in range(20):
            storage.store_event(said("a-run", f"child {number}"))
        os._exit(0)

    def write(name: str) -> None:
        for number in range(20):
            storage.store_event(said("a-run", f"{name} {number}"))

    writers = [threading.Thread(target=write, args=(name,)) for name in ("first", "second")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert os.waitpid(pid, 0)[1] == 0
    found = texts(storage, "a-run")
    assert found[0] == "parent before"
    assert sorted(found[1:]) == sorted(f"{name} {n}" for name in ("child", "first", "second") for n in range(20))
    with closing(sqlite3.connect(tmp_path / "a-run.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_few_runs_stay_open(tmp_path: Path) -> None:
    storage = QuickEventLogStorage(str(tmp_path))
    for number in range(40):
        storage.store_event(said(f"run-{number}", "hello"))
    opened = [
        os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")
    ]
    assert len([path for path in opened if path.startswith(str(tmp_path)) and path.endswith(".db")]) <= 17
    assert texts(storage, "run-0") == ["hello"]


def test_whoever_closes_a_runs_log_last_deletes_its_write_ahead_log(tmp_path: Path) -> None:
    storage = QuickEventLogStorage(str(tmp_path))
    storage.store_event(said("run", "before"))
    assert (tmp_path / "run.db-wal").exists()
    close_run_logs()
    assert not (tmp_path / "run.db-wal").exists()
    storage.store_event(said("run", "after"))
    assert texts(storage, "run") == ["before", "after"]


def test_a_change_to_a_run_is_noticed_once_whoever_makes_it(home: Path) -> None:
    with DagsterInstance.from_config(str(home)) as instance:
        assert isinstance(instance.run_storage, QuickRunStorage)
        changed = instance.run_storage.changes()
        changed()
        assert not changed()
        greeting.execute_in_process(instance=instance)
        assert changed()
        assert not changed()
        SqliteRunStorage.from_local(str(home / "history")).set_cursor_values({"by": "another"})
        assert changed()
        instance.event_log_storage.store_event(said("a-run", "a line of a log"))
        assert not changed()


def test_the_names_that_we_share_with_dagster_are_those_that_it_uses() -> None:
    from dagster._core.instance import RUNLESS_RUN_ID
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME

    assert retention.RUNLESS_RUN_ID == RUNLESS_RUN_ID
    assert retention.INDEX_SHARD_NAME == sqlite_storage._INDEX_SHARD_NAME == INDEX_SHARD_NAME
