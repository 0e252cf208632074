"""What a pipeline file gets from the embedded stack: its variables while it runs, and what to do while it does not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from hudi_ingest import load_pipeline
from hudi_ingest.exceptions import ConfigError
from hudi_ingest.home.folder import (
    BOOTSTRAP_VARIABLE,
    HOME_VARIABLE,
    LEDGER_VARIABLE,
    PIPELINES_VARIABLE,
    TABLES_VARIABLE,
    Home,
)
from hudi_ingest.home.liveness import started_since_boot
from hudi_ingest.kafka.client_settings import Trouble
from hudi_ingest.operations.health.pipeline_doctor import folder_diagnoses
from hudi_ingest.pipeline.folder import load_each
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest_tests.support.command_line import answer

PIPELINE = """
name: payments
source: {bootstrap_servers: "${KAFKA_BOOTSTRAP_SERVERS}", topics: [payments], format: json}
table: {base_path: /data/payments, schema: id string}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    for name in (PIPELINES_VARIABLE, LEDGER_VARIABLE, BOOTSTRAP_VARIABLE, TABLES_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    found = Home(tmp_path, tmp_path / "pipelines", f"sqlite:///{tmp_path / 'ledger.db'}")
    found.pipelines.mkdir()
    (found.pipelines / "payments.yaml").write_text(PIPELINE)
    return found


def write_stack(home: Home, pid: int) -> None:
    record = {"name": "kafka", "pid": pid, "started": started_since_boot(os.getpid()), "log": "", "mark": ""}
    found = {"environment": {BOOTSTRAP_VARIABLE: "127.0.0.1:19092"}, "processes": [record], "settings": {}}
    home.stack_file.write_text(json.dumps(found))


def problems(home: Home) -> str:
    with pytest.raises(ConfigError) as raised:
        load_pipeline(home.pipelines / "payments.yaml")
    return str(raised.value)


def test_python_finds_the_address_of_a_running_stacks_broker(home: Home) -> None:
    write_stack(home, os.getpid())
    assert load_pipeline(home.pipelines / "payments.yaml").source.bootstrap_servers == "127.0.0.1:19092"


def test_this_processs_environment_wins(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stack(home, os.getpid())
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "kafka:9092")
    assert load_pipeline(home.pipelines / "payments.yaml").source.bootstrap_servers == "kafka:9092"


def test_a_home_that_never_had_a_stack_is_told_to_set_the_variable(home: Home) -> None:
    assert "KAFKA_BOOTSTRAP_SERVERS is not set; set it or write" in problems(home)


@pytest.mark.parametrize(
    "command", [("status",), *((name, "payments") for name in ("sweep", "replay", "services", "plan", "run", "files"))]
)
def test_every_command_says_that_the_stack_is_down(home: Home, command: tuple[str, ...]) -> None:
    home.kafka.mkdir()  # what `down` leaves
    more = ("--transaction", "x") if command[0] == "replay" else ()
    found = answer(home, *command, *more)
    assert found.returncode == 1
    assert f"because the stack in {home.root} is down; start it with `hudi-ingest up`" in found.stderr


def test_a_killed_stack_is_down_too(home: Home) -> None:
    write_stack(home, 1)
    assert "is down; start it with `hudi-ingest up`" in problems(home)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 99, "processes": {"kafka": 1}}', '{"processes": [{}]}']
)
def test_a_damaged_or_newer_record_of_the_stack_breaks_no_other_command(home: Home, content: str) -> None:
    (home.pipelines / "payments.yaml").write_text(PIPELINE.replace("${KAFKA_BOOTSTRAP_SERVERS}", "kafka:9092"))
    home.stack_file.write_text(content)
    found = answer(home, "validate", str(home.pipelines / "payments.yaml"))
    assert found.returncode == 0, found.stderr


def test_the_remedy_for_a_stacks_broker_that_ended_is_up(home: Home) -> None:
    trouble = Trouble()
    trouble.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def text(servers: str) -> str:
        source = KafkaSource.model_validate({"bootstrap_servers": servers, "topics": ["a"], "format": "json"})
        return str(trouble.explained("connect", "refused", source))

    write_stack(home, -1)
    assert "`hudi-ingest up` starts it" in text("127.0.0.1:19092")
    assert "Check source.bootstrap_servers" in text("kafka:9092")
    trouble.last = "10.0.0.7:9093/2: Connect to ipv4#10.0.0.7:9093 failed: Connection refused"
    assert "correct advertised.listeners" in text("kafka:9092")
    assert "advertised.listeners" not in text("10.0.0.7:9093")


def test_files_that_wait_for_the_stack_are_no_fault_of_theirs(home: Home) -> None:
    home.kafka.mkdir(parents=True)
    pipelines, broken = load_each(home.pipelines)
    (waiting, loaded) = folder_diagnoses(home, pipelines, broken)
    assert (waiting.state.value, waiting.text) == (
        "warning",
        f"Not loaded, because the stack in {home.root} is down; start it with `hudi-ingest up`: payments.yaml.",
    )
    assert loaded.state.value == "ok"
