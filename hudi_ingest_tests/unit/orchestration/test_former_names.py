"""Names in dagster.yaml files, commands and code that users have, from before the modules were moved."""

import subprocess
import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("sqlite_storage", "QuickSqliteStorage"),
        ("run_launcher", "ForkingRunLauncher"),
        ("step_logs", "FileComputeLogManager"),
        ("executor", "EXECUTOR"),
    ],
)
def test_a_former_name_is_the_same_object(module: str, name: str) -> None:
    former = import_module(f"hudi_ingest.orchestration.{module}")
    assert getattr(former, name) is getattr(import_module(f"hudi_ingest.orchestration.embedded.{module}"), name)


def test_the_webserver_still_starts_by_its_former_name() -> None:
    command = [sys.executable, "-m", "hudi_ingest.orchestration.webserver", "--help"]
    assert "Dagster's webserver" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
