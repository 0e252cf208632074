"""A loopback proxy before an S3 store: counts its requests, and makes the store slow, busy, or silent about what it did."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hudi_ingest.local.processes import LOOPBACK

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"}
_BUSY = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message>'
    b"<RequestId>1</RequestId></Error>"
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for; `key` is without the bucket, or the prefix of a listing."""

    method: str
    kind: str
    """GET, HEAD, PUT, DELETE, LIST, POST-…: the operation as S3 bills it."""
    key: str
    at: float
    chunked: bool = False
    """Whether its body came in chunks, as with a checksum at its end."""
    client: str = ""
    """What the client calls itself: Boto3/…, hudi-rs's `object_store/…`, or Hadoop …"""
    until: float = float("inf")
    """When it was answered, on the clock of `at`."""


Choice = Callable[[Request], bool]


def every(request: Request) -> bool:
    return True


@dataclass
class S3Proxy:
    """`port` is where clients connect; `requests` what they asked for, oldest first."""

    upstream_port: int
    requests: list[Request] = field(default_factory=list)
    _busy: Choice | None = None
    _delay: tuple[Choice, float] | None = None
    _hanging: threading.Event | None = None
    _lost: Choice | None = None
    _lost_left: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count the requests of the block by kind; complete when it is left."""
        counts: Counter[str] = Counter()
        with self._lock:
            begin = len(self.requests)
        yield counts
        with self._lock:
            counts.update(request.kind for request in self.requests[begin:])

    @contextmanager
    def busy(self, choice: Choice = every) -> Iterator[None]:
        """Answer 503 SlowDown, without asking the store, while the block runs."""
        self._busy = choice
        try:
            yield
        finally:
            self._busy = None

    @contextmanager
    def slow(self, seconds: float, choice: Choice = every) -> Iterator[None]:
        """Let each request wait first, while the block runs."""
        self._delay = (choice, seconds)
        try:
            yield
        finally:
            self._delay = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Neither ask the store nor answer while the block runs; then cut the connections that wait."""
        over = self._hanging = threading.Event()
        try:
            yield
        finally:
            self._hanging = None
            over.set()

    @contextmanager
    def silent(self, choice: Choice, times: int = 1) -> Iterator[Callable[[], int]]:
        """Carry the chosen requests out but cut the connection instead of answering, at most `times`. Yields how often it
        happened so far."""
        self._lost, self._lost_left = choice, times
        try:
            yield lambda: times - self._lost_left
        finally:
            self._lost = None

    def note(self, request: Request) -> int:
        """Return the request's number."""
        with self._lock:
            self.requests.append(request)
            return len(self.requests) - 1

    def note_answer(self, number: int) -> None:
        with self._lock:
            self.requests[number] = replace(self.requests[number], until=time.monotonic())

    def is_busy(self, request: Request) -> bool:
        return self._busy is not None and self._busy(request)

    def hangs(self) -> bool:
        """Whether the store is not to be asked; returns when the block of `hanging` is left."""
        over = self._hanging
        return over is not None and over.wait()

    def delay(self, request: Request) -> float:
        return self._delay[1] if self._delay is not None and self._delay[0](request) else 0.0

    def loses(self, request: Request) -> bool:
        with self._lock:
            if self._lost is None or self._lost_left == 0 or not self._lost(request):
                return False
            self._lost_left -= 1
            return True


@contextmanager
def s3_proxy(upstream_port: int) -> Iterator[S3Proxy]:
    """A proxy before the store on `upstream_port`. Clients sign the name of the host they connect to, and it is passed on."""
    proxy = S3Proxy(upstream_port)

    class Handler(_Handler):
        pass

    Handler.proxy = proxy
    server = _Server((LOOPBACK, 0), Handler)
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, name="s3 proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that has given up, or was killed.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _classified(method: str, target: str, chunked: bool, client: str) -> Request:
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    _, _, key = parts.path.lstrip("/").partition("/")
    kind = method
    if method == "GET" and ("list-type" in query or (not key and "location" not in query)):
        kind, key = "LIST", query.get("prefix", [key])[0]
    elif method == "POST":
        kind = "POST-delete" if "delete" in query else "POST-multipart"
    elif method == "PUT" and "partNumber" in query:
        kind = "PUT-part"
    return Request(method, kind, key, time.monotonic(), chunked, client)


class _Handler(BaseHTTPRequestHandler):
    proxy: S3Proxy
    protocol_version = "HTTP/1.1"
    # Otherwise the answer's head and body wait for each other's acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPConnection(LOOPBACK, self.proxy.upstream_port, timeout=60)

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def handle_expect_100(self) -> bool:
        go_on = super().handle_expect_100()
        self.wfile.flush()
        return go_on

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _forward(self) -> None:
        request = _classified(self.command, self.path, self._is_chunked(), self.headers.get("User-Agent", ""))
        number = self.proxy.note(request)
        body = self._body()
        if self.proxy.hangs():
            self.close_connection = True
            return
        time.sleep(self.proxy.delay(request))
        if self.proxy.is_busy(request):
            self._answer(503, [("Content-Type", "application/xml")], _BUSY)
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        answer = self._ask(headers, body)
        content = answer.read()
        self.proxy.note_answer(number)
        if self.proxy.loses(request):
            self.close_connection = True
            return
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
        self._answer(answer.status, kept, content)

    def _ask(self, headers: dict[str, str], body: bytes) -> http.client.HTTPResponse:
        for last in (False, True):
            try:
                self._upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    self._upstream.putheader(name, value)
                if self._is_chunked():
                    # Its length in bytes may be unknown to the signature.
                    self._upstream.putheader("Transfer-Encoding", "chunked")
                    body_sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
                    self._upstream.endheaders(body_sent)
                else:
                    self._upstream.endheaders(body or None)
                return self._upstream.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The store has closed an idle connection.
                self._upstream.close()
                if last:
                    raise
        raise AssertionError("unreachable")

    def _is_chunked(self) -> bool:
        return bool(self.headers.get("Transfer-Encoding", "").lower() == "chunked")

    def _body(self) -> bytes:
        if self._is_chunked():
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if self.command == "HEAD" or name.lower() != "content-length":
                self.send_header(name, value)
        if self.command != "HEAD" and status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward
