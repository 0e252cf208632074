"""Slow clients and a ledger that never answers: others are served meanwhile, and the server ends when it is told to."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hudi_ingest.home.folder import Home
from hudi_ingest.rest import application
from hudi_ingest_tests.support.certificates import Authority
from hudi_ingest_tests.support.rest_api import RestApi, running_rest_api
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = pytest.mark.fast

TOKEN = "a-token-that-may-write"
SERVE = """
import resource, sys
from contextlib import ExitStack
from pathlib import Path
from hudi_ingest.home.folder import Home
from hudi_ingest.rest import application
from hudi_ingest.rest.access import Access
from hudi_ingest.rest.access import Allowed
application._STOP_SECONDS = 1
folder = Path(sys.argv[1])
home = Home(folder / "home", folder, sys.argv[2])
started = lambda url: print(url, flush=True)
files = [Path(file) for file in sys.argv[4:]] or [None, None]
application._HANDSHAKE_SECONDS = 600
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
application.serve(home, application.Listening("127.0.0.1", 0, *files), Access(sys.argv[3]), Allowed(), started=started)
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[RestApi]:
    with running_rest_api(Home(tmp_path / "home", tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")) as found:
        yield found


def test_half_open_connections_keep_nobody_out(api: RestApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_HEAD_SECONDS", 600)
    monkeypatch.setattr(application, "_MOST_CONNECTIONS", 20)
    with ExitStack() as clients:
        oldest_first = []
        for number in range(1, 41):
            oldest_first.append(clients.enter_context(_half_open(api)))
            if number % 10 == 0:
                assert api.ask("GET", "//healthz").status == 200
        assert all(_closed(client) for client in oldest_first[:20])


def test_a_half_open_connection_is_closed_in_time(api: RestApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_HEAD_SECONDS", 0.2)
    with _half_open(api) as client:
        assert _closed(client)


def _half_open(api: RestApi) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", api.port), timeout=60)
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
    return client


def _closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def silent_postgresql() -> Iterator[tuple[str, threading.Event]]:
    """Logs its clients in and answers nothing more: its URL, and whether one has asked."""
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_log_in_all, args=(listener, asked), daemon=True).start()
        yield f"postgresql+psycopg2://u@127.0.0.1:{listener.getsockname()[1]}/d", asked


def _log_in_all(listener: socket.socket, asked: threading.Event) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_log_in, args=(client, asked), daemon=True).start()


def _log_in(client: socket.socket, asked: threading.Event) -> None:
    with client:
        while True:
            size, kind = struct.unpack("!ii", client.recv(8, socket.MSG_WAITALL))
            if size > 8:
                client.recv(size - 8, socket.MSG_WAITALL)
            if kind not in (80877103, 80877104):  # TLS and Kerberos are asked for first
                break
            client.sendall(b"N")
        facts = {"server_version": "16.0", "client_encoding": "UTF8", "standard_conforming_strings": "on"}
        parts = [(b"R", struct.pack("!i", 0))]
        parts += [(b"S", f"{name}\0{value}\0".encode()) for name, value in facts.items()]
        parts += [(b"K", struct.pack("!ii", 1, 1)), (b"Z", b"I")]
        client.sendall(b"".join(kind + struct.pack("!i", len(body) + 4) + body for kind, body in parts))
        while client.recv(4096):
            asked.set()


def test_a_ledger_that_hangs_keeps_the_server_neither_from_answering_nor_from_ending(
    tmp_path: Path, silent_postgresql: tuple[str, threading.Event]
) -> None:
    url, asked = silent_postgresql
    command = [sys.executable, "-c", SERVE, str(tmp_path), url, TOKEN]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        request = urllib.request.Request(f"{address}/api/v1/requests", headers={"Authorization": f"Bearer {TOKEN}"})
        threading.Thread(target=_ask, args=(request,), daemon=True).start()
        wait_for(asked.is_set, "the ledger is asked")
        with urllib.request.urlopen(f"{address}/healthz", timeout=60) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=300)
    finally:
        process.kill()
    assert "cut off" in log


def _ask(request: urllib.request.Request) -> None:
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return


def test_handshakes_that_nobody_ends_keep_nobody_out(tmp_path: Path) -> None:
    """The server of `serve` in a process of its own, with 256 file descriptors."""
    authority = Authority(tmp_path, "authority")
    pair = authority.issue("server")
    command = [sys.executable, "-c", SERVE, str(tmp_path), f"sqlite:///{tmp_path / 'ledger.db'}", TOKEN]
    command += [str(pair.certificate), str(pair.key)]
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("https://127.0.0.1:")
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with ExitStack() as clients:
            oldest_first = []
            for number in range(1, 501):
                oldest_first.append(clients.enter_context(socket.create_connection(address, timeout=60)))
                if number % 100 == 0:
                    with urllib.request.urlopen(f"{url}/healthz", timeout=60, context=trust) as answer:
                        assert answer.status == 200
            assert all(_closed(client) for client in oldest_first[:350])
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


def test_a_handshake_that_nobody_ends_is_ended_in_time_and_a_good_one_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_HANDSHAKE_SECONDS", 0.5)
    authority = Authority(tmp_path, "authority")
    pair = authority.issue("server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    trust = ssl.create_default_context(cafile=str(authority.certificate))

    class Greets(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"hello")

    async def tried() -> tuple[bytes, bytes]:
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        accepting = asyncio.create_task(application._Handshakes(listener, tls, Greets).accept())
        reader, silent = await asyncio.open_connection(*address)
        good, other = await asyncio.open_connection(*address, ssl=trust)
        greeting = await asyncio.wait_for(good.read(5), 60)
        ended = await asyncio.wait_for(reader.read(), 60)
        accepting.cancel()
        silent.close()
        other.close()
        listener.close()
        return greeting, ended

    assert asyncio.run(tried()) == (b"hello", b"")
