"""Compiled loops that copy librdkafka's messages into Arrow's buffers. Import it only where it runs: see records/compiled.py."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba.core import cgutils, types

from hudi_ingest.kafka.librdkafka import Message, address_of
from hudi_ingest.records.compiled import compiled, intrinsic
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.times import KAFKA_TIME, NO_TIME

Addresses = np.ndarray[Any, np.dtype[np.int64]]
HEADERS = KAFKA_FIELDS["headers"].type

# Offsets of the members of Message.
_TOPIC, _PARTITION, _OFFSET, _VALUE, _KEY = (
    int(getattr(Message, member).offset) for member in ("topic", "partition", "offset", "payload", "key")
)
_LENGTH = 8
"""Bytes from a payload pointer to the field with its length."""
_HEADER_BYTES = 8
"""The size that a header counts for besides its name and value, which may be empty."""
_INT32_MAX = 2**31 - 1

_TIMESTAMP_OF = address_of("rd_kafka_message_timestamp")
_DESTROY = address_of("rd_kafka_message_destroy")
_HEADERS_OF = address_of("rd_kafka_message_headers")
_HEADER_AT = address_of("rd_kafka_header_get_all")


@intrinsic
def _word(typing: Any, address: Any) -> Any:
    """The 64-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))

    return types.int64(types.int64), generate


@intrinsic
def _half_word(typing: Any, address: Any) -> Any:
    """The 32-bit number at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()))
        return builder.sext(half, ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def _byte(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return builder.zext(byte, ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def _copy(typing: Any, target: Any, source: Any, count: Any) -> Any:
    """memcpy."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(argument, pointer) for argument in arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _call(typing: Any, function: Any, arguments: Any) -> Any:
    """Call the C function at an address. A result of 32 bits leaves the upper half undefined."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        unpacked = cgutils.unpack_tuple(builder, values[1], len(arguments))
        kind = ir.FunctionType(word, [word] * len(unpacked))
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), unpacked)

    return types.int64(types.int64, arguments), generate


class Extent(NamedTuple):
    """Consecutive messages of one partition."""

    next: int
    """The place after the last of them."""
    inside: int
    """The place after the last of them whose offset is before the range's end."""
    last_offset: int
    value_bytes: int
    """The size of the values inside."""
    value_nulls: int
    key_bytes: int
    key_nulls: int
    header_bytes: int
    """0 if headers are not read."""

    @property
    def size(self) -> int:
        return self.value_bytes + self.key_bytes + self.header_bytes


@compiled("int64(int64,int64,int64,int64[::1],int64)")
def _size_of_headers(message: int, headers_of: int, header_at: int, out: Addresses, out_address: int) -> int:
    """`out`: room for C's results."""
    if _call(headers_of, (message, out_address)) & 0xFFFFFFFF:
        return 0
    size = index = 0
    headers = out[0]
    while not _call(header_at, (headers, index, out_address + 8, out_address + 16, out_address + 24)) & 0xFFFFFFFF:
        name, value = out[1], out[2]
        length = 0
        while _byte(name + length):
            length += 1
        size += length + _HEADER_BYTES + (out[3] if value else 0)
        index += 1
    return size


@compiled(
    "Tuple((int64,int64,int64,int64,int64,int64,int64,int64))(int64[::1],int64,int64,int64,int64,int64[::1],int64[::1])"
)
def _extent(
    addresses: Addresses,
    start: int,
    stop: int,
    end: int,
    most_bytes: int,
    functions: Addresses,
    out: Addresses,
) -> tuple[int, ...]:
    """`functions`: as `_functions` returns them; zeros if headers do not count."""
    headers_of, header_at, out_address = functions[0], functions[1], functions[2]
    topic, partition = _word(addresses[start] + _TOPIC), _half_word(addresses[start] + _PARTITION)
    value_bytes = value_nulls = key_bytes = key_nulls = header_bytes = last = 0
    inside = place = start
    while place < stop:
        message = addresses[place]
        if (
            _half_word(message) != 0
            or _word(message + _TOPIC) != topic
            or _half_word(message + _PARTITION) != partition
        ):
            break
        offset = _word(message + _OFFSET)
        if offset < end:
            value, key = _word(message + _VALUE + _LENGTH), _word(message + _KEY + _LENGTH)
            headers = _size_of_headers(message, headers_of, header_at, out, out_address) if headers_of else 0
            size = value_bytes + key_bytes + header_bytes
            if place > start and size + value + key + headers > most_bytes:
                break
            if _word(message + _VALUE) == 0:
                value_nulls += 1
            else:
                value_bytes += value
            if _word(message + _KEY) == 0:
                key_nulls += 1
            else:
                key_bytes += key
            header_bytes += headers
            inside = place + 1
        last = offset
        place += 1
    return place, inside, last, value_bytes, value_nulls, key_bytes, key_nulls, header_bytes


