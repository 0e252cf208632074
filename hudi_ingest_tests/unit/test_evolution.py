"""What a table's columns become for newer records, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hudi_ingest.evolution import evolve
from hudi_ingest.schema import parse_ddl

_TYPES = st.recursive(
    st.sampled_from(["int", "long", "float", "double", "string", "binary", "date", "boolean", "decimal(9,2)"]),
    lambda inner: st.one_of(
        inner.map(lambda kind: f"array<{kind}>"),
        inner.map(lambda kind: f"map<string,{kind}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: "struct<" + ",".join(f"m{i}:{kind}" for i, kind in enumerate(kinds)) + ">"
        ),
    ),
    max_leaves=4,
)


@st.composite
def schemas(draw: st.DrawFn) -> pa.Schema:
    columns = draw(st.dictionaries(st.sampled_from("abcde"), st.tuples(_TYPES, st.booleans()), min_size=1))
    return parse_ddl(", ".join(f"{name} {kind}{' NOT NULL' * required}" for name, (kind, required) in columns.items()))


@settings(deadline=None)
@given(schemas())
def test_the_same_columns_change_nothing(schema: pa.Schema) -> None:
    found = evolve(schema, schema)
    assert (found.schema, found.changes, found.refusals) == (schema, (), ())


@settings(deadline=None)
@given(schemas(), schemas())
def test_an_evolved_table_holds_both_and_is_at_its_end(table: pa.Schema, records: pa.Schema) -> None:
    found = evolve(table, records)
    if found.refusals:
        assert all(each.field and each.found and each.expected and each.choices for each in found.refusals)
        return
    assert found.schema.names[: len(table)] == table.names
    assert set(found.schema.names) == {*table.names, *records.names}
    assert all(found.schema.field(name).nullable for name in set(records.names) - set(table.names))
    assert bool(found.changes) == (found.schema != table)
    for other in (table, records):
        again = evolve(found.schema, other)
        assert again.changes == ()
        assert again.schema == found.schema
    assert evolve(found.schema, records).refusals == ()


@pytest.mark.parametrize(
    ("table", "records", "evolved"),
    [
        ("a int", "a long", "a long"),
        ("a int", "a double", "a double"),
        ("a long", "a float", "a float"),
        ("a double", "a int", "a double"),
        ("a int", "b string, a int", "a int, b string"),
        ("a int, b string", "a int", "a int, b string"),
        ("s struct<x:int>", "s struct<y:string,x:long>", "s struct<x:long,y:string>"),
        ("l array<int>", "l array<long>", "l array<long>"),
        ("m map<string,struct<x:int>>", "m map<string,struct<x:int,y:date>>", "m map<string,struct<x:int,y:date>>"),
        ("d decimal(9,2)", "d decimal(7,2)", "d decimal(9,2)"),
    ],
)
def test_what_a_table_becomes(table: str, records: str, evolved: str) -> None:
    found = evolve(parse_ddl(table), parse_ddl(records))
    assert found.refusals == ()
    assert found.schema == parse_ddl(evolved)


@pytest.mark.parametrize(
    ("table", "records", "refused"),
    [
        (
            "a int",
            "a string",
            "column a: expected int, as in the table, found string; write int or a wider number (long, float, double), or "
            "use a new column name, or write to a new table",
        ),
        (
            "a int NOT NULL",
            "a int",
            "column a: expected NOT NULL, as in the table, found one that may be null; make it required, or write to a new "
            "table",
        ),
        (
            "a int, b int NOT NULL",
            "a int",
            "column b: expected int NOT NULL, as in the table, found records without it; let producers write it, or give it "
            "a default in the schema, or write to a new table",
        ),
        (
            "a int",
            "a int, s struct<x:int> NOT NULL",
            "column s: expected one that may be null, as the rows that are there have no value, found a new column "
            "struct<x:int> NOT NULL; make it nullable, or write to a new table",
        ),
        (
            "a int",
            "a int, A int",
            "column A: expected a, the table's spelling, found A; rename it, or write to a new table",
        ),
        (
            "s struct<d:decimal(9,2)>",
            "s struct<d:decimal(9,3)>",
            "column s.d: expected decimal(9,2), as in the table, found decimal(9,3); write decimal(9,2), or use a new column "
            "name, or write to a new table",
        ),
    ],
)
def test_what_is_refused_says_what_to_do(table: str, records: str, refused: str) -> None:
    (found,) = evolve(parse_ddl(table), pa.schema(_fields(records))).refusals
    assert str(found) == refused


def _fields(ddl: str) -> list[pa.Field]:
    """Of columns that differ in case only too, which DDL refuses."""
    if ddl == "a int, A int":
        return [pa.field("a", pa.int32()), pa.field("A", pa.int32())]
    return list(parse_ddl(ddl))
