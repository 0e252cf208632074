"""Decide whether a table's columns can evolve to hold newer records, and what they become. Pure.

A table may get nullable columns at any level, and numbers in top-level columns may widen: int to long to float to double,
in that direction only. Readers of older base files support these changes, except that Spark cannot widen a number inside
a struct, array or map. Everything else is refused.

`table_rows` extends a pipeline's rows to all columns of their table: missing columns become null, and a number becomes the
nearest one of the wider type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa

from hudi_ingest.records.schema.columns import ddl_type

_WIDENING = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
"""Each can become any later one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a table cannot adopt one column."""

    field: str
    """A path like `customer.addresses.element.zip`."""
    found: str
    expected: str
    choices: tuple[str, ...]
    """The user's options."""

    def __str__(self) -> str:
        return f"column {self.field}: expected {self.expected}, found {self.found}; {', or '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class Evolution:
    """The outcome for a table's record schema."""

    schema: pa.Schema
    """The table's columns in order, widened where needed, then the new ones."""
    changes: tuple[str, ...]
    """One line for each change; empty when the table can hold the records as it is."""
    refusals: tuple[Refusal, ...]
    """If not empty, `schema` and `changes` have only the rest, and the table cannot hold all of the records."""
    left_out: tuple[str, ...] = ()
    """One line for each of the records' fields that the table does not get."""


@dataclass(slots=True)
class _Findings:
    loose: bool
    """Whether a new column may be null in the table although records must have it."""
    adopt_new: bool = True
    left_out: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def evolve(
    table: pa.Schema,
    records: pa.Schema,
    *,
    partition_by: Collection[str] = (),
    loose: bool = False,
    adopt_new: bool = True,
) -> Evolution:
    """Return how a table with the columns `table` must change to hold records with the columns `records`.

    `partition_by`: columns whose type must not change. `loose`: new columns are nullable in the table even if the records'
    are not. `adopt_new`: whether the table gets fields that it does not have.
    """
    findings = _Findings(loose, adopt_new)
    fields = _fields(list(table), list(records), "", findings)
    evolved = pa.schema(fields)
    for name in (name for name in partition_by if name in table.names):
        old, new = table.field(name).type, evolved.field(name).type
        if old != new:
            findings.refusals.append(
                Refusal(
                    name,
                    ddl_type(new),
                    f"{ddl_type(old)}, as the table is partitioned by it",
                    _keep(old),
                )
            )
    return Evolution(evolved, tuple(findings.changes), tuple(findings.refusals), tuple(findings.left_out))


def loosened(schema: pa.Schema) -> pa.Schema:
    """Make all columns nullable, including everything inside them."""
    return pa.schema([_loose_field(column) for column in schema])


def additions(known: pa.Schema, records: pa.Schema) -> tuple[str, ...]:
    """List what `records` have that rows with the columns `known` would lose or could not hold."""
    evolution = evolve(loosened(known), loosened(records))
    return (*evolution.changes, *map(str, evolution.refusals))


def absent(known: pa.Schema | pa.StructType, records: pa.Schema | pa.StructType, parent: str = "") -> tuple[str, ...]:
    """The paths of columns that are `known` and that `records` do not have."""
    found = {column.name: column.type for column in records}
    paths: list[str] = []
    for column in known:
        path = f"{parent}{column.name}"
        if column.name not in found:
            paths.append(path)
        else:
            paths += _absent_within(column.type, found[column.name], path)
    return tuple(paths)


def _absent_within(known: pa.DataType, records: pa.DataType, path: str) -> tuple[str, ...]:
    if pa.types.is_struct(known) and pa.types.is_struct(records):
        return absent(known, records, f"{path}.")
    if pa.types.is_list(known) and pa.types.is_list(records):
        return _absent_within(known.value_type, records.value_type, f"{path}.element")
    if pa.types.is_map(known) and pa.types.is_map(records):
        return _absent_within(known.item_type, records.item_type, f"{path}.value")
    return ()


def is_within(path: str, parents: Iterable[str]) -> bool:
    """Whether it is one of these paths, or of a field within one."""
    return any(path == parent or path.startswith(f"{parent}.") for parent in parents)


