"""Decides which requests are served: those with a token, not too large and not too many."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass, field

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
_READING_POST = "/api/v1/validate"
"""What the read-only token may do besides."""


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens that requests must bring: `write` for everything, `read` for what changes nothing."""

    write: str = field(repr=False)
    read: str | None = field(default=None, repr=False)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refusal(scope: Scope, access: Access) -> Refused | None:
    """Return why the request must not be served, None if it may be."""
    headers = Headers(scope=scope)
    origins = headers.getlist("origin")
    host = headers.get("host", "").lower()
    if any(authority(origin) != host for origin in origins):
        return Refused(403, "Wrong origin", f"Pages of {', '.join(origins)!r} may not call {host}.")
    if scope["path"] in OPEN_PATHS:
        return None
    sent = headers.getlist("authorization")
    if not _has_token(sent, access.write):
        if access.read is None or not _has_token(sent, access.read):
            detail = (
                "Send the header `Authorization: Bearer TOKEN` with the server's token, which is in the file or variable that "
                "`hudi-ingest serve` shows when it starts."
            )
            return Refused(401, "No valid token", detail, headers={"WWW-Authenticate": "Bearer"})
        if scope["method"] not in _READS and (scope["method"], scope["path"]) != ("POST", _READING_POST):
            detail = f"This token may only read; {scope['method']} {scope['path']} needs the other token."
            return Refused(403, "Read-only token", detail)
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
