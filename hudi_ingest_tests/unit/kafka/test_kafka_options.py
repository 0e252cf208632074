"""What Kafka's clients are told: exactly the planned slices, and secrets where they belong and nowhere else."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.kafka import cluster as kafka
from hudi_ingest.kafka.cluster import KafkaCluster, librdkafka_options, spark_options, told_by_spark
from hudi_ingest.model.offsets import Slice, TopicPartition, Watermarks
from hudi_ingest.pipeline.source import KafkaSource

SECURITY = {
    "protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "me",
    "password": 'p"a\\ss',
    "ca_file": "/etc/ca.pem",
}


def source(**more: Any) -> KafkaSource:
    return KafkaSource.model_validate({"bootstrap_servers": "a:1,b:2", "topics": ["orders"], **more})


def test_r3_spark_reads_exactly_the_slices_and_only_what_is_committed() -> None:
    found = spark_options(source(), [Slice("orders", 0, 5, 9), Slice("orders", 11, 0, 2)], 3)
    assert json.loads(found["assign"]) == {"orders": [0, 11]}
    assert json.loads(found["startingOffsets"]) == {"orders": {"0": 5, "11": 0}}
    assert json.loads(found["endingOffsets"]) == {"orders": {"0": 9, "11": 2}}
    assert (found["failOnDataLoss"], found["kafka.isolation.level"]) == ("true", "read_committed")
    assert found["minPartitions"] == "3"


def test_security_reaches_both_clients() -> None:
    secured = source(security=SECURITY)
    rust = librdkafka_options(secured)
    assert (rust["security.protocol"], rust["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (rust["sasl.username"], rust["sasl.password"]) == ("me", 'p"a\\ss')
    assert rust["ssl.ca.location"] == "/etc/ca.pem"
    java = spark_options(secured, [], 1)
    assert java["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="p\\"a\\\\ss";'
    )
    assert java["kafka.ssl.truststore.location"] == "/etc/ca.pem"


def test_a_client_certificate_reaches_both_clients(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "c.key"
    certificate.write_text("the certificate")
    key.write_text("the key")
    secured = source(security={"protocol": "SSL", "certificate_file": str(certificate), "key_file": str(key)})
    rust = librdkafka_options(secured)
    assert (rust["ssl.certificate.location"], rust["ssl.key.location"]) == (str(certificate), str(key))
    java = spark_options(secured, [], 1)
    assert java["kafka.ssl.keystore.type"] == "PEM"
    assert java["kafka.ssl.keystore.certificate.chain"] == "the certificate"
    assert java["kafka.ssl.keystore.key"] == "the key"
    key.unlink()
    with pytest.raises(KafkaRefused, match=r"cannot be read: No such file.*found path .*c\.key"):
        spark_options(secured, [], 1)


def test_a_login_cannot_add_to_javas_login_configuration() -> None:
    secured = source(security={**SECURITY, "username": 'me" debug="true', "password": 'a";\nb required;\r\\'})
    assert spark_options(secured, [], 1)["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me\\" debug=\\"true" password="a\\";\\nb required;\\r\\\\";'
    )


JAVAS_REFUSAL = "SaslAuthenticationException: Authentication failed during authentication due to invalid credentials"


def test_a_refusal_and_a_time_out_are_found_in_sparks_error() -> None:
    java = "org.apache.kafka.common.errors"
    told = f"Py4JJavaError: x\n\tat a.b(C.java)\nCaused by: {java}.{JAVAS_REFUSAL}\n\tat d"
    refusal = told_by_spark(told, "orders:0 [0, 5)", source(security=SECURITY))
    assert isinstance(refusal, KafkaRefused)
    assert f"Kafka a:1,b:2: {java}.{JAVAS_REFUSAL}. The broker does not accept user me" in str(refusal)
    timeout = told_by_spark(f"Caused by: {java}.TimeoutException: no answer\n", "orders:0 [0, 5)", source())
    assert isinstance(timeout, KafkaUnreachable)
    assert told_by_spark("Caused by: java.util.concurrent.TimeoutException: x", "orders:0 [0, 5)", source()) is None


@pytest.mark.parametrize("show", [repr, str, lambda found: found.model_dump_json()])
def test_the_password_is_never_shown(show: Any) -> None:
    assert 'p"a' not in show(source(security=SECURITY))
    assert "****" in show(source(security=SECURITY))


class _Admin:
    """A broker whose partition has no leader for the first so many requests: a real one cannot be made to."""

    def __init__(self, without_leader: int) -> None:
        self._left = without_leader

    def list_offsets(self, wanted: Any, **more: Any) -> dict[Any, Future[Any]]:
        self._left -= 1
        answers: dict[Any, Future[Any]] = {each: Future() for each in wanted}
        for answer in answers.values():
            if self._left >= 0:
                answer.set_exception(KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)))
            else:
                answer.set_result(SimpleNamespace(offset=7))
        return answers

    def poll(self, seconds: float) -> None:
        pass


def test_a_partition_whose_leader_is_being_chosen_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_AGAIN_SECONDS", 0)
    cluster = KafkaCluster(source(request_timeout_seconds=0.2))
    monkeypatch.setitem(cluster.__dict__, "_admin", _Admin(3))
    partition = TopicPartition("orders", 0)
    assert cluster.watermarks([partition]) == {partition: Watermarks(7, 7)}
    monkeypatch.setitem(cluster.__dict__, "_admin", _Admin(10**9))
    with pytest.raises(
        KafkaUnreachable, match=r"could not read offsets at Kafka .*: orders:0: .* this is temporary"
    ) as raised:
        cluster.watermarks([partition])
    assert "Check source.bootstrap_servers" not in str(raised.value)
