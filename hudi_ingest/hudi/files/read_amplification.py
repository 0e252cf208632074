"""Files that slow readers down: log files of a keyed table that no compaction has merged into base files, and small files. Pure.

Log files are known from the completed instants on the active timeline alone, so it costs no listing. Archival keeps the newest
`table.compaction.delta_commits` commits that are not compacted there, so what it leaves out does not change whether
compaction is due.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, instant_time
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table_parts import COMPACTED_SECONDS, CompactionLimits

COMPACT = "COMPACT"
"""Hudi's operation of a compaction's commit."""
OUTWEIGHING_BYTES = 16 * 1024 * 1024
"""Bytes from which on a compaction is due when log files hold more than the base files below them, as after a first load: reading a
million rows from log files took 57 times as long as from base files."""


SMALL_FILES_A_DAY = 15_000
"""Most new files a day below a quarter of `target_file_bytes`: room for a file of each op of the default pipeline at every interval."""


@dataclass(frozen=True, slots=True)
class ReadAmplification:
    """The log files that are not compacted. `file_groups` are those that have any, and `base_bytes` the bytes of their base
    files, None if one of these is not known because its commit is archived."""

    delta_commits: int = 0
    log_files: int = 0
    log_bytes: int = 0
    file_groups: int = 0
    most_log_files: int = 0
    """The log files of one file group."""
    base_bytes: int | None = 0
    oldest_at: datetime | None = None
    """When the oldest commit with such log files was completed."""
    compacted_at: datetime | None = None
    """When the last compaction was completed; None if there was none, or it is archived."""

    @property
    def mean_log_files(self) -> float:
        """Log files per file group that has any."""
        return self.log_files / self.file_groups if self.file_groups else 0.0

    @property
    def ratio(self) -> float | None:
        """Log bytes per byte of base files; None if unknown, and while there are no rows in base files at all."""
        return self.log_bytes / self.base_bytes if self.base_bytes else None


def read_amplification(commits: Iterable[CommittedInstant]) -> ReadAmplification:
    """Find what is not compacted. `commits`: all writers' completed instants on the active timeline."""
    commits = tuple(commits)
    bases: dict[tuple[str, str], tuple[datetime, int]] = {}
    replaced: dict[tuple[str, str], datetime] = {}
    for commit in commits:
        for group in commit.replaced:
            replaced[group] = max(commit.completed_at, replaced.get(group, commit.completed_at))
        for path, size in commit.files.items():
            folder, _, name = path.rpartition("/")
            if not _is_log(name):
                group, base = (folder, name.partition("_")[0]), (instant_time(commit.instant), size)
                bases[group] = max(base, bases.get(group, base))
    files = Counter[tuple[str, str]]()
    log_bytes, unmerged = 0, list[datetime]()
    for commit in commits:
        is_unmerged = False
        for path, size in commit.files.items():
            folder, _, name = path.rpartition("/")
            group = (folder, name[1:].partition("_")[0])
            # Hudi's rule: a log file belongs to the base file with the newest instant up to the log's completion.
            merged = group in bases and bases[group][0] > commit.completed_at
            if _is_log(name) and not merged and not (group in replaced and replaced[group] >= commit.completed_at):
                files[group] += 1
                log_bytes += size
                is_unmerged = True
        if is_unmerged:
            unmerged.append(commit.completed_at)
    sizes = [bases[group][1] if group in bases else None for group in files]
    known = [size for size in sizes if size is not None]
    return ReadAmplification(
        delta_commits=len(unmerged),
        log_files=files.total(),
        log_bytes=log_bytes,
        file_groups=len(files),
        most_log_files=max(files.values(), default=0),
        base_bytes=sum(known) if len(known) == len(sizes) else None,
        oldest_at=min(unmerged, default=None),
        compacted_at=max((commit.completed_at for commit in commits if commit.operation == COMPACT), default=None),
    )


