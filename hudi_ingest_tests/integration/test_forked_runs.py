"""R10: runs that Dagster's own launcher asks the code server for are forked, can be ended, and are missed when they die."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from dagster import DagsterInstance, DagsterRunStatus, DefaultRunLauncher, reconstructable
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import instance_for_test
from dagster._grpc.client import DagsterGrpcClient

from hudi_ingest.home.folder import HOME_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest.local.processes import ProcessRecord, accepts_connections, start, stop, wait_until
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.code_server import _FORKS_RUNS
from hudi_ingest_tests.support import launched_job
from hudi_ingest_tests.support.launched_job import await_end, endless_job, run_config
from hudi_ingest_tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def instance() -> Iterator[DagsterInstance]:
    with instance_for_test() as found:
        yield found


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "code.sock"


@pytest.fixture(scope="module")
def server(socket: Path) -> Iterator[ProcessRecord]:
    module = ["--module-name", launched_job.__name__, "--attribute", "definitions"]
    command = [sys.executable, "-c", _FORKS_RUNS, "api", "grpc", "--socket", str(socket), *module]
    server = start("code", command, log=socket.with_name("code.log"), env=dict(os.environ))
    try:
        wait_until(
            lambda: accepts_connections(socket), what="it serves", timeout_seconds=120, records_to_watch=[server]
        )
        yield server
    finally:
        stop([server])


def launched(instance: DagsterInstance, socket: Path, folder: Path) -> tuple[str, psutil.Process]:
    """Launch an endless run; return its id and its process."""
    location = GrpcServerCodeLocationOrigin(host="localhost", socket=str(socket), location_name="code")
    run = instance.create_run_for_job(
        endless_job,
        run_config=run_config(folder, "first", "endless"),
        tags={tags.IN_PROCESS: "true"},
        remote_job_origin=RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), endless_job.name),
        job_code_origin=reconstructable(endless_job).get_python_origin(),
    )
    client = DagsterGrpcClient(socket=str(socket))
    DefaultRunLauncher.launch_run_from_grpc_client(instance, run, client)
    wait_for((folder / "endless").exists, "its second op is at work")
    return run.run_id, psutil.Process(int((folder / "endless").read_text()))


def test_r10_a_run_of_dagsters_launcher_is_forked_and_can_be_ended(
    instance: DagsterInstance, server: ProcessRecord, socket: Path, tmp_path: Path
) -> None:
    run_id, process = launched(instance, socket, tmp_path)
    forking = process.parent()
    assert forking is not None
    assert "multiprocessing.forkserver" in " ".join(forking.cmdline())
    assert forking.parent() == psutil.Process(server.pid)
    assert instance.run_launcher.terminate(run_id)
    await_end(instance, run_id, DagsterRunStatus.CANCELED)
    wait_for(lambda: not process.is_running(), "its process ends")


def test_r10_a_forked_run_that_is_killed_has_failed(
    instance: DagsterInstance, server: ProcessRecord, socket: Path, tmp_path: Path
) -> None:
    run_id, process = launched(instance, socket, tmp_path)
    process.kill()
    await_end(instance, run_id, DagsterRunStatus.FAILURE)
    messages = [each.dagster_event.message or "" for each in instance.all_logs(run_id) if each.dagster_event]
    assert any("was terminated by signal 9 (SIGKILL)" in message for message in messages), messages


def test_r10_a_killed_fork_server_is_replaced(
    instance: DagsterInstance, server: ProcessRecord, socket: Path, tmp_path: Path
) -> None:
    run_id, process = launched(instance, socket, tmp_path)
    forking = process.parent()
    assert forking is not None
    forking.kill()
    # Nobody can say any more whether its process lives. If so, the next transaction fences it.
    await_end(instance, run_id, DagsterRunStatus.FAILURE)
    process.kill()
    later = tmp_path / "later"
    later.mkdir()
    run_id, _ = launched(instance, socket, later)
    instance.run_launcher.terminate(run_id)
    await_end(instance, run_id, DagsterRunStatus.CANCELED)


def test_r10_a_code_server_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    socket, log = tmp_path / "code.sock", tmp_path / "code.log"
    home = {HOME_VARIABLE: str(tmp_path / "home"), PIPELINES_VARIABLE: str(tmp_path / "pipelines")}
    command = [sys.executable, "-m", "hudi_ingest.cli", "code-server", "--socket", str(socket)]
    server = start("code server", command, log=log, env={**os.environ, **home})
    try:
        wait_until(
            lambda: accepts_connections(socket), what="it serves", timeout_seconds=120, records_to_watch=[server]
        )
        process = psutil.Process(server.pid)
        wait_for(lambda: len(process.children(recursive=True)) >= 2, "a fork server is there")
        children = process.children(recursive=True)
        process.terminate()
        _, left = psutil.wait_procs([process, *children], timeout=60)
        assert not left
    finally:
        stop([server], grace_seconds=0)
    assert "starting another" not in log.read_text()
