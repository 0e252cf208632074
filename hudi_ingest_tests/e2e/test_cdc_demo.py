"""`make cdc-demo` and `make mirror-demo` as a user runs them, for a shorter time: PostgreSQL, Debezium, the kills, and the comparison."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from hudi_ingest.home.folder import Home
from hudi_ingest_tests.e2e.test_demo import processes_of
from hudi_ingest_tests.lab.postgresql import programs
from hudi_ingest_tests.lab.source_tables import WEIGHTS
from hudi_ingest_tests.support.command_line import LAB, environment

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.e2e, pytest.mark.tier(3)]

CHANGING_SECONDS = 30
SECONDS = 800


@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed: initdb is not on PATH")
def test_p1_p2_p5_the_hudi_table_equals_the_postgresql_table_whatever_was_killed(tmp_path: Path) -> None:
    # No ledger of the user's: the demo has its own.
    home = Home(root=tmp_path, pipelines=tmp_path / "none", ledger_url="postgresql://nobody@127.0.0.1:1/none")
    demo = subprocess.Popen(
        [*LAB, "cdc-demo", "--json", "--seconds", str(CHANGING_SECONDS), "--tables", "2"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, progress = demo.communicate(timeout=SECONDS)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(120)
    assert demo.returncode == 0, f"{out}\n{progress}"
    facts = json.loads(out)
    assert facts["equal"]
    assert facts["comparisons"].keys() == {"hudi-rs", "Spark"}
    assert facts["comparisons"]["Spark"]["rows"] > 1_000
    assert min(facts["changes"][kind] for kind in WEIGHTS) > 0
    assert len(facts["killed"]) == 5
    assert facts["compactions"] > 0
    assert processes_of(home) == []
