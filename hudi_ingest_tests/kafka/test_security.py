"""Logins and certificates on a real broker, without a JVM of ours: what works, what is said, and how often is tried."""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from dagster import DagsterInstance

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.range_reader import read_ranges
from hudi_ingest.kafka.records import ReadRequest, read_records
from hudi_ingest.local.processes import wait_until
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.operations.validation import check_online
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.support.command_line import answer, hudi_ingest
from hudi_ingest_tests.support.ground import Ground, make_pipeline, write_pipeline
from hudi_ingest_tests.support.secured_broker import PASSWORD, USER, SecuredBroker
from hudi_ingest_tests.support.ticks import tick

pytestmark = pytest.mark.kafka

WRONG = "not-the-Password-7"
SECONDS = 5.0
"""How long a client waits that gets no answer."""
PATIENT_SECONDS = 120.0
"""How long one would wait that is refused: so that a refusal, and not the end of this time, is what it tells of."""


REFUSED = {
    "wrong password": f"does not accept user {USER} with this password over SCRAM-SHA-512",
    "wrong password, plain": "Invalid username or password",
    "wrong password, not encrypted": "does not accept user",
    "unknown user": "does not accept user nobody",
    "expired certificate": "certificate verify failed",
    "expired for mutual": "an expired certificate",
    "unknown authority": "correct source.security.ca_file",
    "no client certificate": "bad certificate",
    "no such ca_file": "Check the files that source.security names",
}
"""What is told, by case."""
OTHER_PROTOCOL = dict.fromkeys(
    ("plain text to SSL", "SSL to SASL_SSL", "SSL to plain text"), "source.security.protocol does not match the port"
)


def wrong(secured: SecuredBroker, case: str) -> dict[str, Any]:
    """`source` of a pipeline file that the broker, or this client, refuses."""
    certificate = {"certificate_file": str(secured.client.certificate), "key_file": str(secured.client.key)}
    sources: dict[str, Callable[[], dict[str, Any]]] = {
        "wrong password": lambda: secured.source("LOGIN", password=WRONG),
        "wrong password, plain": lambda: secured.source("LOGIN", password=WRONG, sasl_mechanism="PLAIN"),
        "wrong password, not encrypted": lambda: secured.source("PLAINLOGIN", password=WRONG),
        "unknown user": lambda: secured.source("LOGIN", username="nobody", password=WRONG),
        "expired certificate": lambda: secured.source("EXPIRED"),
        "unknown authority": lambda: secured.source("SSL", ca_file=str(secured.stranger.certificate)),
        "no client certificate": lambda: secured.source("MUTUAL"),
        "no such ca_file": lambda: secured.source("SSL", ca_file="/nowhere/ca.pem"),
        "plain text to SSL": lambda: {"bootstrap_servers": secured.listeners["SSL"]},
        "SSL to plain text": lambda: {**secured.source("SSL"), "bootstrap_servers": secured.bootstrap},
        "SSL to SASL_SSL": lambda: {**secured.source("SSL"), "bootstrap_servers": secured.listeners["LOGIN"]},
        "expired for mutual": lambda: secured.source("EXPIRED", **certificate),
    }
    return {**sources[case](), "request_timeout_seconds": PATIENT_SECONDS if case in REFUSED else SECONDS}


@pytest.mark.tier(1)
@pytest.mark.parametrize(
    ("listener", "security"),
    [
        ("SSL", {}),
        ("LOGIN", {"sasl_mechanism": "SCRAM-SHA-512"}),
        ("LOGIN", {"sasl_mechanism": "SCRAM-SHA-256"}),
        ("LOGIN", {"sasl_mechanism": "PLAIN"}),
        ("PLAINLOGIN", {}),
    ],
)
def test_s8_every_protocol_and_mechanism_is_let_in(
    secured: SecuredBroker, secured_ground: Ground, listener: str, security: dict[str, Any]
) -> None:
    secured_ground.send_rows(0, 3)
    pipeline = make_pipeline(secured_ground, source=secured.source(listener, **security))
    assert observe(pipeline).lag.by_partition[TopicPartition(secured_ground.name, 0)] == 3
    cluster = KafkaCluster(pipeline.source)
    wanted = {TopicPartition(secured_ground.name, 0): 2}
    cluster.commit_group_offsets(pipeline.group_id, wanted)
    assert cluster.group_offsets(pipeline.group_id, wanted) == wanted


