"""Fill the values that a database left out of its changes: with those of the key's earlier change in the same rows, else of its
current row. If the database changed the key, that means the old key's; but if the new key has a row, which a database would not have let
happen, the connector sends the change once more, and that row has the values.

Rows say in LEFT_OUT which columns they lack. Only the newest change of a key is filled, because no other is written. A database leaves
out no null, so a null in the place of what it left out is a value that nobody knows, unless the transforms make null of the placeholder,
too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.hudi.files.current_rows import Found, column_of
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest.records.kafka_columns import OFFSET

DELETED_BEFORE = "this key's row was deleted before"
NOT_THERE = (
    "the table has no row of this key (replay from an offset before this one, if the topic has the row's values there)"
)
OLD_KEY_NOT_THERE = "the database changed the key, and neither the old key's row nor one of the new key can be found"
NOT_KNOWN = "its value cannot be known: the key's row has null there, which a database never leaves out"


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


_Column = tuple[int, np.ndarray]
"""Where a column of what was found begins among all values of its name, and which of its values are there."""


@dataclass(slots=True)
class _Gaps:
    """What the newest change of a slot lacks, or the one that takes its place."""

    newest: int
    place: int
    names: set[str]
    """The columns that no earlier change has, either."""
    run: list[int] = field(default_factory=list)
    """It and the changes of its slot before it that lack one of them, the newest first."""
    before: int | None = None
    """The place of the change before them in the slot."""
    source: int = -1
    """A place in the slot whose row in the table has the values; -1 if there is none."""
    moved: bool = False
    """Whether that is the slot of an old key."""
    unknown: bool = False
    """Whether a value has been found to be null."""


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
        """The place to fill in each column, and that of the value in `_columns`."""
        self._columns = {name: [rows[name]] for name in rows.column_names}
        self._lengths = dict.fromkeys(rows.column_names, rows.num_rows)
        self._valid: dict[str, np.ndarray] = {}
        """Which of the rows have a value, by column."""
        self._own: dict[int, tuple[Found, Mapping[str, _Column], tuple[int, int]]] = {}
        """The rows whose key was changed and that have no change before them: the table's row of their key, if it has one; with the
        columns of what was found."""

    def filled(self, newest: np.ndarray) -> Filled:
        lacking = self._lists.is_valid().to_numpy() & ~self._deleted
        chosen = newest[lacking[newest]]
        if not len(chosen):
            return self._result
        runs = _Runs(
            self._slots, np.array([*chosen, *self._old, *(place for place in self._old.values() if place >= 0)])
        )
        self._find_own(runs)
        to_fill = {place: place for place in chosen.tolist()}
        while to_fill:
            self._fill(to_fill, runs)
            # Of a slot whose changes are refused, the one before them counts, which may lack a value itself.
            next_ones = {first: self._result.newest.get(first, place) for first, place in to_fill.items()}
            to_fill = {
                first: place
                for first, place in next_ones.items()
                if place is not None and place != to_fill[first] and lacking[place]
            }
        return self._taken()

    def _fill(self, to_fill: Mapping[int, int], runs: _Runs) -> None:
        """Fill changes, by the newest of their slots, or refuse them."""
        waiting = []
        names_of = self._lists.take(pa.array([*to_fill.values()])).to_pylist()
        counts = runs.counts_before(np.array([*to_fill.values()]))
        for (first, place), count, names in zip(to_fill.items(), counts, names_of, strict=True):
            gaps = _Gaps(first, place, {*names}, [place], source=place)
            if count or place in self._old:
                self._look_back(gaps, runs)
            if gaps.unknown:
                self._refuse(gaps, NOT_KNOWN)
            elif gaps.names and gaps.source < 0 and not gaps.moved:
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

    def _find_own(self, runs: _Runs) -> None:
        """Find the table's rows of keys that others became, as far as no change comes before."""
        first = [
            place
            for place, count in zip(self._old, runs.counts_before(np.array([*self._old], np.int64)), strict=True)
            if not count
        ]
        names = sorted({name for names in self._lists.drop_null().to_pylist() for name in names})
        for key, found, places, columns in self._found(first, names):
            at, ordering = found.places.get(key), found.ordering.get(key)
            for place in places:
                # One that is newer is of a later row, perhaps.
                if at is not None and (not isinstance(ordering, int) or ordering <= self._offsets[place]):
                    self._own[place] = found, columns, at

    def _look_back(self, gaps: _Gaps, runs: _Runs) -> None:
        """Take values of earlier changes, and find out whose row in the table has the others."""
        here, earlier = gaps.place, iter(runs.before(gaps.place))
        while gaps.names and not gaps.unknown:
            before = next(earlier, None)
            if here in self._own:
                self._take_found(gaps, *self._own[here])
                return
            if here in self._old and (before is None or self._deleted[before]):
                if not gaps.moved:
                    gaps.before = before
                gaps.moved, gaps.source = True, self._old[here]
                if gaps.source < 0:
                    return
                here, earlier = gaps.source, iter(runs.before(gaps.source))
                before = next(earlier, None)
            if before is None:
                return
            if self._deleted[before]:
                gaps.source = -1
                if not gaps.moved:
                    gaps.before = before
                return
            self._take(gaps, gaps.names.difference(self._lists[before].as_py() or ()), before)
            if not gaps.moved:
                if gaps.unknown:
                    gaps.before = before
                else:
                    gaps.run.append(before)
            here = before

    def _look_up(self, waiting: Collection[_Gaps]) -> list[_Gaps]:
        """Take values of the table's rows. Returns those of changed keys that it has not."""
        by_source = defaultdict[int, list[_Gaps]](list)
        for gaps in waiting:
            by_source[gaps.source].append(gaps)
        missed = []
        names = sorted(set[str]().union(*(gaps.names for gaps in waiting)))
        for key, found, places, columns in self._found([*by_source], names):
            for gaps in [gaps for place in places for gaps in by_source[place]]:
                at, known = found.places.get(key), found.ordering.get(key)
                # None is the delete of another writer.
                ordering = known if isinstance(known, int) else -1
                is_own = gaps.source == gaps.place
                if at is None and is_own and ordering > self._offsets[gaps.place]:
                    # In a replay: the table has a later delete, so that this change comes to nothing.
                    self._result.newest[gaps.newest] = gaps.before
                elif gaps.moved and (at is None or is_own != (ordering >= self._offsets[gaps.source])):
                    missed.append(gaps)
                elif at is None:
                    self._refuse(gaps, DELETED_BEFORE if key in found.places else NOT_THERE)
                else:
                    self._take_found(gaps, found, columns, at)
                    if gaps.unknown:
                        self._refuse(gaps, NOT_KNOWN)
        return missed

    def _found(
        self, places: Sequence[int], names: Sequence[str]
    ) -> Iterator[tuple[str, Found, list[int], Mapping[str, _Column]]]:
        """Look up the keys of these places, bucket by bucket. Yields each key with what was found, its places, and the columns of what was
        found."""
        groups: defaultdict[tuple[int, int], defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        keys = self._slots.keys.take(pa.array(places, pa.int64()))
        for place, key, bucket in zip(places, keys.to_pylist(), self._buckets_of(keys).tolist(), strict=True):
            groups[int(self._slots.folders[place]), bucket][key].append(place)
        kinds = {name: self._rows.schema.field(name).type for name in names}
        for (folder, bucket), wanted in groups.items():
            found = self._lookup(folder, bucket, pa.array([*wanted], self._slots.keys.type), kinds)
            columns: dict[str, _Column] = {}
            for name, kind in kinds.items():
                column = column_of(found, name, kind)
                columns[name] = self._lengths[name], column.is_valid().to_numpy()
                self._columns[name].append(column)
                self._lengths[name] += len(column)
            for key, of_key in wanted.items():
                yield key, found, of_key, columns

    def _take_found(self, gaps: _Gaps, found: Found, columns: Mapping[str, _Column], at: tuple[int, int]) -> None:
        table, row = at
        place = sum(rows.num_rows for rows in found.rows[:table]) + row
        for name in [*gaps.names]:
            start, valid = columns[name]
            self._fill_one(gaps, name, start + place, bool(valid[place]))

    def _take(self, gaps: _Gaps, names: Collection[str], place: int) -> None:
        for name in names:
            self._fill_one(gaps, name, place, self._is_valid(name, place))

    def _fill_one(self, gaps: _Gaps, name: str, place: int, is_valid: bool) -> None:
        """Fill a column by the value at a place in `_columns`, unless that is a null that nothing explains."""
        # Where the placeholder itself has become null, a null may be what became of a value.
        if is_valid or not self._is_valid(name, gaps.place):
            self._pairs[name].append((gaps.place, place))
            gaps.names.discard(name)
        else:
            gaps.unknown = True

    def _is_valid(self, name: str, place: int) -> bool:
        if name not in self._valid:
            self._valid[name] = self._rows[name].is_valid().to_numpy()
        return bool(self._valid[name][place])

    def _refuse(self, gaps: _Gaps, why: str) -> None:
        self._result.newest[gaps.newest] = gaps.before
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
