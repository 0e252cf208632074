"""R10: the embedded stack's code server loads pipeline files anew when they change, and says what is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import ListRepositoriesResponse
from dagster._serdes import deserialize_value

from hudi_ingest.embedded.processes import accepts_connections, free_port, start, stop, wait_until
from hudi_ingest.home import HOME_VARIABLE, PIPELINES_VARIABLE
from hudi_ingest_tests.support.waiting import wait_for

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


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    write(folder, "payments", PIPELINE)
    return folder


@pytest.fixture
def client(pipelines: Path, tmp_path: Path) -> Iterator[DagsterGrpcClient]:
    port = free_port()
    server = start(
        "code server",
        [sys.executable, "-m", "hudi_ingest.orchestration.code_server", str(port)],
        log=tmp_path / "code-server.log",
        env={**os.environ, HOME_VARIABLE: str(tmp_path / "home"), PIPELINES_VARIABLE: str(pipelines)},
    )
    try:
        wait_until(lambda: accepts_connections(port), what="it serves", timeout_seconds=120, records_to_watch=[server])
        yield DagsterGrpcClient(host="127.0.0.1", port=port)
    finally:
        stop([server])


def loaded(client: DagsterGrpcClient) -> str:
    """`loaded`, or why the pipelines could not be; "" while the server is being replaced."""
    try:
        answer = deserialize_value(client.list_repositories())
    except DagsterUserCodeUnreachableError:
        return ""
    return "loaded" if isinstance(answer, ListRepositoriesResponse) else str(answer)


def test_r10_changed_pipelines_are_loaded_without_a_word(client: DagsterGrpcClient, pipelines: Path) -> None:
    first = client.get_server_id()
    assert loaded(client) == "loaded"

    write(pipelines, "payments", {**PIPELINE, "topic": "x"})
    wait_for(lambda: "topic: unknown key" in loaded(client), "what is wrong is shown")

    write(pipelines, "payments", PIPELINE)
    wait_for(lambda: loaded(client) == "loaded", "the corrected file is loaded")
    assert client.get_server_id() != first, "the webserver and the daemon see by it that there is something new"
