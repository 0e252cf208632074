"""What a client met on the way, and whether it is the end."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from hudi_ingest.kafka.client_settings import Trouble

HANDSHAKE = "sasl_plaintext://127.0.0.1:9092/1: SASL OAUTHBEARER mechanism handshake failed: "


@pytest.mark.parametrize(
    ("reason", "is_final"),
    [
        ("Broker: Unsupported SASL mechanism: broker's supported mechanisms: PLAIN", True),
        ("Broker: Request not valid in current SASL state: broker's supported mechanisms: ", False),
        ("Local: Broker transport failure: broker's supported mechanisms: (n/a)", False),
    ],
)
def test_a_login_that_the_broker_has_not_decided_on_is_not_a_refusal(reason: str, is_final: bool) -> None:
    trouble = Trouble()
    trouble.note(KafkaError(KafkaError._AUTHENTICATION, HANDSHAKE + reason))
    trouble.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert trouble.is_final == is_final
    assert trouble.last.endswith(reason)


@pytest.mark.parametrize(("was_let_in", "is_final"), [(False, True), (True, False)])
def test_a_token_that_expired_after_a_good_answer_is_no_final_refusal(was_let_in: bool, is_final: bool) -> None:
    trouble = Trouble()
    if was_let_in:
        trouble.answered()
    trouble.note(KafkaError(KafkaError._AUTHENTICATION, 'SASL authentication error: {"status":"invalid_token"}'))
    trouble.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert trouble.is_final == is_final
    assert "invalid_token" in trouble.refusal, "what is said if no later token is accepted either"
