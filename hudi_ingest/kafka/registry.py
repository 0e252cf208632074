"""A schema registry, through Confluent's own client: schemas by id, and the schemas of a subject.

The process that plans a transaction fetches all versions of the topics' subjects once and passes them to the Spark tasks
(`KnownSchemas`), so that workers decode without the registry. A worker asks only for other ids, of schemas registered a
moment ago or under another subject: once per process and id. Each task asks for at most a hundred ids that the registry does
not have.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from hudi_ingest.exceptions import RegistryRefused, RegistryUnreachable, SchemaMissing
from hudi_ingest.model.deadline import within
from hudi_ingest.pipeline.sections.registry import SchemaRegistry
from hudi_ingest.records.convert.wire_format import guid_of
from hudi_ingest.records.schema.registered import RegisteredSchema, SchemaKind, UnusableSchema

_RETRIES = 2
_RETRY_MILLISECONDS = 200
_RETRY_SECONDS = _RETRIES * 10 * _RETRY_MILLISECONDS / 1000
"""The most that the waits before retries take together."""
_MAX_REFERENCES = 1000
_GREATEST_ID = 2**31 - 1
"""Registries use Java's int."""
_MOST_WORDS = 300
MOST_REFUSED = 100
"""How many ids without a usable schema a task asks for; garbage that begins with a zero byte has as many as records."""

_Answer = TypeVar("_Answer")
_Reference = tuple[str, str, int]
"""Name, subject and version."""


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject."""

    subject: str
    version: int
    schema_id: int
    schema: RegisteredSchema


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question to a registry: as text, and the subject or the schema id."""

    what: str
    subject: str | None = None
    schema_id: int | None = None


