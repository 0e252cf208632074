"""The current rows of some keys of a keyed table, or all its keys, as a transaction finds them at its begin: from the newest file slice
of their bucket, as readers merge it, with only a few rows in memory.

Commits that completed after the transaction began are left out. So another attempt, and one that runs beside a compaction or
another writer, finds the same rows: completed files do not change, and cleaning keeps them for some commits.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.files.base_file import RECORD_KEY
from hudi_ingest.hudi.files.log_reader import (
    Deletes,
    Ordering,
    UnreadableLog,
    Upserts,
    all_rows,
    as_type,
    changes_in,
    rows_in,
    rows_of,
)
from hudi_ingest.hudi.files.new_files import KeyedLayout
from hudi_ingest.hudi.storage.paths import INSTANT_FILE, TIMELINE, path_in
from hudi_ingest.hudi.storage.storage import TableStorage, reaching

BASE_FILE = re.compile(r"(?P<id>[^._][^_]*)_[^_]+_(?P<instant>\d{17})\.parquet")
LOG_FILE = re.compile(r"\.(?P<id>[^._]+)_(?P<instant>\d{17})\.log\.(?P<version>\d+)_(?P<token>\d+-\d+-\d+)")


@dataclass(frozen=True, slots=True)
class Completed:
    """When the instants of a table were completed, as their files on the timeline say."""

    times: Mapping[str, str]
    """Completion times by requested times, both as Hudi writes them."""
    first: str
    """The oldest instant on the active timeline. Older ones are archived, and of those only completed ones left files."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Completed:
        """Parse the names of the active timeline's files."""
        files = [match for name in names if (match := INSTANT_FILE.fullmatch(name))]
        return cls(
            {file["requested"]: file["completed"] for file in files if file["completed"]},
            min((file["requested"] for file in files), default="9" * len("yyyyMMddHHmmssSSS")),
        )

    def at(self, instant: str) -> str | None:
        """Return the time at which the instant was completed; None if it was not."""
        return instant if instant < self.first else self.times.get(instant)


@dataclass(frozen=True, slots=True)
class Slice:
    """The files of a file group that a reader merges, by name: at most one base file, and the log files in their order."""

    base: str | None
    logs: tuple[str, ...]


def slice_before(names: Iterable[str], file_id: str, completed: Completed, instant: str) -> Slice:
    """Return the newest slice of a file group, of the files that were completed before the instant was requested."""
    bases: list[tuple[re.Match[str], str]] = []
    logs: list[tuple[re.Match[str], str]] = []
    for name in names:
        for pattern, files in ((BASE_FILE, bases), (LOG_FILE, logs)):
            match = pattern.fullmatch(name)
            if match and match["id"] == file_id:
                time = completed.at(match["instant"])
                if time is not None and time < instant:
                    files.append((match, time))
    base = max(bases, key=lambda file: file[0]["instant"])[0] if bases else None
    since = base["instant"] if base else ""
    newer = sorted(
        (match["instant"], int(match["version"]), match["token"], match[0]) for match, time in logs if time >= since
    )
    return Slice(base[0] if base else None, tuple(name for *_, name in newer))


@dataclass(slots=True)
class Found:
    """The newest change of each key among those looked up."""

    rows: list[pa.Table] = field(default_factory=list)
    places: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    """The row of each key that has a change: which of `rows`, and the place there; None if it is deleted."""
    ordering: dict[str, Ordering | None] = field(default_factory=dict)
    """The ordering value of each key that has a change; None if another writer gave it none."""

    def add(self, rows: pa.Table, by: str) -> None:
        """Add rows that are read after the others: one replaces what does not order after it."""
        self.rows.append(rows)
        ordering = ordering_values(rows[by]) if by in rows.column_names else [None] * rows.num_rows
        for place, (key, value) in enumerate(zip(rows[RECORD_KEY].to_pylist(), ordering, strict=True)):
            self._change(key, value, (len(self.rows) - 1, place))

    def delete(self, deletes: Deletes) -> None:
        for key, value in deletes.ordering:
            self._change(key, value, None)

    def _change(self, key: str, ordering: Ordering | None, place: tuple[int, int] | None) -> None:
        known = self.ordering.get(key)
        if not is_greater(known, ordering):
            self.places[key] = place
            self.ordering[key] = ordering


def is_greater(ordering: Ordering | None, than: Ordering | None) -> bool:
    """Whether the one change orders after the other, both of one table. A change without a value orders after none, and none before it."""
    # The values of a column have one type.
    return ordering is not None and than is not None and ordering > than  # type: ignore[operator]


