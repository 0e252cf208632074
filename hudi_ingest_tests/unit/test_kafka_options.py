"""What Kafka's clients are told: exactly the planned slices, and secrets where they belong and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hudi_ingest.config import KafkaSource
from hudi_ingest.kafka import librdkafka_options, spark_options
from hudi_ingest.model import Slice

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


@pytest.mark.parametrize("show", [repr, str, lambda found: found.model_dump_json()])
def test_the_password_is_never_shown(show: Any) -> None:
    assert 'p"a' not in show(source(security=SECURITY))
    assert "****" in show(source(security=SECURITY))
