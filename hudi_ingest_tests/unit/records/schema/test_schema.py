from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from hudi_ingest.exceptions import SchemaRefused
from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest.records.schema.avro import parse_avsc
from hudi_ingest.records.schema.columns import (
    MAX_DEPTH,
    columns_of,
    ddl,
    ddl_type,
    parse_spark_json,
    spark_json,
    table_schema,
)
from hudi_ingest.records.schema.ddl import parse_ddl
from hudi_ingest.transaction.columns.schema_change import _evolution

pytestmark = pytest.mark.fast

UTC = pa.timestamp("us", tz="UTC")


def array(element: pa.DataType, nullable: bool = True) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable))


def mapping(value: pa.DataType, nullable: bool = True) -> pa.DataType:
    return pa.map_(pa.string(), pa.field("value", value, nullable))


def problems(ddl: str) -> tuple[str, ...]:
    with pytest.raises(SchemaProblem) as raised:
        parse_ddl(ddl)
    return raised.value.problems


def avro_problems(schema: object) -> tuple[str, ...]:
    with pytest.raises(SchemaProblem) as raised:
        parse_avsc(schema if isinstance(schema, str) else json.dumps(schema))
    return raised.value.problems


def pipeline(ddl: str = "id string", **table: Any) -> Pipeline:
    return Pipeline(
        name="orders",
        source=KafkaSource(bootstrap_servers="localhost:9092", topics=("orders",)),
        table=Table(base_path="/data/orders", schema=ddl, **table),
    )


# ---- DDL


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("INTEGER", pa.int32()),
        ("long", pa.int64()),
        ("BigInt", pa.int64()),
        ("float", pa.float32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)),
        ("decimal(38, 38)", pa.decimal128(38, 38)),
        ("numeric(5,1)", pa.decimal128(5, 1)),
        ("string", pa.string()),
        ("varchar(20)", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ltz", UTC),
        ("array<int>", array(pa.int32())),
        ("map<string, long>", mapping(pa.int64())),
        ("struct<a: int, b string>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("array<map<string,array<int>>>", array(mapping(array(pa.int32())))),
    ],
)
def test_types(written: str, kind: pa.DataType) -> None:
    assert parse_ddl(f"c {written}") == pa.schema([("c", kind)])
    assert parse_ddl(f"c: {written}") == pa.schema([("c", kind)])


def test_arrow_field_names_of_lists_and_maps() -> None:
    schema = parse_ddl("a array<int>, m map<string,int>")
    assert schema.field("a").type.value_field.name == "element"
    assert schema.field("m").type.item_field.nullable


def test_nullability_and_comments_at_every_level() -> None:
    found = parse_ddl(
        """
        id string NOT NULL COMMENT 'it''s the key, NOT NULL', -- a comment
        `order` int comment "x" not null, /* and another */
        s struct<a: int NOT NULL COMMENT 'in, here', b: string>
        """
    )
    assert found == pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("order", pa.int32(), nullable=False),
            pa.field("s", pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])),
        ]
    )
    assert all(each.metadata is None for each in found)


