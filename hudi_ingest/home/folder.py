"""Where hudi-ingest keeps its own state on this machine, and the environment variables that change it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "HUDI_INGEST_HOME"
PIPELINES_VARIABLE = "HUDI_INGEST_PIPELINES"
LEDGER_VARIABLE = "HUDI_INGEST_LEDGER_URL"
ENGINE_VARIABLE = "HUDI_INGEST_ENGINE"
HOUSEKEEPING_VARIABLE = "HUDI_INGEST_HOUSEKEEPING"
ALERTS_VARIABLE = "HUDI_INGEST_ALERTS"


@dataclass(frozen=True, slots=True)
class Home:
    """`HUDI_INGEST_HOME` (default ./.hudi-ingest), `HUDI_INGEST_PIPELINES` (default ./pipelines),
    `HUDI_INGEST_LEDGER_URL` (default SQLite below the home), `HUDI_INGEST_ENGINE`, `HUDI_INGEST_HOUSEKEEPING` and
    `HUDI_INGEST_ALERTS`."""

    root: Path
    pipelines: Path
    ledger_url: str
    engine_settings: Path | None = None
    """The file of Spark settings; None for engine.yaml beside the pipelines folder, which need not exist."""
    housekeeping_settings: Path | None = None
    """The file of retention settings; None for housekeeping.yaml there, which need not exist."""
    alerts_settings: Path | None = None
    """The file that says who is told of failing checks; None for alerts.yaml there, which need not exist."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Home:
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
        return self.root / "engine.json"

    @property
    def engine_settings_file(self) -> Path:
        return self.engine_settings or self.pipelines.parent / "engine.yaml"

    @property
    def housekeeping_settings_file(self) -> Path:
        return self.housekeeping_settings or self.pipelines.parent / "housekeeping.yaml"

    @property
    def alerts_settings_file(self) -> Path:
        return self.alerts_settings or self.pipelines.parent / "alerts.yaml"

    @property
    def stack_file(self) -> Path:
        return self.root / "stack.json"

    @property
    def stopped_stack_file(self) -> Path:
        """What the stack file was when `down` stopped the stack."""
        return self.root / "stopped-stack.json"

    @property
    def topics_file(self) -> Path:
        """Written whenever a template's topics have changed, so that the code server loads its pipelines."""
        return self.root / "topics"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def dagster(self) -> Path:
        return self.root / "dagster"

    @property
    def kafka(self) -> Path:
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
