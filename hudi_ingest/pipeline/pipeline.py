"""What a pipeline may be: the models that pipeline files are checked with, and the same models in words for people.

file.py reads the files.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
import pyarrow as pa
from pydantic import (
    AwareDatetime,
    BaseModel,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from hudi_ingest.exceptions.problems import Place, PlacedProblems, ProblemsFromTop, describe, quoted, suggestion
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.asset import AssetSettings
from hudi_ingest.pipeline.bad_records import DeadLetters
from hudi_ingest.pipeline.formats import CsvValues, ProtobufValues
from hudi_ingest.pipeline.model import Model as _Model
from hudi_ingest.pipeline.model import Ratio, Seconds, Topic, Whole
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
from hudi_ingest.pipeline.transforms import TransformStep, legal_zone
from hudi_ingest.records.schema.columns import TableSchema, column_problems, parse_avsc, parse_ddl, table_schema
from hudi_ingest.records.transform import Transform
from hudi_ingest.records.transform.chain import Chain, ChainProblems, Step
from hudi_ingest.records.transform.event_time import EventTimeLimits
from hudi_ingest.records.transform.time_partition import TimePartition, is_expression, parse_time_partition

PARTITION_TYPES = "string, boolean, int, long or date"
TICK_SECONDS = 5
"""How often a pipeline's sensor looks."""
INFER = "infer"
"""A `table.schema` that asks for the columns of a sample of the records."""


def _addresses(value: str, server: str) -> str:
    addresses = [each.strip() for each in value.split(",")]
    for each in addresses:
        found = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", each)
        if found is None or not 1 <= int(found[2]) <= 65535:
            shown = "****" if "@" in value else quoted(each)  # a login may stand before the @
            raise ValueError(
                f"not a {server}'s address; found {shown}; allowed: host:port with a port from 1 to 65535, several "
                "separated by commas"
            )
    return ",".join(addresses)


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
        return _read_text(self.certificate_file), _read_text(self.key_file)

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
        return _addresses(value, "broker")

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


class Lock(_Model):
    """A table lock that is one lock for writers in several JVMs. Without it the lock is inside each JVM."""

    zookeeper: str = Field(json_schema_extra={"allowed": "host:port, or several separated by commas"})
    """Servers of the ZooKeeper ensemble that keeps the lock."""

    path: str = Field(
        default="/hudi-ingest/locks", json_schema_extra={"allowed": "an absolute ZooKeeper path, like /hudi/locks"}
    )
    """Below this node each table has a lock node of its own, whose name is a digest of `table.base_path`."""

    @field_validator("zookeeper")
    @classmethod
    def _servers(cls, value: str) -> str:
        return _addresses(value, "ZooKeeper server")

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", value) or {".", ".."} & set(value.split("/")):
            raise ValueError(
                f"not a ZooKeeper path; found {quoted(value)}; allowed: /name/name…, of letters, digits, `.`, `_` and `-`"
            )
        return value


class SparkCheckpoint(_Model):
    """The checkpoint of a Spark Structured Streaming query."""

    spark_checkpoint: str
    """Folder that was the query's `checkpointLocation`."""


