"""The whole path as a new user takes it: broker, engine, Dagster's daemon and sensor, 200,000 records, an outside reader."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from hudi_ingest.embedded.processes import free_port
from hudi_ingest.home import Home
from hudi_ingest_tests.support.command_line import hudi_ingest

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e]

PIPELINES = Path(__file__).parent.parent.parent / "pipelines"


def test_p1_p2_demo_once_is_exact_and_leaves_no_process_behind(tmp_path: Path) -> None:
    home = Home(root=tmp_path, pipelines=PIPELINES, ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    ports = ("--kafka-port", str(free_port()), "--ui-port", str(free_port()))
    found = hudi_ingest(home, "demo", "--once", "--json", *ports, timeout=600)
    assert found.returncode == 0, found.stderr
    facts = json.loads(found.stdout)
    assert (facts["rows"], facts["lost"], facts["duplicate"], facts["foreign"]) == (200_000, 0, 0, 0)
    assert processes_of(replace(home, root=tmp_path / "demo-once")) == []


def processes_of(home: Home) -> list[str]:
    """Command lines of all processes that name the home in them or in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(str(home.root) in word for word in words):
            found.append(" ".join(process.cmdline()))
    return found


def test_a_taken_port_is_said_in_one_sentence(tmp_path: Path) -> None:
    import socket

    home = Home(root=tmp_path, pipelines=PIPELINES, ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        found = hudi_ingest(home, "up", "--kafka-port", port)
    assert found.returncode == 1
    assert f"port {port}" in found.stderr
    assert "--kafka-port" in found.stderr
    assert processes_of(home) == []
