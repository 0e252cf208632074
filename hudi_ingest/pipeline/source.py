"""`source` of a pipeline file: brokers, topics, where to start, security."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    Field,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hudi_ingest.exceptions.problems import Place, PlacedProblems, describe, quoted, suggestion
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.describe import allowed
from hudi_ingest.pipeline.formats import CsvValues, ProtobufValues
from hudi_ingest.pipeline.model import Model as _Model
from hudi_ingest.pipeline.model import Seconds, Topic, broker_addresses, read_text
from hudi_ingest.pipeline.model import beside_the_file as _beside_the_file
from hudi_ingest.pipeline.record import (
    FORMATS,
    DeclaredFormat,
    RecordKey,
    known_format,
    needs_registry,
    registry_is_missing,
)
from hudi_ingest.pipeline.registry import AvroValues, SchemaRegistry


class Security(_Model):
    """How to log in to the brokers. Without it the connection is plain text and anonymous."""

    protocol: Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"]
    """Whether the connection is encrypted (SSL) and whether it needs a login (SASL)."""

    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        default=None, validate_default=True
    )
    """How the password is proved. Needed with a SASL protocol, refused without."""

    username: Annotated[str, StringConstraints(min_length=1)] | None = Field(default=None, validate_default=True)
    """The login. Needed with a SASL protocol, refused without."""

    password: Annotated[SecretStr, Field(min_length=1)] | None = Field(default=None, validate_default=True)
    """The login's password, best given as `${NAME}` or `${file:PATH}`; no log and no message shows it. Needed with a
    SASL protocol, refused without."""

    ca_file: Path | None = None
    """PEM file of the certificate authorities to trust, instead of the system's; relative to the pipeline file.
    Spark's workers must find it at the same path."""

    certificate_file: Path | None = None
    """PEM file of the certificate that this client shows to brokers that ask for one; relative to the pipeline file."""

    key_file: Path | None = Field(default=None, validate_default=True)
    """PEM file of that certificate's private key, as PKCS #8 and not encrypted (`BEGIN PRIVATE KEY`); relative to the
    pipeline file. Needed with `certificate_file`, refused without."""

    def client_certificate(self) -> tuple[str, str] | None:
        """The client's certificate and its key, as PEM texts; None when it has none. Raises ValueError for a file that
        cannot be read."""
        if self.certificate_file is None or self.key_file is None:
            return None
        return read_text(self.certificate_file), read_text(self.key_file)

    @field_validator("sasl_mechanism", "username", "password")
    @classmethod
    def _fits_protocol(cls, value: object, info: ValidationInfo) -> object:
        protocol = info.data.get("protocol")
        if protocol == "SSL" and value is not None:
            raise ValueError("not used by protocol SSL; remove it, or set protocol to SASL_SSL")
        if protocol is not None and protocol != "SSL" and value is None:
            raise ValueError(f"missing; protocol {protocol} needs sasl_mechanism, username and password")
        return value

    @field_validator("ca_file", "certificate_file", "key_file")
    @classmethod
    def _file_is_used(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("protocol") == "SASL_PLAINTEXT":
            raise ValueError("not used by protocol SASL_PLAINTEXT, which does not encrypt; remove it, or use SASL_SSL")
        return None if value is None else _beside_the_file(value, info)

    @field_validator("key_file")
    @classmethod
    def _key_fits_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if (value is None) != (info.data.get("certificate_file") is None) and "certificate_file" in info.data:
            other = "key_file" if value is None else "certificate_file"
            raise ValueError(f"{other} is missing; a client's certificate needs certificate_file and key_file")
        return value


class StartingTimestamp(_Model):
    """Start at the first record whose timestamp is not before this time."""

    timestamp: AwareDatetime


StartingOffsets = Literal["earliest", "latest"] | StartingTimestamp | dict[str, dict[int, int]]


class KafkaSource(_Model):
    """What to read."""

    bootstrap_servers: str = Field(json_schema_extra={"allowed": "host:port, or several separated by commas"})
    """Brokers to ask first; they name the others."""

    topics: tuple[Topic, ...] = Field(json_schema_extra={"allowed": "a list of Kafka topic names"})
    """Topics to read, all into the same table. A topic that is added later is read from its first offset."""

    format: str = Field(default="json", json_schema_extra={"allowed": FORMATS})
    """What a record's value is: one JSON object, Avro record, Protobuf message or CSV line whose fields are the table's
    columns; or a text or bytes for a table of one column. `json_schema` is JSON behind Confluent's wire format. Other
    packages may bring formats (entry points `hudi_ingest.converters`), and the import path of a converter does as well."""

    schema_registry: SchemaRegistry | None = None
    """Where the schemas of Avro, JSON Schema and Protobuf records are, unless `avro` or `protobuf` names files."""

    avro: AvroValues = AvroValues()
    """How Avro records name their schemas. Only with `format: avro`."""

    protobuf: ProtobufValues = ProtobufValues()
    """Which type Protobuf messages have. Only with `format: protobuf`."""

    csv: CsvValues = CsvValues()
    """How CSV records are written. Only with `format: csv`."""

    key: RecordKey | None = None
    """Columns out of the records' keys; without it, keys are not read."""

    starting_offsets: StartingOffsets = Field(
        default="earliest",
        json_schema_extra={
            "allowed": "earliest, latest, {timestamp: 2026-01-31T00:00:00Z} or {topic: {partition: offset}}"
        },
    )
    """Where the pipeline's first transaction begins; after it the table's own offsets count. A partition that the map
    does not name, and one that appears later, begins at earliest."""

    on_data_loss: Literal["fail", "skip_to_earliest"] = "fail"
    """What happens to a partition whose committed offset the broker does not hold any more (retention passed it, the
    topic was made again, its end is before it). `fail` stops that partition, or that topic, until somebody accepts the
    loss with `hudi-ingest accept-loss`; the others go on. `skip_to_earliest` goes on at the broker's first offset, and
    each such jump is in the plan and in the commit."""

    group_id: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, json_schema_extra={"default": "hudi-ingest.<name>"}
    )
    """Consumer group that gets the committed offsets, so that tools which watch lag see them. It never decides what
    is read."""

    security: Security | None = None
    """How to log in to the brokers; without it, plain text and anonymous."""

    request_timeout_seconds: Annotated[Seconds, Field(gt=0)] = 8.0
    """How long to wait for one answer of a broker."""

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers(cls, value: str) -> str:
        return broker_addresses(value, "broker")

    @field_validator("topics")
    @classmethod
    def _topics(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("found an empty list; allowed: at least one topic")
        problems: list[tuple[Place, str]] = []
        for index, each in enumerate(value):
            if each in value[:index]:
                problems.append(((index,), f"found {quoted(each)} twice in the list; remove one"))
        if problems:
            raise PlacedProblems(problems)
        return value

    @field_validator("format")
    @classmethod
    def _known_format(cls, value: str) -> str:
        return known_format(value)

    @field_validator("schema_registry")
    @classmethod
    def _registry_has_its_libraries(cls, value: SchemaRegistry | None) -> SchemaRegistry | None:
        if value is not None:
            extras.require("registry")
        return value

    @model_validator(mode="after")
    def _format_has_what_it_needs(self) -> KafkaSource:
        declarations: tuple[DeclaredFormat | None, ...] = (self, self.key)
        for declared in declarations:
            if declared is not None and needs_registry(declared) and self.schema_registry is None:
                raise PlacedProblems([(("schema_registry",), registry_is_missing(declared))])
        return self

    @field_validator("starting_offsets", mode="before")
    @classmethod
    def _starting_offsets(cls, value: object, info: ValidationInfo) -> StartingOffsets:
        if isinstance(value, StartingTimestamp) or (isinstance(value, str) and value in ("earliest", "latest")):
            return value  # type: ignore[return-value]
        if isinstance(value, Mapping) and not isinstance(value.get("timestamp", {}), Mapping):
            if len(value) > 1:
                raise ValueError("`timestamp` stands alone; remove the other keys")
            return StartingTimestamp(timestamp=_starting_time(value["timestamp"]))
        if isinstance(value, Mapping):
            return _starting_map(value, info.data.get("topics"))
        raise ValueError(f"found {describe(value)}; allowed: {allowed(cls.model_fields['starting_offsets'])}")


_TIME = TypeAdapter(datetime)


def _starting_time(value: object) -> datetime:
    # pydantic alone would read a number as seconds since 1970, or as milliseconds.
    written = isinstance(value, datetime) or (isinstance(value, str) and re.match(r"\d{4}-\d", value))
    try:
        found = _TIME.validate_python(value) if written else None
    except ValidationError:
        found = None
    if found is not None and found.tzinfo is not None:
        return found
    if found is None:
        problem = f"not a time; found {describe(value)}; allowed: ISO 8601 with a zone, like 2026-01-31T00:00:00Z"
    else:
        problem = f"a time without a zone; found {quoted(str(value))}; end it with Z or an offset like +02:00"
    raise PlacedProblems([(("timestamp",), problem)])


def _starting_map(value: Mapping[Any, Any], topics: tuple[str, ...] | None) -> dict[str, dict[int, int]]:
    problems: list[tuple[Place, str]] = []
    starts: dict[str, dict[int, int]] = {}
    for topic, partitions in ((str(key), below) for key, below in value.items()):
        if topics is not None and topic not in topics:
            shown = ", ".join(topics)
            problems.append(((topic,), f"not a topic of source.topics; allowed: {shown}{suggestion(topic, topics)}"))
        elif not isinstance(partitions, Mapping) or not partitions:
            problems.append(
                ((topic,), f"found {describe(partitions)}; allowed: {{partition: offset}}, like {{0: 120}}")
            )
        else:
            starts[topic] = {}
            for partition, offset in partitions.items():
                number, start = _natural(partition), _natural(offset)
                if number is None or number >= 2**31:
                    found = describe(partition)
                    problems.append(
                        ((topic, str(partition)), f"a partition is a whole number from 0 on; found {found}")
                    )
                elif start is None or start >= 2**63:
                    found = describe(offset)
                    problems.append(((topic, str(partition)), f"an offset is a whole number from 0 on; found {found}"))
                elif number in starts[topic]:
                    problems.append(((topic, str(partition)), f"partition {number} is there twice; remove one"))
                else:
                    starts[topic][number] = start
    if not value:
        problems.append(((), "found an empty mapping; allowed: {topic: {partition: offset}}, or write earliest"))
    if problems:
        raise PlacedProblems(problems)
    return starts


def _natural(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        return int(value)
    return value if type(value) is int and value >= 0 else None
