"""Record keys in compiled loops: the bucket of each, and the last change of each.

A bucket is computed as Hudi's simple bucket index does (`BucketIdentifier`, `KeyGenUtils`): it is a hash of the values of the key's columns, which Hudi takes from the text of the record key: `a:1,b:x` has the
values 1 and x, a key without `:` or without `,` is one value. Import this only where it runs: it has compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hudi_ingest.records.compiled import compiled

TEXT = "Array(uint8, 1, 'C', readonly=True)"
PLACES = "Array(int32, 1, 'C', readonly=True)"
"""Signatures of what `key_text` and `key_places` return."""


def key_text(texts: pa.Array) -> np.ndarray:
    """Return the UTF-8 of all texts; see `key_places`."""
    content = texts.buffers()[2]
    return np.frombuffer(b"" if content is None else content, np.uint8)


def key_places(texts: pa.Array) -> np.ndarray:
    """Return where each text begins in `key_text`, and where the last one ends."""
    if not len(texts):
        return np.frombuffer(bytes(4), np.int32)
    return np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4)


@compiled(f"boolean({TEXT}, int64, int64, {TEXT}, int64, int64)")
def equal_texts(text: np.ndarray, start: int, end: int, other: np.ndarray, other_start: int, other_end: int) -> bool:
    """Return whether two ranges of bytes are the same."""
    if end - start != other_end - other_start:
        return False
    step = 0
    while start + step < end and text[start + step] == other[other_start + step]:
        step += 1
    return start + step == end


_COMMA, _COLON = 0x2C, 0x3A
_NULL = np.frombuffer(b"__null__", np.uint8)
_EMPTY = np.frombuffer(b"__empty__", np.uint8)
"""How Hudi writes null and "" in a key of several columns."""


def bucket_ids(keys: pa.Array, columns: Sequence[str], buckets: int) -> np.ndarray:
    """Return the bucket (int32) of each record key (string, none null) of a table with these key columns.

    For some keys Hudi's parser never ends: `a:b:c,d` in a table with the key (id). Their whole text is hashed.
    """
    names = pa.array(columns, pa.string())
    ids = np.empty(len(keys), np.int32)
    _fill_buckets(key_text(keys), key_places(keys), key_text(names), key_places(names), buckets, ids)
    return ids


@compiled(f"uint32({TEXT}, int64, int64)")
def _java_hash(text: np.ndarray, start: int, end: int) -> Any:
    """`String.hashCode` of UTF-8 text: over its UTF-16 code units."""
    hashed = np.uint32(0)
    place = start
    while place < end:
        byte = np.int64(text[place])
        if byte < 0x80:
            unit, place = byte, place + 1
        elif byte < 0xE0:
            unit = (byte & 0x1F) << 6 | text[place + 1] & 0x3F
            place += 2
        elif byte < 0xF0:
            unit = (byte & 0x0F) << 12 | (text[place + 1] & 0x3F) << 6 | text[place + 2] & 0x3F
            place += 3
        else:
            high = (byte & 0x07) << 18 | (text[place + 1] & 0x3F) << 12
            point = (high | (text[place + 2] & 0x3F) << 6 | text[place + 3] & 0x3F) - 0x10000
            hashed = np.uint32(31 * hashed + (0xD800 | point >> 10))
            unit = 0xDC00 | point & 0x3FF
            place += 4
        hashed = np.uint32(31 * hashed + unit)
    return hashed


@compiled(f"int64({TEXT}, int64, int64, int64)")
def _find(text: np.ndarray, sign: int, start: int, end: int) -> int:
    """Java's `indexOf`: the first place of the sign, or -1."""
    for place in range(start, end):
        if text[place] == sign:
            return place
    return -1


@compiled(f"int64({TEXT}, int64, int64, int64)")
def _find_last(text: np.ndarray, sign: int, start: int, last: int) -> int:
    """Java's `lastIndexOf`: the last place of the sign up to `last`, or -1."""
    for place in range(last, start - 1, -1):
        if text[place] == sign:
            return place
    return -1


