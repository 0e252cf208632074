"""What a client met on the way, and whether it is the end."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from hudi_ingest.kafka.client_errors import Trouble

HANDSHAKE = "sasl_plaintext://127.0.0.1:9092/1: SASL OAUTHBEARER mechanism handshake failed: Broker: "


@pytest.mark.parametrize(
    ("reason", "is_final"),
    [
        ("Unsupported SASL mechanism: broker's supported mechanisms: PLAIN", True),
        ("Request not valid in current SASL state: broker's supported mechanisms: ", False),
    ],
)
def test_a_login_that_came_too_soon_is_not_a_refusal(reason: str, is_final: bool) -> None:
    trouble = Trouble()
    trouble.note(KafkaError(KafkaError._AUTHENTICATION, HANDSHAKE + reason))
    trouble.note(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert trouble.is_final == is_final
    assert trouble.last.endswith(reason)
