"""Judge changes that come late, as dead letters do that become rows: one is written unless a newer change of its key is known, and held
if a newer one may be forgotten.

A row keeps its ordering value, so an older change loses wherever its key has a row. A delete is forgotten by the compaction after it; but
its log file stays for some commits. While all log files of a bucket are there that were written since the change was read, each delete is
known that can undo it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from hudi_ingest.hudi.files.current_rows import BASE_FILE, LOG_FILE, CurrentRows, is_greater, ordering_values
from hudi_ingest.hudi.files.left_out import Slots
from hudi_ingest.hudi.files.log_reader import Deletes, Ordering
from hudi_ingest.hudi.files.new_files import RECORD, KeyedLayout, Past
from hudi_ingest.hudi.storage.paths import path_in
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC, is_kafka

FORGOTTEN = "no row of its key, and a delete that came after it may be forgotten"
OUTDATED = "a newer row of its key, for which a value may have been taken from the row before this change"
UNORDERED = "a delete of its key with the same ordering value, which may have come before it or after it"
TRUNCATED = "no row of its key, and a truncate that may have come after it"
HELD = frozenset({FORGOTTEN, OUTDATED, UNORDERED, TRUNCATED})

Slot = tuple[int, str]
"""The index of a table partition, and a key."""


@dataclass(slots=True)
class Judged:
    """The changes that are not to be written as they are."""

    newest: dict[int, int | None] = field(default_factory=dict)
    """The newest changes that are not to be written, by their places: the change that is in their place, or None."""
    held: dict[int, str] = field(default_factory=dict)
    """The changes that are held, by their places, and the reason."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The changes of a slot that are known."""

    row: Mapping[str, Any] | None
    ordering: Ordering | None
    """The ordering value of the row."""
    deletes: Sequence[tuple[int, Ordering | None]]
    """The number of the commit, and the ordering value; None for Spark SQL's, which delete what was there."""
    complete_from: int
    """The first of the commits since which no log file is gone."""
    slices: Sequence[tuple[int, bool]]
    """The commits that began a file slice, and whether it was the file group's first."""
    is_new: bool
    """Whether the file group has no file."""

    def needed_from(self, read: int) -> int | None:
        """The first commit whose deletes were remembered when a commit read a change; None if it is archived."""
        if self.is_new or (self.slices and self.slices[0][1] and self.slices[0][0] > read):
            return read
        before = [number for number, _ in self.slices if number <= read]
        if len(before) > 1:
            # What was committed while the last of the compactions ran is in its slice.
            return before[-2]
        return before[0] if before and self.slices[0][1] else None


