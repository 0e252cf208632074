"""Rows become rows of their table's columns: what is there stays, what is missing is null, numbers widen."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.evolution import evolve, table_rows
from hudi_ingest_tests.unit.records.schema.test_evolution import schemas


@pytest.mark.parametrize(
    ("rows", "columns", "values", "expected"),
    [
        ("a int", "a long, b string", [{"a": 1}, {"a": None}], [{"a": 1, "b": None}, {"a": None, "b": None}]),
        ("b int, a int", "a double, b int", [{"b": 1, "a": 2}], [{"a": 2.0, "b": 1}]),
        ("a long", "a float", [{"a": 2**53 + 1}], [{"a": float(2**53)}]),
        ("a long", "a double", [{"a": 2**53 + 1}], [{"a": float(2**53)}]),
        ("d decimal(5,2)", "d decimal(9,3)", [{"d": Decimal("1.50")}], [{"d": Decimal("1.500")}]),
        (
            "s struct<y:int>",
            "s struct<x:string,y:long>",
            [{"s": {"y": 1}}, {"s": None}, {"s": {"y": None}}],
            [{"s": {"x": None, "y": 1}}, {"s": None}, {"s": {"x": None, "y": None}}],
        ),
        (
            "l array<struct<a:int>>",
            "l array<struct<a:long,b:date>>",
            [{"l": [{"a": 1}, None]}, {"l": None}, {"l": []}, {"l": [{"a": 2}]}],
            [{"l": [{"a": 1, "b": None}, None]}, {"l": None}, {"l": []}, {"l": [{"a": 2, "b": None}]}],
        ),
        (
            "m map<string,int>",
            "m map<string,double>",
            [{"m": [("k", 1), ("l", None)]}, {"m": None}, {"m": [("k", 3)]}],
            [{"m": [("k", 1.0), ("l", None)]}, {"m": None}, {"m": [("k", 3.0)]}],
        ),
    ],
)
def test_rows_of_a_wider_table(rows: str, columns: str, values: list[Any], expected: list[Any]) -> None:
    batch = pa.RecordBatch.from_pylist(values, schema=parse_ddl(rows))
    found = table_rows(batch, parse_ddl(columns))
    found.validate(full=True)
    assert found.schema == parse_ddl(columns)
    assert found.to_pylist() == expected
    for first in range(len(values)):
        part = table_rows(batch.slice(first, 2), parse_ddl(columns))
        part.validate(full=True)
        assert part.to_pylist() == expected[first : first + 2], "also of a slice"


def _value(kind: pa.DataType, seed: int) -> Any:
    if pa.types.is_struct(kind):
        return {each.name: _value(each.type, seed + 1) for each in kind}
    if pa.types.is_list(kind):
        return [_value(kind.value_type, seed + each) for each in range(seed % 3)]
    if pa.types.is_map(kind):
        return [(f"k{each}", _value(kind.item_type, seed + each)) for each in range(seed % 3)]
    if pa.types.is_decimal(kind):
        return Decimal(seed).scaleb(-kind.scale)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return seed
    made = {pa.string(): str(seed), pa.binary(): b"%d" % seed, pa.date32(): date(2026, 1, 1), pa.bool_(): seed % 2 == 0}
    return made[kind]


def _within(found: Any, expected: Any) -> bool:
    """Whether `expected` is in `found`, which may have more fields, all of them null."""
    if isinstance(expected, dict):
        more = set(found) - set(expected)
        return all(found[name] is None for name in more) and all(_within(found[k], v) for k, v in expected.items())
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(_within, found, expected))
    return bool(found == expected)


@given(schemas(), schemas(), st.integers(0, 3), st.integers(0, 4))
def test_an_evolved_table_takes_the_rows(table: pa.Schema, records: pa.Schema, first: int, count: int) -> None:
    evolution = evolve(table, records)
    if evolution.refusals:
        return
    rows = [{each.name: _value(each.type, seed) for each in records} for seed in range(5)]
    batch = pa.RecordBatch.from_pylist(rows, schema=records).slice(first, count)
    found = table_rows(batch, evolution.schema)
    found.validate(full=True)
    assert found.schema == evolution.schema
    assert _within(found.to_pylist(), batch.to_pylist())
