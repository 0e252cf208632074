"""PostgreSQL, Debezium in Kafka Connect, and the embedded stack with a pipeline file that mirrors all tables.

Everything listens on the loopback interface only, on free ports, and ends with the block that started it.
"""

from __future__ import annotations

import json
import os
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa
import yaml

from hudi_ingest.exceptions import ConfigError, EnvironmentProblem
from hudi_ingest.home.folder import Home, write_private
from hudi_ingest.local.broker import create_topic, java_property, logging_options
from hudi_ingest.local.dagster_api import DIRECT
from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, free_port, ready, require_port_free, start, stop
from hudi_ingest.local.progress import Report
from hudi_ingest.local.stack import BROKER, DAEMON, ENGINE, Stack, StackSettings, bring_down, bring_up, run_processes
from hudi_ingest.pipeline.expansion import SeenTopics, expand
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.jars import cached_jars
from hudi_ingest.spark.java import find_java
from hudi_ingest_tests.lab import postgresql
from hudi_ingest_tests.lab.source_tables import SCHEMA, SourceTable

FILE = "shop.yaml"
TOPIC_PREFIX = "shop"
KAFKA_PARTITIONS = 4
INTERVAL_SECONDS = 5
"""And a second for each table beyond five: a machine with two cores commits about one transaction a second."""
COMPACTED_COMMITS = 3
START_TIMEOUT_SECONDS = 180.0
REQUEST_TIMEOUT_SECONDS = 5.0
CONNECTOR = "postgresql"
PARTS: Mapping[str, str] = {"the engine": ENGINE, "Dagster's daemon": DAEMON, "the broker": BROKER}
"""What of the embedded stack may be killed, with the name of its process."""
LOGICAL_REPLICATION: Mapping[str, str] = {"wal_level": "logical"}
"""PostgreSQL's settings without which Debezium cannot read its changes."""


class CdcStack:
    """The running servers, which may be killed and restarted."""

    def __init__(self, home: Home, stack: Stack, connect: ConnectSettings, worker: ProcessRecord, report: Report):
        self.home, self.connect = home, connect
        self._stack, self._worker = stack, worker
        self._report = report

    @property
    def url(self) -> str:
        return self._stack.url

    @property
    def processes(self) -> Sequence[ProcessRecord]:
        return (*self._stack.processes, self._worker)

    def pipelines(self, seen: SeenTopics) -> dict[str, Pipeline]:
        """Load the pipelines of the tables whose topics hudi-ingest has `seen`, by the table's name. Raises ConfigError."""
        path = self.home.pipelines / FILE
        loaded = expand(path, self._stack.environment, seen).loaded
        if problems := [problem for file in loaded for problem in file.problems]:
            raise ConfigError(str(path), problems)
        pipelines = [file.pipeline for file in loaded if file.pipeline is not None]
        return {pipeline.source.topics[0].removeprefix(f"{TOPIC_PREFIX}."): pipeline for pipeline in pipelines}

    def kill(self, part: str) -> None:
        """Kill one of PARTS with all that it started, and start it again as `hudi-ingest up` does."""
        stop([record for record in self._stack.processes if record.name == PARTS[part]], grace_seconds=0)
        self._report(f"killed {part}")
        self._stack = bring_up(self.home, self._stack.settings, self._report)

    def kill_runs(self) -> int:
        """Kill the process of each run that is under way; Dagster's daemon notices. Returns how many there were."""
        processes = run_processes(self._stack)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                self._report(f"killed the run's process {process.pid}")
        return len(processes)

    def kill_connect(self) -> None:
        """Kill Kafka Connect and start it again; what it had not noted as sent, it sends again."""
        stop([self._worker], grace_seconds=0)
        self._report("killed Kafka Connect")
        self._worker = start_connect(self.connect, self._report)


@contextmanager
def running_database(report: Report) -> Iterator[sa.URL]:
    """Start PostgreSQL with logical replication. Yields the URL of an empty database, with the password.

    Raises EnvironmentProblem if PostgreSQL is not installed, or does not start.
    """
    require_postgresql()
    report("starting PostgreSQL")
    with postgresql.private(report, LOGICAL_REPLICATION) as url:
        yield url


