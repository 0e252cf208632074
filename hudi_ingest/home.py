"""Where hudi-ingest keeps its own state on this machine, and the environment variables that move it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "HUDI_INGEST_HOME"
PIPELINES_VARIABLE = "HUDI_INGEST_PIPELINES"
LEDGER_VARIABLE = "HUDI_INGEST_LEDGER_URL"


@dataclass(frozen=True, slots=True)
class Home:
    """`HUDI_INGEST_HOME` (default ./.hudi-ingest), `HUDI_INGEST_PIPELINES` (default ./pipelines) and
    `HUDI_INGEST_LEDGER_URL` (default SQLite below the home)."""

    root: Path
    pipelines: Path
    ledger_url: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Home:
        root = Path(environment.get(HOME_VARIABLE) or ".hudi-ingest").expanduser().resolve()
        return cls(
            root=root,
            pipelines=Path(environment.get(PIPELINES_VARIABLE) or "pipelines").expanduser().resolve(),
            ledger_url=environment.get(LEDGER_VARIABLE) or f"sqlite:///{root / 'ledger.db'}",
        )

    @property
    def engine_file(self) -> Path:
        return self.root / "engine.json"

    @property
    def stack_file(self) -> Path:
        return self.root / "stack.json"

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
    def tables(self) -> Path:
        return self.root / "tables"
