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
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.rest.models import LossBody
from hudi_ingest.rest.pipeline_routes import _losses
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
    for name, topics in (("listed", {"topics": ["a", "b"]}), ("shop", {"topics": None, "topics_pattern": r"shop\..+"})):
        of_topics = document(
            name=f"{name}_{{topic}}",
            source__bootstrap_servers=silent,
            source__request_timeout_seconds=0.5,
            table__base_path=str(root / name / "{topic}"),
            **{f"source__{key}": value for key, value in topics.items()},
        )
        (home.pipelines / f"{name}.yaml").write_text(yaml.safe_dump(of_topics))
    (home.pipelines / "broken.yaml").write_text("name: broken\nsource: 3\n")
    with running_rest_api(home) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/pipelines/orders/status", None),
        ("GET", "/pipelines/orders/plan", None),
        ("POST", "/pipelines/shop/topics/refresh", None),
        ("DELETE", "/pipelines/shop/topics/shop.gone", None),
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
    assert time.monotonic() - began < 60
    asking.join(240)
    (answer,) = answers
    assert (answer.status, answer.body["error"]) == (503, "KafkaUnreachable")
    assert silent in answer.body["detail"]
    assert int(answer.headers["retry-after"]) > 0


def test_one_pipeline_does_not_hide_the_others(api: RestApi) -> None:
    states = {state["pipeline"]: state["error"] for state in api.ask("GET", "/status").body}
    assert set(states) == {"orders", "listed_a", "listed_b", "broken"}
    assert "within 0.5 s" in states["orders"]
    assert "source: must be a mapping" in states["broken"]
    answer = api.ask("GET", "/pipelines/broken/status")
    assert (answer.status, answer.body["title"]) == (409, "The pipeline file is broken")


def test_the_topics_of_a_template_are_listed_without_a_broker(api: RestApi) -> None:
    listed = api.ask("GET", "/pipelines/listed/topics").body
    assert [(topic["topic"], topic["pipeline"], topic["missing"]) for topic in listed] == [
        ("a", "listed_a", None),
        ("b", "listed_b", None),
    ]
    assert api.ask("GET", "/pipelines/shop/topics").body == []


def test_what_is_wrong_with_the_installation_is_an_answer_and_no_error(api: RestApi, silent: str) -> None:
    answer = api.ask("GET", "/doctor")
    assert (answer.status, answer.body["state"]) == (200, "problem")
    problems = {found["subject"]: found["text"] for found in answer.body["diagnoses"] if found["state"] == "problem"}
    assert "source: must be a mapping" in str(problems)
    assert silent in problems["pipeline orders"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/pipelines/nobody/replays", {"transaction": "t"}, 404, "no pipeline is called 'nobody'"),
        ("/pipelines/orders/replays", {"transaction": "t"}, 409, "no commit of it"),
        ("/pipelines/orders/replays", {}, 422, "body: give one of: `offsets`; `times`; `transaction` (replay only)"),
        (
            "/pipelines/orders/backfills",
            {"offsets": {"topic": "orders", "partition": 0, "start": 2, "end": 2}},
            422,
            "is not before",
        ),
        ("/pipelines/orders/backfills", {"times": {"start": "2026-01-31"}}, 422, "times.start"),
        ("/pipelines/orders/backfills", {"offset": 3}, 422, "offset: Extra inputs"),
        ("/pipelines/orders/accept-loss", {}, 422, "at least one partition or topic"),
        ("/pipelines/orders/pause", None, 503, "no Dagster instance is configured"),
        ("/pipelines/orders/schema-change/approve", {}, 422, "fingerprint: Field required"),
        ("/pipelines/orders/savepoints", {"why": "x"}, 422, "why: Extra inputs"),
        ("/pipelines/nobody/savepoints", {}, 404, "no pipeline is called 'nobody'"),
        ("/pipelines/listed/topics/refresh", None, 409, "listed.yaml makes no pipelines of topics that appear"),
        ("/pipelines/orders/topics/refresh", None, 404, "no template is called 'orders'"),
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


def test_x4_a_body_says_where_stopped_partitions_go_on() -> None:
    partitions = [{"topic": "orders", "partition": number} for number in range(4)]
    places: list[dict[str, Any]] = [{}, {"resume_at": 7}, {"resume_at": "end"}, {"resume_at": "first"}]
    asked = [{**partition, **place} for partition, place in zip(partitions, places, strict=True)]
    named, topics, resumes = _losses(LossBody.model_validate({"partitions": asked, "topics": ["returns"]}))
    assert named == [TopicPartition("orders", 0), TopicPartition("orders", 3)]
    assert (topics, resumes) == (["returns"], {TopicPartition("orders", 1): 7, TopicPartition("orders", 2): "end"})
    for wrong in (-1, "later"):
        with pytest.raises(ValueError, match="resume_at"):
            LossBody.model_validate({"partitions": [{**partitions[0], "resume_at": wrong}]})