@contextmanager
def running_cdc(home: Home, database: sa.URL, tables: Sequence[SourceTable], report: Report) -> Iterator[CdcStack]:
    """Start the rest in the home, for a `database` that has the tables. Raises
    EnvironmentProblem if a part does not start."""
    home.pipelines.mkdir()
    with ExitStack() as running:
        running.callback(bring_down, home, report)
        stack = bring_up(home, StackSettings(kafka_port=free_port(), ui_port=free_port()), report)
        servers = stack.bootstrap_servers
        names = tuple(table.name for table in tables)
        more = {"skipped.operations": "none"} if any(table.is_truncated for table in tables) else {}
        connect = ConnectSettings(home.root / "connect", free_port(), servers, database, names, TOPIC_PREFIX, more)
        for topic, table in zip(connect.topics, tables, strict=True):
            # A truncate is in one of the Kafka partitions, and in no order with the changes in others.
            create_topic(servers, topic, 1 if table.is_truncated else KAFKA_PARTITIONS)
        cdc = CdcStack(home, stack, connect, start_connect(connect, report), report)
        running.callback(lambda: stop(cdc.processes[-1:]))
        running.callback(report, "stopping Kafka Connect")
        path = write_pipeline(home.pipelines, tables)
        report(f"wrote {path}, which Dagster loads by itself; its UI is at {stack.url}")
        yield cdc


def require_postgresql() -> None:
    """Raises EnvironmentProblem if PostgreSQL is not installed."""
    if postgresql.programs() is None:
        raise EnvironmentProblem(
            "PostgreSQL is not installed, and the demo mirrors tables of a PostgreSQL server, which it starts itself. Install it "
            "(`apt-get install postgresql`, `dnf install postgresql-server`, `brew install postgresql`), or put the folder of "
            "its `initdb` on PATH."
        )


def fetch_jars(report: Report) -> None:
    """Fetch all jars, so that nothing waits for them later. Raises EnvironmentProblem."""
    for jar_set in ("kafka", "spark", "connect"):
        cached_jars(jar_set, report)


def write_pipeline(folder: Path, tables: Sequence[SourceTable]) -> Path:
    """Write the pipeline file that mirrors the tables, and return its path."""
    content: dict[str, Any] = {
        "name": "{topic}",
        # So sensor and compaction schedule are on from the start.
        "enabled": True,
        "source": {
            "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
            "topics_pattern": rf"{TOPIC_PREFIX}\.{SCHEMA}\..+",
            "envelope": "debezium",
            # Of the partitioned table; the others have default replica identity and need only the key.
            "before_image": "row",
            # A connector that was killed sends changes again from before a column was added; they lack it.
            "optional_fields": sorted({name for table in tables for name in table.added}),
        },
        "table": {
            "base_path": "${HUDI_INGEST_TABLES}/{topic}",
            "schema": "infer",
            "mode": "upsert",
            "key": "kafka_key",
            "buckets": 2,
            "compaction": {"delta_commits": COMPACTED_COMMITS},
        },
        "tables": {f"{TOPIC_PREFIX}.{table.name}": {"partition_by": [table.place]} for table in tables if table.place},
        "transaction": {"interval_seconds": max(INTERVAL_SECONDS, len(tables))},
    }
    folder.mkdir(exist_ok=True)
    # Renamed into place, because Dagster reads it at any time.
    partial = (folder / FILE).with_suffix(".partial")
    partial.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return partial.rename(folder / FILE)


@dataclass(frozen=True)
class ConnectSettings:
    """A worker with one connector, which writes the changes of each of `tables` (`schema.table`) to the existing topic
    `<prefix>.<table>`.

    `home` holds the settings, the log and the connector's position in PostgreSQL's log, so a worker that is started again there
    goes on where the last one stopped. `database`: SQLAlchemy's URL, with the password. `more`: settings of the connector that
    override ours.
    """

    home: Path
    port: int
    bootstrap_servers: str
    database: sa.URL = field(repr=False)
    tables: tuple[str, ...]
    prefix: str
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(f"{self.prefix}.{table}" for table in self.tables)

    @property
    def log(self) -> Path:
        return self.home / "connect.log"