def joined(schemas: Sequence[pa.Schema]) -> Evolution:
    """Return columns that hold records of all the schemas: columns that any of them lacks are nullable, and numbers get the
    widest type.

    If types are incompatible, there is a refusal, and the first schema's type is used.
    """
    findings = _Findings(loose=True)
    return Evolution(
        reduce(lambda first, second: _joined(first, second, findings), schemas), (), tuple(findings.refusals)
    )


def _joined(first: pa.Schema, second: pa.Schema, findings: _Findings) -> pa.Schema:
    return pa.schema(_join(list(first), list(second), "", findings))


def _join(first: Sequence[pa.Field], second: Sequence[pa.Field], parent: str, findings: _Findings) -> list[pa.Field]:
    second_fields = {column.name: column for column in second}
    names = {column.name for column in first}
    shared = [
        _join_field(column, second_fields.get(column.name), f"{parent}{column.name}", findings) for column in first
    ]
    return [*shared, *(column.with_nullable(True) for column in second if column.name not in names)]


def _join_field(first: pa.Field, second: pa.Field | None, path: str, findings: _Findings) -> pa.Field:
    if second is None:
        return first.with_nullable(True)
    return pa.field(first.name, _join_type(first.type, second.type, path, findings), first.nullable or second.nullable)


def _join_type(first: pa.DataType, second: pa.DataType, path: str, findings: _Findings) -> pa.DataType:
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return pa.struct(_join(list(first), list(second), f"{path}.", findings))
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_join_field(first.value_field, second.value_field, f"{path}.element", findings))
    if pa.types.is_map(first) and pa.types.is_map(second):
        return pa.map_(first.key_type, _join_field(first.item_field, second.item_field, f"{path}.value", findings))
    if first in _WIDENING and second in _WIDENING:
        return max(first, second, key=_WIDENING.index)
    if first == second or _holds_decimal(first, second):
        return first
    if not _holds_decimal(second, first):
        expected = f"{ddl_type(first)}, as in the schema before"
        choices = ("make them one type", "rename one of them", "write to a table of its own")
        findings.refusals.append(Refusal(path, ddl_type(second), expected, choices))
        return first
    return second


def _loose_field(column: pa.Field) -> pa.Field:
    return pa.field(column.name, _loose_type(column.type), True)


def _loose_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_loose_field(column) for column in kind])
    if pa.types.is_list(kind):
        return pa.list_(_loose_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _loose_field(kind.item_field))
    return kind


def _fields(table: Sequence[pa.Field], records: Sequence[pa.Field], parent: str, findings: _Findings) -> list[pa.Field]:
    return [*_known_fields(table, records, parent, findings), *_new_fields(table, records, parent, findings)]


def _known_fields(
    table: Sequence[pa.Field], records: Sequence[pa.Field], parent: str, findings: _Findings
) -> Iterator[pa.Field]:
    records_by_name = {column.name: column for column in records}
    for column in table:
        path = f"{parent}{column.name}"
        if column.name in records_by_name:
            yield _field(column, records_by_name[column.name], path, findings)
            continue
        yield column
        if not column.nullable:
            findings.refusals.append(
                Refusal(
                    path,
                    "records without it",
                    f"{ddl_type(column.type)} NOT NULL, as in the table",
                    ("let producers write it", "give it a default in the schema", "write to a new table"),
                )
            )


def _new_fields(
    table: Sequence[pa.Field], records: Sequence[pa.Field], parent: str, findings: _Findings
) -> Iterator[pa.Field]:
    existing = {column.name for column in table}
    spellings = {column.name.lower(): column.name for column in table}
    for column in (column for column in records if column.name not in existing):
        path = f"{parent}{column.name}"
        if not findings.adopt_new:
            findings.left_out.append(
                f"field {path} {ddl_type(column.type)} is left out: table.on_schema_change is ignore"
            )
            continue
        spelling = spellings.get(column.name.lower())
        if spelling is not None:
            findings.left_out.append(f"field {path} is left out: the table spells it {spelling}")
            findings.refusals.append(
                Refusal(path, column.name, f"{spelling}, the table's spelling", ("rename it", "write to a new table"))
            )
        elif not column.nullable and not findings.loose:
            findings.refusals.append(
                Refusal(
                    path,
                    f"a new column {ddl_type(column.type)} NOT NULL",
                    "one that may be null, as existing rows have no value",
                    ("make it nullable", "write to a new table"),
                )
            )
        else:
            spellings[column.name.lower()] = column.name
            added = _loose_field(column) if findings.loose else column
            findings.changes.append(f"column {path} {ddl_type(added.type)} is added")
            yield added


