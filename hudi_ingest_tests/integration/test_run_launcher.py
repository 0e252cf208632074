"""R10: a run's process is forked, is found by its tag, can be ended, and is missed when it dies."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import yaml
from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    JobDefinition,
    RunsFilter,
    reconstructable,
)
from dagster._core.errors import DagsterInvariantViolationError
from dagster._core.execution.stats import StepEventStatus
from dagster._core.launcher.base import WorkerStatus
from dagster._core.test_utils import instance_for_test
from dagster._daemon.monitoring.run_monitoring import monitor_started_run

from hudi_ingest.home.liveness import IDLE_RUN_NAME
from hudi_ingest.ledger.owner import Owner, living_process
from hudi_ingest.orchestration import run_launcher, run_processes, tags
from hudi_ingest.orchestration.coordinator.runs import report_dead
from hudi_ingest.orchestration.run_processes import RunProcesses, interrupts
from hudi_ingest_tests.support import launched_job
from hudi_ingest_tests.support.launched_job import await_end, endless_job, failing_job, found, run_config, short_job
from hudi_ingest_tests.support.waiting import suspend, wait_for


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterInstance]:
    embedded = yaml.safe_load(resources.files("hudi_ingest.local").joinpath("dagster.yaml").read_text())
    overrides = {name: embedded[name] for name in ("run_launcher", "compute_logs", "python_logs")}
    overrides["compute_logs"]["config"] = {"base_dir": str(tmp_path_factory.mktemp("logs"))}
    with instance_for_test(overrides=overrides) as found:
        yield found


@pytest.fixture(autouse=True)
def forked_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of these tests stand for those of the pipelines."""
    monkeypatch.setattr(run_launcher, "FORKED_MODULE", launched_job.__name__)


def created(instance: DagsterInstance, job: JobDefinition, pids: Path, in_process: bool) -> DagsterRun:
    return instance.create_run_for_job(
        job,
        run_config=run_config(pids, *job.graph.node_dict),
        tags={tags.IN_PROCESS: "true"} if in_process else {},
        job_code_origin=reconstructable(job).get_python_origin(),
    )


def launched(instance: DagsterInstance, job: JobDefinition, pids: Path, in_process: bool) -> str:
    run = created(instance, job, pids, in_process)
    # The launcher asks no code server.
    instance.launch_run(run.run_id, workspace=cast("Any", None))
    return run.run_id


def worker_of(instance: DagsterInstance, run_id: str) -> psutil.Process:
    process = living_process(Owner.parse(found(instance, run_id).tags[tags.WORKER]))
    assert process is not None
    return process


def has_ended(worker: Owner) -> bool:
    return living_process(worker) is None


def is_idle(process: psutil.Process) -> bool:
    return process.name() == IDLE_RUN_NAME


def executed(instance: DagsterInstance, pids: Path) -> psutil.Process:
    """The idle process that has executed a run of the short job."""
    run_id = launched(instance, short_job, pids, in_process=True)
    await_end(instance, run_id, DagsterRunStatus.SUCCESS)
    process = worker_of(instance, run_id)
    wait_for(partial(is_idle, process), "the process waits for its next run")
    return process


@pytest.fixture
def processes(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunProcesses]:
    """The launcher's processes, none so far, which end after the test."""
    processes = RunProcesses(launched_job.__name__)
    monkeypatch.setattr(instance.run_launcher, "_processes", processes)
    yield processes
    processes.close()


@pytest.mark.tier(1)
def test_r10_a_process_executes_one_run_after_another(
    instance: DagsterInstance, tmp_path: Path, processes: RunProcesses
) -> None:
    process = executed(instance, tmp_path)
    # Nobody's run.
    process.send_signal(signal.SIGINT)
    assert executed(instance, tmp_path) == process
    endless = launched(instance, endless_job, tmp_path, in_process=True)
    wait_for((tmp_path / "endless").exists, "the second op runs")
    assert worker_of(instance, endless) == process
    other = executed(instance, tmp_path)
    assert other != process, "each has one run at a time"
    assert instance.run_launcher.terminate(endless)
    await_end(instance, endless, DagsterRunStatus.CANCELED)
    wait_for(lambda: not process.is_running(), "a process ends with a run that does not succeed")
    assert executed(instance, tmp_path) == other
    processes.close()
    wait_for(lambda: not other.is_running(), "the launcher has no more runs for it")