@compiled(f"boolean({TEXT}, int64, int64, {TEXT}, {PLACES})")
def _is_name(text: np.ndarray, start: int, end: int, names: np.ndarray, name_places: np.ndarray) -> bool:
    for number in range(len(name_places) - 1):
        if equal_texts(text, start, end, names, name_places[number], name_places[number + 1]):
            return True
    return False


@compiled(f"uint32({TEXT}, int64, int64)")
def _hash_of_value(text: np.ndarray, start: int, end: int) -> Any:
    # null and "" hash to 0.
    if equal_texts(text, start, end, _NULL, 0, len(_NULL)) or equal_texts(text, start, end, _EMPTY, 0, len(_EMPTY)):
        return np.uint32(0)
    return _java_hash(text, start, end)


@compiled(f"uint32({TEXT}, int64, int64, {TEXT}, {PLACES})")
def _hash_of_key(text: np.ndarray, start: int, end: int, names: np.ndarray, name_places: np.ndarray) -> Any:
    """`List.hashCode` of the values that `KeyGenUtils.extractRecordKeysByFields` finds in the key."""
    whole = np.uint32(31 + _java_hash(text, start, end))
    if _find(text, _COMMA, start, end) < 0:
        return whole
    colon = _find(text, _COLON, start, end)
    hashed, values = np.uint32(1), 0
    value_end = start
    while colon >= 0 and value_end < end:
        named = _is_name(text, value_end, colon, names, name_places)
        # The value ends at the last comma before a later colon: it may itself have commas and colons.
        next_colon, comma = _find(text, _COLON, colon + 1, end), -1
        has_next = next_colon >= 0
        while next_colon >= 0 and comma < 0:
            comma = _find_last(text, _COMMA, colon, next_colon)
            if comma < 0:
                next_colon = _find(text, _COLON, next_colon + 1, end)
        if named:
            value_end = end if comma < 0 else comma
            hashed = np.uint32(31 * hashed + _hash_of_value(text, colon + 1, value_end))
            values += 1
        elif has_next and comma < 0:
            return whole
        value_end = end if comma < 0 else comma + 1
        colon = next_colon
    return hashed if values else whole


@compiled(f"void({TEXT}, {PLACES}, {TEXT}, {PLACES}, int64, int32[::1])")
def _fill_buckets(
    text: np.ndarray, places: np.ndarray, names: np.ndarray, name_places: np.ndarray, buckets: int, ids: np.ndarray
) -> None:
    for number in range(len(ids)):
        hashed = _hash_of_key(text, places[number], places[number + 1], names, name_places)
        ids[number] = (hashed & 0x7FFFFFFF) % buckets


def last_places(keys: pa.Array, folders: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return, ascending, the place of the last change of each key (string, none null) in each folder.

    `folders` numbers the table partition of each change; `order` has all places, in the order in which changes win.
    """
    last = np.zeros(len(keys), np.bool_)
    slots = np.full(1 << (2 * len(keys)).bit_length(), -1, np.int32)
    _mark_last(key_text(keys), key_places(keys), folders, order, slots, last)
    return np.flatnonzero(last)


@compiled(f"void({TEXT}, {PLACES}, int64[::1], int64[::1], int32[::1], boolean[::1])")
def _mark_last(
    text: np.ndarray, places: np.ndarray, folders: np.ndarray, order: np.ndarray, slots: np.ndarray, last: np.ndarray
) -> None:
    mask = np.uint64(len(slots) - 1)
    for step in range(len(order) - 1, -1, -1):
        place = order[step]
        start, end = places[place], places[place + 1]
        # FNV-1a, with its high bits mixed into the low ones, which choose the slot.
        hashed = np.uint64(0xCBF29CE484222325) ^ np.uint64(folders[place])
        for index in range(start, end):
            hashed = (hashed ^ np.uint64(text[index])) * np.uint64(0x100000001B3)
        slot = (hashed ^ hashed >> np.uint64(29)) & mask
        while True:
            other = slots[slot]
            if other < 0:
                slots[slot] = place
                last[place] = True
                break
            if folders[other] == folders[place] and equal_texts(
                text, start, end, text, places[other], places[other + 1]
            ):
                break
            slot = (slot + np.uint64(1)) & mask
