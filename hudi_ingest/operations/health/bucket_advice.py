"""How many buckets a keyed table would get today, by the measured size of its table partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.pipeline.sections.table import MOST_BUCKETS

BUCKET_BYTES = 1 << 30
"""Size of a file group that a compaction rewrites in one task, and that a reader still opens quickly."""
_MANY_TIMES = 4
"""A table with so many times more or fewer buckets than its size asks for is worth being made anew."""


def bucket_advice(buckets: int, sizes: Mapping[str, int]) -> str:
    """Say how many buckets the table's size asks for. `sizes`: bytes by table partition."""
    path, size = max(sizes.items(), key=lambda item: item[1], default=("", 0))
    if not size:
        return f"{counted(buckets, 'bucket')} per table partition; its data has not been measured yet"
    wanted = _wanted(size)
    where = f"its largest table partition, {path}," if path else "it"
    text = (
        f"{counted(buckets, 'bucket')} per table partition; {where} has {size / BUCKET_BYTES:.3f} GiB, for which "
        f"{counted(wanted, 'bucket')} of up to 1 GiB would be chosen"
    )
    if wanted >= _MANY_TIMES * buckets:
        text += ". Compaction rewrites few large files: ingest into a new table with more buckets"
    return text


def first_advice(buckets: int, records: int, size: int, is_partitioned: bool) -> str:
    """Say how many buckets a table that does not exist yet should get, if the `records` of its topics take `size` bytes."""
    found = f"the topic's {records:,} records would take about {size / BUCKET_BYTES:.3f} GiB"
    if is_partitioned:
        return (
            f"{counted(buckets, 'bucket')} per table partition; {found} in all table partitions together: choose one for each GiB "
            "of the largest, before the table exists"
        )
    text = f"{counted(buckets, 'bucket')}; {found}, for which {counted(_wanted(size), 'bucket')} of up to 1 GiB would be chosen"
    return f"{text}; set `table.buckets` to what it grows to, it cannot be changed once the table exists"


def _wanted(size: int) -> int:
    return min(MOST_BUCKETS, max(1, -(-size // BUCKET_BYTES)))
