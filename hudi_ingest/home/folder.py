"""Where hudi-ingest keeps its own state on this machine, the environment variables that change it, and those that a home's embedded
stack sets for pipeline files.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from hudi_ingest.home.liveness import running_process

_logger = logging.getLogger(__name__)
HOME_VARIABLE = "HUDI_INGEST_HOME"
PIPELINES_VARIABLE = "HUDI_INGEST_PIPELINES"
LEDGER_VARIABLE = "HUDI_INGEST_LEDGER_URL"
ENGINE_VARIABLE = "HUDI_INGEST_ENGINE"
HOUSEKEEPING_VARIABLE = "HUDI_INGEST_HOUSEKEEPING"
ALERTS_VARIABLE = "HUDI_INGEST_ALERTS"
RUN_PIPELINE_VARIABLE = "HUDI_INGEST_RUN_PIPELINE"
"""Names the only pipeline of a run in its process, which then builds no definitions of others: each takes 20 ms of CPU."""
RUN_ASSETS_VARIABLE = "HUDI_INGEST_RUN_ASSETS"
"""Not empty in the process of a run of assets, which has no use for maintenance jobs."""
KAFKA_PORT, UI_PORT = 19092, 3000
"""The ports of an embedded stack that was given no others."""
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
TABLES_VARIABLE = "HUDI_INGEST_TABLES"
STACK_VARIABLES = (BOOTSTRAP_VARIABLE, TABLES_VARIABLE)
MOST_BYTES = 16 << 20
"""Size at which a log is cut back; this much of it is kept in a file beside it."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where hudi-ingest keeps its state on this machine, and where its settings are.

    >>> home = Home.from_environment({"HUDI_INGEST_HOME": "/srv/ingest"})
    >>> home.ledger_url
    'sqlite:////srv/ingest/ledger.db'
    >>> str(home.below("trial").pipelines)
    '/srv/ingest/trial/pipelines'
    """

    root: Path
    """The home folder."""
    pipelines: Path
    """The folder of pipeline files."""
    ledger_url: str
    """SQLAlchemy's URL of the ledger, SQLite or PostgreSQL."""
    engine_settings: Path | None = None
    """The file of Spark settings; None for engine.yaml beside the pipelines folder, which need not exist."""
    housekeeping_settings: Path | None = None
    """The file of retention settings; None for housekeeping.yaml there, which need not exist."""
    alerts_settings: Path | None = None
    """The settings file of alerts; None for alerts.yaml there, which need not exist."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Home:
        """Return the home that these variables name: `HUDI_INGEST_HOME` (default ./.hudi-ingest), `HUDI_INGEST_PIPELINES` (default
        ./pipelines), `HUDI_INGEST_LEDGER_URL` (default SQLite below the home), `HUDI_INGEST_ENGINE`, `HUDI_INGEST_HOUSEKEEPING` and
        `HUDI_INGEST_ALERTS`. Nothing is created."""
        root = Path(environment.get(HOME_VARIABLE) or ".hudi-ingest").expanduser().resolve()
        return cls(
            root=root,
            pipelines=Path(environment.get(PIPELINES_VARIABLE) or "pipelines").expanduser().resolve(),
            ledger_url=environment.get(LEDGER_VARIABLE) or f"sqlite:///{root / 'ledger.db'}",
            engine_settings=_path(environment, ENGINE_VARIABLE),
            housekeeping_settings=_path(environment, HOUSEKEEPING_VARIABLE),
            alerts_settings=_path(environment, ALERTS_VARIABLE),
        )

    def below(self, name: str) -> Home:
        """Return a home of its own in a folder of this one: with pipelines, an SQLite ledger and default Spark settings there."""
        root = self.root / name
        return Home(root=root, pipelines=root / "pipelines", ledger_url=f"sqlite:///{root / 'ledger.db'}")

    def make(self) -> None:
        """Create the home, private to this user; if it exists and is this user's, close it to others.

        It holds records, error messages that quote their values, and access to the engine.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = self.root.stat()
        # A folder with the sticky bit, such as /tmp, is shared on purpose.
        if facts.st_uid == os.geteuid() and facts.st_mode & 0o077 and not facts.st_mode & stat.S_ISVTX:
            self.root.chmod(stat.S_IMODE(facts.st_mode) & ~0o077)

    @property
    def engine_file(self) -> Path:
        """How to reach the engine that runs; it is removed when the engine ends."""
        return self.root / "engine.json"

    @property
    def engine_settings_file(self) -> Path:
        """The file of Spark settings, which need not exist."""
        return self.engine_settings or self.pipelines.parent / "engine.yaml"

    @property
    def housekeeping_settings_file(self) -> Path:
        """The file that says how long what is over is kept; it need not exist."""
        return self.housekeeping_settings or self.pipelines.parent / "housekeeping.yaml"

    @property
    def alerts_settings_file(self) -> Path:
        """The settings file of alerts; it need not exist."""
        return self.alerts_settings or self.pipelines.parent / "alerts.yaml"

    @property
    def stack_file(self) -> Path:
        """The processes and settings of the embedded stack while it is up."""
        return self.root / "stack.json"

    @property
    def stopped_stack_file(self) -> Path:
        """The former stack file, renamed when `down` stopped the stack."""
        return self.root / "stopped-stack.json"

    @property
    def topics_file(self) -> Path:
        """Written whenever a template's topics have changed, so that the code server loads its pipelines."""
        return self.root / "topics"

    @property
    def logs(self) -> Path:
        """The log files of the embedded stack."""
        return self.root / "logs"

    @property
    def transactions_log(self) -> Path:
        """What the steps of transactions have done to tables, by all processes that have this home, a line of JSON each."""
        return self.logs / "transactions.log"

    @property
    def dagster(self) -> Path:
        """The `DAGSTER_HOME` of the embedded Dagster."""
        return self.root / "dagster"

    @property
    def kafka(self) -> Path:
        """The data of the embedded broker."""
        return self.root / "kafka"

    @property
    def spark(self) -> Path:
        """Spark's temporary files."""
        return self.root / "spark"

    @property
    def tables(self) -> Path:
        return self.root / "tables"


