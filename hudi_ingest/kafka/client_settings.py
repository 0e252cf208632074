"""The settings of every Kafka client: addresses, timeouts, login and certificates, and the tokens of SASL OAUTHBEARER from a
function of the user's choice; and its errors, with their causes in the broker, the login or the certificates."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from confluent_kafka import KafkaError

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.home.folder import Home, embedded_broker
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
"""Seconds for a token function's answer. A client that has a token uses it meanwhile."""
OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
"""Codes of errors that say that the broker does not have the offset to be read."""
_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()
"""The client says it in the text of an error with one of those codes, beside the end of the epoch it asked for, or -1 if the broker has
no such epoch."""
_END_OF_EPOCH = re.compile(r"broker end offset is (-?\d+)")
_REFUSALS = {KafkaError._AUTHENTICATION, KafkaError._SSL}
_ALERT = "SSL alert number"
"""Marks a broker's refusal of a client certificate in what otherwise looks like a network error."""
_UNDECIDED = re.compile("not valid in current SASL state|handshake failed: Local: ")
"""Marks logins of which the broker has not said whether it accepts them: the connection broke meanwhile, or the client logged in twice
within a second, as one does that connects while its token is about to expire. The client connects again."""
_TOKEN_REFUSED = "invalid_token"
"""Marks a broker's refusal of a token (RFC 7628), which may only have expired."""
_LOGIN_FAILED = re.compile("SASL ?Authentication", re.IGNORECASE)
_NO_TOKEN = re.compile("no token: |acquire SASL OAUTHBEARER token|OIDC", re.IGNORECASE)
_TOKEN_FAILURE = re.compile(r"acquire SASL OAUTHBEARER token: (.*)", re.DOTALL)
_WITHOUT_THE_ANSWER = re.compile(
    r"Could not resolve[\w .:-]*|Failed to connect to [\w.:-]+(?: port \d+)? after \d+ ms: [\w ']*|Empty reply from server"
    r"|\w+ timed out after \d+ milliseconds(?: with [\w ]+)?|(?:Recv|Send) failure: [\w ]+|(?:SSL|TLS|error setting)[\w ,.:'()-]{0,200}"
    r'|Expected JSON(?: JWT)? response with "\w+" field|Failed to decode JWT payload: [\w ]+|Must supply an unexpired token: [\w=, ]+'
)
"""Texts of librdkafka and of its HTTP client about a token endpoint that have nothing of the endpoint's answer."""
_OAUTH_CODE = re.compile(
    r'"error"\s*:\s*"(invalid_(?:request|client|grant|scope)|un(?:authorized_client|supported_grant_type)|access_denied|server_error'
    r'|temporarily_unavailable)"'
)
"""RFC 6749's codes of errors in an answer."""
_WITHOUT_PASSWORD = ("OAUTHBEARER", "GSSAPI")
_PROTOCOLS_DIFFER = "every connection was closed at once, as when source.security.protocol does not match the port"
_NOT_ALLOWED = re.compile(r"\b(Topic|Group|Cluster) authorization failed")
"""Marks an answer to a login that is accepted, but lacks a right."""
_CHECK = "Check source.bootstrap_servers and source.security, and that the broker runs."
_LEARNED = re.compile(r"([^\s/]+:\d+)/\d+: (?:Connect to|Failed to resolve)")
"""A broker that cannot be reached at an address that another one has named; those of the settings are called bootstrap."""


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
    """Settings for clients of confluent-kafka, which report their errors to `trouble`. Raises KafkaRefused without a token."""
    options: dict[str, Any] = {**librdkafka_options(source), "error_cb": trouble.note}
    tokens = tokens_of(source, trouble)
    return options if tokens is None else {**options, "oauth_cb": tokens}


