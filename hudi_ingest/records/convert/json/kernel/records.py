"""Records into columns: the pass over a batch."""

from __future__ import annotations

from hudi_ingest.records.compiled import (
    byte,
    cold,
    compiled,
    hot,
    int32,
    looked_at,
    put_byte,
    put_int32,
    put_word,
    shifted_right,
    trailing_zeros,
    word,
)
from hudi_ingest.records.convert.json.kernel import characters, kept_name
from hudi_ingest.records.convert.json.kernel.columns import (
    CAPACITY,
    CHILD,
    CHILDREN,
    COUNT,
    DATA,
    FIRST_MEMBER,
    FLAT,
    FLAT_BEGIN,
    FLAT_END,
    FRAME_BYTES,
    FRAMES,
    FULL_LEVEL,
    FULL_NODE,
    HAS_NULL,
    KIND,
    LEVEL,
    LEVEL_BYTES,
    LEVEL_CAPACITY,
    LEVEL_COUNT,
    LEVELS,
    LIST,
    MARGIN,
    NAME,
    NAME_LENGTH,
    NAME_MASK,
    NAME_WORD,
    NEXT_MEMBER,
    NODE_BYTES,
    NODE_COUNT,
    NODES,
    NULLABLE,
    OBJECTS,
    OFFSETS,
    SAVED,
    SCRATCH,
    SCRATCH_ROOM,
    SEEN_BY,
    STRING,
    STRUCT,
    VALID,
    VALUES,
    WIDTH,
)
from hudi_ingest.records.convert.json.kernel.scalars import put_scalar
from hudi_ingest.records.convert.json.kernel.texts import after_space, after_value, copied_text, is_utf8

GOOD, DOUBTFUL, FULL = 0, 1, 2


@hot
def _same(first: int, second: int, length: int) -> bool:
    """Whether two texts of the same length are equal."""
    for place in range(length):  # noqa: SIM110 (numba compiles no generator into this)
        if byte(first + place) != byte(second + place):
            return False
    return True


@cold
def _member(nodes: int, parent: int, name: int, length: int) -> int:
    """The node of the parent's member with that name, whose length counts the closing quote; 0 if there is none."""
    node = nodes + word(parent + CHILD)
    start = word(name)
    for _ in range(word(parent + CHILDREN)):
        if (
            word(node + NAME_LENGTH) == length
            and (start ^ word(node + NAME_WORD)) & word(node + NAME_MASK) == 0
            and (length <= 8 or _same(name, word(node + NAME), length))
        ):
            return node
        node += NODE_BYTES
    return 0


@cold
def _put_null(nodes: int, flat: int, node: int, slot: int) -> None:
    """In the node's column, and in those of its members."""
    for place in range(word(node + FLAT_BEGIN), word(node + FLAT_END)):
        column = nodes + word(flat + 8 * place)
        bits = word(column + VALID) + (slot >> 3)
        put_byte(bits, byte(bits) & ~(1 << (slot & 7)))
        put_word(column + HAS_NULL, 1)
        offsets = word(column + OFFSETS)
        if offsets:
            put_int32(offsets + 4 * slot + 4, int32(offsets + 4 * slot))
        values, width = word(column + VALUES), word(column + WIDTH)
        for part in range(slot * width, (slot + 1) * width):
            put_byte(values + part, 0)


@cold
def _put_missing(nodes: int, flat: int, parent: int, slot: int, seen_by: int) -> bool:
    """Nulls for what an object does not have; False if one of them may not be null."""
    node = nodes + word(parent + CHILD)
    for _ in range(word(parent + CHILDREN)):
        if word(node + SEEN_BY) != seen_by:
            if word(node + NULLABLE) == 0:
                return False
            _put_null(nodes, flat, node, slot)
        node += NODE_BYTES
    return True


@cold
def _is_new_key(key: int, first: int, last: int) -> bool:
    """Whether a map's newest key, the last, is none of those before it; False, too, where they are very many."""
    offsets, data = word(key + OFFSETS), word(key + DATA)
    begin, end = int32(offsets + 4 * last), int32(offsets + 4 * last + 4)
    if last - first > 500:
        return False
    for slot in range(first, last):
        other = int32(offsets + 4 * slot)
        if int32(offsets + 4 * slot + 4) - other == end - begin and _same(data + other, data + begin, end - begin):
            return False
    return True