class RegistryClient:
    """Asks one registry for schemas of one kind. Every method also raises RegistryUnreachable and RegistryRefused."""

    def __init__(self, config: SchemaRegistry, kind: SchemaKind = "AVRO") -> None:
        self._config = config
        self._kind = kind
        try:
            self._client = SchemaRegistryClient(_client_settings(config))
        except (OSError, ssl.SSLError) as error:
            raise RegistryRefused(
                f"Schema registry {config.url}: its certificate files cannot be used ({error}); correct ca_file, "
                "certificate_file and key_file of source.schema_registry.",
                url=config.url,
            ) from None

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """The schema with an id; None if the registry has none, or one of another kind. Raises UnusableSchema if its
        references cannot be resolved."""
        asked = _Asked(f"schema id {schema_id}", schema_id=schema_id)
        schema = self._ask(asked, lambda: self._client.get_schema(schema_id))
        return None if schema is None else self._registered(schema)

    def schema_of_guid(self, guid: UUID) -> RegisteredSchema | None:
        """Return what `schema` does, by the schema's GUID."""
        asked = _Asked(f"schema GUID {guid}")
        schema = self._ask(asked, lambda: self._client.get_schema_by_guid(str(guid)))
        return None if schema is None else self._registered(schema)

    def latest(self, subject: str) -> SubjectVersion:
        """The last version of a subject. Raises SchemaMissing."""
        asked = _Asked(f"the latest version of {subject}", subject)
        return self._version(subject, f"subject {subject}", asked, lambda: self._client.get_latest_version(subject))

    def version(self, subject: str, version: int) -> SubjectVersion:
        """A version of a subject. Raises SchemaMissing."""
        asked = _Asked(f"version {version} of {subject}", subject)
        wanted = f"version {version} of subject {subject}"
        return self._version(subject, wanted, asked, lambda: self._client.get_version(subject, version))

    def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        """All versions of a subject that are of the kind, ascending; empty if there is no such subject."""
        asked = _Asked(f"the versions of {subject}", subject)
        numbers = self._ask(asked, lambda: self._client.get_versions(subject))
        versions = []
        for number in sorted(numbers or ()):
            try:
                versions.append(self.version(subject, number))
            except SchemaMissing:
                continue  # deleted since, or of another kind
        return tuple(versions)

    def _version(self, subject: str, wanted: str, asked: _Asked, ask: Callable[[], Any]) -> SubjectVersion:
        answer = self._ask(asked, ask)
        if answer is None:
            raise SchemaMissing(
                f"Schema registry {self._config.url} has no {wanted}; register the schema, correct the topic or "
                "`subject` of source.schema_registry, or declare table.schema.",
                url=self._config.url,
                subject=subject,
                status=404,
            )
        try:
            schema = self._registered(answer.schema)
        except UnusableSchema as problem:
            raise SchemaMissing(
                f"Schema registry {self._config.url}: {asked.what} cannot be used: {problem}; register a version without that.",
                url=self._config.url,
                subject=subject,
            ) from None
        if schema is None:
            raise SchemaMissing(
                f"Schema registry {self._config.url}: {asked.what} is {answer.schema.schema_type or 'AVRO'}, and {self._kind} is "
                "needed here; correct source.format or `subject` of source.schema_registry.",
                url=self._config.url,
                subject=subject,
            )
        return SubjectVersion(subject, int(answer.version), int(answer.schema_id), schema)

    def _registered(self, schema: Schema) -> RegisteredSchema | None:
        if (schema.schema_type or "AVRO") != self._kind:
            return None
        # JSON schemas are not evaluated.
        texts = {} if self._kind == "JSON" else self._references(schema)
        return RegisteredSchema(schema.schema_str, tuple(texts.values()), tuple(name for name, _, _ in texts))

    def _references(self, schema: Schema) -> dict[_Reference, str]:
        """The texts of the schemas that `schema` refers to, each after its own references."""
        texts: dict[_Reference, str] = {}
        # Iterative, because a long chain would exhaust Python's stack.
        above: dict[_Reference | None, tuple[str, Iterator[Any]]] = {None: ("", iter(schema.references or ()))}
        while above:
            key, (text, references) = list(above.items())[-1]
            reference = next(references, None)
            if reference is None:
                del above[key]
                if key is not None:
                    texts[key] = text
                continue
            target = (reference.name, reference.subject, reference.version)
            if target in texts:
                continue
            if target in above:
                raise UnusableSchema(
                    f"its references lead in a circle, to version {reference.version} of {reference.subject}"
                )
            if len(texts) + len(above) > _MAX_REFERENCES:
                raise UnusableSchema(f"it refers to over {_MAX_REFERENCES} other schemas")
            referenced = self._reference(reference)
            above[target] = (referenced.schema_str, iter(referenced.references or ()))
        return texts

    def _reference(self, reference: Any) -> Any:
        what = f"version {reference.version} of {reference.subject}, which a schema refers to"
        asked = _Asked(what, reference.subject)
        answer = self._ask(asked, partial(self._client.get_version, reference.subject, reference.version))
        if answer is None:
            raise SchemaMissing(
                f"Schema registry {self._config.url} has no {what}; register it again: it is needed to read records.",
                url=self._config.url,
                subject=reference.subject,
                status=404,
            )
        return answer.schema

    def _ask(self, asked: _Asked, ask: Callable[[], _Answer]) -> _Answer | None:
        """The answer; None if the registry does not have it."""
        where = f"Schema registry {self._config.url}: {asked.what}"
        facts: dict[str, Any] = {"url": self._config.url, "subject": asked.subject, "schema_id": asked.schema_id}
        try:
            # The client's own limit is for each packet, and starts over with each byte that comes.
            return within((_RETRIES + 1) * self._config.timeout_seconds + _RETRY_SECONDS, ask)
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status == 404:
                return None
            said = f"HTTP {status}{_registrys_words(error)}"
            if status in (401, 403):
                raise RegistryRefused(
                    f"{where}: the registry refused the login ({said}); correct username and "
                    "password or token of source.schema_registry, or have that login allowed to read.",
                    status=status,
                    **facts,
                ) from None
            if status in (408, 429) or status >= 500:
                raise RegistryUnreachable(
                    f"{where}: the registry could not answer ({said}); it will be asked "
                    "again; if this persists, check the registry's log.",
                    status=status,
                    **facts,
                ) from None
            raise SchemaMissing(
                f"{where}: the registry answered {said}; check the subject and its references in the registry.",
                status=status,
                **facts,
            ) from None
        except (httpx2.TransportError, httpx2.InvalidURL, TimeoutError) as error:
            if _untrusted(error):
                raise RegistryRefused(
                    f"{where}: no TLS connection was made ({error}); set ca_file of source.schema_registry to the authority "
                    "of the registry's certificate, and certificate_file and key_file if it asks for a certificate.",
                    **facts,
                ) from None
            raise RegistryUnreachable(
                f"{where}: no answer ({type(error).__name__}: {error}); it will be asked again; check that the registry "
                "runs, that this machine reaches it, and url of source.schema_registry.",
                **facts,
            ) from None
        except ValueError as error:
            raise RegistryUnreachable(
                f"{where}: the answer is not from a schema registry ({error}); check url of source.schema_registry.",
                **facts,
            ) from None


