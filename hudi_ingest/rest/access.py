"""Decides which requests are served: those with a token, not too large and not too many. The tokens come from a file or a variable,
or are made at the first start in files that only the server's user reads.

Also decides which code, which paths and which variables, files and vaults a pipeline file that comes over REST may name. Whoever edits files in the
pipelines folder has the server's user anyway; a token need not be worth as much.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.exceptions.problems import Place, quoted
from hudi_ingest.home.folder import BOOTSTRAP_VARIABLE, TABLES_VARIABLE, Home, write_private
from hudi_ingest.orchestration.embedded.web_access import authority
from hudi_ingest.pipeline import hudi_options
from hudi_ingest.pipeline.file import environment_or_own
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections import kafka_client
from hudi_ingest.pipeline.settings.describe import path_keys, setting_at
from hudi_ingest.pipeline.settings.references import Secret, references
from hudi_ingest.pipeline.settings.yaml_document import MOST_PROBLEMS, compose_document, parse_document
from hudi_ingest.pipeline.template import ROUTE
from hudi_ingest.rest.problems import Refused

MOST_BYTES = 1_000_000
"""The size of a request's body. Pipeline files are a few kilobytes."""
MOST_AT_ONCE = 16
MOST_WAITING = 64
"""Requests that wait for one of these; further ones are refused at once."""
MOST_SECONDS = 120
"""Seconds for which a request has its turn. One that has Spark do something may take longer, and others go on meanwhile."""
BODY_SECONDS = 30
OPEN_PATHS = frozenset({"/healthz"})
"""Answered without the token, so that probes need none. They tell nothing."""
PAGES = "/pipelines/"
"""The pages for people, with the one at `/`: below this path each pipeline has one."""
_BODIES = ("application/json", "application/yaml", "application/x-yaml", "text/yaml")
_READS = ("GET", "HEAD")
_READING_POST = "/api/v1/validate"
"""The one POST that the read-only token may send."""
TOKEN_VARIABLE = "HUDI_INGEST_TOKEN"
READ_TOKEN_VARIABLE = "HUDI_INGEST_READ_TOKEN"
TOKEN_FILE = "rest-token"
READ_TOKEN_FILE = "rest-read-token"
_SHORTEST = 16
_LIBRARY_PATHS = kafka_client.FILES | hudi_options.FILES
"""Paths of libraries, which take a relative path from the working folder of a process."""
_PATHS = path_keys(Pipeline) | _LIBRARY_PATHS
"""The keys that are paths, wherever they are in the file: a file or folder that every process reads, or that Hudi spills to. The table's own
folder is none: whoever has the write token says which it is."""
ADDRESSES = (BOOTSTRAP_VARIABLE, TABLES_VARIABLE, "S3_ENDPOINT", "SCHEMA_REGISTRY_URL")
"""Variables that are always allowed: where things are, and no secrets."""


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
    is_page = scope["method"] in _READS and (scope["path"] == "/" or scope["path"].startswith(PAGES))
    sent = [_bearer(each) if is_page else each for each in headers.getlist("authorization")]
    if not _has_token(sent, access.write):
        if access.read is None or not _has_token(sent, access.read):
            detail = (
                "The request needs the header `Authorization: Bearer TOKEN` with the server's token, which is in the file or variable that "
                "`hudi-ingest serve` shows when it starts."
            )
            challenge = "Bearer"
            if is_page:
                detail = "Sign in with any user name and, as the password, the read token, which is in the file or variable that "
                detail += "`hudi-ingest serve` shows when it starts."
                challenge = 'Basic realm="hudi-ingest", charset="UTF-8"'
            return Refused(401, "No valid token", detail, headers={"WWW-Authenticate": challenge})
        if scope["method"] not in _READS and (scope["method"], scope["path"]) != ("POST", _READING_POST):
            detail = f"This token may only read; {scope['method']} {scope['path']} needs the other token."
            return Refused(403, "Read-only token", detail)
    return _wrong_body(scope["method"], headers)


