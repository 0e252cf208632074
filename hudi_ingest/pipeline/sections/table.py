"""`table` of a pipeline file: the Hudi table's location, columns and partitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator

from hudi_ingest.exceptions.problems import Place, PlacedProblems, describe, quoted, suggestion
from hudi_ingest.model.storage_options import S3_SCHEME, StorageOptions, is_s3
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.hudi_options import option_problems
from hudi_ingest.pipeline.sections.iceberg import Iceberg
from hudi_ingest.pipeline.sections.storage import Lock, Storage, local_path, normal_path
from hudi_ingest.pipeline.sections.table_parts import (
    KEY_TYPES_TEXT,
    ORDERING_TYPES_TEXT,
    CompactionLimits,
    EventTime,
    Ttl,
)
from hudi_ingest.pipeline.sections.transforms import legal_zone
from hudi_ingest.pipeline.settings.describe import allowed
from hudi_ingest.pipeline.settings.model import Model as _Model
from hudi_ingest.pipeline.settings.model import Whole, as_text, read_text
from hudi_ingest.pipeline.settings.model import beside_the_file as _beside_the_file
from hudi_ingest.pipeline.settings.references import Secret
from hudi_ingest.records.kafka_columns import OFFSET
from hudi_ingest.records.schema.avro import parse_avsc
from hudi_ingest.records.schema.columns import TableSchema, table_schema
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.transform.timestamps import UNITS, TimePartition, is_expression, parse_time_partition

PARTITION_TYPES = "string, boolean, int, long or date"
MOST_BUCKETS = 1024
_ONLY_UPSERT = "only with `mode: upsert`, and mode is append; remove it, or set mode"
INFER = "infer"
"""A `table.schema` that takes the columns from a sample of the records."""
KAFKA_KEY = "kafka_key"
"""A `table.key` that takes the columns from the records' own keys."""


class SparkCheckpoint(_Model):
    """The checkpoint of a Spark Structured Streaming query."""

    spark_checkpoint: str = Field(json_schema_extra={"path": True})
    """Folder that was the query's `checkpointLocation`."""