def tokens_of(source: KafkaSource, trouble: Trouble) -> Tokens | None:
    """Return the function that a client calls for its tokens; None if it needs none, or gets them from an identity provider itself.
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
        """Return a token, as confluent-kafka asks its `oauth_cb`."""
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


class Trouble:
    """Errors a client has reported outside its answers since its last good answer."""

    def __init__(self) -> None:
        self._was_let_in = False
        self.clear()

    def answered(self) -> None:
        """Note a good answer, which ends all trouble."""
        self._was_let_in = True
        self.clear()

    def clear(self) -> None:
        self.refusal = ""
        self.last = ""
        self.all_down = False

    @property
    def is_final(self) -> bool:
        """Whether a broker has refused the client for good and no other broker is left to ask. A client that was let in before
        and is refused for its token may have slept while the token expired: it connects again with its next one."""
        token_may_have_expired = self._was_let_in and _TOKEN_REFUSED in self.refusal
        return bool(self.refusal) and self.all_down and not token_may_have_expired

    def note_no_token(self, reason: str) -> None:
        """Note that the token function failed. The client uses the token that it has until that expires."""
        self.refusal = f"no token: {reason}"

    def note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.all_down = True
            return
        self.last = _without_the_answer(error.str())
        if _UNDECIDED.search(self.last):
            return
        # librdkafka repeats in its own words that it got no token.
        if not self.refusal.startswith("no token: ") and (error.code() in _REFUSALS or _ALERT in self.last):
            self.refusal = self.last

    def explained(
        self,
        action: str,
        answer: str,
        source: KafkaSource,
        operation: str = "Describe",
        topic: str = "",
        group: str = "",
    ) -> KafkaRefused | KafkaUnreachable:
        """The error for a failed `action`, with what the client met on the way: `answer` alone often says only that time ran
        out. `operation`: what the action does with `topic`, as Kafka's access rules name it."""
        failure = f"could not {action} at Kafka {source.bootstrap_servers}"
        if self.refusal:
            return _refused(failure, self.refusal, source)
        for said in (answer, self.last):
            if lacking := _NOT_ALLOWED.search(said):
                named = {"Topic": (operation, "topic", topic), "Group": ("Read", "group", group)}
                return _not_allowed(failure, said, source, *named.get(lacking[1], ("Describe", "cluster", "")))
        reason = self.last or ("" if self.all_down else answer)
        if self.all_down and (not reason or "Disconnected" in reason):
            reason = "; ".join(filter(None, (reason, _PROTOCOLS_DIFFER)))
        return KafkaUnreachable(
            f"{failure} within {source.request_timeout_seconds:g} s: {reason}. {_advice(reason, source)}",
            servers=source.bootstrap_servers,
        )


def _without_the_answer(text: str) -> str:
    """A client's text without a token endpoint's answer. Whoever may write a pipeline file chooses the address, and would else read what
    any server answers that only this machine reaches."""
    failure = _TOKEN_FAILURE.search(text)
    if failure is None or _WITHOUT_THE_ANSWER.fullmatch(failure[1]):
        return text
    code = _OAUTH_CODE.search(failure[1])
    said = f"the endpoint refused with {code[1]}" if code else "the endpoint's answer, which is not shown, has none"
    return f"{text[: failure.start(1)]}{said}"


def _advice(reason: str, source: KafkaSource) -> str:
    """Advise about a broker that cannot be reached."""
    learned = _LEARNED.search(reason)
    if embedded_broker(Home.from_environment()) == source.bootstrap_servers:
        return "It is the embedded stack's broker: `hudi-ingest up` starts it if it has ended."
    if learned and learned[1] not in source.bootstrap_servers:
        return (
            f"The cluster names {learned[1]} as the address of one of its brokers: correct advertised.listeners of that broker, start "
            "it if it is down, or let this machine reach the address."
        )
    if "Decompression (" in reason:
        return (
            "The batch of records at that offset is damaged, or uncompressed it is larger than receive.message.max.bytes. Raise that in "
            "source.kafka if the workers have as much memory; if it is damaged, delete the records up to it (kafka-delete-records.sh) "
            "and accept the loss (`hudi-ingest accept-loss`)."
        )
    return _CHECK


