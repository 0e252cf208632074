"""Decides which requests are served: those with the token, under the server's own name, not too large and not too many."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hudi_ingest.orchestration.web_access import authority
from hudi_ingest.rest.problems import Refused

MOST_BYTES = 1_000_000
"""Of a request's body. Pipeline files are a few kilobytes."""
MOST_AT_ONCE = 16
MOST_WAITING = 64
"""Requests that wait for one of these; further ones are refused at once."""
OPEN_PATHS = frozenset({"/healthz"})
"""Answered without the token, so that probes need none. They tell nothing."""
_BODIES = ("application/json", "application/yaml", "application/x-yaml", "text/yaml")
_READS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Access:
    """What a request must bring. `hosts`: the names under which the server answers, with port; None for any.

    Without a token a web page could reach the server through the browser of somebody on this machine, under a name of the
    page's own that resolves to 127.0.0.1. So without one only the server's own names count; who has the token needs no such trick.
    """

    token: str | None
    hosts: frozenset[str] | None

    @classmethod
    def of(cls, token: str | None, port: int, name: str = "localhost") -> Access:
        """`name`: under which the server listens."""
        names = {"127.0.0.1", "localhost", "[::1]", name}
        own = frozenset([*(f"{name}:{port}" for name in names), *(names if port in (80, 443) else ())])
        return cls(token, None if token else own)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refusal(scope: Scope, access: Access) -> Refused | None:
    """Return why the request must not be served, None if it may be."""
    headers = Headers(scope=scope)
    hosts, origins = (headers.getlist(name) for name in ("host", "origin"))
    host = hosts[0].lower() if len(hosts) == 1 else ""
    if access.hosts is not None and host not in access.hosts:
        detail = (
            f"This server does not answer under the host {', '.join(hosts)!r}, only under {', '.join(sorted(access.hosts))}. "
            "To reach it under another name, start it with a token."
        )
        return Refused(403, "Wrong host", detail)
    if any(authority(origin) != host for origin in origins):
        return Refused(403, "Wrong origin", f"Pages of {', '.join(origins)!r} may not call {host}.")
    needs_token = access.token is not None and scope["path"] not in OPEN_PATHS
    if needs_token and not _has_token(headers.getlist("authorization"), access.token or ""):
        detail = "Send the header `Authorization: Bearer TOKEN` with the server's token."
        return Refused(401, "No valid token", detail, headers={"WWW-Authenticate": "Bearer"})
    return _wrong_body(scope["method"], headers)


def _has_token(authorizations: Collection[str], token: str) -> bool:
    return len(authorizations) == 1 and hmac.compare_digest(
        next(iter(authorizations)).encode(), f"Bearer {token}".encode()
    )


def _wrong_body(method: str, headers: Headers) -> Refused | None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method not in _READS and kind and kind not in _BODIES:
        detail = f"{kind} is not read here; send application/json, or a pipeline file as application/yaml."
        return Refused(415, "Wrong content type", detail)
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > MOST_BYTES:
        return too_large()
    return None


def too_large() -> Refused:
    return Refused(413, "Body too large", f"The body of a request may have at most {MOST_BYTES:,} bytes.")


class Gate:
    """An ASGI application that forwards to `app` what `refusal` lets pass, no more than MOST_AT_ONCE requests at a time."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = refusal(scope, self._access)
        body = b"" if refused or scope["method"] in _READS else await _body(receive)
        if refused is None and body is None:
            refused = too_large()
        if refused is None and self._waiting >= MOST_WAITING:
            refused = Refused(
                503, "Too many requests", f"{MOST_AT_ONCE} requests are running and {MOST_WAITING} are waiting."
            )
        if refused is not None:
            await refused(scope, receive, send)
        elif scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
        else:
            await self._in_turn(scope, receive if scope["method"] in _READS else _replayed(body or b"", receive), send)

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._turns.release()


async def _body(receive: Receive) -> bytes | None:
    """Read the whole body; None if it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Hand a body that was read already to the application, then what comes after it."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return unread.pop() if unread else await receive()

    return next_message
