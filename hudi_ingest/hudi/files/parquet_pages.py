"""Some values of a column of a Parquet file, read from the pages that have them.

Arrow decodes all pages of a column. So it gets a file in memory: the wanted pages as they are, with their checksums, and a footer for them.
The file's page index, which Spark writes, says where they are. Its bytes and those of the footer are Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO  # files: none, bytes in memory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hudi_ingest.hudi.files.log_file import varint

_MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _SHORT, _INT, _LONG, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_Struct = dict[int, tuple[int, Any]]
"""The type and value of each field by its number. A number's value is its zigzag code, a list's the type of its items, and these."""
_LOCATION = [1 << 4 | _LONG, 1 << 4 | _INT, 1 << 4 | _LONG, 0]
"""What stands before the three numbers of a page's location, and after them."""
_MOST_WANTED = 0.4
"""Share of a column's bytes above which decoding all of them costs no more."""
_PORTION_BYTES = 32 * 1024 * 1024
"""Pages decoded at once, about."""


class PageIndex:
    """The page index of a Parquet file."""

    def __init__(self, source: pa.NativeFile, most_skipped: int) -> None:
        """`most_skipped`: the longest gap between two pages that is read with them, in bytes. Raises OSError."""
        self._source = source
        self._most_skipped = most_skipped
        end = source.size() - len(_MAGIC) - 4
        size = int.from_bytes(source.read_at(4, end), "little")
        self._footer = _struct(BytesIO(source.read_at(size, end - size)))

    def values(self, group: int, leaf: int, places: np.ndarray) -> Iterator[pa.Array] | None:
        """Read the values of a row group's column at these places, which ascend, some at a time. None if the column is nested or has no
        such index, or if most of its pages are wanted. Raises OSError."""
        chunk = self._groups[group][1][1][1][leaf]
        element = [element for element in self._elements if 5 not in element][leaf]
        if not {3, 4, 5} <= chunk.keys() or len(chunk[3][1][3][1][1]) > 1 or element[3][1] >> 1 > 1:
            return None
        locations = _locations(self._source.read_at(chunk[5][1] >> 1, chunk[4][1] >> 1))
        if locations is None:
            return None
        page_of = np.searchsorted(locations[:, 2], places, "right") - 1
        if locations[np.unique(page_of), 1].sum() > _MOST_WANTED * locations[:, 1].sum():
            return None
        return self._read(chunk, element, locations, self._groups[group][3][1] >> 1, page_of, places)

    @property
    def _elements(self) -> list[_Struct]:
        elements: list[_Struct] = self._footer[2][1][1]
        return elements

    @property
    def _groups(self) -> list[_Struct]:
        groups: list[_Struct] = self._footer[4][1][1]
        return groups

    def _read(
        self,
        chunk: _Struct,
        element: _Struct,
        locations: np.ndarray,
        rows: int,
        page_of: np.ndarray,
        places: np.ndarray,
    ) -> Iterator[pa.Array]:
        column: _Struct = chunk[3][1]
        begins, sizes, first_rows = locations.T
        wanted = np.unique(page_of)
        counts = np.diff(first_rows, append=rows)
        # A dictionary comes first, whatever the footer says of it.
        first = min((column[number][1] >> 1 for number in (9, 11) if column.get(number, (0, 0))[1]), default=0)
        dictionary = self._source.read_at(int(begins[0]) - first, first)
        portions = np.cumsum(sizes[wanted]) * column[6][1] // (column[7][1] * _PORTION_BYTES)
        for pages in np.split(wanted, np.flatnonzero(np.diff(portions)) + 1):
            content = b"".join([_MAGIC, dictionary, *self._pages(begins[pages], sizes[pages])])
            file = pa.BufferReader(
                content + self._ending(column, element, len(dictionary), len(content), int(counts[pages].sum()))
            )
            values = pq.ParquetFile(file, page_checksum_verification=True).read()[0]
            of_places = slice(*np.searchsorted(page_of, (pages[0], pages[-1] + 1)))
            shifts = np.cumsum(counts[pages]) - counts[pages] - first_rows[pages]
            at = places[of_places] + shifts[np.searchsorted(pages, page_of[of_places])]
            yield from values.take(pa.array(at)).chunks

    def _pages(self, begins: np.ndarray, sizes: np.ndarray) -> Iterator[bytes]:
        ends = begins + sizes
        far = np.flatnonzero(begins[1:] - ends[:-1] > self._most_skipped) + 1
        for near in np.split(np.arange(len(begins)), far):
            start = int(begins[near[0]])
            content = self._source.read_at(int(ends[near[-1]]) - start, start)
            yield from (content[begins[page] - start : ends[page] - start] for page in near.tolist())

    def _ending(self, column: _Struct, element: _Struct, dictionary: int, end: int, rows: int) -> bytes:
        """Make the footer of a file whose only column chunk is before `end`."""
        size, count = _long(end - len(_MAGIC)), _long(rows)
        data = {number: column[number] for number in (1, 2, 3, 4)} | {5: count, 6: size, 7: size}
        data |= {9: _long(len(_MAGIC) + dictionary)} | ({11: _long(len(_MAGIC))} if dictionary else {})
        chunk = {2: _long(len(_MAGIC)), 3: (_STRUCT, data)}
        group = {1: (_LIST, (_STRUCT, [chunk])), 2: size, 3: count}
        elements = [self._elements[0] | {5: (_INT, 1 << 1)}, element]
        footer: _Struct = {number: self._footer[number] for number in (1, 6) if number in self._footer}
        footer |= {2: (_LIST, (_STRUCT, elements)), 3: count, 4: (_LIST, (_STRUCT, [group]))}
        encoded = _bytes_of(_STRUCT, footer)
        return encoded + len(encoded).to_bytes(4, "little") + _MAGIC


