"""Dagster's storage with kept connections, on a real PostgreSQL, beside Dagster's own."""

from __future__ import annotations

import logging
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from dagster import (
    AssetCheckResult,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    Output,
    asset,
    asset_check,
    materialize,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._daemon.types import DaemonHeartbeat

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.orchestration import postgres_storage
from hudi_ingest.orchestration.postgres_storage import (
    PooledEventLogStorage,
    PooledRunStorage,
    PooledScheduleStorage,
)
from hudi_ingest_tests.support import postgres
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = [pytest.mark.fast, pytest.mark.tier(2)]

SENSOR = """
import dagster as dg
from hudi_ingest.orchestration.home_instance import kept_instance

@dg.sensor(minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def looks(context):
    kept_instance(context).get_runs(limit=1)
    return dg.SkipReason("nothing new")

defs = dg.Definitions(sensors=[looks])
"""


@dataclass(frozen=True)
class Server:
    url: sa.URL

    def database(self, name: str) -> sa.URL:
        self.run(f"CREATE DATABASE {name}")
        return self.url.set(database=name)

    def run(self, statement: str) -> Any:
        engine = sa.create_engine(self.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            result = connection.execute(sa.text(statement))
            return result.scalar() if result.returns_rows else None

    def backends(self, url: sa.URL) -> set[int]:
        pids = self.run(
            f"SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = '{url.database}' AND pid <> pg_backend_pid()"
        )
        return set(pids or ())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres.running(more=postgres.LOGGED) as served:
        if served is None:
            pytest.skip("PostgreSQL is not installed")
        yield Server(sa.make_url(served))


@pytest.fixture
def url(server: Server, request: pytest.FixtureRequest) -> sa.URL:
    return server.database(f"t{abs(hash(request.node.name))}")


Open = Callable[..., DagsterInstance]


@pytest.fixture
def opened(url: sa.URL, tmp_path: Path) -> Iterator[Open]:
    """Opens instances on the test's database."""
    instances: list[DagsterInstance] = []

    def open_one(pooled: bool = True, **config: object) -> DagsterInstance:
        home = tmp_path / f"home{len(instances)}"
        home.mkdir()
        (home / "dagster.yaml").write_text(yaml.safe_dump(settings(url, pooled, config)))
        instances.append(DagsterInstance.from_config(str(home)))
        return instances[-1]

    yield open_one
    for instance in instances:
        instance.dispose()


def settings(url: sa.URL, pooled: bool, config: Mapping[str, object]) -> dict[str, Any]:
    own = {"postgres_url": url.render_as_string(hide_password=False), **config}
    storage = {"custom": {"module": postgres_storage.__name__, "class": "PooledPostgresStorage", "config": own}}
    return {"telemetry": {"enabled": False}, "storage": storage if pooled else {"postgres": own}}


def idle_tick(url: sa.URL, instance: DagsterInstance, definitions: Path) -> tuple[int, int]:
    """Connections and statements of the cheapest of three ticks, in daemon and code server: the first makes ready for the others."""
    definitions.write_text(SENSOR)
    ticks: list[tuple[int, int]] = []
    count = sa.create_engine(url, poolclass=sa.NullPool)
    logger = logging.getLogger("test")
    with WorkspaceProcessContext(instance, PythonFileTarget(str(definitions), None, None, None)) as workspace:

        def one_more() -> bool:
            with count.connect() as connection:
                before = connection.execute(sa.text("SELECT count(*) FROM job_ticks")).scalar()
            costs = postgres.counted(url, lambda: [*execute_sensor_iteration(workspace, logger, None, None)])
            with count.connect() as connection:
                after = connection.execute(sa.text("SELECT count(*) FROM job_ticks WHERE status = 'SKIPPED'")).scalar()
            if before != after:
                ticks.append(costs)
            return len(ticks) == 3

        wait_for(one_more, "the sensor has ticked", 120)
    return min(ticks)


def test_an_idle_tick_opens_no_connection_and_does_not_ask_for_tables(
    url: sa.URL, opened: Open, tmp_path: Path
) -> None:
    connections, statements = idle_tick(url, opened(), tmp_path / "pooled.py")
    assert connections == 0
    assert statements <= 14
    connections, statements = idle_tick(url, opened(pooled=False), tmp_path / "stock.py")
    assert connections >= 27
    assert statements >= 28


def run_of_an_asset(instance: DagsterInstance) -> str:
    @asset
    def orders() -> Output[int]:
        return Output(1, metadata={"rows": 7})

    @asset_check(asset=orders)
    def complete() -> AssetCheckResult:
        return AssetCheckResult(passed=True)

    return materialize([orders, complete], instance=instance, tags={"a": "b"}).run_id


def test_a_run_leaves_what_dagster_s_own_storage_leaves(opened: Open) -> None:
    pooled, stock = opened(), opened(pooled=False)
    runs = [run_of_an_asset(pooled), run_of_an_asset(stock)]
    for reader in (pooled, stock):
        types = [
            [entry.get_dagster_event().event_type for entry in reader.all_logs(run) if entry.is_dagster_event]
            for run in runs
        ]
        assert types[0] == types[1]
        assert DagsterEventType.ASSET_CHECK_EVALUATION in types[0]
        for run in runs:
            found = reader.get_run_by_id(run)
            assert found is not None
            assert found.status is DagsterRunStatus.SUCCESS
            assert found.tags["a"] == "b"
        newest = reader.get_latest_materialization_event(next(iter(reader.all_asset_keys())))
        assert newest is not None
        assert newest.run_id == runs[1]


def test_all_instances_of_a_process_share_few_connections(server: Server, url: sa.URL, opened: Open) -> None:
    for instance in [opened() for _ in range(5)]:
        instance.get_runs(limit=1)
        instance.all_instigator_state()
        instance.all_asset_keys()
    assert 1 <= len(server.backends(url)) <= 2


def test_a_forked_process_leaves_its_parent_s_connections_alone(server: Server, url: sa.URL, opened: Open) -> None:
    instance = opened()
    instance.get_runs(limit=1)
    ours = server.backends(url)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        run_of_an_asset(instance)
        sender.send(server.backends(url) - ours)

    process = context.Process(target=child)
    process.start()
    assert receiver.poll(300)
    assert receiver.recv()
    process.join(300)
    assert process.exitcode == 0
    wait_for(lambda: server.backends(url) == ours, "only the parent's connections are open")
    assert instance.get_runs_count() == 1
    # As many as before: after a minute, which a busy machine may take for this, the parent opens another.
    wait_for(lambda: len(server.backends(url)) == len(ours), "the parent has as many connections as before")


def test_p5_a_restart_of_the_server_is_not_noticed_between_two_statements(
    server: Server, url: sa.URL, opened: Open
) -> None:
    instance = opened()
    run_of_an_asset(instance)
    before = server.backends(url)
    postgres.restart(server.url.render_as_string(hide_password=False))
    run_of_an_asset(instance)
    assert instance.get_runs_count() == 2
    assert not server.backends(url) & before


def test_a_restart_in_the_middle_of_a_statement_fails_that_one_only(server: Server, opened: Open) -> None:
    storage = opened().run_storage
    assert isinstance(storage, PooledRunStorage)
    url = server.url.render_as_string(hide_password=False)

    def interrupted() -> None:
        with storage.connect() as connection:
            restarting = threading.Thread(target=postgres.restart, args=(url,))
            restarting.start()
            try:
                connection.exec_driver_sql("SELECT pg_sleep(60)")
            finally:
                restarting.join()

    with pytest.raises(sa.exc.OperationalError):
        interrupted()
    assert storage.get_runs_count() == 0


def test_no_more_connections_than_allowed_and_the_others_wait(server: Server, url: sa.URL, opened: Open) -> None:
    storage = opened(max_connections=3).run_storage
    assert isinstance(storage, PooledRunStorage)
    most, together = [], threading.Barrier(3)

    def use(number: int) -> None:
        with storage.connect() as connection:
            # Only three can meet here at a time.
            together.wait(300)
            connection.exec_driver_sql("SELECT 1")
            most.append(len(server.backends(url)))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(most) == 9, "a connection that is closed makes room, too"
    assert max(most) == 3


def test_who_waits_too_long_for_a_connection_is_told_what_to_raise(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_storage, "WAIT_SECONDS", 0.1)
    storage = opened(max_connections=1).run_storage
    assert isinstance(storage, PooledRunStorage)
    with storage.connect(), pytest.raises(EnvironmentProblem) as problem:
        storage.get_runs_count()
    assert "all 1 connections" in str(problem.value)
    assert "Raise max_connections" in str(problem.value)
    assert storage.get_runs_count() == 0


def timeout(instance: DagsterInstance) -> set[object]:
    found: set[object] = set()
    for storage in (instance.run_storage, instance.event_log_storage, instance.schedule_storage):
        assert isinstance(storage, (PooledRunStorage, PooledScheduleStorage, SqlEventLogStorage))
        with storage.index_connection() if isinstance(storage, SqlEventLogStorage) else storage.connect() as connection:
            found.add(connection.exec_driver_sql("SHOW statement_timeout").scalar())
    return found


def test_the_webserver_s_timeout_is_only_its_own(opened: Open) -> None:
    before, webserver = opened(), opened()
    webserver.optimize_for_webserver(statement_timeout=200, pool_recycle=3600, max_overflow=5)
    assert timeout(webserver) == {"200ms"}
    storage = webserver.run_storage
    assert isinstance(storage, PooledRunStorage)
    with pytest.raises(sa.exc.OperationalError, match="statement timeout"), storage.connect() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(60)")
    assert timeout(before) == timeout(opened()) == {"0"}
    assert timeout(webserver) == {"200ms"}


def test_only_a_yes_is_remembered(url: sa.URL, opened: Open) -> None:
    storage = opened().event_log_storage
    assert isinstance(storage, PooledEventLogStorage)
    assert not storage.has_table("later")
    with sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool).connect() as connection:
        connection.exec_driver_sql("CREATE TABLE later (id int)")
    assert storage.has_table("later")
    assert postgres.counted(url, lambda: storage.has_table("later")) == (0, 0)


def test_a_pool_without_connections_is_refused(opened: Open) -> None:
    with pytest.raises(EnvironmentProblem, match="Set it to 1 or more"):
        opened(max_connections=0).get_runs_count()


def test_the_health_check_of_deploy_s_daemon_is_its_heartbeats(url: sa.URL, opened: Open) -> None:
    script = Path(__file__).parents[3] / "deploy" / "health.py"
    required = runpy.run_path(str(script))["DAEMONS"]
    where = {"HOST": url.host, "PORT": url.port, "USER": url.username, "DB": url.database}
    variables = {f"POSTGRES_{name}": str(value) for name, value in where.items()}
    variables["PGPASSWORD"] = url.password or ""

    def health() -> tuple[int, str]:
        command = [sys.executable, str(script), "daemon"]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    instance = opened()
    deployed = yaml.safe_load((script.parent / "dagster.yaml").read_text())
    assert deployed["run_monitoring"]["enabled"]
    assert not deployed["run_retries"]["enabled"]
    assert {*instance.get_required_daemon_types(), "MONITORING"} - {"ASSET", "FRESHNESS_DAEMON"} == {*required}
    now = time.time()
    for name in required[1:]:
        instance.add_daemon_heartbeat(DaemonHeartbeat(now, name, "id", []))
    assert health() == (1, f"{len(required) - 1} of {len(required)} daemons have a heartbeat\n")
    instance.add_daemon_heartbeat(DaemonHeartbeat(now - 1900, required[0], "id", []))
    assert health()[0] == 1
    instance.add_daemon_heartbeat(DaemonHeartbeat(now - 1700, required[0], "id", []))
    assert health() == (0, "")
