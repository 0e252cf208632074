"""A schema as the JSON kernel reads it, the buffers that the kernel fills, and the Arrow columns that they are. Without numba.

A schema is a table of nodes, one for each column, nested ones included. A node stands before its children, and these stand side
by side in the order of the schema. Node 0 is the record. A level is a numbering of values: level 0 numbers the rows, and the
items of each list or map have a level of their own. A struct's members are on the struct's level.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

INTEGER, FLOAT64, FLOAT32, DECIMAL, BOOL, TIMESTAMP, DATE, BINARY, STRING, STRUCT, LIST, MAP = range(12)
"""Kinds. Those that JSON writes as numbers are the first, those with children the last."""

_places = count(0, 8)
KIND, NULLABLE, LEVEL, CHILD, CHILDREN = (next(_places) for _ in range(5))
"""Words of a node, as their places in bytes. CHILD: place of the first child in the table; LEVEL: place of the level in
the table of levels."""
NAME, NAME_LENGTH, NAME_WORD, NAME_MASK = (next(_places) for _ in range(4))
"""NAME: address of the name and the quote behind it, NAME_LENGTH counts both; NAME_WORD: its first 8 bytes, and which
of their bits count."""
FIRST_MEMBER, NEXT_MEMBER, SEEN_BY = (next(_places) for _ in range(3))
"""Places of the nodes that are expected: as a struct's first member, and behind this member. The kernel corrects them.
SEEN_BY: number of the last object that had the member."""
FLAT_BEGIN, FLAT_END, HAS_NULL = (next(_places) for _ in range(3))
"""Which entries of the flat table are this node and those below it on its level."""
VALID, VALUES, WIDTH, OFFSETS, DATA, CAPACITY = (next(_places) for _ in range(6))
"""Addresses of the buffers, bytes of a value, room of DATA in bytes."""
LIMIT, PRECISION, SCALE = (next(_places) for _ in range(3))
"""LIMIT: the greatest integer."""
NODE_BYTES = next(_places)

_places = count(0, 8)
COUNT, SAVED, LEVEL_CAPACITY = (next(_places) for _ in range(3))
"""Words of a level: values so far, those before the record that is read, room in values."""
LEVEL_BYTES = next(_places)

_places = count(0, 8)
OBJECTS, FULL_LEVEL, FULL_NODE, FRAMES, SCRATCH = (next(_places) for _ in range(5))
NODES, NODE_COUNT, LEVELS, LEVEL_COUNT, FLAT = (next(_places) for _ in range(5))
"""Words of the state: objects so far; place of the level or node that has no room, or -1; addresses; the tables' addresses and
lengths."""
FRAME_BYTES = 40
"""Bytes of a frame, one for each container that is open around another."""
MARGIN = 64
"""Bytes past a record that may be read, and past a text that may be written."""
SCRATCH_ROOM = 1024
"""Longest name that is compared, in bytes."""

_ESCAPED = re.compile(r'["\\\x00-\x1f]')


@dataclass(frozen=True)
class Node:
    """A column."""

    kind: int
    type: pa.DataType
    nullable: bool
    name: bytes
    level: int
    children: tuple[int, ...]
    """Numbers of nodes: a struct's members, a list's items, a map's keys and values."""
    flat: tuple[int, ...]
    """Numbers of this node and those below it on its level."""

    @property
    def width(self) -> int:
        """Bytes of a value; 0 for those that have no values, or bits."""
        return (
            16 if self.kind == DECIMAL else self.type.bit_width // 8 if self.kind < BINARY and self.kind != BOOL else 0
        )

    @property
    def has_offsets(self) -> bool:
        return self.kind in (BINARY, STRING, LIST, MAP)

    @property
    def has_text(self) -> bool:
        return self.kind in (BINARY, STRING)


