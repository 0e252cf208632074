"""The columns of a table for records of Kafka Connect: what its schemas say, or else what a sample of the payloads shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.exceptions import SchemaOutdated
from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.convert.connect.debezium import control_kind
from hudi_ingest.records.convert.connect.json import members_of, payloads_of
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.convert.values import Refusal
from hudi_ingest.records.schema.avro import parse_connect_avro
from hudi_ingest.records.schema.columns import column_problems, ddl_type, spark_json
from hudi_ingest.records.schema.connect import parse_connect_schema
from hudi_ingest.records.schema.evolution import evolve, joined
from hudi_ingest.records.schema.inference import Inferred, infer
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import DECIMAL, MEANT_COLUMNS, Problems, WireType
from hudi_ingest.records.schema.wire_type import columns as columns_of

_UNITS: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("io.debezium.time.Time", "org.apache.kafka.connect.data.Time"), pa.int32()),
    **dict.fromkeys(("io.debezium.time.MicroTime", "io.debezium.time.NanoTime"), pa.int64()),
    **dict.fromkeys(("io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration"), pa.int64()),
}
"""Names of numbers that stay numbers, and the types of their columns."""
_NUMBERS = ("int32", "int64", "int", "long")


@dataclass(frozen=True, slots=True)
class Misread:
    """A column in which values of another type would become other values without a fault, such as microseconds beside milliseconds, or
    base64 beside text. Values that the column cannot have are bad by themselves."""

    path: str
    column: pa.DataType
    found: str
    """The name or kind of the values' type."""

    @property
    def has_unit(self) -> bool:
        """Whether the values are numbers in a unit that stay numbers."""
        return self.found in _UNITS

    def __str__(self) -> str:
        return f"column {self.path}: expected {ddl_type(self.column)}, found {self.found}, whose values mean something else"

    def refusal(self, within: str = "") -> Refusal:
        """Return the refusal of the records that have these values. `within`: the field that holds the row, "" if the record is the row."""
        expected = (
            f"{ddl_type(self.column)}, as in the table, whose values mean something else: give the changed column another name in the source, "
            "or begin a new table, or declare table.schema to have the values as they come"
        )
        return Refusal(Rejected(0, f"{within}.{self.path}".lstrip("."), expected, self.found))


def misread(columns: Iterable[pa.Field], connect: WireType, parent: str = "") -> Iterator[Misread]:
    """The columns in which values of this type would be misread."""
    for field in columns:
        member = connect.members.get(field.name)
        if member is not None:
            yield from _misread(field.type, member, f"{parent}{field.name}")


def _misread(column: pa.DataType, connect: WireType, path: str) -> Iterator[Misread]:
    if pa.types.is_struct(column):
        yield from misread(column, connect, f"{path}.")
    elif connect.items is not None and pa.types.is_list(column):
        yield from _misread(column.value_type, connect.items, f"{path}.element")
    elif connect.items is not None and pa.types.is_map(column):
        yield from _misread(column.item_type, connect.items, f"{path}.value")
    elif _means_another(column, connect):
        yield Misread(path, column, connect.meaning or connect.kind)


def _means_another(column: pa.DataType, connect: WireType) -> bool:
    if pa.types.is_string(column):
        return connect.kind == "bytes" and connect.meaning != DECIMAL
    if pa.types.is_binary(column):
        return connect.kind == "string" or connect.meaning == DECIMAL
    own = MEANT_COLUMNS.get(connect.meaning) or _UNITS.get(connect.meaning)
    is_number = pa.types.is_integer(column) or pa.types.is_floating(column) or pa.types.is_decimal(column)
    return own is not None and connect.kind in _NUMBERS and is_number and column != own


