"""What is asked of brokers and tables over REST: errors as problems, and nobody waits for another's broker."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hudi_ingest.home.folder import Home
from hudi_ingest_tests.support.pipeline_files import document
from hudi_ingest_tests.support.rest_api import Answer, RestApi, running_rest_api

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """A broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def api(silent: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestApi]:
    root = tmp_path_factory.mktemp("rest")
    home = Home(root / "home", root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
    home.pipelines.mkdir()
    slow = document(
        source__bootstrap_servers=silent, source__request_timeout_seconds=0.5, table__base_path=str(root / "table")
    )
    (home.pipelines / "orders.yaml").write_text(yaml.safe_dump(slow))
    (home.pipelines / "broken.yaml").write_text("name: broken\nsource: 3\n")
    with running_rest_api(home) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/pipelines/orders/status", None),
        ("GET", "/pipelines/orders/plan", None),
        ("POST", "/pipelines/orders/sample", {}),
        (
            "POST",
            "/pipelines/orders/replays",
            {"times": {"start": "2026-01-31T00:00:00Z", "end": "2026-02-01T00:00:00Z"}},
        ),
        ("POST", "/pipelines/orders/accept-loss", {"topics": ["orders"]}),
    ],
)
def test_a_broker_that_does_not_answer_in_time_is_503_with_the_reason(
    api: RestApi, silent: str, method: str, path: str, body: Any
) -> None:
    answers: list[Answer] = []
    asking = threading.Thread(target=lambda: answers.append(api.ask(method, path, body)))
    asking.start()
    began = time.monotonic()
    assert api.ask("GET", "//healthz").status == 200, "answered meanwhile"
    assert time.monotonic() - began < 5
    asking.join(60)
    (answer,) = answers
    assert (answer.status, answer.body["error"]) == (503, "KafkaUnreachable")
    assert silent in answer.body["detail"]
    assert int(answer.headers["retry-after"]) > 0


def test_one_pipeline_does_not_hide_the_others(api: RestApi) -> None:
    states = {state["pipeline"]: state["error"] for state in api.ask("GET", "/status").body}
    assert set(states) == {"orders", "broken"}
    assert "within 0.5 s" in states["orders"]
    assert "source: must be a mapping" in states["broken"]
    answer = api.ask("GET", "/pipelines/broken/status")
    assert (answer.status, answer.body["title"]) == (409, "The pipeline file is broken")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/pipelines/nobody/replays", {"transaction": "t"}, 404, "no pipeline is called 'nobody'"),
        ("/pipelines/orders/replays", {"transaction": "t"}, 409, "no commit of it"),
        ("/pipelines/orders/replays", {}, 422, "give one of offsets, times and transaction"),
        (
            "/pipelines/orders/backfills",
            {"offsets": {"topic": "orders", "partition": 0, "start": 2, "end": 2}},
            422,
            "is not before",
        ),
        ("/pipelines/orders/backfills", {"times": {"start": "2026-01-31"}}, 422, "times.start"),
        ("/pipelines/orders/backfills", {"offset": 3}, 422, "offset: Extra inputs"),
        ("/pipelines/orders/accept-loss", {}, 422, "at least one partition or topic"),
        ("/pipelines/orders/pause", None, 503, "there is no Dagster to tell"),
        ("/requests/none/cancel", None, 404, "no request 'none'"),
        ("/nowhere", None, 404, "Not Found"),
    ],
)
def test_what_is_wrong_is_said(api: RestApi, path: str, body: Any, status: int, words: str) -> None:
    answer = api.ask("POST", path, body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.body["status"] == status
    assert words in answer.body["detail"]


def test_syntax_that_is_not_json_is_400(api: RestApi) -> None:
    answer = api.ask("POST", "/pipelines/orders/replays", "{", Content_Type="application/json")
    assert (answer.status, answer.body["title"]) == (400, "Not JSON")


def test_each_operation_is_described(api: RestApi) -> None:
    document = api.ask("GET", "//openapi.json").body
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names)) > 20
    for operation in operations:
        assert {"summary", "description", "tags"} <= operation.keys(), operation
        assert all("description" in parameter for parameter in operation.get("parameters", ())), operation
        errors = operation["responses"]["default"]["content"]
        assert errors == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    used = set(_references(document))
    assert used == set(document["components"]["schemas"]), "all that is described is used, and the other way round"


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].removeprefix("#/components/schemas/")
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _references(item)
