"""Log files of MERGE_ON_READ tables as bytes: a name, data blocks and delete blocks. Pure.

A block is `#HUDI#`, the length of what follows (8 bytes), the log format's version (4), the block's kind (4), the header, the
content's length (8) and the content, the footer, and the length of all of this before (8); all numbers are big-endian.

Rows become Avro datums column by column, with Arrow and numpy: a loop over rows would take as long as the rest of a small
transaction. `HoodieSchemaUtils` says which Avro type a column has, so the schema is Hudi's, and only its types are known here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.avro_bytes import fixed, joined, long_bytes, longs, texts, with_length
from hudi_ingest.records.hudi_keys import is_ordering_type

_DECIMAL_BYTES = 16
"""Bytes of one Arrow decimal128 value."""
Schema = str | Mapping[str, Any] | Sequence[Any]


def avro_rows(rows: pa.Table, schema: str) -> pa.Array:
    """Encode each row as a datum of a record schema (JSON), whose fields are among the columns; returns binary values.

    Raises ValueError for a null that the schema does not allow, or a type that Hudi gives no column.
    """
    record = json.loads(schema)
    encoder = _Encoder()
    return joined([encoder.column(rows[field["name"]], field["type"]) for field in encoder.fields(record)])


def big_endian_lengths(values: pa.Array) -> pa.Array:
    """The number of bytes of each value, as 4 bytes."""
    return fixed(pc.binary_length(values).to_numpy().astype(">i4"))


class _Encoder:
    """Encodes arrays. Keeps the schemas that have a name, because Avro spells each out only once."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}

    def fields(self, record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        self._remember(record)
        fields: Sequence[Mapping[str, Any]] = record["fields"]
        return fields

    def column(self, values: pa.ChunkedArray, schema: Schema) -> pa.Array:
        """Encode a column; one of a few different values, kept as a dictionary, is encoded once for each of these."""
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], values.type)
        if pa.types.is_dictionary(array.type) and not array.null_count:
            return self.values(array.dictionary, schema).take(array.indices)
        return self.values(array, schema)

    def values(self, values: pa.Array, schema: Schema) -> pa.Array:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if isinstance(schema, list):
            return self._union(values, schema)
        if values.null_count:
            raise ValueError(f"a null of type {values.type}, where the schema has {schema}")
        return self._plain(values, schema)

    def _union(self, values: pa.Array, branches: Sequence[Schema]) -> pa.Array:
        """Encode a union of null and one more type."""
        if len(branches) != 2 or "null" not in branches:
            raise ValueError(f"a union of {branches}")
        null = branches.index("null")
        present = joined([_branch(1 - null), self._plain(values.drop_null(), branches[1 - null])], len(values))
        if not values.null_count:
            return present
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return present.take(pa.array(np.cumsum(valid) - 1, mask=~valid)).fill_null(_branch(null))

    def _plain(self, values: pa.Array, schema: Schema) -> pa.Array:
        """Encode values without nulls."""
        if isinstance(schema, str):
            named = self._named.get(schema)
            return self._simple(values, schema) if named is None else self._plain(values, named)
        assert isinstance(schema, Mapping)
        kind = schema["type"]
        if kind == "record":
            return self._record(values, schema)
        if kind == "fixed":
            self._remember(schema)
            return _decimals(values, schema)
        return self._plain(values, kind)

    def _record(self, values: pa.Array, schema: Mapping[str, Any]) -> pa.Array:
        fields = self.fields(schema)
        return joined(
            [self.values(pc.struct_field(values, field["name"]), field["type"]) for field in fields], len(values)
        )

    def _remember(self, schema: Mapping[str, Any]) -> None:
        self._named[schema["name"]] = schema
        if schema.get("namespace"):
            self._named[f"{schema['namespace']}.{schema['name']}"] = schema

    def _simple(self, values: pa.Array, kind: str) -> pa.Array:
        if kind in ("string", "bytes"):
            return texts(values)
        if kind in ("int", "long"):
            return longs(_numbers(values))
        if kind == "boolean":
            return fixed(values.cast(pa.uint8()).to_numpy())
        if kind == "float":
            return fixed(values.to_numpy().astype("<f4"))
        if kind == "double":
            return fixed(values.to_numpy().astype("<f8"))
        raise ValueError(f"{values.type} as Avro's {kind}")


def _branch(number: int) -> bytes:
    return bytes((2 * number,))


