"""D2: the columns of a JSON Schema, and what no column can be made of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.schema.columns import ddl
from hudi_ingest.records.schema.json_schema import record_schema
from hudi_ingest.records.schema.registered import RegisteredSchema

MONEY = {"type": "object", "properties": {"cents": {"type": "integer"}, "currency": {"enum": ["EUR", "USD"]}}}


def columns(properties: dict[str, Any], **more: Any) -> str:
    document = {"type": "object", "properties": properties, **more}
    return ddl(record_schema(RegisteredSchema(json.dumps(document))))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"type": "integer", "minimum": 0}, "long"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "null", "number"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "pattern": "^a"}, "string"),
        ({"type": ["null", "string"], "default": None}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "integer", "enum": [1, 2]}, "long"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"const": "a"}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<long>"),
        ({"items": {"items": {"type": "string"}}}, "array<array<string>>"),
        (MONEY, "struct<cents:long,currency:string>"),
        ({"properties": {"a": {"type": "string"}}}, "struct<a:string>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"type": "object", "additionalProperties": MONEY, "properties": {}}, "map<string,struct<cents:long,currency:string>>"),
        ({"oneOf": [{"type": "null", "title": "Not included"}, {"type": "string"}]}, "string"),
        ({"anyOf": [MONEY, {"const": None}], "description": "what it costs"}, "struct<cents:long,currency:string>"),
        ({"allOf": [{"$ref": "#/definitions/Money"}], "title": "Price"}, "struct<cents:long,currency:string>"),
        ({"$ref": "#/$defs/a~1b%20c"}, "array<struct<cents:long,currency:string>>"),
        ({**MONEY, "additionalProperties": True, "oneOf": [{"required": ["cents"]}, {"maxProperties": 1}]}, "struct<cents:long,currency:string>"),
        ({"type": "string", "not": {"type": "integer"}, "if": {"minLength": 2}, "then": {"pattern": "a"}}, "string"),
    ],
)  # fmt: skip
def test_d2_what_becomes_a_column(found: dict[str, Any], expected: str) -> None:
    definitions = {
        "definitions": {"Money": MONEY},
        "$defs": {"a/b c": {"type": "array", "items": {"$ref": "#/definitions/Money"}}},
    }
    assert columns({"x": found}, required=["x"], **definitions) == f"x {expected}"


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({}, "column x: found no type"),
        (True, "column x: any value is allowed"),
        ({"type": "null"}, "column x: found no type"),
        ({"type": ["string", "integer"]}, "column x: found values of type string, integer; a column has one type"),
        ({"type": "date"}, "column x: found type 'date', which JSON Schema does not have"),
        ({"enum": ["a", 1]}, "column x: found no type"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "column x: found oneOf of 2 schemas"),
        ({"anyOf": [{"type": "null"}]}, "column x: found anyOf of 0 schemas"),
        ({**MONEY, "oneOf": [{"properties": {"more": {"type": "string"}}}]}, "column x: found oneOf, which may allow values"),
        ({**MONEY, "then": {"properties": {"more": {}}}}, "column x: found then, which may allow"),
        ({**MONEY, "dependentSchemas": {"cents": {"properties": {"more": {}}}}}, "found dependentSchemas, which may allow"),
        ({**MONEY, "patternProperties": {"^x": {"type": "string"}}}, "column x: found patternProperties, which may"),
        ({**MONEY, "additionalProperties": {"type": "string"}}, "column x: found both additionalProperties with a type"),
        ({"type": "object"}, "column x: an object without properties"),
        ({"type": "array"}, "column x: an array whose items are not of one type"),
        ({"type": "array", "items": [{"type": "string"}]}, "column x: an array whose items are not of one type"),
        ({"type": "array", "prefixItems": [{}], "items": {"type": "string"}}, "column x: an array whose items are not"),
        ({"type": "array", "items": {"type": ["array"]}}, "column x.element: an array whose items"),
        ({"type": "object", "additionalProperties": {"$ref": "#/nowhere"}}, "column x.value: found $ref '#/nowhere', which points nowhere"),
        ({"$ref": "money.json"}, "column x: found $ref 'money.json', which points outside the schema"),
        ({"$ref": "#money"}, "column x: found $ref '#money', which points outside the schema"),
        ({"$ref": "#/definitions/Money", "properties": {"y": {}}}, "column x: found $ref, which may allow values"),
        ({"$ref": "#"}, "column x: the schema at $ref '#' contains itself"),
        ({"$ref": "#/definitions/Tree"}, "column x.left: the schema at $ref '#/definitions/Tree' contains itself"),
        ({"$ref": "#/definitions/M0"}, "has more than 10000 columns"),
    ],
)  # fmt: skip
def test_d2_what_no_column_can_be_made_of_is_named(found: Any, problem: str) -> None:
    doubling = {
        f"M{n}": {"properties": {each: {"$ref": f"#/definitions/M{n + 1}"} for each in "ab"}} for n in range(20)
    }
    definitions = {
        **doubling,
        "M20": {"type": "string"},
        "Money": MONEY,
        "Tree": {"type": "object", "properties": {"left": {"$ref": "#/definitions/Tree"}}},
    }
    with pytest.raises(SchemaProblem) as raised:
        columns({"x": found}, definitions=definitions)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not readable JSON"),
        ("1" * 5000, "is not readable JSON"),
        ("[" * 100_000, "is not readable JSON"),
        ("7", "the schema itself: any value is allowed"),
        ('{"type": "array", "items": {"type": "string"}}', "is not the schema of an object with properties"),
        ('{"properties": {"a-b": {"type": "string"}}}', "column a-b: Hudi cannot store this name"),
        ('{"properties": {"_kafka_x": {"type": "string"}}}', "belong to Hudi and hudi-ingest"),
        (
            '{"properties": {"_tmp_metadata_row_index": {"type": "integer"}}}',
            "this name belongs to Spark's Parquet reader",
        ),
        ('{"properties": {"a": {}, "b": {"type": "null"}}}', "column b: found no type"),
    ],
)
def test_d2_texts_that_describe_no_record(text: str, problem: str) -> None:
    with pytest.raises(SchemaProblem) as raised:
        record_schema(RegisteredSchema(text))
    assert problem in str(raised.value)


def test_d2_a_schema_that_is_a_reference() -> None:
    text = json.dumps({"$ref": "#/definitions/Money", "definitions": {"Money": MONEY}})
    assert ddl(record_schema(RegisteredSchema(text))) == "cents long, currency string"


def test_d2_chains_and_nesting_end() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaProblem, match="nested deeper than 32 levels"):
        columns({"x": deep})
    chain = {f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(5000)}
    with pytest.raises(SchemaProblem, match="is nested too deeply"):
        columns({"x": {"$ref": "#/definitions/d0"}}, definitions=chain)
