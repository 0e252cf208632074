"""A miniature data platform on this machine: an S3 store, a Hive metastore, Kafka, PostgreSQL and a Spark cluster; and on them the
engine and a Dagster with an instance of its own defaults.

Everything listens on the loopback interface only, on free ports, and ends with the block that started it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import (
    ENGINE_VARIABLE,
    HOME_VARIABLE,
    LEDGER_VARIABLE,
    PIPELINES_VARIABLE,
    Home,
    write_private,
)
from hudi_ingest.local import dagster_api
from hudi_ingest.local.broker import BrokerSettings, start_broker
from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, free_port, log_tail, start, stop, wait_until
from hudi_ingest.local.progress import Report
from hudi_ingest.local.stack import require_space
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark.jars import kafka_jars, s3_jars, spark_jars
from hudi_ingest.spark.java import find_java, java_home
from hudi_ingest.spark.session import EngineConnection, own_session
from hudi_ingest_tests.lab import postgresql
from hudi_ingest_tests.lab.object_store import ObjectStore, build_versitygw, find_versitygw, start_object_store
from hudi_ingest_tests.lab.progress import elapsed
from hudi_ingest_tests.lab.spark_servers import MetastoreSettings, SparkCluster, spark_cluster, start_metastore

BUCKET = "lake"
WORKERS = 2
READY_SECONDS = 240
_ENGINE_MEMORY = "1g"


@dataclass(frozen=True, slots=True)
class Platform:
    """The servers that run before there is a pipeline. `home` has the ledger's URL; `metastore` is a Thrift URI."""

    home: Home
    store: ObjectStore
    metastore: str
    bootstrap_servers: str
    cluster: SparkCluster
    processes: tuple[ProcessRecord, ...]
    """Those that must not end; the cluster's workers may."""

    @property
    def database(self) -> str:
        """The kind of database that the ledger and Dagster use."""
        return "SQLite" if self.home.ledger_url.startswith("sqlite") else "PostgreSQL"


@contextmanager
def emptied(home: Home) -> Iterator[None]:
    """Empty the home, and keep others from doing the same until the block is left.

    Raises EnvironmentProblem if another process has it, or if the disk is nearly full.
    """
    home.root.parent.mkdir(parents=True, exist_ok=True)
    with home.root.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentProblem(
                f"another demo is running in {home.root}; wait until it ends, or set {HOME_VARIABLE} to another folder."
            ) from None
        if home.root.exists():
            shutil.rmtree(home.root)
        home.make()
        require_space(home.root)
        yield


@contextmanager
def running_platform(home: Home, report: Report) -> Iterator[Platform]:
    """Start the platform in the home, and stop it afterwards. Raises EnvironmentProblem if a part does not start."""
    with ExitStack() as running:
        keep = _keeper(running, report)
        # Here, so that no other step seems to take as long.
        for jars in (spark_jars, kafka_jars, s3_jars):
            jars(report)
        store = _store(home, report)
        keep(store.record)
        store.make_bucket(BUCKET)
        metastore = MetastoreSettings(home.root / "metastore", free_port(), s3_jars(report), _with_login(store))
        with elapsed(report, "starting the metastore"):
            catalog = keep(start_metastore(metastore, report))
        broker = BrokerSettings(home.kafka, free_port(), free_port())
        with elapsed(report, "starting Kafka"):
            kafka = keep(start_broker(broker, report))
        ledger_url = running.enter_context(_database(report)) or home.ledger_url
        report(f"starting a Spark master and {WORKERS} workers")
        with elapsed(report, "starting the Spark cluster"):
            cluster = running.enter_context(spark_cluster(home.root / "spark-cluster", workers=WORKERS))
        running.callback(report, "stopping the Spark cluster")
        yield Platform(
            replace(home, ledger_url=ledger_url),
            store,
            metastore.uri,
            broker.bootstrap,
            cluster,
            (store.record, catalog, kafka, cluster.master),
        )


