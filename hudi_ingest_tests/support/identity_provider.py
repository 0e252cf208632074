"""Tokens for the secured broker's listener TOKEN, from a function of our own and from a provider on loopback."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs

from hudi_ingest_tests.support.http_server import QuietHandler, serving

CLIENT, CLIENT_SECRET = "ingest", "Okapi/secret+7"


def unsigned_token(seconds: float, subject: str = CLIENT) -> str:
    """A JWT without a signature that expires after some seconds."""
    now = time.time()
    claims = {"sub": subject, "iat": now, "exp": now + seconds}
    return ".".join([*(_encoded(part) for part in ({"alg": "none"}, claims)), ""])


def token(options: Mapping[str, str]) -> tuple[str, float]:
    """A token function. `log` is a file that gets a line for each call, `takes` the seconds of a call, `seconds` the token's life, and
    `secret` must be the word `open`."""
    # As a provider that answers late.
    time.sleep(float(options.get("takes", "0")))
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

    class Provider(QuietHandler):
        def do_POST(self) -> None:
            body = self.body().decode()
            if self.headers.get("Authorization") != f"Basic {login}":
                self.answer(401, {"error": "invalid_client"})
                return
            forms.append(parse_qs(body))
            self.answer(
                200, {"access_token": unsigned_token(seconds), "token_type": "Bearer", "expires_in": int(seconds)}
            )

    with serving(Provider) as url:
        yield f"{url}/token", forms


def _encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