def _field(table: pa.Field, record: pa.Field, path: str, findings: _Findings) -> pa.Field:
    if record.nullable and not table.nullable:
        findings.refusals.append(
            Refusal(
                path, "one that may be null", "NOT NULL, as in the table", ("make it required", "write to a new table")
            )
        )
    return table.with_type(_type(table.type, record.type, path, findings))


def _type(table: pa.DataType, record: pa.DataType, path: str, findings: _Findings) -> pa.DataType:
    if pa.types.is_struct(table) and pa.types.is_struct(record):
        return pa.struct(_fields(list(table), list(record), f"{path}.", findings))
    if pa.types.is_list(table) and pa.types.is_list(record):
        return pa.list_(_field(table.value_field, record.value_field, f"{path}.element", findings))
    if pa.types.is_map(table) and pa.types.is_map(record) and table.key_type == record.key_type:
        return pa.map_(table.key_type, _field(table.item_field, record.item_field, f"{path}.value", findings))
    if table in _WIDENING and record in _WIDENING:
        widest = max(table, record, key=_WIDENING.index)
        if widest != table and "." in path:
            expected = f"{ddl_type(table)}, as in the table: Spark cannot widen numbers inside a column when it reads older files"
            findings.refusals.append(Refusal(path, ddl_type(record), expected, _keep(table)))
            return table
        if widest != table:
            findings.changes.append(f"column {path} becomes {ddl_type(widest)}; it was {ddl_type(table)}")
        return widest
    if table == record or _holds_decimal(table, record):
        return table
    findings.refusals.append(Refusal(path, ddl_type(record), f"{ddl_type(table)}, as in the table", _choices(table)))
    return table


def _holds_decimal(table: pa.DataType, record: pa.DataType) -> bool:
    if not (pa.types.is_decimal128(table) and pa.types.is_decimal128(record)):
        return False
    return bool(table.scale >= record.scale and table.precision - table.scale >= record.precision - record.scale)


def _choices(table: pa.DataType) -> tuple[str, ...]:
    if table in _WIDENING[:-1]:
        wider = ", ".join(ddl_type(kind) for kind in _WIDENING[_WIDENING.index(table) + 1 :])
        return (f"write {ddl_type(table)} or a wider number ({wider})", *_keep(table)[1:])
    return _keep(table)


def _keep(table: pa.DataType) -> tuple[str, ...]:
    return (f"write {ddl_type(table)}", "use a new column name", "write to a new table")


def table_rows(rows: pa.RecordBatch, columns: pa.Schema) -> pa.Table:
    """Return `rows` with exactly the columns `columns`, which `evolve` returned for a table and these rows."""
    names = set(rows.schema.names)
    arrays = [
        _fitted(rows[column.name], column.type) if column.name in names else pa.nulls(rows.num_rows, column.type)
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        return _fitted_struct(array, kind)
    if pa.types.is_list(kind):
        return _with_content(array, kind, _fitted(array.values, kind.value_type))
    if pa.types.is_map(kind):
        entry = [pa.field("key", kind.key_type, False), kind.item_field]
        items = _fitted(array.items, kind.item_type)
        return _with_content(array, kind, pa.StructArray.from_arrays([array.keys, items], fields=entry))
    # Not safe: a whole number that a float cannot hold becomes the nearest one.
    return array.cast(kind, safe=False)


def _fitted_struct(array: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    positions = {member.name: index for index, member in enumerate(array.type)}
    members = [
        _fitted(array.field(positions[member.name]), member.type)
        if member.name in positions
        else pa.nulls(len(array), member.type)
        for member in kind
    ]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())


def _with_content(array: pa.Array, kind: pa.DataType, content: pa.Array) -> pa.Array:
    """Return lists or maps with the same lengths and nulls but other content; not copied, even if `array` is a slice."""
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[content])
