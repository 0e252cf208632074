"""JSON records -> rows: a whole batch by `json_fast` where that is proved right, record by record where it is not.

`json_exact` says what is accepted. The fast path accepts a subset of it, with equal values: whatever it doubts goes
to the exact path, so the outcome for a record depends on neither the path nor its neighbours.
"""

from __future__ import annotations

import pyarrow as pa

from hudi_ingest.records.convert import json_fast
from hudi_ingest.records.convert.converter import Decoded, Options
from hudi_ingest.records.convert.fast_path import decode_in_pieces, record_by_record
from hudi_ingest.records.convert.json_exact import RecordReader
from hudi_ingest.records.convert.options import refuse_options
from hudi_ingest.records.convert.values import require_values


def json_converter(schema: pa.Schema, options: Options) -> JsonConverter:
    """Raises ValueError when a type in the schema cannot be read from JSON, or there are options."""
    refuse_options("json", options)
    return JsonConverter(schema)


class JsonConverter:
    """Decodes JSON objects to rows of `schema`; fields that it does not declare are ignored.

    Raises ValueError at construction when a type in the schema cannot be read from JSON. Schemas with a map are read
    record by record, because pyarrow's parser has no maps.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._exact = record_by_record(schema, RecordReader(schema).read)
        has_map = any(json_fast.holds(field.type, pa.types.is_map) for field in schema)
        self._fast = None if has_map else json_fast.FastPath(schema)

    def __reduce__(self) -> tuple[type[JsonConverter], tuple[pa.Schema]]:
        return (JsonConverter, (self._schema,))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values`: binary, no nulls. Raises TypeError or ValueError when it is not that; bad content never raises."""
        require_values(values)
        fast = self._fast.read if self._fast else None
        return decode_in_pieces(self._schema, values, fast, self._exact, json_fast.LIMITS)
