"""Decides which requests Dagster's webserver serves: those of its own pages, and of programs that use its own name.

Dagster's webserver has no login, runs mutations sent by GET or as a form, and checks neither Host nor Origin. So any page opened
in a browser on this machine could launch, end and delete runs. This does not keep out anyone who can reach the port.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS_VARIABLE = "HUDI_INGEST_UI_HOSTS"
"""Additional names under which the UI may be opened, as browsers write them: `host` or `host:port`, separated by commas."""
_READS = ("GET", "HEAD")


class OwnPageOnly:
    """An ASGI application that forwards to `app` what `refusal` lets pass, and answers the rest with its reason."""

    def __init__(self, app: ASGIApp, port: int, hosts: Iterable[str] = ()) -> None:
        self._app = app
        names = ("127.0.0.1", "localhost", "[::1]")
        # Browsers leave out the port of their scheme.
        self._own = frozenset([*(f"{name}:{port}" for name in names), *(names if port == 80 else ())])
        self._further = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refused = refusal(scope, self._own, self._further)
        if refused is None:
            await self._app(scope, receive, _unframed(send))
        elif scope["type"] == "websocket":
            # Closed before it is accepted: the server answers the upgrade with 403.
            await send({"type": "websocket.close", "code": 1008, "reason": refused[1]})
        else:
            await PlainTextResponse(refused[1] + "\n", status_code=refused[0])(scope, receive, send)


def refusal(scope: Scope, own: frozenset[str], further: frozenset[str]) -> tuple[int, str] | None:
    """Return HTTP status and reason if the request must not be served, else None.

    `own` and `further` are hosts, with their port unless it is the scheme's own. A page of an `own` host may only call that
    same host: another server on this machine could also be reached as `localhost`.
    """
    headers = Headers(scope=scope)
    hosts, origins = (headers.getlist(name) for name in ("host", "origin"))
    host = hosts[0].lower() if len(hosts) == 1 else ""
    if host not in own | further:
        return 403, (
            f"This page is not served under the host {', '.join(hosts)!r}, only under {', '.join(sorted(own | further))}. "
            f"To open it under another name, add that name to {HOSTS_VARIABLE} and restart the webserver."
        )
    if any(authority(origin) not in {host, *further} for origin in origins):
        return 403, f"Pages of {', '.join(origins)!r} may not call {host}; open http://{host} itself."
    if scope["type"] == "websocket":
        return None
    if scope["method"] in _READS:
        # Dagster answers requests that accept HTML with its query editor, which runs nothing by itself.
        if scope["path"] == "/graphql" and "text/html" not in headers.get("accept", ""):
            return 405, "Send GraphQL queries by POST, with the content type application/json."
        return None
    if not _is_json(headers.getlist("content-type")):
        return 415, "Send this request with the content type application/json: other types can come from any web page."
    return None


def hosts_from(text: str) -> Sequence[str]:
    """Parse the hosts of `HUDI_INGEST_UI_HOSTS`. Raises ValueError for anything but `host` or `host:port`."""
    hosts = [host.strip() for host in text.split(",") if host.strip()]
    for host in hosts:
        if urlsplit(f"//{host}").netloc != host or "@" in host or "*" in host:
            raise ValueError(
                f"{HOSTS_VARIABLE} has {host!r}, which is not a host or host:port; write for example ingest.example.com,"
                "10.0.0.5:3000, without http://."
            )
    return hosts


def authority(origin: str) -> str:
    """Return host and port of a web origin; empty for others, such as the `null` of sandboxed pages and files."""
    scheme, _, authority = origin.lower().partition("://")
    return authority if scheme in ("http", "https") else ""


def _is_json(content_types: Sequence[str]) -> bool:
    return len(content_types) == 1 and content_types[0].partition(";")[0].strip() == "application/json"


def _unframed(send: Send) -> Send:
    """Forbid other pages to show ours in a frame, where a click meant for them could launch a run."""

    async def forward(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Frame-Options"] = "SAMEORIGIN"
        await send(message)

    return forward
