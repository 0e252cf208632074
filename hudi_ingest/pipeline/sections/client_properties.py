"""Properties of Kafka clients that a pipeline file may set: which librdkafka knows, and which are not the file's to set."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from hudi_ingest.exceptions.problems import suggestion
from hudi_ingest.pipeline.settings.references import Secret

_SECURITY = "set {} instead"
_OFFSETS = "the table holds the offsets, so hudi-ingest reads without a group and commits nothing"
_ISOLATION = "exactly once needs committed records only, each partition to its end and no jump to other offsets"
_PRODUCER = "it belongs to the producer of dead letters, which must not lose or double them"
_CALLBACK = "it is a callback or an object of the client's program, which a file cannot provide"

_REASONS: Mapping[str, tuple[str, ...]] = {
    _SECURITY.format("source.bootstrap_servers"): ("bootstrap.servers", "metadata.broker.list"),
    _SECURITY.format("source.request_timeout_seconds"): ("socket.timeout.ms",),
    _SECURITY.format("source.group_id"): ("group.id",),
    _SECURITY.format("source.security.protocol"): ("security.protocol",),
    _SECURITY.format("source.security.sasl_mechanism"): ("sasl.mechanism", "sasl.mechanisms"),
    _SECURITY.format("source.security.username"): ("sasl.username",),
    _SECURITY.format("source.security.password"): ("sasl.password",),
    _SECURITY.format("source.security.ca_file"): ("ssl.ca.location",),
    _SECURITY.format("source.security.certificate_file"): ("ssl.certificate.location",),
    _SECURITY.format("source.security.key_file"): ("ssl.key.location",),
    _SECURITY.format("source.security.oauth"): (
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.config",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "https.ca.location",
    ),
    _OFFSETS: (
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "coordinator.query.interval.ms",
        "max.poll.interval.ms",
        "enable.auto.commit",
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "enable.auto.offset.store",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
    ),
    _ISOLATION: (
        "isolation.level",
        "auto.offset.reset",
        "enable.partition.eof",
        "check.crcs",
        "consume.callback.max.messages",
        "allow.auto.create.topics",
    ),
    _PRODUCER: (
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "transactional.id",
        "transaction.timeout.ms",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "message.send.max.retries",
        "retries",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "dr_msg_cb",
        "dr_cb",
        "produce.offset.report",
        "delivery.report.only.error",
    ),
    "it loads a native library into every process": ("plugin.library.paths", "ssl.engine.location", "ssl.providers"),
    "it is a command that every process would run": ("sasl.kerberos.kinit.cmd",),
    "hudi-ingest reads the client's log and events itself": (
        "log.queue",
        "enabled_events",
        "enable_sasl_queue",
        "internal.termination.signal",
    ),
    "it replaces the brokers by mock ones": ("test.mock.num.brokers", "test.mock.broker.rtt"),
    "it says how librdkafka was built": ("builtin.features",),
}
RESERVED: Mapping[str, str] = {name: reason for reason, names in _REASONS.items() for name in names}
"""Why a property cannot be set, by name."""

_WITHOUT_DEFAULT = (
    "sasl.kerberos.keytab",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.sigalgs.list",
)
"""Properties that librdkafka takes and does not list."""
_UNKNOWN, _INVALID = -2, -1
_TEXT_BYTES = 512


def property_problems(properties: Mapping[str, Secret]) -> Iterator[tuple[str, str]]:
    """Yield each property that cannot be set, and why, without showing its value. Asks librdkafka; no network."""
    for name, value in properties.items():
        reason = RESERVED.get(name) or (_CALLBACK if name.endswith("_cb") or name in _pointers() else None)
        if reason is not None:
            yield name, f"cannot be set here: {reason}"
        elif _set(name, None) == _UNKNOWN:
            close = suggestion(name, {*known_properties(), *_WITHOUT_DEFAULT, *RESERVED})
            yield name, f"librdkafka {_version()} has no such property; the names are librdkafka's, not Java's{close}"
        # A vault is asked when a client is made.
        elif not value.is_remote and _set(name, value.get_secret_value()) == _INVALID:
            yield name, f"librdkafka {_version()} does not take this value for it; see its CONFIGURATION.md"


@cache
def known_properties() -> tuple[str, ...]:
    """The names of librdkafka's properties that have a default."""
    return tuple(name for name, _ in _dumped())


@cache
def has_feature(name: str) -> bool:
    """Whether librdkafka was built with a feature, like `sasl_gssapi`."""
    features = dict(_dumped()).get("builtin.features", "")
    return name in features.split(",")


@cache
def _pointers() -> frozenset[str]:
    return frozenset({"opaque", "default_topic_conf", "ssl_ca", "ssl_certificate", "ssl_key", "interceptors"})


@cache
def _library() -> Any:
    # Imported here: only pipelines that set properties need it to be loaded.
    from confluent_kafka import cimpl

    library = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_destroy.argtypes = (ctypes.c_void_p,)
    text, size = ctypes.c_char_p, ctypes.c_size_t
    library.rd_kafka_conf_set.argtypes = (ctypes.c_void_p, text, text, text, size)
    library.rd_kafka_conf_dump.argtypes = (ctypes.c_void_p, ctypes.POINTER(size))
    library.rd_kafka_conf_dump.restype = ctypes.POINTER(text)
    library.rd_kafka_conf_dump_free.argtypes = (ctypes.POINTER(text), size)
    library.rd_kafka_version_str.restype = text
    return library


def _version() -> str:
    return str(_library().rd_kafka_version_str().decode())


def _set(name: str, value: str | None) -> int:
    library = _library()
    conf = library.rd_kafka_conf_new()
    try:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        encoded = None if value is None else value.encode()
        return int(library.rd_kafka_conf_set(conf, name.encode(), encoded, text, _TEXT_BYTES))
    finally:
        library.rd_kafka_conf_destroy(conf)


def _dumped() -> Iterable[tuple[str, str]]:
    library = _library()
    conf, count = library.rd_kafka_conf_new(), ctypes.c_size_t()
    entries = library.rd_kafka_conf_dump(conf, ctypes.byref(count))
    texts = [(entries[index] or b"").decode() for index in range(count.value)]
    library.rd_kafka_conf_dump_free(entries, count)
    library.rd_kafka_conf_destroy(conf)
    return tuple(zip(texts[::2], texts[1::2], strict=True))
