"""JSON behind Confluent's wire format, as its JSON Schema serializers write it.

A record is judged by the table's declared schema, as in the format `json`; its JSON schema is not evaluated. The
serializers did that when the record was written, and what of it matters for the table (types, nulls, ranges of
numbers) is checked here exactly, while constraints like `pattern` say nothing about whether a row can be stored.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hudi_ingest.records.convert.converter import Decoded, Options
from hudi_ingest.records.convert.json import JsonConverter
from hudi_ingest.records.convert.mismatch import Mismatch
from hudi_ingest.records.convert.options import one_option
from hudi_ingest.records.convert.values import regrouped
from hudi_ingest.records.convert.wire_format import SchemaLookup, select_known, split_schema_ids, unusable_schema
from hudi_ingest.records.schema.registered import UnusableSchema


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
        self._known: set[int] = set()
        """Ids that the registry has. What an id means never changes, so it is no state that a record depends on."""

    def __reduce__(self) -> tuple[type[JsonSchemaConverter], tuple[pa.Schema, SchemaLookup]]:
        return (JsonSchemaConverter, (self._schema, self._schemas))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        framed = split_schema_ids(values)
        faults: dict[int, Mismatch] = {}
        ids = [schema_id for schema_id in np.unique(framed.schema_ids).tolist() if self._knows(schema_id, faults)]
        known = select_known(framed, ids, "JSON", faults)
        part = self._json.decode(known.payloads)
        return regrouped(self._schema, len(values), [(known.indexes, part)], [*framed.rejected, *known.rejected])

    def _knows(self, schema_id: int, faults: dict[int, Mismatch]) -> bool:
        if schema_id in self._known:
            return True
        try:
            registered = self._schemas.schema(schema_id)
        except UnusableSchema as problem:
            faults[schema_id] = unusable_schema(problem)
            return False
        if registered is not None:
            self._known.add(schema_id)
        return registered is not None
