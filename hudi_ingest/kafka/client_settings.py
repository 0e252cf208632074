"""The settings of every Kafka client: addresses, timeouts, login and certificates, and the tokens of SASL OAUTHBEARER from a
function of the user's choice."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from hudi_ingest.kafka.client_errors import Trouble, no_token
from hudi_ingest.model.deadline import within
from hudi_ingest.pipeline.sections.kafka_client import OAuth, Security
from hudi_ingest.pipeline.sections.source import KafkaSource

client_logger = logging.getLogger("librdkafka")
"""Not below our logger: the client's complaints are in our errors already."""

# The properties of source.kafka go to every client, and each says that it ignores those that are for another kind.
client_logger.addFilter(lambda record: "property and will be ignored by this" not in record.getMessage())

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
_TOKEN_SECONDS = 30.0
"""For a token function's answer. A client that has a token uses it meanwhile."""


def librdkafka_options(source: KafkaSource) -> dict[str, str]:
    """Settings for librdkafka; contains secrets in clear text, so never print it. Those of `source.kafka` come last.

    With a token function, the client also needs the callback `tokens_of`.
    """
    options = {
        "bootstrap.servers": source.bootstrap_servers,
        "socket.timeout.ms": str(_milliseconds(source)),
        # By default a refused client reconnects twenty times a second.
        "reconnect.backoff.ms": str(_RECONNECT_MILLISECONDS),
        "reconnect.backoff.max.ms": str(_RECONNECT_MILLISECONDS),
    }
    if source.security is not None:
        options |= _security_options(source.security)
    return options | {name: value.get_secret_value() for name, value in source.kafka.items()}


def overriding(options: Mapping[str, Any], source: KafkaSource) -> dict[str, Any]:
    """A client's own options without those that the pipeline file sets."""
    return {name: value for name, value in options.items() if name not in source.kafka}


def confluent_options(source: KafkaSource, trouble: Trouble) -> dict[str, Any]:
    """Settings for clients of confluent-kafka, which tell `trouble` what they meet. Raises KafkaRefused without a token."""
    options: dict[str, Any] = {**librdkafka_options(source), "error_cb": trouble.note}
    tokens = tokens_of(source, trouble)
    return options if tokens is None else {**options, "oauth_cb": tokens}


def tokens_of(source: KafkaSource, trouble: Trouble) -> Tokens | None:
    """What a client calls for its tokens; None if it needs none, or gets them from an identity provider itself.
    Raises KafkaRefused when there is no first one."""
    oauth = source.security.oauth if source.security else None
    if oauth is None or oauth.token_function is None:
        return None
    try:
        return Tokens(oauth, trouble.note_no_token)
    except NoToken as problem:
        raise no_token(source, str(problem)) from None


def _security_options(security: Security) -> dict[str, str]:
    options: dict[str, str | None] = {
        "security.protocol": security.protocol,
        "ssl.ca.location": _path(security.ca_file),
        "ssl.certificate.location": _path(security.certificate_file),
        "ssl.key.location": _path(security.key_file),
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password.get_secret_value() if security.password else None,
    }
    oauth = security.oauth
    if oauth is not None and oauth.token_url is not None and oauth.client_secret is not None:
        options |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": oauth.token_url,
            "sasl.oauthbearer.client.id": oauth.client_id,
            "sasl.oauthbearer.client.secret": oauth.client_secret.get_secret_value(),
            "sasl.oauthbearer.scope": oauth.scope,
            "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in oauth.extensions.items()),
            "https.ca.location": _path(oauth.ca_file),
        }
    return {name: value for name, value in options.items() if value}


def _path(file: object) -> str | None:
    return None if file is None else str(file)


def _milliseconds(source: KafkaSource) -> int:
    return math.ceil(source.request_timeout_seconds * 1000)


class NoToken(Exception):
    """The function gave no token that a client could use. The text shows neither the token nor the options."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and when it expires, in seconds since 1970. `principal` is for the client's log only."""

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""
    extensions: dict[str, str] = field(default_factory=dict)


class Tokens:
    """Asks the pipeline's token function for the tokens of one client: for the first now, because without one a client only
    waits; then whenever four fifths of a token's life are over, in a thread of librdkafka's."""

    def __init__(self, oauth: OAuth, on_failure: Callable[[str], None]) -> None:
        """`on_failure` gets what went wrong later. Raises NoToken."""
        self._oauth = oauth
        self._on_failure = on_failure
        self._first: Token | None = self._asked()

    def token(self) -> Token:
        """The token to use now. Raises NoToken, also to `on_failure`."""
        if self._first is not None:
            token, self._first = self._first, None
            return token
        try:
            return self._asked()
        except NoToken as problem:
            self._on_failure(str(problem))
            raise

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """As confluent-kafka calls its `oauth_cb`."""
        token = self.token()
        return token.value, token.expires_at, token.principal, token.extensions

    def _asked(self) -> Token:
        path = self._oauth.token_function
        assert path is not None, "checked by tokens_of"
        module, _, name = path.partition(":")
        options = {}
        try:
            options = {key: value.get_secret_value() for key, value in self._oauth.options.items()}
            answer: Any = within(_TOKEN_SECONDS, lambda: getattr(import_module(module), name)(options))
        except Exception as error:  # noqa: BLE001 - the user's own code may raise anything, and show a secret
            raise NoToken(f"{path} failed: {type(error).__name__}: {_without(options.values(), str(error))}") from None
        try:
            value, expires_at, *more = answer
            principal, extensions = (*more, "", {})[:2] if len(more) < 2 else more
            token = Token(value, float(expires_at), str(principal), dict(extensions))
        except (TypeError, ValueError):
            token = None
        if token is None or not isinstance(token.value, str) or not token.value:
            raise NoToken(f"{path} returned no (token, expiry in seconds since 1970)")
        if token.expires_at <= time.time():
            raise NoToken(f"{path} returned a token that expired {time.time() - token.expires_at:,.0f} s ago")
        return token


def _without(secrets: Any, text: str) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, "****")
    return text
