"""Records what Debezium sends of every type, for `test_database_types.py`: `python -m hudi_ingest_tests.support.record_types DATABASE JARS`.

JARS is a folder with Kafka Connect and Debezium's connector for the DATABASE, which Maven fetches (`dependency:copy-dependencies` of
connect-runtime, connect-json and debezium-connector-postgres or debezium-connector-mysql). PostgreSQL needs PostGIS; MariaDB is read by
the connector for MySQL. Each setting has a connector and a file: the schema of its records,
and their payloads, first those of the snapshot and then those of inserts, as `{"schema":…,"payload":…}` had them.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import sqlalchemy as sa
from confluent_kafka import Consumer, TopicPartition

from hudi_ingest.home.folder import write_private
from hudi_ingest.local.broker import BrokerSettings, create_topic, java_property, start_broker
from hudi_ingest.local.processes import LOOPBACK, free_port, start, stop, wait_until
from hudi_ingest.spark.java import find_java
from hudi_ingest_tests.lab import postgresql
from hudi_ingest_tests.lab.cdc_stack import (
    LOGICAL_REPLICATION,
    ConnectSettings,
    connector_properties,
    worker_properties,
)
from hudi_ingest_tests.support.database_types import (
    MARIADB,
    MARIADB_MODES,
    POSTGRESQL,
    POSTGRESQL_MODES,
    POSTGRESQL_SETUP,
    Type,
)

FOLDER = Path(__file__).parents[1] / "unit" / "records" / "convert" / "debezium" / "types"
ROWS = 7
_SECONDS = 600
NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_LATER = 100
"""What is added to the ids of the rows that are inserted while the connectors run."""


def rows_of(types: Sequence[Type], first: int) -> list[str]:
    """The values of each row as the list of an `insert`."""
    return [
        ", ".join([str(first + row), *(kind.values[row] if row < len(kind.values) else "null" for kind in types)])
        for row in range(ROWS)
    ]


def record(database: str, jars: Path) -> None:
    FOLDER.mkdir(exist_ok=True)
    with ExitStack() as running:
        home = Path(running.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        broker = BrokerSettings(home / "broker", free_port(), free_port())
        running.callback(stop, [start_broker(broker, _say)])
        starting, recording, table = {
            "postgresql": (_postgresql, _record_postgresql, "public.types"),
            "mariadb": (_mariadb, _record_mariadb, "shop.types"),
        }[database]
        url = running.enter_context(starting(home))
        worker = ConnectSettings(home / "connect", free_port(), broker.bootstrap, url, (table,), "pg")
        running.enter_context(connect(worker, jars))
        recording(worker)


@contextmanager
def _postgresql(home: Path) -> Iterator[sa.URL]:
    settings = {"max_replication_slots": "20", "max_wal_senders": "20"}
    with postgresql.running("secret", {**LOGICAL_REPLICATION, **settings}) as url:
        assert url is not None, "PostgreSQL is not installed"
        yield sa.make_url(url).set(password="secret")


@contextmanager
def _mariadb(home: Path) -> Iterator[sa.URL]:
    """A server with a binary log, and the user `debezium`."""
    folder, port = home / "mariadb", free_port()
    install, server = (
        shutil.which("mariadb-install-db"),
        shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin"),
    )
    assert install is not None, "MariaDB is not installed"
    assert server is not None, "MariaDB is not installed"
    options = ["--no-defaults", f"--datadir={folder}", f"--user={getuser()}"]
    subprocess.run([install, *options, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
    options += [
        f"--port={port}",
        f"--bind-address={LOOPBACK}",
        f"--socket={home / 'mariadb.socket'}",
        f"--pid-file={home / 'pid'}",
    ]
    options += [
        "--skip-name-resolve",
        "--log-bin=log",
        "--binlog-format=ROW",
        "--binlog-row-image=FULL",
        "--server-id=1",
        "--character-set-server=utf8mb4",
    ]
    process = start("mariadb", [server, *options], log=home / "mariadb.log", env=os.environ, cwd=home)
    url = sa.make_url(f"mariadb://debezium:secret@{LOOPBACK}:{port}/shop")
    try:
        wait_until(
            lambda: _client(home, "select 1", check=False) == [["1"]],
            what="MariaDB answers",
            timeout_seconds=_SECONDS,
            records_to_watch=[process],
        )
        for statement in (
            "create database shop",
            "create user debezium identified by 'secret'",
            "grant all on *.* to debezium",
        ):
            _client(home, statement)
        yield url
    finally:
        stop([process])


def _client(home: Path, statement: str, check: bool = True) -> list[list[str | None]]:
    """Execute a statement as root, and return the rows that it finds."""
    command = [
        "mariadb",
        "--no-defaults",
        f"--socket={home / 'mariadb.socket'}",
        "--user=root",
        "--batch",
        "--skip-column-names",
        "--xml",
    ]
    settings = "set names utf8mb4; set sql_mode = ''; set time_zone = '+00:00'; "
    done = subprocess.run(
        [*command, f"--execute={settings}{statement}"], check=check, capture_output=True, encoding="utf-8"
    )
    if not done.stdout:
        return []
    rows = ElementTree.fromstring(done.stdout)
    return [[None if NIL in field.attrib else field.text or "" for field in row] for row in rows]


@contextmanager
def connect(settings: ConnectSettings, jars: Path) -> Iterator[None]:
    """A worker without connectors."""
    settings.home.mkdir()
    file = settings.home / "worker.properties"
    values = worker_properties(settings)
    write_private(file, "".join(f"{name}={java_property(value)}\n" for name, value in values.items()))
    command = [str(find_java()), "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(file)]
    process = start("connect", command, log=settings.log, env=os.environ, cwd=settings.home)
    try:
        wait_until(
            lambda: _answer(f"{settings.url}/connectors") is not None,
            what="Kafka Connect answers",
            timeout_seconds=_SECONDS,
            records_to_watch=[process],
        )
        yield
    finally:
        stop([process])


def _say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")


def _answer(url: str, content: object = None) -> Any:
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        _say(url, error.read().decode()[:2000])
        return None
    except urllib.error.URLError:
        return None


def _record_postgresql(worker: ConnectSettings) -> None:
    engine = sa.create_engine(worker.database, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        run = connection.exec_driver_sql
        for statement in POSTGRESQL_SETUP:
            run(statement)
        columns = ", ".join(f"{kind.name} {kind.sql}" for kind in POSTGRESQL)
        run("set timezone = 'UTC'")
        run(f"create table types (id bigint primary key, {columns})")

        def insert(first: int) -> None:
            for row in rows_of(POSTGRESQL, first):
                run(f"insert into types values ({row})")

        insert(1)
        for mode, more in POSTGRESQL_MODES.items():
            prefix = f"pg_{mode}"
            create_topic(worker.bootstrap_servers, f"{prefix}.public.types", 1)
            config = {
                **connector_properties(worker),
                "topic.prefix": prefix,
                "slot.name": prefix,
                "publication.name": prefix,
                **more,
            }
            _begin(worker, prefix, config, f"{prefix}.public.types")
        insert(1 + _LATER)
        shown = {}
        for kind in POSTGRESQL:
            # concat shows values as `select` does, and a cast does not.
            text = kind.shown.format(kind.name) if kind.shown else f"concat({kind.name})"
            if kind.sql.endswith("[]"):
                text = f"array_to_json({kind.name})"
            text = f"case when {kind.name} is not null then {text}::text end"
            shown[kind.name] = [
                row[0] for row in run(f"select {text} from types where id <= {_LATER} order by id").fetchall()
            ]
    _write("postgresql", shown, POSTGRESQL_MODES, worker, "public.types", "pg_")


def _record_mariadb(worker: ConnectSettings) -> None:
    def run(statement: str) -> list[list[str | None]]:
        return _client(worker.home.parent, f"use shop; {statement}")

    def insert(first: int) -> None:
        for row in rows_of(MARIADB, first):
            run(f"insert into types values ({row})")

    columns = ", ".join(f"`{kind.name}` {kind.sql}" for kind in MARIADB)
    run(f"create table types (id bigint primary key, {columns})")
    insert(1)
    database = worker.database
    for number, (mode, more) in enumerate(MARIADB_MODES.items()):
        prefix = f"my_{mode}"
        create_topic(worker.bootstrap_servers, f"{prefix}.shop.types", 1)
        config = {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.hostname": str(database.host),
            "database.port": str(database.port),
            "database.user": str(database.username),
            "database.password": str(database.password),
            "database.ssl.mode": "disabled",
            "database.server.id": str(5001 + number),
            "topic.prefix": prefix,
            "table.include.list": "shop.types",
            "schema.history.internal.kafka.bootstrap.servers": worker.bootstrap_servers,
            "schema.history.internal.kafka.topic": f"{prefix}.history",
            # They would need a topic, too.
            "include.schema.changes": "false",
            **more,
        }
        _begin(worker, prefix, config, f"{prefix}.shop.types")
    insert(1 + _LATER)
    shown = {}
    for kind in MARIADB:
        text = (kind.shown or "cast({} as char)").format(f"`{kind.name}`")
        shown[kind.name] = [row[0] for row in run(f"select {text} from types where id <= {_LATER} order by id")]
    _write("mariadb", shown, MARIADB_MODES, worker, "shop.types", "my_")


def _begin(worker: ConnectSettings, name: str, config: Mapping[str, str], topic: str, rows: int = ROWS) -> None:
    """Start a connector, and wait until it has sent the snapshot."""
    if _answer(f"{worker.url}/connectors", {"name": name, "config": {**config, "name": name}}) is None:
        return
    deadline = time.monotonic() + _SECONDS
    while len(_values(worker.bootstrap_servers, topic)) < rows:
        status = _answer(f"{worker.url}/connectors/{name}/status") or {}
        for part in [*status.get("tasks", []), status.get("connector", {})]:
            if part.get("state") == "FAILED":
                _say(name, part.get("trace", "")[:6000])
                return
        assert time.monotonic() < deadline, f"{name} has sent no snapshot"
        time.sleep(1)


def _values(servers: str, topic: str, count: int = 0) -> list[bytes]:
    """The values in the topic; if `count` is not 0, wait until there are so many."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    try:
        deadline = time.monotonic() + _SECONDS
        while True:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
            if end >= count or time.monotonic() > deadline:
                break
            time.sleep(1)
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = [message for message in consumer.consume(end, timeout=60) if not message.error()] if end else []
        return [message.value() for message in messages if message.value() is not None]
    finally:
        consumer.close()


def _write(
    database: str,
    shown: Mapping[str, Sequence[str | None]],
    modes: Mapping[str, Mapping[str, str]],
    worker: ConnectSettings,
    table: str,
    prefix: str,
) -> None:
    (FOLDER / f"{database}.json").write_text(json.dumps(shown, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    for mode in modes:
        values = _values(worker.bootstrap_servers, f"{prefix}{mode}.{table}", 2 * ROWS)
        schemas, payloads = [], []
        for value in values:
            schema, payload = value.removeprefix(b'{"schema":')[:-1].split(b',"payload":', 1)
            schemas.append(schema)
            payloads.append(payload)
        if not values:
            _say("nothing from", prefix, mode)
            continue
        assert len(set(schemas)) == 1, "one table, one schema"
        text = b"\n".join([schemas[0], *payloads, b""])
        (FOLDER / f"{database}_{mode}.jsonl.gz").write_bytes(gzip.compress(text, mtime=0))
        _say(database, mode, len(values), "records")


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
