"""`transforms` of a pipeline file: one model for each kind of step, and the transform that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, SecretStr, StringConstraints, ValidationInfo, field_validator, model_validator

from hudi_ingest.exceptions.problems import Place, PlacedProblems, SchemaProblem, describe, kind_of, quoted
from hudi_ingest.pipeline import extras
from hudi_ingest.pipeline.settings.model import Model, Whole
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.transform import Transform
from hudi_ingest.records.transform.casts import Cast, scalar_of
from hudi_ingest.records.transform.chain import PATH, PythonFunction
from hudi_ingest.records.transform.columns import (
    Constant,
    Drop,
    Filter,
    Flatten,
    Hash,
    InsertKafka,
    Keep,
    KeepLast,
    Mask,
    Masking,
    Redact,
    Rename,
)
from hudi_ingest.records.transform.sql import Expect, Sql
from hudi_ingest.records.transform.sql_statement import SHAPE
from hudi_ingest.records.transform.timestamps import (
    DIRECTIVES,
    EPOCHS,
    ISO8601,
    ToTimestamp,
    pattern_regex,
    zone_problem,
)

Name = Annotated[str, StringConstraints(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]
Plain = str | int | float | bool
KafkaField = Literal["topic", "partition", "offset", "timestamp", "key", "headers"]
"""The keys of KAFKA_FIELDS."""


def legal_zone(value: str) -> str:
    """Check that times can be read in the zone, and return it. Raises ValueError."""
    problem = zone_problem(value)
    if problem:
        raise ValueError(f"{problem}; found {quoted(value)}")
    return value


def _type_of(text: str) -> pa.DataType:
    """Parse one type of Spark DDL. Raises ValueError."""
    try:
        schema = parse_ddl(f"a {text}")
    except SchemaProblem as error:
        reason = error.problems[0].removeprefix("column a: ")
        raise ValueError(f"found {quoted(text)}, not a column type like long or decimal(10,2): {reason}") from None
    if len(schema) != 1 or not schema.field(0).nullable:
        raise ValueError(f"found {quoted(text)}; allowed: one column type, like long or decimal(10,2)")
    return schema.field(0).type


def _plain(value: object) -> Plain:
    if not isinstance(value, (str, int, float, bool)):
        raise ValueError(f"found {kind_of(value)}; allowed: text, a number or a boolean")
    return value


class MaskStep(Model):
    """Hides the values of fields. They appear in no message and no dead letter either, whatever happens to the record, and
    wherever in the list this step is."""

    fields: Names = Field(json_schema_extra={"allowed": "a list of fields"})
    """The fields to hide."""

    method: Literal["hash", "redact", "keep_last"]
    """`hash` writes the SHA-256 of the value as 64 hex digits, so equal values stay equal. `redact` writes nothing, or
    `constant`. `keep_last` writes four stars and the last `characters`."""

    salt: Annotated[SecretStr, Field(min_length=1)] | None = Field(default=None, validate_default=True)
    """A secret text that is hashed before the value, so that nobody can guess values by hashing candidates; best provided
    as `${NAME}` or `${file:PATH}`. Only with `hash`."""

    constant: str | int | float | bool | None = Field(
        default=None, validate_default=True, json_schema_extra={"allowed": "a value of the field's type"}
    )
    """What `redact` writes instead of every value, null included. Without it, null."""

    characters: Annotated[Whole, Field(ge=1)] | None = Field(default=None, validate_default=True)
    """How many characters `keep_last` keeps; a text that is not longer is hidden entirely."""

    @field_validator("constant", mode="before")
    @classmethod
    def _constant(cls, value: object) -> Plain | None:
        return None if value is None else _plain(value)

    @field_validator("salt", "constant", "characters")
    @classmethod
    def _fits_method(cls, value: object, info: ValidationInfo) -> object:
        method = info.data.get("method")
        owner = {"salt": "hash", "constant": "redact", "characters": "keep_last"}[str(info.field_name)]
        if value is not None and method not in (None, owner):
            raise ValueError(f"not used by method {method}; remove it, or set method to {owner}")
        if value is None and method == "keep_last" and info.field_name == "characters":
            raise ValueError("missing; method keep_last needs it")
        return value

    def transform(self) -> Transform:
        """Build the step's transform."""
        masking: Masking
        if self.method == "hash":
            masking = Hash(self.salt.get_secret_value() if self.salt else "")
        elif self.method == "redact":
            masking = Redact(self.constant)
        else:
            assert self.characters is not None, "validated: keep_last needs it"
            masking = KeepLast(self.characters)
        return Mask(self.fields, masking)