@contextmanager
def running_ingest(platform: Platform, report: Report) -> Iterator[tuple[ProcessRecord, ...]]:
    """Start the engine on the platform's Spark cluster, and Dagster with the home's pipelines; stop both afterwards. Yields their
    processes. Raises EnvironmentProblem if one of them is not ready in time."""
    home = platform.home
    environment = ingest_environment(home)
    with ExitStack() as running:
        keep = _keeper(running, report)
        report(f"starting the engine on {platform.cluster.url}")
        with elapsed(report, "starting the engine"):
            engine = _start_engine(platform, environment, keep, report)
        url = f"http://{LOOPBACK}:{free_port()}"
        report(f"starting a stock Dagster at {url}")
        with elapsed(report, "starting Dagster"):
            dagster = _start_dagster(platform, url, environment, keep)
        yield engine, dagster


def ingest_environment(home: Home) -> dict[str, str]:
    """Return the environment of processes that use the home. Settings that the user has for other engines and other stores are
    left out."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", ENGINE_VARIABLE))},
        HOME_VARIABLE: str(home.root),
        PIPELINES_VARIABLE: str(home.pipelines),
        LEDGER_VARIABLE: home.ledger_url,
        "DAGSTER_HOME": str(home.dagster),
        "JAVA_HOME": str(java_home(find_java())),
        "PYTHONUNBUFFERED": "1",
    }


def s3a_settings(store: ObjectStore) -> dict[str, str]:
    """Return Hadoop's settings for the store, without the login."""
    return {
        "fs.s3a.endpoint": store.endpoint,
        "fs.s3a.endpoint.region": store.region,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }


def _with_login(store: ObjectStore) -> dict[str, str]:
    """The same with the login, for a settings file below the home, which is private to this user."""
    return {**s3a_settings(store), "fs.s3a.access.key": store.access_key, "fs.s3a.secret.key": store.secret_key}


def _keeper(running: ExitStack, report: Report) -> Callable[[ProcessRecord], ProcessRecord]:
    """Return a function that has a process stopped when `running` is left."""

    def keep(record: ProcessRecord) -> ProcessRecord:
        def end() -> None:
            report(f"stopping {record.name}")
            try:
                stop([record])
            except KeyboardInterrupt:
                stop([record])
                raise

        running.callback(end)
        return record

    return keep


def _store(home: Home, report: Report) -> ObjectStore:
    tools = home.root.parent / "tools"
    program = find_versitygw(tools, os.environ) or build_versitygw(tools, report)
    if program is None:
        report("Go is not installed, so the S3 store is moto, which keeps objects in memory")
    return start_object_store(home.root / "store", free_port(), report, program=program)


@contextmanager
def _database(report: Report) -> Iterator[str | None]:
    """Yield the URL of a PostgreSQL database for the ledger and Dagster; None if PostgreSQL is not installed."""
    if postgresql.programs() is None:
        report("PostgreSQL is not installed, so the ledger and Dagster use SQLite")
        yield None
        return
    report("starting PostgreSQL for the ledger and Dagster")
    with postgresql.private(report) as url:
        yield url.render_as_string(hide_password=False)


def _start_engine(
    platform: Platform,
    environment: Mapping[str, str],
    keep: Callable[[ProcessRecord], ProcessRecord],
    report: Report,
) -> ProcessRecord:
    home = platform.home
    settings = {
        "master": platform.cluster.url,
        "driver_memory": _ENGINE_MEMORY,
        # The workers' hosts are this one, so nothing needs to be copied to them.
        "executor_jars": str(spark_jars(report)[0].parent),
    }
    home.engine_settings_file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [sys.executable, "-m", "hudi_ingest.cli", "engine"]
    record = keep(start("engine", command, log=home.logs / "engine.log", env=environment))
    wait_until(
        lambda: EngineConnection.read(home.engine_file),
        what="the engine is ready",
        timeout_seconds=READY_SECONDS,
        records_to_watch=[record],
    )
    return record


