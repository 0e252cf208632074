"""Digests of Kafka records and of a table's rows: sums of 64-bit hashes, so that digests of disjoint parts add up in any order.
docs/guarantees.md has the definition, which anybody can compute: XXH64 chained as Spark's `xxhash64` chains it, from seed 42.

Import this only where it runs: it has compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.compiled import byte, compiled, hot, int32, shifted_right, word
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC

Hashes = npt.NDArray[np.int64]
_SEED = 42
_PLACE = (TOPIC, PARTITION, OFFSET)
_HUDI = "_hoodie_"
_MASK = (1 << 64) - 1


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


# XXH64's primes, for arithmetic that is signed and wraps.
_P1, _P2, _P3, _P4, _P5 = map(
    _signed, (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_WORD = 8


@hot
def _rotated(number: int, bits: int) -> int:
    return number << bits | shifted_right(number, 64 - bits)


@hot
def _round(state: int, value: int) -> int:
    return _rotated(state + value * _P2, 31) * _P1


@hot
def _avalanche(state: int) -> int:
    state = (state ^ shifted_right(state, 33)) * _P2
    state = (state ^ shifted_right(state, 29)) * _P3
    return state ^ shifted_right(state, 32)


@hot
def _of_word(value: int, seed: int) -> int:
    """XXH64 of a number's 8 bytes."""
    return _avalanche(_rotated((seed + _P5 + _WORD) ^ _round(0, value), 27) * _P1 + _P4)


@hot
def _of_bytes(place: int, length: int, seed: int) -> int:
    end = place + length
    if length >= 32:
        first, second, third, fourth = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while place <= end - 32:
            first = _round(first, word(place))
            second = _round(second, word(place + 8))
            third = _round(third, word(place + 16))
            fourth = _round(fourth, word(place + 24))
            place += 32
        state = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
        state = (state ^ _round(0, first)) * _P1 + _P4
        state = (state ^ _round(0, second)) * _P1 + _P4
        state = (state ^ _round(0, third)) * _P1 + _P4
        state = (state ^ _round(0, fourth)) * _P1 + _P4
    else:
        state = seed + _P5
    state += length
    while place <= end - 8:
        state = _rotated(state ^ _round(0, word(place)), 27) * _P1 + _P4
        place += 8
    if place <= end - 4:
        state = _rotated(state ^ int32(place) * _P1, 23) * _P2 + _P3
        place += 4
    while place < end:
        state = _rotated(state ^ byte(place) * _P5, 11) * _P1
        place += 1
    return _avalanche(state)


_WORDS = "Array(int64, 1, 'C', readonly=True)"


@compiled(f"void({_WORDS}, boolean[::1], int64, int64[::1])")
def _add_words(values: Hashes, there: Any, seed: int, sums: Hashes) -> None:
    """`there`: which values are not null; empty if all are there."""
    for row in range(len(values)):
        if not len(there) or there[row]:
            sums[row] += _of_word(values[row], seed)


@compiled(f"void(int64, {_WORDS}, boolean[::1], int64, int64[::1])")
def _add_bytes(data: int, ends: Hashes, there: Any, seed: int, sums: Hashes) -> None:
    for row in range(len(ends) - 1):
        if not len(there) or there[row]:
            sums[row] += _of_bytes(data + ends[row], ends[row + 1] - ends[row], seed)


@compiled(f"void({_WORDS}, {_WORDS}, int64[::1])")
def _chain(values: Hashes, seeds: Hashes, found: Hashes) -> None:
    for row in range(len(values)):
        found[row] = _of_word(values[row], seeds[row])


def _chained(values: Hashes, seeds: Hashes) -> Hashes:
    found = np.empty(len(values), np.int64)
    _chain(values, seeds, found)
    return found


def _hash_of(value: bytes | int, seed: int) -> int:
    found = np.zeros(1, np.int64)
    _add(pa.array([value], pa.binary() if isinstance(value, bytes) else pa.int64()), seed, found)
    return int(found[0])


def _place(topic: str, partition: int) -> int:
    return _hash_of(partition, _hash_of(topic.encode(), _SEED))


def total(hashes: Hashes) -> int:
    """Return the digest of these hashes, from 0 to 2**64 - 1."""
    return int(hashes.sum(dtype=np.int64)) & _MASK


