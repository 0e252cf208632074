"""The workspace.yaml at the root, as Dagster's own commands load it there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.mark.parametrize("has_home", [False, True], ids=["without DAGSTER_HOME", "with DAGSTER_HOME"])
def test_r10_dagster_loads_the_workspace(tmp_path: Path, has_home: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    if has_home:
        (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        environment["DAGSTER_HOME"] = str(tmp_path)
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
