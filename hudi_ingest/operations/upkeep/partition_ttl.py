"""Retention of data: drop table partitions that are older than `table.ttl`.

Transactions continue. The table's lock is held for the seconds that the drop takes, so none begins or commits meanwhile. One that
is writing is unharmed: what it adds to a dropped partition of an append table are new files, which the drop does not name, and a
keyed table's commit is refused if file groups were replaced while it ran; the next transaction reads the same offsets again, and
gives the buckets of that partition new file groups.

The checkpoint, its sequence and the table's owner stay, because the commit carries them forward. A record that arrives later for a
dropped partition is a row again, and the next drop removes it.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

from hudi_ingest.exceptions import ServiceRefused
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.services.savepoints import HudiPartitions, HudiSavepoints
from hudi_ingest.hudi.storage.paths import HOODIE
from hudi_ingest.hudi.timeline.ownership import require_own_table
from hudi_ingest.hudi.timeline.timeline import Timeline, instant_time
from hudi_ingest.ledger import Ledger, Service
from hudi_ingest.operations.upkeep.savepoints import Savepoints
from hudi_ingest.operations.upkeep.service_log import connected, logged
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table import Table
from hudi_ingest.pipeline.sections.table_parts import Ttl

_logger = logging.getLogger(__name__)
_TIME = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)(?:-(?P<hour>\d\d))?)?)?", re.ASCII)
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d)")


class PartitionsClient(Protocol):
    """The calls to Hudi that a drop needs; see hudi/services/savepoints.py."""

    def file_groups(self, partition_paths: None) -> tuple[FileGroup, ...]: ...
    def delete(self, partitions: list[str]) -> str: ...


@dataclass(frozen=True, slots=True)
class TtlResult:
    """The partitions that expired, and those whose age is unknown; `instant`: of the commit that dropped the former, None if nothing
    was dropped."""

    pipeline: str
    base_path: str
    days: int
    expired: tuple[AgedPartition, ...]
    unknown: tuple[str, ...]
    kept: int
    instant: str | None = None
    savepoint: str | None = None

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.expired)

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "base_path": self.base_path,
            "days": self.days,
            "expired": [
                {
                    "partition": partition.path,
                    "ended_at": partition.ended_at.isoformat() if partition.ended_at else None,
                    "file_groups": partition.file_groups,
                    "bytes": partition.size_bytes,
                }
                for partition in self.expired
            ],
            "bytes": self.size_bytes,
            "unknown": list(self.unknown),
            "kept": self.kept,
            "instant": self.instant,
            "savepoint": self.savepoint,
        }


@dataclass(frozen=True)
class PartitionTtl:
    """The retention of one pipeline's table."""

    pipeline: Pipeline
    ledger: Ledger
    client: PartitionsClient
    savepoints: Savepoints

    def run(
        self, now: datetime, report: Callable[[str], None], *, plan_only: bool = False, savepoint: bool = False
    ) -> TtlResult:
        """Drop the partitions that have expired at `now`, or only say which; `savepoint`: make one before.

        Raises ServiceRefused if the pipeline file sets no `table.ttl`, TableMismatch, TableUnreachable (also while a clustering or
        compaction of such a partition is pending), EngineLost, and TransactionInFlight if services are running on the table, or its
        lock is not free.
        """
        ttl, table = _required_ttl(self.pipeline), self.pipeline.table.base_path
        timeline = Timeline.of(self.pipeline.table)
        if not timeline.exists():
            return TtlResult(self.pipeline.name, table, ttl.days, (), (), 0)
        require_own_table(self.pipeline, timeline.properties())
        if plan_only:
            return self._result(ttl.days, now)
        with logged(self.ledger, Service.TTL, self.pipeline) as work:
            result = self._result(ttl.days, now)
            work.due, work.done = len(result.expired), 0
            if result.expired:
                result = self._drop(ttl.days, now, report, savepoint)
                work.due = work.done = len(result.expired)
        return result

    def _drop(self, days: int, now: datetime, report: Callable[[str], None], savepoint: bool) -> TtlResult:
        table = self.pipeline.table.base_path
        # No clustering or compaction is planned meanwhile, and no commit begins or ends.
        with (
            self.ledger.table_lock(f"{table}/{HOODIE}/services", timeout_seconds=1, unfenced=True),
            self.ledger.table_lock(table, unfenced=True),
        ):
            result = self._result(days, now)
            if not result.expired:
                # Another run has dropped them since.
                return result
            made = self.savepoints.create("before ttl", report) if savepoint else None
            report(f"dropping {counted(len(result.expired), 'partition')}, {result.size_bytes:,} bytes")
            instant = self.client.delete([partition.path for partition in result.expired])
        return TtlResult(self.pipeline.name, table, days, result.expired, result.unknown, result.kept, instant, made)

    def _result(self, days: int, now: datetime) -> TtlResult:
        partitions = aged_partitions(self.pipeline.table, self.client.file_groups(None))
        old = expired(partitions, days, now)
        unknown = tuple(partition.path for partition in partitions if partition.ended_at is None)
        return TtlResult(
            self.pipeline.name,
            self.pipeline.table.base_path,
            days,
            tuple(old),
            unknown,
            len(partitions) - len(old),
        )


