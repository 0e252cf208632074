"""Derive columns from a JSON Schema of any draft. Pure.

Columns follow from keywords that say which values exist: `type`, `properties`, `items`, `additionalProperties`, `format`,
`enum` and `const`, references inside the schema, and `oneOf`, `anyOf` or `allOf` of one schema besides null. Keywords that
only limit values (`minimum`, `pattern`, `required`…) are ignored: all columns are nullable, because a schema's versions
may add and drop required properties. Keywords that could allow values outside the columns are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.schema.columns import MAX_DEPTH, MAX_FIELDS, TIMESTAMP, column_problems
from hudi_ingest.records.schema.registered import RegisteredSchema

_REFUSED = pa.null()
"""Placeholder for a refused type, so that the next problem is found too."""
_PLAIN: Mapping[str, pa.DataType] = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_TEXTS: Mapping[str, pa.DataType] = {"date-time": TIMESTAMP, "date": pa.date32()}
"""Type of a text by its `format`; other texts are strings."""

_ALTERNATIVES = ("oneOf", "anyOf", "allOf")
_CONDITIONAL = ("then", "else", "dependentSchemas", "dependencies")
_SHAPING = frozenset(
    {
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "type",
        "properties",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "items",
        "prefixItems",
        *_ALTERNATIVES,
        *_CONDITIONAL,
    }
)
"""Keywords that can allow values beyond those of the enclosing schema. A schema without them only limits."""


def record_schema(schema: RegisteredSchema) -> pa.Schema:
    """Return the columns of records that the schema describes. Raises SchemaProblem when no table can have them."""
    try:
        document = json.loads(schema.text)
    except (RecursionError, ValueError) as error:
        raise SchemaProblem([f"is not readable JSON: {error}"]) from None
    columns = _Columns(document)
    try:
        columns_type = columns.type(document, "", (), 0)
    except RecursionError:
        raise SchemaProblem(["is nested too deeply, or its references lead through too many others"]) from None
    problems = columns.problems
    if not problems and not pa.types.is_struct(columns_type):
        problems.append("is not the schema of an object with properties")
    if problems:
        raise SchemaProblem(problems)
    fields = pa.schema([*columns_type])
    if names := column_problems(fields):
        raise SchemaProblem(names)
    return fields


class _Columns:
    def __init__(self, document: Any) -> None:
        self.problems: list[str] = []
        self._document = document
        self._types = 0

    def type(self, schema: Any, path: str, within: tuple[str, ...], depth: int) -> pa.DataType:
        """Return a schema's type. `within`: the references that led here."""
        self._types += 1
        if self._types > MAX_FIELDS:
            raise SchemaProblem([f"has more than {MAX_FIELDS} columns; allowed: {MAX_FIELDS}, nested ones counted"])
        if depth > MAX_DEPTH:
            return self._refuse(path, f"nested deeper than {MAX_DEPTH} levels")
        if not isinstance(schema, dict):
            return self._refuse(path, "any value is allowed, but a column has one type")
        kinds = _kinds(schema)
        decisive = ["$ref"] if "$ref" in schema else [keyword for keyword in _ALTERNATIVES if keyword in schema]
        if not kinds and len(decisive) == 1 and schema.keys() & _SHAPING == {*decisive}:
            if decisive == ["$ref"]:
                return self._referred(schema["$ref"], path, within, depth)
            return self._only_alternative(schema[decisive[0]], decisive[0], path, within, depth)
        beside = [keyword for keyword, subschema in _subschemas(schema) if not _only_limits(subschema)]
        beside += [
            keyword for keyword in ("$ref", "$dynamicRef", "$recursiveRef", "patternProperties") if schema.get(keyword)
        ]
        if beside:
            return self._refuse(path, f"found {beside[0]}, which may allow values that the columns would not have")
        if len(kinds) != 1:
            shown = f"values of type {', '.join(kinds)}" if kinds else "no type"
            return self._refuse(path, f"found {shown}; a column has one type besides null")
        return self._of_kind(kinds[0], schema, path, within, depth)

    def _of_kind(
        self, kind: str, schema: Mapping[str, Any], path: str, within: tuple[str, ...], depth: int
    ) -> pa.DataType:
        if kind == "string":
            return _TEXTS.get(str(schema.get("format")), pa.string())
        if kind == "array":
            items = schema.get("items")
            if not isinstance(items, dict) or "prefixItems" in schema:
                return self._refuse(path, "an array whose items are not of one type")
            return pa.list_(pa.field("element", self.type(items, f"{path}.element", within, depth + 1)))
        if kind == "object":
            return self._object(schema, path, within, depth)
        if kind not in _PLAIN:
            return self._refuse(path, f"found type {kind[:60]!r}, which JSON Schema does not have")
        return _PLAIN[kind]

    def _object(self, schema: Mapping[str, Any], path: str, within: tuple[str, ...], depth: int) -> pa.DataType:
        properties = schema.get("properties")
        value_schemas = [
            schema[keyword]
            for keyword in ("additionalProperties", "unevaluatedProperties")
            if _is_typed(schema, keyword)
        ]
        if value_schemas and not properties:
            return pa.map_(
                pa.string(), pa.field("value", self.type(value_schemas[0], f"{path}.value", within, depth + 1))
            )
        if value_schemas:
            return self._refuse(
                path, "found both additionalProperties with a type and properties; a column can be only one of the two"
            )
        if not isinstance(properties, dict) or not properties:
            return self._refuse(path, "an object without properties")
        return pa.struct(
            [
                pa.field(name, self.type(property_schema, f"{path}.{name}".removeprefix("."), within, depth + 1))
                for name, property_schema in properties.items()
            ]
        )

    def _only_alternative(
        self, schemas: Any, keyword: str, path: str, within: tuple[str, ...], depth: int
    ) -> pa.DataType:
        found = alternatives(schemas)
        if len(found) != 1:
            return self._refuse(path, f"found {keyword} of {len(found)} schemas; a column has one type besides null")
        return self.type(found[0], path, within, depth)

    def _referred(self, target: Any, path: str, within: tuple[str, ...], depth: int) -> pa.DataType:
        shown = repr(str(target)[:60])
        if target in within or target == "#":
            return self._refuse(path, f"the schema at $ref {shown} contains itself, which columns cannot")
        if not isinstance(target, str) or not target.startswith("#/"):
            return self._refuse(path, f"found $ref {shown}, which points outside the schema; allowed: #/…")
        schema = referred(self._document, target)
        if schema is None:
            return self._refuse(path, f"found $ref {shown}, which points nowhere")
        return self.type(schema, path, (*within, target), depth)

    def _refuse(self, path: str, problem: str) -> pa.DataType:
        self.problems.append(f"column {path}: {problem}" if path else f"the schema itself: {problem}")
        return _REFUSED