def changed_meanings(
    columns: pa.Schema, newest: WireType, before: Sequence[WireType], has_units: bool
) -> tuple[Misread, ...]:
    """The columns of a table that goes on with what a format knows of its values, and in which the newest schema's would be misread
    although an earlier schema's were not. `has_units`: whether the table has a type for each unit, so that no earlier one is needed."""

    def is_new(other: Misread) -> bool:
        names = [name for name in (_name_at(connect, other.path.split(".")) for connect in before) if name is not None]
        return (has_units and other.has_unit) or any(name != other.found for name in names)

    return tuple(filter(is_new, misread(columns, newest)))


def _name_at(connect: WireType, path: Sequence[str]) -> str | None:
    """The name or kind of the type at this place; None if there is none."""
    for name in path:
        inner = connect.members.get(name, connect.items)
        if inner is None:
            return None
        connect = inner
    return connect.meaning or connect.kind


def connect_columns(connect: WireType) -> pa.Schema:
    """The columns of records of this type, all nullable. Raises SchemaProblem when a table cannot have them."""
    if connect.kind != "struct" or not connect.members:
        raise SchemaProblem([f"its schema is of type {connect.kind}, not a struct with fields"])
    found: Problems = []
    columns = pa.schema(columns_of(connect, found, meant=True))
    for path, problem in found:
        raise SchemaProblem([f"column {path}: {problem}"])
    if problems := column_problems(columns):
        raise SchemaProblem(problems)
    return columns


def meant_columns(columns: pa.Schema, connect: WireType, kept: pa.Schema | None = None) -> pa.Schema:
    """`columns`, as a format knows them, with the types that Connect gives their values. Those that are in `kept` as the format knows
    them stay so: a table that was made with them goes on with them."""
    meant = {field.name: field for field in columns_of(connect, [], meant=True)}
    fields = []
    for field in columns:
        stays = kept is not None and field.name in kept.names and kept.field(field.name).type == field.type
        fields.append(field if stays else meant.get(field.name, field))
    return pa.schema(fields)


def avro_event_columns(schema: RegisteredSchema, envelope: pa.Schema, kept: pa.Schema | None = None) -> pa.Schema:
    """The columns of `after` of Debezium's events. `envelope`: the fields of the events as Avro knows them; `kept`: see
    `meant_columns`. Raises SchemaProblem."""
    index = envelope.get_field_index("after")
    if index < 0 or not pa.types.is_struct(envelope.field(index).type):
        raise SchemaProblem(["it has no record `after`, so it is no schema of Debezium's events"])
    return meant_columns(pa.schema(list(envelope.field(index).type)), parse_connect_avro(schema).members["after"], kept)


def infer_columns(sample: Sequence[tuple[str, bytes]], of_events: bool, *, allows_bad: bool = False) -> Inferred:
    """Infer the columns of records in an envelope, from the schemas that they carry or else from the payloads. Each record
    comes with its place, such as `orders:0:17`. `of_events`: whether the columns are those of `after` of Debezium's events.
    `allows_bad`: as in `infer`."""
    schemas, plain = _apart(sample)
    if schemas:
        columns, problems = _columns_of(schemas, of_events)
        if problems:
            return Inferred(pa.schema([]), problems, ())
        union = joined([found for _, found in columns])
        mixed = _columns_of(schemas, of_events, union.schema)[1]
        return Inferred(union.schema, (*map(str, union.refusals), *mixed), ())
    if of_events:
        plain = _afters(plain)
    return infer(plain, allows_bad=allows_bad)


def carried_columns(
    records: Sequence[tuple[str, bytes]], of_events: bool, known: pa.Schema
) -> tuple[list[tuple[str, pa.Schema]], tuple[str, ...]]:
    """The columns of each schema that these records carry, with the place of its first record; and the problems of the others, among
    which are those whose values would be misread as `known`."""
    return _columns_of(_apart(records)[0], of_events, known)


