"""JSON behind Confluent's wire format, as its JSON Schema serializers write it, and Kafka Connect's converter.

A record is judged by the table's declared schema, as in the format `json`; its JSON schema is not evaluated, except for what Connect
says in it of decimals, times and bytes. The serializers did that when the record was written, and what of it matters for the table (types, nulls, ranges of
numbers) is checked here exactly, while constraints like `pattern` say nothing about whether a row can be stored.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hudi_ingest.records.convert.connect_json import PayloadReader
from hudi_ingest.records.convert.connect_schema import parse_json_schema
from hudi_ingest.records.convert.converter import Decoded, Options
from hudi_ingest.records.convert.json import JsonConverter, as_records
from hudi_ingest.records.convert.mismatch import Mismatch
from hudi_ingest.records.convert.options import one_option
from hudi_ingest.records.convert.values import Indexes, regrouped
from hudi_ingest.records.convert.wire_format import SchemaLookup, select_known, split_schema_ids, unusable_schema


def json_schema_converter(schema: pa.Schema, options: Options) -> JsonSchemaConverter:
    """`schemas`, a SchemaLookup of JSON schemas, is the one option. Raises ValueError when it is missing, or when a type in
    the schema cannot be read from JSON."""
    return JsonSchemaConverter(schema, one_option("json_schema", options, "schemas"))


class JsonSchemaConverter:
    """Takes the header off, refuses schema ids that the registry does not have, and decodes the rest as JSON.

    `decode` raises what `SchemaLookup` raises when it cannot be asked.
    """

    def __init__(self, schema: pa.Schema, schemas: SchemaLookup) -> None:
        self._schema = schema
        self._schemas = schemas
        self._json = JsonConverter(schema)
        self._readers: dict[int, JsonConverter | PayloadReader] = {}
        """By ids that the registry has. What an id means never changes, so it is no state that a record depends on."""

    def __reduce__(self) -> tuple[type[JsonSchemaConverter], tuple[pa.Schema, SchemaLookup]]:
        return (JsonSchemaConverter, (self._schema, self._schemas))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        framed = split_schema_ids(values)
        faults: dict[int, Mismatch] = {}
        ids = np.unique(framed.schema_ids).tolist()
        readers = {schema_id: reader for schema_id in ids if (reader := self._reader(schema_id, faults)) is not None}
        known = select_known(framed, [*readers], "JSON", faults)
        groups: list[tuple[Indexes | None, Decoded]] = []
        for schema_id, reader in readers.items():
            part = known.of_schema(schema_id)
            groups.append((part.indexes, reader.decode(as_records(part.payloads, self._schema))))
        return regrouped(self._schema, len(values), groups, [*framed.rejected, *known.rejected])

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return self._json.fields(split_schema_ids(values).payloads, within)

    def _reader(self, schema_id: int, faults: dict[int, Mismatch]) -> JsonConverter | PayloadReader | None:
        if schema_id in self._readers:
            return self._readers[schema_id]
        try:
            registered = self._schemas.schema(schema_id)
            if registered is None:
                return None
            connect = parse_json_schema(registered.text)
            reader = self._json if connect is None else PayloadReader(self._schema, connect)
        except ValueError as problem:
            faults[schema_id] = unusable_schema(problem)
            return None
        self._readers[schema_id] = reader
        return reader
