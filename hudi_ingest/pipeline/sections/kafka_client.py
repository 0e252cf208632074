"""How a pipeline file sets up Kafka clients: `source.security` (encryption, logins, certificates and tokens) and `source.kafka`, the
properties that librdkafka knows and that are not hudi-ingest's to set.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from hudi_ingest.exceptions.problems import quoted, suggestion
from hudi_ingest.pipeline.settings.model import File, Model
from hudi_ingest.pipeline.settings.references import Secret

_Text = Annotated[str, StringConstraints(min_length=1)]
_NOT_BY = {
    "OAUTHBEARER": "which logs in with a token; remove it, and set `oauth`",
    "GSSAPI": "which logs in with Kerberos; remove it, and set `source.kafka` to `sasl.kerberos.principal`, "
    "`sasl.kerberos.keytab` and, if it is not kafka, `sasl.kerberos.service.name`",
}
"""Why a mechanism has no username and password."""
_SECURITY = "set {} instead"
_OFFSETS = "the table holds the offsets, so hudi-ingest reads without a group and commits nothing"
_ISOLATION = "exactly once needs committed records only, each partition to its end and no jump to other offsets"
_PRODUCER = "it belongs to the producer of dead letters, which must not lose or double them"
_CALLBACK = "it is a callback or an object of the client's program, which a file cannot provide"
_TOKENS = "set source.security.oauth instead, whose token_function may get tokens in any way"
_OWN_LOG = "hudi-ingest reads the client's log, events and statistics itself"
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
    # With those that librdkafka has for assertions, whose files and keys it would send to any address.
    _TOKENS: (
        "sasl.oauthbearer.",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "https.ca.location",
        "https.ca.pem",
        "sasl.jaas.config",
    ),
    _SECURITY.format("source.security.ca_file or ssl.keystore.location"): ("ssl.truststore.location",),
    _SECURITY.format("source.topics or source.topics_pattern"): ("topic.blacklist",),
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
        "max.poll.records",
        "share.acknowledgement.mode",
    ),
    _ISOLATION: (
        "isolation.level",
        "auto.offset.reset",
        "enable.partition.eof",
        "check.crcs",
        "consume.callback.max.messages",
        "allow.auto.create.topics",
        # Without the broker's own versions a client asks in old ones, which know no transactions.
        "api.version.request",
        "api.version.fallback.ms",
        "broker.version.fallback",
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
        "queuing.strategy",
    ),
    "it loads a native library into every process": (
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.engine.id",
        "ssl.providers",
    ),
    "it is a command that every process would run": ("sasl.kerberos.kinit.cmd",),
    _OWN_LOG: (
        "log.queue",
        "enabled_events",
        "enable_sasl_queue",
        "internal.termination.signal",
        "statistics.interval.ms",
    ),
    "it replaces the brokers by mock ones": ("test.mock.num.brokers", "test.mock.broker.rtt"),
    "it says how librdkafka was built": ("builtin.features",),
    "the client names itself": ("client.software.name", "client.software.version"),
    _CALLBACK: (
        "opaque",
        "default_topic_conf",
        "ssl_ca",
        "ssl_certificate",
        "ssl_key",
        "ssl_engine_callback_data",
        "interceptors",
        "msg_order_cmp",
    ),
}
RESERVED: Mapping[str, str] = {name: reason for reason, names in _REASONS.items() for name in names}
"""Why a property cannot be set, by name; a name that ends with a dot stands for all that begin with it."""
FILES = frozenset({"ssl.crl.location", "ssl.keystore.location", "sasl.kerberos.keytab"})
"""Properties that are paths of files on this machine and on Spark's workers."""
ONLY_IN_FILES = frozenset({"debug", "log_level"})
"""Properties with which the client may write what it sends and receives to the log, and which are not taken over REST."""
_IN_A_COMMAND = frozenset({"sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.service.name"})
"""Properties that librdkafka puts into the command line of kinit, which a shell runs."""
ALLOWED = frozenset(
    {
        *FILES,
        *ONLY_IN_FILES,
        *_IN_A_COMMAND,
        "api.version.request.timeout.ms",
        "batch.num.messages",
        "batch.size",
        "broker.address.family",
        "broker.address.ttl",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.codec",
        "compression.level",
        "compression.type",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "enable.random.seed",
        "enable.sparse.connections",
        "enable.ssl.certificate.verification",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "linger.ms",
        "log.connection.close",
        "log.thread.name",
        "max.partition.fetch.bytes",
        "message.copy.max.bytes",
        "message.max.bytes",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metadata.request.timeout.ms",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
        "reconnect.backoff.jitter.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.kerberos.min.time.before.relogin",
        "socket.blocking.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "ssl.ca.certificate.stores",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "ssl.sigalgs.list",
        "sticky.partitioning.linger.ms",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.cnt",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)
"""The properties that `source.kafka` takes. One of a newer librdkafka that is neither here nor in RESERVED is refused until somebody has
read what it does: such properties have read files and asked addresses of the file's choice."""
_UNKNOWN, _INVALID = -2, -1
_TEXT_BYTES = 512


class OAuth(Model):
    """Where tokens come from: from an identity provider for a client's id and secret, or from a function."""

    token_url: str | None = Field(default=None, json_schema_extra={"allowed": "https://… or http://…"})
    """The identity provider's token endpoint, which is asked for tokens by the grant `client_credentials`."""

    client_id: _Text | None = Field(default=None, validate_default=True)
    """The client's id at the identity provider. Required with `token_url`, refused without."""

    client_secret: Annotated[Secret, Field(min_length=1)] | None = Field(default=None, validate_default=True)
    """The client's secret, best provided as `${NAME}` or `${file:PATH}`. Required with `token_url`, refused without."""

    scope: _Text | None = None
    """The scope to ask for. Only with `token_url`."""

    extensions: dict[str, _Text] = Field(
        default_factory=dict, json_schema_extra={"allowed": "{name: value}", "default": "{}"}
    )
    """SASL extensions that the broker asks for, like `{logicalCluster: lkc-1}`. Only with `token_url`."""

    ca_file: File | None = None
    """PEM file of the certificate authorities that signed the token endpoint's certificate; relative to the pipeline file.
    Spark's workers must find it at the same path. Only with `token_url`."""

    token_function: Annotated[str, StringConstraints(pattern=r"^[\w.]+:\w+$")] | None = Field(
        default=None,
        validate_default=True,
        json_schema_extra={"allowed": "package.module:function, like hudi_ingest.kafka.msk:token"},
    )
    """A function that returns a token and its expiry; see docs/authentication.md. It must be importable on Spark's workers
    too. Instead of `token_url`."""

    options: dict[str, Secret] = Field(
        default_factory=dict, json_schema_extra={"allowed": "{name: text}", "default": "{}"}
    )
    """What `token_function` is called with, like `{region: eu-west-1}`. Values are treated as secrets."""

    @field_validator("token_url")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if "@" in parts.netloc:
                raise ValueError("must not contain a login; set client_id and client_secret")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"not a token endpoint; found {quoted(value)}; allowed: https://… or http://…")
        return value

    @field_validator("client_id", "client_secret")
    @classmethod
    def _of_the_client(cls, value: object, info: ValidationInfo) -> object:
        if value is None and info.data.get("token_url") is not None:
            raise ValueError("missing; token_url needs client_id and client_secret")
        return value

    @field_validator("token_function")
    @classmethod
    def _one_way(cls, value: str | None, info: ValidationInfo) -> str | None:
        if "token_url" not in info.data:
            return value
        url = info.data["token_url"]
        if (url is None) == (value is None):
            found = "neither is set" if url is None else "both are set"
            raise ValueError(f"tokens come from token_url or from token_function; {found}")
        of_url = ("client_id", "client_secret", "scope", "extensions", "ca_file")
        used = [key for key in of_url if info.data.get(key)]
        if value is not None and used:
            raise ValueError(f"{', '.join(used)}: only with token_url; remove, or pass them in options")
        return value

    @field_validator("options")
    @classmethod
    def _for_the_function(cls, value: dict[str, Secret], info: ValidationInfo) -> dict[str, Secret]:
        if value and info.data.get("token_function", "") is None:
            raise ValueError("only with token_function; remove it")
        return value


class Security(Model):
    """How to log in to the brokers. Without it the connection is plain text and anonymous."""

    protocol: Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"]
    """Whether the connection is encrypted (SSL) and needs a login (SASL)."""

    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None = Field(
        default=None, validate_default=True
    )
    """How to log in: with a password, a token (OAUTHBEARER, also for AWS MSK IAM) or Kerberos (GSSAPI). Required with a SASL
    protocol, refused without."""

    username: _Text | None = Field(default=None, validate_default=True)
    """The login. Required with a mechanism of passwords, refused without."""

    password: Annotated[Secret, Field(min_length=1)] | None = Field(default=None, validate_default=True)
    """The login's password, best provided as `${NAME}` or `${file:PATH}`; never shown in logs or messages. Required with a
    mechanism of passwords, refused without."""

    oauth: OAuth | None = Field(default=None, validate_default=True)
    """Where tokens come from. Required with OAUTHBEARER, refused without."""

    ca_file: File | None = None
    """PEM file of the certificate authorities to trust instead of the system's; relative to the pipeline file.
    Spark's workers must find it at the same path."""

    certificate_file: File | None = None
    """PEM file of the client certificate, for brokers that ask for one; relative to the pipeline file. Spark's workers must
    find it at the same path."""

    key_file: File | None = Field(default=None, validate_default=True)
    """PEM file of that certificate's private key, as PKCS #8 and not encrypted (`BEGIN PRIVATE KEY`); relative to the
    pipeline file. Spark's workers must find it at the same path. Required with `certificate_file`, refused without."""

    @field_validator("sasl_mechanism", "username", "password", "oauth")
    @classmethod
    def _fits_protocol(cls, value: object, info: ValidationInfo) -> object:
        protocol, mechanism = info.data.get("protocol"), info.data.get("sasl_mechanism")
        if protocol == "SSL" and value is not None:
            raise ValueError("not used by protocol SSL; remove it, or set protocol to SASL_SSL")
        if protocol in (None, "SSL"):
            return value
        if info.field_name == "sasl_mechanism" and value is None:
            raise ValueError(f"missing; protocol {protocol} needs sasl_mechanism, and the credentials for it")
        if info.field_name == "oauth" and mechanism is not None:
            if (value is None) == (mechanism == "OAUTHBEARER"):
                needs = "missing; OAUTHBEARER needs token_url or token_function in it"
                raise ValueError(needs if value is None else f"not used by sasl_mechanism {mechanism}; remove it")
        elif info.field_name in ("username", "password"):
            if mechanism in _NOT_BY and value is not None:
                raise ValueError(f"not used by sasl_mechanism {mechanism}, {_NOT_BY[mechanism]}")
            # Without it in the data, it has a problem of its own.
            if "sasl_mechanism" in info.data and mechanism not in _NOT_BY and value is None:
                raise ValueError(f"missing; protocol {protocol} needs sasl_mechanism, username and password")
        return value

    @field_validator("sasl_mechanism")
    @classmethod
    def _is_built_in(cls, value: str | None) -> str | None:
        if value == "GSSAPI" and not has_feature("sasl_gssapi"):
            raise ValueError(
                "this librdkafka was built without Kerberos, as in the wheels of confluent-kafka; build confluent-kafka from "
                "source against a librdkafka with libsasl2 (`pip install --no-binary confluent-kafka confluent-kafka`), here "
                "and on Spark's workers"
            )
        return value

    @field_validator("ca_file", "certificate_file", "key_file")
    @classmethod
    def _file_is_used(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("protocol") == "SASL_PLAINTEXT":
            raise ValueError("not used by protocol SASL_PLAINTEXT, which does not encrypt; remove it, or use SASL_SSL")
        return value

    @field_validator("key_file")
    @classmethod
    def _key_fits_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if (value is None) != (info.data.get("certificate_file") is None) and "certificate_file" in info.data:
            missing = "key_file" if value is None else "certificate_file"
            raise ValueError(f"{missing} is missing; a client's certificate needs certificate_file and key_file")
        return value


_PLAIN = re.compile(r"[A-Za-z0-9._/@+:=,-]*")
_MOST_LOOKED_AT = 200
"""Properties. More than may be set, so that a file with more has problems among them."""


def reason_against(name: str) -> str | None:
    """Why the property cannot be set; None if it can, or if no list has it."""
    group = next((each for each in RESERVED if each.endswith(".") and name.startswith(each)), name)
    return RESERVED.get(group) or (_CALLBACK if name.endswith("_cb") else None)


def property_problems(properties: Mapping[str, Secret]) -> Iterator[tuple[str, str]]:
    """Yield each property that cannot be set, and why, without showing its value. Asks librdkafka; no network."""
    for name, value in islice(properties.items(), _MOST_LOOKED_AT):
        reason = reason_against(name)
        if reason is not None:
            yield name, f"cannot be set here: {reason}"
        elif _set(name, None) == _UNKNOWN:
            close = suggestion(name, {*ALLOWED, *(each for each in RESERVED if not each.endswith("."))})
            yield name, f"librdkafka {_version()} has no such property; the names are librdkafka's, not Java's{close}"
        elif name not in ALLOWED:
            yield (
                name,
                f"librdkafka {_version()} has it, and this version of hudi-ingest does not know it, so it cannot be set; ask for it "
                "with a word on what it is for",
            )
        elif name in _IN_A_COMMAND and value.is_remote:
            yield (
                name,
                "takes no vault, because it becomes a part of the command that renews the ticket; write the value",
            )
        # A vault is asked when a client is made.
        elif not value.is_remote and _set(name, value.get_secret_value()) == _INVALID:
            yield name, f"librdkafka {_version()} does not take this value for it; see its CONFIGURATION.md"
        elif name in FILES and not value.is_remote and not Path(value.get_secret_value()).is_absolute():
            yield name, "not an absolute path; every process would look for it in its own working folder"
        elif name in _IN_A_COMMAND and not _PLAIN.fullmatch(value.get_secret_value()):
            yield (
                name,
                "becomes a part of the command that renews the ticket; allowed: letters, digits and . _ / @ + : = , -",
            )


@cache
def has_feature(name: str) -> bool:
    """Whether librdkafka was built with a feature, like `sasl_gssapi`."""
    features = dict(_dumped()).get("builtin.features", "")
    return name in features.split(",")


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
