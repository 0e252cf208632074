"""A Hive metastore for tests and demos, from PySpark's jars, in its own process on the loopback interface."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import escape

from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, require_port_free, start_listening
from hudi_ingest.spark.jars import pyspark_jars
from hudi_ingest.spark.java import find_java

START_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class MetastoreSettings:
    """`home` is the folder of its Derby database, settings and log. The metastore looks at a table's location, so for tables
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
    with resources.as_file(resources.files("hudi_ingest.local").joinpath("Metastore.java")) as source:
        command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
        command += [f"-Dderby.stream.error.file={home / 'derby.log'}", "org.codehaus.janino.SimpleCompiler"]
        command += [str(source), "Metastore", LOOPBACK, str(settings.port)]
        return start_listening(
            "metastore",
            command,
            port=settings.port,
            what=f"the Hive metastore accepts connections on {settings.uri}",
            timeout_seconds=START_TIMEOUT_SECONDS,
            log=settings.log,
            env=os.environ,
            cwd=home,
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
