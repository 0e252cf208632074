"""Questions to servers of this machine: whether they answer, whatever proxy the environment names."""

from __future__ import annotations

import importlib
import json
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from hudi_ingest.local import dagster_api
from hudi_ingest.local.processes import LOOPBACK, ProcessRecord
from hudi_ingest_tests.lab import cdc_stack, spark_servers


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"data": {"version": "1"}, "workers": []}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def answering() -> Iterator[str]:
    with HTTPServer((LOOPBACK, 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_address[1]}"
        server.shutdown()


def test_no_question_to_this_machine_goes_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{LOOPBACK}:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    # Openers read the environment when they are made.
    importlib.reload(dagster_api)
    with answering() as url:
        assert dagster_api.query(url, "{ version }") == {"version": "1"}
        assert cdc_stack._get(url) == {"data": {"version": "1"}, "workers": []}
        cluster = spark_servers.SparkCluster("spark://unused", url, ProcessRecord("master", 1, 0.0, ""), ())
        assert cluster.state()["workers"] == []


def test_no_module_of_the_stack_asks_through_a_proxy() -> None:
    for path in Path(dagster_api.__file__).parent.glob("*.py"):
        assert "urlopen(" not in path.read_text(), f"{path.name}: use DIRECT of dagster_api.py"


def test_a_code_server_that_accepts_and_answers_nothing_hangs(tmp_path: Path) -> None:
    path = tmp_path / "code.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        assert not dagster_api.code_server_answers(path, 0.3)


def test_a_code_server_that_answers_anything_does_not_hang(tmp_path: Path) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{tmp_path}/code.sock")
    server.start()
    try:
        assert dagster_api.code_server_answers(tmp_path / "code.sock", 60), (
            "that it knows no such question is an answer"
        )
    finally:
        server.stop(None)
