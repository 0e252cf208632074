"""Kafka Connect in standalone mode with Debezium's connector for PostgreSQL, in its own process on the loopback interface."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import write_private
from hudi_ingest.local.broker import java_property, logging_options
from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, require_port_free, start, stop, wait_until
from hudi_ingest.spark.jars import connect_jars
from hudi_ingest.spark.java import find_java

START_TIMEOUT_SECONDS = 180.0
REQUEST_TIMEOUT_SECONDS = 5.0
CONNECTOR = "postgresql"
LOGICAL_REPLICATION: Mapping[str, str] = {"wal_level": "logical"}
"""PostgreSQL's settings without which Debezium cannot read its changes."""


@dataclass(frozen=True)
class ConnectSettings:
    """A worker with one connector, which writes the changes of `table` (`schema.table`) to the existing topic `<prefix>.<table>`.

    `home` holds the settings, the log and the connector's position in PostgreSQL's log, so a worker that is started again there
    goes on where the last one stopped. `database`: SQLAlchemy's URL, with the password. `more`: settings of the connector that
    override ours.
    """

    home: Path
    port: int
    bootstrap_servers: str
    database: sa.URL = field(repr=False)
    table: str
    prefix: str
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def topic(self) -> str:
        return f"{self.prefix}.{self.table}"

    @property
    def log(self) -> Path:
        return self.home / "connect.log"


def start_connect(settings: ConnectSettings, report: Callable[[str], None]) -> ProcessRecord:
    """Start the worker and wait until its connector runs.

    Raises EnvironmentProblem if Java, the jars, the port or the home cannot be used, if the connector fails, or if it does not run
    in time; then nothing is left running.
    """
    jars, java = connect_jars(report), find_java()
    require_port_free(settings.port, "Kafka Connect")
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    files = (home / "worker.properties", home / "connector.properties")
    for file, values in zip(files, (worker_properties(settings), connector_properties(settings)), strict=True):
        # The connector's has PostgreSQL's password.
        write_private(file, "".join(f"{name}={java_property(value)}\n" for name, value in values.items()))
    report(f"starting Kafka Connect with Debezium on {settings.url}")
    command = [str(java), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *logging_options()]
    command += ["-cp", os.pathsep.join(map(str, jars)), "org.apache.kafka.connect.cli.ConnectStandalone"]
    record = start("connect", [*command, *map(str, files)], log=settings.log, env=os.environ, cwd=home)
    try:
        wait_until(
            lambda: _is_running(settings),
            what=f"Debezium's connector runs in Kafka Connect at {settings.url}",
            timeout_seconds=START_TIMEOUT_SECONDS,
            records_to_watch=[record],
        )
    except BaseException:
        stop([record])
        raise
    return record


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
        # The jars are on the class path: nothing needs to look for plugins, which takes seconds.
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
        "table.include.list": settings.table,
        "publication.autocreate.mode": "filtered",
        # PostgreSQL frees the slot of a worker that was killed when it notices, so a new one may have to ask again.
        "slot.max.retries": "60",
        "slot.retry.delay.ms": "1000",
        **settings.more,
    }


def _is_running(settings: ConnectSettings) -> bool:
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
        with urllib.request.urlopen(url, timeout=REQUEST_TIMEOUT_SECONDS) as answer:
            content: dict[str, Any] = json.load(answer)
            return content
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return None
