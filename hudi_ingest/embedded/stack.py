"""The embedded stack on one machine: Kafka broker, Spark engine, Dagster's code server, webserver and daemon, each a process of
its own."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path

from hudi_ingest.embedded import webserver
from hudi_ingest.embedded.broker import BrokerSettings, start_broker
from hudi_ingest.embedded.processes import (
    ProcessRecord,
    accepts_connections,
    free_port,
    is_alive,
    require_port_free,
    start,
    stop,
    wait_until,
)
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home, write_private
from hudi_ingest.runtime.jars import spark_jars
from hudi_ingest.runtime.java import find_java, java_home
from hudi_ingest.spark import EngineConnection

BROKER, ENGINE = "kafka", "engine"
CODE_SERVER, WEBSERVER, DAEMON = DAGSTER = ("dagster-code-server", "dagster-webserver", "dagster-daemon")
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
TABLES_VARIABLE = "HUDI_INGEST_TABLES"
NEEDED_BYTES = 1 << 30
_READY_SECONDS = 120
_QUIET = ("--log-level", "warning")

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StackSettings:
    """Ports on 127.0.0.1 and the engine's size. `code_port`, between Dagster's processes, is any free one when it is 0."""

    kafka_port: int = 19092
    ui_port: int = 3000
    master: str = "local[*]"
    driver_memory: str = "2g"
    code_port: int = 0


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack, as its file in the home remembers it."""

    settings: StackSettings
    environment: Mapping[str, str]
    """What the stack's processes got beyond this process's environment; pipeline files may refer to it."""
    processes: tuple[ProcessRecord, ...]

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.settings.kafka_port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.ui_port}"

    def write(self, home: Home) -> None:
        write_private(home.stack_file, json.dumps(asdict(self), indent=2))

    @classmethod
    def read(cls, home: Home) -> Stack | None:
        """The stack that was started in this home, its processes alive or not; None when there is none."""
        try:
            found = json.loads(home.stack_file.read_text())
        except FileNotFoundError:
            return None
        return cls(
            settings=StackSettings(**found["settings"]),
            environment=found["environment"],
            processes=tuple(ProcessRecord(**each) for each in found["processes"]),
        )


def stack_environment(home: Home) -> dict[str, str]:
    """Variables of the stack that runs in this home, for pipeline files; empty when none runs."""
    stack = Stack.read(home)
    return dict(stack.environment) if stack and any(map(is_alive, stack.processes)) else {}


def bring_up(home: Home, settings: StackSettings, report: Report) -> Stack:
    """Starts what is not running yet and returns when all of it answers. Settings of a running stack win.

    Raises EnvironmentProblem; what this call had started is then stopped again.
    """
    home.make()
    with _exclusive(home):
        known = Stack.read(home)
        alive = {each.name: each for each in known.processes if is_alive(each)} if known else {}
        if known and alive:
            settings = known.settings
        settings = replace(settings, code_port=settings.code_port or free_port())
        require_space(home.root)
        started: list[ProcessRecord] = []
        environment = _environment(home, settings)
        try:
            for name in (BROKER, CODE_SERVER, ENGINE, WEBSERVER, DAEMON):
                if name not in alive:
                    started.append(_start(name, home, settings, environment, report))
                    stack = Stack(settings, environment, (*alive.values(), *started))
                    stack.write(home)
            stack = Stack(settings, environment, (*alive.values(), *started))
            _wait_until_ready(home, stack, report)
        except BaseException:
            stop(started)
            raise
        return stack


def bring_down(home: Home, report: Report) -> bool:
    """Stops every process of the stack and forgets it; False when there was none."""
    if not home.root.exists():
        return False
    with _exclusive(home):
        stack = Stack.read(home)
        if stack is None:
            return False
        # Dagster first, so that no run is launched into a stopping engine.
        for what, names in (("Dagster", DAGSTER), ("the engine", (ENGINE,)), ("Kafka", (BROKER,))):
            found = [each for each in stack.processes if each.name in names]
            if found:
                report(f"stopping {what}")
                stop(found)
        home.stack_file.unlink(missing_ok=True)
        home.engine_file.unlink(missing_ok=True)
        return True


def require_space(folder: Path) -> None:
    """Raises EnvironmentProblem when the disk below `folder` is nearly full."""
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise EnvironmentProblem(
            f"the disk that holds {folder} has {free >> 20} MB free, and the stack needs {NEEDED_BYTES >> 20} MB; free "
            f"some, or set {HOME_VARIABLE} to a folder on another disk."
        )


