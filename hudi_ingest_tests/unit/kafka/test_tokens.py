"""Token functions without a broker: what they may return, and the form of AWS's."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hudi_ingest.kafka import msk
from hudi_ingest.kafka.client_settings import NoToken, Tokens
from hudi_ingest.pipeline.sections.kafka_client import OAuth

failures: list[str] = []


def right(options: Mapping[str, str]) -> tuple[str, float]:
    return "a.b.c", time.time() + 60


def named(options: Mapping[str, str]) -> tuple[str, float, str, dict[str, str]]:
    return "a.b.c", time.time() + 60, "me", {"logicalCluster": "lkc-1"}


def nothing(options: Mapping[str, str]) -> None:
    return None


def late(options: Mapping[str, str]) -> tuple[str, float]:
    return "a.b.c", 1.0


def failing(options: Mapping[str, str]) -> tuple[str, float]:
    raise RuntimeError(f"no such client: {options['id']}")


def hanging(options: Mapping[str, str]) -> tuple[str, float]:
    threading.Event().wait(60)
    return right(options)


def tokens_of(name: str, **options: str) -> Tokens:
    function = name if ":" in name else f"{__name__}:{name}"
    oauth = OAuth.model_validate({"token_function": function, "options": options})
    return Tokens(oauth, failures.append)


def test_a_token_may_have_a_principal_and_extensions() -> None:
    assert tokens_of("right")("")[2:] == ("", {})
    assert tokens_of("named")("")[2:] == ("me", {"logicalCluster": "lkc-1"})
    assert "a.b.c" not in repr(tokens_of("named").token())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing", "returned no (token, expiry in seconds since 1970)"),
        ("late", "returned a token that expired "),
        ("failing", "RuntimeError: no such client: ****"),
        ("no.such.module:token", "ModuleNotFoundError"),
        ("hudi_ingest.kafka.msk:tokn", "AttributeError"),
        ("hudi_ingest.kafka.msk:token", "region is missing"),
    ],
)
def test_a_function_that_gives_no_token_is_told_before_a_client_waits(name: str, expected: str) -> None:
    options = {"id": "hunter2"} if name == "failing" else {}
    with pytest.raises(NoToken) as raised:
        tokens_of(name, **options)
    assert expected in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_function_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hudi_ingest.kafka.client_settings._TOKEN_SECONDS", 0.2)
    with pytest.raises(NoToken, match=r"hanging failed: TimeoutError: no answer within 0\.2 s"):
        tokens_of("hanging")


def test_a_function_that_fails_later_is_told_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tokens_of("right")
    tokens.token()
    monkeypatch.setitem(globals(), "right", nothing)
    with pytest.raises(NoToken):
        tokens.token()
    assert failures[-1].endswith("returned no (token, expiry in seconds since 1970)")


def test_a_token_for_msk_is_a_signed_address_of_the_cluster_s_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-real-one")
    value, expires_at = msk.token({"region": "eu-west-1"})
    url = urlsplit(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode())
    query: dict[str, Any] = {key: values[0] for key, values in parse_qs(url.query).items()}
    assert url.hostname == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Signature"]
    assert 0 < expires_at - time.time() <= 900
    with pytest.raises(ValueError, match="found reigon"):
        msk.token({"reigon": "eu-west-1"})
