"""How many buckets a keyed table would get today, by the measured size of its table partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hudi_ingest.exceptions.problems import counted
from hudi_ingest.pipeline.table import MOST_BUCKETS

BUCKET_BYTES = 1 << 30
"""Size of a file group that a compaction rewrites in one task, and that a reader still opens quickly."""
_MANY_TIMES = 4
"""A table with so many times more or fewer buckets than its size asks for is worth being made anew."""


def bucket_advice(buckets: int, sizes: Mapping[str, int]) -> str:
    """Say how many buckets the table's size asks for. `sizes`: bytes by table partition."""
    path, size = max(sizes.items(), key=lambda item: item[1], default=("", 0))
    if not size:
        return f"{counted(buckets, 'bucket')} per table partition; its data has not been measured yet"
    wanted = min(MOST_BUCKETS, max(1, -(-size // BUCKET_BYTES)))
    where = f"its largest table partition, {path}," if path else "it"
    text = (
        f"{counted(buckets, 'bucket')} per table partition; {where} has {size / BUCKET_BYTES:.3f} GiB, for which "
        f"{counted(wanted, 'bucket')} of up to 1 GiB would be chosen"
    )
    if wanted >= _MANY_TIMES * buckets:
        text += ". Compaction rewrites few large files: ingest into a new table with more buckets"
    return text