def nodes_of(schema: pa.Schema) -> tuple[Node, ...]:
    """The columns of a schema whose types `json.exact` can read."""
    table: list[Node | None] = [None]
    levels = count(1)

    def add(number: int, field: pa.Field, level: int) -> None:
        kind = _kind(field.type)
        below, below_level = _below(field.type), next(levels) if kind in (LIST, MAP) else level
        first = len(table)
        table.extend([None] * len(below))
        for place, child in enumerate(below):
            add(first + place, child, below_level)
        children = tuple(range(first, first + len(below)))
        flat = [number]
        if kind == STRUCT:
            flat += [each for child in children for each in table[child].flat]  # type: ignore[union-attr]
        name = field.name.encode()
        table[number] = Node(kind, field.type, field.nullable, name, level, children, tuple(flat))

    add(0, pa.field("", pa.struct(list(schema)), False), 0)
    return tuple(node for node in table if node is not None)


def has_escaped_name(nodes: Sequence[Node]) -> bool:
    """Whether JSON can write one of the names only with escapes."""
    return any(_ESCAPED.search(node.name.decode()) for node in nodes)


def _below(type_: pa.DataType) -> Sequence[pa.Field]:
    if pa.types.is_struct(type_):
        return [type_.field(place) for place in range(type_.num_fields)]
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    return [type_.value_field] if pa.types.is_list(type_) else []


def _kind(type_: pa.DataType) -> int:
    kinds = {
        INTEGER: pa.types.is_signed_integer,
        FLOAT64: pa.types.is_float64,
        FLOAT32: pa.types.is_float32,
        DECIMAL: pa.types.is_decimal128,
        BOOL: pa.types.is_boolean,
        TIMESTAMP: pa.types.is_timestamp,
        DATE: pa.types.is_date32,
        BINARY: pa.types.is_binary,
        STRING: pa.types.is_string,
        STRUCT: pa.types.is_struct,
        LIST: pa.types.is_list,
        MAP: pa.types.is_map,
    }
    return next(kind for kind, is_it in kinds.items() if is_it(type_))


_SPARE = 1.125
"""What is estimated is taken so many times."""
_FIRST_ITEMS = 256
"""Room for items of lists and maps, until it is known how many there are."""

Words = npt.NDArray[np.int64]


