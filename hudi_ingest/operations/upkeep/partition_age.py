"""Which table partitions are older than `table.ttl` allows. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.timeline.timeline import instant_time
from hudi_ingest.pipeline.sections.table import Table

_TIME = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)(?:-(?P<hour>\d\d))?)?)?", re.ASCII)
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d)")


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
