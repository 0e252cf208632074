"""What the cluster demo says and how it ends; that it runs is for e2e/test_cluster_demo.py."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hudi_ingest.home.folder import HOME_VARIABLE, Home
from hudi_ingest.local.processes import start, stop, wait_until
from hudi_ingest.local.verification import Verification
from hudi_ingest_tests.lab import __main__ as module
from hudi_ingest_tests.lab.cluster_demo import ClusterDemoResult, KilledWorker, cpu_seconds

RECORDS = 20_000
GOOD = ClusterDemoResult(
    records=RECORDS,
    verification=Verification(rows=RECORDS, lost=0, duplicate=0, foreign=0),
    counted=RECORDS,
    commits=4,
    repeated=0,
    killed=KilledWorker("spark-worker-1", 1234, "orders-000002-abcdef"),
    workers_left=1,
    store="versitygw",
    database="PostgreSQL",
    seconds=123.4,
)
BAD = {
    "hudi-rs does not find each order once: 1 lost, 1 duplicate, 0 foreign": replace(
        GOOD, verification=Verification(rows=RECORDS, lost=1, duplicate=1, foreign=0)
    ),
    "hudi-rs finds 19,999 rows instead of 20,000": replace(
        GOOD, verification=Verification(rows=RECORDS - 1, lost=0, duplicate=0, foreign=0)
    ),
    "`select count(*)` through the catalog finds 20,001 rows instead of 20,000": replace(GOOD, counted=RECORDS + 1),
    "no worker was killed, because all orders were committed before": replace(GOOD, killed=None, workers_left=2),
    "Spark's master has 2 workers left instead of 1": replace(GOOD, workers_left=2),
    "Spark's master has 0 workers left instead of 1": replace(GOOD, workers_left=0),
}


def ends(result: ClusterDemoResult, monkeypatch: pytest.MonkeyPatch, home: Path, *options: str) -> tuple[int, str]:
    """The exit code and the output of the command, if the demo has that result."""
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    monkeypatch.setattr(module, "run_cluster_demo", lambda home, records, report: replace(result, records=records))
    done = CliRunner().invoke(module.lab, ["cluster-demo", "--records", str(RECORDS), *options])
    return done.exit_code, done.output


def test_it_exits_0_if_all_of_it_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, output = ends(GOOD, monkeypatch, tmp_path)
    assert code == 0
    assert "all of it held: exactly once" in output
    assert "spark-worker-1 was killed while orders-000002-abcdef was writing" in output
    assert str(tmp_path / "cluster-demo") in output.replace("\n", "")


@pytest.mark.parametrize(("failure", "result"), BAD.items())
def test_it_exits_1_and_says_what_did_not_hold(
    failure: str, result: ClusterDemoResult, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, output = ends(result, monkeypatch, tmp_path)
    assert code == 1
    assert f"it did NOT hold: {failure}" in output.splitlines()
    assert "all of it held" not in output
    code, output = ends(result, monkeypatch, tmp_path, "--json")
    assert code == 1
    assert json.loads(output)["failures"] == [failure]


def test_its_home_takes_nothing_of_the_user_s_own(tmp_path: Path) -> None:
    own = Home(tmp_path, tmp_path / "pipelines", "postgresql://ledger", engine_settings=tmp_path / "engine.yaml")
    home = own.below("cluster-demo")
    assert home.root.parent == own.root
    assert home.ledger_url == f"sqlite:///{home.root / 'ledger.db'}"
    assert home.engine_settings_file.parent == home.pipelines.parent == home.root


def test_the_cpu_time_of_a_worker_has_that_of_its_children(tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    record = start("worker", [sys.executable, "-c", program], log=tmp_path / "worker.log", env=os.environ)
    try:
        assert wait_until(lambda: cpu_seconds(record) > 0.3, what="it has worked", timeout_seconds=120)
    finally:
        stop([record], grace_seconds=0)
    assert cpu_seconds(record) == 0
