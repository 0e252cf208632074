"""What Kafka's clients are told: secrets where they belong and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.kafka.client_settings import librdkafka_options
from hudi_ingest.pipeline.sections.source import KafkaSource

SECURITY = {
    "protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "me",
    "password": 'p"a\\ss',
    "ca_file": "/etc/ca.pem",
}


def source(**more: Any) -> KafkaSource:
    return KafkaSource.model_validate({"bootstrap_servers": "a:1,b:2", "topics": ["orders"], **more})


def test_security_reaches_the_client() -> None:
    secured = source(security=SECURITY)
    options = librdkafka_options(secured)
    assert (options["security.protocol"], options["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (options["sasl.username"], options["sasl.password"]) == ("me", 'p"a\\ss')
    assert options["ssl.ca.location"] == "/etc/ca.pem"


def test_a_client_certificate_reaches_the_client(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "c.key"
    certificate.write_text("the certificate")
    key.write_text("the key")
    secured = source(security={"protocol": "SSL", "certificate_file": str(certificate), "key_file": str(key)})
    options = librdkafka_options(secured)
    assert (options["ssl.certificate.location"], options["ssl.key.location"]) == (str(certificate), str(key))


@pytest.mark.parametrize("show", [repr, str, lambda found: found.model_dump_json()])
def test_the_password_is_never_shown(show: Any) -> None:
    assert 'p"a' not in show(source(security=SECURITY))
    assert "****" in show(source(security=SECURITY))
