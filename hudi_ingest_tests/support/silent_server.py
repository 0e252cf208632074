"""Servers on loopback that take connections and then say nothing more."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hudi_ingest.local.processes import LOOPBACK


class _Silent(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while self.request.recv(4096):
            pass


class _SilentPostgresql(socketserver.BaseRequestHandler):
    """Logs clients in, and answers no query: a server whose processes are stopped."""

    def handle(self) -> None:
        while True:
            length, code = struct.unpack("!II", self._exactly(8))
            self._exactly(length - 8)
            if code == 196608:
                break
            self.request.sendall(b"N")  # neither TLS nor GSSAPI
        settings = {
            "server_version": "15.0",
            "client_encoding": "UTF8",
            "DateStyle": "ISO, MDY",
            "integer_datetimes": "on",
            "standard_conforming_strings": "on",
        }
        self._send(b"R", struct.pack("!I", 0))
        for name, value in settings.items():
            self._send(b"S", f"{name}\0{value}\0".encode())
        self._send(b"K", struct.pack("!II", 1, 1))
        self._send(b"Z", b"I")
        while self.request.recv(4096):
            pass

    def _exactly(self, length: int) -> bytes:
        read = b""
        while len(read) < length:
            more = self.request.recv(length - len(read))
            if not more:
                raise EOFError
            read += more
        return read

    def _send(self, kind: bytes, body: bytes) -> None:
        self.request.sendall(kind + struct.pack("!I", len(body) + 4) + body)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


@contextmanager
def serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[str]:
    """Serve on a free port, and yield host:port."""
    with _Server((LOOPBACK, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"{LOOPBACK}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def silent_server() -> Iterator[str]:
    """Yield its address."""
    with serving(_Silent) as address:
        yield address


@contextmanager
def silent_postgresql() -> Iterator[str]:
    """Yield the URL of a ledger there."""
    with serving(_SilentPostgresql) as address:
        yield f"postgresql+psycopg2://ledger:secret@{address}/ledger?sslmode=disable&gssencmode=disable"