def why_due(limits: CompactionLimits, found: ReadAmplification, now: datetime, times: int = 1) -> str:
    """Say which of the limits, multiplied by `times`, is reached; "" if none is, so compaction is not due."""
    if found.oldest_at is None:
        return ""
    age = (now - found.oldest_at).total_seconds()
    if found.delta_commits >= limits.delta_commits * times:
        return f"{counted(found.delta_commits, 'commit')} not compacted (delta_commits: {limits.delta_commits})"
    if found.most_log_files >= limits.log_files * times:
        return f"{found.most_log_files} log files of a file group not compacted ({limits.log_files:,} with delta_commits: {limits.delta_commits})"
    if found.log_bytes >= limits.log_bytes * times:
        return f"{found.log_bytes:,} bytes of log files not compacted ({limits.log_bytes:,} with delta_commits: {limits.delta_commits})"
    if found.base_bytes is not None and found.log_bytes >= max(found.base_bytes, OUTWEIGHING_BYTES) * times:
        return f"{found.log_bytes:,} bytes of log files not compacted outweigh {found.base_bytes:,} of base files"
    if age >= COMPACTED_SECONDS * times:
        return f"the oldest commit not compacted is {age:,.0f} s old; they are compacted within a day"
    return ""


def _is_log(name: str) -> bool:
    return name.startswith(".")


SMALL_PART = 4
"""A file smaller than the target size divided by this is small."""
CLUSTERED_FROM = 200
"""Small files with which the clustering of a table with frequent commits is due: they cost a reader a second or so."""
_LEFT_MOST = CLUSTERED_FROM // 2
_OUTWEIGHED = 4
"""A file is merged when those that are smaller have as many times its bytes together."""
DAY_SECONDS = 86_400


def small_files(sizes: Mapping[str, int], target_file_bytes: int) -> dict[str, int]:
    """Select the small files from `sizes` (path → bytes)."""
    return {path: size for path, size in sizes.items() if size * SMALL_PART < target_file_bytes}


def files_to_merge(groups: Iterable[FileGroup], target_file_bytes: int) -> int:
    """Count the small files that clustering would merge: those that are not alone in their table partition. `groups`: the live ones
    of an append table."""
    return sum(len(sizes) for sizes in _small_sizes(groups, target_file_bytes) if len(sizes) > 1)


def merged_below(groups: Iterable[FileGroup], target_file_bytes: int) -> int:
    """Return below how many bytes files are merged when it is due, so that merges stay as short while their results add up.

    A file goes with the smaller ones of its table partition only if they outweigh it. So each time a row is rewritten, its file becomes
    five times as large, as in a log-structured merge tree; it is all small files if too many would be left otherwise. `groups`: as for
    `files_to_merge`.
    """
    below, partitions = 0, _small_sizes(groups, target_file_bytes)
    for sizes in partitions:
        for size, smaller in zip(sizes[1:], accumulate(sizes), strict=False):
            if smaller >= _OUTWEIGHED * size:
                below = max(below, size + 1)
    left = sum(size >= below for sizes in partitions for size in sizes)
    return below if left <= _LEFT_MOST else target_file_bytes // SMALL_PART


def _small_sizes(groups: Iterable[FileGroup], target_file_bytes: int) -> list[list[int]]:
    """The bytes of the small live files of each table partition, in ascending order."""
    sizes = defaultdict[str, list[int]](list)
    for group in groups:
        if group.live and group.size_bytes * SMALL_PART < target_file_bytes:
            sizes[group.partition_path].append(group.size_bytes)
    return [sorted(each) for each in sizes.values()]


def small_files_warning(pipeline: Pipeline, sizes: Mapping[str, int], a_day: float | None = None) -> str:
    """Explain what to change if the table gets more small files than `SMALL_FILES_A_DAY`; "" if it does not.

    `sizes` are the bytes of a commit's files by path, relative to the table. `a_day`: how many small files commits make a day, if
    that is known; by default as if such a commit came at every interval.
    """
    small = small_files(sizes, pipeline.table.target_file_bytes)
    if pipeline.table.is_keyed or pipeline.transaction.is_frequent or not small:
        # Compaction merges those of a keyed table, and clustering those of frequent commits, when they are due.
        return ""
    interval, allowed = pipeline.transaction.interval_seconds, SMALL_FILES_A_DAY
    rate = len(small) * DAY_SECONDS / interval if a_day is None else a_day
    if rate <= allowed:
        return ""
    folders = len({path.rpartition("/")[0] for path in small})
    mean = sum(small.values()) // len(small)
    makes = f"At interval_seconds {interval:g} that can be" if a_day is None else "The table's commits make"
    return (
        f"{len(small)} of this commit's {len(sizes)} files are small ({mean:,} bytes on average, in {folders} table "
        f"partitions). {makes} {rate:,.0f} small files a day, more than {allowed:,}: they slow down "
        f"every reader. Raise transaction.interval_seconds (to {math.ceil(interval * rate / allowed):,} for that limit)"
        + (", or partition the table by fewer values" if folders > 1 else "")
        + "."
    )
