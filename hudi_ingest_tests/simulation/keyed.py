"""Keyed tables in memory: which file group a key is in, which of its changes wins, and which files readers merge.

Hudi orders the files of a file group by times: a log file is merged with the newest base file whose instant is smaller than the time at
which the log file's commit was completed. A row of a log file is a record that changes its key, or deletes it if it is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hudi_ingest.hudi.files.file_groups import fixed_id, published_groups
from hudi_ingest.model.offsets import TopicPartition

if TYPE_CHECKING:
    from hudi_ingest_tests.simulation.world import Row, World

BUCKETS = 2
KEYS = 3
"""In each Kafka partition."""
Key = tuple[TopicPartition, int]


def key_of(row: Row) -> Key:
    return row[0], row[1] % KEYS


def group_of(row: Row) -> str:
    """The id of the key's file group, in which there are keys of every Kafka partition."""
    return fixed_id(row[1] % KEYS % BUCKETS)


def winners(rows: Iterable[Row]) -> dict[Key, Row]:
    """The last change of each key."""
    return {key_of(row): row for row in sorted(rows)}


@dataclass
class FileSlice:
    """What readers merge of one file group."""

    base: str = ""
    base_instant: str = ""
    logs: list[str] = field(default_factory=list)

    @property
    def files(self) -> tuple[str, ...]:
        return (*([self.base] if self.base else []), *self.logs)


def group_in(path: str) -> str:
    ((_, group),) = published_groups([path])
    return group


def is_log(path: str) -> bool:
    return path.startswith(".")


def file_slices(world: World) -> dict[str, FileSlice]:
    """By file group: its newest completed base file, and the log files that were completed after that one's instant."""
    slices: dict[str, FileSlice] = {}
    for instant in world.completed():
        for path in instant.files:
            found = slices.setdefault(group_in(path), FileSlice())
            if not is_log(path) and instant.name > found.base_instant:
                found.base, found.base_instant = path, instant.name
    for instant in world.completed():
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
    return upserts(world, winners(row for path in paths for row in world.files[path]).values())


def upserts(world: World, rows: Iterable[Row]) -> list[Row]:
    return [(source, place) for source, place in rows if world.broker[source][place] == "row"]
