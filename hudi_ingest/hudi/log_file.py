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

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
DELETE_BLOCK = 1
PARQUET_BLOCK = 5
INSTANT_HEADER = 0
SCHEMA_HEADER = 2
_DELETES_VERSION = 3
"""Of a delete block's content: Avro's HoodieDeleteRecordList."""

DECIMAL_SCALE = 15
DECIMAL_DIGITS = 15
"""A delete's decimal has at most so many digits before and after the point."""

_EXACT = Context(prec=2 * 38)

_INT, _LONG, _STRING, _DATE, _DECIMAL, _TIMESTAMP, _SEVERAL = 2, 3, 7, 8, 9, 11, 12
"""Branches of the union of an ordering value."""


def log_file_name(file_id: str, instant: str, version: int, write_token: str) -> str:
    """Return the name of a log file. Readers of an instant's files of one group take them by version, then by token (as text)."""
    return f".{file_id}_{instant}.log.{version}_{write_token}"


def data_block(instant: str, schema: str, parquet: bytes) -> bytes:
    """Return a block of rows: a Parquet file with Hudi's columns, and the Avro schema of these."""
    return _block(PARQUET_BLOCK, {INSTANT_HEADER: instant, SCHEMA_HEADER: schema}, parquet)


def delete_block(
    instant: str, schema: str, partition_path: str, keys: pa.Array, ordering: Sequence[pa.Array | pa.ChunkedArray]
) -> bytes:
    """Return a block of deletes: their record keys (string) and the columns of their ordering values.

    Raises ValueError for a type that is not among ORDERING_TYPES, and for a decimal that is out of a delete's range.
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
    content = struct.pack(">ii", _DELETES_VERSION, len(deletes)) + deletes
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
    unscaled = int(value.scaleb(DECIMAL_SCALE, _EXACT))
    if abs(unscaled) >= 10 ** (DECIMAL_DIGITS + DECIMAL_SCALE):
        raise ValueError(f"{value} has more than {DECIMAL_DIGITS} digits before the point")
    return _text(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True))


_WRAPPERS: Mapping[pa.DataType, tuple[int, pa.DataType, Callable[..., bytes]]] = {
    pa.int32(): (_INT, pa.int32(), _long),
    pa.int64(): (_LONG, pa.int64(), _long),
    pa.string(): (_STRING, pa.binary(), _text),
    pa.date32(): (_DATE, pa.int32(), _long),
    pa.timestamp("us", tz="UTC"): (_TIMESTAMP, pa.int64(), _long),
}
"""Of each type: its branch, the Arrow type whose Python values are encoded, and how."""
ORDERING_TYPES = "int, long, string, date, timestamp, decimal(p,s) with s and p - s up to 15"
"""Of columns that order changes; others have no encoding in a delete, or (float, double) values without an order."""


def is_ordering_type(kind: pa.DataType) -> bool:
    """Return whether a column of this type can order changes; see ORDERING_TYPES."""
    if pa.types.is_decimal(kind):
        return bool(kind.scale <= DECIMAL_SCALE and kind.precision - kind.scale <= DECIMAL_DIGITS)
    return kind in _WRAPPERS


def _wrapped(values: pa.Array | pa.ChunkedArray) -> list[bytes]:
    """Encode ordering values, none null, with their types."""
    if not is_ordering_type(values.type):
        raise ValueError(f"{values.type} cannot order changes; possible are {ORDERING_TYPES}")
    if pc.any(pc.is_null(values)).as_py():
        raise ValueError("an ordering value is null")
    if pa.types.is_decimal(values.type):
        branch, plain, encode = _DECIMAL, values.type, _decimal
    else:
        branch, plain, encode = _WRAPPERS[values.type]
    prefix = _long(branch)
    return [prefix + encode(value) for value in values.cast(plain).to_pylist()]
