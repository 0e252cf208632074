"""The rows of a keyed table compared with the changes in its topics: the newest change of each key, by the rules by which readers merge
files, and the row of each key, from every live base file and log block. Pure, but for the files that it reads.

Of a key, a change and a row only hashes stay in memory: 64 bits of each, so that two keys of ten million are one with a chance of one in
400,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.hudi.files.base_file import RECORD_KEY
from hudi_ingest.hudi.files.current_rows import LOG_FILE, Found
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.files.log_reader import Deletes, UnreadableLog, all_changes
from hudi_ingest.hudi.files.partition_split import split_rows
from hudi_ingest.hudi.storage.paths import path_in
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.model.offsets import Ranges, TopicPartition, difference, ranges
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest.records.hudi_keys import record_keys
from hudi_ingest.records.kafka_columns import OFFSET
from hudi_ingest.records.row_maker import BatchOutcome

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_BATCH_ROWS = 64 * 1024
_MOST_WAITING = 1_000_000
"""Changes that wait until those that newer ones replace are left out."""
_KEY, _BY, _CODE, _AT, _HASH = "key", "by", "code", "offset", "hash"
"""The columns of a key's newest change, and of its row: hash of key and table partition, ordering value, Kafka partition (its index),
offset, and hash of the row."""
_DELETED, _PARTIAL, _TIED, _GROUP = "deleted", "partial", "tied", "group"
"""Columns of a change only: whether it deletes the key, whether values were left out, whether a change of another Kafka partition has the
same ordering value, and the bucket."""
KeyFault = tuple[int, str, int, str]
"""The index of a Kafka partition, the kind of a fault, its offset, and its text."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a row belongs, and which of two changes is newer."""

    table: Table
    key: tuple[str, ...]
    escaped: bool

    @property
    def by(self) -> str:
        return self.table.ordering_fields[0]

    @property
    def names_single_key(self) -> bool:
        """Whether the record key names its only column, as in KeyedLayout."""
        return len(self.table.partition_columns) > 1

    def keys_of(self, rows: pa.Table) -> pa.Array:
        return _whole(record_keys(rows, self.key, self.names_single_key).cast(pa.string()))


