"""Runs hudi-ingest as a user does: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from hudi_ingest.home import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home

COMMAND = [sys.executable, "-m", "hudi_ingest.cli"]


def environment(home: Home, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with the home's variables."""
    return {
        **os.environ,
        HOME_VARIABLE: str(home.root),
        PIPELINES_VARIABLE: str(home.pipelines),
        LEDGER_VARIABLE: home.ledger_url,
        **(more or {}),
    }


def hudi_ingest(home: Home, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environment(home), capture_output=True, text=True, timeout=timeout, check=False
    )
