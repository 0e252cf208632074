"""Parse a JSON Schema of any draft into the tree of types. Pure.

Columns follow from keywords that say which values exist: `type`, `properties`, `items`, `additionalProperties`, `format`,
`enum` and `const`, references inside the schema, and `oneOf`, `anyOf` or `allOf` of one schema besides null. Keywords that
only limit values (`minimum`, `pattern`, `required`…) are ignored: all columns are nullable, because a schema's versions
may add and drop required properties. Keywords that could allow values outside the columns are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from hudi_ingest.exceptions.problems import SchemaProblem
from hudi_ingest.records.schema.columns import MAX_DEPTH, MAX_FIELDS, column_problems
from hudi_ingest.records.schema.connect import decimals_of, text_of
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import Problems, WireType, columns

_PLAIN = ("integer", "number", "boolean")
_TEXTS = ("date-time", "date")
"""Values of `format` that give a text a column of its own; other texts are strings."""
_CONNECT = '"connect.'
"""Begins the keywords that Kafka Connect's converter adds."""
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
        tree = _tree(schema.text)
    except (RecursionError, ValueError) as error:
        if isinstance(error, SchemaProblem):
            raise
        raise SchemaProblem([f"is not readable JSON: {error}"]) from None
    problems: Problems = [("", tree.problem)] if tree.problem else []
    fields = pa.schema(columns(tree, problems))
    texts = [f"column {path}: {problem}" if path else f"the schema itself: {problem}" for path, problem in problems]
    if not texts and not tree.names:
        texts.append("is not the schema of an object with properties")
    if texts or (texts := [*column_problems(fields)]):
        raise SchemaProblem(texts)
    return fields


def parse_connect_json_schema(text: str) -> WireType | None:
    """Parse a JSON Schema as Kafka Connect's converter registers it; None if it is of another producer. Raises ValueError when it is
    no schema."""
    if _CONNECT not in text:
        return None
    try:
        return _tree(text)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no schema of Kafka Connect: {type(error).__name__}") from None


def _tree(text: str) -> WireType:
    document = json.loads(text)
    try:
        return _Parser(document, _CONNECT in text).type(document, (), 0)
    except RecursionError:
        raise SchemaProblem(["is nested too deeply, or its references lead through too many others"]) from None


def _refused(problem: str) -> WireType:
    return WireType("refused", problem=problem, nullable=True)


class _Parser:
    """Parses the schemas of a document. `of_connect`: with the types that Kafka Connect's converter names in it."""

    def __init__(self, document: Any, of_connect: bool) -> None:
        self._document = document
        self._of_connect = of_connect
        self._types = 0

    def type(self, schema: Any, within: tuple[str, ...], depth: int) -> WireType:
        """Parse a schema. `within`: the references that led here. Raises SchemaProblem if it has too many fields."""
        self._types += 1
        if self._types > MAX_FIELDS:
            raise SchemaProblem([f"has more than {MAX_FIELDS} columns; allowed: {MAX_FIELDS}, nested ones counted"])
        if depth > MAX_DEPTH:
            return _refused(f"nested deeper than {MAX_DEPTH} levels")
        if not isinstance(schema, dict):
            return _refused("any value is allowed, but a column has one type")
        kinds = _kinds(schema)
        decisive = ["$ref"] if "$ref" in schema else [keyword for keyword in _ALTERNATIVES if keyword in schema]
        if not kinds and len(decisive) == 1 and schema.keys() & _SHAPING == {*decisive}:
            if decisive == ["$ref"]:
                return self._referred(schema["$ref"], within, depth)
            return self._only_alternative(schema[decisive[0]], decisive[0], within, depth)
        found = self._of_kinds(kinds, schema, within, depth)
        return _connected(found, schema) if self._of_connect else found

    def _of_kinds(self, kinds: list[str], schema: Mapping[str, Any], within: tuple[str, ...], depth: int) -> WireType:
        beside = [keyword for keyword, subschema in _subschemas(schema) if not _only_limits(subschema)]
        beside += [
            keyword for keyword in ("$ref", "$dynamicRef", "$recursiveRef", "patternProperties") if schema.get(keyword)
        ]
        if beside:
            return _refused(f"found {beside[0]}, which may allow values that the columns would not have")
        if len(kinds) != 1:
            shown = f"values of type {', '.join(kinds)}" if kinds else "no type"
            return _refused(f"found {shown}; a column has one type besides null")
        kind = kinds[0]
        if kind == "string":
            texts = str(schema.get("format"))
            return WireType(texts if texts in _TEXTS else "string", nullable=True)
        if kind == "array":
            items = schema.get("items")
            if not isinstance(items, dict) or "prefixItems" in schema:
                return _refused("an array whose items are not of one type")
            return WireType("array", parts=(self.type(items, within, depth + 1),), nullable=True)
        if kind == "object":
            return self._object(schema, within, depth)
        if kind not in _PLAIN:
            return _refused(f"found type {kind[:60]!r}, which JSON Schema does not have")
        return WireType(kind, nullable=True)

    def _object(self, schema: Mapping[str, Any], within: tuple[str, ...], depth: int) -> WireType:
        properties = schema.get("properties")
        value_schemas = [
            schema[keyword]
            for keyword in ("additionalProperties", "unevaluatedProperties")
            if _is_typed(schema, keyword)
        ]
        if value_schemas and not properties:
            return WireType("map", parts=(self.type(value_schemas[0], within, depth + 1),), nullable=True)
        if value_schemas:
            return _refused(
                "found both additionalProperties with a type and properties; a column can be only one of the two"
            )
        if not isinstance(properties, dict) or not properties:
            return _refused("an object without properties")
        parts = tuple(replace(self.type(each, within, depth + 1), doc=_doc(each)) for each in properties.values())
        return WireType("object", names=tuple(properties), parts=parts, nullable=True)

    def _only_alternative(self, schemas: Any, keyword: str, within: tuple[str, ...], depth: int) -> WireType:
        found = alternatives(schemas)
        if len(found) != 1:
            return _refused(f"found {keyword} of {len(found)} schemas; a column has one type besides null")
        return self.type(found[0], within, depth)

    def _referred(self, target: Any, within: tuple[str, ...], depth: int) -> WireType:
        shown = repr(str(target)[:60])
        if target in within or target == "#":
            return _refused(f"the schema at $ref {shown} contains itself, which columns cannot")
        if not isinstance(target, str) or not target.startswith("#/"):
            return _refused(f"found $ref {shown}, which points outside the schema; allowed: #/…")
        schema = referred(self._document, target)
        if schema is None:
            return _refused(f"found $ref {shown}, which points nowhere")
        return self.type(schema, (*within, target), depth)


def _doc(schema: Any) -> str:
    doc = schema.get("description", schema.get("title")) if isinstance(schema, dict) else None
    return doc if isinstance(doc, str) else ""


def json_schema_descriptions(text: str) -> dict[str, str]:
    """Return what a JSON Schema says about its properties; nothing for a text that no parser reads."""
    try:
        return _tree(text).descriptions
    except (RecursionError, ValueError, TypeError, AttributeError):
        return {}


def _connected(found: WireType, schema: Mapping[str, Any]) -> WireType:
    """Return the type with what Kafka Connect's converter says of it."""
    precision, scale = decimals_of(schema.get("connect.parameters"))
    kind, meaning = text_of(schema.get("connect.type") or "any"), text_of(schema.get("title") or "")
    return replace(found, kind=kind, plain=found.kind, meaning=meaning, precision=precision, scale=scale)


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
