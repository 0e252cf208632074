"""Errors of a Kafka client: what it met on the way, and what that says about the broker, the login or the certificates."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable
from hudi_ingest.home.folder import Home, embedded_broker
from hudi_ingest.pipeline.sections.source import KafkaSource

OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
"""Codes of errors that say that the broker does not have the offset to be read."""
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
_WITHOUT_PASSWORD = ("OAUTHBEARER", "GSSAPI")
_PROTOCOLS_DIFFER = "every connection was closed at once, as when source.security.protocol does not match the port"
_CHECK = "Check source.bootstrap_servers and source.security, and that the broker runs."
_LEARNED = re.compile(r"([^\s/]+:\d+)/\d+: (?:Connect to|Failed to resolve)")
"""A broker that cannot be reached at an address that another one has named; those of the settings are called bootstrap."""


class Trouble:
    """Errors a client has reported outside its answers since its last good answer."""

    def __init__(self) -> None:
        self._was_let_in = False
        self.clear()

    def answered(self) -> None:
        """The client got a good answer."""
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
        """The token function failed. The client uses the token that it has until that expires."""
        self.refusal = f"no token: {reason}"

    def note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.all_down = True
            return
        self.last = error.str()
        if _UNDECIDED.search(self.last):
            return
        # librdkafka repeats in its own words that it got no token.
        if not self.refusal.startswith("no token: ") and (error.code() in _REFUSALS or _ALERT in self.last):
            self.refusal = self.last

    def explained(self, action: str, answer: str, source: KafkaSource) -> KafkaRefused | KafkaUnreachable:
        """The error for a failed `action`, with what the client met on the way: `answer` alone often says only that time ran
        out."""
        failure = f"could not {action} at Kafka {source.bootstrap_servers}"
        if self.refusal:
            return _refused(failure, self.refusal, source)
        reason = self.last or ("" if self.all_down else answer)
        if self.all_down and (not reason or "Disconnected" in reason):
            reason = "; ".join(filter(None, (reason, _PROTOCOLS_DIFFER)))
        return KafkaUnreachable(
            f"{failure} within {source.request_timeout_seconds:g} s: {reason}. {_advice(reason, source)}",
            servers=source.bootstrap_servers,
        )


def _advice(reason: str, source: KafkaSource) -> str:
    """What to do about a broker that cannot be reached."""
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
    """What the client says of a failed request."""
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
