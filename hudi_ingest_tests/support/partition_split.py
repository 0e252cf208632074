"""Rows split by table partition, in one go."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hudi_ingest.hudi.files.partition_split import parts_of, split_rows


def split_by_partition(
    rows: pa.Table, columns: Sequence[str], hive_style: bool = True, escaped: bool = True
) -> list[tuple[str, pa.Table]]:
    """Return (partition path, rows in their original order), one entry for each table partition."""
    if not rows.num_rows:
        return []
    split = split_rows([rows], columns, hive_style, escaped)
    return list(parts_of(split.pieces(split.paths)[0], columns))
