"""Commands of the embedded stack, where nothing runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hudi_ingest.cli.app import app
from hudi_ingest.exceptions import ConfigError, EnvironmentProblem
from hudi_ingest.home.folder import HOME_VARIABLE
from hudi_ingest.local import stack
from hudi_ingest.local.stack import Stack, StackSettings

pytestmark = pytest.mark.fast


def test_down_tells_a_script_whether_it_stopped_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    done = CliRunner().invoke(app, ["down", "--json"])
    assert json.loads(done.stdout) == {"home": str(tmp_path), "stopped": False}


def test_serve_says_at_once_that_it_is_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    refused = CliRunner().invoke(app, ["serve", "--json", "--port", "0", "--cert", str(tmp_path / "cert.pem")])
    assert isinstance(refused.exception, ConfigError)
    assert (refused.stdout, refused.stderr) == ("", "· starting the REST API\n")


def test_up_does_not_ignore_an_option_that_a_running_part_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(stack, "bring_up", lambda *_, **__: Stack(StackSettings(1, 2), {}, ()))
    told = CliRunner().invoke(app, ["up", "--kafka-port", "5"])
    assert isinstance(told.exception, EnvironmentProblem)
    assert "not with --kafka-port 5 (it is 1)" in str(told.exception)
    assert CliRunner().invoke(app, ["up", "--kafka-port", "1"]).exit_code == 0