def test_keywords_are_names_as_in_spark() -> None:
    names = ["select", "from", "table", "order", "group", "show", "fetch", "begin", "end", "timestamp", "date", "not"]
    names += ["comment", "map", "struct", "array", "index", "key", "value", "type", "primary", "default"]
    assert parse_ddl(", ".join(f"{name} string" for name in names)).names == names


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a byte", "column a: found type byte: Hudi would store it as int; use `int`"),
        ("a tinyint", "use `int`"),
        ("s struct<x: smallint>", "column s.x: found type smallint: Hudi would store it as int; use `int`"),
        ("a char(3)", "column a: found type char: not a type"),
        ("a interval day to second, b int", "column a: found type interval"),
        ("a array<struct<b: foo>>", "column a.element.b: found type foo"),
        ("a map<string, void>", "column a.value: found type void"),
        ("a map<int, string>", "column a: map keys must be string"),
        ("a timestamp(3)", "takes no parentheses"),
        ("a array", "needs its types, like array<int>"),
        ("a varchar", "needs a length"),
        ("a struct<>", "an empty struct cannot be stored"),
        ("a decimal(39,2)", "found decimal(39,2); allowed: decimal(p,s) with p from 1 to 38 and s from 0 to p"),
        ("a decimal(5,6)", "found decimal(5,6)"),
        ("a decimal(0)", "found decimal(0)"),
        ("a decimal(1,2,3)", "found decimal(1,2,3)"),
        ("a decimal(5,-2)", "line 1, character 13: expected a whole number"),
        ("", "has no columns"),
        (" \n-- nothing\n", "has no columns"),
        ("a", "line 1, character 2: expected the type of column a; found the end"),
        ("a int,", "expected a column name"),
        ("a int b int", "line 1, character 7: expected `,`, NOT NULL, COMMENT or the end after column a; found `b`"),
        ("a int,\n  b int c", "line 2, character 9"),
        ("a int primary key", "found `primary`"),
        ("a int default 3", "found `default`"),
        ("a int not", "expected NULL after NOT"),
        ("a int comment 3", "expected a text in quotes"),
        ("a array<int not null>", "expected `>` after the types of column a; found `not`"),
        ("a array<int>>", "found `>`"),
        ("a struct<b: int", "expected `,` or `>` after a.b; found the end"),
        ("a::int", "expected the type of column a"),
        ("a.b int", "expected the type of column a; found `.`"),
        ("1a int", "expected a column name (in backticks"),
        ("(a int)", "expected a column name"),
        ("a int); drop table (b int", "found `)`"),
        ("a 'int'", "expected the type of column a"),
        ("a `int`", "expected the type of column a"),
        ("a string comment 'not closed", "a quote, backtick or comment is not closed"),
        ("`a b` int", "column a b: Hudi cannot store this name"),
        ("é int", "column é: Hudi cannot store this name"),
        ("`1st` int", "declare it as `1st` in table.schema and give it another name with the transform `rename`"),
        ("`1st` int", "field.name.adjustment.mode=avro"),
        ("s struct<`a-b`: int>", "column s.a-b: Hudi cannot store this name"),
        ("_hoodie_x int", "column _hoodie_x: names beginning with _hoodie_ or _kafka_"),
        ("_KAFKA_offset long", "column _KAFKA_offset: names beginning with"),
        ("a int, a long", "column a: is declared twice"),
        ("_tmp_metadata_row_index long", "column _tmp_metadata_row_index: this name belongs to Spark's Parquet reader"),
        ("_TMP_metadata_row_index string", "column _TMP_metadata_row_index: this name belongs to Spark's"),
        ("Id int, iD long", "column iD: differs from Id only in case"),
        ("s array<struct<x: int, X: int>>", "column s.element.X: differs from x only in case"),
        ("member0 int, member1 string", "the schema: Hudi treats a struct of only nullable columns member0"),
        ("a int, s struct<member0: int>", "column s: Hudi treats a struct of only nullable columns member0"),
    ],
)
def test_refused_ddl(ddl: str, expected: str) -> None:
    found = problems(ddl)
    assert len(found) == 1
    assert expected in found[0]


def test_nested_names_may_begin_with_reserved_prefixes() -> None:
    assert parse_ddl("s struct<_kafka_x: int>").names == ["s"]
    assert parse_ddl("s struct<_tmp_metadata_row_index: long>").names == ["s"]


NAMES_THAT_READERS_SHOW = (
    "_metadata, _corrupt_record, _row_index, row_index, _tmp_metadata, _fake_name_, __index_level_0__, __null_dask_index__, filename, "
    "file_row_number, file_index, _file, _pos, input__file__name, rowid, __row_id, __row_operation, _op, __deleted, _rescued_data, "
    "_change_type, _commit_version, __filename, __fragment_index"
)
"""Names that some reader or writer uses elsewhere, and that Spark, hudi-rs, pyarrow and DuckDB show as they were written."""