def ordering_values(column: pa.ChunkedArray) -> list[Ordering]:
    """Return the values of an ordering column as deletes have them."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    values: list[Ordering] = column.to_pylist()
    return values


class CurrentRows:
    """Looks up the rows of a table's keys. Raises TableUnreachable."""

    def __init__(self, storage: TableStorage, layout: KeyedLayout) -> None:
        self._storage = storage
        self._layout = layout
        self._names: dict[str, tuple[str, ...]] = {}

    def find(
        self, partition_path: str, bucket: int, keys: pa.Array, columns: Mapping[str, pa.DataType], newer: Sequence[str]
    ) -> Found:
        """Find the rows of record keys of a bucket, with RECORD_KEY, the ordering column and these columns, which have its type if it is
        not the offset. `newer`: the paths of log files that the transaction itself has written to the bucket before."""
        storage, layout = self._storage, self._layout
        by = layout.ordering[0]
        columns = {by: pa.int64(), **columns}
        found = Found()
        with reaching(storage, f"read the current rows of partition '{partition_path}', bucket {bucket},"):
            slice_ = self._slice(partition_path, bucket, self.names(partition_path))
            if slice_.base is not None:
                with storage.parquet_file(path_in(partition_path, slice_.base)) as file:
                    found.add(rows_of(file, keys, columns), by)
            for path in (*(path_in(partition_path, name) for name in slice_.logs), *newer):
                for change in self.changes(path, keys, columns):
                    if isinstance(change, Deletes):
                        found.delete(change)
                    else:
                        found.add(change.rows, by)
        return found

    def names(self, partition_path: str) -> tuple[str, ...]:
        """List the names of a table partition's files, as they were when they were asked for first."""
        if partition_path not in self._names:
            self._names[partition_path] = self._storage.names(partition_path)
        return self._names[partition_path]

    def changes(self, path: str, keys: pa.Array, columns: Mapping[str, pa.DataType]) -> Iterator[Upserts | Deletes]:
        """Yield the changes of record keys in a log file, as `changes_in` does."""
        with reaching(self._storage, f"read the log file {path}"):
            content = self._storage.read(path)
        with self._readable(path):
            yield from changes_in(content, keys, columns)

    def keys_before(
        self, ordering: int, newer: Mapping[tuple[str, int], Sequence[str]]
    ) -> Iterator[tuple[str, int, pa.Array]]:
        """Yield the record keys of all rows that order before a value, in all table partitions, some at a time: with the path of their
        table partition and their bucket, one bucket after another. `newer`: the paths of log files that the transaction itself has
        written, by table partition and bucket.

        A key may come once for each file that has it, and also if it is deleted by now; but not if a newer file has a row of it that
        does not order before the value, as in a replay. Only such keys are remembered.
        """
        names: defaultdict[str, list[str]] = defaultdict(list)
        with reaching(self._storage, "list the files"):
            for file in self._storage.data_files():
                folder, _, name = file.path.rpartition("/")
                names[folder].append(name)
        by = self._layout.ordering[0]
        for folder in sorted({*names, *(folder for folder, _ in newer)}):
            for bucket in range(self._layout.buckets):
                slice_ = self._slice(folder, bucket, names[folder])
                logs = [*(path_in(folder, name) for name in slice_.logs), *newer.get((folder, bucket), ())]
                later: list[pa.Array] = []
                for rows in self._rows_newest_first(folder, bucket, slice_.base, logs):
                    keys = rows[RECORD_KEY]
                    if by in rows.column_names:
                        is_before = pc.fill_null(pc.less(rows[by], ordering), True)
                        if not pc.all(is_before, min_count=0).as_py():
                            later += keys.filter(pc.invert(is_before)).chunks
                        keys = keys.filter(is_before)
                    if later:
                        keys = keys.filter(pc.invert(pc.is_in(keys, pa.chunked_array(later))))
                    yield folder, bucket, keys.combine_chunks()

    def _rows_newest_first(
        self, partition_path: str, bucket: int, base: str | None, logs: Sequence[str]
    ) -> Iterator[pa.Table]:
        """Yield all rows of a slice, with RECORD_KEY and the ordering column, some at a time: those of the last log file first."""
        storage, columns = self._storage, {self._layout.ordering[0]: pa.int64()}
        with reaching(storage, f"read the keys of partition '{partition_path}', bucket {bucket},"):
            for path in reversed(logs):
                with self._readable(path):
                    yield from rows_in(storage.read(path), columns)
            if base is not None:
                with storage.parquet_file(path_in(partition_path, base)) as file:
                    yield from all_rows(file, columns)

    def _slice(self, partition_path: str, bucket: int, names: Iterable[str]) -> Slice:
        layout = self._layout
        return slice_before(names, layout.file_id(partition_path, bucket), self._completed, layout.instant)

    @contextmanager
    def _readable(self, path: str) -> Iterator[None]:
        """Raises TableUnreachable for a log file that cannot be read."""
        try:
            yield
        except UnreadableLog as error:
            raise TableUnreachable(
                f"the log file {path} of the table at {self._storage.base_path} has {error}, so the rows that it changes are not known: "
                "they are deleted by truncates, they have the values that the database left out of later changes, and changes that come "
                "late are compared with them. Nothing was written. Compact the table "
                "(`hudi-ingest services`), which reads such files; the next transaction reads the same offsets."
            ) from error

    @cached_property
    def _completed(self) -> Completed:
        return Completed.of(self._storage.names(TIMELINE))


def column_of(found: Found, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of all rows in `found.rows`, one after another; null where the table did not have it yet."""
    return pa.chunked_array(
        [
            chunk
            for rows in found.rows
            for chunk in (
                as_type(rows[name], kind).chunks if name in rows.column_names else [pa.nulls(rows.num_rows, kind)]
            )
        ],
        kind,
    )
