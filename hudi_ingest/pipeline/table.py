"""`table` of a pipeline file: where the Hudi table is, its columns and partitions."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import (
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from hudi_ingest.exceptions.problems import Place, PlacedProblems, describe, quoted, suggestion
from hudi_ingest.pipeline.describe import allowed
from hudi_ingest.pipeline.model import Model as _Model
from hudi_ingest.pipeline.model import Seconds, Whole, broker_addresses, read_text
from hudi_ingest.pipeline.model import beside_the_file as _beside_the_file
from hudi_ingest.pipeline.transforms import legal_zone
from hudi_ingest.records.schema.avsc import parse_avsc
from hudi_ingest.records.schema.columns import TableSchema, table_schema
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.transform.time_partition import TimePartition, is_expression, parse_time_partition

PARTITION_TYPES = "string, boolean, int, long or date"
INFER = "infer"
"""A `table.schema` that asks for the columns of a sample of the records."""


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
        return broker_addresses(value, "ZooKeeper server")

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
        parse_avsc(read_text(path))
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
            elif record is not None and (problem := partition_problem(each, record, False)):
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
        return parse_avsc(read_text(schema_file))
    return None if ddl is None or ddl == INFER else parse_ddl(ddl)


def _partitions(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.date32())


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


def partition_problem(name: str, columns: pa.Schema, transformed: bool) -> str:
    """Why the table cannot be partitioned by the column; empty when it can."""
    if name not in columns.names:
        known = ", ".join(columns.names)
        where = "that the transforms give" if transformed else "of the schema"
        return f"found {quoted(name)}; allowed: a column {where} ({known}){suggestion(name, columns.names)}"
    if not _partitions(columns.field(name).type):
        return f"column {name} has type {columns.field(name).type}; allowed: {PARTITION_TYPES}"
    return ""
