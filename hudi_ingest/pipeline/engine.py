"""The Spark engine's settings: an optional file, engine.yaml, and environment variables on top of it."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from hudi_ingest.exceptions.problems import Place, ProblemsFromTop, quoted
from hudi_ingest.home.folder import ENGINE_VARIABLE, Home
from hudi_ingest.pipeline.settings.model import Model, Whole, as_text
from hudi_ingest.pipeline.settings.settings_file import SettingsFile, load_settings

ARCHIVE_FOLDER = "environment"
"""Where Spark unpacks the archive in an executor's working folder."""
_MASTERS = "local[*], spark://host:7077, k8s://https://host:443 or yarn"
_MASTER = re.compile(r"local(\[.+\])?|local-cluster\[\d+, *\d+, *\d+\]|spark://[^/\s]+:\d+|k8s://\S+|yarn")
_UNTRIED = {"k8s://": "Kubernetes", "yarn": "YARN"}
"""Cluster managers by what their masters begin with."""
_SIZE = re.compile(r"[1-9]\d*[mgt]")
_LOOPBACK = "127.0.0.1"
_HUDI = "Hudi's client works with this value alone"
_UTC = "rows, dates and instants are in UTC"
_OWNED: Mapping[str, str] = {
    "spark.master": "set `master`",
    "spark.driver.memory": "set `driver_memory`",
    "spark.driver.host": "set `driver_host`",
    "spark.cores.max": "set `cores`",
    "spark.archives": "set `archive`",
    "spark.pyspark.python": "set `python`",
    "spark.pyspark.driver.python": "the driver runs in the Python that runs hudi-ingest",
    "spark.submit.deployMode": "the driver runs in the process that needs it, so only client mode is possible",
    "spark.jars": "hudi-ingest puts its own jars there; add others with spark.jars.packages, or with "
    "spark.driver.extraClassPath and spark.executor.extraClassPath",
    "spark.python.daemon.module": "hudi-ingest's own compares versions and imports the modules of write tasks",
    "spark.python.use.daemon": "hudi-ingest's daemon compares versions and imports the modules of write tasks",
    "spark.speculation": "Hudi refuses to write with it, because its own tasks may not run twice at a time",
    "spark.serializer": _HUDI,
    "spark.kryo.registrator": _HUDI,
    "spark.sql.extensions": _HUDI,
    "spark.sql.catalog.spark_catalog": _HUDI,
    "spark.sql.session.timeZone": _UTC,
    "spark.sql.parquet.datetimeRebaseModeInRead": "all writers of hudi-ingest keep old dates as they are",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "all writers of hudi-ingest keep old dates as they are",
}
"""Settings that `spark_conf` may not contain, and what to do instead or why."""


