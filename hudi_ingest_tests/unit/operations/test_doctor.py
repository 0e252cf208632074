"""What `hudi-ingest doctor` says of a machine, a ledger and pipelines, well and ill."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from dagster import DagsterInstance
from typer.testing import CliRunner

from hudi_ingest.cli.app import app
from hudi_ingest.cli.upkeep_commands import doctor
from hudi_ingest.examination import examine
from hudi_ingest.exceptions import ConfigError, LedgerUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import free_port
from hudi_ingest.model.finding import Finding, State, answer, distinct, examined, ok, problem, warning, worst
from hudi_ingest.operations.health.doctor import (
    DiskUsage,
    cgroup_memory,
    clock_diagnoses,
    disk_diagnoses,
    ledger_diagnoses,
    machine_diagnoses,
    memory_diagnoses,
    noexec_diagnoses,
    version_diagnoses,
)
from hudi_ingest.operations.health.pipeline_doctor import pipelines_diagnoses, tick_diagnoses
from hudi_ingest.orchestration.reports.checks import evaluation
from hudi_ingest.orchestration.reports.instance_view import dagster_diagnoses
from hudi_ingest_tests.support.pipeline_files import Write, document, load

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
GIB = 1 << 30


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home", tmp_path / "pipelines", f"sqlite:///{tmp_path / 'home' / 'ledger.db'}")


@pytest.mark.parametrize(
    ("diagnoses", "state", "text"),
    [
        (
            lambda: disk_diagnoses([DiskUsage(("/a",), 100 * GIB, 50 * GIB, 1.0)]),
            State.OK,
            "50.0 GiB of 100.0 GiB free",
        ),
        (lambda: disk_diagnoses([DiskUsage(("/a",), 100 * GIB, 8 * GIB, 1.0)]), State.WARNING, "Only 8.0 GiB"),
        (lambda: disk_diagnoses([DiskUsage(("/a",), 10 * GIB, GIB // 2, 1.0)]), State.PROBLEM, "transactions fail"),
        (lambda: disk_diagnoses([DiskUsage(("/a",), 100 * GIB, 50 * GIB, 0.001)]), State.PROBLEM, "inodes"),
        (
            lambda: disk_diagnoses([DiskUsage(("/a",), GIB // 2, 1 << 20, 1.0)]),
            State.PROBLEM,
            "Only 1.0 MiB of 512.0 MiB",
        ),
        (lambda: disk_diagnoses([DiskUsage(("/proc",), 0, 0, 1.0)]), State.PROBLEM, "of /proc stores nothing"),
        (lambda: memory_diagnoses(8 * GIB, 16 * GIB), State.OK, "8.0 GiB of 16.0 GiB"),
        (lambda: memory_diagnoses(GIB // 4, 16 * GIB), State.PROBLEM, "Only 256.0 MiB"),
        (lambda: clock_diagnoses("the server", 0.3), State.OK, "agree"),
        (lambda: clock_diagnoses("the server", 61.0), State.PROBLEM, "61 s ahead of"),
        (lambda: clock_diagnoses("the server", -61.0), State.PROBLEM, "61 s behind"),
        (lambda: version_diagnoses({"dagster": "1.13.0", "dagster-webserver": "1.13.0"}, "3.11"), State.OK, "1.13.0"),
        (
            lambda: version_diagnoses({"dagster": "1.13.0", "dagster-webserver": "1.12.9"}, "3.11"),
            State.PROBLEM,
            "dagster-webserver 1.12.9",
        ),
    ],
)
def test_a_measurement_is_judged(diagnoses: Callable[[], Iterable[Finding]], state: State, text: str) -> None:
    judged = list(diagnoses())
    assert worst(judged) is state
    assert any(text in diagnosis.text for diagnosis in judged if diagnosis.state is state), judged
    assert all(diagnosis.remedy for diagnosis in judged if diagnosis.state is not State.OK)


def test_inodes_are_named_although_bytes_are_few_too() -> None:
    judged = list(disk_diagnoses([DiskUsage(("/a",), 200 << 20, 199 << 20, 0.0)]))
    assert [diagnosis.state for diagnosis in judged] == [State.PROBLEM, State.PROBLEM]
    assert "0.0% of the inodes are free for /a (`df -i`)" in judged[0].text
    assert "services" in judged[0].remedy


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        (
            "0::/pod",
            {"pod/memory.max": "400", "pod/memory.current": "300", "pod/memory.stat": "anon 200\ninactive_file 50"},
            [(150, 400)],
        ),
        (
            "0::/pod/a",
            {
                "pod/memory.max": "400",
                "pod/memory.current": "100",
                "pod/memory.stat": "anon 1",
                "pod/a/memory.max": "max",
            },
            [(300, 400)],
        ),
        (
            "7:cpu,memory:/docker/x",
            {
                "memory/memory.limit_in_bytes": "500",
                "memory/memory.usage_in_bytes": "480",
                "memory/memory.stat": "total_inactive_file 80",
            },
            [(100, 500)],
        ),
        (
            "7:memory:/",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/memory.usage_in_bytes": "1",
                "memory/memory.stat": "cache 0",
            },
            [],
        ),
        ("3:cpu:/docker/x", {"memory/memory.limit_in_bytes": "5"}, []),
    ],
    ids=["2", "2, of a group above", "1, as a container sees it", "1, without a limit", "of something else"],
)
def test_the_memory_of_a_container_counts(
    tmp_path: Path, line: str, files: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    of_process = tmp_path / "cgroup"
    of_process.write_text(f"12:pids:/x\n{line}\n")
    assert list(cgroup_memory(of_process, tmp_path)) == expected


def test_a_temporary_folder_without_programs_is_a_problem() -> None:
    assert list(noexec_diagnoses(Path("/tmp"), 0)) == []
    (found,) = noexec_diagnoses(Path("/tmp"), os.ST_NOEXEC)
    assert (found.state, "-Djava.io.tmpdir" in found.remedy) == (State.PROBLEM, True)


def test_a_ledger_that_cannot_be_written_to_is_not_called_whole(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(home.ledger_url).dispose()
    monkeypatch.setattr(Ledger, "require_writable", Mock(side_effect=LedgerUnreachable("The server is read-only")))
    (found,) = examined("ledger", lambda: ledger_diagnoses(home))
    assert (found.state, "read-only" in found.text) == (State.PROBLEM, True)


def test_this_machine_is_examined_and_an_open_home_is_a_problem(home: Home, tmp_path: Path) -> None:
    home.make()
    assert {"versions", "java", "disk", "memory", "home", "clock"} <= {
        diagnosis.subject for diagnosis in machine_diagnoses(home, [tmp_path / "table"])
    }
    home.root.chmod(0o755)
    (opened,) = [diagnosis for diagnosis in machine_diagnoses(home, []) if diagnosis.subject == "home"]
    assert opened.state is State.PROBLEM
    assert opened.remedy == f"chmod 700 {home.root}"


def test_an_error_is_a_diagnosis_and_each_is_given_once() -> None:
    def fails() -> Iterable[Finding]:
        yield ok("engine", "so far")
        raise ConfigError("engine.yaml", ["master: missing"])

    diagnoses = list(examined("engine", fails))
    assert [diagnosis.state for diagnosis in diagnoses] == [State.OK, State.PROBLEM]
    assert "master: missing" in diagnoses[1].text
    twice = [problem("a", "x"), warning("b", "y"), problem("a", "x", "remedy")]
    assert distinct(twice) == [twice[0], twice[1]]
    assert worst([]) is State.OK


def test_a_ledger_is_not_made_but_opened_and_checked(home: Home) -> None:
    (absent,) = ledger_diagnoses(home)
    assert absent.state is State.OK
    assert not home.root.exists()
    Ledger.open(home.ledger_url).dispose()
    (whole,) = ledger_diagnoses(home)
    assert "open and whole" in whole.text
    _break_an_index(home.root / "ledger.db")
    (damaged,) = ledger_diagnoses(home)
    assert damaged.state is State.PROBLEM
    assert "hudi-ingest recover" in damaged.remedy


def _break_an_index(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ingest_slices'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 100)


@pytest.mark.parametrize(
    ("enabled", "age_seconds", "state"),
    [
        (False, None, None),
        (True, None, State.PROBLEM),
        (True, 30, None),
        (False, 3600, State.WARNING),
    ],
)
def test_a_coordinator_that_stands_still_is_noticed(
    write: Write, enabled: bool, age_seconds: float | None, state: State | None
) -> None:
    ticked_at = None if age_seconds is None else NOW - timedelta(seconds=age_seconds)
    diagnoses = list(tick_diagnoses("pipeline orders", load(write, enabled=enabled), ticked_at, NOW))
    assert [diagnosis.state for diagnosis in diagnoses] == ([state] if state else [])


def test_a_paused_pipeline_is_not_blamed_for_having_no_ticks(home: Home, write: Write, tmp_path: Path) -> None:
    pipeline = load(
        write, table__base_path=str(tmp_path / "table"), source__bootstrap_servers=f"127.0.0.1:{free_port()}"
    )
    home.make()
    with Ledger.open(home.ledger_url) as ledger:
        ledger.requests.note_tick(pipeline.name, NOW)

    def texts(*off: str) -> str:
        return " ".join(each.text for each in pipelines_diagnoses(home, [pipeline], lambda line: None, off))

    assert "hudi_ingest_coordinator last ticked" in texts()
    assert "ticked" not in texts("orders")


def test_a_stack_that_is_down_is_one_problem(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.kafka.mkdir(parents=True)  # what `down` leaves, with Dagster's instance
    home.root.chmod(0o700)
    home.dagster.mkdir()
    (home.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    home.pipelines.mkdir()
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    found = [
        each for each in examine(home, lambda line: None).diagnoses if each.subject in ("stack", "engine", "dagster")
    ]
    assert [(each.subject, each.state) for each in found if each.state is not State.OK] == [("stack", State.PROBLEM)]
    assert found[0].remedy == "`hudi-ingest up` starts it."


def test_the_command_names_what_is_wrong_with_each_pipeline(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        home.pipelines.mkdir()
        right = document(
            source__bootstrap_servers=f"127.0.0.1:{nobody.getsockname()[1]}",
            source__request_timeout_seconds=0.5,
            table__base_path=str(tmp_path / "table"),
        )
        (home.pipelines / "orders.yaml").write_text(yaml.safe_dump(right))
        other = {**right, "name": "users", "table": {**right["table"], "base_path": str(tmp_path / "users")}}
        (home.pipelines / "users.yaml").write_text(yaml.safe_dump(other))
        (home.pipelines / "wrong.yaml").write_text("name: wrong\n")
        monkeypatch.setenv("HUDI_INGEST_HOME", str(home.root))
        monkeypatch.setenv("HUDI_INGEST_PIPELINES", str(home.pipelines))
        monkeypatch.delenv("DAGSTER_HOME", raising=False)
        assert doctor in [command.callback for command in app.registered_commands]
        shown = CliRunner().invoke(app, ["doctor"])
        as_json = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert shown.exit_code == 1
    assert "PROBLEM  file wrong.yaml:" in shown.stdout
    assert "These pipelines cannot read: orders, users." in shown.stdout, "what they share is told once"
    assert "warning  pipeline orders: No broker answers at 127.0.0.1" in shown.stdout
    assert as_json["state"] == "problem"
    by_subject = {diagnosis["subject"]: diagnosis for diagnosis in as_json["diagnoses"]}
    assert by_subject["pipeline orders"]["state"] == "warning", "one broker that is down is one problem"
    assert by_subject["pipelines"] == {
        "subject": "pipelines",
        "state": "ok",
        "text": f"2 pipelines in {home.pipelines}",
        "remedy": "",
    }


def test_dagster_is_asked_for_daemons_switches_and_failed_runs(
    home: Home, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    home.dagster.mkdir(parents=True)
    (home.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home.dagster))
    pipeline = load(write, enabled=True)
    with DagsterInstance.get() as instance:
        failed = answer("orders", "runs_succeed", False, "The newest run failed: no such table.")
        instance.report_runless_asset_event(evaluation(pipeline, failed))
    by_text = {diagnosis.text: diagnosis for diagnosis in dagster_diagnoses(home, [pipeline])}
    texts = "\n".join(by_text)
    assert "do not run" in texts and "sensor" in texts
    assert "has not seen their sensor hudi_ingest_coordinator: orders" in texts
    assert by_text["runs_succeed: The newest run failed: no such table."].state is State.PROBLEM
