"""The buffers that the JSON kernel fills, and the Arrow columns that they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_ingest.records.convert.json.kernel import nodes as words
from hudi_ingest.records.convert.json.kernel.nodes import BOOL, LIST, MAP, NODE_BYTES, STRUCT, Node, nodes_of

_SPARE = 1.125
"""What is estimated is taken so many times."""
_FIRST_ITEMS = 256
"""Room for items of lists and maps, until it is known how many there are."""

Words = npt.NDArray[np.int64]


class Tables:
    """What the kernel knows of a schema; `nodes` still lack the addresses of buffers."""

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
                    words.KIND: node.kind,
                    words.NULLABLE: int(node.nullable),
                    words.LEVEL: node.level * words.LEVEL_BYTES,
                    words.CHILD: NODE_BYTES * min(node.children, default=0),
                    words.CHILDREN: len(node.children),
                    words.NAME: name.ctypes.data,
                    words.NAME_LENGTH: length,
                    words.NAME_WORD: int(name.view(np.int64)[0]),
                    words.NAME_MASK: (1 << 8 * length) - 1 if length < 8 else -1,
                    words.FIRST_MEMBER: NODE_BYTES * min(node.children, default=0),
                    words.FLAT_BEGIN: flat_begin,
                    words.FLAT_END: flat_end,
                    words.WIDTH: node.width,
                    words.LIMIT: (1 << 8 * node.width - 1) - 1 if node.kind == words.INTEGER else 0,
                    words.PRECISION: node.type.precision if node.kind == words.DECIMAL else 0,
                    words.SCALE: node.type.scale if node.kind == words.DECIMAL else 0,
                },
            )
            for child, following in zip(node.children, (*node.children[1:], *node.children[:1]), strict=True):
                self._put(child, {words.NEXT_MEMBER: NODE_BYTES * following})
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
        self._counts = np.zeros((len(tables.levels), words.LEVEL_BYTES // 8), np.int64)
        self._frames = np.empty(len(tables.columns) * words.FRAME_BYTES // 8, np.int64)
        self._scratch = np.empty(words.SCRATCH_ROOM + words.MARGIN, np.uint8)
        self._state = np.array([0, -1, -1, self._frames.ctypes.data, self._scratch.ctypes.data], np.int64)
        self._levels: list[_Level] = []
        for number in range(len(tables.levels)):
            self._levels.append(self._allocated(number, _FIRST_ITEMS if number else rows))
        self._texts = {number: self._text(number, text_bytes + words.MARGIN) for number in tables.texts}
        self.addresses = (
            self._nodes.ctypes.data,
            len(tables.columns),
            self._counts.ctypes.data,
            len(tables.levels),
            tables.flat.ctypes.data,
            self._state.ctypes.data,
        )

    def enlarge(self, read: int, following_bytes: int) -> None:
        """Makes the room that the kernel lacked. `read`: records read so far; `following_bytes`: of the one that is next."""
        level, node = self._state[words.FULL_LEVEL // 8], self._state[words.FULL_NODE // 8]
        self._state[words.FULL_LEVEL // 8] = self._state[words.FULL_NODE // 8] = -1
        if level >= 0:
            number = int(level) // words.LEVEL_BYTES
            self._enlarge_level(
                number, max(2 * self._levels[number].capacity, self._expected(self._count(number), read))
            )
        if node >= 0:
            number = int(node) // NODE_BYTES
            used = self._text_size(number)
            self._enlarge_text(number, max(2 * used, self._expected(used, read)) + following_bytes)

    def foresee(self, read: int, record_bytes: int) -> None:
        """Makes the room that all records will need if they are like those that have been read."""
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
        return int(self._counts[level, words.COUNT // 8])

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
        size = min(size, self._most_text_bytes) + words.MARGIN
        old = self._texts[number]
        if size > old.size:
            used = self._text_size(number)
            new = self._texts[number] = self._text(number, size)
            np.frombuffer(new, np.uint8)[:used] = np.frombuffer(old, np.uint8)[:used]

    def _text(self, number: int, size: int) -> pa.Buffer:
        memory = pa.allocate_buffer(size)
        self._nodes[number, words.DATA // 8] = memory.address
        self._nodes[number, words.CAPACITY // 8] = size
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
        for word, places in ((words.VALID, level.valid), (words.VALUES, level.values), (words.OFFSETS, level.offsets)):
            self._nodes[list(places), word // 8] = np.array(list(places.values()), np.int64) + level.memory.address
        self._counts[number, words.LEVEL_CAPACITY // 8] = capacity
        return level

    def _column(self, number: int) -> pa.Array:
        node = self._tables.columns[number]
        level, length = self._levels[node.level], self._count(node.level)
        has_null = bool(self._nodes[number, words.HAS_NULL // 8])
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
