"""Fill the values that a database left out of its changes: with those of the key's earlier change in the same rows, else of its
current row. If the database changed the key, that means the old key's.

Rows say in LEFT_OUT which columns they lack. Only the newest change of a key is filled, because no other is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.hudi.files.current_rows import Found, column_of
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest.records.kafka_columns import OFFSET

DELETED_BEFORE = "this key's row was deleted before"
NOT_THERE = "the table has no row of this key"
OLD_KEY_NOT_THERE = "the database changed the key, and the old key's row cannot be found"


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
    """It and the changes of its slot before it, the newest first, until a delete or a change of the key."""
    deleted: int | None = None
    """The place of the delete before them."""
    source: int = -1
    """A place in the slot whose row in the table has the values; -1 if there is none."""
    moved: bool = False
    """Whether that is the slot of an old key."""


def fill(
    rows: pa.Table,
    origins: np.ndarray,
    slots: Slots,
    newest: np.ndarray,
    buckets_of: Callable[[pa.Array], np.ndarray],
    lookup: Lookup,
) -> Filled:
    """Fill the `newest` changes (places in `rows`) of a table that is ordered by offsets. `origins`: the number of each row's Kafka
    partition; `buckets_of`: the bucket of each record key. Raises what `lookup` raises."""
    return _Filling(rows, origins, slots, buckets_of, lookup).filled(newest)


class _Filling:
    def __init__(
        self,
        rows: pa.Table,
        origins: np.ndarray,
        slots: Slots,
        buckets_of: Callable[[pa.Array], np.ndarray],
        lookup: Lookup,
    ) -> None:
        self._rows = rows
        self._slots = slots
        self._buckets_of = buckets_of
        self._lookup = lookup
        self._offsets = rows[OFFSET].to_numpy()
        self._deleted = rows[DELETED].to_numpy()
        self._lists = rows[LEFT_OUT]
        self._old = _old_keys(rows, origins, self._deleted)
        self._result = Filled(rows)
        self._pairs: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """By column: the place to fill, and that of the value in `_columns`."""
        self._columns = {name: [rows[name]] for name in rows.column_names}
        self._lengths = dict.fromkeys(rows.column_names, rows.num_rows)

    def filled(self, newest: np.ndarray) -> Filled:
        chosen = newest[(self._lists.is_valid().to_numpy() & ~self._deleted)[newest]]
        if not len(chosen):
            return self._result
        runs = _Runs(self._slots, np.array([*chosen, *(place for place in self._old.values() if place >= 0)]))
        names_of = self._lists.take(pa.array(chosen)).to_pylist()
        waiting = []
        for place, count, names in zip(chosen.tolist(), runs.counts_before(chosen), names_of, strict=True):
            gaps = _Gaps(place, {*names}, [place], source=place)
            if count or place in self._old:
                self._look_back(gaps, runs)
            if gaps.names and gaps.source < 0 and not gaps.moved:
                self._refuse(gaps, DELETED_BEFORE)
            elif gaps.names:
                waiting.append(gaps)
        # A replay may begin behind the old key's delete, and then the table has the new key's row.
        for gaps in self._look_up([gaps for gaps in waiting if gaps.source >= 0]):
            gaps.source = -1
        last = [gaps for gaps in waiting if gaps.source < 0]
        for gaps in last:
            gaps.source = gaps.place
        for gaps in self._look_up(last):
            self._refuse(gaps, OLD_KEY_NOT_THERE)
        return self._taken()

    def _look_back(self, gaps: _Gaps, runs: _Runs) -> None:
        """Take values of earlier changes, and find out whose row in the table has the others."""
        here, earlier = gaps.place, iter(runs.before(gaps.place))
        while gaps.names:
            old = self._old.get(here)
            if old is not None:
                before = next(earlier, None)
                if not gaps.moved and before is not None and self._deleted[before]:
                    gaps.deleted = before
                gaps.moved, gaps.source = True, old
                if old < 0:
                    return
                earlier = iter(runs.before(old))
            before = next(earlier, None)
            if before is None:
                return
            if self._deleted[before]:
                gaps.source = -1
                if not gaps.moved:
                    gaps.deleted = before
                return
            if not gaps.moved:
                gaps.run.append(before)
            self._take(gaps, gaps.names.difference(self._lists[before].as_py() or ()), before)
            here = before

    def _look_up(self, waiting: Collection[_Gaps]) -> list[_Gaps]:
        """Take values of the table's rows. Returns those of changed keys that it has not."""
        groups: defaultdict[tuple[int, int], list[_Gaps]] = defaultdict(list)
        sources = [gaps.source for gaps in waiting]
        keys = self._slots.keys.take(pa.array(sources, pa.int64()))
        for gaps, bucket in zip(waiting, self._buckets_of(keys).tolist(), strict=True):
            groups[int(self._slots.folders[gaps.source]), bucket].append(gaps)
        missed = []
        for (folder, bucket), wanted in groups.items():
            names = sorted(set().union(*(gaps.names for gaps in wanted)))
            keys = self._slots.keys.take(pa.array([gaps.source for gaps in wanted]))
            found = self._lookup(folder, bucket, keys, {name: self._rows.schema.field(name).type for name in names})
            starts = np.cumsum([0, *(table.num_rows for table in found.rows)]).tolist()
            for gaps, key in zip(wanted, keys.to_pylist(), strict=True):
                at, known = found.places.get(key), found.ordering.get(key)
                # None is the delete of another writer.
                ordering = known if isinstance(known, int) else -1
                is_own = gaps.source == gaps.place
                if at is None and is_own and ordering > self._offsets[gaps.place]:
                    # In a replay: the table has a later delete, so that this change comes to nothing.
                    self._result.newest[gaps.place] = gaps.deleted
                elif gaps.moved and (at is None or is_own != (ordering >= self._offsets[gaps.source])):
                    missed.append(gaps)
                elif at is None:
                    self._refuse(gaps, DELETED_BEFORE if key in found.places else NOT_THERE)
                else:
                    for name in gaps.names:
                        self._pairs[name].append((gaps.place, self._lengths[name] + starts[at[0]] + at[1]))
            for name in names:
                self._columns[name].append(column_of(found, name, self._rows.schema.field(name).type))
                self._lengths[name] += starts[-1]
        return missed

    def _take(self, gaps: _Gaps, names: Collection[str], place: int) -> None:
        for name in names:
            self._pairs[name].append((gaps.place, place))
        gaps.names.difference_update(names)

    def _refuse(self, gaps: _Gaps, why: str) -> None:
        self._result.newest[gaps.place] = gaps.deleted
        self._result.refused |= dict.fromkeys(gaps.run, why)

    def _taken(self) -> Filled:
        filled = self._result
        for name, pairs in self._pairs.items():
            places = np.arange(self._rows.num_rows)
            targets, values = np.array(pairs).T
            places[targets] = values
            chunks = [chunk for part in self._columns[name] for chunk in part.chunks]
            column = pa.chunked_array(chunks, self._rows.schema.field(name).type).take(pa.array(places))
            at = filled.rows.schema.get_field_index(name)
            filled.rows = filled.rows.set_column(at, filled.rows.schema.field(at), column)
        return filled


class _Runs:
    """The changes before some others in their slots."""

    def __init__(self, slots: Slots, places: np.ndarray) -> None:
        """`places`: those that may be asked for."""
        numbers = pc.index_in(slots.keys, slots.keys.take(pa.array(places)).unique())
        candidates = np.flatnonzero(numbers.is_valid().to_numpy(zero_copy_only=False))
        numbers = numbers.take(pa.array(candidates)).to_numpy().astype(np.int64)
        slot_of = numbers * (int(slots.folders.max()) + 1) + slots.folders[candidates]
        ranks = np.empty(len(slots.order), np.int64)
        ranks[slots.order] = np.arange(len(slots.order))
        order = np.lexsort((ranks[candidates], slot_of))
        steps = np.arange(len(order))
        begins = np.diff(slot_of[order], prepend=-1) != 0
        self._places = candidates[order]
        self._counts = steps - np.maximum.accumulate(np.where(begins, steps, 0))
        self._at = np.zeros(len(slots.order), np.int64)
        self._at[self._places] = steps

    def counts_before(self, places: np.ndarray) -> list[int]:
        counts: list[int] = self._counts[self._at[places]].tolist()
        return counts

    def before(self, place: int) -> list[int]:
        """Return their places, the newest first."""
        at = self._at[place]
        earlier: list[int] = self._places[at - self._counts[at] : at][::-1].tolist()
        return earlier


def _old_keys(rows: pa.Table, origins: np.ndarray, deleted: np.ndarray) -> dict[int, int]:
    """Return, of each row whose key the database changed, the place of the old key's delete; -1 if that is not among the rows."""
    if OLD_KEY not in rows.column_names:
        return {}
    places = np.flatnonzero(rows[OLD_KEY].is_valid().to_numpy())
    wanted, offsets = rows[OLD_KEY].take(pa.array(places)).to_pylist(), rows[OFFSET].to_numpy()
    deletes = np.flatnonzero(deleted & np.isin(offsets, wanted)).tolist()
    of_offsets = {(int(origins[place]), int(offsets[place])): place for place in deletes}
    return {
        place: of_offsets.get((int(origins[place]), offset), -1)
        for place, offset in zip(places.tolist(), wanted, strict=True)
    }
