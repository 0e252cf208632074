"""A Spark cluster as the engine's executors: what Spark repeats, runs twice or loses there is in the table once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import yaml
from hudi import HudiTable

from hudi_ingest.home.folder import Home
from hudi_ingest.local.verification import verify
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.jars import spark_jars
from hudi_ingest_tests.chaos.oracle import StoredTable, listed_files
from hudi_ingest_tests.lab.spark_servers import SparkCluster, spark_cluster
from hudi_ingest_tests.support.command_line import environment
from hudi_ingest_tests.support.engine import running_engine
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.java import QUICK_SPARK
from hudi_ingest_tests.support.struck_table import pipeline_of, send
from hudi_ingest_tests.support.waiting import suspend, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SECONDS = 300
OUR_MARK = "EXECUTORS_PYTHON_OF_THE_TEST"


ENGINE = """
from hudi_ingest.cli import main
from hudi_ingest.spark import engine
import sys

speculation = {"": "true", ".interval": "100ms", ".quantile": "0.5"}
engine.ENGINE_OPTIONS |= {f"spark.speculation{key}": value for key, value in speculation.items()}
sys.argv = ["hudi-ingest", "engine"]
main()
"""
RUN = """
from hudi_ingest.cli import main
from hudi_ingest.transaction import run
from hudi_ingest.transaction.write import job
import sys

def speculate(spark, wanted):
    spark.sparkContext._jsc.sc().conf().set("spark.speculation", wanted)

def attached(*given, connect=run.current_session, **named):
    spark = connect(*given, **named)
    speculate(spark, "false")
    return spark

def written(spark, *given, write=job._run):
    speculate(spark, "true")
    try:
        return write(spark, *given)
    finally:
        speculate(spark, "false")

run.current_session, job._run = attached, written
# Each few records are a Spark task, so there are some to compare a slow one with.
job.ROWS_PER_FILE = 1000
sys.argv = ["hudi-ingest", "run", sys.argv[1]]
main()
"""
"""With speculation for write tasks only: Hudi refuses it for the sake of its own tasks, and so does engine.yaml."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1, memory="600m") as running:
        yield running


REFUSALS = """
import sys
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.spark import executors
from hudi_ingest.spark.session import own_session

_, master, python, memory = sys.argv
for seconds, settings in (
    (60, {"driver_host": "192.0.2.7", "spark_conf": {"spark.driver.bindAddress": "127.0.0.1"}}),
    (60, {"python": python}),
    (5, {"spark_conf": {"spark.executor.memory": "64g"}}),
):
    executors.EXECUTOR_SECONDS = seconds
    conf = {"spark.executor.memory": memory, **settings.pop("spark_conf", {})}
    try:
        own_session(EngineSettings(master=master, spark_conf=conf, **settings))
    except EnvironmentProblem as error:
        print(error)
"""


@pytest.mark.tier(3)
def test_executors_that_cannot_work_are_told_in_one_sentence_each(cluster: SparkCluster, tmp_path: Path) -> None:
    """Before there is an engine, which takes all cores."""
    without_package = tmp_path / "python"
    without_package.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    without_package.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", REFUSALS, cluster.url, str(without_package), "512m"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    unreachable, wrong_python, no_executor = done.stdout.splitlines()
    assert unreachable.startswith("executors cannot reach the driver at 192.0.2.7:")
    assert wrong_python.startswith(f"executors run {without_package} (`python` in engine.yaml), which has no module ")
    assert no_executor.startswith(f"no executor of {cluster.url} was ready within 5 s.")


@pytest.fixture(scope="module")
def engine(cluster: SparkCluster, shared: Ground) -> Iterator[None]:
    """The shared ground's engine, whose executors are the cluster's and run a Python that only engine.yaml names."""
    python = shared.home.root / "python"
    python.write_text(f'#!/bin/sh\n{OUR_MARK}=1 exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    settings = {
        "master": cluster.url,
        "driver_memory": "1g",
        "python": str(python),
        "executor_jars": str(spark_jars(lambda line: None)[0].parent),
        "spark_conf": {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_SPARK,
        },
    }
    shared.home.engine_settings_file.write_text(yaml.safe_dump(settings))
    with running_engine(shared.home, (sys.executable, "-c", ENGINE)):
        yield


@pytest.fixture(scope="module")
def tasks_of_their_own(shared: Ground, engine: None) -> Pipeline:
    return pipeline_of(shared)