def _client_settings(config: SchemaRegistry) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "url": config.url,
        "timeout": config.timeout_seconds,
        "max.retries": _RETRIES,
        "retries.wait.ms": _RETRY_MILLISECONDS,
        "retries.max.wait.ms": 10 * _RETRY_MILLISECONDS,
    }
    if config.username is not None and config.password is not None:
        settings["basic.auth.user.info"] = f"{config.username}:{config.password.get_secret_value()}"
    if config.token is not None:
        settings["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        settings["bearer.auth.token"] = config.token.get_secret_value()
        settings["bearer.auth.logical.cluster"] = config.logical_cluster or ""
    for setting, path in (
        ("ssl.ca.location", config.ca_file),
        ("ssl.certificate.location", config.certificate_file),
        ("ssl.key.location", config.key_file),
    ):
        if path is not None:
            settings[setting] = str(path)
    return settings


def _registrys_words(error: SchemaRegistryError) -> str:
    """What the registry says, after a colon; nothing of an answer that is not in a registry's form, which any other server at the address
    may have given."""
    is_registrys = isinstance(error.error_code, int) and error.error_code > 0 and isinstance(error.error_message, str)
    return f": {error.error_message[:_MOST_WORDS]}" if is_registrys else ", in words that are no registry's"


def _untrusted(error: BaseException | None) -> bool:
    depth = 0
    while error is not None and depth < 10:
        if isinstance(error, ssl.SSLError) or "CERTIFICATE" in str(error).upper():
            return True
        error, depth = error.__cause__ or error.__context__, depth + 1
    return False


@dataclass(frozen=True)
class KnownSchemas:
    """Schemas of one kind by id, and where to ask for others. Pickled to Spark's workers, with the registry's login."""

    registry: SchemaRegistry
    known: Mapping[int, RegisteredSchema] = field(default_factory=dict)
    kind: SchemaKind = "AVRO"

    _refused: dict[int, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Ids that cannot be used, and why; None if the registry does not have them. Kept only for the task, since the next
    attempt may find them registered."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (KnownSchemas, (self.registry, self.known, self.kind))

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """The schema with an id; None if the registry has none of this kind. Raises RegistryUnreachable, RegistryRefused;
        UnusableSchema if no record with the id can be read."""
        schema = self.known.get(schema_id)
        if schema is not None or (schema_id > _GREATEST_ID and guid_of(schema_id) is None):
            return schema
        with _fetched_lock:
            key = (self.registry.url, self.kind, schema_id)
            if key not in _fetched:
                fetched = self._fetch(schema_id)
                if fetched is None:
                    return None
                _fetched[key] = fetched
            return _fetched[key]

    def _fetch(self, schema_id: int) -> RegisteredSchema | None:
        if schema_id not in self._refused:
            if len(self._refused) >= MOST_REFUSED:
                raise UnusableSchema(f"schema id {schema_id}, not looked up after {MOST_REFUSED} unknown ones")
            guid = guid_of(schema_id)
            try:
                schema = self._client.schema(schema_id) if guid is None else self._client.schema_of_guid(guid)
            except UnusableSchema as problem:
                self._refused[schema_id] = str(problem)
            else:
                if schema is not None:
                    return schema
                self._refused[schema_id] = None
        problem_text = self._refused[schema_id]
        if problem_text is not None:
            raise UnusableSchema(problem_text)
        return None

    @cached_property
    def _client(self) -> RegistryClient:
        return RegistryClient(self.registry, self.kind)


_fetched: dict[tuple[str, SchemaKind, int], RegisteredSchema] = {}
"""The schema of an id never changes, so this process asks for it only once."""
_fetched_lock = Lock()