def _locations(index: bytes) -> np.ndarray | None:
    """Return each page's place, size and first row; None if they are written otherwise than writers do."""
    data = BytesIO(index)
    data.read(1)
    _, count = _list_head(data)
    codes = np.frombuffer(index, np.uint8, offset=data.tell())
    ends = np.flatnonzero(codes < 0x80)[: 7 * count] + 1
    starts = np.concatenate([[0], ends[:-1]])
    shifts = 7 * (np.arange(ends[-1]) - np.repeat(starts, ends - starts))
    numbers = np.add.reduceat((codes[: ends[-1]] & 0x7F).astype(np.int64) << shifts, starts).reshape(-1, 7)
    return numbers[:, 1::2] >> 1 if (numbers[:, ::2] == _LOCATION).all() else None


def read_varint(data: BytesIO) -> int:
    """Read a number that is not negative, of groups of seven bits, the lowest first."""
    shift = number = 0
    while True:
        (byte,) = data.read(1)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7


def _long(number: int) -> tuple[int, int]:
    return _LONG, number << 1


def _list_head(data: BytesIO) -> tuple[int, int]:
    """The type of a list's items, and their number."""
    (head,) = data.read(1)
    return head & 15, read_varint(data) if head >> 4 == 15 else head >> 4


def _struct(data: BytesIO) -> _Struct:
    fields: _Struct = {}
    number = 0
    while head := data.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else read_varint(data) >> 1
        fields[number] = head & 15, _value(data, head & 15)
    return fields


def _value(data: BytesIO, kind: int) -> Any:
    if kind == _STRUCT:
        return _struct(data)
    if kind in (_LIST, _SET):
        item, count = _list_head(data)
        return item, [_value(data, item) for _ in range(count)]
    if kind in (_SHORT, _INT, _LONG):
        return read_varint(data)
    # A field's type is its boolean.
    return data.read(read_varint(data) if kind == _BINARY else {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}[kind])


def _bytes_of(kind: int, value: Any) -> bytes:
    if kind == _STRUCT:
        steps = zip(sorted(value), np.diff(sorted(value), prepend=0).tolist(), strict=True)
        return b"".join(bytes([step << 4 | value[n][0]]) + _bytes_of(*value[n]) for n, step in steps) + b"\0"
    if kind in (_LIST, _SET):
        item, items = value
        return bytes([15 << 4 | item]) + varint(len(items)) + b"".join(_bytes_of(item, each) for each in items)
    if kind in (_SHORT, _INT, _LONG):
        return varint(value)
    return varint(len(value)) + value if kind == _BINARY else bytes(value)
