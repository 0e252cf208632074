"""The model of a pipeline, which pipeline files are validated with; file.py reads the files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from keyword import iskeyword
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, PrivateAttr, SecretStr, TypeAdapter, ValidationInfo, field_validator

from hudi_ingest.exceptions.problems import Place, PlacedProblems, ProblemsFromTop, dotted, quoted
from hudi_ingest.model.storage_options import is_s3
from hudi_ingest.pipeline.sections.asset import AssetSettings, Catalog
from hudi_ingest.pipeline.sections.record import RecordKey, needs_registry
from hudi_ingest.pipeline.sections.source import DeadLetters, KafkaSource, loop_problem
from hudi_ingest.pipeline.sections.table import INFER, KAFKA_KEY, Table, partition_problem
from hudi_ingest.pipeline.sections.table_parts import keyed_column_problems, unsteady_partition
from hudi_ingest.pipeline.sections.transaction import Transaction
from hudi_ingest.pipeline.sections.transforms import Expectation, TransformStep
from hudi_ingest.pipeline.settings.describe import Entries
from hudi_ingest.pipeline.settings.model import Model as _Model
from hudi_ingest.pipeline.settings.model import Ratio, Whole
from hudi_ingest.pipeline.template import TABLES_TEXT, Route
from hudi_ingest.records.convert.connect.debezium import UNAVAILABLE, event_columns
from hudi_ingest.records.routing import Routing
from hudi_ingest.records.schema.columns import TableSchema, column_problems, table_schema
from hudi_ingest.records.transform import Transform
from hudi_ingest.records.transform.chain import Chain, ChainProblems, Step
from hudi_ingest.records.transform.timestamps import EventTimeLimits

COORDINATOR = "hudi_ingest_coordinator"
_TAKEN = frozenset(
    [
        "context",
        "conf",
        "config",
        "meta",
        "arg_dict",
        "dict",
        "input_arg_dict",
        "output_arg_dict",
        "int",
        "str",
        "float",
        "bool",
        "input",
        "output",
        "type",
        "hudi_ingest_alerts",
        "hudi_ingest_backfill",
        "hudi_ingest_backfill_hours",
        "hudi_ingest_catalog",
        "hudi_ingest_housekeeping",
        "hudi_ingest_overview",
        "hudi_ingest_replay",
        "hudi_ingest_retry_dead_letters",
        "hudi_ingest_services",
        "hudi_ingest_sweep",
        "hudi_ingest_ttl",
    ]
)


class _OwnSettings(Table):
    """What a table of a template may have of its own."""

    transforms: tuple[TransformStep, ...] = ()
    optional_fields: tuple[str, ...] = ()
    on_bad_record: Literal["fail", "skip", "dead_letter"] = "fail"


class Pipeline(_Model):
    """A set of Kafka topics that is written to one Hudi table, exactly once."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$",
            json_schema_extra={"allowed": "a letter, then up to 62 letters, digits and _", "identity": True},
        ),
    ]
    """The pipeline's name in Dagster, on the command line and in the table's commits. A renamed pipeline is another
    pipeline, and must not write to the old one's table."""

    enabled: bool = False
    """Whether transactions begin as soon as Dagster has loaded the file. `hudi-ingest pause` and `resume` take precedence."""

    source: KafkaSource
    """What to read."""

    table: Table
    """What to write to."""

    route: Route | None = None
    """Writes the topics' records to several tables, by a field. See docs/many-topics.md."""

    tables: Annotated[dict[str, Any], Entries(_OwnSettings)] = Field(
        default_factory=dict, json_schema_extra={"allowed": TABLES_TEXT, "default": "{}"}
    )
    """What single tables have of their own, with `{topic}` in `table.base_path`: keys of `table` that differ, `transforms` that
    follow those of all tables, `optional_fields` beside those of `source`, and `on_bad_record`. `exclude` makes no pipeline of a topic. See
    docs/keyed-tables.md."""

    transforms: tuple[TransformStep, ...] = Field(
        default=(), validate_default=True, json_schema_extra={"default": "[]"}
    )
    """What happens to every record, in this order, between `table.schema`, which describes the records, and the table."""

    expectations: tuple[Expectation, ...] = Field(default=(), json_schema_extra={"default": "[]"})
    """Rules that rows should follow, judged in this order after the transforms; a record that one rejects is not judged by the next."""

    catalog: Catalog | None = None
    """Where query engines find the table."""

    transaction: Transaction = Transaction()
    """How much one transaction publishes, and how long it may take."""

    asset: AssetSettings = AssetSettings()
    """How Dagster shows the table, and when its checks fail."""

    on_bad_record: Literal["fail", "skip", "dead_letter"] = "fail"
    """What happens when a record cannot become a row. `fail`: the transaction fails with an error that names the record,
    and publishes nothing. `skip`: the record is counted and left out. `dead_letter`: it is kept as a dead letter, which
    the same commit publishes; see docs/dead-letters.md."""

    max_bad_records: Annotated[Whole, Field(ge=0)] | None = 100_000
    """A transaction with more bad records than this fails as with `fail`; null: no limit."""

    max_bad_ratio: Ratio | None = Field(default=None, json_schema_extra={"allowed": "a number from 0 to 1"})
    """A transaction fails as with `fail` when more than this share of its records, like 0.01, is bad; without it, only
    `max_bad_records` limits. Tombstones do not count as records here."""

    allow_null_rows: bool = False
    """Whether a transaction is committed although none of its records has a field for any of the columns, so that its rows
    are null in all of them. Such a transaction is refused otherwise: its records are in an envelope, or have other fields."""

    dead_letters: DeadLetters = DeadLetters()
    """What dead letters hold, and where else they go."""

    on_tombstone: Literal["skip", "fail", "row", "delete"] = Field(
        default=None,
        validate_default=True,
        json_schema_extra={"default": "skip; with `table.mode: upsert` delete, unless `source.envelope` is debezium"},
    )
    """What happens to a record without a value. `skip` counts it and continues. `fail` makes it a bad record, and requires
    `on_bad_record: fail`. `row`, only with `table.mode: append`, passes it through the transforms as a record whose fields
    are all null, so none of them may be NOT NULL; `insert_kafka` adds its key. `delete`, only with `table.mode: upsert`,
    deletes the row of its key, whose columns come from `source.key`; without those the record is bad."""

    @field_validator("name")
    @classmethod
    def _dagster_takes_it(cls, value: str) -> str:
        if value in _TAKEN or iskeyword(value):
            raise ValueError(
                f"found {value}, a name that Dagster, Python or hudi-ingest itself uses; choose another one"
            )
        return value

    @field_validator("table")
    @classmethod
    def _schema_is_known(cls, value: Table, info: ValidationInfo) -> Table:
        source: KafkaSource | None = info.data.get("source")
        if source is None or value.declares_schema:
            return value
        if value.schema_ == INFER and source.format != "json":
            text = f"`infer` works with JSON records only, and source.format is {source.format}; declare the columns"
            raise PlacedProblems([(("schema",), text)])
        if value.schema_ is None and not needs_registry(source):
            text = "neither it nor `schema` is set; add `schema` (Spark DDL) or `schema_file` (.avsc)"
            more = "; JSON records can have `schema: infer`" if source.format == "json" else ""
            raise PlacedProblems([(("schema_file",), text + more)])
        return value

    @field_validator("table")
    @classmethod
    def _envelope_fits(cls, value: Table, info: ValidationInfo) -> Table:
        source: KafkaSource | None = info.data.get("source")
        if source is not None and source.envelope == "debezium" and "mode" not in value.model_fields_set:
            text = (
                "found append, but `source.envelope: debezium` updates and deletes rows; set it to upsert, and `key`. Write "
                "`mode: append` for a table whose source only inserts rows"
            )
            raise PlacedProblems([(("mode",), text)])
        if source is not None and source.envelope != "debezium" and value.finds_key:
            raise PlacedProblems([(("key",), f"{KAFKA_KEY} needs `source.envelope: debezium`; list the columns")])
        return value

    @field_validator("table")
    @classmethod
    def _one_topic_is_taken_over(cls, value: Table, info: ValidationInfo) -> Table:
        source: KafkaSource | None = info.data.get("source")
        if source is None:
            return value
        if value.take_over is not None and source.topics_pattern is not None:
            text = "needs `source.topics`: a table is taken over with the topics that its writer read; list them"
            raise PlacedProblems([(("take_over",), text)])
        if isinstance(value.take_over, str) and len(source.topics) > 1:
            text = f"{value.take_over} reads one topic into a table, and source.topics has {len(source.topics)}; list only that one"
            raise PlacedProblems([(("take_over",), text)])
        return value

    @field_validator("table")
    @classmethod
    def _offsets_order_one_topic(cls, value: Table, info: ValidationInfo) -> Table:
        source: KafkaSource | None = info.data.get("source")
        if source is not None and value.is_keyed and value.ordering is None and len(source.topics) > 1:
            text = (
                f"missing; offsets of {len(source.topics)} topics do not say which record of a key is newer: name a column that "
                "does, or write each topic to its own table"
            )
            raise PlacedProblems([(("ordering",), text)])
        return value

    @field_validator("tables")
    @classmethod
    def _only_of_templates(cls, value: dict[str, Any]) -> dict[str, Any]:
        # Templates leave it out of the pipelines that they make.
        if value:
            raise ValueError("needs {topic} in `name` and in `table.base_path`, which makes a table for each topic")
        return value

    @field_validator("route")
    @classmethod
    def _records_can_be_routed(cls, value: Route | None, info: ValidationInfo) -> Route | None:
        source: KafkaSource | None = info.data.get("source")
        table: Table | None = info.data.get("table")
        if value is None:
            return value
        if source is not None and (source.format != "json" or source.envelope != "none"):
            raise ValueError(
                "needs `source.format: json` without an envelope: the field is looked up in the records' JSON"
            )
        if table is not None and table.is_keyed:
            raise ValueError(
                "needs `table.mode: append`: a record without a value would delete a row of no known table"
            )
        if table is not None and not table.declares_schema:
            raise ValueError("needs declared columns: each table has its own `schema` or `schema_file`")
        return value

    @field_validator("catalog")
    @classmethod
    def _location_is_on_s3(cls, value: Catalog | None, info: ValidationInfo) -> Catalog | None:
        table: Table | None = info.data.get("table")
        if value is not None and value.location_scheme == "s3" and table is not None and not is_s3(table.base_path):
            text = f"found s3, but the table is at {table.base_path}; leave it out"
            raise PlacedProblems([(("location_scheme",), text)])
        return value

    @field_validator("transforms")
    @classmethod
    def _transforms(cls, value: tuple[TransformStep, ...], info: ValidationInfo) -> tuple[TransformStep, ...]:
        # A table or a source that failed validation is not in info.data; it has its own problem.
        if {"table", "source"} <= info.data.keys() and info.data["table"].declares_schema:
            _chain(info.data["table"], info.data["source"], value)
        return value

    @field_validator("expectations")
    @classmethod
    def _expectations(cls, value: tuple[Expectation, ...], info: ValidationInfo) -> tuple[Expectation, ...]:
        names = [expectation.name for expectation in value]
        if twice := [index for index, name in enumerate(names) if name in names[:index]]:
            raise PlacedProblems(
                [((index, "name"), f"found {quoted(names[index])} twice; rename one") for index in twice]
            )
        if {"table", "source", "transforms"} <= info.data.keys() and info.data["table"].declares_schema:
            _chain(info.data["table"], info.data["source"], info.data["transforms"], value)
        return value

    @field_validator("on_tombstone", mode="before")
    @classmethod
    def _tombstones_of_mode(cls, value: object, info: ValidationInfo) -> object:
        table: Table | None = info.data.get("table")
        keyed = table is not None and table.is_keyed
        if value is None:
            # Debezium's tombstones follow deletes that have been applied.
            follows = "source" in info.data and info.data["source"].envelope == "debezium"
            return "delete" if keyed and not follows else "skip"
        if value == "delete" and table is not None and not keyed:
            raise ValueError("delete needs `table.mode: upsert`, and that is append; set it to skip, fail or row")
        if value == "row" and keyed:
            raise ValueError("row adds a row, and `table.mode: upsert` has one per key; set it to delete, skip or fail")
        if value == "delete" and table is not None and "source" in info.data:
            _require_deletable(table, info.data["source"].key)
        return value

    @field_validator("on_tombstone")
    @classmethod
    def _tombstones_fit(cls, value: str, info: ValidationInfo) -> str:
        if value == "fail" and info.data.get("on_bad_record", "fail") != "fail":
            raise ValueError(
                f"fail needs `on_bad_record: fail`, and that is {info.data['on_bad_record']}: a record without a value leaves "
                "nothing to keep; set it to skip, row or delete"
            )
        if value == "row" and "table" in info.data and info.data["table"].declares_schema:
            required = [column.name for column in info.data["table"].record if not column.nullable]
            if required:
                raise ValueError(
                    f"row makes every field of such a record null, but {', '.join(required)} must not be null: remove their NOT "
                    "NULL, or set it to skip or fail"
                )
        return value

    @field_validator("dead_letters")
    @classmethod
    def _dead_letters(cls, value: DeadLetters, info: ValidationInfo) -> DeadLetters:
        source = info.data.get("source")
        text = loop_problem(value, source) if source is not None else ""
        if text:
            raise PlacedProblems([(("topic",), text)])
        return value

    _built_chain: Chain | None = PrivateAttr()
    _routing: Routing | None = PrivateAttr(default=None)
    _template: str = PrivateAttr(default="")

    def model_post_init(self, context: object, /) -> None:
        declared = self.table.declares_schema
        self._built_chain = _chain(self.table, self.source, self.transforms, self.expectations) if declared else None

    def routed(self, name: str) -> Pipeline:
        """The pipeline of one of the route's tables."""
        assert self.route is not None
        pipeline = self.model_copy()
        pipeline._routing = self.route.routing(name)
        return pipeline

    def made_by(self, template: str) -> Pipeline:
        """The pipeline as one of those that the template of this name makes."""
        pipeline = self.model_copy()
        pipeline._template = template
        return pipeline

    @property
    def template(self) -> str:
        """The name of the template that makes it; "" if it has a file of its own."""
        return self._template

    @property
    def own_topic(self) -> str:
        """The topic below `tables` that is this pipeline's alone; "" if there is none."""
        return self.source.topics[0] if self.template and self.routing is None else ""

    @property
    def coordinator(self) -> str:
        """The name of the sensor in Dagster that begins its transactions, and those of all others of its code location. Where definitions of
        several folders are merged, their sensors have it with an ending each."""
        return COORDINATOR

    @property
    def routing(self) -> Routing | None:
        """Which of the topics' records are the table's own; None: all."""
        return self._routing

    def reading(self, topics: Iterable[str]) -> Pipeline:
        """The pipeline of exactly these of its topics: with a pattern, those that a plan found."""
        if self.source.topics_pattern is None:
            return self
        source = self.source.model_copy(update={"topics": tuple(topics), "topics_pattern": None})
        return self.model_copy(update={"source": source})

    def with_record(self, record: pa.Schema, key: tuple[str, ...] = ()) -> Pipeline:
        """The pipeline for values with these columns and this key, which a transaction determined at its begin. Raises
        ProblemsFromTop when a transform, the key or `table.partition_by` does not fit them."""
        table = self.table.with_record(record, key)
        pipeline = self.model_copy(update={"table": table})
        pipeline._built_chain = _chain(table, self.source, self.transforms, self.expectations)
        return pipeline

    @property
    def chain(self) -> Chain:
        """Return the transforms from decoded records to the table's rows, including columns for time partitions. If the table's columns
        are not declared, available only after `with_record`."""
        assert self._built_chain is not None, "not declared, and not determined yet: call with_record"
        return self._built_chain

    @property
    def row_columns(self) -> pa.Schema:
        """The columns of the chain's output that the table has: all but `table.delete_field`."""
        return pa.schema([column for column in self.chain.output if column.name != self.table.delete_field])

    @property
    def table_schema(self) -> TableSchema:
        """The columns that records are decoded to, and the table's: `row_columns`, then the Kafka columns."""
        after = table_schema(self.row_columns, self.table.kafka_columns)
        return replace(after, record=self.chain.record)

    @property
    def rows_digest(self) -> str:
        """A digest that differs when records would become other rows, or rows of other partitions: of the format, the
        transforms (including salts), the partitions and the limits."""
        source = self.source
        parts = [source.format, source.avro, source.protobuf, source.csv, source.key]
        parts += [self.transforms, self.table.partition_by, self.table.partition_zone, self.table.event_time]
        parts += [self.table.hive_style, self.on_tombstone]
        if source.envelope != "none":
            parts += [source.envelope, source.before_image, source.event_columns]
        if self.expectations:
            parts += [self.expectations]
        if source.on_truncate != "apply":
            parts += [source.on_truncate]
        if source.unavailable_value is not None:
            parts += [source.unavailable_value]
        if source.optional_fields:
            parts += [source.optional_fields]
        if self.routing is not None:
            parts += [self.routing]
        if self.table.is_keyed:
            parts += [self.table.key, self.table.ordering, self.table.delete_field]
        plain = TypeAdapter(Any).dump_python(parts)
        text = json.dumps(plain, default=_hidden_or_text)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def unavailable_value(self) -> str | None:
        """The placeholder of values that the database left out; None if any value may be one."""
        return self.source.unavailable_value or (UNAVAILABLE if self.table.is_keyed else None)

    @property
    def fills_values(self) -> bool:
        """Whether a value that the database left out is filled from the key's row. The order of offsets says which row was before a change;
        an ordering column does not, because an earlier change may come later."""
        return self.table.is_keyed and self.table.ordering is None

    @property
    def asset_key(self) -> tuple[str, ...]:
        """The key of the table's asset."""
        return self.asset.key or (self.name,)

    @property
    def fatal_expectations(self) -> frozenset[str]:
        return frozenset(expectation.name for expectation in self.expectations if expectation.severity == "fail")

    def with_asset_key(self, key: tuple[str, ...]) -> Pipeline:
        return self.model_copy(update={"asset": self.asset.model_copy(update={"key": key})})

    @property
    def catalog_table(self) -> str:
        """The table's full name in its catalog, "" if it has none."""
        return f"{self.catalog.database}.{self.catalog.table or self.name.lower()}" if self.catalog else ""

    @property
    def catalog_tables(self) -> tuple[str, ...]:
        """The full names of all tables that the sync keeps in the catalog: of a keyed table the snapshot, twice, and what is
        compacted. () without a catalog."""
        if self.catalog is None:
            return ()
        return tuple(
            f"{self.catalog_table}{suffix}" for suffix in (("", "_rt", "_ro") if self.table.is_keyed else ("",))
        )

    @property
    def catalog_place(self) -> str:
        """The table's full name in its catalog and the catalog's address, "" if it has none."""
        return f"{self.catalog_table} at {self.catalog.uris}" if self.catalog else ""

    @property
    def iceberg_table(self) -> str:
        """The full name of its Iceberg table, "" if it has none."""
        iceberg = self.table.iceberg
        return f"{iceberg.namespace}.{iceberg.table or self.name.lower()}" if iceberg else ""

    @property
    def max_lag(self) -> int:
        """How many offsets may wait before the lag needs attention."""
        return self.asset.max_lag or 2 * self.transaction.max_records

    @property
    def declares_complete(self) -> bool:
        """Whether the file relies on the time through which the table is complete."""
        return self.source.lateness_seconds is not None or self.asset.complete is not None

    @property
    def complete_key(self) -> str:
        """The key in the commit metadata that holds the time through which the table is complete."""
        return f"hudi_ingest.complete_through.{self.name}"

    @property
    def checkpoint_key(self) -> str:
        """The key in the commit metadata that holds the offsets in the table."""
        return f"hudi_ingest.checkpoint.{self.name}"

    @property
    def transaction_key(self) -> str:
        """The key in the commit metadata that holds the id of the commit's transaction."""
        return f"hudi_ingest.transaction.{self.name}"

    @property
    def group_id(self) -> str:
        """The consumer group that gets the committed offsets."""
        return self.source.group_id or f"hudi-ingest.{self.name}"