def test_a_client_certificate_is_shown_to_a_broker_that_asks_for_one(
    secured: SecuredBroker, secured_ground: Ground
) -> None:
    files = {"certificate_file": str(secured.client.certificate), "key_file": str(secured.client.key)}
    assert observe(make_pipeline(secured_ground, source=secured.source("MUTUAL", **files))).lag.total == 0


def test_a_refusal_is_told_at_once_and_is_not_asked_for_again_and_again(
    secured: SecuredBroker, secured_ground: Ground
) -> None:
    before = secured.refusals
    for case, seconds in told_of_each(secured, secured_ground, REFUSED, KafkaRefused):
        assert seconds < PATIENT_SECONDS / 2, case
    assert no_more_refusals(secured) - before <= 3 * len(REFUSED)


def test_what_answers_in_another_protocol_is_told_in_time(secured: SecuredBroker, secured_ground: Ground) -> None:
    before = secured.refusals
    for case, seconds in told_of_each(secured, secured_ground, OTHER_PROTOCOL, KafkaUnreachable):
        assert seconds < SECONDS + 30, case
    assert no_more_refusals(secured) - before <= (2 * SECONDS + 2) * len(OTHER_PROTOCOL)


def told_of_each(
    secured: SecuredBroker, ground: Ground, cases: Mapping[str, str], kind: type[KafkaRefused | KafkaUnreachable]
) -> list[tuple[str, float]]:
    """Each case and the seconds until it was told, with the right words; all at once, and no client is left."""

    def told(case: str, pipeline: Pipeline) -> float:
        began = time.monotonic()
        with pytest.raises((KafkaRefused, KafkaUnreachable)) as raised:
            observe(pipeline)
        seconds = time.monotonic() - began
        text = str(raised.value)
        assert type(raised.value) is kind, f"{case}: {text}"
        assert cases[case] in text, case
        assert pipeline.source.bootstrap_servers in text
        assert raised.value.servers == pipeline.source.bootstrap_servers
        assert "source.security" in text
        assert WRONG not in text
        return seconds

    pipelines = [make_pipeline(ground, source=wrong(secured, case)) for case in cases]
    with ThreadPoolExecutor(len(cases)) as pool:
        found = list(zip(cases, pool.map(told, cases, pipelines), strict=True))
    gc.collect()
    return found


def no_more_refusals(secured: SecuredBroker) -> int:
    """The count of refusals once nobody tries any more: it has not grown for longer than a client waits between tries."""
    state = {"count": secured.refusals, "since": time.monotonic()}

    def settled() -> bool:
        if secured.refusals != state["count"]:
            state.update(count=secured.refusals, since=time.monotonic())
        return time.monotonic() - state["since"] > 1.2

    wait_until(settled, what="no client tries any more", timeout_seconds=120)
    return int(state["count"])


def test_one_tick_is_one_login(secured: SecuredBroker, secured_ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, secured_ground.home.ledger_url)
    pipeline = make_pipeline(secured_ground, source=wrong(secured, "wrong password"))
    before = secured.refusals
    with DagsterInstance.ephemeral() as instance:
        for _ in range(3):
            with pytest.raises(KafkaRefused):  # the tick fails, and is seen
                tick(pipeline, instance, datetime.now(timezone.utc))
    assert no_more_refusals(secured) - before <= 6


def test_a_password_that_is_put_right_is_let_in_by_the_next_tick(
    secured: SecuredBroker, secured_ground: Ground
) -> None:
    user = f"u{secured_ground.name}"
    secured.set_password(user, "first")
    source = secured.source("LOGIN", username=user, password="${file:secret}")
    path = write_pipeline(secured_ground, source=source)
    secret = path.parent / "secret"
    secret.write_text("second\n")
    refused = hudi_ingest(secured_ground.home, "plan", str(path), "--json")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "does not accept user" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "second" not in refused.stderr
    secret.write_text("first\n")
    found = answer(secured_ground.home, "plan", str(path), "--json")
    assert found.returncode == 0, found.stderr
    assert "no new records" in json.loads(found.stdout)["skip"]


