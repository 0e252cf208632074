"""What is said of a login that the broker lets in and that lacks a right, from librdkafka's texts."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.kafka.client_settings import Trouble
from hudi_ingest.pipeline.sections.source import KafkaSource

pytestmark = pytest.mark.fast
LOGIN = {"protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "username": "ingest", "password": "x"}


def source(security: dict[str, Any] | None = None) -> KafkaSource:
    return KafkaSource.model_validate({"bootstrap_servers": "b:1", "topics": ["orders"], "security": security})


@pytest.mark.parametrize(
    ("answer", "right", "command"),
    [
        ("Fetch from broker 1 failed: Broker: Topic authorization failed", "READ topic orders", "Read --topic orders`"),
        ("FindCoordinator response error: Group authorization failed.", "READ group g", "Read --group g`"),
        ("Broker: Cluster authorization failed", "DESCRIBE cluster", "Describe --cluster`"),
    ],
)
def test_the_right_its_place_and_the_user_are_named(answer: str, right: str, command: str) -> None:
    error = Trouble().explained("read it", answer, source(LOGIN), operation="Read", topic="orders", group="g")
    assert isinstance(error, KafkaRefused)
    assert f"lets ingest in, but not {right}. Allow it: `kafka-acls.sh --bootstrap-server b:1" in str(error)
    assert f"--allow-principal 'User:ingest' --operation {command}" in str(error)
    assert "broker runs" not in str(error)


def test_what_the_client_met_on_the_way_counts_if_the_answer_says_nothing() -> None:
    trouble = Trouble()
    trouble.note(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."))
    error = trouble.explained("ask for offsets", "Local: Timed out", source(), group="g")
    assert "lets ANONYMOUS in, but not READ group g" in str(error)


def test_a_broker_that_is_away_is_no_missing_right() -> None:
    assert isinstance(Trouble().explained("read it", "no answer", source(LOGIN)), KafkaUnreachable)