def _start_dagster(
    platform: Platform, url: str, environment: Mapping[str, str], keep: Callable[[ProcessRecord], ProcessRecord]
) -> ProcessRecord:
    """Start Dagster without any of our settings: its own launcher, executor, queue and code server."""
    home = platform.home
    home.dagster.mkdir(parents=True)
    instance: dict[str, object] = {"telemetry": {"enabled": False}}
    if platform.database != "SQLite":
        instance["storage"] = {"postgres": {"postgres_url": {"env": LEDGER_VARIABLE}}}
    (home.dagster / "dagster.yaml").write_text(yaml.safe_dump(instance))
    module = {"module_name": "hudi_ingest.orchestration.definitions", "location_name": dagster_api.LOCATION}
    workspace = home.dagster / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
    _make_tables(home, environment)
    port = url.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", LOOPBACK, "-p", port]
    record = keep(start("dagster", command, log=home.logs / "dagster.log", env=environment, cwd=home.dagster))
    for ready, what in (
        (lambda: dagster_api.sensors(url) is not None, "Dagster has loaded the pipeline"),
        (lambda: dagster_api.daemons_are_healthy(url), "Dagster's daemons have reported"),
    ):
        wait_until(ready, what=what, timeout_seconds=READY_SECONDS, records_to_watch=[record])
    return record


def _make_tables(home: Home, environment: Mapping[str, str]) -> None:
    """Let one process create Dagster's tables: several at a time would get in each other's way."""
    log = home.logs / "dagster-storage.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "dagster", "instance", "migrate"]
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=environment, timeout=READY_SECONDS)
    if done.returncode:
        raise EnvironmentProblem(
            f"Dagster's tables could not be created: {' | '.join(log_tail(log, 1)) or 'no reason given'} (full log: {log})."
        )


COUNT_SECONDS = 240
_MASTER = "local[2]"
_MEMORY = "1g"


def count_rows(table: str, platform: Platform, report: Report) -> int:
    """Return what `select count(*)` says of the catalog's table. Raises EnvironmentProblem if there is no answer in time."""
    home, store = platform.home, platform.store
    settings, count = home.root / "catalog-count.json", home.root / "catalog-count.txt"
    write_private(settings, json.dumps(_spark_settings(platform, report)))
    # In the environment, because Spark shows settings in the arguments of its JVM.
    login = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key}
    command = [sys.executable, "-m", "hudi_ingest_tests.lab.cluster_stack", table, str(settings), str(count)]
    environment = {**ingest_environment(home), **login}
    record = start("catalog-count", command, log=home.logs / "catalog-count.log", env=environment, cwd=home.root)
    try:
        with elapsed(report, f"counting the rows of {table}"):
            wait_until(
                count.exists,
                what=f"Spark has counted the rows of {table}",
                timeout_seconds=COUNT_SECONDS,
                records_to_watch=[record],
            )
    finally:
        stop([record])
    return int(count.read_text())


def _spark_settings(platform: Platform, report: Report) -> Mapping[str, str]:
    jars = [*spark_jars(report), *s3_jars(report)]
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": platform.metastore,
        "spark.sql.warehouse.dir": str(platform.home.root / "warehouse"),
        "spark.jars": ",".join(map(str, jars)),
        # Most of its time goes into loading classes, for a single statement.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        **{f"spark.hadoop.{key}": value for key, value in s3a_settings(platform.store).items()},
    }


def main(table: str, settings: str, count: str) -> None:
    more: Mapping[str, str] = json.loads(Path(settings).read_text())
    session = own_session(EngineSettings(master=_MASTER, driver_memory=_MEMORY), more, Home.from_environment().spark)
    rows = session.sql(f"select count(*) from {table}").collect()[0][0]
    write_private(Path(count), str(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