class NewestChanges:
    """The newest change of each key among those that were added, of which those of a Kafka partition come in offset order."""

    def __init__(self, layout: Layout) -> None:
        # Imported here because it loads compiled code, which other commands do not need.
        from hudi_ingest.hudi.files.buckets import bucket_ids
        from hudi_ingest.records import digests

        self._digests, self._bucket_ids = digests, bucket_ids
        self._layout = layout
        self._parts: list[pa.Table] = []
        self._folders: dict[str, int] = {}
        self.read: dict[int, list[tuple[int, int]]] = {}
        """The offsets whose records were read, by the index of their Kafka partition."""
        self.crosses = False
        """Whether a key has changes in several Kafka partitions."""

    def note_read(self, code: int, offsets: Numbers) -> None:
        if len(offsets):
            breaks = np.flatnonzero(np.diff(offsets) != 1)
            starts, ends = offsets[np.r_[0, breaks + 1]], offsets[np.r_[breaks, len(offsets) - 1]] + 1
            known = self.read.setdefault(code, [])
            if known and known[-1][1] == starts[0]:
                starts[0] = known.pop()[0]
            known.extend(zip(starts.tolist(), ends.tolist(), strict=True))

    def add(self, code: int, outcome: BatchOutcome, hashes: Callable[[pa.Table], Numbers]) -> None:
        """`code`: the index of the records' Kafka partition; `hashes`: of the table's columns of some rows."""
        layout, rows = self._layout, outcome.rows
        if outcome.truncated_at is not None:
            # Only a table whose rows all come from one Kafka partition applies them.
            rows = rows.filter(pc.greater(rows[OFFSET], outcome.truncated_at))
            self._parts = [part.filter(pc.greater(part[_AT], outcome.truncated_at)) for part in self._parts]
        if not rows.num_rows:
            return
        folders, groups = self._places(rows)
        keys, names = layout.keys_of(rows), [*self._folders]
        hashed = np.zeros(rows.num_rows, np.int64)
        for folder in np.unique(folders).tolist():
            own = folders == folder
            hashed[own] = self._digests.key_hashes(names[folder], keys.filter(pa.array(own)))
        left_out = rows[LEFT_OUT] if LEFT_OUT in rows.column_names else pa.nulls(rows.num_rows)
        contents = rows.drop_columns([name for name in (DELETED, LEFT_OUT, OLD_KEY) if name in rows.column_names])
        self._parts.append(
            pa.table(
                {
                    _KEY: hashed,
                    _BY: _whole(_by(rows[layout.by])),
                    _CODE: np.full(rows.num_rows, code),
                    _AT: _whole(rows[OFFSET].cast(pa.int64())),
                    _HASH: hashes(contents),
                    _DELETED: _whole(rows[DELETED]),
                    _PARTIAL: _whole(pc.is_valid(left_out)),
                    _TIED: np.zeros(rows.num_rows, np.bool_),
                    _GROUP: groups,
                }
            )
        )
        if sum(part.num_rows for part in self._parts[1:]) > _MOST_WAITING:
            self._parts = [self.newest()]

    def newest(self) -> pa.Table:
        """Return the newest change of each key, ordered by the keys' hashes."""
        if not sum(part.num_rows for part in self._parts):
            return pa.table({name: np.zeros(0, np.int64) for name in (_KEY, _CODE, _AT, _HASH, _DELETED)})
        changes = pa.concat_tables(self._parts)
        order = pc.sort_indices(changes, sort_keys=[(name, "ascending") for name in (_KEY, _BY, _CODE, _AT)])
        changes = changes.take(order).combine_chunks()
        keys, codes = changes[_KEY].to_numpy(), changes[_CODE].to_numpy()
        same_key = np.r_[False, keys[1:] == keys[:-1]]
        by = changes[_BY]
        same_by = np.r_[False, pc.equal(by.slice(1), by.slice(0, len(by) - 1)).to_numpy()]
        starts = np.flatnonzero(~(same_key & same_by))
        runs = np.cumsum(~(same_key & same_by)) - 1
        tied = np.maximum.reduceat(changes[_TIED].to_numpy(), starts)[runs] | (codes[starts][runs] != codes)
        self.crosses = self.crosses or bool((same_key & np.r_[False, codes[1:] != codes[:-1]]).any())
        changes = changes.set_column(changes.schema.get_field_index(_TIED), _TIED, pa.array(tied))
        return changes.filter(pa.array(np.r_[~same_key[1:], True]))

    def group_number(self, group: FileGroup) -> int:
        """Return what the column _GROUP has for the bucket of a file group; -1 if it is of none, as one of another writer may be."""
        folder = self._folders.setdefault(group.partition_path, len(self._folders))
        return folder * self._layout.table.buckets + int(group.bucket) if group.bucket.isdecimal() else -1

    def _places(self, rows: pa.Table) -> tuple[Numbers, Numbers]:
        """Return the table partition and the bucket of each row."""
        table = self._layout.table
        split = split_rows([rows], table.partition_columns, table.hive_style, self._layout.escaped)
        numbers = np.array([self._folders.setdefault(group.path, len(self._folders)) for group in split.groups])
        folders = numbers[split.codes]
        buckets = self._bucket_ids(self._layout.keys_of(rows), self._layout.key, table.buckets)
        return folders, folders * table.buckets + buckets


