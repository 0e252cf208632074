"""Keyed tables in memory: which file group a key is in, which of its changes wins, and which files readers merge.

Hudi orders the files of a file group by times: a log file is merged with the newest base file whose instant is smaller than the time at
which the log file's commit was completed. A row of a log file is a record that changes its key, or deletes it if it is a tombstone, or
one of a truncate's deletes: such a row has its key, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.files.base_file import RECORD_KEY
from hudi_ingest.hudi.files.current_rows import Completed, CurrentRows, Found, slice_before
from hudi_ingest.hudi.files.file_groups import fixed_id, published_groups
from hudi_ingest.hudi.files.late_changes import LateChanges
from hudi_ingest.hudi.files.left_out import Slots
from hudi_ingest.hudi.files.log_reader import Deletes, Upserts
from hudi_ingest.hudi.files.new_files import Past
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.changes import DELETED
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION

if TYPE_CHECKING:
    from hudi_ingest_tests.simulation.world import Row, World

BUCKETS = 2
KEYS = 3
"""In each Kafka partition."""
ORDERING = "n"
LATENESS = (0, 3, 0, 7, 0)
"""By how many offsets the source has sent a record too late, in a table with an ordering column."""
DELETES = ("tombstone", "truncate")
Key = tuple[TopicPartition, int]


def key_of(row: Row) -> Key:
    return row[0], number_of(row)


def number_of(row: Row) -> int:
    """Of the row's key in its Kafka partition."""
    return row[1] % KEYS if len(row) == 2 else row[2]


def group_of(row: Row) -> str:
    """The id of the key's file group, in which there are keys of every Kafka partition."""
    return _fixed_id(number_of(row) % BUCKETS)


_fixed_id = lru_cache(None)(fixed_id)


def ordering(world: World, row: Row) -> int:
    place = row[1]
    return place - LATENESS[(7 * place + 3 * row[0].partition) % len(LATENESS)] if world.setting.ordering else place


def winners(world: World, rows: Iterable[Row]) -> dict[Key, Row]:
    """The change of each key with the greatest ordering value, of equal ones the later. A truncate's deletes are ordered by its offset."""
    in_order = sorted(rows, key=itemgetter(1))
    if world.setting.ordering:
        in_order.sort(key=lambda row: ordering(world, row))
    return {key_of(row): row for row in in_order}


def surviving(world: World, rows: Iterable[Row]) -> dict[Key, Row]:
    """The winners of the records after the last truncate among them: what a dictionary has in the end."""
    rows = [*rows]
    last = max((row[1] for row in rows if kind_of(world, row) == "truncate"), default=-1)
    return winners(world, (row for row in rows if row[1] > last))


def kind_of(world: World, row: Row) -> str:
    return world.broker[row[0]][row[1]]


@dataclass
class FileSlice:
    """What readers merge of one file group."""

    base: str = ""
    base_instant: str = ""
    logs: list[str] = field(default_factory=list)

    @property
    def files(self) -> tuple[str, ...]:
        return (*([self.base] if self.base else []), *self.logs)


@lru_cache(4096)
def group_in(path: str) -> str:
    ((_, group),) = published_groups([path])
    return group


def is_log(path: str) -> bool:
    return path.startswith(".")


def file_slices(world: World, before: str = "9") -> dict[str, FileSlice]:
    """By file group: its newest completed base file, and the log files that were completed after that one's instant. `before`: of what was
    completed before this instant began."""
    slices: dict[str, FileSlice] = {}
    instants = [each for each in world.completed() if each.completion < before]
    for instant in instants:
        for path in instant.files:
            found = slices.setdefault(group_in(path), FileSlice())
            if not is_log(path) and instant.name > found.base_instant:
                found.base, found.base_instant = path, instant.name
    for instant in instants:
        for path in filter(is_log, instant.files):
            found = slices[group_in(path)]
            if instant.completion > found.base_instant:
                found.logs.append(path)
    return slices


def superseded(world: World, retained: Iterable[str]) -> list[str]:
    """Files that are in no slice that readers see since one of these instants."""
    cut = {group: each.base_instant for group, each in file_slices(world).items() if each.base_instant in {*retained}}
    return [
        path
        for instant in world.completed()
        for path in instant.files
        if (cutoff := cut.get(group_in(path)))
        and (instant.completion if is_log(path) else instant.name) < cutoff
        and path in world.files
    ]