class EngineSettings(Model):
    """How Spark drivers of hudi-ingest are started: the engine's, and those of processes that find no engine."""

    master: str = Field(default="local[*]", json_schema_extra={"allowed": _MASTERS})
    """Where the executors are: in the driver's own process, or on a cluster."""

    driver_memory: str = Field(default="2g", json_schema_extra={"allowed": "a number with m, g or t, like 2g"})
    """Heap of the driver's JVM."""

    driver_host: str | None = None
    """Name or address by which executors reach the driver. Without it 127.0.0.1, which is refused when the master is on
    another host."""

    cores: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    """The most cores of a standalone cluster that a driver takes, for as long as it lives; without it, all of them."""

    python: str | None = Field(
        default=None, json_schema_extra={"default": "the Python that runs hudi-ingest, or the archive's"}
    )
    """The executors' Python: a path on their hosts. It must be of the driver's minor version and have the same version of
    hudi-ingest."""

    archive: str | None = Field(default=None, json_schema_extra={"allowed": "a path or URL of a .tar.gz, .tgz or .zip"})
    """A packed virtual environment that each executor unpacks; without it, executors' hosts must have hudi-ingest
    installed."""

    executor_jars: str | None = None
    """Folder on the executors' hosts with the driver's jars; without it, Spark copies the jars to each executor of each
    driver."""

    spark_conf: Mapping[str, Annotated[SecretStr, BeforeValidator(as_text)]] = Field(
        default={}, json_schema_extra={"allowed": "Spark settings, like spark.executor.memory: 4g", "default": "none"}
    )
    """Any other Spark settings, such as the driver's ports; see docs/cluster.md. Those that hudi-ingest sets itself are refused; JVM options
    are appended to ours."""

    @field_validator("master")
    @classmethod
    def _master(cls, value: str) -> str:
        if not _MASTER.fullmatch(value):
            raise ValueError(f"found {quoted(value)}; allowed: {_MASTERS}")
        return value

    @field_validator("driver_memory")
    @classmethod
    def _memory(cls, value: str) -> str:
        if not _SIZE.fullmatch(value):
            raise ValueError(f"found {quoted(value)}; allowed: a number with m, g or t, like 2g")
        return value

    @field_validator("archive")
    @classmethod
    def _archive(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        if not value.endswith((".tar.gz", ".tgz", ".zip")):
            raise ValueError(f"found {quoted(value)}; allowed: a path or URL of a .tar.gz, .tgz or .zip")
        folder = (info.context or {}).get("folder")
        return value if "://" in value or folder is None else os.path.abspath(folder / value)

    @field_validator("spark_conf", mode="before")
    @classmethod
    def _spark_conf(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        problems: list[tuple[Place, str]] = []
        for key in value:
            if key in _OWNED:
                problems.append(((key,), f"remove it: {_OWNED[key]}"))
            elif not str(key).startswith("spark."):
                problems.append(((key,), "not a Spark setting; allowed: names that begin with `spark.`"))
        if problems:
            raise ProblemsFromTop([(("spark_conf", *place), text) for place, text in problems])
        return value

    @model_validator(mode="after")
    def _together(self) -> EngineSettings:
        problems: list[tuple[Place, str]] = []
        if self.driver_host is None and not (self.is_local or self._master_is_on_loopback):
            problems.append(
                (
                    ("driver_host",),
                    f"missing; executors of {self.master} connect to the driver at this name or address of the driver's host",
                )
            )
        if self.is_local:
            problems += [
                ((key,), f"remove it, or set `master` to a cluster: with {self.master} there are no other executors")
                for key in ("archive", "executor_jars", "cores")
                if getattr(self, key) is not None
            ]
        elif self.cores is not None and not self.master.startswith("spark://"):
            problems.append(
                (("cores",), "remove it: only standalone masters know it; set spark.executor.instances in `spark_conf`")
            )
        if problems:
            raise ProblemsFromTop(problems)
        return self

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process."""
        return is_local(self.master)

    @property
    def _master_is_on_loopback(self) -> bool:
        if self.master.startswith("local-cluster"):
            return True
        hosts = [address.rpartition(":")[0] for address in self.master.removeprefix("spark://").split(",")]
        return self.master.startswith("spark://") and all(map(_is_loopback, hosts))

    @property
    def advertised_host(self) -> str:
        return self.driver_host or _LOOPBACK

    @property
    def executors_python(self) -> str:
        """The Python that runs our functions in the executors: a path on their hosts."""
        if self.python is not None:
            return self.python
        return sys.executable if self.archive is None else f"./{ARCHIVE_FOLDER}/bin/python"


def is_local(master: str) -> bool:
    """Whether this Spark master runs driver and executors in one process."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def untried_master_warning(master: str) -> str | None:
    """Warn of a cluster manager that no trial of hudi-ingest has run on; None if there is nothing to warn of."""
    manager = next((name for prefix, name in _UNTRIED.items() if master.startswith(prefix)), None)
    if manager is None:
        return None
    return (
        f"master {master}: hudi-ingest was tried on standalone Spark clusters only, never on {manager}. Everything in `spark_conf` is "
        "passed to Spark; kill an executor in the middle of a transaction before you rely on it."
    )


def local_table_warning(base_path: str, master: str) -> str | None:
    """Warn of a table on a local file system whose executors may be on other hosts; None if there is nothing to warn of."""
    if is_local(master) or "://" in base_path:
        return None
    return (
        f"table.base_path {base_path} is on a local file system, but executors of {master} write to it: every host of the "
        "cluster must have the same file system mounted there."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def load_engine_settings(
    home: Home, overrides: Mapping[str, Any] | None = None, environment: Mapping[str, str] = os.environ
) -> EngineSettings:
    """Load engine.yaml, if there is one, with the `HUDI_INGEST_ENGINE_…` variables on top of it, and on top of these the
    `overrides` that are not None. Raises ConfigError with all problems."""
    file = SettingsFile(home.engine_settings_file, home.engine_settings is not None, ENGINE_VARIABLE)
    return load_settings(EngineSettings, file, home, overrides, environment)
