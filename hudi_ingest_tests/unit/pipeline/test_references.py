"""Secrets of pipeline files: from files, variables and vaults, read again whenever they are used, and never shown."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hudi_ingest.exceptions import ConfigError
from hudi_ingest.kafka.client_settings import librdkafka_options
from hudi_ingest.model import secret_hooks
from hudi_ingest.model.storage_options import SecretReference
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.pipeline_files import Write, load, problem
from hudi_ingest_tests.support.waiting import wait_for

ENVIRONMENT = {secret_hooks.VARIABLE: f"vault={__name__}:vault, file_vault=os:getenv"}
shelf: dict[str, str] = {}
asked: list[str] = []


opened = threading.Event()


def vault(reference: str) -> str:
    asked.append(reference)
    if reference.startswith("slow") and not opened.wait(300):
        raise TimeoutError
    return shelf[reference]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_hooks, "_secrets", {})
    opened.set()
    shelf.clear()
    asked.clear()


def security(password: str) -> dict[str, str]:
    return {"protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "me", "password": password}


def secured(write: Write, password: str) -> Pipeline:
    return load(write, ENVIRONMENT, source__security=security(password))


def sent(pipeline: Pipeline) -> str:
    return librdkafka_options(pipeline.source)["sasl.password"]


def test_a_changed_file_is_read_by_the_next_use(write: Write, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("one\n")
    pipeline = secured(write, "${file:secret}")
    assert sent(pipeline) == "one"
    for_workers = pickle.loads(pickle.dumps(pipeline))
    (tmp_path / "secret").write_text("two\n")
    assert sent(pipeline) == "two"
    assert sent(for_workers) == "one", "workers need not have the file"
    (tmp_path / "secret").unlink()
    with pytest.raises(ConfigError, match=r"source\.security\.password.*\n.*secret cannot be read"):
        sent(pipeline)


def test_a_vault_is_asked_when_the_secret_is_used_and_not_all_the_time(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf["kafka/ingest#password"] = "Ibex-1"
    pipeline = secured(write, "${vault:kafka/ingest#password}")
    assert asked == [], "not to validate the file"
    assert [sent(pipeline), sent(pipeline)] == ["Ibex-1"] * 2
    assert asked == ["kafka/ingest#password"]
    shelf["kafka/ingest#password"] = "Ibex-2"
    monkeypatch.setattr(secret_hooks, "_KEPT_SECONDS", -1.0)
    assert sent(pipeline) == "Ibex-2"
    assert "Ibex" not in repr(pipeline) + pipeline.model_dump_json()
    assert SecretReference.parse("${vault:kafka/ingest#password}", Path()).resolve(ENVIRONMENT) == "Ibex-2"


def test_a_vault_that_hangs_holds_up_no_other_secret_and_its_last_value_serves_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf.update({"slow": "one", "slow/other": "three", "quick": "two"})
    monkeypatch.setattr(secret_hooks, "ANSWER_SECONDS", 60)
    assert secret_hooks.read_secret("vault", "slow", ENVIRONMENT) == "one"
    opened.clear()
    monkeypatch.setattr(secret_hooks, "_KEPT_SECONDS", -1.0)
    try:
        monkeypatch.setattr(secret_hooks, "ANSWER_SECONDS", 0.2)
        with pytest.raises(ValueError, match=r"slow/other.*no answer within 0\.2 s"):
            secret_hooks.read_secret("vault", "slow/other", ENVIRONMENT)
        assert [secret_hooks.read_secret("vault", "slow", ENVIRONMENT) for _ in range(3)] == ["one"] * 3
        monkeypatch.setattr(secret_hooks, "ANSWER_SECONDS", 60)
        with ThreadPoolExecutor(3) as pool:
            hanging = [pool.submit(secret_hooks.read_secret, "vault", "slow/other", ENVIRONMENT) for _ in range(3)]
            assert secret_hooks.read_secret("vault", "quick", ENVIRONMENT) == "two"
            assert not any(each.done() for each in hanging), "they still wait"
            assert asked.count("slow") == 2 and asked.count("slow/other") == 1, "one question at a time"
            opened.set()
            assert [each.result(300) for each in hanging] == ["three"] * 3
    finally:
        opened.set()
    shelf["slow"] = "four"
    wait_for(lambda: secret_hooks.read_secret("vault", "slow", ENVIRONMENT) == "four", "it is asked again")


def test_other_texts_are_filled_in_from_a_vault_when_the_file_is_loaded(write: Write) -> None:
    shelf["user"] = "me"
    settings = {**security("p"), "username": "${vault:user}"}
    pipeline = load(write, ENVIRONMENT, source__security=settings)
    assert pipeline.source.security is not None
    assert pipeline.source.security.username == "me"


@pytest.mark.parametrize(
    ("password", "expected"),
    [
        ("${vlt:a}", "no function reads ${vlt:…}; registered: file_vault, vault"),
        ("${file:nowhere}", "nowhere cannot be read"),
        ("${UNSET_HERE}", "environment variable UNSET_HERE is not set"),
    ],
)
def test_a_reference_to_nothing_is_a_problem_of_the_file(write: Write, password: str, expected: str) -> None:
    assert expected in problem(write, None, ENVIRONMENT, source__security=security(password))


def test_a_vault_that_fails_is_named_and_what_it_holds_is_not(write: Write) -> None:
    pipeline = secured(write, "${vault:none}")
    with pytest.raises(ConfigError, match=r"\$\{vault:none\} cannot be read by .*:vault: KeyError"):
        sent(pipeline)
    shelf["none"] = ""
    with pytest.raises(ConfigError, match="it returned an empty text"):
        sent(pipeline)