def _bearer(authorization: str) -> str:
    """The header as if the password of a browser's login were sent as the token. Only for pages, which change nothing: a browser
    sends a login along with requests that other sites make it send.

    Tried: a cookie, which browsers send to every port of a host, so to whatever else listens there."""
    kind, _, coded = authorization.partition(" ")
    if kind.lower() != "basic":
        return authorization
    try:
        password = base64.b64decode(coded, validate=True).decode().partition(":")[2]
    except ValueError:  # neither base64 nor UTF-8
        return authorization
    return f"Bearer {password}"


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
        self._overdue: set[asyncio.Future[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = refusal(scope, self._access)
        body: bytes | None = b""
        if refused is None and scope["method"] not in _READS:
            try:
                body = await asyncio.wait_for(_body(receive), BODY_SECONDS)
            except asyncio.TimeoutError:
                detail = f"The body did not arrive within {BODY_SECONDS} s."
                refused = Refused(408, "Body too slow", detail, headers={"Connection": "close"})
        if body is None:
            refused = too_large()
        elif refused is None and scope["path"] in OPEN_PATHS and len(self._overdue) >= MOST_AT_ONCE:
            detail = f"{len(self._overdue)} requests have been running for more than {MOST_SECONDS} s; start the server again."
            refused = Refused(503, "Stuck", detail)
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
        """Serve a request once it is its turn. A thread cannot be ended from outside, so one that waits for a database that never
        answers loses its turn and, if nothing was to be changed, its client no longer waits for it."""
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        answered = abandoned = False

        async def forward(message: Message) -> None:
            nonlocal answered
            if not abandoned:
                answered = True
                await send(message)

        work = asyncio.ensure_future(self._app(scope, receive, forward))
        try:
            await asyncio.wait({work}, timeout=MOST_SECONDS)
        finally:
            self._turns.release()
        if not work.done():
            self._overdue.add(work)
            work.add_done_callback(self._ended)
            if scope["method"] in _READS:
                abandoned = True
                if answered:
                    work.cancel()  # its client does not read on
                else:
                    detail = f"There was no answer within {MOST_SECONDS} s. The ledger, a broker or a table's storage may hang; try again later."
                    await Refused(503, "Not in time", detail)(scope, receive, send)
                return
        await work

    def _ended(self, work: asyncio.Future[None]) -> None:
        self._overdue.discard(work)
        if not work.cancelled():
            work.exception()  # of a request that was given up


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


def access(
    home: Home, token_file: Path | None, read_token_file: Path | None, environment: Mapping[str, str] = os.environ
) -> Access:
    """Find the tokens, and make those that are neither in a file nor in a variable. Raises ConfigError."""
    write = _token(home, token_file, TOKEN_VARIABLE, TOKEN_FILE, environment)
    read = _token(home, read_token_file, READ_TOKEN_VARIABLE, READ_TOKEN_FILE, environment)
    if write == read:
        raise ConfigError(READ_TOKEN_VARIABLE, [f"the read-only token must not be that of {TOKEN_VARIABLE}"])
    return Access(write, read)


def write_token_place(home: Home, token_file: Path | None, environment: Mapping[str, str] = os.environ) -> Path | str:
    """The file, or the variable's name, that `access` takes the token for everything from."""
    return _place(home, token_file, TOKEN_VARIABLE, TOKEN_FILE, environment)


def read_token_place(home: Home, token_file: Path | None, environment: Mapping[str, str] = os.environ) -> Path | str:
    """The file, or the variable's name, that `access` takes the token that may only read from."""
    return _place(home, token_file, READ_TOKEN_VARIABLE, READ_TOKEN_FILE, environment)


def _place(home: Home, file: Path | None, variable: str, name: str, environment: Mapping[str, str]) -> Path | str:
    if file is not None:
        return file
    return variable if environment.get(variable, "").strip() else home.root / name


def _token(home: Home, given: Path | None, variable: str, name: str, environment: Mapping[str, str]) -> str:
    file = _place(home, given, variable, name, environment)
    if isinstance(file, str):
        return _checked(environment[file].strip(), file)
    if given is None:
        home.make()
        _make(file)
        facts = file.stat()
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            problem = (
                "another user may read or have written this token; delete the file, and the next start makes a new one"
            )
            raise ConfigError(str(file), [problem])
    try:
        return _checked(file.read_text().strip(), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), [f"the token cannot be read: {error}"]) from None


def _make(file: Path) -> None:
    """Write a new token unless there is one. Of two servers that start at once, both then use the same."""
    if file.exists():
        return
    own = file.with_name(f"{file.name}-{os.getpid()}")
    write_private(own, os.urandom(32).hex() + "\n")
    try:
        os.link(own, file)
    except FileExistsError:
        pass
    finally:
        own.unlink()


def _checked(token: str, where: str) -> str:
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        problem = f"the token must be at least {_SHORTEST} printable ASCII characters without spaces, such as `openssl rand -hex 32` writes"
        raise ConfigError(where, [problem])
    return token


@dataclass(frozen=True, slots=True)
class Allowed:
    """Patterns as the shell has them. `references`: of variables (`KAFKA_*`), files (`file:/run/secrets/kafka/*`) and vaults
    (`vault:kafka/*`); `code`: of import paths (`mypackage.*:*`)."""

    references: tuple[str, ...] = ()
    """Besides ADDRESSES."""
    code: tuple[str, ...] = ()

    def problems(self, text: str, folder: Path) -> tuple[str, ...]:
        """Say what the text of a pipeline file in this folder may not name, up to MOST_PROBLEMS. Reads no file, asks no vault and imports
        nothing that is not allowed."""
        try:
            root = compose_document(text)
        except ValueError:
            return ()  # Such a file is refused as a whole.
        known = (*ADDRESSES, *self.references)
        if root is not None and (found := _first(_forbidden_references(root, (), known, folder))):
            return found
        # Now that all references are allowed: one of them may bring an import path, or another path.
        document = parse_document(text, folder, environment_or_own(None), Pipeline)
        return _first(self._forbidden_values(document.data, folder))

    def _forbidden_values(self, data: Mapping[str, Any], folder: Path) -> Iterator[str]:
        for place, value in _scalars(data):
            if value is None:
                continue
            setting = place[-1] if isinstance(place[-1], str) else place[-2] if len(place) > 1 else ""
            if _is_code(place, value) and not _matches(value, self.code):
                yield (
                    f"{setting_at(place, Pipeline).shown}: {quoted(value)} is code that may not be named over REST; start `hudi-ingest serve` "
                    f"with --allow-code {value}, or put the file into the pipelines folder yourself"
                )
            elif setting in _PATHS and (path := _path(value, str(setting), folder)) is None:
                yield (
                    f"{setting_at(place, Pipeline).shown}: over REST, a path is written out, without a vault and without {ROUTE}; that of a "
                    "client's or Hudi's own setting begins with /"
                )
            elif setting in _PATHS and not _matches(f"file:{path}", self.references):
                yield (
                    f"{setting_at(place, Pipeline).shown}: {path} may not be named over REST; start `hudi-ingest serve` with "
                    f"--allow-reference file:{path}, or put the file into the pipelines folder yourself"
                )
            elif setting in kafka_client.ONLY_IN_FILES and place[-2:-1] == ("kafka",):
                yield (
                    f"{setting_at(place, Pipeline).shown}: may not be set over REST, because clients would write what they send to the log; put the "
                    "file into the pipelines folder yourself"
                )


def _first(problems: Iterator[str]) -> tuple[str, ...]:
    found = tuple(islice(problems, MOST_PROBLEMS + 1))
    return found if len(found) <= MOST_PROBLEMS else (*found[:-1], f"perhaps more; correct these {MOST_PROBLEMS} first")


def _path(value: Any, setting: str, folder: Path) -> Path | None:
    """The path that a setting names, without links; None if it cannot be known now."""
    if isinstance(value, Secret):
        if value.is_remote:
            return None
        value = value.get_secret_value()
    path = Path(str(value).removeprefix("file://"))
    if ROUTE in str(path) or "\0" in str(path) or (setting in _LIBRARY_PATHS and not path.is_absolute()):
        return None
    return (folder / path).resolve()


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _forbidden_references(node: yaml.Node, place: Place, allowed: Collection[str], folder: Path) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _forbidden_references(value, (*place, str(key.value)), allowed, folder)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _forbidden_references(value, (*place, index), allowed, folder)
    else:
        for reference in references(str(node.value)):
            setting = setting_at(place, Pipeline)
            scheme, _, rest = reference.partition(":")
            if scheme == "file":
                reference = f"file:{(folder / rest).resolve()}"
            if not _matches(reference, allowed):
                yield (
                    f"{setting.shown}: ${{{reference}}} may not be named over REST; write the value, or start `hudi-ingest serve` with "
                    f"--allow-reference {reference}"
                )
            elif rest and not (setting.is_secret or setting.is_reference):
                yield f"{setting.shown}: ${{{scheme}:…}} is for secrets, and this setting is shown to everyone; write the value"


def _scalars(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _scalars(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _scalars(inner, (*place, index))
    elif place:
        yield place, value


def _is_code(place: Place, value: Any) -> bool:
    """Whether it is an import path; a placeholder may become one."""
    if not isinstance(value, str):
        return False
    is_converter = place[0] == "source" and place[-1] == "format" and (":" in value or "{" in value)
    return is_converter or place[-1] in ("function", "token_function")
