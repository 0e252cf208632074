"""Warn when commits fill the table with small files, and name the setting that helps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.pipeline.pipeline import Pipeline

SMALL_PART = 4
"""A file smaller than the target size divided by this is small."""
DAY_SECONDS = 86_400


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


def small_files_warning(pipeline: Pipeline, sizes: Mapping[str, int], a_day: float | None = None) -> str:
    """Explain what to change if the table gets more small files a day than the pipeline allows; "" if it does not.

    `sizes` are the bytes of a commit's files by path, relative to the table. `a_day`: how many small files commits make a day, if
    that is known; by default as if such a commit came at every interval.
    """
    small = small_files(sizes, pipeline.table.target_file_bytes)
    if pipeline.table.is_keyed or not small:
        # Compaction merges those of a keyed table.
        return ""
    interval, allowed = pipeline.transaction.interval_seconds, pipeline.table.small_files_a_day
    rate = len(small) * DAY_SECONDS / interval if a_day is None else a_day
    if rate <= allowed:
        return ""
    folders = len({path.rpartition("/")[0] for path in small})
    mean = sum(small.values()) // len(small)
    makes = f"At interval_seconds {interval:g} that can be" if a_day is None else "The table's commits make"
    return (
        f"{len(small)} of this commit's {len(sizes)} files are small ({mean:,} bytes on average, in {folders} table "
        f"partitions). {makes} {rate:,.0f} small files a day, more than table.small_files_a_day {allowed:,}: they slow down "
        f"every reader. Raise transaction.interval_seconds (to {math.ceil(interval * rate / allowed):,} for that limit)"
        + (", or partition the table by fewer values" if folders > 1 else "")
        + "."
    )