@hot
def _new_object(state: int) -> int:
    objects = word(state + OBJECTS) + 1
    put_word(state + OBJECTS, objects)
    return objects


@cold
def _record(nodes: int, levels: int, flat: int, state: int, at: int, end: int) -> int:
    """Put one record behind the rows that there are: GOOD, DOUBTFUL, or FULL with what is full in the state."""
    begin = at
    at = after_space(at, end)
    if at >= end or byte(at) != characters.OPEN_BRACE:
        return DOUBTFUL
    frames, scratch = word(state + FRAMES), word(state + SCRATCH)
    parent, slot, seen, depth, beyond_ascii = nodes, word(levels + SAVED), 0, 0, 0
    seen_by, guess = _new_object(state), parent + FIRST_MEMBER
    kind, close = STRUCT, characters.CLOSE_BRACE
    at += 1
    opened = True
    while True:
        # Behind a bracket or a comma.
        if byte(at) <= characters.SPACE:
            at = after_space(at, end)
        if at >= end:
            return DOUBTFUL
        c = byte(at)
        if not (opened and c == close):
            node, place = 0, slot
            if kind == STRUCT:
                if c != characters.QUOTE:
                    return DOUBTFUL
                at += 1
                node = nodes + word(guess)
                length = word(node + NAME_LENGTH)
                if (
                    at + length <= end
                    and (word(at) ^ word(node + NAME_WORD)) & word(node + NAME_MASK) == 0
                    and (length <= 8 or _same(at, word(node + NAME), length))
                ):
                    at += length
                else:
                    found = looked_at(at)
                    stops = found & 0xFFFFFFFF
                    plain = trailing_zeros(stops) if stops else 0
                    if (
                        stops
                        and byte(at + plain) == characters.QUOTE
                        and shifted_right(found, 32) & ((1 << plain) - 1) == 0
                    ):
                        node = _member(nodes, parent, at, plain + 1)
                        at += plain + 1
                    else:
                        # Longer names, and those with escapes: the copy ends in a quote, as the declared names do.
                        at, target, found = copied_text(at, min(end, at + SCRATCH_ROOM), scratch)
                        if at == 0:
                            return DOUBTFUL
                        beyond_ascii |= found
                        put_byte(target, characters.QUOTE)
                        node = _member(nodes, parent, scratch, target + 1 - scratch)
                    if node:
                        put_word(guess, node - nodes)
                if node:
                    if word(node + SEEN_BY) == seen_by:
                        return DOUBTFUL
                    put_word(node + SEEN_BY, seen_by)
                    seen += 1
                    guess = node + NEXT_MEMBER
            else:
                node = nodes + word(parent + CHILD)
                level = levels + word(node + LEVEL)
                place = word(level + COUNT)
                if place >= word(level + LEVEL_CAPACITY):
                    put_word(state + FULL_LEVEL, level - levels)
                    return FULL
                put_word(level + COUNT, place + 1)
                if kind != LIST:
                    if c != characters.QUOTE:
                        return DOUBTFUL
                    offsets, data = word(node + OFFSETS) + 4 * place, word(node + DATA)
                    start = int32(offsets)
                    if start + end - at + MARGIN > word(node + CAPACITY):
                        put_word(state + FULL_NODE, node - nodes)
                        return FULL
                    at, target, found = copied_text(at + 1, end, data + start)
                    if at == 0:
                        return DOUBTFUL
                    beyond_ascii |= found
                    put_int32(offsets + 4, target - data)
                    if not _is_new_key(node, int32(word(parent + OFFSETS) + 4 * slot), place):
                        return DOUBTFUL
                    node += NODE_BYTES
            if kind != LIST:
                if byte(at) <= characters.SPACE:
                    at = after_space(at, end)
                if byte(at) != characters.COLON:
                    return DOUBTFUL
                at += 1
                if byte(at) <= characters.SPACE:
                    at = after_space(at, end)
                if at >= end:
                    return DOUBTFUL
                c = byte(at)
            if node == 0:
                at, found = after_value(at, end)
                beyond_ascii |= found
                if at == 0:
                    return DOUBTFUL
            elif c == characters.LOWER_N:
                if int32(at) != 0x6C6C756E or word(node + NULLABLE) == 0:
                    return DOUBTFUL
                _put_null(nodes, flat, node, place)
                at += 4
            else:
                value_kind = word(node + KIND)
                if value_kind == STRING:
                    if c != characters.QUOTE:
                        return DOUBTFUL
                    offsets, data = word(node + OFFSETS) + 4 * place, word(node + DATA)
                    start = int32(offsets)
                    if start + end - at + MARGIN > word(node + CAPACITY):
                        put_word(state + FULL_NODE, node - nodes)
                        return FULL
                    at, target, found = copied_text(at + 1, end, data + start)
                    if at == 0:
                        return DOUBTFUL
                    beyond_ascii |= found
                    put_int32(offsets + 4, target - data)
                elif value_kind < STRUCT:
                    at = put_scalar(value_kind, node, place, at, end)
                    if at <= 0:
                        if at == 0:
                            return DOUBTFUL
                        put_word(state + FULL_NODE, node - nodes)
                        return FULL
                else:
                    if c != (characters.OPEN_BRACKET if value_kind == LIST else characters.OPEN_BRACE):
                        return DOUBTFUL
                    frame = frames + depth * FRAME_BYTES
                    put_word(frame, parent)
                    put_word(frame + 8, slot)
                    put_word(frame + 16, seen)
                    put_word(frame + 24, seen_by)
                    put_word(frame + 32, guess)
                    depth += 1
                    parent, slot, seen, guess = node, place, 0, node + FIRST_MEMBER
                    seen_by = _new_object(state)
                    kind, close = value_kind, c + 2
                    opened = True
                    at += 1
                    continue
        while True:
            # Behind a value.
            if byte(at) <= characters.SPACE:
                at = after_space(at, end)
            if at >= end:
                return DOUBTFUL
            c = byte(at)
            at += 1
            if c == characters.COMMA:
                opened = False
                break
            if c != close:
                return DOUBTFUL
            if kind == STRUCT:
                if seen != word(parent + CHILDREN) and not _put_missing(nodes, flat, parent, slot, seen_by):
                    return DOUBTFUL
            else:
                level = levels + word(nodes + word(parent + CHILD) + LEVEL)
                put_int32(word(parent + OFFSETS) + 4 * slot + 4, word(level + COUNT))
            if depth == 0:
                if after_space(at, end) != end or (beyond_ascii and not is_utf8(begin, end)):
                    return DOUBTFUL
                return GOOD
            depth -= 1
            frame = frames + depth * FRAME_BYTES
            parent, slot, seen = word(frame), word(frame + 8), word(frame + 16)
            seen_by, guess = word(frame + 24), word(frame + 32)
            kind = word(parent + KIND)
            close = characters.CLOSE_BRACKET if kind == LIST else characters.CLOSE_BRACE


