"""Log files of MERGE_ON_READ tables as bytes: a name, data blocks and delete blocks. Pure.

A block is `#HUDI#`, the length of what follows (8 bytes), the log format's version (4), the block's kind (4), the header, the
content's length (8) and the content, the footer, and the length of all of this before (8); all numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.hudi.files.avro_rows import avro_rows, big_endian_lengths
from hudi_ingest.records.record_keys import is_ordering_type

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
DELETE_BLOCK = 1
AVRO_BLOCK = 3
PARQUET_BLOCK = 5
INSTANT_HEADER = 0
SCHEMA_HEADER = 2
_CONTENT_VERSION = 3
"""Of the content of delete blocks, Avro's HoodieDeleteRecordList, and of Avro blocks."""

_EXACT = Context(prec=2 * 38)

_LONG, _STRING, _DECIMAL, _SEVERAL = 3, 7, 9, 12
"""Branches of the union of an ordering value."""
_DECIMAL_SCALE = 15
"""Of all decimals among them."""


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
    folder = _text(partition_path.encode())
    values = [b"".join(parts) for parts in zip(*map(_wrapped, ordering), strict=True)]
    if len(ordering) > 1:
        array = _long(_SEVERAL) + _long(1) + _long(len(ordering))
        values = [array + value + b"\0" for value in values]
    records = [
        b"\x02%b\x02%b%b" % (_text(key), folder, value)
        for key, value in zip(keys.cast(pa.binary()).to_pylist(), values, strict=True)
    ]
    count = _long(len(records)) if records else b""  # 0 would end the list
    deletes = b"".join((count, *records, b"\0"))
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
    texts = {key: text.encode() for key, text in entries.items()}
    parts = [struct.pack(">ii", key, len(text)) + text for key, text in texts.items()]
    return struct.pack(">i", len(parts)) + b"".join(parts)


def _long(number: int) -> bytes:
    """Avro's variable-length zig-zag encoding."""
    number = (number << 1) ^ (number >> 63)
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _text(text: bytes) -> bytes:
    return _long(len(text)) + text


def _decimal(value: Decimal) -> bytes:
    unscaled = int(value.scaleb(_DECIMAL_SCALE, _EXACT))
    return _text(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True))


_WRAPPERS: Mapping[pa.DataType, tuple[int, pa.DataType, Callable[..., bytes]]] = {
    pa.int64(): (_LONG, pa.int64(), _long),
    # As Spark has it in a row, with which a delete is compared; the union's own branch for timestamps compares as greater.
    pa.timestamp("us", tz="UTC"): (_LONG, pa.int64(), _long),
    pa.string(): (_STRING, pa.binary(), _text),
}
"""Of each type: its branch, the Arrow type whose Python values are encoded, and how."""


def _wrapped(values: pa.Array | pa.ChunkedArray) -> list[bytes]:
    """Encode ordering values with their types."""
    if not is_ordering_type(values.type):
        raise ValueError(f"{values.type} cannot order changes")
    if values.null_count:
        raise ValueError("an ordering value is null")
    if pa.types.is_decimal(values.type):
        branch, plain, encode = _DECIMAL, values.type, _decimal
    else:
        branch, plain, encode = _WRAPPERS[values.type]
    prefix = _long(branch)
    return [prefix + encode(value) for value in values.cast(plain).to_pylist()]