def test_p1_p2_s2_a_transaction_on_a_cluster_writes_what_a_local_one_writes(
    shared: Ground, tasks_of_their_own: Pipeline, spark_home: Home, tmp_path: Path
) -> None:
    send(shared, 3000)
    _require_run(shared, tasks_of_their_own)
    _require_exact(shared)
    local = replace(shared, home=replace(spark_home, pipelines=tmp_path), _ledgers=[])
    table = str(tmp_path / "table")
    receipt = local.run(make_pipeline(local, table={"base_path": table}, on_bad_record="skip"))
    assert (receipt.rows, local.home.engine_settings_file.exists()) == (6000, False)
    assert _records(table) == _records(shared.base_path)


def _records(base_path: str) -> list[dict[str, object]]:
    rows = pa.Table.from_batches(HudiTable(base_path).read())
    columns = [name for name in rows.column_names if not name.startswith("_hoodie") or name == "_hoodie_record_key"]
    ordered = rows.sort_by([("_kafka_partition", "ascending"), ("_kafka_offset", "ascending")])
    records: list[dict[str, object]] = ordered.select(sorted(columns)).to_pylist()
    return records


@dataclass(frozen=True)
class Attempt:
    """A Python worker that stands still in the middle of a file, and its executor."""

    worker: psutil.Process
    executor: psutil.Process

    @classmethod
    def of(cls, pid: int) -> Attempt:
        worker = psutil.Process(pid)
        daemon = worker.parent()
        assert daemon is not None
        executor = daemon.parent()
        assert executor is not None
        assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
        return cls(worker, executor)

    def open_files(self) -> set[str]:
        """Paths of its open base files; of a deleted one with a suffix. Raises OSError."""
        targets = {os.readlink(link) for link in Path(f"/proc/{self.worker.pid}/fd").iterdir()}
        return {target for target in targets if ".parquet" in target}

    def writes(self) -> bool:
        """Whether it has a base file open, deleted or not."""
        try:
            return bool(self.open_files())
        except OSError:
            return self.worker.is_running() and self.worker.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("trouble", ["executor killed", "executor hangs", "worker hangs"])
def test_p1_p2_p3_an_attempt_that_spark_gave_up_changes_nothing(
    trouble: str, shared: Ground, tasks_of_their_own: Pipeline, fault: Fault
) -> None:
    """Spark repeats the tasks of a lost executor. It runs one that stands still twice, and kills the slower attempt in the middle
    of its file if it can."""
    send(shared, 3000)
    files_before = {str(file) for file in shared.data_files()}
    fault.arm("rows_written", "stop")
    with _running(shared, tasks_of_their_own) as running:
        attempt = Attempt.of(fault.await_reached("rows_written", SECONDS))
        assert OUR_MARK in attempt.worker.environ(), "ops use the executors' Python of the engine"
        if trouble == "executor killed":
            attempt.executor.kill()
        if trouble == "executor hangs":
            # Executors give each other the stage's code, so one that has it not yet would wait until Spark's network timeout.
            wait_for(
                lambda: {str(file) for file in shared.data_files()} - files_before - attempt.open_files(),
                "the other executor writes a file",
                SECONDS,
            )
            suspend(attempt.executor)
        _, told = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, told
    if trouble == "executor hangs":
        # The first attempt goes on after the commit, and nobody stops it.
        attempt.worker.resume()
        wait_for(lambda: not attempt.writes(), "the first attempt has given up its file", SECONDS)
        attempt.executor.resume()
    else:
        wait_for(lambda: not _alive(attempt.worker), "the first attempt has ended", SECONDS)
    _require_exact(shared)


def test_p1_p2_p3_s2_a_killed_python_worker_is_replaced_within_the_transaction(
    shared: Ground, tasks_of_their_own: Pipeline, fault: Fault
) -> None:
    send(shared, 3000)
    fault.arm("file_closed", "kill")
    _require_run(shared, tasks_of_their_own)
    assert fault.was_reached("file_closed")
    _require_exact(shared)


def _running(ground: Ground, pipeline: Pipeline) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, pipeline.name]
    return subprocess.Popen(command, env=environment(ground.home), stderr=subprocess.PIPE, text=True)


def _require_run(ground: Ground, pipeline: Pipeline) -> None:
    with _running(ground, pipeline) as running:
        _, told = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, told


def _require_exact(ground: Ground) -> None:
    """Each record is one row, and there is no file that no commit names."""
    found = verify(ground.base_path, ground.produced)
    assert found.exact, found
    stored = {str(file.relative_to(ground.base_path)) for file in ground.data_files()}
    assert {path for path in stored if not path.startswith(".hoodie")} == listed_files(
        StoredTable.on_disk(ground.base_path)
    )


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
