"""HTTP servers in this process, for what a test has to answer itself."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hudi_ingest.local.processes import LOOPBACK


class QuietHandler(BaseHTTPRequestHandler):
    """Prints nothing: the tests' output is not its log."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, status: int, content: bytes | object = b"") -> None:
        """Send bytes, or anything else as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


class Dripping(socketserver.StreamRequestHandler):
    """Answers with a header that comes byte by byte, and does not end until it is `stopped`."""

    stopped = threading.Event()

    def handle(self) -> None:
        self.rfile.readline()
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not self.stopped.wait(0.05):
                self.wfile.write(b"x")
        except OSError:
            return


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port, and yield the URL without a path."""
    server = ThreadingHTTPServer((LOOPBACK, 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
