"""JSON behind Confluent's wire format, as its JSON Schema serializers write it.

A record is judged by the table's declared schema, as in the format `json`; its JSON schema is not evaluated. The
serializers did that when the record was written, and what of it matters for the table (types, nulls, ranges of
numbers) is checked here exactly, while constraints like `pattern` say nothing about whether a row can be stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.convert import Decoded, Options
from hudi_ingest.convert.json import JsonConverter
from hudi_ingest.convert.options import read_options
from hudi_ingest.convert.values import regrouped
from hudi_ingest.convert.wire_format import select_known, split_schema_ids


@dataclass(frozen=True)
class JsonSchemaOptions:
    """What the driver found in the schema registry."""

    schema_ids: frozenset[int]
    """Ids of the schemas that the topic's records may have."""


def json_schema_converter(schema: pa.Schema, options: Options) -> JsonSchemaConverter:
    """Raises ValueError when a type in the schema cannot be read from JSON, or an option is wrong."""
    return JsonSchemaConverter(schema, read_options(JsonSchemaOptions, "json_schema", options))


class JsonSchemaConverter:
    """Takes the header off, refuses schema ids that are not known, and decodes the rest as JSON."""

    def __init__(self, schema: pa.Schema, options: JsonSchemaOptions) -> None:
        self._schema = schema
        self._known = options.schema_ids
        self._json = JsonConverter(schema)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        framed = split_schema_ids(values)
        known = select_known(framed, self._known)
        part = self._json.decode(known.payloads)
        return regrouped(self._schema, len(values), [(known.indexes, part)], [*framed.rejected, *known.rejected])