def record_hashes(source: TopicPartition, batch: pa.RecordBatch) -> Hashes:
    """Return the hash of each record. `batch`: records of `source`, with the columns offset and value, and key unless all are
    null."""
    hashes = np.full(len(batch), _place(source.topic, source.partition))
    hashes = _chained(_numbers(batch["offset"]), hashes)
    for name in ("key", "value"):
        # The hash of null is the seed, as Spark has it.
        content = np.full(len(batch), _SEED)
        if name in batch.schema.names:
            content[~_nulls(batch[name])] = 0
            _add(batch[name], _SEED, content)
        hashes = _chained(content, hashes)
    return hashes


def row_hashes(rows: pa.Table, places: TopicPartition | Hashes) -> Hashes:
    """Return the hash of each row, which depends on its place in Kafka, and on the names and values of its columns, but not on their
    order, on Hudi's columns, or on columns that are null. `places`: of all rows, or what `places_of` returns for them."""
    contents = np.zeros(len(rows), np.int64)
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name not in _PLACE and not name.startswith(_HUDI):
            seed, start = _hash_of(name.encode(), _SEED), 0
            for chunk in column.chunks:
                _add(chunk, seed, contents[start : start + len(chunk)])
                start += len(chunk)
    if isinstance(places, TopicPartition):
        places = np.full(len(rows), _place(places.topic, places.partition))
    return _chained(contents, _chained(_numbers(rows[OFFSET].combine_chunks()), places))


def places_of(sources: Sequence[TopicPartition], codes: npt.NDArray[np.int64]) -> Hashes:
    """Return the hash of each row's topic and partition. `codes`: the index in `sources` of each row's."""
    return np.array([_place(source.topic, source.partition) for source in sources], np.int64)[codes]


def key_hashes(folder: str, keys: pa.Array) -> Hashes:
    """Return a hash of each record key (string) in a table partition's folder."""
    hashes = np.zeros(len(keys), np.int64)
    _add(keys, _hash_of(folder.encode(), _SEED), hashes)
    return hashes


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    return array.is_null().to_numpy(zero_copy_only=False)


def _there(array: pa.Array) -> npt.NDArray[np.bool_]:
    return ~_nulls(array) if array.null_count else np.empty(0, np.bool_)


def _numbers(array: pa.Array) -> Hashes:
    """The 64 bits of each number. A null has any."""
    kind = array.type
    if pa.types.is_floating(kind):
        values = array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) + 0.0
        # All NaN are one, and -0.0 is 0.0.
        return np.where(np.isnan(values), np.nan, values).view(np.int64)
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        array = array.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    if array.type.bit_width != 64:
        array = array.cast(pa.int64())
    content = array.buffers()[1]
    return np.frombuffer(
        b"" if content is None else content, np.int64, len(array), array.offset * _WORD * bool(len(array))
    )


def _add(array: pa.Array, seed: int, sums: Hashes) -> None:
    """Add the hash of each value that is not null."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        _add(array.dictionary_decode(), seed, sums)
    elif pa.types.is_struct(kind):
        inner = np.zeros(len(array), np.int64)
        for field, column in zip(kind, array.flatten(), strict=True):
            _add(column, _hash_of(field.name.encode(), seed), inner)
        _add_words(inner, _there(array), seed, sums)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        ends = array.offsets.to_numpy().astype(np.int64)
        start, count = int(ends[0]), int(ends[-1] - ends[0])
        entries = np.zeros(count, np.int64)
        if pa.types.is_map(kind):
            keys = np.zeros(count, np.int64)
            _add(array.keys.slice(start, count), seed, keys)
            _add(array.items.slice(start, count), seed, entries)
            entries = _chained(entries, keys)
        else:
            _add(array.values.slice(start, count), seed, entries)
            entries = _chained(np.arange(count) - np.repeat(ends[:-1] - start, np.diff(ends)), entries)
        sums_to = np.concatenate([[0], np.cumsum(entries)])
        _add_words(sums_to[ends[1:] - start] - sums_to[ends[:-1] - start], _there(array), seed, sums)
    elif pa.types.is_decimal(kind):
        _add_bytes(
            array.buffers()[1].address + array.offset * 16 if len(array) else 0,
            np.arange(len(array) + 1) * 16,
            _there(array),
            seed,
            sums,
        )
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _, ends, data = array.buffers()
        bounds = (
            np.frombuffer(ends, np.int32, len(array) + 1, array.offset * 4) if len(array) else np.zeros(1, np.int32)
        )
        _add_bytes(data.address if data is not None else 0, bounds.astype(np.int64), _there(array), seed, sums)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        _add(array.cast(pa.binary()), seed, sums)
    elif pa.types.is_null(kind):
        return
    else:
        _add_words(_numbers(array), _there(array), seed, sums)
