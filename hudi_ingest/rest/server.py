"""Serves the REST API until it is stopped."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from hudi_ingest.exceptions import ConfigError, EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.rest.access import Access
from hudi_ingest.rest.allowed import Allowed
from hudi_ingest.rest.application import app

_STOP_SECONDS = 30
"""How long requests that are running may take after SIGTERM."""


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
    config = uvicorn.Config(
        app(home, access, allowed, mounts),
        log_level="warning",
        access_log=False,
        server_header=False,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        listener.close()
        files = f"{listening.certificate} and {listening.key}"
        raise ConfigError("--cert and --key", [f"{files} cannot be used: {error}"]) from None
    with _signals_end_the_server():
        _Server(config, lambda: started(url)).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Tells when it accepts requests."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if (cycle is None or cycle.response_complete) and connection.transport is not None:
                # An idle TLS connection is otherwise waited for until its client closes it, too: 30 s.
                connection.transport.abort()
        await super().shutdown(sockets)


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
