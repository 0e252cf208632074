"""R10: a run's process is forked, is found by its tag, can be ended, and is missed when it dies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, JobDefinition, reconstructable
from dagster._core.launcher.base import WorkerStatus
from dagster._core.test_utils import instance_for_test

from hudi_ingest.ledger.owner import Owner, living_process
from hudi_ingest.orchestration import tags
from hudi_ingest_tests.support.launched_job import endless_job, run_config, short_job
from hudi_ingest_tests.support.waiting import wait_for

LAUNCHER = {"module": "hudi_ingest.orchestration.run_launcher", "class": "ForkingRunLauncher"}


@pytest.fixture(scope="module")
def instance() -> Iterator[DagsterInstance]:
    with instance_for_test(overrides={"run_launcher": LAUNCHER}) as found:
        yield found


def launched(instance: DagsterInstance, job: JobDefinition, pids: Path, in_process: bool) -> str:
    config = run_config(pids, in_process, *job.graph.node_dict)
    run = instance.create_run_for_job(job, run_config=config, job_code_origin=reconstructable(job).get_python_origin())
    # The launcher asks no code server.
    instance.launch_run(run.run_id, workspace=cast("Any", None))
    return run.run_id


def found(instance: DagsterInstance, run_id: str) -> DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def await_end(instance: DagsterInstance, run_id: str, status: DagsterRunStatus) -> None:
    wait_for(lambda: found(instance, run_id).is_finished, "the run ends")
    assert found(instance, run_id).status == status, [each.user_message for each in instance.all_logs(run_id)]


def worker_of(instance: DagsterInstance, run_id: str) -> psutil.Process:
    process = living_process(Owner.parse(found(instance, run_id).tags[tags.WORKER]))
    assert process is not None
    return process


def has_ended(worker: Owner) -> bool:
    return living_process(worker) is None


def test_r10_ops_share_the_runs_process_or_are_forked_from_it(instance: DagsterInstance, tmp_path: Path) -> None:
    pids = {}
    for in_process in (True, False):
        folder = tmp_path / str(in_process)
        folder.mkdir()
        run_id = launched(instance, short_job, folder, in_process)
        await_end(instance, run_id, DagsterRunStatus.SUCCESS)
        worker = Owner.parse(found(instance, run_id).tags[tags.WORKER])
        pids[in_process] = {*(each.read_text() for each in folder.glob("[a-z]*")), worker.ident.split(":")[1]}
        wait_for(partial(has_ended, worker), "the run's process ends")
        assert not instance.run_launcher.terminate(run_id), "it has ended"
    assert [len(pids[each]) for each in (True, False)] == [1, 3]


def test_r10_a_run_is_ended_by_an_interrupt(instance: DagsterInstance, tmp_path: Path) -> None:
    run_id = launched(instance, endless_job, tmp_path, in_process=False)
    wait_for((tmp_path / "endless").exists, "the second op runs")
    op = psutil.Process(int((tmp_path / "endless").read_text()))
    worker = worker_of(instance, run_id)
    assert op.parent() == worker, "forked from the run's process, which has imported everything"
    assert instance.run_launcher.check_run_worker_health(found(instance, run_id)).status == WorkerStatus.RUNNING
    assert instance.run_launcher.terminate(run_id)
    await_end(instance, run_id, DagsterRunStatus.CANCELED)
    wait_for(lambda: not op.is_running() and not worker.is_running(), "both processes end")


def test_r10_run_monitoring_misses_a_process_that_was_killed(instance: DagsterInstance, tmp_path: Path) -> None:
    run_id = launched(instance, endless_job, tmp_path, in_process=True)
    wait_for((tmp_path / "endless").exists, "the second op runs")
    worker = worker_of(instance, run_id)
    worker.kill()
    wait_for(lambda: not worker.is_running(), "it is dead")
    health = instance.run_launcher.check_run_worker_health(found(instance, run_id))
    assert health.status == WorkerStatus.FAILED
    assert f":{worker.pid}:" in str(health.msg)
    assert not instance.run_launcher.terminate(run_id), "there is nothing to interrupt"
    instance.report_run_canceled(found(instance, run_id))