def _path(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable)
    return Path(value).expanduser().resolve() if value else None


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can ever read, atomically, even if the disk fills up or the machine stops."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def file_version(path: Path) -> tuple[int, int, int] | None:
    """Return a file's inode, size in bytes and time of modification in ns, which differ once it is replaced or rewritten; None if they
    cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def note_step(home: Home, step: Mapping[str, object]) -> None:
    """Append a step of a transaction to its log. What goes wrong is logged: the table does not depend on it."""
    line = {"at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "pid": os.getpid(), **step}
    try:
        home.make()
        home.logs.mkdir(mode=0o700, exist_ok=True)
        # Unbuffered: a line is one write, so lines of several processes do not mix, and a process that is killed has written its own.
        with home.transactions_log.open("ab", buffering=0) as log:
            log.write(f"{json.dumps(line)}\n".encode())
        cut_back([home.transactions_log])
    except OSError as error:
        _logger.warning("a step is missing in %s: %s", home.transactions_log, error)


def stack_logs(home: Home) -> tuple[Path, ...]:
    """List the logs of the embedded stack's processes."""
    return (*sorted(home.logs.glob("*.log")), home.kafka / "broker.log")


def cut_back(logs: Iterable[Path], most_bytes: int = MOST_BYTES) -> None:
    """Keep the newest `most_bytes` of each larger log in a file beside it, `NAME.1`, and empty the log.

    Long-lived processes hold their logs open in append mode, so a log cannot be moved away from under them. It is copied, then
    truncated; lines written in between are lost. Missing logs are ignored. Raises OSError.
    """
    for log in logs:
        try:
            size = log.stat().st_size
        except FileNotFoundError:
            continue
        if size <= most_bytes:
            continue
        kept, partial = log.with_name(f"{log.name}.1"), log.with_name(f"{log.name}.partial")
        with log.open("r+b") as source, partial.open("wb") as target:
            source.seek(size - most_bytes)
            shutil.copyfileobj(source, target)
            partial.rename(kept)
            source.truncate(0)


def pipeline_environment(home: Home, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Complete `environment` with its home and, while the stack runs, the stack's variables; `environment` takes precedence."""
    return {HOME_VARIABLE: str(home.root), **_variables(home, only_running=True), **environment}


def missing_because(name: str, environment: Mapping[str, str]) -> str | None:
    """Explain why the stack of the environment's home does not set this variable; None if that home never had a stack."""
    if name not in STACK_VARIABLES or not environment.get(HOME_VARIABLE):
        return None
    home = Home.from_environment(environment)
    if not (home.stack_file.exists() or home.kafka.exists()):
        return None
    return f"the stack in {home.root} is down; start it with `hudi-ingest up`"


def stack_runs(home: Home) -> bool:
    """Whether a process of the home's embedded stack is alive."""
    return bool(_variables(home, only_running=True))


def stack_process(home: Home, name: str) -> psutil.Process | None:
    """The process of that name of the home's embedded stack, if it is alive."""
    try:
        found = next(each for each in json.loads(home.stack_file.read_text())["processes"] if each["name"] == name)
        return running_process(int(found["pid"]), float(found["started"]))
    except (OSError, ValueError, LookupError, TypeError, StopIteration, psutil.Error):
        return None


def embedded_broker(home: Home) -> str:
    """The address of the broker that `hudi-ingest up` has started in this home, alive or not; "" if there is no stack."""
    return _variables(home, only_running=False).get(BOOTSTRAP_VARIABLE, "")


def _variables(home: Home, *, only_running: bool) -> dict[str, str]:
    """Also empty when the file is damaged or of another version: only `up` and `down` need to report that."""
    try:
        stack: Any = json.loads(home.stack_file.read_text())
        starts = [(int(process["pid"]), float(process["started"])) for process in stack["processes"]]
        variables = {str(name): str(value) for name, value in stack["environment"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
    return variables if not only_running or any(running_process(pid, started) for pid, started in starts) else {}
