"""What a client met on the way, and whether it is the end."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from hudi_ingest.kafka.client_settings import Trouble, confluent_options
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest_tests.support.http_server import QuietHandler, serving
from hudi_ingest_tests.support.waiting import wait_for

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


_ACQUIRE = "Failed to acquire SASL OAUTHBEARER token: "


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ('{"error":"x","key":"SECRET"}', "the endpoint's answer, which is not shown, has none"),
        ("SECRET\nof several lines", "the endpoint's answer, which is not shown, has none"),
        ("Response is not JSON encoded: SECRET", "the endpoint's answer, which is not shown, has none"),
        ("Empty reply from server SECRET=1", "the endpoint's answer, which is not shown, has none"),
        ('{"error": "invalid_client", "error_description": "SECRET"}', "the endpoint refused with invalid_client"),
        ('Expected JSON response with "access_token" field', 'Expected JSON response with "access_token" field'),
        ("Could not resolve host: id.example.com", "Could not resolve host: id.example.com"),
        (
            "Failed to connect to 127.0.0.1:9 after 0 ms: Could not connect to server",
            "Failed to connect to 127.0.0.1:9 after 0 ms: Could not connect to server",
        ),
        (
            "SSL certificate problem: unable to get local issuer certificate",
            "SSL certificate problem: unable to get local issuer certificate",
        ),
    ],
)
def test_what_a_token_endpoint_answers_is_not_quoted(answer: str, shown: str) -> None:
    trouble = Trouble()
    trouble.note(KafkaError(KafkaError._AUTHENTICATION, _ACQUIRE + answer))
    assert trouble.last == trouble.refusal == _ACQUIRE + shown


def test_a_client_of_a_server_that_is_no_token_endpoint_shows_nothing_of_its_answers() -> None:
    class Internal(QuietHandler):
        def do_POST(self) -> None:
            self.body()
            self.answer(403, {"error": "x", "password": "SECRET-of-another-server"})

    trouble = Trouble()
    with serving(Internal) as url:
        oauth = {"token_url": url, "client_id": "c", "client_secret": "s"}
        security = {"protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "oauth": oauth}
        source = KafkaSource.model_validate(
            {"bootstrap_servers": "127.0.0.1:9", "topics": ["t"], "security": security, "request_timeout_seconds": 5}
        )
        client = AdminClient(confluent_options(source, trouble))
        wait_for(lambda: client.poll(0.1) >= 0 and trouble.refusal, "the client has asked for a token", 30)
    assert "not shown" in trouble.refusal
    assert "SECRET" not in str(trouble.explained("list topics", "", source))


def test_a_broker_gets_the_sasl_extensions_beside_the_token() -> None:
    oauth = {
        "token_url": "http://127.0.0.1:9/token",
        "client_id": "c",
        "client_secret": "s",
        "extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
    }
    security = {"protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "oauth": oauth}
    source = KafkaSource.model_validate({"bootstrap_servers": "127.0.0.1:9", "topics": ["t"], "security": security})
    options = confluent_options(source, Trouble())
    assert options["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,identityPoolId=pool-1"
