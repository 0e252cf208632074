"""Servers from PySpark's own jars, as processes on the loopback interface: a standalone cluster, with a master and workers, and a Hive
metastore for tests and demos.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from hudi_ingest.local.dagster_api import DIRECT
from hudi_ingest.local.processes import (
    LOOPBACK,
    ProcessRecord,
    accepts_connections,
    free_port,
    ready,
    require_port_free,
    start,
    stop,
    wait_until,
)
from hudi_ingest.spark.jars import pyspark_jars
from hudi_ingest.spark.java import find_java, java_home

METASTORE = Path(__file__).parents[2] / "deploy" / "Metastore.java"
_READY_SECONDS = 90.0
_OPEN = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/sun.nio.ch",
    "java.base/java.net",
)
"""The parts of Java 17's insides that Spark uses."""
START_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class SparkCluster:
    """`url` is what `master` in engine.yaml says."""

    url: str
    page: str
    master: ProcessRecord
    workers: tuple[ProcessRecord, ...]

    def state(self) -> dict[str, Any]:
        """Return the master's own report: workers and their states, applications."""
        with DIRECT.open(f"{self.page}/json/", timeout=5) as answer:
            state: dict[str, Any] = json.load(answer)
        return state

    def workers_alive(self) -> int:
        """Return how many workers the master has now; 0 while it does not answer."""
        try:
            return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])
        except OSError:
            return 0


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[SparkCluster]:
    """Yield a ready cluster, which ends with everything it has started. Each worker offers `cores` and `memory`; their work folders
    and logs are in `folder`. Raises EnvironmentProblem if it does not start."""
    port, page = free_port(), free_port()
    url = f"spark://{LOOPBACK}:{port}"
    records: list[ProcessRecord] = []
    try:
        place = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]
        records.append(_start("spark-master", "master.Master", place, folder))
        records += [start_worker(url, folder, number, cores, memory) for number in range(workers)]
        cluster = SparkCluster(url, f"http://{LOOPBACK}:{page}", records[0], tuple(records[1:]))
        wait_until(
            lambda: cluster.workers_alive() == workers,
            what=f"{workers} workers have registered with {url}",
            timeout_seconds=_READY_SECONDS,
            records_to_watch=records,
        )
        yield cluster
    finally:
        stop(records)


def start_worker(url: str, folder: Path, number: int, cores: int, memory: str) -> ProcessRecord:
    """Start worker `number` of the master at `url`, and do not wait for it. Raises EnvironmentProblem."""
    name = f"spark-worker-{number}"
    # Spark never runs two attempts of a task on one host. Linux listens on all of 127.0.0.0/8.
    host = f"127.0.0.{number + 1}" if sys.platform == "linux" else LOOPBACK
    offer = ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder / name)]
    return _start(name, "worker.Worker", ["--host", host, "--webui-port", "0", *offer, url], folder)


def _start(name: str, kind: str, arguments: list[str], folder: Path) -> ProcessRecord:
    jars, java = pyspark_jars(), find_java()
    opened = [f"--add-opens={module}=ALL-UNNAMED" for module in _OPEN]
    # Executors' folders hold copies of all jars, and Spark keeps them by default. Compiling once, quickly, is enough for
    # processes that only start others.
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dspark.worker.cleanup.enabled=true", *opened]
    command = [str(java), *options, "-cp", f"{jars}/*", f"org.apache.spark.deploy.{kind}", *arguments]
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home(java)),
        "SPARK_HOME": str(jars.parent),
        "SPARK_LOCAL_IP": LOOPBACK,
        # A pip installation lacks the folders from which a worker would guess it, and its executors would die at once.
        "SPARK_SCALA_VERSION": "2.12",
    }
    return start(name, command, log=folder / f"{name}.log", env=environment)


@dataclass(frozen=True)
class MetastoreSettings:
    """`home` is the folder of its Derby database, settings and log. The metastore examines a table's location, so for tables
    that are not on this machine's disks it needs the `jars` that reach them, with `more` Hadoop settings, such as a login."""

    home: Path
    port: int
    jars: Sequence[Path] = ()
    more: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def uri(self) -> str:
        return f"thrift://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.home / "metastore.log"


def start_metastore(settings: MetastoreSettings, report: Callable[[str], None]) -> ProcessRecord:
    """Start the metastore and wait until it accepts connections. The catalog of an earlier start on the same home is kept.

    Raises EnvironmentProblem if Java, the port or the home cannot be used, or if the metastore does not listen in time; then
    nothing is left running.
    """
    require_port_free(settings.port, "the Hive metastore")
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    (home / "hive-site.xml").write_text(hive_site(settings), encoding="utf-8")
    class_path = os.pathsep.join([str(home), f"{pyspark_jars()}/*", *map(str, settings.jars)])
    report(f"starting a Hive metastore on {settings.uri}")
    command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    command += [f"-Dderby.stream.error.file={home / 'derby.log'}", "org.codehaus.janino.SimpleCompiler"]
    command += [str(METASTORE), "Metastore", LOOPBACK, str(settings.port)]
    return ready(
        start("metastore", command, log=settings.log, env=os.environ, cwd=home),
        lambda: accepts_connections(settings.port),
        what=f"the Hive metastore accepts connections on {settings.uri}",
        timeout_seconds=START_TIMEOUT_SECONDS,
    )


def hive_site(settings: MetastoreSettings) -> str:
    """Return the text of hive-site.xml."""
    home = settings.home.absolute()
    values = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'catalog'};create=true",
        "hive.metastore.warehouse.dir": str(home / "warehouse"),
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        # Otherwise Hive's log needs a jar that PySpark does not bring.
        "hive.async.log.enabled": "false",
        **settings.more,
    }
    entries = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in values.items()
    )
    return f"<configuration>\n{entries}</configuration>\n"