class Tables:
    """The kernel's form of a schema; `nodes` still lack the addresses of buffers."""

    def __init__(self, schema: pa.Schema) -> None:
        self.columns = nodes_of(schema)
        self.nodes = np.zeros((len(self.columns), NODE_BYTES // 8), np.int64)
        self.flat = np.array([NODE_BYTES * each for node in self.columns for each in node.flat], np.int64)
        self._names, flat_end = _padded_names(self.columns), 0
        for number, node in enumerate(self.columns):
            flat_begin, flat_end = flat_end, flat_end + len(node.flat)
            name, length = self._names[number], len(node.name) + 1
            self._put(
                number,
                {
                    KIND: node.kind,
                    NULLABLE: int(node.nullable),
                    LEVEL: node.level * LEVEL_BYTES,
                    CHILD: NODE_BYTES * min(node.children, default=0),
                    CHILDREN: len(node.children),
                    NAME: name.ctypes.data,
                    NAME_LENGTH: length,
                    NAME_WORD: int(name.view(np.int64)[0]),
                    NAME_MASK: (1 << 8 * length) - 1 if length < 8 else -1,
                    FIRST_MEMBER: NODE_BYTES * min(node.children, default=0),
                    FLAT_BEGIN: flat_begin,
                    FLAT_END: flat_end,
                    WIDTH: node.width,
                    LIMIT: (1 << 8 * node.width - 1) - 1 if node.kind == INTEGER else 0,
                    PRECISION: node.type.precision if node.kind == DECIMAL else 0,
                    SCALE: node.type.scale if node.kind == DECIMAL else 0,
                },
            )
            for child, following in zip(node.children, (*node.children[1:], *node.children[:1]), strict=True):
                self._put(child, {NEXT_MEMBER: NODE_BYTES * following})
        count = max(node.level for node in self.columns) + 1
        self.levels = [
            [number for number, node in enumerate(self.columns) if node.level == level] for level in range(count)
        ]
        self.texts = [number for number, node in enumerate(self.columns) if node.has_text]

    def _put(self, number: int, values: dict[int, int]) -> None:
        for place, value in values.items():
            self.nodes[number, place // 8] = value


def _padded_names(nodes: Sequence[Node]) -> list[npt.NDArray[np.uint8]]:
    texts = [node.name + b'"' for node in nodes]
    return [np.frombuffer(text + bytes(-len(text) % 8), np.uint8) for text in texts]


@dataclass
class _Level:
    """The buffers of fixed sizes that all columns of a level have, in one allocation."""

    capacity: int
    memory: pa.Buffer
    valid: dict[int, int]
    """Node number -> where its part of the memory begins, as the next two."""
    values: dict[int, int]
    offsets: dict[int, int]


class Columns:
    """One batch's: room for `rows` rows, and more room for texts and items whenever the kernel asks for it."""

    def __init__(self, tables: Tables, rows: int, text_bytes: int, most_text_bytes: int) -> None:
        """`text_bytes`: first room for each column of texts; `most_text_bytes`: what none can go beyond."""
        self._tables, self._rows, self._most_text_bytes = tables, rows, most_text_bytes
        self._nodes = tables.nodes.copy()
        self._counts = np.zeros((len(tables.levels), LEVEL_BYTES // 8), np.int64)
        self._frames = np.empty(len(tables.columns) * FRAME_BYTES // 8, np.int64)
        self._scratch = np.empty(SCRATCH_ROOM + MARGIN, np.uint8)
        memory = (self._frames.ctypes.data, self._scratch.ctypes.data)
        nodes = (self._nodes.ctypes.data, len(tables.columns))
        levels = (self._counts.ctypes.data, len(tables.levels))
        self._state = np.array([0, -1, -1, *memory, *nodes, *levels, tables.flat.ctypes.data], np.int64)
        self._levels: list[_Level] = []
        for number in range(len(tables.levels)):
            self._levels.append(self._allocated(number, _FIRST_ITEMS if number else rows))
        self._texts = {number: self._text(number, text_bytes + MARGIN) for number in tables.texts}
        self.state_address = self._state.ctypes.data

    def enlarge(self, read: int, following_bytes: int) -> None:
        """Make the room that the kernel lacked. `read`: records read so far; `following_bytes`: the size of the next one."""
        level, node = self._state[FULL_LEVEL // 8], self._state[FULL_NODE // 8]
        self._state[FULL_LEVEL // 8] = self._state[FULL_NODE // 8] = -1
        if level >= 0:
            number = int(level) // LEVEL_BYTES
            self._enlarge_level(
                number, max(2 * self._levels[number].capacity, self._expected(self._count(number), read))
            )
        if node >= 0:
            number = int(node) // NODE_BYTES
            used = self._text_size(number)
            self._enlarge_text(number, max(2 * used, self._expected(used, read)) + following_bytes)

    def foresee(self, read: int, record_bytes: int) -> None:
        """Make the room that all records will need if they are like those that have been read."""
        for number in range(1, len(self._levels)):
            self._enlarge_level(number, self._expected(self._count(number), read))
        for number in self._texts:
            self._enlarge_text(number, self._expected(self._text_size(number), read) + record_bytes)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        columns = [self._column(number) for number in self._tables.columns[0].children]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _expected(self, used: int, read: int) -> int:
        return int(used / max(read, 1) * self._rows * _SPARE) + 1

    def _count(self, level: int) -> int:
        return int(self._counts[level, COUNT // 8])

    def _text_size(self, number: int) -> int:
        level = self._levels[self._tables.columns[number].level]
        count = self._count(self._tables.columns[number].level)
        return int(np.frombuffer(level.memory, np.int32, 1, level.offsets[number] + 4 * count)[0])

    def _enlarge_level(self, number: int, capacity: int) -> None:
        old, count = self._levels[number], self._count(number)
        if capacity <= old.capacity:
            return
        new = self._levels[number] = self._allocated(number, capacity)
        target, source = np.frombuffer(new.memory, np.uint8), np.frombuffer(old.memory, np.uint8)
        for places, old_places, bits in (
            (new.valid, old.valid, dict.fromkeys(new.valid, 1)),
            (new.values, old.values, {node: self._value_bits(node) for node in new.values}),
        ):
            for node, begin in places.items():
                size = (count * bits[node] + 7) // 8
                target[begin : begin + size] = source[old_places[node] : old_places[node] + size]
        for node, begin in new.offsets.items():
            size = 4 * (count + 1)
            target[begin : begin + size] = source[old.offsets[node] : old.offsets[node] + size]

    def _enlarge_text(self, number: int, size: int) -> None:
        size = min(size, self._most_text_bytes) + MARGIN
        old = self._texts[number]
        if size > old.size:
            used = self._text_size(number)
            new = self._texts[number] = self._text(number, size)
            np.frombuffer(new, np.uint8)[:used] = np.frombuffer(old, np.uint8)[:used]

    def _text(self, number: int, size: int) -> pa.Buffer:
        memory = pa.allocate_buffer(size)
        self._nodes[number, DATA // 8] = memory.address
        self._nodes[number, CAPACITY // 8] = size
        return memory

    def _value_bits(self, number: int) -> int:
        node = self._tables.columns[number]
        return 1 if node.kind == BOOL else 8 * node.width

    def _allocated(self, number: int, capacity: int) -> _Level:
        numbers, end = self._tables.levels[number], 0
        bitmap = _aligned((capacity + 7) // 8)
        level = _Level(capacity, None, {}, {}, {})
        for node in numbers:
            level.valid[node] = end
            end += bitmap
        valid_end = end
        for node in numbers:
            if bits := self._value_bits(node):
                level.values[node] = end
                end += _aligned((capacity * bits + 7) // 8)
        for node in numbers:
            if self._tables.columns[node].has_offsets:
                level.offsets[node] = end
                end += _aligned(4 * (capacity + 1))
        level.memory = pa.allocate_buffer(end)
        np.frombuffer(level.memory, np.uint8)[:valid_end] = 0xFF
        for begin in level.offsets.values():
            np.frombuffer(level.memory, np.int32, 1, begin)[0] = 0
        for word, places in ((VALID, level.valid), (VALUES, level.values), (OFFSETS, level.offsets)):
            self._nodes[list(places), word // 8] = np.array(list(places.values()), np.int64) + level.memory.address
        self._counts[number, LEVEL_CAPACITY // 8] = capacity
        return level

    def _column(self, number: int) -> pa.Array:
        node = self._tables.columns[number]
        level, length = self._levels[node.level], self._count(node.level)
        has_null = bool(self._nodes[number, HAS_NULL // 8])
        buffers = [level.memory.slice(level.valid[number], (length + 7) // 8) if has_null else None]
        if bits := self._value_bits(number):
            buffers.append(level.memory.slice(level.values[number], (length * bits + 7) // 8))
        if node.has_offsets:
            buffers.append(level.memory.slice(level.offsets[number], 4 * (length + 1)))
        if node.has_text:
            buffers.append(self._texts[number].slice(0, self._text_size(number)))
        children = [self._column(child) for child in node.children]
        if node.kind == MAP:
            entries = pa.struct([node.type.key_field, node.type.item_field])
            children = [pa.Array.from_buffers(entries, len(children[0]), [None], 0, children=children)]
        below = children if node.kind in (STRUCT, LIST, MAP) else None
        return pa.Array.from_buffers(node.type, length, buffers, -1 if has_null else 0, children=below)


def _aligned(size: int) -> int:
    return size + -size % 64