def ttl_for(pipeline: Pipeline, ledger: Ledger, spark: SparkSession) -> PartitionTtl:
    """Build the retention of the pipeline's table, on the real table, ledger and Spark."""
    savepoints = Savepoints(pipeline, ledger, HudiSavepoints(spark, pipeline))
    return PartitionTtl(pipeline, ledger, HudiPartitions(spark, pipeline), savepoints)


def run_ttl(
    pipeline: Pipeline,
    home: Home | None = None,
    *,
    plan_only: bool = False,
    savepoint: bool = True,
    report: Callable[[str], None] = _logger.info,
) -> TtlResult:
    """Drop expired partitions now, after a savepoint. Attaches to a running engine, else starts Spark in this process. Raises what
    `PartitionTtl.run` raises."""
    _required_ttl(pipeline)
    with connected(pipeline, home or Home.from_environment(), report) as (spark, ledger):
        return ttl_for(pipeline, ledger, spark).run(
            datetime.now(timezone.utc), report, plan_only=plan_only, savepoint=savepoint
        )


def _required_ttl(pipeline: Pipeline) -> Ttl:
    if pipeline.table.ttl is None:
        raise ServiceRefused(
            f"the file of pipeline {pipeline.name} does not say how long data is kept; add `table.ttl`, such as "
            "`ttl: {days: 90}`. Nothing was dropped."
        )
    return pipeline.table.ttl


@dataclass(frozen=True, slots=True)
class AgedPartition:
    """A table partition with live files, and when it ended; None if that is unknown."""

    path: str
    ended_at: datetime | None
    file_groups: int
    size_bytes: int


def aged_partitions(table: Table, groups: Iterable[FileGroup]) -> list[AgedPartition]:
    """Return the table's partitions with their ends, by path."""
    by_path: defaultdict[str, list[FileGroup]] = defaultdict(list)
    for group in groups:
        if group.live:
            by_path[group.partition_path].append(group)
    return [
        AgedPartition(path, _ended_at(table, path, live), len(live), sum(group.size_bytes for group in live))
        for path, live in sorted(by_path.items())
    ]


def expired(partitions: Iterable[AgedPartition], days: int, now: datetime) -> list[AgedPartition]:
    before = now - timedelta(days=days)
    return [partition for partition in partitions if partition.ended_at is not None and partition.ended_at < before]


def end_of_time(text: str, zone: str) -> datetime | None:
    """Return when the year, month, day or hour ends; None if the text is none of these."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match.groups() if part is not None]
    year, month, day, hour = (*parts, *(1, 1, 1, 0)[len(parts) :])
    try:
        begin = datetime(year, month, day, hour)
        if len(parts) == 1:
            end = begin.replace(year=begin.year + 1)
        elif len(parts) == 2:
            end = (begin + timedelta(days=32)).replace(day=1)
        else:
            end = begin + (timedelta(days=1) if len(parts) == 3 else timedelta(hours=1))
        return end.replace(tzinfo=_zone(zone)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def _ended_at(table: Table, path: str, groups: Iterable[FileGroup]) -> datetime | None:
    ttl = table.ttl
    if ttl is None or ttl.by == "commit":
        newest = max((group.instant for group in groups), default="")
        return instant_time(newest) if newest else None
    column = ttl_column(table)
    folder = path.split("/")[table.partition_columns.index(column)]
    value = unquote(folder.partition("=")[2] if table.hive_style else folder)
    if len(value) == len("2026") and column not in (ttl.column, table.finest_time):
        # Nobody has said that it is a year: a column of shops or zip codes has such values, too.
        return None
    return end_of_time(value, table.partition_zone)


def ttl_column(table: Table) -> str:
    """Return the partition column that says how old a partition is; "" if none does."""
    if table.ttl is not None and table.ttl.column is not None:
        return table.ttl.column
    return table.finest_time or (table.partition_columns[0] if len(table.partition_columns) == 1 else "")


def _zone(name: str) -> ZoneInfo | timezone:
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        return ZoneInfo(name)
    minutes = int(offset["hours"]) * 60 + int(offset["minutes"])
    return timezone(timedelta(minutes=minutes if offset["sign"] == "+" else -minutes))
