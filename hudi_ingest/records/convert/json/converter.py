"""JSON records -> rows: by the compiled `kernel` those that it can prove, the others one by one.

`exact` says what is accepted. The fast path accepts a subset of it, with equal values: whatever it doubts goes to the exact
path, so the outcome for a record depends on neither the path nor its neighbours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Decoded, Options
from hudi_ingest.records.convert.fast_path import Proved, decode_in_pieces, record_by_record
from hudi_ingest.records.convert.json.exact import RecordReader
from hudi_ingest.records.convert.json.kernel.columns import MARGIN, Columns, Tables, has_escaped_name, nodes_of
from hudi_ingest.records.convert.values import refuse_options, require_values

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


FEW_BYTES = 256 * 1024
"""The first records of a process that are read exactly: that takes 20 ms, and loading the kernel half a second."""

_KERNEL = "hudi_ingest.records.convert.json.kernel.records"
_PROBED = 64
"""Records from which the room for the others is estimated."""


def can_read(schema: pa.Schema) -> bool:
    """Whether this converter can read a schema whose types `json.exact` can read."""
    return not has_escaped_name(nodes_of(schema))


class FastPath:
    """Records of one schema that `can_read` knows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._few = FEW_BYTES

    @cached_property
    def _tables(self) -> Tables:
        # Most converters are made only to find out whether they can be.
        return Tables(self._schema)

    def is_worth_it(self, values: pa.BinaryArray) -> bool:
        """Whether the kernel is loaded, or there are enough records to load it for them."""
        if _KERNEL in sys.modules:
            return True
        self._few -= values.nbytes
        return self._few < 0

    def read(self, values: pa.BinaryArray) -> Proved:
        """Rows of the values that are proved. `values`: at least one, no nulls."""
        from hudi_ingest.records.convert.json.kernel.records import read_records

        starts = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
        text_bytes = int(starts[-1] - starts[0])
        probed = min(_PROBED, len(values))
        columns = Columns(self._tables, len(values), int(starts[probed] - starts[0]), text_bytes)
        doubtful = np.zeros(len(values), np.bool_)
        for portion in _portions(values, starts):
            first = portion.first
            while True:
                first = read_records(
                    columns.state_address,
                    portion.data_address,
                    starts.ctypes.data,
                    doubtful.ctypes.data,
                    first,
                    portion.last,
                )
                if first == portion.last:
                    break
                columns.enlarge(first, int(starts[first + 1] - starts[first]))
            if first == probed < len(values):
                columns.foresee(probed, 2 * text_bytes // len(values))
        rows = columns.batch(self._schema)
        if all(column.null_count for column in rows.columns):
            # A row of nulls may be all that is left of an envelope, which the exact path refuses.
            empty = np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in rows.columns])
            doubtful[np.flatnonzero(~doubtful)[empty]] = True
            rows = rows.filter(pa.array(~empty))
        return Proved(rows, ~doubtful if doubtful.any() else None)


@dataclass(frozen=True)
class _Portion:
    """Records `first` to `last` of a batch, whose offsets count from the data's address."""

    first: int
    last: int
    data_address: int
    data: object
    """Keeps what is at the address."""


def _portions(values: pa.BinaryArray, starts: npt.NDArray[np.int32]) -> Iterator[_Portion]:
    """The first ones, the others, and those at the end of the buffer in a copy, behind which the kernel may read."""
    data = values.buffers()[2]
    size = data.size if data is not None else 0
    safe = int(np.searchsorted(starts[1:], size - MARGIN, side="right"))
    probed = min(_PROBED, safe)
    if probed:
        yield _Portion(0, probed, data.address, data)
    if probed < safe:
        yield _Portion(probed, safe, data.address, data)
    if safe < len(values):
        begin, end = int(starts[safe]), int(starts[-1])
        copy = np.zeros(end - begin + MARGIN, np.uint8)
        if end > begin:
            copy[:-MARGIN] = np.frombuffer(data, np.uint8, end - begin, begin)
        yield _Portion(safe, len(values), copy.ctypes.data - begin, copy)