def _hidden_or_text(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _require_deletable(table: Table, key: RecordKey | None) -> None:
    """Raise ValueError when no tombstone could say which row it deletes."""
    if key is None:
        raise ValueError(
            "delete needs `source.key`, from which a record without a value gets the columns of table.key; add it, or set "
            "this to skip"
        )


def _whole_record(table: Table, source: KafkaSource) -> pa.Schema:
    """The columns of values, events and keys. Raises ProblemsFromTop when they conflict."""
    record = table.record
    added: list[tuple[Place, pa.Schema]] = [(("source", "event_columns"), event_columns(source.event_columns))]
    if source.key is not None:
        added.append((("source", "key", "schema"), source.key.columns))
    for place, columns in added:
        record = pa.schema([*record, *columns])
        if len(columns) and (problems := column_problems(record, table.record.names)):
            raise ProblemsFromTop([(place, f"together with table.schema, {problem}") for problem in problems])
    return record


def _chain(
    table: Table, source: KafkaSource, transforms: Sequence[TransformStep], expectations: Sequence[Expectation] = ()
) -> Chain:
    """Build the chain. Raises ProblemsFromTop when a step does not fit, or a partition column is missing at the end."""
    placed = [*_placed_transforms(table, transforms, expectations)]
    try:
        chain = Chain.of(_whole_record(table, source), [Step(dotted(place), transform) for place, transform in placed])
    except ChainProblems as error:
        above = placed[error.step][0]
        raise ProblemsFromTop([((*above, *problem.place), problem.text) for problem in error.problems]) from None
    problems = [*_output_problems(table, chain.output, bool(transforms))]
    if table.is_keyed:
        problems += _keyed_problems(table, chain)
    if not problems and table.key_columns and source.envelope == "debezium" and source.before_image == "key":
        problems += _beyond_the_key(table, chain)
    if problems:
        raise ProblemsFromTop(problems)
    return chain


def _placed_transforms(
    table: Table, transforms: Sequence[TransformStep], expectations: Sequence[Expectation]
) -> Iterator[tuple[Place, Transform]]:
    """Yield all transforms of the pipeline, each with its place in the file. Raises ProblemsFromTop."""
    yield from ((("transforms", index, step.kind), step.transform()) for index, step in enumerate(transforms))
    times, limits = table.time_partitions, table.event_time
    yield from ((("table", "partition_by", index), partition) for index, partition in times.items())
    if limits is not None:
        route = [partition.column for partition in times.values() if partition.source == limits.field]
        if limits.action == "route" and not route:
            text = f"`route` needs a time expression of {limits.field} in table.partition_by, like day({limits.field})"
            raise ProblemsFromTop([(("table", "event_time", "action"), text)])
        transform = EventTimeLimits(
            limits.field,
            _span(limits.late_after_seconds),
            _span(limits.future_after_seconds),
            limits.relative_to == "kafka_timestamp",
            route=tuple(route) if limits.action == "route" else (),
        )
        yield ("table", "event_time"), transform
    for index, expectation in enumerate(expectations):
        yield ("expectations", index, "condition"), expectation.transform(table.delete_field)


def _output_problems(table: Table, columns: pa.Schema, transformed: bool) -> Iterator[tuple[Place, str]]:
    """Yield why the table cannot have these columns, or not be partitioned by them."""
    kept = pa.schema([column for column in columns if column.name != table.delete_field])
    remedy = (
        "; a field that a producer calls so is declared like this, and then renamed with the transform `rename`, or dropped; one "
        "inside a struct is taken out of it with the transform `sql`"
    )
    yield from ((("table", "schema"), f"{problem}{remedy}") for problem in column_problems(kept))
    for index, name in enumerate(table.partition_columns):
        problem = (
            f"adds the column {name} a second time; give it another name, like other={table.partition_by[index]}"
            if name in table.partition_columns[:index]
            else partition_problem(name, columns, transformed)
        )
        if problem:
            yield ("table", "partition_by", index), problem


def _keyed_problems(table: Table, chain: Chain) -> Iterator[tuple[Place, str]]:
    """Yield why a keyed table cannot have the chain's columns."""
    for index, name in enumerate(table.partition_columns):
        if name in chain.output.names and (problem := unsteady_partition(chain.sources([name]))):
            yield ("table", "partition_by", index), problem
    if table.event_time is not None and table.event_time.action == "route":
        text = "`route` moves a row to another table partition when it is late, and a keyed table would then have it twice; use reject"
        yield ("table", "event_time", "action"), text
    for place, text in keyed_column_problems(
        chain.output, table.key_columns, table.ordering, table.delete_field, table.partition_columns
    ):
        yield ("table", *place), text


def _beyond_the_key(table: Table, chain: Chain) -> Iterator[tuple[Place, str]]:
    """Yield what of the table needs fields of a deleted row that are not in its key."""
    needs: list[tuple[Place, str]] = [
        (("table", "partition_by", index), name) for index, name in enumerate(table.partition_columns)
    ]
    if table.ordering is not None:
        needs.append((("table", "ordering"), table.ordering))
    in_key, in_values = chain.sources(table.key_columns), frozenset(table.record.names)
    for place, name in needs:
        beyond = sorted((chain.sources([name]) & in_values) - in_key)
        if beyond:
            text = (
                f"computed from {beyond[0]}, which is not in the key, and so not in a delete unless the database sends whole rows: "
                "have it do so, and set `source.before_image: row`"
            )
            yield place, text


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
