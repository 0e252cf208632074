"""A day of commits every two seconds: the schedules that merge files when it is due keep the number of live files bounded, within their
share of the time. The decisions are the real ones; tables, merges and the clock are a model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.files.read_amplification import (
    CLUSTERED_FROM,
    COMPACT,
    files_to_merge,
    merged_below,
    read_amplification,
    why_due,
)
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.ledger import Service, ServiceRun
from hudi_ingest.operations.upkeep.service_log import MERGING_SHARE, merged_now, merges_again_at
from hudi_ingest.pipeline.sections.table_parts import CompactionLimits
from hudi_ingest.pipeline.sections.transaction import Transaction

BEGAN = datetime(2026, 11, 23, tzinfo=timezone.utc)
DAY, INTERVAL, LOOK = 86_400, 2, 60
TARGET_BYTES = 128 << 20
KAFKA_PARTITIONS = 4
FILE_BYTES = 20_000
KEPT_COMMITS = 30
"""What archival leaves on the timeline."""


def at(second: float) -> datetime:
    return BEGAN + timedelta(seconds=second)


class Table(Protocol):
    name: str
    service: Service

    def commit(self, second: int) -> None: ...
    def is_due(self, second: int) -> bool: ...
    def plan(self, second: int) -> float:
        """Begin a merge, and return how many seconds it takes."""

    def merge(self, second: int) -> None:
        """End it."""

    def live_files(self) -> int: ...


@dataclass
class Appended:
    """An append table by day: each commit adds a file for each Kafka partition; a clustering takes the small files that it finds."""

    name: str
    files: dict[str, FileGroup] = field(default_factory=dict)
    planned: list[FileGroup] = field(default_factory=list)
    file_bytes: int = FILE_BYTES
    merged_bytes: int = 0
    service = Service.CLUSTERING

    def commit(self, second: int) -> None:
        for partition in range(KAFKA_PARTITIONS):
            file_id = f"{second}-{partition}"
            self.files[file_id] = FileGroup("day", file_id, size_bytes=self.file_bytes)

    def is_due(self, second: int) -> bool:
        return files_to_merge(self.files.values(), TARGET_BYTES) >= CLUSTERED_FROM

    def plan(self, second: int) -> float:
        below = merged_below(self.files.values(), TARGET_BYTES)
        self.planned = [group for group in self.files.values() if group.size_bytes < below]
        return 2 + 0.005 * len(self.planned) + sum(group.size_bytes for group in self.planned) / 20e6

    def merge(self, second: int) -> None:
        for group in self.planned:
            del self.files[group.file_id]
        merged = FileGroup("day", f"{second}-merged", size_bytes=sum(group.size_bytes for group in self.planned))
        self.merged_bytes += merged.size_bytes
        self.files[merged.file_id] = merged

    def live_files(self) -> int:
        return len(self.files)


@dataclass
class Keyed:
    """A keyed table of four buckets: each commit adds a log file to each; a compaction takes those that were committed when it began."""

    name: str
    logs: list[int] = field(default_factory=list)
    """The second of each commit whose log files are not compacted."""
    newest: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT_COMMITS))
    """The commits on the timeline: their second, and a compaction's bytes."""
    planned: int = 0
    size_bytes: int = 0
    service = Service.COMPACTION
    buckets = 4

    def commit(self, second: int) -> None:
        self.logs.append(second)
        self.newest.append((second, 0))

    def is_due(self, second: int) -> bool:
        found = read_amplification(committed(*commit, self.buckets) for commit in self.newest)
        return bool(why_due(CompactionLimits(), found, at(second)))

    def plan(self, second: int) -> float:
        self.planned = second
        # Nine of ten changes are of keys that it has.
        self.size_bytes = min(200_000_000, self.size_bytes + FILE_BYTES * self.buckets * len(self.logs) // 10)
        return 2 + self.size_bytes / 20e6

    def merge(self, second: int) -> None:
        self.logs = [each for each in self.logs if each > self.planned]
        self.newest.append((self.planned, self.size_bytes))

    def live_files(self) -> int:
        return self.buckets * (1 + len(self.logs))


def committed(second: int, compacted_bytes: int, buckets: int) -> CommittedInstant:
    """A commit with a log file for each bucket, or a compaction with a base file for each."""
    instant = f"{at(second):%Y%m%d%H%M%S}000"
    if compacted_bytes:
        files = {f"{bucket:08}_0-1-2_{instant}.parquet": compacted_bytes // buckets for bucket in range(buckets)}
    else:
        files = {f".{bucket:08}_{instant}.log.1_0-0-0": FILE_BYTES for bucket in range(buckets)}
    return CommittedInstant(instant, {}, at(second), files, operation=COMPACT if compacted_bytes else "UPSERT")


def simulate(tables: list[Table], seconds: int) -> tuple[int, float]:
    """Let all tables get commits; returns the largest number of live files of one, and the part of the time that merges took."""
    runs = dict[str, ServiceRun]()
    ends = dict[str, float]()
    most, merging = 0, 0.0
    for second in range(0, seconds, INTERVAL):
        for table in tables:
            table.commit(second)
            if second >= ends.get(table.name, seconds):
                table.merge(second)
                took = (at(ends.pop(table.name)) - runs[table.name].began_at).total_seconds()
                merging += took
                began_at = runs[table.name].began_at
                runs[table.name] = ServiceRun(table.name, table.service.value, "", began_at, at(second), seconds=took)
            most = max(most, table.live_files())
        if second % LOOK == 0:
            rested = [
                table
                for table in tables
                if table.name not in ends
                and (merges_again_at(runs.values(), table.name, at(second)) or at(second)) <= at(second)
            ]
            due = {table.name: table for table in rested if table.is_due(second)}
            for name in merged_now(due, [table.name for table in tables], at(second)):
                runs[name] = ServiceRun(name, due[name].service.value, "", at(second))
                ends[name] = second + due[name].plan(second)
    return most, merging / seconds


@pytest.mark.parametrize(("kind", "most_live"), [(Appended, 500), (Keyed, 700)])
def test_a_day_of_commits_every_two_seconds_leaves_five_tables_few_live_files(
    kind: Callable[[str], Table], most_live: int
) -> None:
    most, share = simulate([kind(f"/tables/{number}") for number in range(5)], DAY)
    assert most <= most_live, "without merging it would be 172,800"
    assert 0 < share <= MERGING_SHARE


def test_merges_rewrite_a_row_a_few_times_however_small_its_commit_is() -> None:
    table = Appended("/tables/small", file_bytes=FILE_BYTES // 10)
    simulate([table], DAY // 2)
    committed = DAY // 2 // INTERVAL * KAFKA_PARTITIONS * table.file_bytes
    assert committed <= table.merged_bytes <= 4 * committed, "35 times if each merge took all small files"


@given(st.integers(1, 40), st.integers(0, 10**6), st.data())
def test_each_table_has_its_turn_within_three_minutes_and_a_minute_has_a_third_of_them(
    count: int, minute: int, data: st.DataObject
) -> None:
    tables = [f"t{number}" for number in range(count)]
    of_minutes = [merged_now(tables, tables, at(60 * (minute + later))) for later in range(3)]
    assert {*chain(*of_minutes)} == {*tables}
    due = data.draw(st.lists(st.sampled_from(tables), unique=True))
    chosen = merged_now(due, tables, at(60 * minute))
    assert {*chosen} <= {*due}
    assert len(chosen) == min(len(due), -(-count // 3))


def test_such_tables_are_those_with_an_interval_below_a_minute() -> None:
    frequent = [seconds for seconds in (1, 59.9, 60, 300) if Transaction(interval_seconds=seconds).is_frequent]
    assert frequent == [1, 59.9]


def test_a_merge_rests_for_as_long_as_all_tables_took_together() -> None:
    def run(table: str, began: float, seconds: float, service: Service = Service.CLUSTERING) -> ServiceRun:
        return ServiceRun(table, service.value, "", at(began), at(began + seconds), seconds=seconds)

    now = at(4000)
    assert merges_again_at([], "/t/a", now) is None
    assert merges_again_at([run("/t/b", 3990, 9), run("/t/a", 3990, 9, Service.CLEANING)], "/t/a", now) is None
    alone = [run("/t/a", 3000, 10, Service.COMPACTION)]
    assert merges_again_at(alone, "/t/a", now) == at(3040)
    assert merges_again_at([*alone, run("/t/b", 3900, 1)], "/t/a", now) == at(3080)
    long_ago = [*alone, run("/t/b", 399, 1), run("/t/c", 3900, 1, Service.SWEEP)]
    assert merges_again_at(long_ago, "/t/a", now) == at(3040)
