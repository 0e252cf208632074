"""An instance as Dagster makes it, without a setting: ops in containers of their own, *Re-execute from failure*, and topics added to
the list later."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from dagster import DagsterInstance, JobExecutionResult, ReexecutionOptions, RunRequest, execute_job
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository

from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.verification import verify
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.orchestration import tags
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.pods import PODS
from hudi_ingest_tests.support.ticks import tick
from hudi_ingest_tests.support.transactions import transaction_code

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

REPOSITORY = Path(__file__).parent.parent.parent

DEFINITIONS = """
from pathlib import Path
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.pipeline.folder import load_folder

defs = build_definitions(load_folder(Path({pipelines!r})).pipelines)
"""


@pytest.fixture(autouse=True)
def own_environment(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.set_environment(monkeypatch)


@pytest.fixture
def dagster_home(tmp_path: Path) -> Path:
    found = tmp_path / "dagster"
    found.mkdir()
    (found / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return found


@pytest.fixture
def instance(dagster_home: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.from_config(str(dagster_home)) as found:
        assert not found.run_monitoring_enabled
        yield found


@pytest.fixture
def once(ground: Ground, topic: str) -> Pipeline:
    """The ground's pipeline; what fails is not tried again."""
    return make_pipeline(ground, transaction={"retries": 0, "timeout_seconds": 120, "interval_seconds": 5})


def job_of(ground: Ground, pipeline: Pipeline) -> ReconstructableJob:
    file = ground.home.root / "definitions.py"
    file.write_text(DEFINITIONS.format(pipelines=str(ground.home.pipelines)))
    return transaction_code(ReconstructableRepository.for_file(str(file), "defs"), pipeline.name)


def requested(pipeline: Pipeline, instance: DagsterInstance, now: datetime | None = None) -> RunRequest:
    found = tick(pipeline, instance, now or datetime.now(timezone.utc))
    assert isinstance(found, RunRequest), found
    return found


def run(
    ground: Ground, pipeline: Pipeline, instance: DagsterInstance, again: ReexecutionOptions | None = None
) -> JobExecutionResult:
    """What the sensor requests now, or `again` an earlier run; in this process, which has a Spark."""
    own = {tags.IN_PROCESS: "true"}
    job = job_of(ground, pipeline)
    if again is not None:
        return execute_job(job, instance, tags=own, reexecution_options=again)
    request = requested(pipeline, instance)
    return execute_job(job, instance, run_config=request.run_config, tags={**request.tags, **own})


def failure_of(instance: DagsterInstance, result: JobExecutionResult) -> str:
    events = [entry.dagster_event for entry in instance.all_logs(result.run_id) if entry.dagster_event]
    return "\n".join(str(event.step_failure_data) for event in events if event.is_step_failure)


def steps_of(result: JobExecutionResult) -> set[str]:
    return {str(event.step_key).split(".")[1].split("[")[0] for event in result.all_events if event.is_step_success}


PODS_DEFINITIONS = """
from pathlib import Path
from dagster import Definitions, FilesystemIOManager
from hudi_ingest import ingest_definitions
from hudi_ingest_tests.support.pods import pods

results = FilesystemIOManager(base_dir={results!r})
defs = Definitions.merge(
    ingest_definitions({pipelines!r}), Definitions(executor=pods, resources={{"io_manager": results}})
)
"""


@pytest.mark.tier(3)
def test_r10_each_op_in_a_place_of_its_own_needs_only_the_ledger_and_says_so(
    ground: Ground, once: Pipeline, instance: DagsterInstance, dagster_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.send_rows(0, 20)
    file, variables = ground.home.root / "pods.py", ground.home.root / "pods.json"
    file.write_text(
        PODS_DEFINITIONS.format(results=str(ground.home.root / "results"), pipelines=str(ground.home.pipelines))
    )
    shared = {
        **{name: os.environ[name] for name in ("HOME", "JAVA_HOME", "SPARK_SUBMIT_OPTS") if name in os.environ},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        "DAGSTER_HOME": str(dagster_home),
    }
    monkeypatch.setenv(PODS, str(variables))
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    job = transaction_code(ReconstructableRepository.for_file(str(file), "defs"), once.name)
    results = []
    for more in ({}, {LEDGER_VARIABLE: ground.home.ledger_url}):
        variables.write_text(json.dumps({**shared, **more}))
        request = requested(once, instance)
        results.append(execute_job(job, instance, run_config=request.run_config, tags=request.tags))
    alone, together = results
    assert not alone.success
    assert "the sensor of pipeline" in failure_of(instance, alone)
    assert "Set HUDI_INGEST_LEDGER_URL to the same PostgreSQL" in failure_of(instance, alone)
    assert together.success, failure_of(instance, together)
    assert steps_of(together) == {"begin", "write", "commit"}
    assert verify(ground.base_path, ground.produced).exact


def test_p4_re_execution_from_failure_of_an_aborted_transaction_is_fenced_and_says_so(
    ground: Ground, once: Pipeline, instance: DagsterInstance
) -> None:
    ground.send_rows(0, 10)
    ground.send(1, [b"not json"])
    failed = run(ground, once, instance)
    assert not failed.success
    again = run(ground, once, instance, ReexecutionOptions.from_failure(failed.run_id, instance))
    assert not again.success
    assert "Fenced" in failure_of(instance, again)
    assert "re-execute the whole run" in failure_of(instance, again)
    assert ground.data_files() == []


def re_executed_after(
    point: str, ground: Ground, pipeline: Pipeline, instance: DagsterInstance, fault: Fault
) -> set[str]:
    """The steps that *Re-execute from failure* runs after a run that fails at `point`; afterwards the table is exact."""
    ground.send_rows(0, 10)
    fault.arm(point, "raise")
    failed = run(ground, pipeline, instance)
    assert not failed.success
    again = run(ground, pipeline, instance, ReexecutionOptions.from_failure(failed.run_id, instance))
    assert again.success, failure_of(instance, again)
    assert verify(ground.base_path, ground.produced).exact
    return steps_of(again)


@pytest.mark.tier(1)
def test_p2_s3_re_execution_from_failure_after_the_commit_landed_commits_nothing_twice(
    ground: Ground, once: Pipeline, instance: DagsterInstance, fault: Fault
) -> None:
    assert re_executed_after("commit_landed", ground, once, instance, fault) == {"commit"}
    assert [row.state for row in ground.ledger.transactions.history(once.name)] == [TransactionState.COMMITTED]


def test_x5_re_execution_from_failure_finishes_a_transaction_that_is_still_open(
    ground: Ground, once: Pipeline, instance: DagsterInstance, fault: Fault
) -> None:
    assert re_executed_after("attempt_started", ground, once, instance, fault) == {"write", "commit"}


def test_p1_a_topic_that_is_added_to_the_list_is_read_from_its_first_record(ground: Ground, pipeline: Pipeline) -> None:
    added = Ground(f"{ground.name}-added", ground.bootstrap_servers, ground.home)
    create_topic(ground.bootstrap_servers, added.name, 1)
    added.send_rows(0, 3)
    ground.send_rows(0, 5)
    ground.run(pipeline)
    ground.send_rows(1, 2)
    # "latest" is where a pipeline starts; records that came before its list named their topic would be lost by it.
    both = make_pipeline(ground, source={"topics": [ground.name, added.name], "starting_offsets": "latest"})
    ground.run(both)
    rows = ground.rows().select(["_kafka_topic", "_kafka_partition", "_kafka_offset"]).to_pylist()
    expected = [(each.name, *place) for each in (ground, added) for place in each.produced]
    assert sorted(tuple(row.values()) for row in rows) == sorted(expected)