class FilterStep(Model):
    """Keeps the records for which one comparison is true. The others are counted as filtered, and their offsets are
    committed. As in SQL, no comparison with null is true, not even `!=` and `not_in`; only is_null matches it."""

    field: Name
    """A field, or a Kafka column like `_kafka_timestamp`."""

    op: Literal["==", "!=", "<", "<=", ">", ">=", "in", "not_in", "is_null", "is_not_null"]
    """The comparison. Text is ordered by its bytes."""

    value: Plain | tuple[Plain, ...] | None = Field(
        default=None,
        validate_default=True,
        json_schema_extra={"allowed": "a value of the field's type, or a list of such"},
    )
    """What to compare with: a list for `in` and `not_in`, nothing for `is_null` and `is_not_null`. Write dates and
    timestamps as text, like 2026-01-31 and 2026-01-31T00:00:00Z."""

    @field_validator("value", mode="before")
    @classmethod
    def _value(cls, value: object, info: ValidationInfo) -> object:
        op = info.data.get("op")
        if op in ("is_null", "is_not_null"):
            if value is not None:
                raise ValueError(f"not used by {op}; remove it")
        elif op in ("in", "not_in"):
            if not isinstance(value, (list, tuple)) or not value:
                raise ValueError(f"found {describe(value)}; allowed: a list of at least one value, because op is {op}")
            return tuple(_plain(item) for item in value)
        elif op is not None:
            if value is None:
                raise ValueError(f"missing; {op} needs a value to compare with; use is_null to match null")
            return _plain(value)
        return value

    def transform(self) -> Transform:
        """Build the step's transform."""
        if self.value is None:
            return Filter(self.field, self.op)
        return Filter(self.field, self.op, self.value if isinstance(self.value, tuple) else (self.value,))


