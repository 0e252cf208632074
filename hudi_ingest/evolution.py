"""Whether a table's columns can become those of newer records, and what they are then. Pure.

A table may get columns that can be null, anywhere in it, and its numbers may widen: int to long to float to double, in
that direction only. These are the changes that readers of older base files can follow. All else is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.schema import ddl_type

_WIDENING = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
"""Each can become any later one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a table cannot take over one column."""

    field: str
    """Path such as `customer.addresses.element.zip`."""
    found: str
    expected: str
    choices: tuple[str, ...]
    """What a person can do."""

    def __str__(self) -> str:
        return f"column {self.field}: expected {self.expected}, found {self.found}; {', or '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class Evolution:
    """What becomes of a table's record schema."""

    schema: pa.Schema
    """The table's columns in their order, widened where needed, then the new ones."""
    changes: tuple[str, ...]
    """One line for each; empty when the table can hold the records as it is."""
    refusals: tuple[Refusal, ...]
    """Not empty: `schema` and `changes` must not be used."""


def evolve(table: pa.Schema, records: pa.Schema) -> Evolution:
    """What a table with the columns `table` must become to hold records with the columns `records`."""
    changes: list[str] = []
    refusals: list[Refusal] = []
    fields = _fields(list(table), list(records), "", changes, refusals)
    return Evolution(pa.schema(fields), tuple(changes), tuple(refusals))


def _fields(
    table: Sequence[pa.Field], records: Sequence[pa.Field], parent: str, changes: list[str], refusals: list[Refusal]
) -> list[pa.Field]:
    found = {each.name: each for each in records}
    known = {each.name.lower(): each.name for each in table}
    fields = []
    for each in table:
        path = f"{parent}{each.name}"
        if each.name in found:
            fields.append(_field(each, found[each.name], path, changes, refusals))
            continue
        fields.append(each)
        if not each.nullable:
            refusals.append(
                Refusal(
                    path,
                    "records without it",
                    f"{ddl_type(each.type)} NOT NULL, as in the table",
                    ("let producers write it", "give it a default in the schema", "write to a new table"),
                )
            )
    for each in (each for each in records if each.name not in {field.name for field in table}):
        path = f"{parent}{each.name}"
        other = known.get(each.name.lower())
        if other is not None:
            refusals.append(
                Refusal(path, each.name, f"{other}, the table's spelling", ("rename it", "write to a new table"))
            )
        elif not each.nullable:
            refusals.append(
                Refusal(
                    path,
                    f"a new column {ddl_type(each.type)} NOT NULL",
                    "one that may be null, as the rows that are there have no value",
                    ("make it nullable", "write to a new table"),
                )
            )
        else:
            known[each.name.lower()] = each.name
            fields.append(each)
            changes.append(f"column {path} {ddl_type(each.type)} is added")
    return fields


def _field(table: pa.Field, record: pa.Field, path: str, changes: list[str], refusals: list[Refusal]) -> pa.Field:
    if record.nullable and not table.nullable:
        refusals.append(
            Refusal(
                path, "one that may be null", "NOT NULL, as in the table", ("make it required", "write to a new table")
            )
        )
    return table.with_type(_type(table.type, record.type, path, changes, refusals))


def _type(
    table: pa.DataType, record: pa.DataType, path: str, changes: list[str], refusals: list[Refusal]
) -> pa.DataType:
    if pa.types.is_struct(table) and pa.types.is_struct(record):
        return pa.struct(_fields(list(table), list(record), f"{path}.", changes, refusals))
    if pa.types.is_list(table) and pa.types.is_list(record):
        return pa.list_(_field(table.value_field, record.value_field, f"{path}.element", changes, refusals))
    if pa.types.is_map(table) and pa.types.is_map(record) and table.key_type == record.key_type:
        return pa.map_(table.key_type, _field(table.item_field, record.item_field, f"{path}.value", changes, refusals))
    if table in _WIDENING and record in _WIDENING:
        widest = max(table, record, key=_WIDENING.index)
        if widest != table:
            changes.append(f"column {path} becomes {ddl_type(widest)}; it was {ddl_type(table)}")
        return widest
    if table == record or _holds_decimal(table, record):
        return table
    refusals.append(Refusal(path, ddl_type(record), f"{ddl_type(table)}, as in the table", _choices(table)))
    return table


def _holds_decimal(table: pa.DataType, record: pa.DataType) -> bool:
    if not (pa.types.is_decimal128(table) and pa.types.is_decimal128(record)):
        return False
    return bool(table.scale >= record.scale and table.precision - table.scale >= record.precision - record.scale)


def _choices(table: pa.DataType) -> tuple[str, ...]:
    if table in _WIDENING[:-1]:
        wider = ", ".join(ddl_type(each) for each in _WIDENING[_WIDENING.index(table) + 1 :])
        return (f"write {ddl_type(table)} or a wider number ({wider})", "use a new column name", "write to a new table")
    return (f"write {ddl_type(table)}", "use a new column name", "write to a new table")