@dataclass
class TableRows:
    """Reads the row of each key. `reduced` returns the Kafka partition (its index, or -1), the offset and the hash of each row of a
    file, and notes what is wrong with them. `damaged` takes the paths of files that cannot be read, and why."""

    storage: TableStorage
    layout: Layout
    schema: pa.Schema
    reduced: Callable[[str, pa.Table], tuple[Numbers, Numbers, Numbers]]
    damaged: Callable[[str, str], None]
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of log files, as the commits that published them say."""

    def of(self, groups: Iterable[FileGroup]) -> Iterator[tuple[FileGroup, pa.Table | None]]:
        """Yield each file group with its rows; None if a file of it cannot be read."""
        for group in groups:
            found = Found()
            base, *logs = group.files
            paths = [path_in(group.partition_path, name) for name in (base, *_in_order(logs)) if name]
            # Every file is read, also behind one that cannot be.
            yield group, self._merged(group.partition_path, found) if all([*map(self._reads(found), paths)]) else None

    def _reads(self, found: Found) -> Callable[[str], bool]:
        """Return what adds the changes in a file to those found; that returns whether it can be read."""

        def read(path: str) -> bool:
            try:
                if path.rpartition("/")[2].startswith("."):
                    self._read_log(path, found)
                else:
                    with self.storage.parquet_file(path) as file:
                        for batch in file.iter_batches(_BATCH_ROWS):
                            self._add(path, pa.Table.from_batches([batch]), found)
            except (OSError, UnreadableLog, pa.ArrowException, KeyError) as error:
                self.damaged(path, str(error))
                return False
            return True

        return read

    def _read_log(self, path: str, found: Found) -> None:
        content = self.storage.read(path)
        if self.sizes.get(path, len(content)) != len(content):
            raise UnreadableLog(f"it has {len(content)} bytes, and was committed with {self.sizes[path]}")
        for change in all_changes(content, self.schema):
            if isinstance(change, Deletes):
                found.delete(change)
            else:
                self._add(path, change.rows, found)

    def _add(self, path: str, rows: pa.Table, found: Found) -> None:
        if not rows.num_rows:
            return
        codes, offsets, hashes = self.reduced(path, rows)
        by = self.layout.by
        own = {RECORD_KEY: rows[RECORD_KEY].cast(pa.string()), _CODE: codes, _AT: offsets, _HASH: hashes}
        found.add(pa.table(own | ({by: _by(rows[by])} if by in rows.column_names else {})), by)

    def _merged(self, folder: str, found: Found) -> pa.Table:
        from hudi_ingest.records.digests import key_hashes

        starts = np.cumsum([0, *(rows.num_rows for rows in found.rows)])
        live = {key: starts[place[0]] + place[1] for key, place in found.places.items() if place is not None}
        columns = (_CODE, _AT, _HASH)
        rows = pa.concat_tables([rows.select(columns) for rows in found.rows]) if found.rows else None
        if rows is None or not live:
            return pa.table({name: np.zeros(0, np.int64) for name in (*columns, _KEY)})
        rows = rows.take(pa.array([*live.values()], pa.int64()))
        return rows.append_column(_KEY, pa.array(key_hashes(folder, pa.array([*live], pa.string()))))


@dataclass(frozen=True)
class Comparison:
    """Compares rows with the newest changes of their keys."""

    sources: Sequence[TopicPartition]
    changes: NewestChanges
    covered: Mapping[TopicPartition, Ranges]
    """All that the table covers."""
    asked: Mapping[TopicPartition, Ranges]
    """The offsets of which all records that there are were read."""
    held: Mapping[TopicPartition, Ranges] = field(default_factory=dict)
    """The offsets of slices that had bad records: what became of those depends on when they were retried."""
    skipped: frozenset[int] = frozenset()
    """The Kafka partitions whose offsets name several records."""
    by_offset: bool = True
    unreadable: Collection[int] = ()
    """The buckets that have damaged files."""
    doubts: Counter[str] = field(default_factory=Counter)
    """How many keys could not be judged, by the reason."""

    def faults(self, rows: pa.Table) -> Iterator[KeyFault]:
        """Yield faults of a table's rows, all those with the same key together."""
        newest = self.changes.newest()
        wanted, have = newest[_KEY].to_numpy(), rows[_KEY].to_numpy()
        order = np.argsort(have, kind="stable")
        have, codes, offsets, hashes = have[order], *(rows[name].to_numpy()[order] for name in (_CODE, _AT, _HASH))
        read = self._are_read(codes, offsets)
        for row in np.flatnonzero(np.r_[False, have[1:] == have[:-1]] & (codes >= 0)).tolist():
            yield int(codes[row]), "doubled", int(offsets[row]), "the table has several rows of its key"
        place = np.minimum(np.searchsorted(wanted, have), max(len(wanted) - 1, 0))
        hit = wanted[place] == have if len(wanted) else np.zeros(len(have), np.bool_)
        change = {name: newest[name].to_numpy() for name in (_CODE, _AT, _HASH, _DELETED)}
        same = np.zeros(len(have), np.bool_)
        same[hit] = (change[_CODE][place[hit]] == codes[hit]) & (change[_AT][place[hit]] == offsets[hit])
        differs = np.zeros(len(have), np.bool_)
        differs[same] = change[_HASH][place[same]] != hashes[same]
        for row in np.flatnonzero(differs).tolist():
            if self._may_differ(newest, int(place[row])):
                continue
            yield int(codes[row]), "altered", int(offsets[row]), f"its row is not the one that its record has{_CAVEAT}"
        for row in np.flatnonzero(hit & ~same).tolist():
            stale = self._stale(newest, int(place[row]), int(codes[row]), int(offsets[row]), bool(read[row]))
            if stale is not None:
                yield stale
        for row in np.flatnonzero(~hit & read & (codes >= 0)).tolist():
            yield (
                int(codes[row]),
                "moved",
                int(offsets[row]),
                f"the table has a row that its record does not leave{_CAVEAT}",
            )
        missing = ~np.isin(wanted, have) & ~change[_DELETED].astype(np.bool_)
        for number in np.flatnonzero(missing).tolist():
            lost = self._missing(newest, number)
            if lost is not None:
                yield lost

    def _stale(self, newest: pa.Table, number: int, code: int, offset: int, was_read: bool) -> KeyFault | None:
        """The table has another row of the key than its newest change."""
        change = {name: newest[name][number].as_py() for name in newest.column_names}
        if code < 0 or code in self.skipped:
            return self._doubt("no record is known to be that of their rows")
        if not was_read and not (self.by_offset and offset < change[_BY]):
            # A transaction may have written it since, or it is of a record that was read before and is no longer there.
            covered = self.covered.get(self.sources[code], ())
            return self._doubt(_GONE) if not covered or offset < covered[-1][1] else None
        if change[_TIED]:
            return self._doubt("changes in several Kafka partitions have the same ordering value")
        if change[_DELETED] and (not self.by_offset or code != change[_CODE]):
            return self._doubt("a change that orders before their delete may have come after it")
        if self._is_held(change) or change[_PARTIAL]:
            return self._doubt("bad records, or values that the database left out, decide what became of them")
        whose = f"the table still has that of {self.sources[code]} offset {offset}"
        text = f"it deletes its key, but {whose}" if change[_DELETED] else f"its row is its key's newest, but {whose}"
        return change[_CODE], "lost", change[_AT], text + _CAVEAT

    def _missing(self, newest: pa.Table, number: int) -> KeyFault | None:
        change = {name: newest[name][number].as_py() for name in newest.column_names}
        if change[_GROUP] in self.unreadable:
            return self._doubt("their bucket has a damaged file")
        if change[_TIED]:
            return self._doubt("changes in several Kafka partitions have the same ordering value")
        if self._is_held(change) or change[_PARTIAL]:
            return self._doubt("bad records, or values that the database left out, decide what became of them")
        if self._may_be_deleted(change):
            return self._doubt("a later record, which the topics no longer have, may have deleted their rows")
        return change[_CODE], "lost", change[_AT], f"its record has a row, which is not in the table{_CAVEAT}"

    def _may_differ(self, newest: pa.Table, number: int) -> bool:
        if newest[_PARTIAL][number].as_py():
            self._doubt("values that the database left out were taken from the rows before")
            return True
        return False

    def _doubt(self, text: str) -> KeyFault | None:
        """Count a key that cannot be judged: no fault is known of it."""
        self.doubts[text] += 1
        return None

    def _is_held(self, change: Mapping[str, Any]) -> bool:
        held = self.held.get(self.sources[change[_CODE]], ())
        return any(start <= change[_AT] < end for start, end in held)

    def _may_be_deleted(self, change: Mapping[str, Any]) -> bool:
        """Whether an unread record may have deleted the key: a later one of its Kafka partition, or any of another if keys have changes in
        several."""
        for code, source in enumerate(self.sources):
            unread = difference(self.covered.get(source, ()), self.asked.get(source, ()))
            after = change[_AT] if code == change[_CODE] else -1
            if (code == change[_CODE] or self.changes.crosses) and any(end > after + 1 for _, end in unread):
                return True
        return False

    def _are_read(self, codes: Numbers, offsets: Numbers) -> Flags:
        read = np.zeros(len(codes), np.bool_)
        for code, parts in self.changes.read.items():
            bounds, own = np.array(ranges(parts), np.int64), codes == code
            place = np.searchsorted(bounds[:, 0], offsets[own], side="right") - 1
            read[own] = (place >= 0) & (offsets[own] < bounds[place, 1])
        return read


_CAVEAT = "; or the pipeline's file has changed since"
_GONE = "the records of their rows are no longer in the topics"


def _in_order(logs: Iterable[str]) -> list[str]:
    """Log files in the order in which readers merge them."""
    matches = [match for name in logs if (match := LOG_FILE.fullmatch(name))]
    return [match[0] for match in sorted(matches, key=lambda m: (m["instant"], int(m["version"]), m["token"]))]


def _by(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """An ordering column as deletes have it; see `ordering_values`."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return values.cast(pa.int64()) if pa.types.is_integer(values.type) else values


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def doubt_texts(doubts: Mapping[str, int]) -> Iterator[str]:
    for text, count in sorted(doubts.items()):
        yield f"the rows of {counted(count, 'key')}: {text}"
