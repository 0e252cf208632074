"""What Dagster's own web application, served by uvicorn, is asked through the wrapper, and what it never gets to see."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn
from dagster import AssetKey, DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.applications import Starlette
from starlette.routing import Route
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from hudi_ingest.local.processes import free_port
from hudi_ingest.orchestration.embedded.web_access import OwnPageOnly, hosts_from
from hudi_ingest_tests.support.waiting import wait_for

JSON = {"Content-Type": "application/json"}
LIMITED = "evil"
MUTATION = f'mutation {{ setConcurrencyLimit(concurrencyKey: "{LIMITED}", limit: 1) }}'
BY_URL = f"/graphql?query={quote(MUTATION)}"
EVIL = "evil.example"


@dataclass
class Page:
    """A page that is served on a port of this machine, also under the name ingest.example.com."""

    instance: DagsterInstance
    app: Starlette
    port: int

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, headers: dict[str, str], body: str = "") -> tuple[int, str, dict[str, str]]:
        """Status, text and headers of the answer; what `headers` does not name is not sent."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": self.host, "Content-Length": str(len(body)), **headers}.items():
                connection.putheader(name, value)
            connection.endheaders(body.encode())
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), {key.lower(): value for key, value in answer.getheaders()}
        finally:
            connection.close()

    def graphql(self, query: str, **headers: str) -> Any:
        status, text, _ = self.ask("POST", "/graphql", {**JSON, **headers}, json.dumps({"query": query}))
        assert status == 200, text
        return json.loads(text)["data"]

    def was_changed(self) -> bool:
        """Whether the mutation of these tests was run."""
        return LIMITED in self.instance.event_log_storage.get_concurrency_keys()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("dagster")
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    port = free_port()
    with (
        DagsterInstance.from_config(str(folder)) as instance,
        WorkspaceProcessContext(instance, workspace_load_target=EmptyWorkspaceTarget()) as context,
    ):
        app = create_app_from_workspace_process_context(context)
        guarded = OwnPageOnly(app, port, ["ingest.example.com"])
        server = uvicorn.Server(uvicorn.Config(guarded, port=port, log_level="warning"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        wait_for(lambda: server.started, "the page is served")
        yield Page(instance, app, port)
        server.should_exit = True
        thread.join(300)


def test_the_own_page_is_served_under_its_names_and_shown_in_no_other(page: Page) -> None:
    for host in (
        page.host,
        f"localhost:{page.port}",
        f"LOCALHOST:{page.port}",
        f"[::1]:{page.port}",
        "ingest.example.com",
    ):
        status, text, headers = page.ask("GET", "/runs", {"Host": host})
        assert status == 200
        assert "<html" in text
        assert headers["x-frame-options"] == "SAMEORIGIN"
        assert page.graphql("{ __typename }", Host=host, Origin=f"http://{host}") == {"__typename": "Query"}
    assert page.graphql("{ __typename }", Origin="https://ingest.example.com"), "a proxy that sends its own Host"
    assert page.graphql("{ __typename }", **{"Content-Type": "application/json; charset=utf-8"})


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/graphql", {**JSON, "Host": EVIL}, 403),
        ("POST", "/graphql", {**JSON, "Host": "{evil}:{port}"}, 403),
        ("POST", "/graphql", {**JSON, "Host": "127.0.0.1"}, 403),
        ("POST", "/graphql", {**JSON, "Host": "localhost:1"}, 403),
        ("POST", "/graphql", {**JSON, "Host": "localhost:{port}.{evil}"}, 403),
        ("POST", "/graphql", {**JSON, "Host": ""}, 403),
        ("POST", "/graphql", {**JSON, "Origin": "http://{evil}"}, 403),
        ("POST", "/graphql", {**JSON, "Origin": "http://127.0.0.1:1"}, 403),
        ("POST", "/graphql", {**JSON, "Origin": "http://localhost:{port}"}, 403),
        ("POST", "/graphql", {**JSON, "Origin": "http://127.0.0.1:{port}.{evil}"}, 403),
        ("POST", "/graphql", {**JSON, "Origin": "http://{evil}@127.0.0.1:{port}"}, 403),
        ("POST", "/graphql", {**JSON, "Origin": "file://127.0.0.1:{port}"}, 403),
        ("POST", "/graphql", {**JSON, "Origin": "null"}, 403),
        ("POST", "/graphql", {**JSON, "Origin": ""}, 403),
        ("GET", BY_URL, {"Host": EVIL}, 403),
        ("GET", "/", {"Host": EVIL}, 403),
        ("GET", "/", {"Origin": "http://{evil}"}, 403),
        ("GET", BY_URL, {}, 405),
        ("GET", BY_URL, {"Accept": "*/*"}, 405),
        ("GET", BY_URL, {**JSON}, 405),
        ("GET", BY_URL.replace("graphql", "%67raphql"), {}, 405),
        ("HEAD", BY_URL, {}, 405),
        ("POST", BY_URL, {}, 415),
        ("POST", BY_URL, {"Content-Type": "text/plain"}, 415),
        ("POST", BY_URL, {"Content-Type": "text/plain; application/json"}, 415),
        ("POST", BY_URL, {"Content-Type": "text/plain, application/json"}, 415),
        ("POST", BY_URL, {"Content-Type": "application/jsonp"}, 415),
        ("POST", BY_URL, {"Content-Type": "Application/JSON"}, 415),
        ("POST", BY_URL, {"Content-Type": "application/graphql"}, 415),
        ("POST", BY_URL, {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("POST", BY_URL, {"Content-Type": "multipart/form-data; boundary=application/json"}, 415),
    ],
)
def test_a_mutation_of_another_page_is_refused(
    page: Page, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    sent = {name: value.replace("{port}", str(page.port)).replace("{evil}", EVIL) for name, value in headers.items()}
    answer, text, _ = page.ask(method, path, sent, json.dumps({"query": MUTATION}) if method == "POST" else "")
    assert answer == status, text
    assert not page.was_changed()


def test_two_hosts_or_content_types_are_none(page: Page) -> None:
    for twice in (
        f"Host: {page.host}\r\nHost: {EVIL}",
        f"Host: {page.host}\r\nContent-Type: application/json\r\nContent-Type: text/plain",
    ):
        connection = HTTPConnection("127.0.0.1", page.port, timeout=120)
        connection.connect()
        connection.sock.sendall(
            f"POST {BY_URL} HTTP/1.1\r\n{twice}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        assert connection.sock.makefile("rb").readline().split()[1] in (b"400", b"403", b"415")
        connection.close()
    assert not page.was_changed()


def test_the_query_editor_is_shown_and_runs_nothing(page: Page) -> None:
    status, text, _ = page.ask("GET", BY_URL, {"Accept": "text/html,*/*"})
    assert status == 200
    assert "graphiql" in text.lower()
    assert not page.was_changed()


def test_every_route_that_changes_something_asks_for_json(page: Page) -> None:
    routes = [each for each in page.app.routes if isinstance(each, Route) and (each.methods or set()) - {"GET", "HEAD"}]
    paths = [each.path.replace("{asset_key:path}", "orders") for each in routes]
    assert "/report_asset_materialization/orders" in paths
    for path in paths:
        for headers in ({}, {"Content-Type": "text/plain"}, {"Origin": f"http://{EVIL}", **JSON}):
            assert page.ask("POST", path, headers)[0] in (403, 415), path
    key = AssetKey("orders")
    assert page.instance.get_latest_materialization_event(key) is None
    assert page.ask("POST", "/report_asset_materialization/orders", JSON, "{}")[0] == 200
    assert page.instance.get_latest_materialization_event(key) is not None


@pytest.mark.parametrize("headers", [{"Host": EVIL}, {"Origin": f"http://{EVIL}"}, {"Origin": "null"}])
def test_a_websocket_of_another_page_is_refused(page: Page, headers: dict[str, str]) -> None:
    at = f"ws://{headers.get('Host', page.host)}/graphql"
    origin = {name: value for name, value in headers.items() if name == "Origin"}
    with pytest.raises(InvalidStatus) as raised:
        connect(at, sock=socket.create_connection(("127.0.0.1", page.port)), proxy=None, additional_headers=origin)
    assert raised.value.response.status_code == 403


def test_a_websocket_of_the_own_page_is_subscribed(page: Page) -> None:
    start = {"query": "subscription { locationStateChangeEvents { event { eventType } } }"}
    headers = {"Origin": f"http://{page.host}"}
    with connect(
        f"ws://{page.host}/graphql", proxy=None, additional_headers=headers, subprotocols=[Subprotocol("graphql-ws")]
    ) as opened:
        opened.send(json.dumps({"type": "connection_init"}))
        assert json.loads(opened.recv(30))["type"] == "connection_ack"
        opened.send(json.dumps({"type": "start", "id": "1", "payload": start}))
        opened.send(json.dumps({"type": "start", "id": "2", "payload": {"query": MUTATION}}))
        answer = json.loads(opened.recv(30))
    assert answer["id"] == "2"
    assert answer["type"] == "error", "a subscription is no mutation"
    assert not page.was_changed()


def test_a_mutation_of_the_own_page_is_served(page: Page) -> None:
    assert page.graphql(MUTATION, Origin=f"http://{page.host}") == {"setConcurrencyLimit": True}
    assert page.was_changed(), "what the other tests look at does change"


def test_further_hosts_are_names_as_browsers_write_them() -> None:
    assert hosts_from("") == []
    assert hosts_from(" ingest.example.com, 10.0.0.5:3000,[fe80::1]:3000,") == [
        "ingest.example.com",
        "10.0.0.5:3000",
        "[fe80::1]:3000",
    ]
    for wrong in ("http://ingest.example.com", "*", "*.example.com", "ingest.example.com/ui", "u@ingest.example.com"):
        with pytest.raises(ValueError, match=r"HUDI_INGEST_UI_HOSTS has .* which is not a host or host:port"):
            hosts_from(wrong)
