"""The embedded stack on one machine: Kafka broker, Spark engine, Dagster's code server, webserver and daemon, each a process of
its own.

`bring_up` starts what does not run and leaves alone what does, so it is also how a stack is repaired.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home, write_private
from hudi_ingest.home.log_files import cut_back, stack_logs
from hudi_ingest.home.stack_variables import BOOTSTRAP_VARIABLE, TABLES_VARIABLE
from hudi_ingest.local import dagster_api as webserver
from hudi_ingest.local.broker import BrokerSettings, await_broker, launch_broker
from hudi_ingest.local.processes import (
    ProcessEnded,
    ProcessRecord,
    accepts_connections,
    free_port,
    is_alive,
    log_tail,
    require_port_free,
    require_running,
    start,
    stop,
    wait_until,
)
from hudi_ingest.spark.jars import spark_jars
from hudi_ingest.spark.java import find_java, java_home
from hudi_ingest.spark.session import EngineConnection

BROKER, ENGINE = "kafka", "engine"
CODE_SERVER, WEBSERVER, DAEMON = DAGSTER = ("dagster-code-server", "dagster-webserver", "dagster-daemon")
NEEDED_BYTES = 1 << 30
_READY_SECONDS = 120
_TRIES = 3
"""How often `up` starts what is killed while it waits for it."""
_LONGEST_SOCKET_PATH = 100
"""Bytes; the system's limit is 107, or 103 on macOS."""
_QUIET = ("--log-level", "warning")

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StackSettings:
    """Ports on 127.0.0.1 and the engine's size."""

    kafka_port: int = 19092
    ui_port: int = 3000
    master: str = "local[*]"
    driver_memory: str = "2g"


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
        """The stack that was started in this home, its processes alive or not; None when there is none.

        Raises EnvironmentProblem when the file is damaged or of another version.
        """
        try:
            found = json.loads(home.stack_file.read_text())
            return cls(
                settings=StackSettings(**found["settings"]),
                environment=found["environment"],
                processes=tuple(ProcessRecord(**each) for each in found["processes"]),
            )
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError) as problem:
            raise EnvironmentProblem(
                f"{home.stack_file}, which remembers the stack's processes, is damaged or of another version of hudi-ingest "
                f"({problem}). If the stack runs, stop it with the version that started it; then delete the file and run "
                "`hudi-ingest up`. No data is in it."
            ) from problem


def bring_up(home: Home, settings: StackSettings, report: Report) -> Stack:
    """Starts what does not run and returns when all of it answers; what runs is neither stopped nor started again.

    `report` gets lines for a person, none when nothing had to be started. Settings of parts that run win. Raises EnvironmentProblem when a part does not come up; the others stay up. What this call
    has started is stopped only when it is interrupted.
    """
    home.make()
    with _exclusive(home):
        require_space(home.root)
        cut_back(stack_logs(home))
        started: list[ProcessRecord] = []
        try:
            for _ in range(_TRIES - 1):
                try:
                    return _bring_up(home, settings, report, started)
                except ProcessEnded as problem:
                    if not problem.killed:
                        raise
                    report(str(problem))
            return _bring_up(home, settings, report, started)
        except EnvironmentProblem as problem:
            raise EnvironmentProblem(f"{problem} {_what_runs(home)}") from problem
        except KeyboardInterrupt:
            stop(started)
            raise


def _bring_up(home: Home, asked: StackSettings, report: Report, started: list[ProcessRecord]) -> Stack:
    known = Stack.read(home)
    alive = {each.name: each for each in known.processes if is_alive(each)} if known else {}
    settings = _settled(asked, known.settings, alive) if known else asked
    _require_ports_free(settings, alive)
    environment = _environment(home, settings)

    def remember(record: ProcessRecord) -> None:
        alive[record.name] = record
        started.append(record)
        Stack(settings, environment, tuple(alive.values())).write(home)

    for name in (BROKER, ENGINE, CODE_SERVER, WEBSERVER, DAEMON):
        if name in alive:
            continue
        if name in DAGSTER:
            _make_dagster_ready(name, home, settings, alive, report)
        remember(_start(name, home, settings, environment, report))
    stack = Stack(settings, environment, tuple(alive.values()))
    _wait_until_ready(home, stack, report if started else lambda line: None)
    return stack


def _settled(asked: StackSettings, known: StackSettings, alive: Mapping[str, ProcessRecord]) -> StackSettings:
    """What is asked for, as far as no process runs that has been told otherwise; pure."""
    if alive:
        # All of them have been told the broker's address.
        asked = replace(asked, kafka_port=known.kafka_port)
    if WEBSERVER in alive:
        asked = replace(asked, ui_port=known.ui_port)
    if ENGINE in alive:
        asked = replace(asked, master=known.master, driver_memory=known.driver_memory)
    return asked


