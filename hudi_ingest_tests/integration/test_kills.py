"""P1, P2, P4, P5: a process is killed or stands still at a durable step, and then all goes on. Errors are test_faults.py's;
`make chaos` has every point, and what an engine goes on with when the process that it serves dies."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from hudi_ingest.exceptions import TransactionInFlight
from hudi_ingest.local.verification import verify
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.command_line import environment
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.struck_table import send

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SECONDS = 300
"""Until a command must have come to its point, or to its end."""

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
for order in sys.stdin:
    run_transaction(pipeline)
    print("committed", flush=True)
"""


@dataclass(frozen=True)
class Other:
    """A process that has a JVM of its own, and runs a transaction of the shared table when it is asked to."""

    process: subprocess.Popen[str]
    log: Path

    def ask(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()

    def require_committed(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "committed\n", self.log.read_text()


@pytest.fixture(scope="module")
def other(shared: Ground, struck: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Other]:
    log = tmp_path_factory.mktemp("other") / "log"
    file = shared.home.pipelines / f"{struck.name}.yaml"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", IN_A_YOUNG_JVM, str(file)],
            env=environment(shared.home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        yield Other(process, log)


def test_p5_an_engine_never_comes_to_fail_each_commit_over_a_schema_that_is_there_twice(
    other: Other, shared: Ground
) -> None:
    """Hudi 1.2: whichever of two equal schemas a JVM interns first decides whether its metadata table can be written."""
    send(shared, 5)
    other.ask()
    other.require_committed()
    assert verify(shared.base_path, shared.produced).exact


def test_p4_a_commit_that_may_be_at_work_is_not_rolled_back(
    other: Other, shared: Ground, struck: Pipeline, fault: Fault
) -> None:
    """Its JVM, which is another one, keeps the instant's lease: it may be inside Hudi's lock, which is not ours."""
    send(shared, 10)
    fault.arm("commit_leased", "stop")
    other.ask()
    pid = fault.await_reached("commit_leased", SECONDS)
    try:
        # As when its deadline has passed: it is dead to the ledger, and its lock anybody's.
        with closing(sqlite3.connect(shared.home.root / "ledger.db")) as database, database:
            database.execute("UPDATE ingest_transactions SET deadline = began_at WHERE state = 'open'")
        with shared.ledger.table_lock(shared.base_path, stale_seconds=0):
            pass
        with pytest.raises(TransactionInFlight, match=r"heartbeat still beats.*If process:.* hangs, kill it"):
            shared.run(struck)
    finally:
        os.kill(pid, signal.SIGCONT)
    other.require_committed()
    found = verify(shared.base_path, shared.produced)
    assert found.exact, found


def test_p1_p2_p5_a_process_that_is_killed_with_its_jvm_is_recovered_from(
    other: Other, shared: Ground, struck: Pipeline, fault: Fault
) -> None:
    send(shared, 10)
    fault.arm("slices_written", "kill")
    other.ask()
    assert other.process.wait(SECONDS) == -signal.SIGKILL, other.log.read_text()
    send(shared, 5)
    shared.run(struck)
    found = verify(shared.base_path, shared.produced)
    assert found.exact, found