def visible(world: World) -> list[Row]:
    """The rows that readers see."""
    rows = [row for each in file_slices(world).values() for row in merged(world, each.files)]
    return sorted(rows)


def merged(world: World, paths: Iterable[str]) -> list[Row]:
    """The rows of the files without those that are deleted."""
    return upserts(world, winners(world, (row for path in paths for row in world.files[path])).values())


def upserts(world: World, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if kind_of(world, row) not in DELETES]


def truncated(world: World, source: TopicPartition, place: int, before: str) -> list[Row]:
    """The deletes of a truncate: of each key that has a row before it, and none after it. `before`: the transaction's instant."""
    newest: dict[Key, int] = {}
    for path in [path for each in file_slices(world, before).values() for path in each.files]:
        for row in upserts(world, _rows_in(world, path)):
            newest[key_of(row)] = max(row[1], newest.get(key_of(row), -1))
    return [cast("Row", (*key[:1], place, key[1])) for key, last in sorted(newest.items()) if last < place]


def _rows_in(world: World, path: str) -> Sequence[Row]:
    if path not in world.files:
        raise TableUnreachable(f"{path} is gone")
    return world.files[path]


class _Current(CurrentRows):
    """The real lookup over a World's files."""

    def __init__(self, world: World, layout: Any, timeline: Iterable[str]) -> None:
        self._world = world
        self._layout = layout
        self._completed = Completed.of(timeline)

    def names(self, partition_path: str) -> tuple[str, ...]:
        return tuple(self._world.files)

    def find(
        self, partition_path: str, bucket: int, keys: pa.Array, columns: Mapping[str, pa.DataType], newer: Sequence[str]
    ) -> Found:
        found, layout = Found(), self._layout
        of_bucket = slice_before(self.names(""), layout.file_id("", bucket), self._completed, layout.instant)
        for path in (*([of_bucket.base] if of_bucket.base else []), *of_bucket.logs, *newer):
            for change in self.changes(path, keys, columns):
                if isinstance(change, Deletes):
                    found.delete(change)
                else:
                    found.add(change.rows, layout.ordering[0])
        return found

    def changes(self, path: str, keys: pa.Array, columns: Mapping[str, pa.DataType]) -> Iterator[Upserts | Deletes]:
        wanted = {*keys.to_pylist()}
        rows = [row for row in _rows_in(self._world, path) if _text_of(row) in wanted]
        kept = upserts(self._world, rows)
        if kept:
            yield Upserts(_table(self._world, kept))
        deleted = [row for row in rows if row not in kept]
        if deleted:
            yield Deletes([(_text_of(row), ordering(self._world, row)) for row in deleted])


def _text_of(row: Row) -> str:
    return f"{row[0].partition}-{number_of(row)}"


def _table(world: World, rows: Sequence[Row]) -> pa.Table:
    values = {ORDERING: [ordering(world, row) for row in rows]} if world.setting.ordering else {}
    return pa.table(
        {
            RECORD_KEY: [*map(_text_of, rows)],
            PARTITION: pa.array([row[0].partition for row in rows], pa.int32()),
            OFFSET: [row[1] for row in rows],
            DELETED: [False] * len(rows),
            **values,
        }
    )


def late(
    world: World, rows: Sequence[Row], past: Past, instant: str, timeline: Iterable[str]
) -> tuple[list[Row], list[Row]]:
    """Of dead letters of one Kafka partition that become changes: those that are written, and those that are held. As the product judges
    them."""
    layout: Any = SimpleNamespace(
        ordering=(ORDERING if world.setting.ordering else OFFSET,),
        instant=instant,
        file_id=lambda _, bucket: _fixed_id(bucket),
    )
    rows = sorted(rows)
    table = _table(world, rows)
    order = sorted(range(len(rows)), key=lambda place: (ordering(world, rows[place]), place))
    slots = Slots(table[RECORD_KEY].combine_chunks(), np.zeros(len(rows), np.int64), np.array(order))
    current = _Current(world, layout, timeline)
    newest = sorted(rows.index(row) for row in winners(world, rows).values())
    judged = LateChanges(layout, past, current, table, [row[0] for row in rows], slots, [""]).judge(
        np.array(newest), np.array([number_of(rows[place]) % BUCKETS for place in newest]), {}
    )
    written = [judged.newest.get(place, place) for place in newest]
    return [rows[place] for place in written if place is not None], [rows[place] for place in sorted(judged.held)]
