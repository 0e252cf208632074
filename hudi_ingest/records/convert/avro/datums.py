"""Compiled passes over Avro datums: one finds which are whole, the other keeps their values.

A layout is a table of nodes, a type each; the parts of a type stand side by side behind it. The values of a node are numbered by its
level: level 0 numbers the datums, and the items of each array have a level of their own. Places and nodes are addresses; no byte at
or behind `end` is read. Import this only where it runs.
"""

from __future__ import annotations

from hudi_ingest.records.compiled import (
    below,
    byte,
    cold,
    compiled,
    hot,
    int32,
    put_byte,
    put_word,
    shifted_right,
    word,
)

KINDS = ("null", "boolean", "long", "float", "double", "bytes", "fixed", "record", "array", "union")
_NULL, _BOOLEAN, _LONG, _FLOAT, _DOUBLE, _BYTES, _FIXED, _RECORD, _ARRAY, _UNION = range(len(KINDS))
KIND, SIZE, FIRST, LAST, ITEMS, VALUES, SIZES = range(0, 56, 8)
"""Words of a node, as their places in bytes. SIZE: bytes of a fixed, the number of null in a union or -1. FIRST, LAST:
where its parts are, from the node on. ITEMS: the counter of an array's items. VALUES: where its values are kept, or 0; for bytes these
are addresses, and SIZES says where their sizes are kept."""
NODE_BYTES = 56


@hot
def _long_at(at: int, end: int) -> tuple[int, int]:
    """Return a number in variable-length zig-zag encoding, and where it ends; 0 if it is none of 64 bits."""
    if at < end and byte(at) < 0x80:
        number = byte(at)
        return (number >> 1) ^ -(number & 1), at + 1
    return _longer(at, end)


@cold
def _longer(at: int, end: int) -> tuple[int, int]:
    number, shift = 0, 0
    while at < end and shift < 70:
        part = byte(at)
        at += 1
        if shift == 63 and part > 1:
            return 0, 0
        number |= (part & 0x7F) << shift
        if part < 0x80:
            return shifted_right(number, 1) ^ -(number & 1), at
        shift += 7
    return 0, 0


@hot
def _fixed_at(kind: int, at: int, end: int) -> tuple[int, int]:
    """Return the bits of a number or a truth, and where it ends; 0 if it is cut off."""
    size = 8 if kind == _DOUBLE else 4 if kind == _FLOAT else 1
    if end - at < size:
        return 0, 0
    return (word(at) if size == 8 else int32(at) if size == 4 else byte(at)), at + size


@compiled("int64(int64, int64, int64, int64)")
def walk(node: int, at: int, end: int, index: int) -> int:
    """Return where a value ends, or 0 if there is none. Keeps it as number `index` of its node."""
    kind, size, kept = word(node + KIND), word(node + SIZE), word(node + VALUES)
    if kind == _RECORD:
        part, last = node + word(node + FIRST), node + word(node + LAST)
        while part < last and at != 0:
            at = walk(part, at, end, index)
            part += NODE_BYTES
        return at
    if kind == _NULL:
        return at
    if kind == _FIXED:
        if size > end - at:
            return 0
        if kept != 0:
            put_word(kept + 8 * index, at)
            put_word(word(node + SIZES) + 8 * index, size)
        return at + size
    if kind in (_DOUBLE, _FLOAT, _BOOLEAN):
        value, at = _fixed_at(kind, at, end)
        if at == 0:
            return 0
    else:
        value, at = _long_at(at, end)
        if at == 0:
            return 0
        if kind == _BYTES:
            if value < 0 or value > end - at:
                return 0
            if kept != 0:
                put_word(kept + 8 * index, at)
                put_word(word(node + SIZES) + 8 * index, value)
            return at + value
        if kind == _UNION:
            if not below(value, (word(node + LAST) - word(node + FIRST)) // NODE_BYTES):
                return 0
            if kept != 0 and value != size:
                put_word(kept + 8 * index, 1)
            return walk(node + word(node + FIRST) + value * NODE_BYTES, at, end, index)
        if kind == _ARRAY:
            counter, item = word(node + ITEMS), node + word(node + FIRST)
            while value != 0:
                if value < 0:
                    value = -value
                    _, at = _long_at(at, end)  # the block's size in bytes
                # Each item has a byte or more.
                if at == 0 or value < 0 or value > end - at:
                    return 0
                for _ in range(value):
                    number = word(counter)
                    put_word(counter, number + 1)
                    at = walk(item, at, end, number)
                    if at == 0:
                        return 0
                value, at = _long_at(at, end)
                if at == 0:
                    return 0
            value = word(counter)
    if kept != 0:
        put_word(kept + 8 * index, value)
    return at


DATA, STARTS, HEADER_BYTES, WHOLE, COUNTERS, LEVELS = range(0, 48, 8)
"""Words of a batch: addresses of its bytes, of where each datum's begin in them and the last's end, of a byte for each that says whether it
is whole, and of the counters of LEVELS levels, which have as much room behind them."""


@compiled("int64(int64, int64, int64)")
def walk_all(root: int, batch: int, count: int) -> int:
    """Walk over the first datums of a batch that are marked as whole, unmark those that are not, and return how many are."""
    data, starts, whole = word(batch + DATA), word(batch + STARTS), word(batch + WHOLE)
    counters, levels, header_bytes = word(batch + COUNTERS), word(batch + LEVELS), word(batch + HEADER_BYTES)
    done = 0
    for datum in range(count):
        if byte(whole + datum) == 0:
            continue
        for place in range(0, 8 * levels, 8):
            put_word(counters + 8 * levels + place, word(counters + place))
        at, end = data + word(starts + 8 * datum) + header_bytes, data + word(starts + 8 * datum + 8)
        if at <= end and walk(root, at, end, done) == end:
            done += 1
            continue
        put_byte(whole + datum, 0)
        for place in range(0, 8 * levels, 8):
            put_word(counters + place, word(counters + 8 * levels + place))
    return done


@compiled("void(int64, int64, int64, int64)")
def gather(begins: int, sizes: int, count: int, target: int) -> None:
    """Copy pieces one behind another."""
    for piece in range(0, 8 * count, 8):
        at, left = word(begins + piece), word(sizes + piece)
        while left >= 8:
            put_word(target, word(at))
            at, target, left = at + 8, target + 8, left - 8
        while left > 0:
            put_byte(target, byte(at))
            at, target, left = at + 1, target + 1, left - 1
