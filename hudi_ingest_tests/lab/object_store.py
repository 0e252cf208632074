"""An S3 store for tests and demos, in its own process on the loopback interface: versitygw if there is one, else moto.

versitygw keeps objects as files and checks logins; moto keeps them in memory, accepts every login, and comes with the
development requirements.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs as pafs

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import write_private
from hudi_ingest.local.processes import (
    LOOPBACK,
    ProcessRecord,
    accepts_connections,
    log_tail,
    ready,
    require_port_free,
    start,
)
from hudi_ingest_tests.lab.progress import elapsed

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
START_TIMEOUT_SECONDS = 60.0
BUILD_TIMEOUT_SECONDS = 900.0
_REGION = "us-east-1"


@dataclass(frozen=True)
class ObjectStore:
    """A running store. The keys are also in two files below its home, private to this user, for `${file:…}` references."""

    home: Path
    server: str
    """versitygw or moto."""
    port: int
    record: ProcessRecord
    access_key: str
    secret_key: str = field(repr=False)
    region: str = _REGION

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def settings(self, endpoint: str | None = None) -> dict[str, str]:
        """Return `table.storage` of a pipeline file in this store; `endpoint` replaces its own."""
        return {
            "endpoint": endpoint or self.endpoint,
            "region": self.region,
            "access_key": f"${{file:{self.home}/access_key}}",
            "secret_key": f"${{file:{self.home}/secret_key}}",
        }

    def filesystem(self) -> pafs.S3FileSystem:
        """Connect to the store; paths are `bucket/key`."""
        return pafs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=self.region,
            endpoint_override=f"{LOOPBACK}:{self.port}",
            scheme="http",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
            # For tests that remove a bucket with everything in it.
            check_directory_existence_before_creation=True,
        )

    def make_bucket(self, name: str) -> None:
        self.filesystem().create_dir(name)


def start_object_store(
    home: Path, port: int, report: Callable[[str], None], *, program: Path | None = None
) -> ObjectStore:
    """Start the store and wait until it answers; `program` is versitygw, None for moto.

    Objects that versitygw stored in the same home before are still there. Raises EnvironmentProblem if the store does not come
    up; then nothing is left running.
    """
    require_port_free(port, "the S3 store")
    home = home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    access_key, secret_key = _login(home)
    if program is None:
        command = _moto(port)
        name, login = "moto", {}
    else:
        for folder in ("data", "sidecar"):
            (home / folder).mkdir(exist_ok=True)
        # Keys are in the environment, because every user can see a command's arguments.
        name, login = "versitygw", {"ROOT_ACCESS_KEY": access_key, "ROOT_SECRET_KEY": secret_key}
        command = [str(program), "--port", f"{LOOPBACK}:{port}", "--region", _REGION, "--quiet", "--keep-alive"]
        command += ["posix", "--sidecar", str(home / "sidecar"), str(home / "data")]
    report(f"starting {name} on {LOOPBACK}:{port}")
    record = ready(
        start(name, command, log=home / f"{name}.log", env={**os.environ, **login}, cwd=home),
        lambda: accepts_connections(port),
        what=f"{name} listens on {LOOPBACK}:{port}",
        timeout_seconds=START_TIMEOUT_SECONDS,
    )
    return ObjectStore(home, name, port, record, access_key, secret_key)


def find_versitygw(folder: Path, environment: Mapping[str, str]) -> Path | None:
    """Find versitygw in `folder`, on PATH or where Go installs programs; None if it is in none of them."""
    go_path = environment.get("GOPATH") or str(Path.home() / "go")
    places = [folder, *(Path(place) for place in environment.get("PATH", "").split(os.pathsep) if place)]
    places += [Path(environment.get("GOBIN") or ""), *(Path(root) / "bin" for root in go_path.split(os.pathsep))]
    return next((Path(found) for place in places if (found := shutil.which("versitygw", path=str(place)))), None)


def build_versitygw(folder: Path, report: Callable[[str], None]) -> Path | None:
    """Build versitygw into `folder` with Go, which takes about two minutes; None if there is no Go here.

    Raises EnvironmentProblem when the build fails.
    """
    go = shutil.which("go")
    if go is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    report("building the S3 store versitygw with Go, once; it takes two or three minutes")
    with log.open("wb") as output, elapsed(report, "building versitygw"):
        try:
            built = subprocess.run(
                [go, "install", VERSITYGW],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "GOBIN": str(folder.absolute())},
                timeout=BUILD_TIMEOUT_SECONDS,
                check=False,
            )
            outcome = "" if built.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            outcome = f"did not end within {BUILD_TIMEOUT_SECONDS / 60:.0f} minutes"
    if outcome:
        raise EnvironmentProblem(
            f"`go install {VERSITYGW}` {outcome}: {' | '.join(log_tail(log)) or 'no output'}. Check that this machine reaches Go's "
            f"module proxy, or put a versitygw on PATH (full log: {log})."
        )
    return folder / "versitygw"


def _login(home: Path) -> tuple[str, str]:
    """Return the store's keys, which are made up at its first start."""
    files = (home / "access_key", home / "secret_key")
    for file in files:
        if not file.exists():
            write_private(file, secrets.token_hex(10 if file.name == "access_key" else 20))
    access_key, secret_key = (file.read_text() for file in files)
    return access_key, secret_key


def _moto(port: int) -> list[str]:
    if importlib.util.find_spec("moto") is None:
        raise EnvironmentProblem(
            "there is no S3 store to start: versitygw is not on PATH, and moto is not installed; put versitygw on PATH, "
            "install Go, which builds it, or run `pip install 'moto[server]'`."
        )
    return [sys.executable, "-m", "moto.server", "--host", LOOPBACK, "--port", str(port)]
