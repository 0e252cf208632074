"""Tokens for the secured broker's listener TOKEN, from a function of our own and from a provider on loopback."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from hudi_ingest.local.processes import LOOPBACK

CLIENT, CLIENT_SECRET = "ingest", "Okapi/secret+7"


def unsigned_token(seconds: float, subject: str = CLIENT) -> str:
    """A JWT without a signature that expires after some seconds."""
    now = time.time()
    claims = {"sub": subject, "iat": now, "exp": now + seconds}
    return ".".join([*(_encoded(part) for part in ({"alg": "none"}, claims)), ""])


def token(options: Mapping[str, str]) -> tuple[str, float]:
    """A token function. `log` is a file that gets a line for each call, `seconds` the token's life, and `secret` must be the
    word `open`."""
    with Path(options["log"]).open("a") as log:
        log.write("asked\n")
    if "secret" in options and options["secret"] != "open":
        raise PermissionError(f"the password {options['secret']} is wrong")
    seconds = float(options.get("seconds", "300"))
    return unsigned_token(seconds), time.time() + seconds


def times_asked(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


@contextmanager
def identity_provider(seconds: float = 300) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """The token endpoint of a provider that knows one client, and the forms of the requests that it let in."""
    forms: list[dict[str, list[str]]] = []
    login = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.headers.get("Authorization") != f"Basic {login}":
                self._answer(401, {"error": "invalid_client"})
                return
            forms.append(parse_qs(body))
            self._answer(
                200, {"access_token": unsigned_token(seconds), "token_type": "Bearer", "expires_in": int(seconds)}
            )

        def _answer(self, status: int, answer: object) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass  # the tests' output is not its log

    server = ThreadingHTTPServer((LOOPBACK, 0), Provider)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}/token", forms
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