class EventTime(_Model):
    """Limits of a record's own time."""

    field: Annotated[str, StringConstraints(min_length=1)]
    """A timestamp, as it is after the transforms. Null is within the limits."""

    late_after_seconds: Annotated[Seconds, Field(ge=0, le=1e10)] | None = None
    """A record is late when its time is more than this before `relative_to`; without it, none is."""

    future_after_seconds: Annotated[Seconds, Field(ge=0, le=1e10)] | None = Field(default=None, validate_default=True)
    """A record is ahead when its time is more than this after `relative_to`; without it, none is."""

    relative_to: Literal["kafka_timestamp", "transaction"] = "kafka_timestamp"
    """`kafka_timestamp` is when the record was produced, or when the broker got it, as the topic is configured;
    `transaction` is when the transaction began, whatever attempt writes the record."""

    action: Literal["reject", "route"] = "reject"
    """`reject` makes it a bad record. `route` puts it into partition `late` or `future`, in place of each time in
    `table.partition_by` that is made of `field`."""

    @field_validator("future_after_seconds")
    @classmethod
    def _a_limit(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is None and info.data.get("late_after_seconds", 0) is None:
            raise ValueError("neither it nor `late_after_seconds` is there; add one, or remove event_time")
        return value


class Table(_Model):
    """What to write to."""

    base_path: str = Field(json_schema_extra={"allowed": "an absolute path, or file:///…"})
    """Folder of the Hudi table, on a local or mounted file system. It is created by the first transaction, and no other pipeline may write there."""

    schema_: str | None = Field(
        default=None,
        alias="schema",
        json_schema_extra={"allowed": "Spark DDL, like `id string NOT NULL, ts long`; or infer"},
    )
    """The table's columns, in Spark DDL; see the types below. `infer` takes them from a sample of JSON records when the
    table is made. Without it and `schema_file`, they are those of `source.schema_registry`."""

    schema_file: Path | None = Field(
        default=None, validate_default=True, json_schema_extra={"allowed": "path of an .avsc file"}
    )
    """File of an Avro record schema with the table's columns, relative to the pipeline file."""

    partition_by: tuple[str, ...] = Field(
        default=(), json_schema_extra={"allowed": "a list of columns, and of times like day(ts) or dt=day(ts)"}
    )
    """Columns whose values split the table into folders. Their type is string, boolean, int, long or date. year(…),
    month(…), day(…) and hour(…) of a timestamp make a column of text: `day(ts)` makes `ts_day`, `dt=day(ts)` makes `dt`."""

    partition_zone: str = Field(
        default="UTC", json_schema_extra={"allowed": "a zone's name like Europe/Berlin, or +02:00"}
    )
    """Whose clocks say when the years, months, days and hours of `partition_by` begin. Changed later, it moves new rows
    to other partitions than old ones of the same time."""

    hive_style: bool = True
    """Whether folders are called `dt=2026-01-31`; if not, `2026-01-31`, and then no value may begin with `.` or `_`. It
    cannot be changed once the table is there."""

    event_time: EventTime | None = None
    """Which records are too old, or too far ahead; without it, none are."""

    kafka_columns: tuple[Literal["topic", "timestamp"], ...] = ("topic", "timestamp")
    """Which of `_kafka_topic` and `_kafka_timestamp` every row carries; `_kafka_partition` and `_kafka_offset` are
    always there. The timestamp of a record that has none is null."""

    target_file_bytes: Annotated[Whole, Field(ge=1024 * 1024)] = 128 * 1024 * 1024
    """A base file is closed at about this size, if `rows_per_file` does not close it first. The default is 128 MiB."""

    rows_per_file: Annotated[Whole, Field(ge=1000)] = 2_000_000
    """A base file is closed at this many rows, if `target_file_bytes` does not close it first. A longer range of one
    Kafka partition is split over several Spark tasks."""

    small_files_a_day: Annotated[Whole, Field(ge=1)] = 10_000
    """A commit warns when others like it would make more files below a quarter of `target_file_bytes` in a day."""

    compression: Literal["zstd", "snappy", "gzip"] = "zstd"
    """Compression of the base files."""

    column_statistics: bool = False
    """Whether the metadata table keeps the least and greatest value of each file's columns, by which readers skip whole
    files. It doubles the time of a commit, the more so the more files its table partitions have. A table that has them
    keeps them."""

    retain_commits: Annotated[Whole, Field(ge=1, le=500)] = 10
    """Files that others replaced, by clustering or an update, are deleted after this many further commits, or up to ten
    more: a query that takes longer than so many commits may miss them. The more, the longer each tick reads the timeline."""

    fsync: bool = True
    """On a local or mounted file system, files are flushed to the disk before the commit that names them, and Hudi's own files
    after each step, so that a commit outlives a power cut: see docs/guarantees.md. Off, the operating system writes them when
    it likes, as for any other Hudi writer: commits are some tens of milliseconds faster."""

    take_over: Literal["hudi_streamer", "kafka_connect"] | SparkCheckpoint | None = Field(
        default=None,
        json_schema_extra={
            "allowed": "hudi_streamer, kafka_connect, or {spark_checkpoint: checkpointLocation of the query}"
        },
    )
    """Which system wrote the table before this pipeline: its first transaction goes on where that ended, or is refused; see
    docs/take-over.md. After it, the setting has no effect. Without it, a table that another system wrote is refused."""

    lock: Lock | None = None
    """Where Hudi's table lock is kept; without it, inside each JVM. It is written into the table's own properties, so
    that other Spark writers take the same lock. Change it only while nobody writes to the table."""

    @field_validator("base_path")
    @classmethod
    def _base_path(cls, value: str) -> str:
        return _normal_path(value)

    @field_validator("schema_")
    @classmethod
    def _schema(cls, value: str | None) -> str | None:
        if value is not None and value != INFER:
            parse_ddl(value)
        return value

    @field_validator("schema_file")
    @classmethod
    def _schema_file(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        # A `schema` that is there and wrong is not in info.data; it has its own problem.
        if value is None:
            return None
        if info.data.get("schema_", "wrong") is not None:
            raise ValueError("`schema` is there too; keep one of the two")
        if value.suffix != ".avsc":
            raise ValueError(f"not an Avro schema file; found {quoted(str(value))}; allowed: a path that ends in .avsc")
        path = _beside_the_file(value, info)
        parse_avsc(_read_text(path))
        return path

    @field_validator("partition_by")
    @classmethod
    def _partition_by(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        # Transforms may make or remove columns, so then only the pipeline can judge. Without them the table's other
        # problems need not hide this one.
        record = None
        if (info.context or {}).get("transformed") is False and {"schema_", "schema_file"} <= info.data.keys():
            record = _declared(info.data["schema_"], info.data["schema_file"])
        problems: list[tuple[Place, str]] = []
        for index, each in enumerate(value):
            if each in value[:index]:
                problems.append(((index,), f"found {quoted(each)} twice in the list; remove one"))
            elif is_expression(each):
                try:
                    parse_time_partition(each, "UTC")
                except ValueError as error:
                    problems.append(((index,), f"{error}; found {quoted(each)}"))
            elif record is not None and (problem := _partition_problem(each, record, False)):
                problems.append(((index,), problem))
        if problems:
            raise PlacedProblems(problems)
        return value

    @field_validator("partition_zone")
    @classmethod
    def _partition_zone(cls, value: str) -> str:
        return legal_zone(value)

    @field_validator("take_over", mode="before")
    @classmethod
    def _take_over(cls, value: object) -> object:
        if value is None or isinstance(value, SparkCheckpoint) or value in ("hudi_streamer", "kafka_connect"):
            return value
        if (
            isinstance(value, Mapping)
            and list(value) == ["spark_checkpoint"]
            and isinstance(value["spark_checkpoint"], str)
        ):
            try:
                return SparkCheckpoint(spark_checkpoint=_normal_path(value["spark_checkpoint"]))
            except ValueError as error:
                raise PlacedProblems([(("spark_checkpoint",), str(error))]) from None
        raise ValueError(f"found {describe(value)}; allowed: {allowed(cls.model_fields['take_over'])}")

    @field_validator("kafka_columns")
    @classmethod
    def _kafka_columns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"found one entry twice ({', '.join(value)}); remove one")
        return value

    _record_schema: pa.Schema | None = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        # Once: a schema file that changes later must not change a pipeline that is loaded.
        self._record_schema = _declared(self.schema_, self.schema_file)

    @property
    def declares_schema(self) -> bool:
        """Whether the columns are in the pipeline file, or in a file that it names."""
        return self.schema_file is not None or self.schema_ not in (None, INFER)

    @property
    def record(self) -> pa.Schema:
        """What records are decoded to: as declared, or as a transaction has found it (`Pipeline.with_record`)."""
        assert self._record_schema is not None, "not declared, and not found yet"
        return self._record_schema

    def with_record(self, record: pa.Schema) -> Table:
        """The table for records with these columns."""
        found = self.model_copy()
        found._record_schema = record
        return found

    @property
    def table_schema(self) -> TableSchema:
        """The table's columns: the user's, then the Kafka columns."""
        return table_schema(self.record, self.kafka_columns)

    @property
    def time_partitions(self) -> dict[int, TimePartition]:
        """By place in `partition_by`: the entries that are time expressions."""
        return {
            index: parse_time_partition(each, self.partition_zone)
            for index, each in enumerate(self.partition_by)
            if is_expression(each)
        }

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that split the table into folders."""
        times = self.time_partitions
        return tuple(times[index].column if index in times else each for index, each in enumerate(self.partition_by))


def _declared(ddl: str | None, schema_file: Path | None) -> pa.Schema | None:
    if schema_file is not None:
        return parse_avsc(_read_text(schema_file))
    return None if ddl is None or ddl == INFER else parse_ddl(ddl)


def _partitions(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.date32())


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}; found path {path}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text (byte {error.start + 1}); found path {path}") from None


def _normal_path(value: str) -> str:
    may_be = "an absolute path like /data/orders or file:///data/orders"
    scheme, separator, rest = value.partition("://")
    if not separator:
        path = value
        if not path.startswith("/"):
            raise ValueError(f"not an absolute path; found {quoted(value)}; allowed: {may_be}")
    else:
        path = rest
        # Without what stands behind the scheme: a login may be in it.
        if scheme.lower() != "file":
            store = f"{scheme}://" if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]{0,20}", scheme) else "a store's address"
            raise ValueError(
                f"found {store}, and tables must be on a local or mounted file system: object stores and HDFS are not "
                f"supported yet; allowed: {may_be}, which may be a mounted bucket"
            )
        if not path.startswith("/"):
            raise ValueError(f"a file: path has three slashes; allowed: {may_be}")
    if re.search(r"[*?{}\[\]\x00-\x1f\x7f]", value):
        found = quoted(value)
        raise ValueError(
            f"holds a sign that readers take for a pattern; found {found}; allowed: a path without * ? {{ }} [ ]"
        )
    if {".", ".."} & set(path.split("/")):
        raise ValueError(f"holds a . or .. folder; found {quoted(value)}; write the path without")
    path = posixpath.normpath("/" + path.strip("/"))
    if path == "/":
        raise ValueError(f"names no folder; found {quoted(value)}; allowed: {may_be}")
    return path


class Transaction(_Model):
    """How much is published at a time, and how long it may take."""

    interval_seconds: Annotated[Seconds, Field(ge=TICK_SECONDS)] = Field(
        default=60.0,
        json_schema_extra={"allowed": f"a number of at least {TICK_SECONDS}: the sensor looks every {TICK_SECONDS} s"},
    )
    """A transaction begins at most this often, unless `max_records` are waiting."""

    min_records: Annotated[Whole, Field(ge=1)] = 1
    """Fewer waiting records than this begin no transaction until `max_wait_seconds` have passed."""

    max_wait_seconds: Annotated[Seconds, Field(ge=0)] = 600.0
    """Records that `min_records` holds back are written once the table's last transaction began this long ago, and at the
    earliest when `interval_seconds` allows. The first transaction takes whatever is there."""

    max_records: Annotated[Whole, Field(ge=1)] = Field(default=5_000_000, validate_default=True)
    """A transaction takes at most this many records; the rest waits for the next one."""

    max_bytes: Annotated[Whole, Field(ge=1)] | None = None
    """A transaction takes at most about this many bytes of records, estimated from the mean record size of the last
    transaction. Without it only `max_records` limits."""

    timeout_seconds: Annotated[Whole, Field(ge=10)] = 300
    """A transaction that has not committed after this time is rolled back, and the next one reads the same offsets."""

    max_tasks: Annotated[Whole, Field(ge=1)] = 8
    """A transaction writes with at most this many Dagster ops; with more Kafka partitions, an op takes several."""

    fan_out_from: Annotated[Whole, Field(ge=0)] = 100_000
    """From this many records on, a transaction's ops run side by side, each in a process of its own. The ops of a smaller one
    run one after another in the run's process, which saves seconds. 0 makes the ops of every transaction run side by side."""

    single_op: bool = False
    """Whether one op writes all Kafka partitions of a transaction below `fan_out_from` records, which saves a part of a second
    for each partition. It gives up what an op for each partition brings: a failed op is then tried again with all partitions, and the run
    does not show which of them took how long."""

    retries: Annotated[Whole, Field(ge=0)] = 2
    """How often a failed write op is tried again."""

    retry_delay_seconds: Annotated[Seconds, Field(ge=0)] = 5.0
    """How long to wait before a write op is tried again."""

    def fans_out(self, count: int) -> bool:
        """Whether a transaction of `count` records has ops side by side, in processes of their own."""
        return count >= self.fan_out_from

    def write_ops(self, count: int) -> int:
        """With at most how many ops a transaction of `count` records writes."""
        return 1 if self.single_op and not self.fans_out(count) else self.max_tasks

    @field_validator("max_records")
    @classmethod
    def _not_below_min_records(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("min_records")
        if least is not None and value < least:
            raise ValueError(f"found {value}; allowed: at least min_records, which is {least}")
        return value


class Pipeline(_Model):
    """A set of Kafka topics that is written to one Hudi table, exactly once."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$",
            json_schema_extra={"allowed": "a letter, then up to 62 letters, digits and _"},
        ),
    ]
    """What the pipeline is called in Dagster, on the command line and in the table's commits. Renaming it means another
    pipeline, which must not write to the old one's table."""

    enabled: bool = False
    """Whether the pipeline's sensor runs as soon as Dagster has loaded it. What somebody turns on or off in the UI wins."""

    source: KafkaSource
    """What to read."""

    table: Table
    """What to write to."""

    transforms: tuple[TransformStep, ...] = Field(
        default=(), validate_default=True, json_schema_extra={"default": "[]"}
    )
    """What happens to every record, in this order, between `table.schema`, which says what records hold, and the table."""

    transaction: Transaction = Transaction()
    """How much is published at a time, and how long it may take."""

    asset: AssetSettings = AssetSettings()
    """How Dagster shows the table, and when its checks fail."""

    on_bad_record: Literal["fail", "skip", "dead_letter"] = "fail"
    """What happens when a record cannot become a row. `fail`: the transaction fails and names the record, and nothing of it
    is published. `skip`: the record is counted and left out. `dead_letter`: it is kept as a dead letter, which the same
    commit publishes; see docs/dead-letters.md."""

    max_bad_records: Annotated[Whole, Field(ge=0)] | None = 100_000
    """A transaction with more bad records than this is refused as with `fail`; null: there is no such limit."""

    max_bad_ratio: Ratio | None = Field(default=None, json_schema_extra={"allowed": "a number from 0 to 1"})
    """A transaction is refused as with `fail` when more than this share of its records are bad, like 0.01; without it, only
    `max_bad_records` limits. Tombstones do not count as records here."""

    dead_letters: DeadLetters = DeadLetters()
    """What dead letters hold, and where else they go."""

    on_tombstone: Literal["skip", "fail", "row"] = "skip"
    """What happens to a record without a value. `skip` counts it and goes on. `fail` makes it a bad record, and goes with
    `on_bad_record: fail` only. `row` takes it through the transforms as a record whose fields are all null, so none of them
    may be NOT NULL; `insert_kafka` gives it its key."""

    @field_validator("table")
    @classmethod
    def _schema_is_known(cls, value: Table, info: ValidationInfo) -> Table:
        source: KafkaSource | None = info.data.get("source")
        if source is None or value.declares_schema:
            return value
        if value.schema_ == INFER and source.format != "json":
            text = f"`infer` looks at JSON records only, and source.format is {source.format}; write the columns"
            raise PlacedProblems([(("schema",), text)])
        if value.schema_ is None and not needs_registry(source):
            text = "neither it nor `schema` is there; add `schema` (Spark DDL) or `schema_file` (.avsc)"
            more = "; JSON records can have `schema: infer`" if source.format == "json" else ""
            raise PlacedProblems([(("schema_file",), text + more)])
        return value

    @field_validator("table")
    @classmethod
    def _one_topic_is_taken_over(cls, value: Table, info: ValidationInfo) -> Table:
        source: KafkaSource | None = info.data.get("source")
        if source is not None and isinstance(value.take_over, str) and len(source.topics) > 1:
            text = f"{value.take_over} reads one topic into a table, and source.topics has {len(source.topics)}; begin with that one"
            raise PlacedProblems([(("take_over",), text)])
        return value

    @field_validator("transforms")
    @classmethod
    def _transforms(cls, value: tuple[TransformStep, ...], info: ValidationInfo) -> tuple[TransformStep, ...]:
        # A table or a source that is there and wrong is not in info.data; it has its own problem.
        if {"table", "source"} <= info.data.keys() and info.data["table"].declares_schema:
            _chain(info.data["table"], info.data["source"].key, value)
        return value

    @field_validator("on_tombstone")
    @classmethod
    def _tombstones_fit(cls, value: str, info: ValidationInfo) -> str:
        if value == "fail" and info.data.get("on_bad_record", "fail") != "fail":
            raise ValueError(
                f"fail needs `on_bad_record: fail`, and that is {info.data['on_bad_record']}: a record without a value leaves "
                "nothing to keep; set it to skip or row"
            )
        if value == "row" and "table" in info.data and info.data["table"].declares_schema:
            required = [each.name for each in info.data["table"].record if not each.nullable]
            if required:
                raise ValueError(
                    f"row makes every field of such a record null, and {', '.join(required)} may not be: remove their NOT "
                    "NULL, or set it to skip or fail"
                )
        return value

    @field_validator("dead_letters")
    @classmethod
    def _dead_letters(cls, value: DeadLetters, info: ValidationInfo) -> DeadLetters:
        source = info.data.get("source")
        if source is not None and value.topic is not None and value.topic in source.topics:
            text = f"found {quoted(value.topic)}, which source.topics has: dead letters would come back; name another topic"
            raise PlacedProblems([(("topic",), text)])
        return value

    _made_chain: Chain | None = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        declared = self.table.declares_schema
        self._made_chain = _chain(self.table, self.source.key, self.transforms) if declared else None

    def with_record(self, record: pa.Schema) -> Pipeline:
        """The pipeline for values with these columns, which a transaction has found. Raises ProblemsFromTop when a
        transform or `table.partition_by` does not fit them."""
        table = self.table.with_record(record)
        found = self.model_copy(update={"table": table})
        found._made_chain = _chain(table, self.source.key, self.transforms)
        return found

    @property
    def chain(self) -> Chain:
        """What turns decoded records into the table's rows, columns for time partitions included. Of a table whose columns
        are not declared, only after `with_record`."""
        assert self._made_chain is not None, "not declared, and not found yet"
        return self._made_chain

    @property
    def table_schema(self) -> TableSchema:
        """What records are decoded to, and the table's columns: what the chain makes of it, then the Kafka columns."""
        after = table_schema(self.chain.output, self.table.kafka_columns)
        return replace(after, record=self.chain.record)

    @property
    def rows_digest(self) -> str:
        """Differs when records would become other rows, or rows of other partitions: by the format, the transforms, salts
        included, the partitions or the limits."""
        source = self.source
        parts = [source.format, source.avro, source.protobuf, source.csv, source.key]
        parts += [self.transforms, self.table.partition_by, self.table.partition_zone, self.table.event_time]
        parts += [self.table.hive_style, self.on_tombstone]
        plain = TypeAdapter(Any).dump_python(parts)
        text = json.dumps(plain, default=_hidden_or_text)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def max_lag(self) -> int:
        """Offsets that may wait before the lag is a matter for somebody."""
        return self.asset.max_lag or 2 * self.transaction.max_records

    @property
    def checkpoint_key(self) -> str:
        """Of the commit metadata: the offsets that are in the table."""
        return f"hudi_ingest.checkpoint.{self.name}"

    @property
    def transaction_key(self) -> str:
        """Of the commit metadata: which transaction made the commit."""
        return f"hudi_ingest.transaction.{self.name}"

    @property
    def group_id(self) -> str:
        """The consumer group that gets the committed offsets."""
        return self.source.group_id or f"hudi-ingest.{self.name}"


def _hidden_or_text(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _record_with_key(table: Table, key: RecordKey | None) -> pa.Schema:
    """Raises ProblemsFromTop when the key's columns cannot stand beside the value's."""
    if key is None:
        return table.record
    record = pa.schema([*table.record, *key.columns])
    problems = column_problems(record)
    if problems:
        raise ProblemsFromTop([(("source", "key", "schema"), f"beside table.schema, {each}") for each in problems])
    return record


def _chain(table: Table, key: RecordKey | None, transforms: Sequence[TransformStep]) -> Chain:
    """Raises ProblemsFromTop when a step does not fit, or a partition column is not there at the end."""
    record = _record_with_key(table, key)
    placed: list[tuple[Place, Transform]] = [
        (("transforms", index, each.kind), each.transform()) for index, each in enumerate(transforms)
    ]
    times = table.time_partitions
    placed += [(("table", "partition_by", index), each) for index, each in times.items()]
    limits = table.event_time
    if limits is not None:
        route = [each.column for each in times.values() if each.source == limits.field]
        if limits.action == "route" and not route:
            text = f"`route` needs a time of {limits.field} in table.partition_by, like day({limits.field})"
            raise ProblemsFromTop([(("table", "event_time", "action"), text)])
        transform = EventTimeLimits(
            limits.field,
            _span(limits.late_after_seconds),
            _span(limits.future_after_seconds),
            limits.relative_to == "kafka_timestamp",
            route=tuple(route) if limits.action == "route" else (),
        )
        placed.append((("table", "event_time"), transform))
    try:
        chain = Chain.of(record, [Step(dotted(place), transform) for place, transform in placed])
    except ChainProblems as error:
        above = placed[error.step][0]
        raise ProblemsFromTop([((*above, *each.place), each.text) for each in error.problems]) from None
    problems: list[tuple[Place, str]] = []
    columns = chain.output
    for index, name in enumerate(table.partition_columns):
        place = ("table", "partition_by", index)
        if name in table.partition_columns[:index]:
            problems.append(
                (place, f"makes the column {name} a second time; name it, like other={table.partition_by[index]}")
            )
        elif problem := _partition_problem(name, columns, bool(transforms)):
            problems.append((place, problem))
    if problems:
        raise ProblemsFromTop(problems)
    return chain


def _partition_problem(name: str, columns: pa.Schema, transformed: bool) -> str:
    """Why the table cannot be partitioned by the column; empty when it can."""
    if name not in columns.names:
        known = ", ".join(columns.names)
        where = "that the transforms give" if transformed else "of the schema"
        return f"found {quoted(name)}; allowed: a column {where} ({known}){suggestion(name, columns.names)}"
    if not _partitions(columns.field(name).type):
        return f"column {name} has type {columns.field(name).type}; allowed: {PARTITION_TYPES}"
    return ""


def dotted(place: Place) -> str:
    """A place as messages show it, such as `transforms[1].cast`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


# ---- The models as data, for messages and for docs/configuration.md


def keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by the keys that a file has for them."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def nested_model(info: FieldInfo) -> type[BaseModel] | None:
    """The model whose keys are below this field."""
    found = [each for each in _parts(info.annotation) if isinstance(each, type) and issubclass(each, _Model)]
    return found[0] if found and "allowed" not in _extra(info) else None


def allowed(info: FieldInfo) -> str:
    """What a field's value may be, in words."""
    stated = _extra(info).get("allowed")
    return str(stated) if stated else type_in_words(info.annotation, info.metadata)


def default(info: FieldInfo) -> str | None:
    """A field's default as a file would say it; None when the field is required."""
    if info.is_required():
        return None
    stated = _extra(info).get("default")
    if stated is not None:
        return str(stated)
    if isinstance(info.default, tuple):
        return f"[{', '.join(info.default)}]"
    if isinstance(info.default, BaseModel):
        return "the defaults of its keys"
    return "none" if info.default is None else str(info.default)


def is_secret(info: FieldInfo) -> bool:
    """Whether no message may show the field's value."""
    return any(each is SecretStr for each in _parts(info.annotation))


def has_secrets(model: type[BaseModel]) -> bool:
    """Whether a secret stands among the model's own fields."""
    return any(is_secret(each) for each in model.model_fields.values())


def _extra(info: FieldInfo) -> dict[str, Any]:
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation, and all that it is made of."""
    yield annotation
    for each in get_args(annotation):
        yield from _parts(each)


def type_in_words(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What a value of this type may be."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        extra = [each for given in inner[1:] for each in (given.metadata if isinstance(given, FieldInfo) else [given])]
        return type_in_words(inner[0], [*metadata, *extra])
    if NoneType in inner:
        return type_in_words(next(each for each in inner if each is not NoneType), metadata)
    if get_origin(annotation) is Literal:
        return " or ".join([", ".join(inner[:-1])] * (len(inner) > 1) + [inner[-1]])
    if get_origin(annotation) is tuple:
        return f"a list of {type_in_words(inner[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping with the keys {', '.join(keys(annotation))}"
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        SecretStr: "text",
        Path: "a path",
    }[annotation]
    for each in metadata:
        if isinstance(each, annotated_types.Ge):
            words += f" of at least {each.ge}"
        elif isinstance(each, annotated_types.Gt):
            words += f" above {each.gt}"
    return words