def answer_text(error: Exception) -> str:
    """Return the client's text about a failed request."""
    cause = error.args[0] if error.args else error
    return cause.str() if hasattr(cause, "str") else str(cause) or type(error).__name__


def unusable_settings(source: KafkaSource, reason: str) -> KafkaRefused:
    """The error for settings with which no client can be made; `reason` is the Kafka client's text."""
    return KafkaRefused(
        f"no connection to Kafka {source.bootstrap_servers} can be made with these settings: {reason}. "
        "Check the files that source.security names, and source.kafka.",
        servers=source.bootstrap_servers,
    )


def no_token(source: KafkaSource, reason: str) -> KafkaRefused:
    """The error for a token function that gave a new client no token."""
    return _refused(f"could not log in at Kafka {source.bootstrap_servers}", f"no token: {reason}", source)


def login_name(source: KafkaSource) -> str:
    """Whom the broker takes a client of the source for, as far as the pipeline file says."""
    security = source.security
    if security is None:
        return "ANONYMOUS"
    if security.username:
        return security.username
    return "CN=… (the subject of its client certificate)" if security.certificate_file else "… (as its login says)"


def _not_allowed(failure: str, reason: str, source: KafkaSource, operation: str, kind: str, name: str) -> KafkaRefused:
    """The error for a login that lacks the right to do `operation` with the topic, the group or the cluster."""
    user = login_name(source)
    place = f"{kind} {name}".strip()
    effect = (
        "Tables are not affected, only tools that show the group's lag."
        if kind == "group"
        else "Nothing was read and nothing is visible."
    )
    return KafkaRefused(
        f"{failure}: {reason}. The broker lets {user} in, but not {operation.upper()} {place}. Allow it: `kafka-acls.sh "
        f"--bootstrap-server {source.bootstrap_servers} --add --allow-principal 'User:{user}' --operation "
        f"{'Describe' if kind == 'cluster' else 'Read'} --{place}`, and remove rules that deny it (`--list --{place}`). {effect}",
        servers=source.bootstrap_servers,
    )


def _refused(failure: str, reason: str, source: KafkaSource) -> KafkaRefused:
    """The error for a broker that refused us or that we did not trust; `reason` is the Kafka client's text."""
    security = source.security
    if security is not None and security.oauth is not None and _NO_TOKEN.search(reason):
        origin = security.oauth.token_url or security.oauth.token_function
        advice = f"{origin} returned no token: check source.security.oauth and the token endpoint."
    elif security is not None and security.sasl_mechanism in _WITHOUT_PASSWORD and _LOGIN_FAILED.search(reason):
        advice = (
            f"The broker does not accept this login over {security.sasl_mechanism}: correct source.security, or the broker's "
            "settings; its log says more."
        )
    elif security is not None and security.sasl_mechanism is not None and _LOGIN_FAILED.search(reason):
        advice = (
            f"The broker does not accept user {security.username} with this password over {security.sasl_mechanism}: correct "
            "source.security, or the user on the broker."
        )
    else:
        advice = (
            "Either side may have an expired certificate, one from an authority that the other does not trust, or none at all: "
            "correct source.security.ca_file, certificate_file and key_file, or the broker's certificate "
            "(`openssl s_client -connect HOST:PORT` shows it)."
        )
    return KafkaRefused(
        f"{failure}: {reason}. {advice} Nothing was read and nothing is visible.", servers=source.bootstrap_servers
    )


def end_of_epoch(text: str) -> int | None:
    """Return where the log of the epoch that was asked for ends by the error's text, -1 if the broker does not know the epoch; None if it is
    another error than that the log was truncated."""
    found = _END_OF_EPOCH.search(text) if _TRUNCATION in text else None
    return int(found[1]) if found else None