def test_names_that_only_look_reserved_are_allowed(tmp_path: Path) -> None:
    names = NAMES_THAT_READERS_SHOW.split(", ")
    assert parse_ddl(", ".join(f"{name} long" for name in names)).names == names
    written = pa.table({name: [place] for place, name in enumerate(names)})
    pq.write_table(written, tmp_path / "f.parquet")
    assert pq.ParquetFile(tmp_path / "f.parquet").read() == written


def test_all_problems_at_once_and_types_are_not_reported_as_names() -> None:
    found = problems("a byte, b char(3), c map<int,int>, d array<interval year>, `e f` int, a int, g decimal(99,1)")
    assert [each.split(":")[0] for each in found] == [
        "column a",
        "column b",
        "column c",
        "column d.element",
        "column g",
        "column e f",
        "column a",
    ]


def test_deep_nesting_is_refused_without_a_crash() -> None:
    deep = "array<" * 5000 + "int" + ">" * 5000
    assert f"nested deeper than {MAX_DEPTH} levels" in problems(f"a {deep}")[0]
    fine = "array<" * MAX_DEPTH + "int" + ">" * MAX_DEPTH
    assert parse_ddl(f"a {fine}").names == ["a"]


def test_problems_survive_pickle() -> None:
    error = SchemaProblem(["one", "two"])
    assert pickle.loads(pickle.dumps(error)).problems == ("one", "two")


simple_types = st.sampled_from(
    [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        UTC,
    ]
) | st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


def fields_of(types: st.SearchStrategy[Any]) -> st.SearchStrategy[list[pa.Field]]:
    one = st.builds(pa.field, names.map("c_{}".format), types, st.booleans())
    return st.lists(one, min_size=1, max_size=4, unique_by=lambda each: each.name)


types = st.recursive(
    simple_types, lambda inner: inner.map(array) | inner.map(mapping) | fields_of(inner).map(pa.struct), max_leaves=8
)
schemas = fields_of(types).map(pa.schema)


@st.composite
def rendered(draw: st.DrawFn) -> tuple[pa.Schema, str]:
    """A schema and one of the ways to write it."""
    schema = draw(schemas)
    columns = []
    for each in schema:
        name = draw(st.sampled_from([each.name, f"`{each.name}`"]))
        between = draw(st.sampled_from([" ", ": ", ":", "\n\t", " /* x */ "]))
        tail = draw(st.sampled_from(["", " COMMENT 'a, b> `c`'", " -- end of line\n"]))
        columns.append(f"{name}{between}{ddl_type(each.type)}{'' if each.nullable else ' NOT NULL'}{tail}")
    text = draw(st.sampled_from([", ", ",", "\n,\n"])).join(columns)
    return schema, text


@given(rendered())
def test_ddl_round_trip(given_: tuple[pa.Schema, str]) -> None:
    schema, text = given_
    assert parse_ddl(text).equals(schema, check_metadata=True)


@given(schemas)
def test_spark_reads_our_json_as_the_same_columns(schema: pa.Schema) -> None:
    text = spark_json(schema)
    struct = StructType.fromJson(json.loads(text))
    assert struct.json() == text
    assert struct.fieldNames() == schema.names
    assert [each.nullable for each in struct] == [each.nullable for each in schema]
    assert parse_ddl(", ".join(_spark_ddl(each) for each in struct)) == schema


def _spark_ddl(field: Any) -> str:
    text = field.dataType.simpleString()
    if "struct<" in text:  # Spark's simpleString leaves out the nullability inside
        text = ddl_type(parse_ddl(f"c {text}").field(0).type) if _all_nullable(field.dataType) else ""
        text = text or _spark_type_ddl(field.dataType)
    return f"{field.name} {text}{'' if field.nullable else ' NOT NULL'}"


