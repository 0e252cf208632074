"""The workspace.yaml at the root, as Dagster's own commands load it there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent


def test_r10_dagster_loads_the_workspace_without_dagster_home() -> None:
    """With it, as test_component.py has the same command load a project."""
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Validation successful for code location hudi_ingest" in done.stdout + done.stderr