def columns_of_payloads(records: Sequence[tuple[str, bytes]]) -> list[tuple[str, pa.Schema]]:
    """The names of the columns of each of Debezium's events without a schema that writes a row, with its place; of no type."""
    rows = [(place, members_of(value)) for place, value in _afters(_apart(records)[1])]
    return [(place, pa.schema([pa.field(name, pa.null()) for name in names])) for place, names in rows if names]


def begins_late(sample: Sequence[tuple[str, bytes]]) -> tuple[str, ...]:
    """A warning for each Kafka partition whose very first record changes a row that was there before, in an event of Debezium. `sample`:
    records in their order, with their places."""
    first = [(place, value) for place, value in sample if place.endswith(":0")]
    return tuple(
        f"the first record of {place.rpartition(':')[0]} changes a row that the topic does not have, so the source table is older than its "
        "topic, as after it was renamed. Rows that have not changed since are missing here: have the connector take a snapshot of it"
        for place, value in first
        if (members_of((members_of(value) or {}).get("payload", value)) or {}).get("op") in (b'"u"', b'"d"')
    )


def _afters(plain: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    members = [(place, members_of(value) or {}) for place, value in plain]
    return [(place, found["after"]) for place, found in members if found.get("after", b"null") != b"null"]


@dataclass(frozen=True, slots=True)
class NewerColumnsGuard:
    """The guard of a transaction whose columns were inferred from schemas in the records: a schema that adds to the columns ends it, because its
    records would lose what is added. Picklable."""

    record: pa.Schema
    of_events: bool
    adopts_new: bool
    """Whether the table gets fields that it does not have; if not, only wider numbers count."""

    def __call__(self, schema: WireType) -> Refusal | None:
        """Why records that write rows with this schema are bad; None if they are not. Raises SchemaOutdated; SchemaProblem for a schema
        with a field that no table can have."""
        row = row_type(schema, self.of_events)
        if not row.members:
            return None
        for other in misread(self.record, row):
            return other.refusal("after" if self.of_events else "")
        try:
            columns = connect_columns(row)
        except SchemaProblem:
            if self.adopts_new:
                raise
            return None
        evolution = evolve(self.record, columns, adopt_new=self.adopts_new)
        if evolution.left_out and self.adopts_new:
            raise SchemaProblem(evolution.left_out)
        if evolution.changes:
            raise SchemaOutdated(changes=evolution.changes, columns=spark_json(columns))
        return None


def row_type(connect: WireType, of_events: bool) -> WireType:
    """The type of the rows of records of this type."""
    return connect.members.get("after", WireType("nothing")) if of_events else connect


def _apart(sample: Sequence[tuple[str, bytes]]) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
    """The texts of the schemas with the place of the first record of each, and the payloads of records without one."""
    typed: list[tuple[int, bytes]] = []
    plain: list[tuple[str, bytes]] = []
    for payloads in payloads_of(pa.array([value for _, value in sample], pa.binary())):
        if payloads.schema is not None and payloads.schema != b"null":
            typed.append((int(payloads.places[0]), payloads.schema))
            continue
        values = payloads.values.to_pylist()
        plain += [(sample[place][0], value) for place, value in zip(payloads.places.tolist(), values, strict=True)]
    return [(sample[place][0], text) for place, text in sorted(typed)], plain


def _columns_of(
    schemas: Sequence[tuple[str, bytes]], of_events: bool, known: Iterable[pa.Field] = ()
) -> tuple[list[tuple[str, pa.Schema]], tuple[str, ...]]:
    columns: list[tuple[str, pa.Schema]] = []
    problems: list[str] = []
    for place, text in schemas:
        try:
            connect = parse_connect_schema(text)
            assert connect is not None, "texts of null are not among them"
            if of_events and control_kind(connect.members):
                continue
            row = row_type(connect, of_events)
            found = connect_columns(row)
            if others := [*map(str, misread(known, row))]:
                raise SchemaProblem(others)
            columns.append((place, found))
        except ValueError as problem:
            problems.append(f"the schema of {place}: {problem}")
    return columns, tuple(problems)
