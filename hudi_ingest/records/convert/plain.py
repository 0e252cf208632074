"""A whole value as one column: `string` (UTF-8 text) and `bytes`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Decoded, Options, Rejected
from hudi_ingest.records.convert.options import refuse_options
from hudi_ingest.records.convert.values import decoded, require_values, value_bytes


def string_converter(schema: pa.Schema, options: Options) -> StringConverter:
    """Create the converter. Raises ValueError unless the schema is one string column, of any name, and there are no options."""
    refuse_options("string", options)
    return StringConverter(schema)


def bytes_converter(schema: pa.Schema, options: Options) -> BytesConverter:
    """Create the converter. Raises ValueError unless the schema is one binary or number column, of any name, and there are no
    options."""
    refuse_options("bytes", options)
    return BytesConverter(schema)


class StringConverter:
    """Decodes each value as UTF-8 text; other bytes are rejected. An empty value is an empty string."""

    def __init__(self, schema: pa.Schema) -> None:
        _require_one_column("string", schema, "string", pa.types.is_string)
        self._schema = schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        rejected: list[Rejected] = []
        try:
            text = values.cast(pa.string())
        except pa.ArrowInvalid:
            rejected = [fault for index, value in enumerate(values.to_pylist()) for fault in self._faults(index, value)]
            good = np.ones(len(values), np.bool_)
            good[[fault.index for fault in rejected]] = False
            text = values.filter(pa.array(good)).cast(pa.string())
        return decoded(pa.RecordBatch.from_arrays([text], schema=self._schema), len(values), rejected)

    def _faults(self, index: int, value: bytes) -> list[Rejected]:
        try:
            value.decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"bytes that are not UTF-8, at byte {error.start}"
            return [Rejected(index, self._schema.names[0], "string in UTF-8", found)]
        return []


_NUMBERS = {pa.int32(): ">i4", pa.int64(): ">i8", pa.float32(): ">f4", pa.float64(): ">f8"}


class BytesConverter:
    """Keeps each value as it is, or reads it as the big-endian number that Kafka's own serializers write."""

    def __init__(self, schema: pa.Schema) -> None:
        _require_one_column(
            "bytes",
            schema,
            "binary, int, long, float or double",
            lambda type_: type_ == pa.binary() or type_ in _NUMBERS,
        )
        self._schema = schema
        self._number = _NUMBERS.get(schema.field(0).type)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        require_values(values)
        if self._number is None:
            return Decoded(pa.RecordBatch.from_arrays([values], schema=self._schema), None, ())
        number = np.dtype(self._number)
        lengths = pc.binary_length(values).to_numpy(zero_copy_only=False)
        good = lengths == number.itemsize
        expected = f"{number.itemsize} bytes, a big-endian {self._schema.field(0).type}"
        rejected = [
            Rejected(index, self._schema.names[0], expected, f"{lengths[index]} bytes")
            for index in np.flatnonzero(~good).tolist()
        ]
        data, starts = value_bytes(values)
        places = starts[:-1][good][:, None] + np.arange(number.itemsize)
        numbers = data[places].reshape(-1).view(number)
        column = pa.array(numbers.astype(number.newbyteorder("=")), self._schema.field(0).type)
        return decoded(pa.RecordBatch.from_arrays([column], schema=self._schema), len(values), rejected)


def _require_one_column(format: str, schema: pa.Schema, required: str, fits: Callable[[pa.DataType], bool]) -> None:
    if len(schema) != 1 or not fits(schema.field(0).type):
        columns = ", ".join(f"{column.name} {column.type}" for column in schema) or "none"
        raise ValueError(
            f"format {format}: the schema must be one column of type {required}, of any name; found {columns}"
        )
