"""Which requests Dagster's web page serves: those of its own page, and of programs that ask it by its own name.

Dagster's webserver has no login, runs mutations that come by GET or as a form, and looks at neither Host nor Origin. So any page
that somebody opens in a browser on this machine could launch, end and delete runs. This does not keep out who can reach the port.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS_VARIABLE = "HUDI_INGEST_UI_HOSTS"
"""Further names under which the page may be opened, as browsers write them: `host`, or `host:port`, separated by commas."""
_READS = ("GET", "HEAD")


class OwnPageOnly:
    """An ASGI application that passes on to `app` what `refusal` lets pass, and answers the rest with its reason."""

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
    """HTTP status and reason when the request is not to be served, else None.

    `own` and `further` are hosts, with their port unless it is the scheme's own. A page of an `own` host may ask that host only:
    another server of this machine could listen where `localhost` leads to, too.
    """
    headers = Headers(scope=scope)
    hosts, origins = (headers.getlist(name) for name in ("host", "origin"))
    host = hosts[0].lower() if len(hosts) == 1 else ""
    if host not in own | further:
        return 403, (
            f"This page is not served under the host {', '.join(hosts)!r}, only under {', '.join(sorted(own | further))}. "
            f"To open it under another name put that into {HOSTS_VARIABLE} and start the webserver again."
        )
    if any(_authority(origin) not in {host, *further} for origin in origins):
        return 403, f"Pages of {', '.join(origins)!r} may not ask {host}; open http://{host} itself."
    if scope["type"] == "websocket":
        return None
    if scope["method"] in _READS:
        # Dagster answers those that accept HTML with its query editor, which runs nothing by itself.
        if scope["path"] == "/graphql" and "text/html" not in headers.get("accept", ""):
            return 405, "GraphQL is asked by POST with the content type application/json."
        return None
    if not _is_json(headers.getlist("content-type")):
        return 415, "Send it with the content type application/json: other types can come from any web page."
    return None


def hosts_from(text: str) -> Sequence[str]:
    """The hosts of `HUDI_INGEST_UI_HOSTS`. Raises ValueError for what is no `host` or `host:port`."""
    hosts = [host.strip() for host in text.split(",") if host.strip()]
    for host in hosts:
        if urlsplit(f"//{host}").netloc != host or "@" in host or "*" in host:
            raise ValueError(
                f"{HOSTS_VARIABLE} has {host!r}, which is no host or host:port; write for example ingest.example.com,"
                "10.0.0.5:3000, without http://."
            )
    return hosts


def _authority(origin: str) -> str:
    """Host and port of an origin of the web; empty for others, such as `null` of sandboxed pages and files."""
    scheme, _, authority = origin.lower().partition("://")
    return authority if scheme in ("http", "https") else ""


def _is_json(content_types: Sequence[str]) -> bool:
    return len(content_types) == 1 and content_types[0].partition(";")[0].strip() == "application/json"


def _unframed(send: Send) -> Send:
    """Other pages may not show ours in a frame, in which a click that was meant for them would launch a run."""

    async def forward(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Frame-Options"] = "SAMEORIGIN"
        await send(message)

    return forward
