"""Environments of the engines whose packages the development environment has not: each in a folder of its own below `.readers`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from hudi_ingest.spark.jars import pyspark_jars, sha256_of
from hudi_ingest.spark.java import find_java

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".readers"
REQUIREMENTS = Path(__file__).parent / "requirements"


class ReaderFailed(Exception):
    """An engine that ended with an error; the text is the end of what it printed."""


@dataclass(frozen=True)
class Artifact:
    """A file of Maven Central, as a line of `<engine>.lock` names it: `org:module:version:extension sha256`."""

    organisation: str
    module: str
    version: str
    extension: str
    sha256: str

    @classmethod
    def parse(cls, line: str) -> Artifact:
        coordinates, sha256 = line.split()
        organisation, module, version, extension = coordinates.split(":")
        return cls(organisation, module, version, extension, sha256)

    @property
    def file_name(self) -> str:
        return f"{self.module}-{self.version}.{self.extension}"


@dataclass(frozen=True)
class Environment:
    """What an engine needs: the packages of `<name>.txt` and the artifacts of `<name>.lock`, if these exist."""

    name: str

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @cached_property
    def artifacts(self) -> tuple[Artifact, ...]:
        lock = REQUIREMENTS / f"{self.name}.lock"
        return tuple(map(Artifact.parse, lock.read_text("utf-8").splitlines())) if lock.exists() else ()

    @property
    def python(self) -> Path:
        """The environment's own Python, or this one if it needs no packages."""
        return self.folder / "bin" / "python" if self._packages.exists() else Path(sys.executable)

    @property
    def _packages(self) -> Path:
        return REQUIREMENTS / f"{self.name}.txt"

    @property
    def _wanted(self) -> str:
        files = [file for file in (self._packages, self._packages.with_suffix(".lock")) if file.exists()]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    @property
    def _mark(self) -> Path:
        return self.folder / "prepared"

    def is_prepared(self) -> bool:
        return self._mark.exists() and self._mark.read_text("utf-8") == self._wanted

    def require(self) -> Environment:
        """Skip the test if nobody has prepared the environment, as in `make test-ci` without `make readers`."""
        if not self.is_prepared():
            pytest.skip(f"`make readers` prepares {self.folder.relative_to(ROOT)}, which this needs")
        return self

    def prepare(self, report: Callable[[str], None]) -> None:
        """Install what is missing. Raises CalledProcessError, and ValueError for a file that is not the pinned one."""
        if self.is_prepared():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self._packages.exists():
            report(f"{self.name}: installing {self._packages.relative_to(ROOT)}")
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder)], check=True)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python), "install"]
            subprocess.run([*pip, "--quiet", "--require-hashes", "-r", str(self._packages)], check=True)
        for artifact in self.artifacts:
            report(f"{self.name}: fetching {artifact.file_name} from Maven Central")
            file = fetch(artifact, self.folder)
            if artifact.extension == "tar.gz":
                with tarfile.open(file) as archive:
                    archive.extractall(self.folder, filter="data")
                file.unlink()
        self._mark.write_text(self._wanted, "utf-8")

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> list[str]:
        """Run the engine's module, and return the lines that it prints, which are sorted. Raises ReaderFailed."""
        module = f"hudi_ingest_tests.readers.engines.{self.name.partition('_')[0]}"
        found = subprocess.run(
            [str(self.python), "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC", "NO_PROXY": "127.0.0.1", **(environment or {})},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
        )
        if found.returncode:
            raise ReaderFailed(found.stderr[-2000:])
        return found.stdout.splitlines()


def fetch(artifact: Artifact, folder: Path) -> Path:
    """Fetch a file into a folder, with the Ivy that PySpark brings. Raises CalledProcessError, ValueError."""
    with tempfile.TemporaryDirectory(prefix="hudi-ingest-readers-") as scratch:
        module = Path(scratch, "ivy.xml")
        name, extension = quoteattr(artifact.module), quoteattr(artifact.extension)
        module.write_text(
            '<ivy-module version="2.0"><info organisation="hudi-ingest" module="readers"/><dependencies>'
            f"<dependency org={quoteattr(artifact.organisation)} name={name} rev={quoteattr(artifact.version)} "
            f'transitive="false"><artifact name={name} type={extension} ext={extension}/></dependency>'
            "</dependencies></ivy-module>",
            "utf-8",
        )
        (ivy,) = pyspark_jars().glob("ivy-*.jar")
        command = [str(find_java()), f"-Divy.home={scratch}/ivy", f"-Divy.cache.dir={scratch}/ivy", "-jar", str(ivy)]
        pattern = f"{folder}/[artifact]-[revision].[ext]"
        arguments = ["-ivy", str(module), "-retrieve", pattern, "-types", artifact.extension]
        subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=scratch)
    file = folder / artifact.file_name
    found = sha256_of(file)
    if found != artifact.sha256:
        file.unlink()
        raise ValueError(f"{artifact.file_name} from Maven Central has sha256 {found} instead of {artifact.sha256}")
    return file


CLICKHOUSE = Environment("clickhouse")
DAFT = Environment("daft")
DUCKDB_ICEBERG = Environment("duckdb_iceberg")
FLINK = Environment("flink")
SPARK_ICEBERG = Environment("spark_iceberg")
TRINO = Environment("trino")
ALL = (CLICKHOUSE, DAFT, DUCKDB_ICEBERG, FLINK, SPARK_ICEBERG, TRINO)