def _numbers(values: pa.Array) -> np.ndarray:
    """Whole numbers of any width; times as their number of microseconds, dates of days."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    elif pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    numbers: np.ndarray = values.to_numpy().astype(np.int64)
    return numbers


def _decimals(values: pa.Array, schema: Mapping[str, Any]) -> pa.Array:
    """Two's complement, big-endian, in the schema's number of bytes."""
    values = values.cast(pa.decimal128(schema["precision"], schema["scale"]))
    bytes_of_values = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    start, end = values.offset * _DECIMAL_BYTES, (values.offset + len(values)) * _DECIMAL_BYTES
    return fixed(bytes_of_values[start:end].reshape(-1, _DECIMAL_BYTES)[:, schema["size"] - 1 :: -1])


MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
DELETE_BLOCK = 1
AVRO_BLOCK = 3
PARQUET_BLOCK = 5
INSTANT_HEADER = 0
SCHEMA_HEADER = 2
_CONTENT_VERSION = 3
"""Versions of the content of delete blocks, Avro's HoodieDeleteRecordList, and of Avro blocks."""
_EXACT = Context(prec=2 * 38)
_LONG, _STRING, _DECIMAL, _SEVERAL = 3, 7, 9, 12
"""Branches of the union of an ordering value."""
DECIMAL_SCALE = 15
"""Scale of all decimals among them."""


def log_file_name(file_id: str, instant: str, write_token: str) -> str:
    """Return the name of a log file. Readers merge an instant's files of one group in the order of their tokens, as text."""
    return f".{file_id}_{instant}.log.1_{write_token}"


def parquet_block(instant: str, schema: str, parquet: bytes) -> bytes:
    """Return a block of rows: a Parquet file with Hudi's columns, and the Avro schema of these."""
    return _block(PARQUET_BLOCK, {INSTANT_HEADER: instant, SCHEMA_HEADER: schema}, parquet)


def avro_block(instant: str, schema: str, rows: pa.Table) -> bytes:
    """Return a block of rows, with Hudi's columns, as Avro datums of the schema. Raises what `avro_rows` raises."""
    datums = avro_rows(rows, schema)
    framed = pc.binary_join_element_wise(big_endian_lengths(datums), datums, b"")
    content = struct.pack(">ii", _CONTENT_VERSION, len(framed)) + b"".join(framed.to_pylist())
    return _block(AVRO_BLOCK, {INSTANT_HEADER: instant, SCHEMA_HEADER: schema}, content)


def delete_block(
    instant: str, schema: str, partition_path: str, keys: pa.Array, ordering: Sequence[pa.Array | pa.ChunkedArray]
) -> bytes:
    """Return a block of deletes: their record keys (string) and the columns of their ordering values.

    Raises ValueError for a null or a type that cannot order changes (`is_ordering_type`).
    """
    folder = with_length(partition_path.encode())
    values = [*map(_wrapped, ordering)]
    if len(ordering) > 1:
        values = [long_bytes(_SEVERAL) + long_bytes(1) + long_bytes(len(ordering)), *values, b"\0"]
    records = joined([b"\x02", texts(keys), b"\x02" + folder, *values], len(keys))
    count = long_bytes(len(records)) if len(records) else b""  # 0 would end the list
    deletes = b"".join((count, *records.to_pylist(), b"\0"))
    content = struct.pack(">ii", _CONTENT_VERSION, len(deletes)) + deletes
    return _block(DELETE_BLOCK, {INSTANT_HEADER: instant, SCHEMA_HEADER: schema}, content)


def _block(kind: int, headers: Mapping[int, str], content: bytes) -> bytes:
    header, footer = _metadata(headers), _metadata({})
    length = 4 + 4 + len(header) + 8 + len(content) + len(footer) + 8
    return b"".join(
        (
            MAGIC,
            struct.pack(">qii", length, FORMAT_VERSION, kind),
            header,
            struct.pack(">q", len(content)),
            content,
            footer,
            struct.pack(">q", len(MAGIC) + length),
        )
    )


def _metadata(entries: Mapping[int, str]) -> bytes:
    encoded = {key: text.encode() for key, text in entries.items()}
    parts = [struct.pack(">ii", key, len(text)) + text for key, text in encoded.items()]
    return struct.pack(">i", len(parts)) + b"".join(parts)


def _decimal(value: Decimal) -> bytes:
    unscaled = int(value.scaleb(DECIMAL_SCALE, _EXACT))
    return with_length(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True))


def _wrapped(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Encode ordering values with their types."""
    if not is_ordering_type(values.type):
        raise ValueError(f"{values.type} cannot order changes")
    if values.null_count:
        raise ValueError("an ordering value is null")
    if pa.types.is_decimal(values.type):
        branch, encoded = _DECIMAL, pa.array([*map(_decimal, values.to_pylist())], pa.binary())
    elif pa.types.is_string(values.type):
        branch, encoded = _STRING, texts(values)
    else:
        # Times, too, as Spark has them in a row, with which a delete is compared; the union's own branch for timestamps compares as
        # greater.
        branch, encoded = _LONG, longs(_numbers(values))
    return joined([long_bytes(branch), encoded], len(values))
