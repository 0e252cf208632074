"""What a table's columns become for newer records, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.records.schema.evolution import additions, evolve, joined, loosened

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


@given(schemas())
def test_the_same_columns_change_nothing(schema: pa.Schema) -> None:
    found = evolve(schema, schema)
    assert (found.schema, found.changes, found.refusals) == (schema, (), ())


@given(schemas(), schemas())
def test_an_evolved_table_holds_both_and_is_at_its_end(table: pa.Schema, records: pa.Schema) -> None:
    found = evolve(table, records)
    if found.refusals:
        assert all(
            refusal.field and refusal.found and refusal.expected and refusal.choices for refusal in found.refusals
        )
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
        ("s struct<x:long>", "s struct<y:string,x:int>", "s struct<x:long,y:string>"),
        ("l array<long>", "l array<int>", "l array<long>"),
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
            "column s: expected one that may be null, as existing rows have no value, found a new column "
            "struct<x:int> NOT NULL; make it nullable, or write to a new table",
        ),
        (
            "l array<struct<x:int>>",
            "l array<struct<x:long>>",
            "column l.element.x: expected int, as in the table: Spark cannot widen numbers inside a column when it reads "
            "older files, found long; write int, or use a new column name, or write to a new table",
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


def test_a_column_that_the_table_is_partitioned_by_keeps_its_type() -> None:
    (refused,) = evolve(parse_ddl("a int, p int"), parse_ddl("a long, p long"), partition_by=["p"]).refusals
    assert str(refused) == (
        "column p: expected int, as the table is partitioned by it, found long; write int, or use a new column name, or "
        "write to a new table"
    )
    assert evolve(parse_ddl("p long"), parse_ddl("p int"), partition_by=["p"]).refusals == ()


def test_loose_tables_take_required_columns_as_ones_that_may_be_null() -> None:
    found = evolve(parse_ddl("a int"), parse_ddl("a int, s struct<x:int NOT NULL> NOT NULL"), loose=True)
    assert found.refusals == ()
    assert found.schema == parse_ddl("a int, s struct<x:int>")


@given(schemas())
def test_a_loose_schema_has_the_same_columns(schema: pa.Schema) -> None:
    found = loosened(schema)
    assert found.names == schema.names
    assert loosened(found) == found
    again = evolve(found, schema)
    assert (again.changes, again.refusals) == ((), ())
    assert additions(schema, found) == additions(found, schema) == ()


@given(schemas(), schemas())
def test_joined_columns_hold_records_of_both(one: pa.Schema, other: pa.Schema) -> None:
    found = joined([one, other])
    if not found.refusals:
        for schema in (one, other):
            assert additions(found.schema, schema) == ()
            assert evolve(found.schema, schema).refusals == ()
    assert set(found.schema.names) == {*one.names, *other.names}


def test_joined_columns_that_only_some_have_may_be_null() -> None:
    found = joined([parse_ddl("a int NOT NULL, b int NOT NULL"), parse_ddl("b long NOT NULL, c date NOT NULL")])
    assert found.schema == parse_ddl("a int, b long NOT NULL, c date")
    first = joined([parse_ddl("a int"), parse_ddl("a string")])
    assert first.schema == parse_ddl("a int")
    assert [refusal.field for refusal in first.refusals] == ["a"]


@pytest.mark.parametrize(
    ("known", "records", "lines"),
    [
        ("a long, b string", "a int", ()),
        ("a int", "a int NOT NULL", ()),
        ("a int", "a int, b string NOT NULL", ("column b string is added",)),
        ("a int", "a long", ("column a becomes long; it was int",)),
        ("s struct<x:int>", "s struct<y:int>", ("column s.y int is added",)),
    ],
)
def test_what_newer_records_have_more(known: str, records: str, lines: tuple[str, ...]) -> None:
    assert additions(parse_ddl(known), parse_ddl(records)) == lines
