"""Which requests the gate of the REST API lets pass."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from starlette.types import Message, Receive, Scope, Send

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import Home
from hudi_ingest.rest import access as access_module
from hudi_ingest.rest.access import MOST_BYTES, Access, Gate, access, refusal
from hudi_ingest.rest.application import API

pytestmark = pytest.mark.fast

TOKEN = "0123456789abcdef"
READ_TOKEN = "fedcba9876543210"
ACCESS = Access(TOKEN, READ_TOKEN)
BEARER = {"authorization": f"Bearer {TOKEN}"}
READER = {"authorization": f"Bearer {READ_TOKEN}"}


def login(password: str) -> dict[str, str]:
    """As a browser sends it."""
    return {"authorization": f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"}


SIGNED_IN = login(READ_TOKEN)


def request(method: str = "GET", path: str = "/api/v1/pipelines", **headers: str) -> Scope:
    sent = {"host": "127.0.0.1:8470", **headers}
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()]
    return {"type": "http", "method": method, "path": path, "headers": pairs}


@pytest.mark.parametrize(
    ("scope", "status"),
    [
        (request(), 401),
        (request(sec_fetch_site="cross-site"), 401),
        (request(authorization="Bearer wrong"), 401),
        (request(authorization=TOKEN), 401),
        (request(**BEARER), None),
        (request(host="ingest.example.com", **BEARER), None),
        (request("DELETE", **BEARER), None),
        (request(origin="http://127.0.0.1:8470", **BEARER), None),
        (request("POST", origin="http://evil.example", **BEARER), 403),
        (request("POST", origin="null", **BEARER), 403),
        (request("POST", content_type="text/plain", **BEARER), 415),
        (request("PUT", content_type="application/yaml; charset=utf-8", **BEARER), None),
        (request("POST", content_length=str(MOST_BYTES + 1), **BEARER), 413),
        (request(**READER), None),
        (request("HEAD", **READER), None),
        (request(path="/metrics", **READER), None),
        (request("POST", path=f"{API}/validate", **READER), None),
        (request("POST", **READER), 403),
        (request("PUT", path=f"{API}/validate", **READER), 403),
        (request("DELETE", path=f"{API}/pipelines/orders", **READER), 403),
        (request(path="/healthz"), None),
        (request(path="/metrics"), 401),
        (request(path="/openapi.json"), 401),
        (request(path="/"), 401),
        (request(path="/", **SIGNED_IN), None),
        (request(path="/pipelines/orders", **SIGNED_IN), None),
        (request(path="/", **login(TOKEN)), None),
        (request(path="/", **login("wrong")), 401),
        (request(path="/", authorization="Basic ?"), 401),
        (request(path="/", authorization="Basic /w=="), 401),
        (request("POST", path="/", **SIGNED_IN), 401),
        (request(path="/", origin="http://evil.example", **SIGNED_IN), 403),
        (request(**SIGNED_IN), 401),
        (request("DELETE", path=f"{API}/pipelines/orders", **login(TOKEN)), 401),
        (request(path="/metrics", **SIGNED_IN), 401),
    ],
)
def test_who_is_served(scope: Scope, status: int | None) -> None:
    refused = refusal(scope, ACCESS)
    assert (refused and refused.problem.status) == status
    assert TOKEN not in str(refused) + repr(ACCESS)


def test_too_many_requests_and_too_large_bodies_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(access_module, "MOST_WAITING", 1)

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

        gate = Gate(application, ACCESS)

        async def ask(scope: Scope, *chunks: bytes) -> int:
            unread = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
            answers: list[Message] = []

            async def receive() -> Any:
                return unread.pop(0) if unread else {"type": "http.request", "body": b"", "more_body": False}

            async def send(message: Message) -> None:
                answers.append(message)

            await gate(scope, receive, send)
            return int(answers[0]["status"])

        asked = [asyncio.create_task(ask(request(**BEARER))) for _ in range(3)]
        await asyncio.sleep(0)
        refused = [await ask(request(**BEARER)), await ask(request("POST", **BEARER), b"x" * MOST_BYTES, b"x")]
        proceed.set()
        return await asyncio.gather(*asked), refused, most

    assert asyncio.run(ask_all()) == ([200, 200, 200], [503, 413], 2)


def test_requests_that_hang_keep_no_turn_and_make_the_server_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(access_module, "MOST_SECONDS", 0.05)
    answers = threading.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/hangs":
            await to_thread.run_sync(answers.wait)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    gate = Gate(application, ACCESS)

    async def ask(method: str, path: str) -> list[int]:
        sent: list[Message] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await gate(request(method, path, **BEARER), receive, send)
        return [message["status"] for message in sent if "status" in message]

    async def ask_all() -> None:
        assert await ask("GET", "/healthz") == [200]
        changing = asyncio.create_task(ask("POST", "/hangs"))
        assert await asyncio.gather(*(ask("GET", "/hangs") for _ in range(3))) == [[503]] * 3
        assert await ask("GET", "/answers") == [200], "the turns are free"
        assert await ask("GET", "/healthz") == [503]
        answers.set()
        assert await changing == [200], "who changes something gets to know whether it was done"
        deadline = time.monotonic() + 60
        while await ask("GET", "/healthz") != [200]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    asyncio.run(ask_all())


def test_a_body_must_arrive_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "BODY_SECONDS", 0.05)
    sent: list[Message] = []

    async def never() -> Any:
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("not to be asked")

    asyncio.run(Gate(application, ACCESS)(request("POST", **BEARER), never, send))
    assert sent[0]["status"] == 408


def test_the_tokens_are_in_files_or_the_environment_and_long_enough(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", tmp_path / "pipelines", "sqlite://")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    variables = {"HUDI_INGEST_TOKEN": "another-long-token", "HUDI_INGEST_READ_TOKEN": READ_TOKEN}
    assert access(home, file, None, variables) == ACCESS
    assert access(home, None, None, variables) == Access("another-long-token", READ_TOKEN)
    assert not home.root.exists(), "nothing is made where nothing is missing"
    with pytest.raises(ConfigError, match="at least 16") as raised:
        access(home, None, None, {"HUDI_INGEST_TOKEN": "hunter2"})
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        access(home, tmp_path / "none", None, {})
    with pytest.raises(ConfigError, match="must not be that of"):
        access(home, file, file, {})


def test_tokens_are_made_once_in_files_that_only_their_user_reads(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", tmp_path / "pipelines", "sqlite://")
    made = access(home, None, None, {})
    assert made.write != made.read
    assert (made.write, made.read) == tuple(
        (home.root / name).read_text().strip() for name in ("rest-token", "rest-read-token")
    )
    assert {path.stat().st_mode & 0o777 for path in home.root.iterdir()} == {0o600}
    assert access(home, None, None, {}) == made
    (home.root / "rest-token").chmod(0o644)
    with pytest.raises(ConfigError, match="delete the file"):
        access(home, None, None, {})
