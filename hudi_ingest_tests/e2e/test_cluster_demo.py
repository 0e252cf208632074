"""`make cluster-demo` as a user runs it: a worker of the Spark cluster is killed, each order is in the table once, nothing is left
running."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from hudi_ingest.home.folder import Home
from hudi_ingest_tests.e2e.test_demo import processes_of
from hudi_ingest_tests.support.command_line import LAB, environment

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e, pytest.mark.tier(3)]

RECORDS = 100_000
SECONDS = 800


@pytest.fixture
def home(tmp_path: Path) -> Home:
    # No ledger of the user's: the demo has its own.
    return Home(root=tmp_path, pipelines=tmp_path / "none", ledger_url="postgresql://nobody@127.0.0.1:1/none")


def begin(home: Home) -> subprocess.Popen[str]:
    command = [*LAB, "cluster-demo", "--json", "--records", str(RECORDS)]
    return subprocess.Popen(
        command,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_p1_p2_p5_a_killed_worker_loses_and_doubles_nothing_and_all_is_stopped(home: Home) -> None:
    demo = begin(home)
    try:
        out, progress = demo.communicate(timeout=SECONDS)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(120)
    assert demo.returncode == 0, f"{out}\n{progress}"
    facts = json.loads(out)
    assert facts["failures"] == []
    assert facts["verification"] == {"rows": RECORDS, "lost": 0, "duplicate": 0, "foreign": 0}
    assert facts["counted"] == RECORDS
    assert facts["killed"]["name"].startswith("spark-worker-")
    assert facts["workers_left"] == 1
    assert facts["commits"] > 1
    assert processes_of(home) == []


def test_ctrl_c_stops_all_that_was_started(home: Home) -> None:
    demo = begin(home)
    assert demo.stderr is not None
    seen: list[str] = []
    try:
        for line in demo.stderr:
            seen.append(line)
            if "starting a stock Dagster" in line:
                break
        assert demo.poll() is None, "".join(seen)
        running = processes_of(home)
        for part in ("versitygw" if "versitygw" in "".join(seen) else "moto", "kafka.Kafka", "Metastore", "engine"):
            assert any(part in command for command in running), part
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=120)
    finally:
        demo.kill()
        demo.wait(300)
    assert demo.returncode == 130
    assert processes_of(home) == []
