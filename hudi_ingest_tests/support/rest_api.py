"""The REST API on a port of this machine, in this process, and what is asked of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from hudi_ingest.home.folder import Home
from hudi_ingest.local.processes import free_port
from hudi_ingest.orchestration.home_instance import DAGSTER_VARIABLE
from hudi_ingest.rest.access import Access, Allowed
from hudi_ingest.rest.application import API, Listening, app, configuration
from hudi_ingest_tests.support.waiting import wait_for

YAML = "application/yaml"
TOKEN = "a-token-that-may-write"
READ_TOKEN = "a-token-that-may-read"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `body` is parsed JSON, None if there is none."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text) if self.text else None


@dataclass(frozen=True, slots=True)
class RestApi:
    """A running server."""

    home: Home
    port: int
    token: str = TOKEN

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Paths are below /api/v1, unless they begin with `//`. A text is sent as YAML, anything else as JSON."""
        kind = (
            {}
            if body is None or "Content_Type" in headers
            else {"Content-Type": YAML if isinstance(body, str) else "application/json"}
        )
        sent = body if body is None or isinstance(body, str) else json.dumps(body)
        headers.setdefault("Authorization", f"Bearer {self.token}")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            where = path[1:] if path.startswith("//") else API + path
            connection.request(method, where, sent and sent.encode(), {**kind, **named})
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
        finally:
            connection.close()


@contextmanager
def running_rest_api(
    home: Home, allowed: Allowed | None = None, mounts: Mapping[str, ASGIApp] | None = None
) -> Iterator[RestApi]:
    """Serve the home's pipelines."""
    # A test before this one may have opened the Dagster of another home, which goes before this home's.
    os.environ.pop(DAGSTER_VARIABLE, None)
    port = free_port()
    config = configuration(app(home, Access(TOKEN, READ_TOKEN), allowed or Allowed(), mounts), Listening(port=port))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, "the REST API is served", 240)
        yield RestApi(home, port)
    finally:
        server.should_exit = True
        thread.join(300)
