"""Names in dagster.yaml files, commands and code that users have, from before the modules were moved."""

import runpy
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


def test_the_webserver_still_starts_by_its_former_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `python -m` does it."""
    monkeypatch.setattr(sys, "argv", ["webserver", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("hudi_ingest.orchestration.webserver", run_name="__main__", alter_sys=True)
    assert not ended.value.code
    assert "Dagster's webserver" in capsys.readouterr().out
