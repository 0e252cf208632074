"""The embedded stack on one machine: Kafka broker, Spark engine, Dagster's code server, webserver and daemon, each in its
own process.

`bring_up` starts the parts that are not running and leaves the others alone, so it also repairs a stack.
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
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import psutil

from hudi_ingest.exceptions import ConfigError, EnvironmentProblem
from hudi_ingest.home.folder import (
    BOOTSTRAP_VARIABLE,
    HOME_VARIABLE,
    KAFKA_PORT,
    LEDGER_VARIABLE,
    PIPELINES_VARIABLE,
    TABLES_VARIABLE,
    UI_PORT,
    Home,
    cut_back,
    stack_logs,
    write_private,
)
from hudi_ingest.home.liveness import IDLE_RUN_NAME
from hudi_ingest.local import dagster_api
from hudi_ingest.local.broker import BrokerSettings, await_broker, launch_broker
from hudi_ingest.local.processes import (
    LONGEST_SOCKET_PATH,
    LOOPBACK,
    ProcessEnded,
    ProcessRecord,
    accepts_connections,
    free_port,
    is_alive,
    kill,
    log_tail,
    require_port_free,
    require_running,
    running_seconds,
    start,
    stop,
    wait_until,
)
from hudi_ingest.local.progress import Report
from hudi_ingest.model.storage_options import is_s3
from hudi_ingest.pipeline import extras
from hudi_ingest.spark.jars import s3_jars, spark_jars
from hudi_ingest.spark.java import find_java, java_home
from hudi_ingest.spark.session import EngineConnection

BROKER, ENGINE = "kafka", "engine"
CODE_SERVER, WEBSERVER, DAEMON = DAGSTER = ("dagster-code-server", "dagster-webserver", "dagster-daemon")
NEEDED_BYTES = 1 << 30
_READY_SECONDS = 300
_HANGS_SECONDS = 120.0
"""A part of Dagster that has not answered for so long hangs, and one that is younger may still be starting. The daemon says every 30 s
that it lives."""
_ANSWER_SECONDS = 60.0
"""Seconds for an answer of a part on a busy machine, before it is replaced."""
_TRIES = 3
"""How often `up` starts a part that is killed while it waits for it."""


@dataclass(frozen=True, slots=True)
class StackSettings:
    """Ports on 127.0.0.1, and the engine's Spark master and memory; None if the engine's own settings say it."""

    kafka_port: int = KAFKA_PORT
    ui_port: int = UI_PORT
    master: str | None = None
    driver_memory: str | None = None


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack, as recorded in its file in the home."""

    settings: StackSettings
    environment: Mapping[str, str]
    """Variables that the stack's processes have in addition to this process's environment; pipeline files may use them."""
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
    def read(cls, home: Home, file: Path | None = None) -> Stack | None:
        """Return the stack that was started in this home, its processes alive or not; None if there is none. `file`: of a stack that
        was stopped.

        Raises EnvironmentProblem if the file is damaged or of another version.
        """
        try:
            content = json.loads((file or home.stack_file).read_text())
            return cls(
                settings=StackSettings(**content["settings"]),
                environment=content["environment"],
                processes=tuple(ProcessRecord(**record) for record in content["processes"]),
            )
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError) as problem:
            raise EnvironmentProblem(
                f"{file or home.stack_file}, which records the stack's processes, is damaged or of another version of hudi-ingest "
                f"({problem}). If the stack is running, stop it with the version that started it; then delete the file and run "
                "`hudi-ingest up`. The file holds no data."
            ) from problem


def bring_up(
    home: Home,
    settings: StackSettings,
    report: Report,
    dagster_yaml: str | None = None,
    exported: Mapping[str, str] = MappingProxyType({}),
) -> Stack:
    """Start the parts that are not running and return when all of them answer; running parts are left alone, unless they belong to
    Dagster and hang: these are replaced.

    `dagster_yaml`: the Dagster instance's settings, if not the embedded stack's own. `exported`: variables of the user, whose
    values for pipeline files win over the stack's own. `report` gets progress lines, none if nothing had to be started. Running parts keep their settings. Raises
    EnvironmentProblem if Dagster's web server is not installed or a part does not come up; the others stay up. Parts that this call has started are stopped only if it
    is interrupted.
    """
    try:
        extras.require("ui", "here")
    except ValueError as problem:
        raise EnvironmentProblem(f"the stack's Dagster UI {problem}. A Dagster of your own needs no stack.") from None
    instance = dagster_yaml if dagster_yaml is not None else _resource("dagster.yaml")
    home.make()
    with _exclusive(home):
        require_space(home.root)
        cut_back(stack_logs(home))
        started: list[ProcessRecord] = []
        try:
            for _ in range(_TRIES - 1):
                try:
                    return _bring_up(home, settings, report, started, instance, exported)
                except ProcessEnded as problem:
                    if not problem.killed:
                        raise
                    report(str(problem))
            return _bring_up(home, settings, report, started, instance, exported)
        except EnvironmentProblem as problem:
            raise EnvironmentProblem(f"{str(problem).removesuffix('.')}. {_what_runs(home)}") from problem
        except KeyboardInterrupt:
            stop(started)
            raise


