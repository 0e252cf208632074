"""Which requests the gate of the REST API lets pass."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.rest import access
from hudi_ingest.rest.access import MOST_BYTES, Access, Gate, refusal
from hudi_ingest.rest.server import Listening, read_token, serve

pytestmark = pytest.mark.fast

TOKEN = "0123456789abcdef"
OPEN = Access.of(None, 8470)
WITH_TOKEN = Access.of(TOKEN, 8470)
BEARER = {"authorization": f"Bearer {TOKEN}"}


def request(method: str = "GET", path: str = "/api/v1/pipelines", **headers: str) -> Scope:
    sent = {"host": "127.0.0.1:8470", **headers}
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()]
    return {"type": "http", "method": method, "path": path, "headers": pairs}


@pytest.mark.parametrize(
    ("allowed", "scope", "status"),
    [
        (OPEN, request(), None),
        (OPEN, request(host="LOCALHOST:8470", origin="http://localhost:8470"), None),
        (Access.of(None, 8470, "127.0.0.2"), request(host="127.0.0.2:8470"), None),
        (OPEN, request(host="127.0.0.2:8470"), 403),
        (OPEN, request(host="evil.example:8470"), 403),
        (OPEN, request(host="127.0.0.1:9999"), 403),
        (OPEN, request("POST", origin="http://evil.example"), 403),
        (OPEN, request("POST", origin="null"), 403),
        (OPEN, request("POST", content_type="text/plain"), 415),
        (OPEN, request("PUT", content_type="application/yaml; charset=utf-8"), None),
        (OPEN, request("POST", content_length=str(MOST_BYTES + 1)), 413),
        (WITH_TOKEN, request(), 401),
        (WITH_TOKEN, request(authorization="Bearer wrong"), 401),
        (WITH_TOKEN, request(authorization=TOKEN), 401),
        (WITH_TOKEN, request(**BEARER), None),
        (WITH_TOKEN, request(host="ingest.example.com", **BEARER), None),
        (WITH_TOKEN, request("POST", origin="http://evil.example", **BEARER), 403),
        (WITH_TOKEN, request(path="/healthz"), None),
        (WITH_TOKEN, request(path="/metrics"), 401),
    ],
)
def test_who_is_served(allowed: Access, scope: Scope, status: int | None) -> None:
    refused = refusal(scope, allowed)
    assert (refused and refused.problem.status) == status
    assert TOKEN not in str(refused)


def test_too_many_requests_and_too_large_bodies_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(access, "MOST_WAITING", 1)

    async def ask_all() -> tuple[list[int], list[int], int]:
        proceed = asyncio.Event()
        most = running = 0

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal most, running
            running += 1
            most = max(most, running)
            await proceed.wait()
            running -= 1
            await send({"type": "http.response.start", "status": 200, "headers": []})

        gate = Gate(application, OPEN)

        async def ask(scope: Scope, *chunks: bytes) -> int:
            unread = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
            answers: list[Message] = []

            async def receive() -> Any:
                return unread.pop(0) if unread else {"type": "http.request", "body": b"", "more_body": False}

            async def send(message: Message) -> None:
                answers.append(message)

            await gate(scope, receive, send)
            return int(answers[0]["status"])

        asked = [asyncio.create_task(ask(request())) for _ in range(3)]
        await asyncio.sleep(0)
        refused = [await ask(request()), await ask(request("POST"), b"x" * MOST_BYTES, b"x")]
        proceed.set()
        return await asyncio.gather(*asked), refused, most

    assert asyncio.run(ask_all()) == ([200, 200, 200], [503, 413], 2)


def test_the_token_is_in_a_file_or_the_environment_and_long_enough(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(file, {"HUDI_INGEST_TOKEN": "another-long-token"}) == TOKEN
    assert read_token(None, {"HUDI_INGEST_TOKEN": TOKEN}) == TOKEN
    assert read_token(None, {}) is None
    with pytest.raises(ConfigError, match="at least 16") as raised:
        read_token(None, {"HUDI_INGEST_TOKEN": "hunter2"})
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(tmp_path / "none", {})


def test_other_hosts_need_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "10.0.0.5", "ingest.example.com"):
        with pytest.raises(ConfigError, match=r"without a login; set HUDI_INGEST_TOKEN or give --token-file"):
            serve(Home.from_environment({}), Listening(host), None, started=lambda url: None)
