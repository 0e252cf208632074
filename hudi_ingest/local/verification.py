"""Reads a table back with hudi-rs, which shares no code with the writer, and compares it with the records that it should hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from hudi import HudiReadOptions, HudiTable


@dataclass(frozen=True, slots=True)
class Verification:
    """Counts of (partition, offset): rows read, produced but not read, read twice, read but never produced or with
    another record's content."""

    rows: int
    lost: int
    duplicate: int
    foreign: int

    @property
    def exact(self) -> bool:
        return not (self.lost or self.duplicate or self.foreign)


def verify(
    base_path: str,
    produced: Mapping[tuple[int, int], str],
    id_column: str = "id",
    options: Mapping[str, str] | None = None,
) -> Verification:
    """Compare the table's rows with `produced`: (partition, offset) → id of the record there. `options` are hudi-rs's, for a
    table on an object store."""
    columns = HudiReadOptions().with_projection(["_kafka_partition", "_kafka_offset", id_column])
    rows = pa.Table.from_batches(HudiTable(base_path, dict(options or {})).read(columns))
    places = zip(rows["_kafka_partition"].to_pylist(), rows["_kafka_offset"].to_pylist(), strict=True)
    seen = Counter(zip(places, rows[id_column].to_pylist(), strict=True))
    expected = produced.items()
    return Verification(
        rows=rows.num_rows,
        lost=sum(1 for record in expected if record not in seen),
        duplicate=sum(count - 1 for count in seen.values()),
        foreign=sum(1 for place, identifier in seen if produced.get(place) != identifier),
    )