def _all_nullable(kind: Any) -> bool:
    return "NOT NULL" not in _spark_type_ddl(kind)


def _spark_type_ddl(kind: Any) -> str:
    if kind.typeName() == "array":
        return f"array<{_spark_type_ddl(kind.elementType)}>"
    if kind.typeName() == "map":
        return f"map<string,{_spark_type_ddl(kind.valueType)}>"
    if kind.typeName() == "struct":
        inner = (f"{f.name}:{_spark_type_ddl(f.dataType)}{'' if f.nullable else ' NOT NULL'}" for f in kind)
        return f"struct<{','.join(inner)}>"
    return str(kind.simpleString())


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                "a",
                "int",
                "string",
                ",",
                ":",
                "<",
                ">",
                "(",
                ")",
                "struct",
                "array",
                "map",
                "`",
                "'",
                "--",
                "/*",
                "not",
                "null",
                "comment",
                "5",
                "decimal",
                ";",
            ]
        ),
        max_size=20,
    ).map(" ".join)
)
def test_any_ddl_is_a_schema_or_a_problem(text: str) -> None:
    try:
        assert len(parse_ddl(text)) > 0
    except SchemaProblem as problem:
        assert problem.problems


# ---- Avro


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def column(kind: object, name: str = "c") -> dict[str, Any]:
    return {"name": name, "type": kind}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ({"type": "int"}, pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("string", pa.string()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": "fixed", "name": "F", "size": 4}, pa.binary()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "long", "logicalType": "timestamp-millis"}, UTC),
        ({"type": "long", "logicalType": "timestamp-micros"}, UTC),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, pa.decimal128(10, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10}, pa.decimal128(10, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}, pa.decimal128(38, 2)),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, pa.decimal128(9, 0)),
        ({"type": "array", "items": "int"}, array(pa.int32(), nullable=False)),
        ({"type": "array", "items": ["null", "int"]}, array(pa.int32())),
        ({"type": "map", "values": "int"}, mapping(pa.int32(), nullable=False)),
        ({"type": "map", "values": ["int", "null"]}, mapping(pa.int32())),
        (record(column("int", "x"), name="S"), pa.struct([pa.field("x", pa.int32(), nullable=False)])),
    ],
)
def test_avro_types(kind: object, expected: pa.DataType) -> None:
    assert parse_avsc(json.dumps(record(column(kind)))) == pa.schema([pa.field("c", expected, nullable=False)])
    if not isinstance(kind, list):
        nullable = parse_avsc(json.dumps(record(column(["null", kind]))))
        assert nullable == pa.schema([pa.field("c", expected, nullable=True)])


