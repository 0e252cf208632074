"""Avro's binary encoding: numbers, texts, blocks of items, values of a schema, container files. Pure.

Readers raise ValueError for bytes that are not there, and for a number of more than 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MAX_LONG_BYTES = 10
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_EXACT = Context(prec=2 * 38)


class EndOfBytes(ValueError):
    """Something begins that is longer than the bytes that are left."""


class AvroBytes:
    """Bytes that are read from a place on."""

    __slots__ = ("at", "content")

    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content = content
        self.at = at

    def long(self) -> int:
        """Read a number in variable-length zig-zag encoding."""
        number = 0
        for place in range(_MAX_LONG_BYTES):
            if self.at >= len(self.content):
                raise EndOfBytes("the end of the value")
            byte = self.content[self.at]
            self.at += 1
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if number >> 64:
                    raise ValueError("a number of more than 64 bits")
                return (number >> 1) ^ -(number & 1)
        raise ValueError(f"a number of more than {_MAX_LONG_BYTES} bytes")

    def take(self, size: int) -> bytes:
        if size < 0:
            raise ValueError(f"a length of {size}")
        begin, self.at = self.at, self.at + size
        if self.at > len(self.content):
            raise EndOfBytes(f"{size} bytes from {begin} on are not there")
        return self.content[begin : self.at]

    def bytes(self) -> bytes:
        """Read bytes behind their length."""
        return self.take(self.long())

    def text(self) -> str:
        return self.bytes().decode()

    def items(self) -> Iterator[int]:
        """Yield once before each item of an array or a map."""
        while count := self.long():
            if count < 0:
                # The block's size in bytes follows.
                self.long()
            yield from range(abs(count))


Read = Callable[[AvroBytes], Any]


class ValueReaders:
    """Makes readers of a schema's values, decimals included; other logical types are read as the plain values. Knows the types that
    have a name. `entries` makes a map of its keys and values."""

    def __init__(self, entries: Callable[[Iterable[tuple[str, Any]]], Any] = list) -> None:
        self._entries = entries
        self._named: dict[str, Read] = {}

    def of(self, schema: Any) -> Read:
        """Return the reader of a type. Raises KeyError for a type that Avro does not have."""
        if isinstance(schema, list):
            branches = [self.of(branch) for branch in schema]
            return lambda data: branches[data.long()](data)
        if isinstance(schema, str):
            return self._named[schema] if schema in self._named else _SIMPLE[schema]
        kind = schema["type"]
        if kind == "record":
            members = [(field["name"], self.of(field["type"])) for field in schema["fields"]]
            return self._remember(schema, lambda data: {name: read(data) for name, read in members})
        if kind == "fixed":
            size = schema["size"]
            return self._remember(schema, _decimal(schema, lambda data: data.take(size)))
        if kind == "array":
            item = self.of(schema["items"])
            return lambda data: [item(data) for _ in data.items()]
        if kind == "map":
            value = self.of(schema["values"])
            return lambda data: self._entries((data.text(), value(data)) for _ in data.items())
        return _decimal(schema, self.of(kind))

    def _remember(self, schema: Mapping[str, Any], read: Read) -> Read:
        self._named[schema["name"]] = self._named[f"{schema.get('namespace', '')}.{schema['name']}"] = read
        return read


def _decimal(schema: Mapping[str, Any], read: Read) -> Read:
    """Read bytes as the decimals that they are if the schema says so."""
    if schema.get("logicalType") != "decimal":
        return read
    scale = schema.get("scale", 0)
    return lambda data: Decimal(int.from_bytes(read(data), "big", signed=True)).scaleb(-scale, _EXACT)


_SIMPLE: Mapping[str, Read] = {
    "null": lambda data: None,
    "boolean": lambda data: data.take(1) != b"\0",
    "int": AvroBytes.long,
    "long": AvroBytes.long,
    "float": lambda data: struct.unpack("<f", data.take(4))[0],
    "double": lambda data: struct.unpack("<d", data.take(8))[0],
    "bytes": AvroBytes.bytes,
    "string": AvroBytes.text,
}


def container(content: bytes) -> tuple[dict[str, bytes], list[tuple[int, bytes]]]:
    """Return a container file's header, and of each block the number of values and their bytes. Raises ValueError if it is not whole."""
    if not content.startswith(_MAGIC):
        raise ValueError("no Avro file")
    data = AvroBytes(content, len(_MAGIC))
    header = {data.text(): data.bytes() for _ in data.items()}
    marker, blocks = data.take(_SYNC_BYTES), []
    while data.at < len(content):
        blocks.append((data.long(), data.bytes()))
        if data.take(_SYNC_BYTES) != marker:
            raise ValueError("a block does not end with the file's marker")
    return header, blocks


def long_bytes(number: int) -> bytes:
    """Encode one number."""
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def with_length(content: bytes) -> bytes:
    """Encode bytes or a text in UTF-8."""
    return long_bytes(len(content)) + content


def joined(parts: Iterable[pa.Array | bytes], count: int | None = None) -> pa.Array:
    """Join encoded columns value by value. `count`: how many values they have, if all of them may be constants."""
    return pa.array([], pa.binary()) if count == 0 else pc.binary_join_element_wise(*parts, b"")


def longs(numbers: np.ndarray) -> pa.Array:
    """Encode each number."""
    numbers = numbers.astype(np.int64)
    encoded = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    longest = max(1, (int(encoded.max(initial=0)).bit_length() + 6) // 7)
    groups = encoded[:, None] >> (7 * np.arange(longest, dtype=np.uint64))
    # A byte is there if it or a later one is not 0, and the first one always.
    lengths = np.maximum((groups != 0).sum(axis=1), 1)
    places = np.arange(longest)
    groups = (groups & np.uint64(0x7F)).astype(np.uint8) | ((places < lengths[:, None] - 1) << 7).astype(np.uint8)
    return _binary(lengths, groups[places < lengths[:, None]])


def texts(values: pa.Array) -> pa.Array:
    """Encode each text or binary value."""
    values = values.cast(pa.binary())
    return joined([longs(pc.binary_length(values).to_numpy()), values], len(values))


def fixed(values: np.ndarray) -> pa.Array:
    """Return values of one size by their bytes."""
    data = np.ascontiguousarray(values)
    size = data.nbytes // len(data) if len(data) else 0
    return _binary(np.full(len(data), size), data.view(np.uint8))


def _binary(lengths: np.ndarray, data: np.ndarray) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )
