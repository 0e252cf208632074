"""Fill the values that a database left out of its changes: with those of the key's earlier change in the same rows, else of its
current row.

Rows say in LEFT_OUT which columns they lack. Only the newest change of a key is filled, because no other is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.hudi.files.current_rows import Found, column_of
from hudi_ingest.records.changes import DELETED, LEFT_OUT

DELETED_BEFORE = "this key's row was deleted before"
NOT_THERE = "the table has no row of this key"


@dataclass(frozen=True, slots=True)
class Slots:
    """Where rows belong: those of one key in one table partition share a slot."""

    keys: pa.Array
    folders: np.ndarray
    """The table partition's index, of each row."""
    order: np.ndarray
    """All places, in the order in which changes win."""


Lookup = Callable[[int, int, pa.Array, Mapping[str, pa.DataType]], Found]
"""Finds rows, by table partition, bucket, keys and columns."""


@dataclass(slots=True)
class Filled:
    """What has become of the newest changes."""

    rows: pa.Table
    newest: dict[int, int | None] = field(default_factory=dict)
    """Newest changes that are not to be written, by their places: the change that is in their place, or None."""
    refused: dict[int, str] = field(default_factory=dict)
    """Changes that cannot be filled, by their places, and the reason. All that one of them stands before are refused with it."""


@dataclass(slots=True)
class _Gaps:
    """What the newest change of a slot lacks."""

    place: int
    names: set[str]
    """The columns that no earlier change has, either."""
    run: list[int] = field(default_factory=list)
    """It and the changes before it, the newest first, until a delete."""
    deleted: int | None = None
    """The place of the delete before them."""


def fill(rows: pa.Table, by: str, slots: Slots, newest: np.ndarray, buckets: np.ndarray, lookup: Lookup) -> Filled:
    """Fill the `newest` changes (places in `rows`), which are in these `buckets`. `by`: the ordering column, of numbers. Raises what
    `lookup` raises."""
    lacking: list[list[str] | None] = rows[LEFT_OUT].to_pylist()
    deleted = rows[DELETED].to_numpy()
    chosen = [
        (number, int(newest[number]))
        for number in np.flatnonzero((rows[LEFT_OUT].is_valid().to_numpy() & ~deleted)[newest]).tolist()
    ]
    filled = Filled(rows)
    if not chosen:
        return filled
    earlier = _earlier(slots, [place for _, place in chosen])
    sources: dict[str, list[tuple[int, int]]] = {}
    """By column: the place to fill, and the place of the value."""
    unknown: dict[tuple[int, int], list[_Gaps]] = {}
    for number, place in chosen:
        gaps = _Gaps(place, {*(lacking[place] or ())}, [place])
        for before in earlier[place]:
            if deleted[before]:
                gaps.deleted = before
                break
            gaps.run.append(before)
            known = gaps.names.difference(lacking[before] or ())
            gaps.names -= known
            for name in known:
                sources.setdefault(name, []).append((place, before))
            if not gaps.names:
                break
        if gaps.names and gaps.deleted is not None:
            _refuse(filled, gaps, DELETED_BEFORE)
        elif gaps.names:
            unknown.setdefault((int(slots.folders[place]), int(buckets[number])), []).append(gaps)
    columns = {name: [rows[name]] for name in rows.column_names}
    lengths = dict.fromkeys(columns, rows.num_rows)
    for (folder, bucket), wanted in unknown.items():
        names = sorted(set().union(*(gaps.names for gaps in wanted)))
        keys = slots.keys.take(pa.array([gaps.place for gaps in wanted]))
        found = lookup(folder, bucket, keys, {name: rows.schema.field(name).type for name in names})
        starts = np.cumsum([0, *(table.num_rows for table in found.rows)])
        for gaps, key in zip(wanted, keys.to_pylist(), strict=True):
            at = found.places.get(key)
            if at is None and found.ordering.get(key, -1) > rows[by][gaps.place].as_py():
                # In a replay: the table has a later delete, so that this change comes to nothing.
                filled.newest[gaps.place] = gaps.deleted
                continue
            if at is None:
                _refuse(filled, gaps, DELETED_BEFORE if key in found.places else NOT_THERE)
                continue
            for name in gaps.names:
                sources.setdefault(name, []).append((gaps.place, lengths[name] + int(starts[at[0]]) + at[1]))
        for name in names:
            columns[name].append(column_of(found, name, rows.schema.field(name).type))
            lengths[name] += int(starts[-1])
    for name, pairs in sources.items():
        places = np.arange(rows.num_rows)
        targets, values = np.array(pairs).T
        places[targets] = values
        chunks = [chunk for part in columns[name] for chunk in part.chunks]
        column = pa.chunked_array(chunks, rows.schema.field(name).type).take(pa.array(places))
        at_column = filled.rows.schema.get_field_index(name)
        filled.rows = filled.rows.set_column(at_column, filled.rows.schema.field(at_column), column)
    return filled


def _refuse(filled: Filled, gaps: _Gaps, why: str) -> None:
    filled.newest[gaps.place] = gaps.deleted
    filled.refused |= dict.fromkeys(gaps.run, why)


def _earlier(slots: Slots, places: Sequence[int]) -> Mapping[int, Sequence[int]]:
    """Return the changes that share the slot of each of the places, which are the newest in theirs, the newest first."""
    keys = slots.keys.take(pa.array(places))
    distinct = keys.unique()
    numbers = pc.index_in(slots.keys, distinct)
    candidates = np.flatnonzero(numbers.is_valid().to_numpy(zero_copy_only=False))
    slot_of = numbers.take(pa.array(candidates)).to_numpy()
    newest = {
        (number, int(slots.folders[place])): place
        for number, place in zip(pc.index_in(keys, distinct).to_pylist(), places, strict=True)
    }
    ranks = np.empty(len(slots.order), np.int64)
    ranks[slots.order] = np.arange(len(slots.order))
    found: dict[int, list[int]] = {place: [] for place in places}
    by_rank = np.argsort(-ranks[candidates], kind="stable")
    for candidate, number in zip(candidates[by_rank].tolist(), slot_of[by_rank].tolist(), strict=True):
        place = newest.get((number, int(slots.folders[candidate])))
        if place is not None and candidate != place:
            found[place].append(candidate)
    return found