class Table(_Model):
    """What to write to."""

    base_path: str = Field(
        json_schema_extra={"allowed": "an absolute path, file:///…, s3a://bucket/path or s3://…", "identity": True}
    )
    """Folder of the Hudi table, on a local or mounted file system or on S3 (`s3://` means the same as `s3a://`). The first
    transaction creates it, and no other pipeline may write there."""

    schema_: str | None = Field(
        default=None,
        alias="schema",
        json_schema_extra={"allowed": "Spark DDL, like `id string NOT NULL, ts long`; or infer"},
    )
    """The table's columns, in Spark DDL; see the types below. `infer` takes them from a sample of JSON records when the
    table is created; later columns come from the schemas in the records if `source.envelope` is set. Without it and `schema_file`, they come from `source.schema_registry`."""

    schema_file: Path | None = Field(
        default=None, validate_default=True, json_schema_extra={"allowed": "path of an .avsc file"}
    )
    """File of an Avro record schema with the table's columns, relative to the pipeline file."""

    on_schema_change: Literal["evolve", "ignore", "refuse"] = "evolve"
    """What happens when records have columns that the table lacks, by the registry's newest schema, the schemas in the records with
    `schema: infer` and an envelope, or an edit of `schema`.
    `evolve` adds them and widens numbers. `ignore` leaves new fields out, and names them in the plan; numbers still widen.
    `refuse` lets no transaction begin until `hudi-ingest approve-schema` has approved exactly this change; see docs/schema.md."""

    mode: Literal["append", "upsert"] = "append"
    """`append` adds a row for each record. `upsert` keeps one row per key in each table partition: a record inserts, updates
    or deletes it; see docs/keyed-tables.md. Mode, `key`, `ordering`, `buckets` and `partition_by` cannot be changed once the
    table exists."""

    key: tuple[str, ...] | Literal["kafka_key"] = Field(
        default=(),
        validate_default=True,
        json_schema_extra={"allowed": f"a list of columns of type {KEY_TYPES_TEXT}; or {KAFKA_KEY}"},
    )
    """Columns that identify a row, as they are after the transforms. With `kafka_key` they are the fields of the records' own keys,
    as they are when the table is created; a record with other fields in its key stops the pipeline. Only with `envelope: debezium`.
    Required with `mode: upsert`."""

    ordering: str | None = Field(
        default=None,
        json_schema_extra={"allowed": f"a column of type {ORDERING_TYPES_TEXT}", "default": "the Kafka offset"},
    )
    """Column that says which of two records of a key is newer: the greatest value wins, and of equal values the later
    offset. Without it, the offset decides, so all records of a key must be in one Kafka partition. Only with `mode:
    upsert`."""

    buckets: Annotated[Whole, Field(ge=1, le=MOST_BUCKETS)] = 4
    """Number of file groups that the keys of each table partition are hashed to; choose it so that each holds up to about
    1 GB. Only with `mode: upsert`."""

    delete_field: str | None = Field(default=None, json_schema_extra={"allowed": "a boolean column"})
    """Column, after the transforms, that is true where a record deletes its key. It is not a column of the table. Only with
    `mode: upsert`."""

    cdc: bool = False
    """Whether Spark's CDC queries can read which rows a commit inserted, updated and deleted, with their values before and after;
    see docs/keyed-tables.md. It cannot be changed once the table exists. Only with `mode: upsert`, without `ordering`, and
    for tables without decimals."""

    partition_by: tuple[str, ...] = Field(
        default=(), json_schema_extra={"allowed": "a list of columns, and of times like day(ts) or dt=day(ts)"}
    )
    """Columns whose values split the table into folders, of type string, boolean, int, long or date. year(…), month(…),
    day(…) and hour(…) of a timestamp add a text column: `day(ts)` adds `ts_day`, `dt=day(ts)` adds `dt`."""

    partition_zone: Annotated[str, AfterValidator(legal_zone)] = Field(
        default="UTC", json_schema_extra={"allowed": "a zone's name like Europe/Berlin, or +02:00"}
    )
    """The time zone that decides when the years, months, days and hours of `partition_by` begin. If it changes later, new
    rows go to other partitions than old rows of the same time."""

    hive_style: bool = True
    """Whether folders are named `dt=2026-01-31`; if not, `2026-01-31`, and then no value may begin with `.` or `_`. It
    cannot be changed once the table exists."""

    event_time: EventTime | None = None
    """Which records are too old, or too far ahead; without it, none are."""

    kafka_columns: tuple[Literal["topic", "timestamp"], ...] = ("topic", "timestamp")
    """Which of `_kafka_topic` and `_kafka_timestamp` every row has; `_kafka_partition` and `_kafka_offset` are always
    present. The timestamp of a record without one is null."""

    target_file_bytes: Annotated[Whole, Field(ge=1024 * 1024)] = 128 * 1024 * 1024
    """A base file is closed at about this size, or at 2 million rows. The default is 128 MiB. A commit and the check `files_large_enough` warn of more
    than 15,000 files a day below a quarter of it, unless `interval_seconds` is below 60 s: then clustering runs when it is due."""

    compression: Literal["zstd", "snappy", "gzip"] = "zstd"
    """Compression of the base files."""

    column_statistics: bool = False
    """Whether the metadata table keeps the minimum and maximum of each file's columns, which let readers skip whole files.
    It at least doubles the time of a commit; the more files a table partition has, the longer it takes. A table that
    has them keeps them."""

    retain_commits: Annotated[Whole, Field(ge=1, le=500)] = 10
    """Files replaced by clustering or an update are deleted after this many further commits, or up to twenty more: a query
    that takes longer than that many commits may miss them. The more, the longer each tick reads the timeline."""

    compaction: CompactionLimits = CompactionLimits()
    """When log files are merged into base files, by a schedule; see docs/operations.md. Only with `mode: upsert`."""

    ttl: Ttl | None = None
    """How long table partitions are kept; without it, for ever."""

    fsync: bool = True
    """On a local or mounted file system, files are flushed to disk before the commit that names them, and Hudi's own files
    after each step, so that a commit survives a power failure; see docs/guarantees.md. If off, the operating system
    decides when to write them, as for any other Hudi writer; a transaction is about 0.1 s faster."""

    certificates: bool = False
    """Whether commits carry digests of the records that were read and of the rows that were written. With them, `hudi-ingest audit`
    does not depend on what the topics still have; see docs/guarantees.md. They take 10 to 20% of a write task's CPU time."""

    take_over: Literal["hudi_streamer", "kafka_connect"] | SparkCheckpoint | None = Field(
        default=None,
        json_schema_extra={
            "allowed": "hudi_streamer, kafka_connect, or {spark_checkpoint: checkpointLocation of the query}"
        },
    )
    """Which system wrote the table before this pipeline. The first transaction continues where that system ended, or is
    refused; see docs/take-over.md. After it, the setting has no effect. Without it, a table written by another system is
    refused."""

    hudi: dict[str, Annotated[Secret, BeforeValidator(as_text)]] = Field(
        default_factory=dict,
        json_schema_extra={"allowed": "{option: value}, with Hudi's names", "default": "{}"},
    )
    """Further options of every client of Hudi that writes the table: transactions, compaction, clustering, cleaning, rollbacks. For
    example `{hoodie.metadata.compact.max.delta.commits: 5}`. Only those of a list are taken, see below: Hudi ignores names that it does
    not know, hudi-ingest sets many itself, and some would open the engine to others. Values are treated as secrets."""

    iceberg: Iceberg | None = None
    """Iceberg metadata beside Hudi's, for engines that read Iceberg only."""

    storage: Storage | None = None
    """How to reach the object store of an `s3a://` table."""

    lock: Lock | None = Field(default=None, validate_default=True)
    """Where Hudi's table lock is held; without it, inside each JVM. It is written into the table's own properties, so that
    other Spark writers take the same lock. Change it only while nothing writes to the table. Required with
    `storage.conditional_writes: false`."""

    @field_validator("base_path")
    @classmethod
    def _base_path(cls, value: str) -> str:
        path = normal_path(value)
        if is_s3(path):
            extras.require("s3")
        return path

    @field_validator("hudi")
    @classmethod
    def _hudi(cls, value: dict[str, Secret]) -> dict[str, Secret]:
        if problems := [((name,), text) for name, text in option_problems(value)]:
            raise PlacedProblems(problems)
        return value

    @field_validator("storage")
    @classmethod
    def _storage(cls, value: Storage | None, info: ValidationInfo) -> Storage | None:
        base_path = info.data.get("base_path", S3_SCHEME)
        if value is not None and not is_s3(base_path):
            raise ValueError(f"only for tables on S3, and base_path is {base_path}; remove it")
        return value

    @field_validator("lock")
    @classmethod
    def _lock(cls, value: Lock | None, info: ValidationInfo) -> Lock | None:
        storage: Storage | None = info.data.get("storage")
        if value is None and storage is not None and not storage.conditional_writes:
            raise ValueError(
                "missing; with storage.conditional_writes: false nothing else keeps two coordinators apart: add "
                "`lock: {zookeeper: host:port}`"
            )
        return value

    @field_validator("ttl")
    @classmethod
    def _ttl(cls, value: Ttl | None, info: ValidationInfo) -> Ttl | None:
        entries: tuple[str, ...] | None = info.data.get("partition_by")
        if value is None or entries is None:
            return value
        if not entries:
            raise ValueError("only for tables with `partition_by`; remove it, or set that")
        columns = [parse_time_partition(entry, "UTC").column if is_expression(entry) else entry for entry in entries]
        if value.by == "commit" and value.column is not None:
            raise PlacedProblems([(("column",), "only with `by: time`; remove it")])
        if value.column is not None and value.column not in columns:
            raise PlacedProblems(
                [(("column",), f"not in `partition_by`; found {quoted(value.column)}; allowed: {', '.join(columns)}")]
            )
        if value.by == "time" and value.column is None and len(columns) > 1 and not any(map(is_expression, entries)):
            raise ValueError(f"`column` is missing; it says which of {', '.join(columns)} is the time")
        return value

    @field_validator("schema_")
    @classmethod
    def _schema(cls, value: str | None) -> str | None:
        if value is not None and value != INFER:
            parse_ddl(value, renamable=True)
        return value

    @field_validator("schema_file")
    @classmethod
    def _schema_file(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        # A `schema` that failed validation is not in info.data; it has its own problem.
        if value is None:
            return None
        if info.data.get("schema_", "wrong") is not None:
            raise ValueError("`schema` is set too; keep one of the two")
        if value.suffix != ".avsc":
            raise ValueError(f"not an Avro schema file; found {quoted(str(value))}; allowed: a path that ends in .avsc")
        path = _beside_the_file(value, info)
        parse_avsc(read_text(path), renamable=True)
        return path

    @field_validator("key", mode="before")
    @classmethod
    def _is_list_or_kafka_key(cls, value: object) -> object:
        # Of two types pydantic would say what is wrong with each.
        if isinstance(value, list | tuple) or value == KAFKA_KEY:
            return value
        raise ValueError(f"found {describe(value)}; allowed: {allowed(cls.model_fields['key'])}")

    @field_validator("key")
    @classmethod
    def _key(cls, value: tuple[str, ...] | str, info: ValidationInfo) -> tuple[str, ...] | str:
        mode = info.data.get("mode")
        if mode == "upsert" and not value:
            raise ValueError("missing; `mode: upsert` needs the columns that identify a row")
        if mode == "append" and value:
            raise ValueError(_ONLY_UPSERT)
        if isinstance(value, str):
            return value
        problems: list[tuple[Place, str]] = [
            ((index,), f"found {quoted(name)} twice in the list; remove one")
            for index, name in enumerate(value)
            if name in value[:index]
        ]
        if problems:
            raise PlacedProblems(problems)
        return value

    @field_validator("ordering", "buckets", "delete_field", "compaction")
    @classmethod
    def _only_upsert(
        cls, value: int | str | CompactionLimits | None, info: ValidationInfo
    ) -> int | str | CompactionLimits | None:
        # Called only for keys that the file has.
        if value is not None and info.data.get("mode") == "append":
            raise ValueError(_ONLY_UPSERT)
        return value

    @field_validator("cdc")
    @classmethod
    def _cdc(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("mode") == "append":
            raise ValueError(_ONLY_UPSERT)
        if value and info.data.get("ordering") is not None:
            raise ValueError(
                "only without `ordering`: Hudi's CDC query reports deletes and inserts that come late as if they had "
                "changed the table; remove one of the two"
            )
        return value

    @field_validator("column_statistics")
    @classmethod
    def _column_statistics(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("mode") == "upsert":
            raise ValueError(
                "a table with `mode: upsert` has none: each commit would read all its log files again; remove it"
            )
        return value

    @field_validator("partition_by")
    @classmethod
    def _partition_by(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        # Transforms may add or remove columns, so with them only the pipeline can judge. Without them, judge here, so that
        # the table's other problems do not hide this one.
        record = None
        if (info.context or {}).get("transformed") is False and {"schema_", "schema_file"} <= info.data.keys():
            record = _declared(info.data["schema_"], info.data["schema_file"])
        problems: list[tuple[Place, str]] = []
        for index, entry in enumerate(value):
            if entry in value[:index]:
                problems.append(((index,), f"found {quoted(entry)} twice in the list; remove one"))
            elif is_expression(entry):
                try:
                    parse_time_partition(entry, "UTC")
                except ValueError as error:
                    problems.append(((index,), f"{error}; found {quoted(entry)}"))
            elif record is not None and (problem := partition_problem(entry, record, False)):
                problems.append(((index,), problem))
        if problems:
            raise PlacedProblems(problems)
        return value

    @field_validator("take_over", mode="before")
    @classmethod
    def _take_over(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and info.data.get("mode") == "upsert":
            raise ValueError(
                "only tables with `mode: append` can be taken over; ingest into a new table, from the offset that the other "
                "system began with"
            )
        if value is None or isinstance(value, SparkCheckpoint) or value in ("hudi_streamer", "kafka_connect"):
            return value
        if (
            isinstance(value, Mapping)
            and list(value) == ["spark_checkpoint"]
            and isinstance(value["spark_checkpoint"], str)
        ):
            try:
                return SparkCheckpoint(spark_checkpoint=local_path(value["spark_checkpoint"]))
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
    _key_columns: tuple[str, ...] = PrivateAttr(default=())

    def model_post_init(self, context: object, /) -> None:
        # Only once: a schema file that changes later must not change a loaded pipeline.
        self._record_schema = _declared(self.schema_, self.schema_file)
        self._key_columns = () if isinstance(self.key, str) else self.key

    @property
    def is_keyed(self) -> bool:
        """Whether the table has one row per key."""
        return self.mode == "upsert"

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """The columns of a keyed table of which the row with the greatest values is its key's newest."""
        return (self.ordering or OFFSET,)

    @property
    def storage_options(self) -> StorageOptions:
        """How to reach the table's object store; without meaning for a local path."""
        return self.storage.options() if self.storage is not None else StorageOptions()

    @property
    def declares_schema(self) -> bool:
        """Whether the pipeline file, or a file that it names, declares the columns."""
        return self.schema_file is not None or self.schema_ not in (None, INFER)

    @property
    def record(self) -> pa.Schema:
        """The columns that records are decoded to: declared, or determined by a transaction (`Pipeline.with_record`)."""
        assert self._record_schema is not None, "not declared, and not determined yet: call with_record"
        return self._record_schema

    @property
    def finds_key(self) -> bool:
        """Whether the key's columns are those of the records' own keys."""
        return self.key == KAFKA_KEY

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row: listed, or determined by a transaction. () with mode append, and before that."""
        return self._key_columns

    def with_record(self, record: pa.Schema, key: tuple[str, ...] = ()) -> Table:
        """The table for records with these columns and, if it takes that from the records, this key."""
        table = self.model_copy()
        table._record_schema = record
        if self.finds_key:
            table._key_columns = key
        return table

    @property
    def table_schema(self) -> TableSchema:
        """The table's columns: the user's, then the Kafka columns."""
        return table_schema(self.record, self.kafka_columns)

    @property
    def time_partitions(self) -> dict[int, TimePartition]:
        """The entries of `partition_by` that are time expressions, by index."""
        return {
            index: parse_time_partition(entry, self.partition_zone)
            for index, entry in enumerate(self.partition_by)
            if is_expression(entry)
        }

    @property
    def finest_time(self) -> str:
        """The column of the time expression in `partition_by` with the smallest unit; "" if there is none."""
        times = self.time_partitions.values()
        return max(times, key=lambda time: UNITS.index(time.unit)).column if times else ""

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that split the table into folders."""
        times = self.time_partitions
        return tuple(times[index].column if index in times else entry for index, entry in enumerate(self.partition_by))


def _declared(ddl: str | None, schema_file: Path | None) -> pa.Schema | None:
    if schema_file is not None:
        return parse_avsc(read_text(schema_file), renamable=True)
    return None if ddl is None or ddl == INFER else parse_ddl(ddl, renamable=True)


def _can_partition(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.date32())


def partition_problem(name: str, columns: pa.Schema, transformed: bool) -> str:
    """Why the table cannot be partitioned by the column; empty when it can."""
    if name not in columns.names:
        known = ", ".join(columns.names)
        where = "from the transforms" if transformed else "of the schema"
        return f"found {quoted(name)}; allowed: a column {where} ({known}){suggestion(name, columns.names)}"
    if not _can_partition(columns.field(name).type):
        return f"column {name} has type {columns.field(name).type}; allowed: {PARTITION_TYPES}"
    return ""