@cold
def _take_back(nodes: int, count: int, levels: int, level_count: int) -> None:
    """Take back what a record has put behind the rows: only the bits of nulls matter, all else will be written over."""
    for node in range(nodes, nodes + count * NODE_BYTES, NODE_BYTES):
        if word(node + HAS_NULL):
            level, valid = levels + word(node + LEVEL), word(node + VALID)
            for slot in range(word(level + SAVED), word(level + COUNT)):
                bits = valid + (slot >> 3)
                put_byte(bits, byte(bits) | 1 << (slot & 7))
    for level in range(levels, levels + level_count * LEVEL_BYTES, LEVEL_BYTES):
        put_word(level + COUNT, word(level + SAVED))


def _read_records(state: int, data: int, offsets: int, doubts: int, first: int, last: int) -> int:
    """Read records `first` to `last` of those whose bytes and int32 offsets are at `data` and `offsets`, and sets a byte
    at `doubts` for each that it cannot prove. Returns `last`, or the first for which there was no room."""
    nodes, node_count, flat = word(state + NODES), word(state + NODE_COUNT), word(state + FLAT)
    levels, level_count = word(state + LEVELS), word(state + LEVEL_COUNT)
    for record in range(first, last):
        for level in range(levels, levels + level_count * LEVEL_BYTES, LEVEL_BYTES):
            put_word(level + SAVED, word(level + COUNT))
        put_word(levels + COUNT, word(levels + SAVED) + 1)
        begin, end = int32(offsets + 4 * record), int32(offsets + 4 * record + 4)
        outcome = _record(nodes, levels, flat, state, data + begin, data + end)
        if outcome != GOOD:
            _take_back(nodes, node_count, levels, level_count)
            if outcome == FULL:
                return record
            put_byte(doubts + record, 1)
    return last


_read_records.__qualname__ = kept_name()
read_records = compiled(f"int64({', '.join(['int64'] * 6)})")(_read_records)