def referred(document: Any, target: str) -> Any:
    """The schema in the document to which a `$ref` like `#/definitions/Order` points; None if there is none."""
    head, *parts = target.split("/")
    schema = document if head == "#" else None
    for part in parts:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        schema = schema.get(name) if isinstance(schema, dict) else None
    return schema


def alternatives(schemas: Any) -> list[Any]:
    """The schemas of a `oneOf` or the like besides null."""
    return [schema for schema in schemas if not _is_null(schema)] if isinstance(schemas, list) else []


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that values may have, except null; none when the schema does not say."""
    types = schema.get("type")
    if types is None:
        if _is_typed(schema, "properties") or _is_typed(schema, "additionalProperties"):
            return ["object"]
        if "items" in schema:
            return ["array"]
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        texts = [value for value in values if value is not None] if isinstance(values, list) else []
        return ["string"] if texts and all(isinstance(value, str) for value in texts) else []
    kinds = [str(name) for name in (types if isinstance(types, list) else [types]) if name != "null"]
    return ["number"] if sorted(kinds) == ["integer", "number"] else kinds


def _is_typed(schema: Mapping[str, Any], keyword: str) -> bool:
    return isinstance(schema.get(keyword), dict) and bool(schema[keyword])


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") in ("null", ["null"]) or schema.get("const", 0) is None)


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the other schemas that a value may have to match, each with its keyword."""
    for keyword in (*_ALTERNATIVES, *_CONDITIONAL):
        below = schema.get(keyword)
        if keyword.startswith("depend") and isinstance(below, dict):
            yield from ((keyword, subschema) for subschema in below.values())
        elif isinstance(below, list):
            yield from ((keyword, subschema) for subschema in below)
        elif below is not None:
            yield keyword, below


def _only_limits(schema: Any) -> bool:
    return not isinstance(schema, dict) or not schema.keys() & _SHAPING
