"""`source.kafka`: what librdkafka knows, and what is not the file's to set. No client is made."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from itertools import chain
from pathlib import Path

import confluent_kafka
import pytest

from hudi_ingest.kafka.client_settings import librdkafka_options
from hudi_ingest.pipeline.sections import kafka_client
from hudi_ingest.pipeline.sections.kafka_client import ALLOWED, FILES, ONLY_IN_FILES, RESERVED, reason_against
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


@pytest.fixture(scope="module")
def properties() -> frozenset[str]:
    """The properties of the installed librdkafka: those that it lists, and whatever in its files it takes for one, because it does not list
    those without a default that it hides."""
    library = kafka_client._library()
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    library.rd_kafka_conf_properties_show.argtypes = libc.fclose.argtypes = (ctypes.c_void_p,)
    with tempfile.NamedTemporaryFile() as shown:
        stream = libc.fdopen(os.dup(shown.fileno()), b"w")
        library.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        listed = {line.partition("|")[0].strip() for line in Path(shown.name).read_text().splitlines() if "|" in line}
    package = Path(confluent_kafka.__file__).parent
    files = chain(package.glob("cimpl*"), package.parent.glob("confluent_kafka.libs/librdkafka*"))
    words = {word.decode() for file in files for word in re.findall(rb"[a-z][a-z0-9._]{2,60}(?=\0)", file.read_bytes())}
    candidates = words | listed | {name for name, _ in kafka_client._dumped()}
    return frozenset(name for name in candidates if kafka_client._set(name, None) != kafka_client._UNKNOWN)


def test_every_property_of_the_installed_librdkafka_is_allowed_or_refused_by_name(properties: frozenset[str]) -> None:
    assert len(properties) > 190
    assert properties >= {"ssl.key.password", "client.software.version", "sasl.oauthbearer.assertion.file"}
    assert [name for name in sorted(properties) if (name in ALLOWED) == (reason_against(name) is not None)] == []
    assert ALLOWED - properties == set()


def test_whatever_may_be_a_path_or_loads_something_is_refused_or_a_path_over_rest(properties: frozenset[str]) -> None:
    suspicious = re.compile(
        r"location|file$|path|keytab|libraries|engine|url|endpoint\.url|cmd|command|plugin|provider|config$"
    )
    reach = {name for name in ALLOWED if suspicious.search(name)}
    assert reach == FILES
    assert {"sasl.oauthbearer.assertion.file", "ssl.engine.id", "sasl.kerberos.kinit.cmd"} <= properties - ALLOWED
    assert ONLY_IN_FILES <= ALLOWED


@pytest.mark.parametrize(
    "name",
    [
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.of.a.later.version",
    ],
)
def test_tokens_come_from_the_section_oauth_alone(write: Write, name: str) -> None:
    assert f"source.kafka.{name}: cannot be set here: set source.security.oauth instead" in problem(
        write, source__kafka={name: "/etc/shadow"}
    )


def test_a_property_that_no_list_has_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "ALLOWED", ALLOWED - {"client.rack"})
    assert "this version of hudi-ingest does not know it" in problem(write, source__kafka={"client.rack": "eu-1a"})


@pytest.mark.parametrize("value", ["ingest; id", "$(id)", '"; id; "', "a b", "x`id`", "x\ny"])
@pytest.mark.parametrize("name", ["sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.service.name"])
def test_no_property_becomes_words_of_a_shell(write: Write, name: str, value: str) -> None:
    if name == "sasl.kerberos.keytab":
        value = f"/{value}"
    assert f"source.kafka.{name}: becomes a part of the command" in problem(write, source__kafka={name: value})
    assert f"source.kafka.{name}: takes no vault" in problem(
        write, environment={"HUDI_INGEST_SECRETS": "vault=json:loads"}, source__kafka={name: "${vault:a}"}
    )


def test_paths_are_absolute(write: Write) -> None:
    told = problem(write, source__kafka={"ssl.crl.location": "crl.pem"})
    assert "source.kafka.ssl.crl.location: not an absolute path" in told
    load(write, source__kafka={"ssl.crl.location": "/etc/crl.pem"})