def _require_ports_free(settings: StackSettings, alive: Mapping[str, ProcessRecord]) -> None:
    """Raises EnvironmentProblem before anything is started that would then wait for the rest in vain."""
    if BROKER not in alive:
        require_port_free(settings.kafka_port, "the embedded Kafka broker", "--kafka-port")
    if WEBSERVER not in alive:
        require_port_free(settings.ui_port, "the Dagster UI", "--ui-port")


def remembered_settings(home: Home) -> StackSettings:
    """Those of the stack that was started last in this home and not stopped by `down`, else the defaults. Raises as Stack.read."""
    stack = Stack.read(home)
    return stack.settings if stack else StackSettings()


def _what_runs(home: Home) -> str:
    stack = Stack.read(home)
    running = [each.name for each in stack.processes if is_alive(each)] if stack else []
    if not running:
        return "Nothing of the stack runs; `hudi-ingest up` starts it."
    return f"What runs stays up ({', '.join(running)}): `hudi-ingest up` goes on from there, `hudi-ingest down` stops all of it."


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
    if name == BROKER:
        return launch_broker(_broker_settings(home, settings), report)
    if name == ENGINE:
        spark_jars(report)
        report("starting the Spark engine")
        command = ["hudi_ingest.cli", "engine", "--master", settings.master, "--memory", settings.driver_memory]
    elif name == CODE_SERVER:
        command = ["hudi_ingest.orchestration.code_server", str(_code_socket(home))]
    elif name == WEBSERVER:
        page = ["--port", str(settings.ui_port), "--workspace", str(_workspace(home))]
        command = ["hudi_ingest.orchestration.webserver", *page]
    else:
        command = ["dagster._daemon", "run", "-w", str(_workspace(home)), *_QUIET]
    # The ledger's URL may hold a password, so it is handed on and not remembered.
    ledger = {LEDGER_VARIABLE: home.ledger_url}
    full = {**os.environ, **environment, **ledger, "JAVA_HOME": str(java_home(find_java())), "PYTHONUNBUFFERED": "1"}
    return start(name, [sys.executable, "-m", *command], log=home.logs / f"{name}.log", env=full)


def _make_dagster_ready(
    name: str, home: Home, settings: StackSettings, alive: Mapping[str, ProcessRecord], report: Report
) -> None:
    """What the Dagster process of that name needs before it starts."""
    if not any(each in alive for each in DAGSTER):
        report("starting Dagster")
        home.dagster.mkdir(parents=True, exist_ok=True)
        (home.dagster / "dagster.yaml").write_text(_resource("dagster.yaml"))
        _make_dagster_storage(home)
    text = _resource("workspace.yaml").format(location=webserver.LOCATION, socket=_code_socket(home))
    _workspace(home).write_text(text)
    if name == WEBSERVER:
        # One that comes sooner than the pipelines are read would show them as unreachable for a while.
        wait_until(
            lambda: accepts_connections(_code_socket(home)),
            what="Dagster's code server has read the pipelines",
            timeout_seconds=_READY_SECONDS,
            records_to_watch=[alive[CODE_SERVER]],
        )


def _make_dagster_storage(home: Home) -> None:
    """Makes or migrates Dagster's databases while no process uses them: several would race to."""
    command = [sys.executable, "-m", "hudi_ingest.orchestration.dagster_storage", str(home.dagster)]
    log = home.logs / "dagster-storage.log"
    home.logs.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT)
    if done.returncode:
        raise EnvironmentProblem(
            f"Dagster's storage in {home.dagster} cannot be made or brought to this Dagster's version: "
            f"{' | '.join(log_tail(log, 1)) or 'no reason was told'} (all of it is in {log}). If the disk has space and the "
            f"folder is this user's, move {home.dagster} away: runs and ticks are in it, and no offsets; then turn the sensors on "
            "again in the UI."
        )


def _workspace(home: Home) -> Path:
    return home.dagster / "workspace.yaml"


def _code_socket(home: Home) -> Path:
    """Where the code server listens: in the home, or, where that path is longer than a socket's may be, in a folder of this
    user's below the system's temporary one. Raises EnvironmentProblem when that folder is somebody else's."""
    path = home.root / "code-server.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    folder = Path(tempfile.gettempdir(), f"hudi-ingest-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise EnvironmentProblem(
            f"{folder}, for the code server's socket, is not this user's alone; delete it, or set {HOME_VARIABLE} to a folder "
            f"with a shorter path than {home.root}, so that the socket can be in it."
        )
    return folder / f"{hashlib.sha256(os.fsencode(home.root)).hexdigest()[:16]}.sock"


def _broker_settings(home: Home, settings: StackSettings) -> BrokerSettings:
    return BrokerSettings(home.kafka, settings.kafka_port, free_port())


def _wait_until_ready(home: Home, stack: Stack, report: Report) -> None:
    by_name = {each.name: each for each in stack.processes}
    await_broker(_broker_settings(home, stack.settings), by_name[BROKER], report)
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
    # The page answers for a while out of what it remembers of a code server that has just died.
    require_running(stack.processes, "all of the stack was up")
    report("all is up")


def _resource(name: str) -> str:
    return resources.files("hudi_ingest.local").joinpath(name).read_text()


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