def _environment(home: Home, settings: StackSettings) -> dict[str, str]:
    return {
        HOME_VARIABLE: str(home.root),
        PIPELINES_VARIABLE: str(home.pipelines),
        BOOTSTRAP_VARIABLE: f"127.0.0.1:{settings.kafka_port}",
        TABLES_VARIABLE: str(home.tables),
        "DAGSTER_HOME": str(home.dagster),
    }


def _start(
    name: str, home: Home, settings: StackSettings, environment: Mapping[str, str], report: Report
) -> ProcessRecord:
    home.logs.mkdir(parents=True, exist_ok=True)
    log = home.logs / f"{name}.log"
    # The ledger's URL may hold a password, so it is handed on and not remembered.
    ledger = {LEDGER_VARIABLE: home.ledger_url}
    full = {**os.environ, **environment, **ledger, "JAVA_HOME": str(java_home(find_java())), "PYTHONUNBUFFERED": "1"}
    if name == BROKER:
        return start_broker(BrokerSettings(home.kafka, settings.kafka_port, free_port()), report)
    if name == ENGINE:
        spark_jars(report)
        report("starting the Spark engine")
        command = ["-m", "hudi_ingest.cli", "engine", "--master", settings.master, "--memory", settings.driver_memory]
        return start(name, [sys.executable, *command], log=log, env=full)
    home.dagster.mkdir(parents=True, exist_ok=True)
    (home.dagster / "dagster.yaml").write_text(_resource("dagster.yaml"))
    workspace = home.dagster / "workspace.yaml"
    workspace.write_text(_resource("workspace.yaml").format(location=webserver.LOCATION, port=settings.code_port))
    if name == CODE_SERVER:
        report("starting Dagster")
        serve = ["hudi_ingest.orchestration.code_server", str(settings.code_port)]
    elif name == WEBSERVER:
        require_port_free(settings.ui_port, "the Dagster UI", "--ui-port")
        _make_dagster_storage(home, full)
        _await_code_server(home, settings.code_port)
        page = ["--port", str(settings.ui_port), "--workspace", str(workspace)]
        serve = ["hudi_ingest.orchestration.webserver", *page]
    else:
        serve = ["dagster._daemon", "run", "-w", str(workspace), *_QUIET]
    return start(name, [sys.executable, "-m", *serve], log=log, env=full)


def _make_dagster_storage(home: Home, environment: Mapping[str, str]) -> None:
    """Makes or migrates Dagster's databases before several of its processes would race to."""
    command = [sys.executable, "-m", "dagster", "instance", "migrate"]
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=_READY_SECONDS)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no text").splitlines()
        raise EnvironmentProblem(
            f"Dagster's storage in {home.dagster} cannot be made: {lines[-1]}. If an older Dagster made it, remove the folder."
        )


def _await_code_server(home: Home, port: int) -> None:
    """Until it has tried to load the pipelines. A webserver that comes sooner would show it as unreachable for a while."""
    stack = Stack.read(home)
    wait_until(
        lambda: accepts_connections(port),
        what="Dagster's code server has read the pipelines",
        timeout_seconds=_READY_SECONDS,
        records_to_watch=[each for each in stack.processes if each.name == CODE_SERVER] if stack else [],
    )


def _wait_until_ready(home: Home, stack: Stack, report: Report) -> None:
    by_name = {each.name: each for each in stack.processes}
    report("waiting for the engine")
    wait_until(
        lambda: EngineConnection.read(home.engine_file),
        what="the Spark engine is ready",
        timeout_seconds=_READY_SECONDS,
        records_to_watch=[by_name[ENGINE]],
    )
    dagster = [by_name[name] for name in DAGSTER]
    report("waiting for Dagster to load the pipelines")
    wait_until(
        lambda: webserver.sensors(stack.url) is not None,
        what=f"the Dagster UI at {stack.url} has loaded the pipelines",
        timeout_seconds=_READY_SECONDS,
        records_to_watch=dagster,
    )
    report("waiting for Dagster's daemons")
    wait_until(
        lambda: webserver.daemons_are_healthy(stack.url),
        what="the Dagster daemons have reported",
        timeout_seconds=_READY_SECONDS,
        records_to_watch=dagster,
    )
    report("all is up")


def _resource(name: str) -> str:
    return resources.files("hudi_ingest.embedded").joinpath(name).read_text()


@contextmanager
def _exclusive(home: Home) -> Iterator[None]:
    with (home.root / "stack.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentProblem(
                f"another hudi-ingest is starting or stopping the stack in {home.root}; wait for it to finish."
            ) from None
        yield
