"""The embedded stack's file and settings; that it comes up and is repaired is for e2e/test_stack_repair.py."""

from __future__ import annotations

import json
import os
import socket
import stat
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from hudi_ingest import examination
from hudi_ingest.cli.app import app
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import BOOTSTRAP_VARIABLE, HOME_VARIABLE, PIPELINES_VARIABLE, TABLES_VARIABLE, Home
from hudi_ingest.home.liveness import started_since_boot
from hudi_ingest.local import stack as module
from hudi_ingest.local.processes import ProcessRecord
from hudi_ingest.local.stack import (
    BROKER,
    CODE_SERVER,
    ENGINE,
    WEBSERVER,
    Stack,
    StackSettings,
    bring_down,
    remembered_settings,
)
from hudi_ingest_tests.support.pipeline_files import document

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


@pytest.mark.parametrize(
    ("base_path", "fetched"), [("s3a://lake/orders", ["spark", "s3"]), ("/data/orders", ["spark"])]
)
def test_up_fetches_the_jars_of_s3_for_a_table_there(
    home: Home, monkeypatch: pytest.MonkeyPatch, base_path: str, fetched: list[str]
) -> None:
    home.pipelines.mkdir()
    (home.pipelines / "orders.yaml").write_text(yaml.safe_dump(document(table__base_path=base_path)))
    calls: list[str] = []
    monkeypatch.setattr(module, "spark_jars", lambda report: calls.append("spark"))
    monkeypatch.setattr(module, "s3_jars", lambda report: calls.append("s3"))
    monkeypatch.setattr(module, "start", lambda name, command, **rest: record(name))
    module._start(ENGINE, home, KNOWN, {}, lambda line: None)
    assert calls == fetched


def test_up_names_each_pipeline_file_that_is_broken_in_one_line(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.pipelines.mkdir()
    right, broken = home.pipelines / "orders.yaml", home.pipelines / "payments.yaml"
    right.write_text(yaml.safe_dump(document()))
    broken.write_text(yaml.safe_dump(document(name="payments", table__base_path=None, source__topicz=["a"])))
    monkeypatch.setattr("hudi_ingest.local.stack.bring_up", lambda *given, exported: Stack(KNOWN, {}, ()))
    variables = {HOME_VARIABLE: str(home.root), PIPELINES_VARIABLE: str(home.pipelines)}
    up = CliRunner().invoke(app, ["up"], env=variables)
    assert up.exit_code == 0, up.output
    (line,) = (line for line in up.stdout.splitlines() if ".yaml" in line)
    assert line.startswith(f"not loaded: {broken}: source.topicz: unknown key in line ")
    assert line.endswith(f" (and 1 more: `hudi-ingest validate {broken}`)")
    as_json = json.loads(CliRunner().invoke(app, ["up", "--json"], env=variables).stdout)
    assert list(as_json["broken_files"]) == [str(broken)]
    missing = CliRunner().invoke(app, ["up"], env={**variables, PIPELINES_VARIABLE: str(home.root / "gone")})
    assert f"not loaded: {home.root / 'gone'}: the pipelines folder cannot be read" in missing.stdout


def test_a_stack_that_was_stopped_starts_with_its_settings(home: Home) -> None:
    Stack(KNOWN, {}, ()).write(home)
    assert bring_down(home, lambda line: None)
    assert Stack.read(home) is None
    assert not bring_down(home, lambda line: None)
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


def test_an_option_that_a_running_part_does_not_have_is_not_ignored() -> None:
    stack = Stack(KNOWN, {}, ())
    module.require_as_asked(stack, {"kafka_port": KNOWN.kafka_port})
    with pytest.raises(
        EnvironmentProblem, match=rf"not with --kafka-port 5 \(it is {KNOWN.kafka_port}\).*hudi-ingest down"
    ):
        module.require_as_asked(stack, {"kafka_port": 5, "ui_port": KNOWN.ui_port})


def test_status_and_doctor_name_a_code_server_that_does_not_answer(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, as the kernel does for a process that stands still; this process stands in for it."""
    home.make()
    pid = os.getpid()
    served = ProcessRecord(CODE_SERVER, pid, started_since_boot(pid), str(home.logs / "log"))
    Stack(KNOWN, {}, (served,)).write(home)
    monkeypatch.setattr(module, "_HANGS_SECONDS", float("inf"))
    assert module.hanging_parts(home, 0.2) == [], "it may still be starting"
    monkeypatch.setattr(module, "_HANGS_SECONDS", 0.0)
    monkeypatch.setattr(module, "hanging_parts", partial(module.hanging_parts, seconds=0.2))
    monkeypatch.setattr(examination, "hanging_parts", module.hanging_parts)
    monkeypatch.setenv(HOME_VARIABLE, str(home.root))
    monkeypatch.setenv(PIPELINES_VARIABLE, str(home.pipelines))
    home.pipelines.mkdir(exist_ok=True)
    hangs = f"dagster-code-server (pid {pid}) hangs: it has not answered within 0.2 s"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(module._code_socket(home)))
        silent.listen()
        told = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, ["status"])
        (found,) = examination.stack_diagnoses(home)
    assert (told.exit_code, f"error: {hangs}: `hudi-ingest up` replaces it" in told.output) == (1, True)
    assert (found.text, found.remedy) == (f"{hangs}.", "`hudi-ingest up` replaces it.")


def variables(stack: dict[str, str]) -> list[str]:
    return [stack[BOOTSTRAP_VARIABLE], stack[TABLES_VARIABLE]]


def test_exported_variables_win_over_the_stacks_own_and_stay_for_a_later_up(home: Home) -> None:
    own = ["127.0.0.1:1", str(home.tables)]
    assert variables(module._environment(home, KNOWN, {}, None, ())) == own
    exported = {TABLES_VARIABLE: "/lake", "OTHER": "x"}
    given = module._environment(home, KNOWN, exported, None, ())
    assert variables(given) == ["127.0.0.1:1", "/lake"]
    assert "OTHER" not in given
    previous = Stack(KNOWN, given, ())
    assert variables(module._environment(home, KNOWN, {}, previous, {ENGINE})) == ["127.0.0.1:1", "/lake"]
    assert variables(module._environment(home, ASKED, {}, previous, ())) == ["127.0.0.1:11", "/lake"]


def test_variables_that_differ_from_those_of_what_runs_are_refused(home: Home) -> None:
    previous = Stack(KNOWN, module._environment(home, KNOWN, {}, None, ()), ())
    with pytest.raises(EnvironmentProblem, match=rf"HUDI_INGEST_TABLES is /lake here.*started with {home.tables}"):
        module._environment(home, KNOWN, {TABLES_VARIABLE: "/lake"}, previous, {ENGINE})
    assert module._environment(home, KNOWN, {TABLES_VARIABLE: "/lake"}, previous, ())[TABLES_VARIABLE] == "/lake"


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