def _bring_up(
    home: Home,
    requested: StackSettings,
    report: Report,
    started: list[ProcessRecord],
    dagster_yaml: str,
    exported: Mapping[str, str],
) -> Stack:
    previous = Stack.read(home)
    alive = {record.name: record for record in previous.processes if is_alive(record)} if previous else {}
    settings = _settled(requested, previous.settings, alive) if previous else requested
    _require_ports_free(settings, alive)
    environment = _environment(home, settings, exported, previous, alive)

    def remember(record: ProcessRecord) -> None:
        alive[record.name] = record
        started.append(record)
        Stack(settings, environment, tuple(alive.values())).write(home)

    for name in (BROKER, ENGINE, CODE_SERVER, WEBSERVER, DAEMON):
        if name in alive:
            why = _why_it_hangs(name, home, settings, alive[name], _ANSWER_SECONDS)
            if not why:
                continue
            report(f"{why}; replacing it")
            _kill(alive.pop(name))
        if name in DAGSTER:
            _make_dagster_ready(name, home, settings, alive, report, dagster_yaml)
        remember(_start(name, home, settings, environment, report))
    stack = Stack(settings, environment, tuple(alive.values()))
    _wait_until_ready(home, stack, report if started else lambda line: None)
    return stack


def hanging_parts(home: Home, seconds: float = 10.0) -> list[str]:
    """Say of each part of the home's Dagster that runs and does not answer within so many seconds that it hangs, with its pid. Raises
    EnvironmentProblem."""
    stack = Stack.read(home)
    running = [record for record in stack.processes if record.name in DAGSTER and is_alive(record)] if stack else []
    said = [_why_it_hangs(each.name, home, stack.settings, each, seconds) for each in running] if stack else []
    return [f"{why}: `hudi-ingest up` replaces it" for why in said if why]


def _why_it_hangs(name: str, home: Home, settings: StackSettings, record: ProcessRecord, seconds: float) -> str:
    """Say that a living part of Dagster hangs, and since when or for how long it was asked; "" if it answers, or may be starting."""
    if name not in DAGSTER or running_seconds(record) < _HANGS_SECONDS:
        return ""
    url = f"http://{LOOPBACK}:{settings.ui_port}"
    hangs = f"{name} (pid {record.pid}) hangs"
    if name == DAEMON:
        newest = dagster_api.newest_heartbeat(url)
        silent = time.time() - newest if newest is not None else 0.0
        return f"{hangs}: it has not reported for {silent:,.0f} s" if silent > _HANGS_SECONDS else ""
    if name == CODE_SERVER:
        answers = dagster_api.code_server_answers(_code_socket(home), seconds)
    else:
        answers = dagster_api.query(url, "{ version }", seconds=seconds) is not None
    return "" if answers else f"{hangs}: it has not answered within {seconds:g} s"


def _kill(record: ProcessRecord) -> None:
    """End a part that hangs. The daemon's runs go on: they need nothing of it."""
    if record.name != DAEMON:
        stop([record], grace_seconds=1)
        return
    kill(record)


def _settled(requested: StackSettings, previous: StackSettings, alive: Mapping[str, ProcessRecord]) -> StackSettings:
    """Return the requested settings, except those that running processes already use; pure."""
    if alive:
        # Every process was started with the broker's address.
        requested = replace(requested, kafka_port=previous.kafka_port)
    if WEBSERVER in alive:
        requested = replace(requested, ui_port=previous.ui_port)
    if ENGINE in alive:
        requested = replace(requested, master=previous.master, driver_memory=previous.driver_memory)
    return requested


def require_as_asked(stack: Stack, asked: Mapping[str, object]) -> None:
    """Raises EnvironmentProblem if a part that was running before has other settings than were `asked` for, by their names."""
    options = {"kafka_port": "--kafka-port", "ui_port": "--ui-port", "master": "--master", "driver_memory": "--memory"}
    found = asdict(stack.settings)
    if other := [
        f"{options[name]} {value} (it is {found[name]})" for name, value in asked.items() if found[name] != value
    ]:
        raise EnvironmentProblem(
            f"the stack is up, but not with {', '.join(other)}: running parts keep their settings. Stop it with `hudi-ingest down`, then run "
            "`hudi-ingest up` with the options."
        )


