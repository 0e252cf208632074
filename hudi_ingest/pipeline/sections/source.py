"""`source` of a pipeline file: brokers, topics, where to start, security."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.lib import ArrowInvalid
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    PrivateAttr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hudi_ingest.exceptions.problems import Place, PlacedProblems, describe, quoted, suggestion
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.sections.kafka_client import Security, property_problems
from hudi_ingest.pipeline.sections.record import (
    FORMATS,
    CsvValues,
    DeclaredFormat,
    ProtobufValues,
    RecordKey,
    known_format,
    needs_registry,
    registry_is_missing,
)
from hudi_ingest.pipeline.sections.registry import AvroValues, SchemaRegistry
from hudi_ingest.pipeline.settings.describe import allowed
from hudi_ingest.pipeline.settings.model import A_YEAR, Model, Seconds, Topic, as_text, broker_addresses
from hudi_ingest.pipeline.settings.references import Secret
from hudi_ingest.records.convert.connect.debezium import EVENT_FIELDS, UNAVAILABLE, placeholder_bytes

ENVELOPES: Mapping[str, tuple[str, ...]] = {"connect": ("json",), "debezium": ("json", "avro")}
"""The formats that an envelope can have."""


class StartingTimestamp(Model):
    """Start at the first record whose timestamp is at or after this time."""

    timestamp: AwareDatetime


StartingOffsets = Literal["earliest", "latest"] | StartingTimestamp | dict[str, dict[int, int]]


class KafkaSource(Model):
    """What to read."""

    bootstrap_servers: Annotated[str, AfterValidator(partial(broker_addresses, server="broker"))] = Field(
        json_schema_extra={"allowed": "host:port, or several separated by commas"}
    )
    """Brokers to contact first; they name the others."""

    topics: tuple[Topic, ...] = Field(
        default=(), json_schema_extra={"allowed": "a list of Kafka topic names", "default": "none", "identity": True}
    )
    """Topics to read, all into the same table. A topic added later is read from its first offset."""

    topics_pattern: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        validate_default=True,
        json_schema_extra={"allowed": "a Python regular expression, like `shop\\..+`", "identity": True},
    )
    """Instead of `topics`: reads every topic whose whole name matches, except Kafka's internal `__…`. Each tick lists the
    topics; one that appears is read from its first offset, and one that disappears stops the pipeline. See
    docs/many-topics.md."""

    format: Annotated[str, AfterValidator(known_format)] = Field(default="json", json_schema_extra={"allowed": FORMATS})
    """What a record's value is: one JSON object, Avro record, Protobuf message or CSV line whose fields are the table's
    columns; or text or bytes for a table with one column. `json_schema` is JSON in Confluent's wire format. Other
    packages may provide formats (entry points `hudi_ingest.converters`); the import path of a converter also works."""

    envelope: Literal["none", "connect", "debezium"] = Field(default="none", validate_default=True)
    """What is around the fields of a record. `connect`: Kafka Connect's `{"schema": …, "payload": …}`, of JSON records.
    `debezium`: the change events of Debezium, as JSON with or without schemas or as Avro, with `table.mode: upsert`; the
    columns are those of their `after`. See docs/formats.md."""

    before_image: Literal["key", "row"] = "key"
    """What `before` of Debezium's events holds. `key`: at least the columns of the key, as PostgreSQL sends by default. `row`:
    the whole row, which PostgreSQL sends after `alter table … replica identity full`, and MySQL with `binlog_row_image=FULL`;
    `table.partition_by` and `table.ordering` need it for columns beyond the key. Tables without such columns, in the same file,
    need only the key all the same. Only with `envelope: debezium`."""

    on_truncate: Literal["apply", "fail", "skip"] = "apply"
    """What happens to a truncate in Debezium's events. `apply` deletes all rows of the table that were written before it, with
    `table.mode: upsert`, without `table.ordering`, and from a topic with one partition; elsewhere nothing says which rows those are, and
    it is a bad record. `fail` always makes it one. `skip` counts it and continues; the table keeps the rows. Only with
    `envelope: debezium`."""

    event_columns: dict[str, str] = Field(
        default_factory=dict,
        json_schema_extra={
            "allowed": "{column: field}, with the fields " + ", ".join(EVENT_FIELDS),
            "default": "{}",
        },
    )
    """Columns from fields of Debezium's events themselves, like `{lsn: source.lsn}`. They follow those of `table.schema`, and a
    delete has them too, so one of them can be `table.ordering`. Only with `envelope: debezium`."""

    optional_fields: tuple[str, ...] = Field(
        default=(), json_schema_extra={"allowed": "a list of fields, like [old_name, address.zip]", "default": "none"}
    )
    """Fields that a record's schema may lack: they are null then. With `table.mode: upsert`, a record is bad whose schema lacks
    another declared field, because its row would erase the value that the table has: a JSON record with Connect's schema
    (`envelope: debezium` or `connect`), a record of a schema in a file, a record of a registry's schema that lacks a field of an
    earlier version. If columns come from a registry, no transaction of such a table begins while the latest version lacks a field that one before
    had. See docs/formats.md."""

    unavailable_value: Annotated[str, StringConstraints(min_length=2)] | None = Field(
        default=None,
        json_schema_extra={"default": f"{UNAVAILABLE} with `table.mode: upsert`, else none"},
    )
    """The placeholder that Debezium writes for values that an update does not change and the database leaves out: the connector's
    `unavailable.value.placeholder`. With `table.mode: upsert` and without `table.ordering` it is replaced by the
    value of the key's row; otherwise a record with it in a column, in any format, is bad. See docs/formats.md."""

    schema_registry: SchemaRegistry | None = None
    """Where the schemas of Avro, JSON Schema and Protobuf records are, unless `avro` or `protobuf` names files."""

    avro: AvroValues = AvroValues()
    """How Avro records name their schemas. Only with `format: avro`."""

    protobuf: ProtobufValues = ProtobufValues()
    """The type of Protobuf messages. Only with `format: protobuf`."""

    csv: CsvValues = CsvValues()
    """How CSV records are written. Only with `format: csv`."""

    key: RecordKey | None = None
    """Columns from the records' keys; without it, keys are not read."""

    starting_offsets: StartingOffsets = Field(
        default="earliest",
        json_schema_extra={
            "allowed": "earliest, latest, {timestamp: 2026-01-31T00:00:00Z} or {topic: {partition: offset}}"
        },
    )
    """Where the pipeline's first transaction starts; after it, the table's own offsets count. With `latest` it is committed even
    if there are no records, so that none that come later are missed; this needs a topic, so use `earliest` if none matches
    `topics_pattern` yet. Partitions that the map does not name, and partitions added later, start at earliest."""

    on_data_loss: Literal["fail", "skip_to_earliest"] = "fail"
    """What happens to a partition whose committed offset the broker no longer has (retention passed it, the topic was
    recreated, or its log was cut before it). `fail` stops that partition, or that topic, until the loss is accepted with
    `hudi-ingest accept-loss`; the others continue. `skip_to_earliest` resumes at the broker's first offset, and records
    each such jump in the plan and in the commit."""

    lateness_seconds: Annotated[Seconds, Field(ge=0, le=A_YEAR)] | None = Field(
        default=None, json_schema_extra={"default": "2 for topics with the broker's timestamps, else none"}
    )
    """How long after its Kafka timestamp a record may become readable. The table is complete through the time that is so long ago,
    once all that was there is committed. The broker's own timestamps (`message.timestamp.type` LogAppendTime) are late only by the
    difference of the clocks, and by replication, which is noticed without this setting. Producers' timestamps may be as late as they like, so without this setting no time
    is said to be complete. Records that are later are counted, and fail the check `nothing_late`. See docs/guarantees.md."""

    group_id: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, json_schema_extra={"default": "hudi-ingest.<name>"}
    )
    """Consumer group that gets the committed offsets, so that lag monitoring tools see them. It never decides what is
    read."""

    security: Security | None = None
    """How to log in to the brokers; without it, plain text and anonymous."""

    kafka: dict[str, Annotated[Secret, BeforeValidator(as_text)]] = Field(
        default_factory=dict,
        json_schema_extra={"allowed": "{property: value}, with librdkafka's names", "default": "{}"},
    )
    """Further properties of every Kafka client, like `{client.rack: eu-1a}`; all but those that other settings or exactly once
    decide. Paths must be absolute. Values are treated as secrets; see docs/authentication.md."""

    request_timeout_seconds: Annotated[Seconds, Field(gt=0, le=300)] = 8.0
    """How long to wait for a single answer from a broker."""

    @field_validator("topics")
    @classmethod
    def _topics(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("found an empty list; allowed: at least one topic")
        problems: list[tuple[Place, str]] = []
        for index, topic in enumerate(value):
            if topic in value[:index]:
                problems.append(((index,), f"found {quoted(topic)} twice in the list; remove one"))
        if problems:
            raise PlacedProblems(problems)
        return value

    @field_validator("topics_pattern")
    @classmethod
    def _topics_or_a_pattern(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if info.data.get("topics"):
            raise ValueError("cannot be combined with `topics`; remove one of them")
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}; found {quoted(value)}") from None
        if not _is_linear(value) and (re.search(r"\)[*+{]", value) or len(re.findall(r"[*+{]|(?<!\()\?", value)) > 3):
            raise ValueError(
                f"may take hours to match; found {quoted(value)}; allowed beside lookarounds, backreferences and other things that RE2 "
                "does not know: up to three of * + ? {}, and none after a group"
            )
        return value

    @field_validator("kafka")
    @classmethod
    def _known_properties(cls, value: dict[str, Secret]) -> dict[str, Secret]:
        if value and (problems := [((name,), text) for name, text in property_problems(value)]):
            raise PlacedProblems(problems)
        return value

    @field_validator("envelope")
    @classmethod
    def _format_has_envelopes(cls, value: str, info: ValidationInfo) -> str:
        formats = ENVELOPES.get(value)
        if formats and info.data.get("format", formats[0]) not in formats:
            raise ValueError(
                f"{value} needs `format: {' or '.join(formats)}`, and that is {info.data['format']}; remove it, or change the format"
            )
        return value

    @field_validator("before_image")
    @classmethod
    def _only_debezium_has_before(cls, value: str, info: ValidationInfo) -> str:
        if value == "row" and info.data.get("envelope", "debezium") != "debezium":
            raise ValueError(f"only with `envelope: debezium`, and that is {info.data['envelope']}; remove it")
        return value

    @field_validator("on_truncate")
    @classmethod
    def _only_debezium_has_truncates(cls, value: str, info: ValidationInfo) -> str:
        if value != "apply" and info.data.get("envelope", "debezium") != "debezium":
            raise ValueError(f"only with `envelope: debezium`, and that is {info.data['envelope']}; remove it")
        return value

    @field_validator("event_columns")
    @classmethod
    def _known_event_fields(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if value and info.data.get("envelope", "debezium") != "debezium":
            raise ValueError(f"only with `envelope: debezium`, and that is {info.data['envelope']}; remove it")
        problems: list[tuple[Place, str]] = [
            ((column,), f"found {quoted(path)}; allowed: {', '.join(EVENT_FIELDS)}{suggestion(path, EVENT_FIELDS)}")
            for column, path in value.items()
            if path not in EVENT_FIELDS
        ]
        if problems:
            raise PlacedProblems(problems)
        return value

    @field_validator("unavailable_value")
    @classmethod
    def _placeholder_has_bytes(cls, value: str | None) -> str | None:
        try:
            placeholder_bytes(value or UNAVAILABLE)
        except ValueError:
            raise ValueError(f"no hexadecimal digits after hex:, found {quoted(str(value))}") from None
        return value

    @field_validator("schema_registry")
    @classmethod
    def _registry_has_its_libraries(cls, value: SchemaRegistry | None) -> SchemaRegistry | None:
        if value is not None:
            extras.require("registry")
        return value

    @model_validator(mode="after")
    def _topics_are_named(self) -> KafkaSource:
        # Of a file with a misspelt `topics`, only the unknown key is a problem, and then no model validator runs.
        if not self.topics and self.topics_pattern is None:
            raise PlacedProblems([(("topics",), "missing; list the topics, or set `topics_pattern`")])
        return self

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
                raise ValueError("`timestamp` must be the only key; remove the others")
            return StartingTimestamp(timestamp=_starting_time(value["timestamp"]))
        if isinstance(value, Mapping):
            return _starting_map(value, info.data.get("topics"), info.data.get("topics_pattern"))
        raise ValueError(f"found {describe(value)}; allowed: {allowed(cls.model_fields['starting_offsets'])}")

    _excluded: frozenset[str] = PrivateAttr(default=frozenset())

    def without(self, topics: Collection[str]) -> KafkaSource:
        """The source of all its topics but these."""
        source = self.model_copy(update={"topics": tuple(topic for topic in self.topics if topic not in topics)})
        source._excluded = frozenset(topics)
        return source

    def reads(self, topic: str) -> bool:
        """Whether the topic is one of the source's, if it exists."""
        if self.topics_pattern is None:
            return topic in self.topics
        return topic not in self._excluded and is_match(self.topics_pattern, topic)

    @property
    def topics_text(self) -> str:
        return ", ".join(self.topics) if self.topics_pattern is None else f"topics like {self.topics_pattern}"


def is_match(pattern: str, topic: str) -> bool:
    if topic.startswith("__"):
        return False
    return _re2_match(pattern, topic) if _is_linear(pattern) else re.fullmatch(pattern, topic) is not None


@cache
def _is_linear(pattern: str) -> bool:
    """Whether RE2 can match it, in a time that grows with the topic's name and not with its square or worse. Two spellings that RE2
    also takes mean something else there."""
    if re.search(r"\{,|\[\[:", pattern):
        return False
    try:
        _re2_match(pattern, "")
    except ArrowInvalid:
        return False
    return True


def _re2_match(pattern: str, topic: str) -> bool:
    text = topic.encode()
    # An array of buffers, because Arrow imports pandas to convert a Python object, for which a run has no other use.
    only = pa.StringArray.from_buffers(1, pa.py_buffer(array("i", [0, len(text)])), pa.py_buffer(text))
    return bool(pc.match_substring_regex(only, f"^(?:{pattern})$")[0].as_py())


_TIME = TypeAdapter(datetime)


def _starting_time(value: object) -> datetime:
    # Left alone, pydantic would read a number as seconds or milliseconds since 1970.
    is_text = isinstance(value, datetime) or (isinstance(value, str) and re.match(r"\d{4}-\d", value))
    try:
        time = _TIME.validate_python(value) if is_text else None
    except ValidationError:
        time = None
    if time is not None and time.tzinfo is not None and 1970 <= time.year <= 2999:
        return time
    if time is not None and time.tzinfo is not None:
        problem = f"out of range; found {quoted(str(value))}; allowed: from 1970 to 2999, or write earliest"
    elif time is None:
        problem = f"not a time; found {describe(value)}; allowed: ISO 8601 with a zone, like 2026-01-31T00:00:00Z"
    else:
        problem = f"a time without a zone; found {quoted(str(value))}; end it with Z or an offset like +02:00"
    raise PlacedProblems([(("timestamp",), problem)])


def _starting_map(
    value: Mapping[Any, Any], topics: tuple[str, ...] | None, pattern: str | None
) -> dict[str, dict[int, int]]:
    problems: list[tuple[Place, str]] = []
    starts: dict[str, dict[int, int]] = {}
    for topic, partitions in ((str(key), below) for key, below in value.items()):
        if pattern is not None and not is_match(pattern, topic):
            problems.append(((topic,), f"does not match source.topics_pattern, {quoted(pattern)}"))
        elif pattern is None and topics and topic not in topics:
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
                    shown = describe(partition)
                    problems.append(
                        ((topic, str(partition)), f"a partition must be a whole number of at least 0; found {shown}")
                    )
                elif start is None or start >= 2**63:
                    shown = describe(offset)
                    problems.append(
                        ((topic, str(partition)), f"an offset must be a whole number of at least 0; found {shown}")
                    )
                elif number in starts[topic]:
                    problems.append(((topic, str(partition)), f"partition {number} is listed twice; remove one"))
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


class DeadLetters(Model):
    """What dead letters hold, with `on_bad_record: dead_letter`, and where else they go."""

    keep_masked: bool = False
    """Whether dead letters hold the records' bytes (value, key and headers) even if the pipeline masks fields. Without it,
    such a pipeline's dead letters say only where the record is and what is wrong with it, and cannot be retried."""

    topic: Topic | None = None
    """A topic of the source's cluster that gets a copy of each dead letter after its commit, at least once, with Kafka
    Connect's `__connect.errors.…` headers. Without it there are no copies."""


def loop_problem(letters: DeadLetters, source: KafkaSource) -> str:
    """Say so if the source reads the topic of the copies; "" if it does not."""
    if letters.topic is None or not source.reads(letters.topic):
        return ""
    read = "is one of source.topics" if source.topics else "matches source.topics_pattern"
    return f"found {quoted(letters.topic)}, which {read}, so dead letters would be re-ingested; name another topic"
