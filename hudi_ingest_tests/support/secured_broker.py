"""A Kafka broker that asks who is there: one listener for each way to log in, and a count of whom it refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from hudi_ingest.local.broker import BrokerSettings, start_broker
from hudi_ingest.local.processes import LOOPBACK, free_port, stop
from hudi_ingest_tests.support.certificates import Authority, Identity
from hudi_ingest_tests.support.java import QUICK, java_options

USER = "ingest"
PASSWORD = 'Zebra "9"\\,=;hunter2'
"""With the signs that Java's login configuration gives a meaning to."""

_SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_LOGIN = "org.apache.kafka.common.security"
_REFUSAL = re.compile(r"Failed authentication with|closing connection")


@dataclass(frozen=True)
class SecuredBroker:
    """`bootstrap` is plain text, for what tests do beside the pipeline; `listeners` are by name, each host:port."""

    settings: BrokerSettings
    authority: Authority
    stranger: Authority
    client: Identity
    listeners: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        return self.settings.bootstrap

    @property
    def refusals(self) -> int:
        """How many connections the broker has refused so far, as its log tells."""
        return len(_REFUSAL.findall(self.settings.log.read_text(errors="replace")))

    def source(self, listener: str, **security: Any) -> dict[str, Any]:
        """What a pipeline file says below `source` to reach a listener; `security` changes the right settings."""
        right: dict[str, Any] = {"protocol": _PROTOCOLS[listener], "ca_file": str(self.authority.certificate)}
        if "SASL" in right["protocol"]:
            right |= {"sasl_mechanism": "SCRAM-SHA-512", "username": USER, "password": PASSWORD}
        if right["protocol"] == "SASL_PLAINTEXT":
            del right["ca_file"]
        if listener == "TOKEN":
            right = {"protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        found = {key: value for key, value in {**right, **security}.items() if value is not None}
        return {"bootstrap_servers": self.listeners[listener], "security": found}

    def let_only_describe(self, topic: str) -> None:
        """Nobody may read the topic any more."""
        self.rule(ResourceType.TOPIC, topic, AclOperation.DESCRIBE, AclPermissionType.ALLOW)

    def rule(self, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> None:
        """Add a rule for everybody."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        rule = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:*", "*", operation, permission)
        admin.create_acls([rule])[rule].result(120)

    def set_password(self, user: str, password: str) -> None:
        """Makes the user, or gives the user another password, with every SCRAM mechanism; the broker knows it afterwards."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for mechanism in _SCRAM.values():
            wanted = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
            admin.alter_user_scram_credentials([wanted])[user].result(120)
        # The controller answers before the broker has heard of it, and of the last mechanism it hears last.
        login = {"sasl.mechanism": [*_SCRAM][-1], "sasl.username": user, "sasl.password": password}
        servers = {"bootstrap.servers": self.listeners["PLAINLOGIN"], "security.protocol": "SASL_PLAINTEXT"}
        AdminClient({**servers, **login, "log_level": 0}).list_topics(timeout=120)


_PROTOCOLS = {
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "LOGIN": "SASL_SSL",
    "PLAINLOGIN": "SASL_PLAINTEXT",
    "TOKEN": "SASL_PLAINTEXT",
}


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """A broker with all listeners, and the user USER with PASSWORD."""
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
    listeners = {name: f"{LOOPBACK}:{free_port()}" for name in _PROTOCOLS}
    settings = BrokerSettings(folder / "kafka", free_port(), free_port())
    identities = {"server": authority.issue("server"), "expired": authority.issue("expired", expired=True)}
    more = _properties(settings, listeners, authority, identities)
    # The broker's log tells of refused logins at this level only.
    loud = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.network.Selector=info"
    with java_options(loud, QUICK):
        record = start_broker(
            BrokerSettings(settings.home, settings.port, settings.controller_port, more=more), _silent
        )
    try:
        found = SecuredBroker(settings, authority, stranger, authority.issue("client"), listeners)
        found.set_password(USER, PASSWORD)
        yield found
    finally:
        stop([record])


def _silent(line: str) -> None:
    pass


def _properties(
    settings: BrokerSettings, listeners: Mapping[str, str], authority: Authority, identities: Mapping[str, Identity]
) -> dict[str, str]:
    inner = f"BROKER://{settings.bootstrap}"
    named = "".join(f",{name}://{address}" for name, address in listeners.items())
    protocols = "".join(f",{name}:{protocol}" for name, protocol in _PROTOCOLS.items())
    values = {
        "listeners": f"{inner},CONTROLLER://{LOOPBACK}:{settings.controller_port}{named}",
        "advertised.listeners": f"{inner}{named}",
        "listener.security.protocol.map": f"BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        # Everyone may do everything to what has no rule.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _one_line(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    # Without a validator of its own, it takes unsigned tokens that have not expired. Connections end with their token.
    login = f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;"
    values["listener.name.token.oauthbearer.sasl.jaas.config"] = login
    values["listener.name.token.sasl.enabled.mechanisms"] = "OAUTHBEARER"
    values["listener.name.token.connections.max.reauth.ms"] = "600000"
    for name, protocol in _PROTOCOLS.items():
        prefix = f"listener.name.{name.lower()}."
        if protocol.endswith("SSL"):
            identity = identities["expired" if name == "EXPIRED" else "server"]
            values[f"{prefix}ssl.keystore.type"] = "PEM"
            values[f"{prefix}ssl.keystore.certificate.chain"] = _one_line(identity.certificate)
            values[f"{prefix}ssl.keystore.key"] = _one_line(identity.key)
        if protocol.startswith("SASL") and name != "TOKEN":
            quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
            plain = f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{quoted}";'
            values[f"{prefix}plain.sasl.jaas.config"] = plain
            for mechanism in _SCRAM:
                values[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = f"{_LOGIN}.scram.ScramLoginModule required;"
    # A properties file has its own meaning for a backslash.
    return {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in values.items()}


def _one_line(pem: Path) -> str:
    return pem.read_text().strip()