@compiled("void(int64[::1],int64,int64,int64,int64,int64[::1],int64[::1])")
def _copy_numbers(
    addresses: Addresses, start: int, stop: int, timestamp_of: int, kind: int, offsets: Addresses, timestamps: Addresses
) -> None:
    """`kind`: the address of 4 bytes for the kind of a timestamp, which is 0 for messages of a format without."""
    for row in range(stop - start):
        message = addresses[start + row]
        offsets[row] = _word(message + _OFFSET)
        timestamps[row] = _call(timestamp_of, (message, kind))
        if _half_word(kind) == 0:
            timestamps[row] = NO_TIME


@compiled("void(int64[::1],int64,int64,int64,int32[::1],int64,uint8[::1])")
def _copy_bytes(addresses: Addresses, start: int, stop: int, member: int, ends: Any, target: int, present: Any) -> None:
    """`present`: a bitmap of zeros; empty where no value is null."""
    position = 0
    ends[0] = 0
    for row in range(stop - start):
        member_address = addresses[start + row] + member
        pointer = _word(member_address)
        if pointer != 0:
            length = _word(member_address + _LENGTH)
            _copy(target + position, pointer, length)
            position += length
            if len(present):
                present[row >> 3] |= 1 << (row & 7)
        ends[row + 1] = position


@compiled("Tuple((int64,int64,int64,int64))(int64[::1],int64[::1],int64[::1],int64[::1],int64[::1],int64,int64)")
def _walk_headers(
    addresses: Addresses,
    functions: Addresses,
    out: Addresses,
    counts: Addresses,
    lengths: Addresses,
    names_target: int,
    values_target: int,
) -> tuple[int, int, int, int]:
    """Count the headers, or copy them where targets are given. `counts`: per message, -1 for none. `lengths`: of each header
    its name's and its value's, -1 for null. `out`: room for C's results.

    Returns the number of headers, the bytes of names and of values, and the number of null values.
    """
    headers_of, header_at, out_address = functions[0], functions[1], functions[2]
    total = name_bytes = value_bytes = nulls = 0
    copies = names_target != 0
    for row in range(len(addresses)):
        counts[row] = -1
        if _call(headers_of, (addresses[row], out_address)) & 0xFFFFFFFF:
            continue
        headers = out[0]
        index = 0
        while not _call(header_at, (headers, index, out_address + 8, out_address + 16, out_address + 24)) & 0xFFFFFFFF:
            name, value, value_length = out[1], out[2], out[3]
            name_length = 0
            while _byte(name + name_length):
                name_length += 1
            if copies:
                _copy(names_target + name_bytes, name, name_length)
                lengths[2 * total] = name_length
                lengths[2 * total + 1] = value_length if value else -1
                if value:
                    _copy(values_target + value_bytes, value, value_length)
            name_bytes += name_length
            if value:
                value_bytes += value_length
            else:
                nulls += 1
            total += 1
            index += 1
        if index:
            counts[row] = index
    return total, name_bytes, value_bytes, nulls


@compiled("void(int64[::1],int64,int64,int64)")
def _destroy(addresses: Addresses, start: int, stop: int, destroy: int) -> None:
    for place in range(start, stop):
        _call(destroy, (addresses[place],))


