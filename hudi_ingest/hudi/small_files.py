"""Warn when commits fill the table with small files, and name the setting that helps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from hudi_ingest.hudi.file_groups import FileGroup
from hudi_ingest.pipeline.pipeline import Pipeline

SMALL_PART = 4
"""A file smaller than the target size divided by this is small."""
_DAY_SECONDS = 86_400


def small_files(sizes: Mapping[str, int], target_file_bytes: int) -> dict[str, int]:
    """Select the small files from `sizes` (path → bytes)."""
    return {path: size for path, size in sizes.items() if size * SMALL_PART < target_file_bytes}


def files_to_merge(groups: Iterable[FileGroup], target_file_bytes: int) -> int:
    """Count the small files that clustering would merge: those that are not alone in their table partition. `groups`: the live ones
    of an append table."""
    small = Counter(
        group.partition_path for group in groups if group.live and group.size_bytes * SMALL_PART < target_file_bytes
    )
    return sum(count for count in small.values() if count > 1)


def small_files_warning(pipeline: Pipeline, sizes: Mapping[str, int]) -> str:
    """Explain what to change if such a commit at every interval creates more small files a day than the pipeline allows.

    "" if it does not. `sizes` are bytes by path, relative to the table; the interval is the pipeline's.
    """
    if pipeline.table.is_keyed:
        # Compaction merges them.
        return ""
    settings = pipeline.transaction
    small = small_files(sizes, pipeline.table.target_file_bytes)
    a_day = len(small) * _DAY_SECONDS / settings.interval_seconds
    allowed = pipeline.table.small_files_a_day
    if a_day <= allowed:
        return ""
    folders = len({path.rpartition("/")[0] for path in small})
    interval = math.ceil(len(small) * _DAY_SECONDS / allowed)
    mean = sum(small.values()) // len(small)
    return (
        f"{len(small)} of this commit's {len(sizes)} files are small ({mean:,} bytes on average, in {folders} table "
        f"partitions). At interval_seconds {settings.interval_seconds:g} that can be {a_day:,.0f} small files a day, more than "
        f"table.small_files_a_day {allowed:,}: they slow down every reader. Raise transaction.interval_seconds (to {interval:,} "
        "for that limit)" + (", or partition the table by fewer values" if folders > 1 else "") + "."
    )
