"""JSON behind Confluent's wire format, as its JSON Schema serializers write it, and Kafka Connect's converter.

A record is judged by the table's declared schema, as in the format `json`; its JSON schema is not evaluated, except for what Connect
says in it of decimals, times and bytes. The serializers did that when the record was written, and what of it matters for the table (types, nulls, ranges of
numbers) is checked here exactly, while constraints like `pattern` say nothing about whether a row can be stored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from hudi_ingest.records.convert.connect.json import PayloadReader
from hudi_ingest.records.convert.converter import Decoded, Mismatch, Options
from hudi_ingest.records.convert.json.converter import JsonConverter, as_records
from hudi_ingest.records.convert.values import (
    Indexes,
    Refusal,
    RequiredFields,
    after_refusal,
    one_option,
    regrouped,
)
from hudi_ingest.records.convert.wire_format import SchemaLookup, select_known, split_schema_ids, unusable_schema
from hudi_ingest.records.schema.json_schema import alternatives, parse_connect_json_schema, referred
from hudi_ingest.records.schema.registered import RegisteredSchema
from hudi_ingest.records.schema.wire_type import UNKNOWN


@dataclass(frozen=True)
class RegisteredSchemas:
    """A pipeline's settings for JSON Schema values. Picklable."""

    schemas: SchemaLookup
    required: RequiredFields | None = None


def json_schema_converter(schema: pa.Schema, options: Options) -> JsonSchemaConverter:
    """`registered`, a RegisteredSchemas, is the one option. Raises ValueError when it is missing, or when a type in the schema
    cannot be read from JSON."""
    registered: RegisteredSchemas = one_option("json_schema", options, "registered")
    return JsonSchemaConverter(schema, registered.schemas, registered.required)


class JsonSchemaConverter:
    """Takes the header off, refuses schema ids that the registry does not have, and decodes the rest as JSON.

    `required`: a record is bad whose schema does not allow one of these fields. `decode` raises what `SchemaLookup`
    raises when it cannot be asked.
    """

    def __init__(self, schema: pa.Schema, schemas: SchemaLookup, required: RequiredFields | None = None) -> None:
        self._schema = schema
        self._schemas = schemas
        self._required = required
        self._json = JsonConverter(schema)
        self._readers: dict[int, tuple[JsonConverter | PayloadReader, Refusal | None]] = {}
        """Readers by ids that the registry has. The meaning of an id never changes, so it is no state that a record depends on."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (JsonSchemaConverter, (self._schema, self._schemas, self._required))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        framed = split_schema_ids(values)
        faults: dict[int, Mismatch] = {}
        ids = np.unique(framed.schema_ids).tolist()
        readers = {schema_id: found for schema_id in ids if (found := self._reader(schema_id, faults)) is not None}
        known = select_known(framed, [*readers], "JSON", faults)
        groups: list[tuple[Indexes | None, Decoded]] = []
        for schema_id, (reader, refusal) in readers.items():
            part = known.of_schema(schema_id)
            read = reader.decode(as_records(part.payloads, self._schema))
            groups.append((part.indexes, after_refusal(read, refusal, len(part.payloads))))
        return regrouped(self._schema, len(values), groups, [*framed.rejected, *known.rejected])

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return self._json.fields(split_schema_ids(values).payloads, within)

    def _reader(
        self, schema_id: int, faults: dict[int, Mismatch]
    ) -> tuple[JsonConverter | PayloadReader, Refusal | None] | None:
        if schema_id in self._readers:
            return self._readers[schema_id]
        try:
            registered = self._schemas.schema(schema_id)
            if registered is None:
                return None
            connect = parse_connect_json_schema(registered.text)
            reader = self._json if connect is None else PayloadReader(self._schema, connect)
            refusal = self._refusal_of(registered)
        except ValueError as problem:
            faults[schema_id] = unusable_schema(problem)
            return None
        self._readers[schema_id] = reader, refusal
        return reader, refusal

    def _refusal_of(self, registered: RegisteredSchema) -> Refusal | None:
        if self._required is None:
            return None
        shape_of = partial(_shape, column=self._required.record)
        return self._required.refusal_of(shape_of(registered), registered.__eq__, shape_of)


def _shape(schema: RegisteredSchema, column: pa.DataType) -> pa.DataType:
    """Return the shape that `required_fields` takes, for records that `column` takes. A record of Connect has all fields of its schema and no others,
    but plain schemas are open unless they say that they are not."""
    try:
        connect = parse_connect_json_schema(schema.text)
        document = json.loads(schema.text)
        return _closed(document, column, document) if connect is None else connect.shape
    except (ValueError, RecursionError):
        return UNKNOWN


def _closed(schema: Any, column: pa.DataType, document: Any) -> pa.DataType:
    """Only so deep as the column is nested: a schema may contain itself. Raises RecursionError if it only refers to itself."""
    if not isinstance(schema, dict):
        return UNKNOWN
    if isinstance(schema.get("$ref"), str):
        return _closed(referred(document, schema["$ref"]), column, document)
    for keyword in ("oneOf", "anyOf", "allOf"):
        if len(found := alternatives(schema.get(keyword))) == 1 and "properties" not in schema:
            return _closed(found[0], column, document)
    if "items" in schema:
        is_list = pa.types.is_list(column)
        return pa.list_(_closed(schema["items"], column.value_type, document)) if is_list else UNKNOWN
    properties = schema.get("properties")
    if schema.get("additionalProperties") is not False or "patternProperties" in schema or not properties:
        return UNKNOWN
    taken = {field.name: field.type for field in column} if pa.types.is_struct(column) else {}
    return pa.struct(
        [
            pa.field(name, _closed(member, taken[name], document) if name in taken else UNKNOWN)
            for name, member in properties.items()
        ]
    )
