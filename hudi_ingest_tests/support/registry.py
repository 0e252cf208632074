"""A real schema registry: Apicurio from Maven Central, by its API that is compatible with Confluent's, on loopback only.

It is one archive of 109 MB, which is fetched once into the cache folder of the jars and checked by its sha256.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, free_port, start, stop, wait_until
from hudi_ingest.spark.jars import cache_root
from hudi_ingest.spark.java import find_java
from hudi_ingest_tests.support.http_server import QuietHandler, serving
from hudi_ingest_tests.support.java import QUICK_SPARK

VERSION = "3.0.9"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_URL = (
    "https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/"
    f"{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
)
_API = "/apis/ccompat/v7"


def application() -> Path:
    """The folder of the unpacked registry, fetched when it is not there."""
    root = cache_root(os.environ)
    folder = root / f"apicurio-registry-{VERSION}-{SHA256[:12]}"
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    # Workers that need it at once fetch it once.
    with (root / "apicurio-registry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    archive = partial / "archive.tar.gz"
    with urllib.request.urlopen(_URL, timeout=60) as answer, archive.open("wb") as target:
        shutil.copyfileobj(answer, target)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert found == SHA256, f"{_URL} is another file: sha256 {found}"
    with tarfile.open(archive) as packed:
        packed.extractall(partial, filter="data")
    archive.unlink()
    partial.rename(folder)


class Registry:
    """An empty registry that keeps its schemas in memory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = free_port()
        self._record: ProcessRecord | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}{_API}"

    def start(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": self.port,
            "quarkus.management.enabled": "false",
            "quarkus.otel.sdk.disabled": "true",
            "apicurio.datasource.jdbc.initial-size": 2,
            "apicurio.datasource.jdbc.min-size": 2,
        }
        self._record = start(
            "registry",
            [
                str(find_java()),
                "-Xmx384m",
                *QUICK_SPARK.split(),
                *(f"-D{key}={value}" for key, value in settings.items()),
                "-jar",
                str(application() / f"apicurio-registry-app-{VERSION}-runner.jar"),
            ],
            log=self._home / "registry.log",
            env=os.environ,
            cwd=self._home,
        )
        wait_until(self._answers, what="the registry answers", timeout_seconds=600, records_to_watch=[self._record])

    def stop(self) -> None:
        if self._record is not None:
            stop([self._record])
            self._record = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=60) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def running_registry(home: Path) -> Iterator[Registry]:
    """A registry that is stopped afterwards."""
    registry = Registry(home)
    try:
        registry.start()
        yield registry
    finally:
        registry.stop()


@contextmanager
def door(registry: Registry, authorization: str | None, closed: str | None = None) -> Iterator[str]:
    """The URL of a proxy that lets only requests with this Authorization header through to the registry, and says of paths
    with `closed` in them that it is too busy.

    Apicurio itself knows basic authentication only by way of an OpenID server.
    """
    target = f"http://{LOOPBACK}:{registry.port}"

    class Door(QuietHandler):
        def do_GET(self) -> None:
            if closed is not None and closed in self.path:
                self.answer(503, b'{"error_code": 503, "message": "Service Unavailable"}')
                return
            if self.headers.get("Authorization") != authorization:
                self.answer(401, b'{"error_code": 401, "message": "Unauthorized"}')
                return
            try:
                with urllib.request.urlopen(target + self.path, timeout=120) as answer:
                    self.answer(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self.answer(error.code, error.read())

    with serving(Door) as url:
        yield f"{url}{_API}"


@contextmanager
def canned_registry(answers: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    """The URL of a server that gives these answers by path, and else has no such thing; and the paths that were asked for.

    For what a real registry cannot be brought to hold, and to count requests.
    """
    asked: list[str] = []

    class Canned(QuietHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            answer = answers.get(path, {"error_code": 40403, "message": "Schema not found"})
            self.answer(200 if path in answers else 404, answer)

    with serving(Canned) as url:
        yield url, asked


def basic(username: str, password: str) -> str:
    """The Authorization header of a login."""
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"
