"""The ASGI application: its routes, its OpenAPI document, the applications mounted beside them, and the server that runs it until it is
stopped."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

import hudi_ingest
from hudi_ingest.exceptions import ConfigError, EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.rest import pipeline_file_routes, pipeline_routes, request_routes
from hudi_ingest.rest.access import Access, Allowed, Gate
from hudi_ingest.rest.models import PipelineText
from hudi_ingest.rest.problems import MEDIA_TYPE, Problem, answer_errors

API = "/api/v1"
_STOP_SECONDS = 30
"""How long requests that are running may take after SIGTERM."""
_HEAD_SECONDS = 10
"""In which a client must have sent the head of its request."""
_HANDSHAKE_SECONDS = 10
_ACCEPT_AGAIN_SECONDS = 1
_MOST_CONNECTIONS = 200
_MOST_HANDSHAKES = 100
"""Connections that are not served yet. Each has a socket, with TLS until its client has sent what it must."""
_logger = logging.getLogger(__name__)
_DESCRIPTION = """Pipelines from Kafka to Apache Hudi: their files, status, requests and dead letters.

The pipeline files are the truth: what is created or changed here is a YAML file in the server's pipelines folder, which
Dagster loads within seconds. Every error is an `application/problem+json`."""


class Health(BaseModel):
    """The server answers."""

    status: str = Field(examples=["ok"])
    version: str = Field(description="Of hudi-ingest.", examples=["0.2.0"])


def app(home: Home, access: Access, allowed: Allowed, mounts: Mapping[str, ASGIApp] | None = None) -> ASGIApp:
    """Build the application for the pipelines of a home. `mounts`: further applications by their paths, such as `/metrics`; they
    are behind the same tokens."""
    api = _api()
    api.state.home = home
    api.state.allowed = allowed
    answer_errors(api)
    for path, mounted in (mounts or {}).items():
        # Not a mount, which would answer /metrics with a redirect to /metrics/.
        api.router.routes.append(Route(path, _Mounted(mounted), include_in_schema=False))
    return Gate(api, access)


def openapi_document() -> dict[str, Any]:
    """The description of the API, as it is served at /openapi.json."""
    return _api().openapi()


class _Api(FastAPI):
    """FastAPI's application, whose document has errors as what they are and the token as a way to authenticate."""

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title,
                version=self.version,
                description=self.description,
                routes=self.routes,
                openapi_version="3.1.0",
            )
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    for status, answer in operation["responses"].items():
                        if status == "default" or status >= "400":
                            answer["content"] = {MEDIA_TYPE: next(iter(answer["content"].values()))}
            schemas = document["components"]["schemas"]
            schemas["PipelineText"] = PipelineText.model_json_schema()
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            self.openapi_schema = document
        return self.openapi_schema


def _api() -> FastAPI:
    api = _Api(
        title="hudi-ingest",
        version=hudi_ingest.__version__,
        description=_DESCRIPTION,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        responses={"default": {"model": Problem, "description": "An error."}},
    )
    api.get(
        "/healthz", tags=["server"], response_model=Health, summary="Whether the server answers", name="get_health"
    )(healthz)
    for routes in (
        pipeline_file_routes.ROUTES,
        pipeline_file_routes.TOPICS,
        pipeline_routes.ROUTES,
        request_routes.ROUTES,
        pipeline_routes.TABLE,
        pipeline_routes.INSTALLATION,
    ):
        api.include_router(routes, prefix=API)
    return api


class _Mounted:
    """An application as one route; Starlette would take a function for a handler of requests."""

    def __init__(self, mounted: ASGIApp) -> None:
        self._mounted = mounted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._mounted(scope, receive, send)


async def healthz() -> Health:
    """Asks neither Kafka nor a table nor the ledger: a server that answers is not mended by starting it again."""
    return Health(status="ok", version=hudi_ingest.__version__)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the server listens. `port` 0: any free one. `certificate` and `key`: PEM files, both or neither."""

    host: str = "127.0.0.1"
    port: int = 8470
    certificate: Path | None = None
    key: Path | None = None


def serve(
    home: Home,
    listening: Listening,
    access: Access,
    allowed: Allowed,
    *,
    started: Callable[[str], None],
    mounts: Mapping[str, ASGIApp] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then end what is running. `started` gets the URL once requests are accepted.

    Raises ConfigError, and EnvironmentProblem if it cannot listen.
    """
    if (listening.certificate is None) != (listening.key is None):
        raise ConfigError("--cert and --key", ["give both or neither"])
    listener = _listen(listening)
    port = listener.getsockname()[1]
    name = f"[{listening.host}]" if ":" in listening.host else listening.host
    url = f"http{'s' if listening.certificate else ''}://{name}:{port}"
    config = configuration(app(home, access, allowed, mounts), listening)
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        listener.close()
        files = f"{listening.certificate} and {listening.key}"
        raise ConfigError("--cert and --key", [f"{files} cannot be used: {error}"]) from None
    with _signals_end_the_server():
        _Server(config, lambda: started(url)).run(sockets=[listener])


