"""The embedded stack's file and settings; that it comes up and is repaired is for e2e/test_stack_repair.py."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from hudi_ingest.embedded import stack as module
from hudi_ingest.embedded.processes import ProcessRecord
from hudi_ingest.embedded.stack import BROKER, ENGINE, WEBSERVER, Stack, StackSettings, remembered_settings
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home import Home

KNOWN = StackSettings(1, 2, "local[1]", "1g")
ASKED = StackSettings(11, 12, "local[2]", "4g")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path / "pipelines", "")


def record(name: str) -> ProcessRecord:
    return ProcessRecord(name, 1, 0.0, f"/{name}.log")


def test_a_stack_is_read_as_it_was_written(home: Home) -> None:
    stack = Stack(KNOWN, {"A": "b"}, (record(BROKER), record(ENGINE)))
    stack.write(home)
    assert Stack.read(home) == stack
    assert remembered_settings(home) == KNOWN


@pytest.mark.parametrize("content", ["", "{", "[]", '{"settings": {"color": 1}, "environment": {}, "processes": []}'])
def test_up_and_down_say_what_to_do_with_a_damaged_or_newer_file(home: Home, content: str) -> None:
    home.stack_file.write_text(content)
    with pytest.raises(EnvironmentProblem, match=r"is damaged or of another version .* delete the file and run"):
        Stack.read(home)


def test_a_disk_that_is_full_leaves_the_file_as_it_was(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    Stack(KNOWN, {}, ()).write(home)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Stack(ASKED, {}, ()).write(home)
    assert remembered_settings(home) == KNOWN


@pytest.mark.parametrize(
    ("alive", "expected"),
    [
        ((), ASKED),
        ((BROKER,), replace(ASKED, kafka_port=1)),
        ((ENGINE,), replace(KNOWN, ui_port=12)),
        ((WEBSERVER,), replace(ASKED, kafka_port=1, ui_port=2)),
    ],
)
def test_settings_of_what_runs_win(alive: tuple[str, ...], expected: StackSettings) -> None:
    assert module._settled(ASKED, KNOWN, {name: record(name) for name in alive}) == expected


def test_the_code_servers_socket_is_in_the_home(home: Home) -> None:
    assert module._code_socket(home) == home.root / "code-server.sock"


def test_where_the_homes_path_is_too_long_it_is_in_a_folder_of_this_user_alone(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    long = replace(home, root=tmp_path / ("x" * 100))
    found = module._code_socket(long)
    assert found.parent.parent == tmp_path
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700
    assert module._code_socket(long) == found != module._code_socket(replace(long, root=tmp_path / ("y" * 100)))
    found.parent.chmod(0o755)
    with pytest.raises(EnvironmentProblem, match="is not this user's alone"):
        module._code_socket(long)
