"""The settings of every Kafka client: addresses, timeouts, login and certificates."""

from __future__ import annotations

import logging
import math
from typing import Any

from hudi_ingest.pipeline.source import KafkaSource

client_logger = logging.getLogger("librdkafka")
"""Not below our logger: the client's complaints are in our errors already."""

READ_COMMITTED: dict[str, str] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    # A missing offset is an error, not a reason to read elsewhere.
    "auto.offset.reset": "error",
    # Report the end of a partition instead of waiting there.
    "enable.partition.eof": "true",
    # By default a partition waits a second before it is fetched when other partitions have filled the queue.
    "fetch.queue.backoff.ms": "2",
}
"""Settings of a consumer that reads given offsets, only what is committed, and commits nothing itself."""

_RECONNECT_MILLISECONDS = 1000


def librdkafka_options(source: KafkaSource) -> dict[str, Any]:
    """Settings for confluent-kafka clients; contains the password in clear text, so never print it."""
    options: dict[str, Any] = {
        "bootstrap.servers": source.bootstrap_servers,
        "socket.timeout.ms": _milliseconds(source),
        # By default a refused client reconnects twenty times a second.
        "reconnect.backoff.ms": _RECONNECT_MILLISECONDS,
        "reconnect.backoff.max.ms": _RECONNECT_MILLISECONDS,
    }
    security = source.security
    if security is not None:
        options["security.protocol"] = security.protocol
        if security.ca_file is not None:
            options["ssl.ca.location"] = str(security.ca_file)
        if security.certificate_file is not None:
            options["ssl.certificate.location"] = str(security.certificate_file)
            options["ssl.key.location"] = str(security.key_file)
        if security.sasl_mechanism is not None and security.password is not None:
            options["sasl.mechanism"] = security.sasl_mechanism
            options["sasl.username"] = security.username
            options["sasl.password"] = security.password.get_secret_value()
    return options


def _milliseconds(source: KafkaSource) -> int:
    return math.ceil(source.request_timeout_seconds * 1000)