def test_r10_a_failed_run_has_the_next_executed_by_another_process(
    instance: DagsterInstance, tmp_path: Path, processes: RunProcesses
) -> None:
    failing = launched(instance, failing_job, tmp_path, in_process=True)
    await_end(instance, failing, DagsterRunStatus.FAILURE)
    pid = int((tmp_path / "first").read_text())
    assert executed(instance, tmp_path).pid != pid
    wait_for(lambda: not psutil.pid_exists(pid), "it ends with its run")


def test_r10_the_launching_process_ends_while_others_wait_for_their_next_run(
    instance: DagsterInstance, tmp_path: Path
) -> None:
    run = created(instance, short_job, tmp_path, in_process=True)
    code = f"""
from dagster import DagsterInstance, DagsterRunStatus
from hudi_ingest.orchestration.run_processes import RunProcesses
from hudi_ingest_tests.support.launched_job import await_end
with DagsterInstance.from_config({instance.root_directory!r}) as instance:
    RunProcesses({launched_job.__name__!r}).start(instance.get_ref(), {run.run_id!r}, "", keep=True)
    await_end(instance, {run.run_id!r}, DagsterRunStatus.SUCCESS)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    process = Owner.parse(found(instance, run.run_id).tags[tags.WORKER])
    wait_for(partial(has_ended, process), "the idle process has ended, too")


def test_r10_a_killed_process_is_given_no_run(
    instance: DagsterInstance, tmp_path: Path, processes: RunProcesses
) -> None:
    process = executed(instance, tmp_path)
    process.kill()
    wait_for(lambda: not process.is_running(), "it is dead")
    assert executed(instance, tmp_path) != process


def test_r10_a_run_whose_process_dies_before_it_has_begun_is_begun_by_another(
    instance: DagsterInstance, tmp_path: Path, processes: RunProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_processes, "_BEGINS_SECONDS", 60.0)
    process = executed(instance, tmp_path)
    suspend(process)
    with ThreadPoolExecutor(1) as pool:
        launching = pool.submit(launched, instance, short_job, tmp_path, in_process=True)
        wait_for(lambda: not processes._kept[0].is_idle, "it is given the run")
        process.kill()
        run_id = launching.result()
    await_end(instance, run_id, DagsterRunStatus.SUCCESS)
    assert worker_of(instance, run_id) != process


def test_r10_an_interrupt_that_comes_as_its_run_ends_does_not_meet_the_next_run(
    instance: DagsterInstance, tmp_path: Path, processes: RunProcesses
) -> None:
    with interrupts(instance):
        # As `terminate` does, which has found that the run has not ended.
        run_id = launched(instance, short_job, tmp_path, in_process=True)
        await_end(instance, run_id, DagsterRunStatus.SUCCESS)
        process = worker_of(instance, run_id)
        assert not is_idle(process)
        process.send_signal(signal.SIGINT)

    def has_dealt_with_it() -> bool:
        """It has ended, or the end of its run has swallowed the interrupt, and it ignores any other while it waits."""
        with suppress(psutil.NoSuchProcess):
            return is_idle(process)
        return True

    wait_for(has_dealt_with_it, "the interrupt has met its own run's process")
    executed(instance, tmp_path)


@pytest.mark.parametrize("limit", ["_KEPT_SECONDS", "_OLDEST_SECONDS"])
def test_r10_a_process_is_kept_for_a_while(
    instance: DagsterInstance, tmp_path: Path, processes: RunProcesses, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(run_processes, limit, 0.1)
    run_id = launched(instance, short_job, tmp_path, in_process=True)
    await_end(instance, run_id, DagsterRunStatus.SUCCESS)
    if limit == "_OLDEST_SECONDS":
        # Only the next run ends it.
        executed(instance, tmp_path)
    process = Owner.parse(found(instance, run_id).tags[tags.WORKER])
    wait_for(partial(has_ended, process), "it is given no more runs")


def test_r10_ops_share_the_runs_process_or_are_forked_from_it(
    instance: DagsterInstance, tmp_path: Path, processes: RunProcesses
) -> None:
    pids = {}
    for in_process in (True, False):
        folder = tmp_path / str(in_process)
        folder.mkdir()
        run_id = launched(instance, short_job, folder, in_process)
        await_end(instance, run_id, DagsterRunStatus.SUCCESS)
        worker = Owner.parse(found(instance, run_id).tags[tags.WORKER])
        pids[in_process] = {*(each.read_text() for each in folder.glob("[a-z]*")), worker.ident.split(":")[1]}
        processes.close()
        wait_for(partial(has_ended, worker), "the run's process ends")
        assert not instance.run_launcher.terminate(run_id), "it has ended"
    assert [len(pids[each]) for each in (True, False)] == [1, 3]


@pytest.mark.parametrize("in_process", [True, False])
def test_r10_what_ops_and_their_children_print_is_kept_without_a_process_for_it(
    instance: DagsterInstance, tmp_path: Path, in_process: bool
) -> None:
    run_id = launched(instance, short_job, tmp_path, in_process)
    await_end(instance, run_id, DagsterRunStatus.SUCCESS)
    logs = instance.compute_log_manager
    events = [each.dagster_event for each in instance.all_logs(run_id) if each.dagster_event]
    captured = [each.logs_captured_data for each in events if each.event_type == DagsterEventType.LOGS_CAPTURED]
    assert len(captured) == (1 if in_process else 2)
    out, err = b"", b""
    for each in captured:
        log_key = logs.build_log_key_for_run(run_id, each.file_key)
        assert logs.is_capture_complete(log_key)
        data = logs.get_log_data(log_key)
        out, err = out + (data.stdout or b""), err + (data.stderr or b"")
    for name in ("first", "last"):
        assert f"{name} has printed\n".encode() in out
        assert f"a child of {name} has printed\n".encode() in err
    levels = {each.level for each in instance.all_logs(run_id) if not each.is_dagster_event}
    assert logging.DEBUG not in levels


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


@pytest.mark.parametrize("ends_as", [DagsterRunStatus.CANCELED, DagsterRunStatus.FAILURE])
def test_r10_a_run_is_ended_although_its_op_is_stopped(
    instance: DagsterInstance, tmp_path: Path, ends_as: DagsterRunStatus
) -> None:
    run_id = launched(instance, endless_job, tmp_path, in_process=False)
    wait_for((tmp_path / "endless").exists, "the second op runs")
    op, worker = psutil.Process(int((tmp_path / "endless").read_text())), worker_of(instance, run_id)
    suspend(op)
    try:
        if ends_as is DagsterRunStatus.FAILURE:
            # As the coordinator does, whose deadline has passed.
            report_dead(instance, found(instance, run_id), "its deadline passed")
        else:
            assert instance.run_launcher.terminate(run_id)
        wait_for(lambda: not op.is_running() and not worker.is_running(), "both processes end")
    finally:
        if op.is_running():
            op.kill()
    # Its process may report that it was interrupted after the coordinator's report.
    assert found(instance, run_id).status in {ends_as, DagsterRunStatus.CANCELED}
    (endless,) = instance.get_run_step_stats(run_id, ["endless"])
    assert endless.status is StepEventStatus.FAILURE


def test_r10_a_run_that_hangs_is_ended_at_its_max_runtime(instance: DagsterInstance, tmp_path: Path) -> None:
    run_id = launched(instance, endless_job, tmp_path, in_process=False)
    wait_for((tmp_path / "endless").exists, "the second op runs")
    op, worker = psutil.Process(int((tmp_path / "endless").read_text())), worker_of(instance, run_id)
    instance.add_run_tags(run_id, {tags.MAX_RUNTIME: "1"})
    logger = logging.getLogger("run monitoring")

    def is_ended_by_monitoring() -> bool:
        (record,) = instance.get_run_records(RunsFilter(run_ids=[run_id]))
        if record.dagster_run.status is DagsterRunStatus.STARTED:
            # The workspace is for runs that are resumed.
            monitor_started_run(instance, cast("Any", None), record, logger)
        return found(instance, run_id).is_finished

    wait_for(is_ended_by_monitoring, "run monitoring ends it", pause_seconds=0.2)
    assert found(instance, run_id).status is DagsterRunStatus.FAILURE
    assert "exceeding maximum runtime of 1 seconds" in str([each.message for each in instance.all_logs(run_id)])
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


@pytest.mark.parametrize("differs", ["module", "executable"])
def test_r10_runs_of_other_code_locations_are_left_to_their_code_servers(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: str
) -> None:
    origin = reconstructable(short_job).get_python_origin()
    if differs == "module":
        monkeypatch.setattr(run_launcher, "FORKED_MODULE", "hudi_ingest.orchestration.definitions")
    else:
        other = origin.repository_origin._replace(executable_path="/opt/others/bin/python")
        origin = origin._replace(repository_origin=other)
    config = run_config(tmp_path, *short_job.graph.node_dict)
    run = instance.create_run_for_job(short_job, run_config=config, job_code_origin=origin)
    # Dagster's own launcher looks for the code server in the workspace, and here is none.
    with pytest.raises(DagsterInvariantViolationError, match="DefaultRunLauncher requires a workspace"):
        instance.launch_run(run.run_id, workspace=cast("Any", None))
    instance.report_run_canceled(found(instance, run.run_id))
    assert not instance.run_launcher.terminate(run.run_id)