def extent(addresses: Addresses, start: int, stop: int, end: int, most_bytes: int, headers: bool) -> Extent:
    """The messages from `start` on that are of the same partition; as many as have at most `most_bytes`, those of their headers
    included if these are read, but at least one. The first is not an error."""
    out = np.zeros(4, np.int64)
    functions = _functions(out) if headers else np.zeros(3, np.int64)
    return Extent(*_extent(addresses, start, stop, end, most_bytes, functions, out))


def _functions(out: Addresses) -> Addresses:
    """The addresses of librdkafka's functions for headers, and of the room for their results."""
    return np.array([_HEADERS_OF, _HEADER_AT, out.ctypes.data], np.int64)


def record_batch(addresses: Addresses, start: int, of: Extent, keys: bool, headers: bool) -> pa.RecordBatch:
    """The messages inside as columns offset, timestamp and value, and key and headers if asked for. Copies: the messages can be
    destroyed afterwards."""
    count = of.inside - start
    offsets, timestamps = np.empty(count, np.int64), np.empty(count, np.int64)
    kind = np.empty(1, np.int32)
    _copy_numbers(addresses, start, of.inside, _TIMESTAMP_OF, kind.ctypes.data, offsets, timestamps)
    columns = {
        "offset": pa.array(offsets),
        "timestamp": pa.Array.from_buffers(KAFKA_TIME, count, [None, pa.py_buffer(timestamps)]),
        "value": _binary(addresses, start, of.inside, _VALUE, of.value_bytes, of.value_nulls),
    }
    if keys:
        columns["key"] = _binary(addresses, start, of.inside, _KEY, of.key_bytes, of.key_nulls)
    if headers:
        columns["headers"] = _headers(addresses, start, of.inside)
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


def destroy(addresses: Addresses, start: int, stop: int) -> None:
    """Give messages back to librdkafka."""
    _destroy(addresses, start, stop, _DESTROY)


def _binary(addresses: Addresses, start: int, stop: int, member: int, size: int, nulls: int) -> pa.BinaryArray:
    count = stop - start
    ends = np.empty(count + 1, np.int32)
    data = pa.allocate_buffer(size)
    present = np.zeros((count + 7) // 8 if nulls else 0, np.uint8)
    _copy_bytes(addresses, start, stop, member, ends, data.address, present)
    validity = pa.py_buffer(present) if nulls else None
    return pa.Array.from_buffers(pa.binary(), count, [validity, pa.py_buffer(ends), data], nulls)


def _headers(addresses: Addresses, start: int, stop: int) -> pa.ListArray:
    count = stop - start
    out, counts = np.zeros(4, np.int64), np.empty(count, np.int64)
    functions = _functions(out)

    def walk(lengths: Addresses, names: int, values: int) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = _walk_headers(
            addresses[start:stop], functions, out, counts, lengths, names, values
        )
        return found

    total, name_bytes, value_bytes, _ = walk(np.empty(0, np.int64), 0, 0)
    if not total:
        return pa.nulls(count, HEADERS)
    # An address of nothing would mean that nothing is to be copied.
    names, values = pa.allocate_buffer(name_bytes + 1), pa.allocate_buffer(value_bytes + 1)
    lengths = np.empty(2 * total, np.int64)
    walk(lengths, names.address, values.address)
    fields = [
        _text(_variable(lengths[::2], names, total)),
        _variable(lengths[1::2], values, total),
    ]
    entries = pa.StructArray.from_arrays(fields, fields=[*HEADERS.value_type])
    ends = np.concatenate([[0], np.cumsum(np.maximum(counts, 0))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries, type=HEADERS, mask=pa.array(counts < 0))


def _variable(lengths: Addresses, data: pa.Buffer, count: int) -> pa.BinaryArray:
    ends = np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))])
    if ends[-1] > _INT32_MAX:
        raise OverflowError(f"{count} headers have {ends[-1]} bytes, but a column holds at most {_INT32_MAX}")
    there = pa.array(lengths >= 0)
    validity = None if (lengths >= 0).all() else there.buffers()[1]
    return pa.Array.from_buffers(pa.binary(), count, [validity, pa.py_buffer(ends.astype(np.int32)), data])


def _text(names: pa.BinaryArray) -> pa.StringArray:
    """Kafka's header names are UTF-8, but no broker checks it."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