def test_avro_names_are_found_in_their_namespaces() -> None:
    schema = record(
        column({"type": "record", "name": "other.Point", "fields": [column("int", "x")]}, "a"),
        column("other.Point", "b"),
        column(
            {
                "type": "record",
                "name": "Line",
                "fields": [column({"type": "enum", "name": "Kind", "symbols": ["A"]}, "k"), column("Kind", "l")],
            },
            "d",
        ),
        column(["null", "Line"], "e"),
        column("shop.Kind", "f"),
        column({"type": "fixed", "name": "Money", "size": 8, "logicalType": "decimal", "precision": 12}, "g"),
        column("Money", "h"),
    )
    found = parse_avsc(json.dumps({**schema, "namespace": "shop"}))
    assert found.field("b").type == found.field("a").type
    assert found.field("e").type == found.field("d").type
    assert found.field("e").nullable and not found.field("d").nullable
    assert found.field("f").type == pa.string()
    assert found.field("h").type == pa.decimal128(12, 0)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (["int", "string"], "column c: found a union of [int, string]; allowed: null and one other type"),
        (["null", "int", "string"], "found a union of [null, int, string]"),
        (["null"], "found a union of [null]"),
        ([], "found a union of []"),
        (["null", ["int"]], "a union inside a union"),
        ("null", "found type 'null', which is unknown"),
        ("Unknown", "found type 'Unknown'"),
        (3, "no Avro type"),
        ({"type": ["null", "int"]}, "a type inside a type"),
        ({"items": "int"}, "no Avro type"),
        ({"type": "int", "logicalType": "time-millis"}, "found logicalType time-millis on int"),
        ({"type": "string", "logicalType": "uuid"}, "remove the logicalType to read the plain type"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "found logicalType timestamp-nanos on long"),
        ({"type": "int", "logicalType": "timestamp-millis"}, "found logicalType timestamp-millis on int"),
        ({"type": "bytes", "logicalType": "decimal"}, "decimal needs a whole `precision`"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}, "decimal needs a whole `precision`"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 40},
            "decimal needs a whole `precision`",
        ),
        ({"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"}, "decimal.handling.mode"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "decimal needs"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, "decimal needs"),
        ({"type": "bytes", "logicalType": "decimal", "precision": True}, "decimal needs"),
        (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 10},
            "a fixed of size 4 cannot hold decimal precision 10",
        ),
        ({"type": "array"}, "column c.element: no Avro type"),
        ({"type": "array", "items": ["int", "string"]}, "column c.element: found a union"),
        ({"type": "map", "values": "foo"}, "column c.value: found type 'foo'"),
        ({"type": "record", "fields": [column("int")]}, "column c: a record needs a name"),
        (record(name="S"), "column c: a record needs `fields`"),
        (record({"name": "x"}, name="S"), "column c: fields[0] needs a name and a type"),
        (record(column("foo", "x"), name="S"), "column c.x: found type 'foo'"),
        (record(column("S", "x"), name="S"), "column c.x: record S contains itself"),
        ("R", "column c: record R contains itself"),
        (record(column("int"), name="R"), "the type name R is declared twice"),
    ],
)
def test_refused_avro(kind: object, expected: str) -> None:
    found = avro_problems(record(column(kind)))
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("{", "is not JSON at line 1, column 2"),
        ("", "is not JSON at line 1"),
        ("[" * 100_000, "too deeply nested"),
        ('"int"', "is not an Avro record"),
        ([], "is not an Avro record"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "is not an Avro record"),
        (record(), "a record needs `fields`"),
        ({"type": "record", "fields": []}, "a record needs a name"),
        (record(column("int", "a"), column("int", "A")), "column A: differs from a only in case"),
        (record(column("int", "_hoodie_a")), "column _hoodie_a: names beginning with"),
        (
            record(column("int", "_tmp_metadata_row_index")),
            "column _tmp_metadata_row_index: this name belongs to Spark",
        ),
        (record(column("int", "a-b")), "column a-b: Hudi cannot store this name"),
    ],
)
def test_refused_avro_files(schema: object, expected: str) -> None:
    found = avro_problems(schema)
    assert len(found) == 1
    assert expected in found[0]


def test_every_field_of_an_empty_record_is_named() -> None:
    found = avro_problems(record(column(record(name="Marker"), "opened"), column("Marker", "closed")))
    assert [problem.split(":")[0] for problem in found] == ["column opened", "column closed"]


