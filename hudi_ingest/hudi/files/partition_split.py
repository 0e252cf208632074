"""Split rows by table partition, copying as few of them as it can; columns with one value in all rows become dictionaries, which
are cheaper to write to Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from hudi_ingest.records.hudi_keys import partition_path
from hudi_ingest.records.kafka_columns import OFFSET

_INDEX = pa.int32()
ONE_TEXT = pa.dictionary(_INDEX, pa.string())
"""Their type."""


def same_for_all(value: str | None, count: int) -> pa.DictionaryArray:
    indices = pa.nulls(count, _INDEX) if value is None else pa.repeat(pa.scalar(0, _INDEX), count)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value or ""]))


def with_column(rows: pa.Table, name: str, column: pa.DictionaryArray) -> pa.Table:
    """Replace the column of this name."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place).with_type(column.type), column)


_ROWS_OF_A_GROUP = 64
"""Rows are sorted by table partition in tables of so many rows for each: fewer would make many short slices."""
_LEAST_PIECE = 256
"""Rows; smaller pieces of a table cost more than a copy."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows with one combination of partition values."""

    path: str
    values: tuple[Any, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Pieces:
    """Tables whose rows lie group by group."""

    tables: list[pa.Table]
    groups: list[_Group]
    counts: list[np.ndarray]
    """Each table's number of rows of each group."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows, and which group each row belongs to."""

    batches: list[pa.Table]
    groups: list[_Group]
    codes: np.ndarray
    """Index of each row's group."""

    @property
    def paths(self) -> list[str]:
        """One per table partition; null and "" share a folder."""
        return list(dict.fromkeys(group.path for group in self.groups))

    def rows_of_paths(self) -> dict[str, int]:
        counts = dict.fromkeys(self.paths, 0)
        for group in self.groups:
            counts[group.path] += group.rows
        return counts

    def pieces(self, paths: Sequence[str], implied: Sequence[str] = ()) -> tuple[Pieces, list[pa.Table]]:
        """Return these table partitions' rows group by group, each in its original order, and the other rows.

        Takes the batches out of `batches`, so that each is freed when its rows are copied. The pieces are without the texts of
        the partition columns `implied`, which `parts_of` fills in for each group.
        """
        within = self._within(paths)
        # numpy radix-sorts 16-bit codes.
        codes = self.codes.astype(np.uint16) if len(self.groups) <= 1 << 16 else self.codes
        tables, counts, others = [], [], []
        start = 0
        while self.batches:
            rows = self._next_rows()
            codes_of_rows = codes[start : start + rows.num_rows]
            start += rows.num_rows
            if not within.all():
                other_rows = rows.filter(pa.array(~within[codes_of_rows]))
                if other_rows.num_rows:
                    others.append(other_rows)
            for name in implied:
                if rows.schema.field(name).type == pa.string():
                    rows = with_column(rows, name, same_for_all(None, rows.num_rows))
            for table, count in _grouped(rows, codes_of_rows, within):
                tables.append(table)
                counts.append(count)
        return Pieces(tables, self.groups, counts), others

    def _next_rows(self) -> pa.Table:
        """Take out some rows per group. One batch is sorted without being copied into one piece first."""
        batches = [self.batches.pop(0)]
        count = batches[0].num_rows
        while self.batches and count < _ROWS_OF_A_GROUP * len(self.groups):
            batches.append(self.batches.pop(0))
            count += batches[-1].num_rows
        return pa.concat_tables(batches)

    def _within(self, paths: Sequence[str]) -> np.ndarray:
        chosen = set(paths)
        return np.fromiter((group.path in chosen for group in self.groups), bool, len(self.groups))


def _grouped(rows: pa.Table, codes: np.ndarray, within: np.ndarray) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Sort the rows of the groups `within` by group, and count them.

    Rows that lie so already are not copied, nor is a group of most rows in few pieces.
    """
    counts = np.where(within, np.bincount(codes, minlength=len(within)), 0)
    if counts.sum() == len(codes) and not (codes[1:] < codes[:-1]).any():
        yield rows, counts
        return
    largest = int(counts.argmax())
    if 2 * counts[largest] >= len(codes):
        places = np.flatnonzero(codes == largest)
        ends = np.flatnonzero(np.diff(places) != 1) + 1
        if _LEAST_PIECE * len(ends) <= len(places):
            slices = [rows.slice(piece[0], len(piece)) for piece in np.split(places, ends)]
            yield pa.concat_tables(slices), np.where(np.arange(len(counts)) == largest, counts, 0)
            within = within.copy()
            within[largest], counts[largest] = False, 0
    places = np.flatnonzero(within[codes])
    if len(places):
        # A stable sort keeps the row order within a group.
        yield rows.take(pa.array(places[np.argsort(codes[places], kind="stable")])), counts


def split_rows(batches: list[pa.Table], columns: Sequence[str], hive_style: bool, escaped: bool) -> Split:
    rows = pa.concat_tables(batches)
    codes = np.zeros(rows.num_rows, np.int32)
    values: list[tuple[Any, ...]] = [()]
    for name in columns:
        encoded = rows[name].combine_chunks().dictionary_encode()
        indices, options = encoded.indices, encoded.dictionary.to_pylist()
        if encoded.null_count:
            indices, options = indices.fill_null(len(options)), [*options, None]
        indices, width = indices.to_numpy(zero_copy_only=False), len(options)
        if len(values) == 1:
            # The earlier columns have one combination of values, so each option occurs with it.
            codes, values = indices, [(*values[0], option) for option in options]
        else:
            combined = pa.array(codes * np.int64(width) + indices).dictionary_encode()
            codes = combined.indices.to_numpy()
            values = [(*values[code // width], options[code % width]) for code in combined.dictionary.to_pylist()]
    counts = np.bincount(codes, minlength=len(values)).tolist()
    groups = [
        _Group(partition_path(columns, combination, hive_style, escaped), combination, count)
        for combination, count in zip(values, counts, strict=True)
    ]
    return Split(batches, groups, codes)


def parts_of(pieces: Pieces, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Cut the pieces into table partitions, without copying."""
    schema = pieces.tables[0].schema
    texts = [(index, name) for index, name in enumerate(columns) if schema.field(name).type in (pa.string(), ONE_TEXT)]
    ends = [np.cumsum(counts) for counts in pieces.counts]
    by_path: dict[str, list[pa.Table]] = {}
    for number, group in enumerate(pieces.groups):
        slices = [
            table.slice(end[number] - counts[number], counts[number])
            for table, counts, end in zip(pieces.tables, pieces.counts, ends, strict=True)
            if counts[number]
        ]
        if slices:
            part = slices[0] if len(slices) == 1 else pa.concat_tables(slices)
            for index, name in texts:
                part = with_column(part, name, same_for_all(group.values[index], part.num_rows))
            by_path.setdefault(group.path, []).append(part)
    for path, parts in by_path.items():
        if len(parts) > 1:
            # Null and "" share one folder: put their rows back into offset order.
            parts = [pa.concat_tables(parts).unify_dictionaries().combine_chunks().sort_by(OFFSET)]
        yield path, parts[0]
