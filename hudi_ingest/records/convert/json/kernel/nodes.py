"""A schema as the JSON kernel reads it: a table of nodes, one for each column, nested ones included.

A node stands before its children, and these stand side by side in the order of the schema. Node 0 is the record. A
level is a numbering of values: level 0 numbers the rows, and the items of each list or map have a level of their own.
A struct's members are on the struct's level.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

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
"""Words of the state: objects so far; place of the level or node that has no room, or -1; addresses."""
FRAME_BYTES = 40
"""Of a frame, one for each container that is open around another."""
MARGIN = 64
"""Bytes past a record that may be read, and past a text that may be written."""
SCRATCH_ROOM = 1024
"""Longest name that is looked at, in bytes."""

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
    """The columns of a schema whose types `json_exact` can read."""
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