def test_deep_avro_is_refused_without_a_crash() -> None:
    kind: object = "int"
    for _ in range(60):
        kind = {"type": "array", "items": kind}
    assert "nested deeper than" in avro_problems(record(column(kind)))[0]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 50)
    | st.sampled_from(["int", "null", "record", "R", "decimal", "fixed", "x"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "name", "fields", "items", "values", "logicalType", "precision", "size", "namespace"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_avro_is_a_schema_or_a_problem(kind: object) -> None:
    for text in (json.dumps(kind), json.dumps(record(column(kind)))):
        try:
            assert len(parse_avsc(text)) > 0
        except SchemaProblem as problem:
            assert problem.problems


# ---- Table schema


def test_kafka_columns_follow_the_users() -> None:
    found = pipeline("id string NOT NULL, n int").table.table_schema
    assert found.record == parse_ddl("id string NOT NULL, n int")
    assert found.columns == pa.schema(
        [
            *found.record,
            pa.field("_kafka_topic", pa.string(), nullable=False),
            pa.field("_kafka_partition", pa.int32(), nullable=False),
            pa.field("_kafka_offset", pa.int64(), nullable=False),
            pa.field("_kafka_timestamp", UTC),
        ]
    )
    assert found.spark_json == spark_json(found.columns)
    struct = StructType.fromJson(json.loads(found.spark_json))
    assert struct.simpleString() == (
        "struct<id:string,n:int,_kafka_topic:string,_kafka_partition:int,_kafka_offset:bigint,_kafka_timestamp:timestamp>"
    )


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ((), ["_kafka_partition", "_kafka_offset"]),
        (("topic",), ["_kafka_topic", "_kafka_partition", "_kafka_offset"]),
        (("timestamp",), ["_kafka_partition", "_kafka_offset", "_kafka_timestamp"]),
        (("timestamp", "topic"), ["_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]),
    ],
)
def test_optional_kafka_columns(chosen: tuple[Any, ...], expected: list[str]) -> None:
    assert pipeline(kafka_columns=chosen).table.table_schema.columns.names == ["id", *expected]


def test_another_reader_may_spell_types_differently() -> None:
    expected = pipeline("a array<int>, t timestamp, m map<string,int>, s struct<x:int>").table.table_schema.columns
    there = pa.schema(
        [
            ("_hoodie_commit_time", pa.string()),
            ("a", pa.list_(pa.field("array", pa.int32()))),
            ("t", pa.timestamp("us", tz="+00:00")),
            ("m", pa.map_(pa.string(), pa.int32())),
            pa.field("s", pa.struct([("x", pa.int32())]), metadata={"k": "v"}),
            *[each for each in expected if each.name.startswith("_kafka_")],
        ]
    )
    assert columns_of(there).equals(expected, check_metadata=True)


@given(schemas)
def test_columns_come_back_from_their_json_and_their_ddl(schema: pa.Schema) -> None:
    assert parse_spark_json(spark_json(schema)).equals(schema)
    assert columns_of(schema).equals(schema)
    assert parse_ddl(ddl(schema)) == parse_ddl(ddl(parse_ddl(ddl(schema))))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"fields": [{"name": "a"}]}', '{"fields": [{"name": "a", "type": "x", "nullable": true}]}']
)
def test_what_is_no_json_of_columns_is_told(text: str) -> None:
    with pytest.raises(SchemaProblem, match="is not the JSON of columns"):
        parse_spark_json(text)


def test_a_table_whose_times_are_never_null_is_written_on_as_it_is() -> None:
    """Older versions made it so."""
    found = pipeline("id string", partition_by=["day(_kafka_timestamp)"])
    columns = table_schema(found.chain.output, found.table.kafka_columns).columns
    assert columns.field("_kafka_timestamp").nullable
    assert columns.field("kafka_timestamp_day").nullable
    of_time = ("_kafka_timestamp", "kafka_timestamp_day")
    there = pa.schema([each.with_nullable(each.nullable and each.name not in of_time) for each in columns])
    evolution = _evolution(found, there, "declared")
    assert (evolution.changes, evolution.schema) == ((), there)


def test_a_table_that_got_a_name_which_spark_gives_a_meaning_is_not_written_any_more() -> None:
    """Its next clustering or compaction would write garbage into all columns."""
    found = pipeline("id string")
    columns = table_schema(found.chain.output, found.table.kafka_columns).columns
    there = pa.schema([*columns, pa.field("_tmp_metadata_row_index", pa.int64())])
    with pytest.raises(
        SchemaRefused, match=r"(?s)_tmp_metadata_row_index: this name belongs to Spark.*into a new table"
    ):
        _evolution(found, there, "declared")
