"""The layout of a type's bytes, and whole batches of datums as columns of plain numbers and bytes.

A column has no meaning: strings and enums are the bytes and numbers that they are written as, and maps are lists of keys and values. So
nothing that matters to a row is decided here: not UTF-8, not the range of dates, not repeated keys. Fields go by their places, as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hudi_ingest.records.convert.values import value_bytes
from hudi_ingest.records.schema.wire_type import WireType

_KINDS = {"string": "bytes", "map": "array", "int": "long", "enum": "long"}


@dataclass(frozen=True)
class Node:
    """The layout of a type's bytes."""

    kind: str
    """One of `datums.KINDS`."""
    size: int = 0
    """Bytes of a fixed; the number of null in a union, or -1."""
    parts: tuple[Node, ...] = ()
    kept: bool = True
    """Whether a column is made of its values."""


def node_of(tree: WireType, parts: tuple[Node, ...] = (), kept: bool = True) -> Node:
    """Return the layout of a type whose parts have these."""
    size = tree.size
    if tree.kind == "map":
        parts = (Node("record", 0, (Node("bytes", kept=kept), *parts), kept),)
    elif tree.kind == "union":
        size = next((place for place, part in enumerate(tree.parts) if part.kind == "null"), -1)
    return Node(_KINDS.get(tree.kind, tree.kind), size, parts, kept)


def whole_layout(tree: WireType, kept: bool) -> Node:
    """Return the layout of a type and all its parts. Of a union of several types, only whether a value is null is kept."""
    inner = kept and (tree.kind != "union" or tree.inner[0] is not tree)
    return node_of(tree, tuple(whole_layout(part, inner) for part in tree.parts), kept)


class Layout:
    """The table of a layout's nodes, and the Arrow columns of their values."""

    def __init__(self, root: Node) -> None:
        # Imported where datums are read: compiled code takes a while to load.
        from hudi_ingest.records.convert.avro import datums
        from hudi_ingest.records.convert.avro.datums import FIRST, ITEMS, KIND, KINDS, LAST, NODE_BYTES, SIZE

        self._datums = datums
        self._nodes, self._levels = [root], [0]
        self._parts: list[range] = []
        rows: list[list[int]] = []
        self._count = 1
        for number, node in enumerate(self._nodes):
            row, level = [0] * (NODE_BYTES // 8), self._levels[number]
            row[KIND // 8], row[SIZE // 8] = KINDS.index(node.kind), node.size
            row[FIRST // 8] = (len(self._nodes) - number) * NODE_BYTES
            if node.kind == "array":
                row[ITEMS // 8] = level = self._count
                self._count += 1
            self._parts.append(range(len(self._nodes), len(self._nodes) + len(node.parts)))
            self._nodes += node.parts
            self._levels += [level] * len(node.parts)
            row[LAST // 8] = (len(self._nodes) - number) * NODE_BYTES
            rows.append(row)
        self._table = np.array(rows, np.int64)

    def read(self, datums: pa.BinaryArray, header_bytes: int) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """Return the whole datums as one column, and which they are."""
        data, starts = value_bytes(datums)
        items, places, sizes = (word // 8 for word in (self._datums.ITEMS, self._datums.VALUES, self._datums.SIZES))
        table, whole = self._table.copy(), np.ones(len(datums), np.bool_)
        counters = np.zeros(2 * self._count, np.int64)
        table[:, items] = counters.ctypes.data + 8 * table[:, items]

        # In the order of the batch's words.
        addresses = [array.ctypes.data for array in (data, starts, whole, counters)]
        batch = np.array([*addresses[:2], header_bytes, *addresses[2:], self._count], np.int64)

        def walked() -> int:
            done: int = self._datums.walk_all(table.ctypes.data, batch.ctypes.data, len(datums))
            return done

        counts = [walked(), *counters[1 : self._count].tolist()]
        counters[:] = 0
        values: dict[int, npt.NDArray[np.int64]] = {}
        for number, node in enumerate(self._nodes):
            if node.kept and node.kind not in ("record", "null"):
                has_sizes = node.kind in ("bytes", "fixed")
                kept = values[number] = np.zeros((1 + has_sizes, counts[self._levels[number]]), np.int64)
                table[number, places], table[number, sizes] = kept[0].ctypes.data, kept[-1].ctypes.data
        walked()
        return self._column(0, counts, values, None), whole

    def _column(
        self,
        number: int,
        counts: Sequence[int],
        values: Mapping[int, npt.NDArray[np.int64]],
        valid: npt.NDArray[np.int64] | None,
    ) -> pa.Array:
        """Return the values of a node as a column of plain numbers and bytes; of a union of several types, true. `valid`: 0 for those
        that are null."""
        node, count, parts = self._nodes[number], counts[self._levels[number]], self._parts[number]
        if node.kind == "union":
            present = values[number][0]
            below = [part for part in parts if self._nodes[part].kind != "null"]
            if len(below) == 1:
                return self._column(below[0], counts, values, present if node.size >= 0 else None)
            return pa.Array.from_buffers(pa.bool_(), count, [_bitmap(present)] * 2)
        if node.kind == "null":
            return pa.nulls(count)
        buffers = [None if valid is None or valid.all() else _bitmap(valid)]
        content = [self._column(part, counts, values, None) for part in parts if self._nodes[part].kept]
        if node.kind == "record":
            names = [str(place) for place, part in enumerate(parts) if self._nodes[part].kept]
            kind = pa.struct([pa.field(name, column.type) for name, column in zip(names, content, strict=True)])
            return pa.Array.from_buffers(kind, count, buffers, children=content)
        own, sizes = values[number][0], values[number][-1]
        kind = _PLAIN.get(node.kind, pa.int64())
        if node.kind == "array":
            kind = pa.list_(content[0].type)
            buffers.append(_offsets(np.maximum.accumulate(own)))
        elif node.kind in ("bytes", "fixed"):
            ends = np.cumsum(sizes)
            target = np.empty(int(ends[-1]) if count else 0, np.uint8)
            self._datums.gather(own.ctypes.data, sizes.ctypes.data, count, target.ctypes.data)
            buffers += [_offsets(ends), pa.py_buffer(target)]
        elif node.kind == "boolean":
            buffers.append(_bitmap(own))
        else:
            buffers.append(pa.py_buffer(own.astype(np.int32) if node.kind == "float" else own))
        return pa.Array.from_buffers(kind, count, buffers, children=content or None)


_PLAIN = {
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
"""Columns of kinds that are not int64."""


def _bitmap(numbers: npt.NDArray[np.int64]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(numbers.astype(np.bool_), bitorder="little"))


def _offsets(ends: npt.NDArray[np.int64]) -> pa.Buffer:
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return pa.py_buffer(offsets)