def _require_ports_free(settings: StackSettings, alive: Mapping[str, ProcessRecord]) -> None:
    """Raises EnvironmentProblem before anything is started that would wait in vain for the rest."""
    if BROKER not in alive:
        require_port_free(settings.kafka_port, "the embedded Kafka broker", "--kafka-port")
    if WEBSERVER not in alive:
        require_port_free(settings.ui_port, "the Dagster UI", "--ui-port")


def remembered_settings(home: Home) -> StackSettings:
    """Return the settings of the last stack started in this home, running or stopped, else the defaults. Raises like Stack.read."""
    stack = Stack.read(home) or Stack.read(home, home.stopped_stack_file)
    return stack.settings if stack else StackSettings()


def _what_runs(home: Home) -> str:
    stack = Stack.read(home)
    running = [record.name for record in stack.processes if is_alive(record)] if stack else []
    if not running:
        return "No part of the stack is running; `hudi-ingest up` starts it."
    return f"The running parts stay up ({', '.join(running)}): `hudi-ingest up` starts the others, `hudi-ingest down` stops everything."


def bring_down(home: Home, report: Report) -> bool:
    """Stop every process of the stack and put its file aside; False if there was no stack."""
    if not home.root.exists():
        return False
    with _exclusive(home):
        stack = Stack.read(home)
        if stack is None:
            return False
        # Dagster first, so that no run is launched while the engine stops.
        for part, names in (("Dagster", DAGSTER), ("the engine", (ENGINE,)), ("Kafka", (BROKER,))):
            records = [record for record in stack.processes if record.name in names]
            if records:
                report(f"stopping {part}")
                stop(records)
        # `up` starts with the same ports: producers and pipeline files have them.
        home.stack_file.replace(home.stopped_stack_file)
        home.engine_file.unlink(missing_ok=True)
        return True


def run_processes(stack: Stack) -> list[psutil.Process]:
    """Return the processes that execute runs now: what the launcher's fork server, beside the daemon, has forked."""
    daemon = next(record for record in stack.processes if record.name == DAEMON)
    try:
        servers = [
            child
            for child in psutil.Process(daemon.pid).children()
            if "multiprocessing.forkserver" in " ".join(child.cmdline())
        ]
        forked = [process for server in servers for process in server.children()]
        return [process for process in forked if process.name() != IDLE_RUN_NAME]
    except psutil.NoSuchProcess:
        return []


def require_space(folder: Path) -> None:
    """Raises EnvironmentProblem if the disk that holds `folder` is nearly full."""
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise EnvironmentProblem(
            f"the disk that holds {folder} has {free >> 20} MB free, and the stack needs {NEEDED_BYTES >> 20} MB; free "
            f"some space, or set {HOME_VARIABLE} to a folder on another disk."
        )


def _own_variables(home: Home, settings: StackSettings) -> dict[str, str]:
    return {BOOTSTRAP_VARIABLE: f"127.0.0.1:{settings.kafka_port}", TABLES_VARIABLE: str(home.tables)}


def _environment(
    home: Home,
    settings: StackSettings,
    exported: Mapping[str, str],
    previous: Stack | None,
    alive: Collection[str],
) -> dict[str, str]:
    """The stack's variables. For pipeline files, exported values win over those that an earlier `up` was given, as they do for
    the commands, and these over the stack's own. Raises EnvironmentProblem if processes run with other values: Dagster
    and the commands would work on two tables."""
    before = previous.environment if previous else {}
    defaults_before = _own_variables(home, previous.settings) if previous else {}
    given = {name: value for name, value in before.items() if value != defaults_before.get(name)}
    own = _own_variables(home, settings)
    chosen = {name: exported.get(name) or given.get(name) or value for name, value in own.items()}
    for name, value in chosen.items():
        if alive and before.get(name, value) != value:
            raise EnvironmentProblem(
                f"{name} is {value} here, but the running stack in {home.root} was started with {before[name]}. Nothing was "
                f"started. Unset {name} or set it to that value, or stop the stack with `hudi-ingest down` and run `hudi-ingest "
                "up` with the new one."
            )
    return {
        HOME_VARIABLE: str(home.root),
        PIPELINES_VARIABLE: str(home.pipelines),
        **chosen,
        "DAGSTER_HOME": str(home.dagster),
    }


