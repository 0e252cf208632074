"""JSON records -> rows: by `json_fast`'s compiled kernel those that it can prove, the others one by one.

`json_exact` says what is accepted. The fast path accepts a subset of it, with equal values: whatever it doubts goes
to the exact path, so the outcome for a record depends on neither the path nor its neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Decoded, Options
from hudi_ingest.records.convert.fast_path import decode_in_pieces, record_by_record
from hudi_ingest.records.convert.json.exact import RecordReader
from hudi_ingest.records.convert.json.fast import FastPath, can_read
from hudi_ingest.records.convert.options import refuse_options
from hudi_ingest.records.convert.values import require_values

_SCALAR = r'^[ \t\r\n]*(?:-?[0-9][0-9.eE+-]*|true|false|null|"(?:[^"\\]|\\.)*")[ \t\r\n]*$'
"""Nothing else matches that would be valid inside an object, so no text becomes more than one member."""


def json_converter(schema: pa.Schema, options: Options) -> JsonConverter:
    """Raises ValueError when a type in the schema cannot be read from JSON, or there are options."""
    refuse_options("json", options)
    return JsonConverter(schema)


class JsonConverter:
    """Decodes JSON objects to rows of `schema`; fields that it does not declare are ignored. `float_texts`: texts that stand for
    floats.

    Raises ValueError at construction when a type in the schema cannot be read from JSON.
    """

    def __init__(self, schema: pa.Schema, float_texts: Mapping[str, float] | None = None) -> None:
        self._schema = schema
        self._float_texts = float_texts
        self._exact = record_by_record(schema, RecordReader(schema, float_texts).read)
        self._fast = FastPath(schema) if can_read(schema) else None

    def __reduce__(self) -> tuple[type[JsonConverter], tuple[pa.Schema, Mapping[str, float] | None]]:
        return (JsonConverter, (self._schema, self._float_texts))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """`values`: binary, no nulls. Raises TypeError or ValueError when it is not that; bad content never raises."""
        require_values(values)
        fast = self._fast.read if self._fast and self._fast.is_worth_it(values) else None
        return decode_in_pieces(self._schema, values, fast, self._exact)

    def fields(self, values: pa.BinaryArray, within: str = "") -> frozenset[str]:
        return field_names(values, within)


def field_names(values: pa.BinaryArray, within: str) -> frozenset[str]:
    """The names of the fields of records, or of those of the object that is their field `within`; bad records have none."""
    names: set[str] = set()
    for value in values.to_pylist():
        try:
            record = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if within:
            record = record.get(within) if isinstance(record, dict) else None
        if isinstance(record, dict):
            names.update(record)
    return frozenset(names)


def as_records(values: pa.BinaryArray, schema: pa.Schema) -> pa.BinaryArray:
    """Make values that are a number, a text, true, false or null the one column of `schema`, if it has one."""
    if len(schema) != 1:
        return values
    alone = pc.match_substring_regex(values, _SCALAR)
    member = pc.binary_join_element_wise(b"{" + json.dumps(schema.names[0]).encode() + b":", values, b"}", b"")
    return pc.if_else(alone, member, values)