class LateChanges:
    """The late changes of a buffer. `sources` has the Kafka partition of each row, and `paths` the table partitions."""

    def __init__(
        self,
        layout: KeyedLayout,
        past: Past,
        current: CurrentRows,
        rows: pa.Table,
        sources: Sequence[TopicPartition],
        slots: Slots,
        paths: Sequence[str],
    ) -> None:
        self._layout = layout
        self._past = past
        self._current = current
        self._rows = rows
        self._sources = sources
        self._paths = paths
        self._ordering = ordering_values(rows[layout.ordering[0]])
        self._deleted: list[bool] = rows[DELETED].to_pylist()
        self._offsets: list[int] = rows[OFFSET].to_pylist()
        others = (DELETED, LEFT_OUT, OLD_KEY, RECORD)
        self._doubtful = [
            column.name
            for column in rows.schema
            if past.leaves_values_out
            and column.name not in others
            and not is_kafka(column.name)
            and _may_be_large(column.type)
        ]
        """The columns that a database may leave out."""
        self._changes: dict[Slot, list[int]] = {}
        """The places of each slot's changes, the newest first."""
        keys = slots.keys.to_pylist()
        for place in slots.order[::-1].tolist():
            self._changes.setdefault((int(slots.folders[place]), keys[place]), []).append(place)
        self._slot_of = {place: slot for slot, places in self._changes.items() for place in places}
        self._together: dict[tuple[TopicPartition, int], list[int]] = {}
        """The places of each record's rows."""
        for place, record in enumerate(zip(sources, self._offsets, strict=True)):
            self._together.setdefault(record, []).append(place)

    def judge(
        self, newest: np.ndarray, buckets: np.ndarray, written: Mapping[tuple[str, int], Sequence[str]]
    ) -> Judged:
        """Judge all changes; `newest` are those of each slot, and `buckets` theirs. `written`: the log files that the transaction itself has
        written before, by table partition and bucket. Raises TableUnreachable, OSError."""
        slots_in: dict[tuple[int, int], list[Slot]] = {}
        for place, bucket in zip(newest.tolist(), buckets.tolist(), strict=True):
            slot = self._slot_of[place]
            slots_in.setdefault((slot[0], bucket), []).append(slot)
        known: dict[Slot, _Known] = {}
        for (folder, bucket), slots in slots_in.items():
            path = self._paths[folder]
            known |= self._known(path, bucket, slots, written.get((path, bucket), ()))
        judged = Judged()
        pending = list(self._changes)
        while pending:
            slot = pending.pop()
            places = self._changes[slot]
            winner: int | None = None
            for place in places:
                if place in judged.held:
                    continue
                verdict = self._verdict(place, known[slot])
                if not isinstance(verdict, str):
                    winner = place if verdict else None
                    break
                # A record that moves its row is held as a whole, so that another change may be the newest where the row was.
                for row in self._together[self._sources[place], self._offsets[place]]:
                    if judged.held.setdefault(row, verdict) and self._slot_of[row] != slot:
                        pending.append(self._slot_of[row])
            if winner != places[0]:
                judged.newest[places[0]] = winner
        return judged

    def _verdict(self, place: int, known: _Known) -> bool | str:
        """Whether a change is to be written, or why it is held."""
        row, read, ordering, deleted = known.row, self._read_by(place), self._ordering[place], self._deleted[place]
        if row is not None and (
            is_greater(known.ordering, ordering) or (known.ordering == ordering and self._is_later(row, place))
        ):
            return OUTDATED if not deleted and self._differs(row, place) else False
        # Spark SQL's deletes have no value, and undo what was there.
        since = [value for commit, value in known.deletes if commit >= (read or 0)]
        if any(is_greater(value, ordering) for _, value in known.deletes) or (
            row is None and read is not None and None in since
        ):
            return False
        if deleted or row is not None:
            return True
        truncated = self._truncated(place)
        if truncated is not None:
            return truncated
        if ordering in since:
            # Of equal values that of the later offset wins, which delete blocks do not have.
            return UNORDERED
        if read is not None and self._layout.ordering != (OFFSET,):
            # A change from before may be newer.
            read = known.needed_from(read)
        return True if read is not None and read >= known.complete_from else FORGOTTEN

    def _read_by(self, place: int) -> int | None:
        """The number of the first commit that read the change."""
        source, offset = self._sources[place], self._offsets[place]
        for number, commit in enumerate(self._past.commits):
            if any(read.source == source and read.start <= offset < read.end for read in commit.read):
                return number
        return None

    def _truncated(self, place: int) -> str | bool | None:
        """What a truncate makes of a change without a row, which may have none because it was no row when the truncate came: such keys have
        no deletes. None if there was no truncate after it."""
        if self._layout.ordering != (OFFSET,):
            return None
        source, offset = self._sources[place], self._offsets[place]
        later = [
            (slice_.start > offset and deletes > 0)
            for commit in self._past.commits
            for slice_, deletes in commit.truncates
            if slice_.source == source and slice_.end - 1 > offset
        ]
        # Where in its slice a truncate was is not known, nor whether one that deleted nothing was applied.
        return None if not later else False if any(later) else TRUNCATED

    def _is_later(self, row: Mapping[str, Any], place: int) -> bool:
        """Whether a row is of a later record of the change's Kafka partition. Those of other partitions do not compare."""
        source = self._sources[place]
        same = row.get(PARTITION) == source.partition and row.get(TOPIC, source.topic) == source.topic
        return same and bool(row[OFFSET] > self._offsets[place])

    def _differs(self, row: Mapping[str, Any], place: int) -> bool:
        """Whether the change has other values than the row where a later change may have left them out."""
        lacking = self._rows[LEFT_OUT][place].as_py() or () if LEFT_OUT in self._rows.column_names else ()
        return any(self._rows[name][place].as_py() != row.get(name) for name in self._doubtful if name not in lacking)

    def _known(self, path: str, bucket: int, slots: Sequence[Slot], written: Sequence[str]) -> dict[Slot, _Known]:
        schema = self._rows.schema
        names = (PARTITION, OFFSET, TOPIC, self._layout.ordering[0], *self._doubtful)
        columns = {name: schema.field(name).type for name in names if name in schema.names}
        keys = pa.array([key for _, key in slots], pa.string())
        found = self._current.find(path, bucket, keys, columns, written)
        deletes: dict[str, list[tuple[int, Ordering | None]]] = {key: [] for _, key in slots}
        there = {*self._current.names(path)}
        complete_from = 0
        slices: list[tuple[int, bool]] = []
        for number, commit in enumerate(self._past.commits):
            files = [*self._files(path, bucket, commit.files)]
            logs = [name for name in files if LOG_FILE.fullmatch(name)]
            if len(files) > len(logs):
                # Only a transaction that creates the file group writes both.
                slices.append((number, bool(logs)))
            # Where the file group was dropped, rows may be gone without a delete.
            if not there.issuperset(logs) or (path, f"{bucket:08d}") in {(at, id[:8]) for at, id in commit.replaced}:
                complete_from = number + 1
            for name in there.intersection(logs):
                for change in self._current.changes(path_in(path, name), keys, {}):
                    for key, value in change.ordering if isinstance(change, Deletes) else ():
                        deletes[key].append((number, value))
        is_new = not any(self._files(path, bucket, [path_in(path, name) for name in there]))
        known = {}
        for slot in slots:
            key = slot[1]
            at = found.places.get(key)
            row = None
            if at is not None:
                rows = found.rows[at[0]]
                row = {name: rows[name][at[1]].as_py() for name in columns if name in rows.column_names}
            elif found.ordering.get(key) is not None:
                # Its commit may be archived, or it is of this transaction.
                deletes[key].append((-1, found.ordering[key]))
            known[slot] = _Known(row, found.ordering.get(key), deletes[key], complete_from, slices, is_new)
        return known

    def _files(self, path: str, bucket: int, files: Sequence[str]) -> Iterator[str]:
        """The names of a bucket's base files and log files among these."""
        file_id = self._layout.file_id(path, bucket)
        for file in files:
            folder, _, name = file.rpartition("/")
            match = LOG_FILE.fullmatch(name) or BASE_FILE.fullmatch(name)
            if folder == path and match and match["id"] == file_id:
                yield name


def _may_be_large(kind: pa.DataType) -> bool:
    """Whether a database may leave out a value of this type."""
    small = pa.types.is_boolean(kind) or pa.types.is_temporal(kind)
    return not (small or pa.types.is_integer(kind) or pa.types.is_floating(kind))