def _has_table_on_s3(home: Home, environment: Mapping[str, str]) -> bool:
    # Imported here because --help must not wait for pyarrow.
    from hudi_ingest.pipeline.folder import load_each

    try:
        pipelines, _ = load_each(home.pipelines, {**os.environ, **environment})
    except ConfigError:
        return False
    return any(is_s3(pipeline.table.base_path) for pipeline in pipelines)


def _start(
    name: str, home: Home, settings: StackSettings, environment: Mapping[str, str], report: Report
) -> ProcessRecord:
    if name == BROKER:
        return launch_broker(_broker_settings(home, settings), report)
    if name == ENGINE:
        spark_jars(report)
        if _has_table_on_s3(home, environment):
            # The engine would fetch them too, but without showing it.
            s3_jars(report)
        report("starting the Spark engine")
        chosen = {"--master": settings.master, "--memory": settings.driver_memory}
        options = [text for option, value in chosen.items() if value is not None for text in (option, value)]
        command = ["hudi_ingest.cli", "engine", *options]
    elif name == CODE_SERVER:
        command = ["hudi_ingest.orchestration.code_server", str(_code_socket(home))]
    elif name == WEBSERVER:
        page = ["--port", str(settings.ui_port), "--workspace", str(_workspace(home))]
        command = ["hudi_ingest.orchestration.embedded.webserver", *page]
    else:
        command = ["hudi_ingest.orchestration.embedded.daemon", str(_workspace(home))]
    # The ledger's URL may hold a password, so it is passed on but never written to the stack's file.
    ledger = {LEDGER_VARIABLE: home.ledger_url}
    full = {**os.environ, **environment, **ledger, "JAVA_HOME": str(java_home(find_java())), "PYTHONUNBUFFERED": "1"}
    return start(name, [sys.executable, "-m", *command], log=home.logs / f"{name}.log", env=full)


def _make_dagster_ready(
    name: str,
    home: Home,
    settings: StackSettings,
    alive: Mapping[str, ProcessRecord],
    report: Report,
    dagster_yaml: str,
) -> None:
    """Prepare what the Dagster process of that name needs before it starts."""
    if not any(part in alive for part in DAGSTER):
        report("starting Dagster")
        home.dagster.mkdir(parents=True, exist_ok=True)
        (home.dagster / "dagster.yaml").write_text(dagster_yaml)
        _make_dagster_storage(home)
    text = _resource("workspace.yaml").format(location=dagster_api.LOCATION, socket=_code_socket(home))
    _workspace(home).write_text(text)
    if name == WEBSERVER:
        # A webserver that starts before the pipelines are read would show them as unreachable for a while.
        wait_until(
            lambda: accepts_connections(_code_socket(home)),
            what="Dagster's code server has read the pipelines",
            timeout_seconds=_READY_SECONDS,
            records_to_watch=[alive[CODE_SERVER]],
        )


def _make_dagster_storage(home: Home) -> None:
    """Create or migrate Dagster's databases while no process uses them: several processes would race to do it."""
    command = [sys.executable, "-m", "hudi_ingest.orchestration.embedded.sqlite_storage", str(home.dagster)]
    log = home.logs / "dagster-storage.log"
    home.logs.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        result = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT)
    if result.returncode:
        raise EnvironmentProblem(
            f"Dagster's storage in {home.dagster} cannot be created or migrated to this version of Dagster: "
            f"{' | '.join(log_tail(log, 1)) or 'no reason given'} (full log: {log}). If the disk has space and the "
            f"folder is this user's, move {home.dagster} away: it holds runs and ticks, but no offsets. Then turn the sensors on "
            "again in the UI."
        )


def _workspace(home: Home) -> Path:
    return home.dagster / "workspace.yaml"


def _code_socket(home: Home) -> Path:
    """Return the socket of the code server: in the home or, if that path is too long for a socket, in a folder of this user in the
    system's temporary folder. Raises EnvironmentProblem if others may access that folder."""
    path = home.root / "code-server.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
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
    by_name = {record.name: record for record in stack.processes}
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
        lambda: dagster_api.sensors(stack.url) is not None,
        what=f"the Dagster UI at {stack.url} has loaded the pipelines",
        timeout_seconds=_READY_SECONDS,
        records_to_watch=dagster,
    )
    report("waiting for Dagster's daemons")
    wait_until(
        lambda: dagster_api.daemons_are_healthy(stack.url),
        what="the Dagster daemons have reported",
        timeout_seconds=_READY_SECONDS,
        records_to_watch=dagster,
    )
    # For a while, the webserver answers from its cache of a code server that has just died.
    require_running(stack.processes, "the whole stack was up")
    report("everything is up")


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