def connect_command(java: Path, jars: Sequence[Path], files: Sequence[Path]) -> list[str]:
    """Return the worker's command. Debezium decodes what PostgreSQL sends with Java's default character set, so in a locale without UTF-8
    it would read names of tables and columns as other ones."""
    command = [str(java), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"]
    command += [*logging_options(), "-cp", os.pathsep.join(map(str, jars))]
    return [*command, "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files)]


def start_connect(settings: ConnectSettings, report: Callable[[str], None]) -> ProcessRecord:
    """Start the worker and wait until its connector runs.

    Raises EnvironmentProblem if Java, the jars, the port or the home cannot be used, if the connector fails, or if it does not run
    in time; then nothing is left running.
    """
    jars, java = cached_jars("connect", report), find_java()
    require_port_free(settings.port, "Kafka Connect")
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    files = (home / "worker.properties", home / "connector.properties")
    for file, values in zip(files, (worker_properties(settings), connector_properties(settings)), strict=True):
        # The connector's has PostgreSQL's password.
        write_private(file, "".join(f"{name}={java_property(value)}\n" for name, value in values.items()))
    report(f"starting Kafka Connect with Debezium on {settings.url}")
    return ready(
        start("connect", connect_command(java, jars, files), log=settings.log, env=os.environ, cwd=home),
        lambda: connector_runs(settings),
        what=f"Debezium's connector runs in Kafka Connect at {settings.url}",
        timeout_seconds=START_TIMEOUT_SECONDS,
    )


def acknowledged_position(settings: ConnectSettings) -> int | None:
    """Return the position in PostgreSQL's log of the last change up to which Kafka has acknowledged all; None if there is none, or
    if Connect does not answer."""
    answer = _get(f"{settings.url}/connectors/{CONNECTOR}/offsets")
    offsets = answer["offsets"] if answer else []
    return int(offsets[0]["offset"]["lsn"]) if offsets else None


def worker_properties(settings: ConnectSettings) -> dict[str, str]:
    """Return the worker's settings."""
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "listeners": settings.url,
        # They write schemas beside the values, so that decimals, dates and times are what they are in PostgreSQL.
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": str(settings.home.absolute() / "offsets"),
        "offset.flush.interval.ms": "1000",
        # The jars are on the class path: no search for plugins is needed, which takes seconds.
        "plugin.discovery": "service_load",
    }


def connector_properties(settings: ConnectSettings) -> dict[str, str]:
    """Return the connector's settings, with PostgreSQL's password."""
    database = settings.database
    return {
        "name": CONNECTOR,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": str(database.host),
        "database.port": str(database.port),
        "database.user": str(database.username),
        "database.password": str(database.password or ""),
        "database.dbname": str(database.database),
        "topic.prefix": settings.prefix,
        "table.include.list": ",".join(settings.tables),
        "publication.autocreate.mode": "filtered",
        # PostgreSQL frees the slot of a worker that was killed when it notices, so a new one may have to ask again.
        "slot.max.retries": "60",
        "slot.retry.delay.ms": "1000",
        **settings.more,
    }


def connector_runs(settings: ConnectSettings) -> bool:
    """Whether the connector runs; False also if Connect does not answer. Raises EnvironmentProblem if it has failed."""
    status = _get(f"{settings.url}/connectors/{CONNECTOR}/status")
    parts = [status["connector"], *status["tasks"]] if status else []
    failed = next((part for part in parts if part["state"] == "FAILED"), None)
    if failed is not None:
        reason = failed.get("trace", "").partition("\n")[0] or "no reason given"
        raise EnvironmentProblem(f"Debezium's connector failed: {reason} (full log: {settings.log}).")
    return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)


def _get(url: str) -> dict[str, Any] | None:
    """Return what Connect's REST interface answers; None while it does not, or knows no such connector yet."""
    try:
        with DIRECT.open(url, timeout=REQUEST_TIMEOUT_SECONDS) as answer:
            content: dict[str, Any] = json.load(answer)
            return content
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return None