def configuration(application: ASGIApp, listening: Listening) -> uvicorn.Config:
    """How uvicorn serves the application, once a connection is made."""
    return uvicorn.Config(
        application,
        host=listening.host,
        port=listening.port,
        http=_Connection,
        log_level="warning",
        access_log=False,
        server_header=False,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
    )


class _Connection(H11Protocol):
    """Closes itself unless a request's head arrives in time. Of too many connections, the one that has waited longest is closed."""

    _since = 0.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        # Those that were closed a moment ago are still in the set.
        open_ones = [each for each in self.connections if isinstance(each, _Connection) and not each._is_closing()]
        waiting = [each for each in open_ones if each._is_waiting()]
        if len(open_ones) > _MOST_CONNECTIONS and waiting:
            min(waiting, key=lambda each: each._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def _wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._since = self.loop.time()
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self._late)

    def _is_closing(self) -> bool:
        return self.transport.is_closing()

    def _is_waiting(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self._is_closing()

    def _late(self) -> None:
        if self._is_waiting():
            self.transport.abort()


class _Handshakes:
    """Accepts connections and hands each to a protocol once its TLS handshake is over, in which it may take _HANDSHAKE_SECONDS. Of too many, the
    one that has waited longest is closed: uvicorn's own server accepts all there are, and its protocol sees them after the handshake."""

    def __init__(
        self, listener: socket.socket, tls: ssl.SSLContext | None, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._protocol = protocol
        self._open: dict[socket.socket, asyncio.Task[None]] = {}
        """Oldest first."""
        listener.listen(_MOST_CONNECTIONS)
        listener.setblocking(False)

    async def accept(self) -> None:
        """Accept until this is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    client, _ = await loop.sock_accept(self._listener)
                except OSError as error:
                    # No file descriptor is left until others are closed.
                    _logger.warning("a connection cannot be accepted: %s", error)
                    await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)
                    continue
                if len(self._open) >= _MOST_HANDSHAKES:
                    self._close(next(iter(self._open)))
                self._open[client] = loop.create_task(self._shake_hands(client))
                # So that those who have connected are served while others do.
                await asyncio.sleep(0)
        finally:
            for client in [*self._open]:
                self._close(client)

    async def _shake_hands(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            limit = _HANDSHAKE_SECONDS if self._tls is not None else None
            await loop.connect_accepted_socket(self._protocol, client, ssl=self._tls, ssl_handshake_timeout=limit)
        except OSError:  # ssl.SSLError and the timeout's are
            client.close()
        finally:
            self._open.pop(client, None)

    def _close(self, client: socket.socket) -> None:
        task = self._open.pop(client)
        task.add_done_callback(lambda _: client.close())
        task.cancel()


class _Server(uvicorn.Server):
    """Tells when it accepts requests, and ends even if threads of requests never do."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        loop = asyncio.get_running_loop()
        for listener in sockets or ():
            handshakes = _Handshakes(listener, self.config.ssl, self._connection)
            self._accepting.append(loop.create_task(handshakes.accept()))
        self._started()

    def _connection(self) -> asyncio.Protocol:
        return _Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if (cycle is None or cycle.response_complete) and connection.transport is not None:
                # An idle TLS connection is otherwise waited for until its client closes it, too: 30 s.
                connection.transport.abort()
        await asyncio.wait({asyncio.ensure_future(super().shutdown(sockets))}, timeout=_STOP_SECONDS)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            _, left = await asyncio.wait(left, timeout=1)
        if left:
            # Python would wait for their threads. A transaction that is cut off here is rolled back as after any crash.
            _logger.error("%d requests did not end within %d s and are cut off", len(left), _STOP_SECONDS)
            for child in multiprocessing.active_children():
                child.terminate()
            logging.shutdown()
            os._exit(1)


@contextmanager
def _signals_end_the_server() -> Iterator[None]:
    """Let SIGTERM and SIGINT do no more than uvicorn does on them: it raises them again once it has ended."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(listening: Listening) -> socket.socket:
    """Raises EnvironmentProblem."""
    where = f"{listening.host}, port {listening.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(listening.host, listening.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise EnvironmentProblem(f"cannot listen on {where}: {error}. Choose another --host.") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise EnvironmentProblem(f"cannot listen on {where}: {error.strerror}. Choose another --port.") from None
    return listener