def test_no_log_shows_the_password(
    secured: SecuredBroker, secured_ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at DEBUG either, neither ours nor librdkafka's, with the login refused and with it accepted."""
    caplog.set_level(logging.DEBUG)
    for password in (PASSWORD, WRONG):
        pipeline: Pipeline = make_pipeline(secured_ground, source=secured.source("LOGIN", password=password))
        try:
            observe(pipeline)
        except KafkaRefused:
            assert password == WRONG
    assert "librdkafka" in {each.name for each in caplog.records}
    for password in (PASSWORD, WRONG):
        assert password not in caplog.text


def test_an_online_check_names_all_that_is_wrong_at_the_broker(secured: SecuredBroker, secured_ground: Ground) -> None:
    """Missing topics and partitions, and a topic that this login may describe but not read."""
    name = secured_ground.name
    source = {**secured.source("LOGIN"), "starting_offsets": {name: {0: 0, 7: 0}}}
    right = check_online(make_pipeline(secured_ground, source=secured.source("LOGIN")))
    assert right.problems == []
    assert f"kafka: topic {name} has 2 partitions" in right.facts
    secured.let_only_describe(name)
    pipeline = make_pipeline(secured_ground, source={**source, "topics": [name, "missing"]})

    def told() -> list[str]:
        return sorted(check_online(pipeline).problems)

    wait_until(lambda: len(told()) == 3, what="the broker applies the rule", timeout_seconds=120)
    missing, unreadable, partition = sorted(
        told(), key=lambda problem: ("names partition" in problem, "READ" in problem)
    )
    assert "topic missing is not on the broker" in missing
    assert f"lets user {USER} describe topic {name}, but not read it" in unreadable
    assert f"names partition 7 of topic {name}, which has 2 partitions" in partition


def test_a_right_that_is_missing_is_named_with_who_needs_it(secured: SecuredBroker, secured_ground: Ground) -> None:
    name, deny = secured_ground.name, AclPermissionType.DENY
    secured_ground.send_rows(0, 3)
    source = {**secured.source("PLAINLOGIN"), "request_timeout_seconds": SECONDS}
    pipeline = make_pipeline(secured_ground, source=source)
    cluster, group, first = KafkaCluster(pipeline.source), pipeline.group_id, TopicPartition(name, 0)
    calls: Mapping[str, Callable[[], object]] = {
        "workers": lambda: list(read_ranges(pipeline.source, group, [Slice(name, 0, 0, 3)])),
        "driver": lambda: read_records(pipeline.source, group, [ReadRequest(Slice(name, 0, 0, 3), 3)]),
        "plan": lambda: observe(pipeline),
        "group": lambda: cluster.group_offsets(group, [first]),
        "group's commit": lambda: cluster.commit_group_offsets(group, {first: 1}),
    }

    def refused(call: str) -> str:
        try:
            calls[call]()
        except KafkaRefused as error:
            return str(error)
        return ""

    def told(call: str, right: str) -> None:
        wait_until(lambda: refused(call), what=f"{call}: the broker applies the rule", timeout_seconds=120)
        text = refused(call)
        assert f"lets {USER} in, but not {right}. Allow it: " in text
        assert f"'User:{USER}' --operation Read --{right.split(' ', 1)[1]}`" in text
        assert "that the broker runs" not in text

    assert [refused(call) for call in calls] == [""] * len(calls)
    secured.rule(ResourceType.GROUP, group, AclOperation.READ, deny)
    secured.rule(ResourceType.GROUP, group, AclOperation.DESCRIBE, deny)
    told("group", f"READ group {group}")
    told("group's commit", f"READ group {group}")
    assert not refused("plan")
    assert not refused("workers"), "nothing that is read depends on the group"
    secured.rule(ResourceType.TOPIC, name, AclOperation.READ, deny)
    secured.rule(ResourceType.TOPIC, name, AclOperation.DESCRIBE, AclPermissionType.ALLOW)
    told("workers", f"READ topic {name}")
    told("driver", f"READ topic {name}")
    secured.rule(ResourceType.TOPIC, name, AclOperation.DESCRIBE, deny)
    told("plan", f"DESCRIBE topic {name}")
    told("workers", f"DESCRIBE topic {name}")
    told("driver", f"DESCRIBE topic {name}")
