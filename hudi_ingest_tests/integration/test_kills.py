"""P1, P2, P4, P5: a process is killed or stands still at a durable step, and then all goes on. Errors are test_faults.py's."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from hudi_ingest.exceptions import TransactionInFlight
from hudi_ingest.home.folder import Home
from hudi_ingest.local.verification import verify
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.command_line import COMMAND, environment, hudi_ingest
from hudi_ingest_tests.support.engine import running_engine
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.struck_table import pipeline_of, send
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SECONDS = 300
"""Until a command must have come to its point, or to its end."""


@pytest.fixture(scope="module")
def engine(shared: Ground, struck: Pipeline, spark_home: Home) -> Iterator[int]:
    """The engine that commands on the shared table use, warm. Gives a timeout_seconds that a test can wait out and that their
    transactions keep with ease: twice what the first one took, which had to warm the engine."""
    # Transactions of the tests' own process have another JVM: a process keeps the session that it has.
    current_session(spark_home)
    with running_engine(shared.home):
        send(shared, 1)
        done = hudi_ingest(shared.home, "run", struck.name, "--json")
        assert done.returncode == 0, done.stderr
        yield max(10, math.ceil(2 * json.loads(done.stdout)["seconds"]["total"]))


def without_engine(home: Home) -> Home:
    """The same pipelines and ledger in a home that no engine serves, so that a command has a JVM of its own."""
    return replace(home, root=home.root / "without-engine")


@pytest.mark.parametrize(
    ("point", "spark"),
    [
        # Kills of a process that an engine serves are in the slice of the kill matrix that every change runs.
        pytest.param("instant_inflight", "engine", marks=pytest.mark.long),
        ("slices_written", "own"),
        # test_replay.py and test_dead_letters.py kill a process with a JVM of its own around this one.
        pytest.param("commit_leased", "engine", marks=pytest.mark.long),
        pytest.param("commit_landed", "engine", marks=pytest.mark.long),
    ],
)
def test_p1_p2_p5_a_killed_process_is_recovered_from(
    point: str, spark: str, shared: Ground, struck: Pipeline, engine: int, fault: Fault
) -> None:
    """A JVM of its own dies with it; an engine goes on, and with it whatever the process had it do."""
    send(shared, 10)
    fault.arm(point, "kill")
    killed = hudi_ingest(shared.home if spark == "engine" else without_engine(shared.home), "run", struck.name)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    send(shared, 5)
    shared.run(struck)
    found = verify(shared.base_path, shared.produced)
    assert found.exact, found


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("instant_recorded", marks=pytest.mark.long),
        pytest.param("slices_written", marks=pytest.mark.long),
        # The zombie of the slice of the kill matrix stands at this one, too.
        pytest.param("commit_checked", marks=pytest.mark.long),
    ],
)
def test_p4_a_process_that_wakes_up_after_its_replacement_has_committed_changes_nothing(
    point: str, shared: Ground, struck: Pipeline, engine: int, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At commit_checked it holds the table's lock, which is taken away from it."""
    monkeypatch.setattr("hudi_ingest.transaction.protocol.SHORTEST_STALE_SECONDS", 10)
    hasty = pipeline_of(shared, transaction={"timeout_seconds": engine})
    send(shared, 10)
    fault.arm(point, "stop")
    with running(shared, hasty) as zombie:
        pid = fault.await_reached(point, SECONDS)
        row = shared.ledger.transactions.open_in(shared.base_path)
        assert row is not None
        receipt = run_when_free(shared, hasty, engine + SECONDS)
        assert receipt.plan.sequence == row.sequence
        before = verify(shared.base_path, shared.produced)
        assert before.exact, before
        os.kill(pid, signal.SIGCONT)
        _, told = zombie.communicate(timeout=SECONDS)
    assert zombie.returncode == 1, told
    assert "error: " in told
    assert "Traceback" not in told
    found = verify(shared.base_path, shared.produced)
    assert found.exact, found
    send(shared, 5)
    shared.run(pipeline_of(shared))
    assert verify(shared.base_path, shared.produced).exact


@pytest.mark.usefixtures("engine")
def test_p4_a_commit_that_may_be_at_work_is_not_rolled_back(shared: Ground, struck: Pipeline, fault: Fault) -> None:
    """Its JVM, which is another one, keeps the instant's lease: it may be inside Hudi's lock, which is not ours."""
    send(shared, 10)
    fault.arm("commit_leased", "stop")
    with running(shared, struck) as paused:
        pid = fault.await_reached("commit_leased", SECONDS)
        # As when its deadline has passed: it is dead to the ledger, and its lock anybody's.
        with closing(sqlite3.connect(shared.home.root / "ledger.db")) as database, database:
            database.execute("UPDATE ingest_transactions SET deadline = began_at WHERE state = 'open'")
        with shared.ledger.table_lock(shared.base_path, stale_seconds=0):
            pass
        with pytest.raises(TransactionInFlight, match=r"heartbeat still beats.*If process:.* hangs, kill it"):
            shared.run(struck)
        os.kill(pid, signal.SIGCONT)
        _, told = paused.communicate(timeout=SECONDS)
    assert paused.returncode == 0, told
    found = verify(shared.base_path, shared.produced)
    assert found.exact, found


@contextmanager
def running(ground: Ground, pipeline: Pipeline) -> Iterator[subprocess.Popen[str]]:
    """`hudi-ingest run` in a process of its own, which is gone afterwards."""
    process = subprocess.Popen(
        [*COMMAND, "run", pipeline.name], env=environment(ground.home), stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run_when_free(ground: Ground, pipeline: Pipeline, seconds: float) -> CommitReceipt:
    """Runs a transaction as soon as the one that is open may be rolled back."""
    receipts: list[CommitReceipt] = []

    def committed() -> bool:
        try:
            receipts.append(ground.run(pipeline))
        except TransactionInFlight:
            return False
        return True

    wait_for(committed, "the open transaction may be rolled back", seconds, pause_seconds=0.5)
    return receipts[0]


IN_A_YOUNG_JVM = """
import sys
from pathlib import Path
from typing import Any
from hudi_ingest import load_pipeline, run_transaction
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.spark.session import current_session

pipeline = load_pipeline(Path(sys.argv[1]))
spark = current_session(Home.from_environment())
HudiWriter(spark, pipeline)
text = spark._jvm.org.apache.hudi.avro.model.HoodieMetadataRecord.getClassSchema().toString()
equal = getattr(spark._jvm, "org.apache.avro.Schema$Parser")().parse(text)
spark._jvm.org.apache.hudi.avro.AvroSchemaCache.intern(equal)
run_transaction(pipeline)
"""


def test_p5_an_engine_never_comes_to_fail_each_commit_over_a_schema_that_is_there_twice(
    ground: Ground, pipeline: Pipeline
) -> None:
    """Hudi 1.2: whichever of two equal schemas a JVM interns first decides whether its metadata table can be written."""
    ground.send_rows(0, 5)
    file = ground.home.pipelines / f"{pipeline.name}.yaml"
    done = subprocess.run(
        [sys.executable, "-c", IN_A_YOUNG_JVM, str(file)],
        env=environment(ground.home),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert verify(ground.base_path, ground.produced).exact