class TimestampStep(Model):
    """Converts fields to type timestamp. A value that is not a time in the declared format makes a bad record."""

    fields: Names = Field(json_schema_extra={"allowed": "a list of fields"})
    """The fields to convert: int or long for the epochs, string for the other formats."""

    format: str = Field(
        json_schema_extra={"allowed": f"{', '.join(EPOCHS)}, {ISO8601}, or a pattern of {DIRECTIVES}"},
    )
    """How the time is written. The pattern's directives are Python's; %b is English, and %z may be Z or an offset like
    +02:00. iso8601 is a date, alone or with a time of day, of at most 6 digits of a second."""

    zone: str = Field(default="UTC", json_schema_extra={"allowed": "a zone's name like Europe/Berlin, or +02:00"})
    """The time zone of times written without an offset."""

    ambiguous: Literal["reject", "earlier", "later"] = "reject"
    """Which of the two times is meant when clocks are set back and an hour occurs twice; `reject` makes it a bad record. A
    time that clocks skip always makes a bad record."""

    @field_validator("format")
    @classmethod
    def _format(cls, value: str) -> str:
        if value in EPOCHS or value == ISO8601:
            return value
        if "%" not in value:
            raise ValueError(f"found {quoted(value)}; allowed: {', '.join(EPOCHS)}, {ISO8601}, or a pattern with %")
        try:
            pattern_regex(value)
        except ValueError as error:
            raise ValueError(f"{error}; found {quoted(value)}") from None
        return value

    @field_validator("zone")
    @classmethod
    def _zone(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("format") in EPOCHS and value != "UTC":
            raise ValueError("an epoch is always in UTC; remove the zone")
        return legal_zone(value)

    def transform(self) -> Transform:
        """Build the step's transform."""
        return ToTimestamp(self.fields, self.format, self.zone, self.ambiguous)


class ConstantStep(Model):
    """Adds a column that has the same value in every row."""

    column: Name
    """The new column's name."""

    type: str = Field(default="string", json_schema_extra={"allowed": "a column type, see below"})
    """Its type; arrays, maps and structs have no constants."""

    value: Plain = Field(json_schema_extra={"allowed": "a value of the type"})
    """Its value. Write dates and timestamps as text, like 2026-01-31 and 2026-01-31T00:00:00Z."""

    @field_validator("type")
    @classmethod
    def _type(cls, value: str) -> str:
        _type_of(value)
        return value

    @field_validator("value", mode="before")
    @classmethod
    def _value(cls, value: object, info: ValidationInfo) -> Plain:
        plain = _plain(value)
        if "type" in info.data:
            try:
                scalar_of(plain, _type_of(info.data["type"]))
            except ValueError as error:
                raise ValueError(f"{error}; found {describe(value)}") from None
        return plain

    def transform(self) -> Transform:
        """Build the step's transform."""
        return Constant.of(self.column, self.value, _type_of(self.type))


class PythonStep(Model):
    """Calls a function of yours with pyarrow record batches of all fields. It must return as many rows, in the same order;
    records for which it raises are bad. It must treat each row independently, because it may be called again with fewer
    rows."""

    function: str = Field(json_schema_extra={"allowed": "package.module:function"})
    """The function's import path. Spark's workers import it, so its package must be installed there."""

    schema_: str = Field(alias="schema", json_schema_extra={"allowed": "Spark DDL, like `id string NOT NULL, ts long`"})
    """All columns that it returns; the others are dropped."""

    @field_validator("function")
    @classmethod
    def _function(cls, value: str) -> str:
        if not PATH.fullmatch(value):
            raise ValueError(f"found {quoted(value)}; allowed: package.module:function")
        return value

    @field_validator("schema_")
    @classmethod
    def _schema(cls, value: str) -> str:
        parse_ddl(value)
        return value

    def transform(self) -> Transform:
        """Build the step's transform."""
        return PythonFunction(self.function, parse_ddl(self.schema_))


class TransformStep(Model):
    """What happens to every record, in the order of the list; each entry has exactly one of these keys. docs/transforms.md
    has an example of each."""

    drop: Names | None = Field(default=None, json_schema_extra={"allowed": "a list of fields"})
    """Fields to drop."""

    keep: Names | None = Field(default=None, json_schema_extra={"allowed": "a list of fields"})
    """Fields to keep; the others are dropped."""

    rename: Annotated[dict[Name, Name], Field(min_length=1)] | None = Field(
        default=None, json_schema_extra={"allowed": "{field: new name}"}
    )
    """Fields to rename."""

    cast: Annotated[dict[Name, str], Field(min_length=1)] | None = Field(
        default=None, json_schema_extra={"allowed": "{field: type}, like {amount: 'decimal(10,2)'}"}
    )
    """Fields to convert to other types. A value that the new type cannot hold exactly makes a bad record."""

    mask: MaskStep | None = None
    """Fields to hide."""

    insert_kafka: Annotated[dict[KafkaField, Name], Field(min_length=1)] | None = Field(
        default=None, json_schema_extra={"allowed": "{topic, partition, offset, timestamp, key or headers: column}"}
    )
    """Columns to add with Kafka's metadata of a record, by its parts: the topic (string), partition (int), offset (long), Kafka timestamp
    (timestamp), key (binary, null when the record has none; a cast to string reads it as UTF-8) and headers (an array of
    struct<key:string, value:binary>)."""

    flatten: Names | None = Field(default=None, json_schema_extra={"allowed": "a list of fields that are structs"})
    """Structs whose members, including those of nested structs, become columns of their own: `city` of `customer` becomes
    `customer_city`."""

    filter: FilterStep | None = None
    """Which records to keep."""

    timestamp: TimestampStep | None = None
    """Fields to convert to timestamps."""

    constant: ConstantStep | None = None
    """A column to add with a constant value."""

    sql: Name | None = Field(default=None, json_schema_extra={"allowed": SHAPE})
    """Columns to compute and a condition, in DuckDB's SQL. A record becomes one row, or none if the condition is not true,
    which counts as filtered. A record for which an expression cannot be computed is bad."""

    python: PythonStep | None = None
    """A function of your own to call."""

    @field_validator("cast")
    @classmethod
    def _cast(cls, value: Mapping[str, str] | None) -> Mapping[str, str] | None:
        problems: list[tuple[Place, str]] = []
        for name, text in (value or {}).items():
            try:
                _type_of(text)
            except ValueError as error:
                problems.append(((name,), str(error)))
        if problems:
            raise PlacedProblems(problems)
        return value

    @field_validator("sql")
    @classmethod
    def _sql_has_its_library(cls, value: str | None) -> str | None:
        if value is not None:
            extras.require("sql")
        return value

    @model_validator(mode="before")
    @classmethod
    def _one_key(cls, value: Any) -> Any:
        # Unknown keys get a problem of their own elsewhere.
        known = [key for key in value if key in cls.model_fields] if isinstance(value, Mapping) else []
        if len(known) > 1:
            raise ValueError(f"found the keys {', '.join(known)} in one entry; start each with its own `-`")
        if isinstance(value, Mapping) and not value:
            raise ValueError(f"found no key; allowed: one of {', '.join(cls.model_fields)}")
        if known and value[known[0]] is None:
            raise PlacedProblems([((known[0],), "found nothing; add a transform")])
        return value

    @property
    def kind(self) -> str:
        """The entry's key."""
        return next(iter(self.model_fields_set))

    def transform(self) -> Transform:
        """Build the entry's transform."""
        if self.drop is not None:
            return Drop(self.drop)
        if self.keep is not None:
            return Keep(self.keep)
        if self.insert_kafka is not None:
            return InsertKafka({str(kind): name for kind, name in self.insert_kafka.items()})
        if self.flatten is not None:
            return Flatten(self.flatten)
        if self.rename is not None:
            return Rename(self.rename)
        if self.cast is not None:
            return Cast({name: _type_of(text) for name, text in self.cast.items()})
        if self.sql is not None:
            return Sql(self.sql)
        step = getattr(self, self.kind)
        transform: Transform = step.transform()
        return transform


class Expectation(Model):
    """A rule that rows should follow; see docs/transforms.md."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[a-z][a-z0-9_]{0,49}$",
            json_schema_extra={"allowed": "a small letter, then up to 49 small letters, digits and _"},
        ),
    ]
    """The name in messages and in the commits' accounting; `expect_<name>` is the check in Dagster."""

    condition: Name = Field(json_schema_extra={"allowed": "a condition as after WHERE, in DuckDB's SQL"})
    """The condition that rows meet, of columns as they are after the transforms. Null passes, as with a CHECK of SQL. A row of which it
    cannot be computed violates it. Deletes of a keyed table are not judged."""

    severity: Literal["warn", "reject", "fail"] = "warn"
    """What a violation does. `warn`: it is counted, and the check fails with a warning. `reject`: the record is bad, and `on_bad_record` says
    what becomes of it. `fail`: the transaction fails, whatever `on_bad_record` says; a retried dead letter stays one."""

    @field_validator("condition")
    @classmethod
    def _condition_has_its_library(cls, value: str) -> str:
        extras.require("sql")
        return value

    def transform(self, deletes: str | None) -> Transform:
        """Build the transform. `deletes`: the column that marks deletes."""
        return Expect(self.name, self.condition, self.severity != "warn", deletes)
