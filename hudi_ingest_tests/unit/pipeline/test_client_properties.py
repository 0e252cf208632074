"""`source.kafka`: what librdkafka knows, and what is not the file's to set. No client is made."""

from __future__ import annotations

import pytest

from hudi_ingest.kafka.client_settings import librdkafka_options
from hudi_ingest.pipeline.sections import kafka_client
from hudi_ingest.pipeline.sections.kafka_client import RESERVED
from hudi_ingest_tests.support.pipeline_files import SECRET, Write, load, problem, problems


def test_any_other_property_reaches_every_client_and_comes_before_ours(write: Write) -> None:
    properties = {"client.rack": "${RACK}", "socket.keepalive.enable": True, "reconnect.backoff.ms": 50}
    pipeline = load(write, {"RACK": "eu-1a"}, source__kafka=properties)
    options = librdkafka_options(pipeline.source)
    assert [options[name] for name in properties] == ["eu-1a", "true", "50"]


@pytest.mark.parametrize("name", ["group.id", "isolation.level", "sasl.password", "acks", "error_cb", "log.queue"])
def test_what_other_settings_or_exactly_once_decide_is_refused_with_the_reason(write: Write, name: str) -> None:
    assert f"source.kafka.{name}: cannot be set here: " in problem(write, source__kafka={name: SECRET})


@pytest.mark.parametrize("name", ["sasl.kerberos.kinit.cmd", "plugin.library.paths", "ssl.engine.location"])
def test_no_property_runs_a_command_or_loads_code_in_every_process(write: Write, name: str) -> None:
    told = problem(write, source__kafka={name: "/tmp/x; id"})
    assert f"source.kafka.{name}: cannot be set here: it " in told
    assert "every process" in told


def test_a_wrong_name_or_value_is_a_problem_of_the_file(write: Write) -> None:
    found = problems(write, source__kafka={"client.rak": "a", "fetch.min.bytes": SECRET, "max.poll.record": "1"})
    assert "no such property" in found[0]
    assert found[0].endswith("did you mean client.rack?")
    assert "does not take this value" in found[1]
    assert SECRET not in "".join(found)
    assert "librdkafka's, not Java's" in found[2]


def test_nothing_that_decides_what_is_read_can_be_set() -> None:
    from hudi_ingest.kafka.client_settings import READ_COMMITTED

    assert READ_COMMITTED.keys() - RESERVED.keys() == {"fetch.queue.backoff.ms"}


def test_kerberos_needs_a_librdkafka_that_has_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
    kerberos = {"sasl.kerberos.principal": "ingest@EXAMPLE", "sasl.kerberos.keytab": "/etc/ingest.keytab"}
    assert "built without Kerberos" in problem(write, source__security=settings, source__kafka=kerberos)
    monkeypatch.setattr(kafka_client, "has_feature", lambda name: name == "sasl_gssapi")
    options = librdkafka_options(load(write, source__security=settings, source__kafka=kerberos).source)
    assert options.items() >= {"sasl.mechanism": "GSSAPI", **kerberos}.items()
    assert "sasl.username" not in options
