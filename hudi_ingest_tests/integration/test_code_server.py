"""R10: the embedded stack's code server loads pipeline files anew when they change, and says what is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import ListRepositoriesResponse
from dagster._serdes import deserialize_value

from hudi_ingest.home.folder import HOME_VARIABLE, PIPELINES_VARIABLE, Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import ProcessRecord, accepts_connections, start, stop, wait_until
from hudi_ingest.operations.topic_discovery import announce
from hudi_ingest.orchestration import switch
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE
from hudi_ingest.orchestration.reports import overview
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import COORDINATOR
from hudi_ingest_tests.support import waiting

wait_for = partial(waiting.wait_for, pause_seconds=1.0)
"""Each look asks the server that is loading for all that it has loaded."""

PIPELINE: dict[str, object] = {
    "name": "payments",
    "source": {"bootstrap_servers": "127.0.0.1:9", "topics": ["payments"], "format": "json"},
    "table": {"base_path": "/data/payments", "schema": "id string not null, day date", "partition_by": ["day"]},
}


def write(folder: Path, name: str, content: object) -> None:
    """As editors do: the file is never seen half written."""
    partial = folder / f"{name}.partial"
    partial.write_text(yaml.safe_dump(content))
    partial.rename(folder / f"{name}.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("code")


@pytest.fixture(scope="module")
def pipelines(folder: Path) -> Path:
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    write(pipelines, "payments", PIPELINE)
    return pipelines


@pytest.fixture(scope="module")
def socket(folder: Path) -> Path:
    return folder / "code-server.sock"


@pytest.fixture(scope="module")
def home(folder: Path) -> Path:
    return folder / "home"


@pytest.fixture(scope="module")
def server(pipelines: Path, folder: Path, socket: Path, home: Path) -> Iterator[ProcessRecord]:
    """The server that the tests of this module change files under, one after another."""
    server = start(
        "code server",
        [sys.executable, "-m", "hudi_ingest.orchestration.code_server", str(socket)],
        log=folder / "code-server.log",
        env={**os.environ, HOME_VARIABLE: str(home), PIPELINES_VARIABLE: str(pipelines)},
    )
    try:
        wait_until(
            lambda: accepts_connections(socket), what="it serves", timeout_seconds=300, records_to_watch=[server]
        )
        yield server
    finally:
        # Dagster's server ends some seconds after it was asked to.
        stop([server], grace_seconds=0)


def sensors(client: DagsterGrpcClient) -> dict[str, str]:
    """Descriptions of the pipelines' sensors that are loaded; none while the server is being replaced."""
    found = loaded(client)
    return {each.name: each.description or "" for each in found.sensors if each.name != overview.NAME} if found else {}


def tables(client: DagsterGrpcClient) -> set[str]:
    """The assets of pipelines and of files that are not loaded."""
    found = loaded(client)
    names = {each.asset_key.path[0] for each in found.asset_nodes if len(each.asset_key.path) == 1} if found else set()
    return names - {overview.NAME}


def loaded(client: DagsterGrpcClient) -> RepositorySnap | None:
    try:
        answer = deserialize_value(client.list_repositories())
        if not isinstance(answer, ListRepositoriesResponse):
            return None
        (symbol,) = answer.repository_symbols
        location = GrpcServerCodeLocationOrigin(host="localhost", socket=client.socket)
        reply = client.external_repository(RemoteRepositoryOrigin(location, symbol.repository_name))
        return deserialize_value(reply, RepositorySnap)
    except DagsterUserCodeUnreachableError:
        return None


def test_r10_changed_pipelines_are_loaded_without_a_word_a_wrong_one_stops_no_other_and_a_killed_child_is_replaced(
    server: ProcessRecord, socket: Path, pipelines: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = DagsterGrpcClient(socket=str(socket))
    first = client.get_server_id()
    assert list(sensors(client)) == [COORDINATOR]
    assert "transactions of 1 pipeline" in sensors(client)[COORDINATOR]
    assert tables(client) == {"payments"}

    write(pipelines, "orders", {**PIPELINE, "name": "orders", "topic": "x"})
    wait_for(lambda: tables(client) == {"orders", "payments"}, "the new file is seen")
    assert "transactions of 1 pipeline" in sensors(client)[COORDINATOR], "the wrong one shows as an asset only"
    assert client.get_server_id() != first, "the webserver and the daemon see by it that there is something new"

    corrected = {**PIPELINE, "name": "orders", "table": {"base_path": "/data/orders", "schema": "id string"}}
    template = {
        **PIPELINE,
        "name": "shop_{topic}",
        "enabled": True,
        "source": {"bootstrap_servers": "127.0.0.1:9", "topics_pattern": r"shop\..+"},
        "table": {"base_path": "/data/{topic}", "schema": "id string"},
    }
    write(pipelines, "shop", template)
    write(pipelines, "orders", corrected)
    two = "transactions of 2 pipelines"
    wait_for(lambda: two in sensors(client).get(COORDINATOR, ""), "the corrected file is loaded")

    monkeypatch.setenv(HOME_VARIABLE, str(home))
    with Ledger.open(Home.from_environment().ledger_url) as ledger:
        ledger.topics.remember("shop_{topic}", ["shop.orders"], datetime.now(timezone.utc))
    announce(Home.from_environment(), datetime.now(timezone.utc))
    wait_for(lambda: "shop_shop_orders" in tables(client), "a topic that appeared has its pipeline")

    second = client.get_server_id()
    children = psutil.Process(server.pid).children
    wait_for(lambda: len(children()) == 1, "the one that was replaced has ended")
    children()[0].kill()
    wait_for(lambda: len(tables(client)) == 3 and client.get_server_id() != second, "another process has loaded them")
    assert Path(server.log).read_text().count("has died; starting another") == 1


def test_k6_a_pipeline_is_turned_on_as_soon_as_its_file_is_written(
    server: ProcessRecord, socket: Path, pipelines: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DAGSTER_VARIABLE, raising=False)
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    monkeypatch.setenv(PIPELINES_VARIABLE, str(pipelines))
    own = Home.from_environment()
    own.dagster.mkdir(parents=True, exist_ok=True)
    (own.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    workspace = {"load_from": [{"grpc_server": {"host": "localhost", "socket": str(socket), "location_name": "own"}}]}
    (own.dagster / "workspace.yaml").write_text(yaml.safe_dump(workspace))
    write(
        pipelines, "refunds", {**PIPELINE, "name": "refunds", "table": {"base_path": "/data/r", "schema": "id string"}}
    )
    refunds = load_pipeline(pipelines / "refunds.yaml")
    assert switch.switch(own, refunds, True)
    assert switch.switched(own).is_on(refunds)
    assert not switch.switch(own, refunds, True)
    assert switch.switch(own, refunds, False)
    assert switch.switched(own).is_paused(refunds)


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
        wait_for(lambda: len(process.children()) == 1, "a child has the code")
        children = process.children(recursive=True)
        process.terminate()
        _, left = psutil.wait_procs([process, *children], timeout=60)
        assert not left
    finally:
        stop([server], grace_seconds=0)
    assert "starting another" not in log.read_text()
