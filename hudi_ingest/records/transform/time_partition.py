"""Table partitions by time: `day(ts)` in `table.partition_by` becomes a column, added at the end of the chain.

Hudi partitions tables by columns only. The value is a text that includes all larger units, so one column suffices and
texts sort like the times: 2026, 2026-01, 2026-01-31, 2026-01-31-23, the same as in Iceberg and Flink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.schema.columns import TIMESTAMP, ddl_type
from hudi_ingest.records.transform import Origins, Problem, Transformed
from hudi_ingest.records.transform.fields import (
    missing_fields,
    name_problems,
    require,
    unchanged,
    with_arrays,
    with_columns,
)

_CHARACTERS: Mapping[str, int] = {"year": 4, "month": 7, "day": 10, "hour": 13}
UNITS = tuple(_CHARACTERS)
_EXPRESSION = re.compile(r"(?:(?P<alias>\w+)\s*=\s*)?(?P<unit>\w+)\(\s*(?P<source>\w+)\s*\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class TimePartition:
    """Adds a text column with the year, month, day or hour of a time in `zone`; null for null.

    The hour that clocks show twice in autumn is a single partition. A date has no zone: its year, month and day are used
    as they are.
    """

    column: str
    unit: str
    """One of UNITS."""
    source: str
    """A field of the record, or `_kafka_timestamp`."""
    zone: str = "UTC"

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([((), self.source)], incoming, kafka=True)])
        kind = incoming.field(self.source).type
        if kind != TIMESTAMP and not (kind == pa.date32() and self.unit != "hour"):
            allowed_types = "timestamp" if self.unit == "hour" else "timestamp or date"
            advice = "; convert it with `timestamp`" if kind in (pa.string(), pa.int32(), pa.int64()) else ""
            text = f"{self.source} has type {ddl_type(kind)}; {self.unit}() takes a {allowed_types}{advice}"
            require([Problem((), text)])
        output = with_columns(incoming, [self._field(incoming)])
        require([*name_problems(output, {self.column: ()})])
        return output

    def origins(self, incoming: pa.Schema) -> Origins:
        return {**unchanged(incoming), self.column: frozenset([self.source])}

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        values = self._values(batch[self.source])
        return Transformed(with_arrays(batch, [self._field(batch.schema)], [values]), None)

    def _field(self, incoming: pa.Schema) -> pa.Field:
        return pa.field(self.column, pa.string(), incoming.field(self.source).nullable)

    def _values(self, times: pa.Array) -> pa.Array:
        if times.type == TIMESTAMP:
            zoned = times if self.zone == "UTC" else times.cast(pa.timestamp("us", self.zone))
            times = pc.local_timestamp(zoned)
        # A batch has few distinct days, so only those are formatted.
        encoded = pc.floor_temporal(times, unit=self.unit).dictionary_encode()
        texts = pc.utf8_slice_codeunits(encoded.dictionary.cast(pa.string()), 0, _CHARACTERS[self.unit])
        return pc.replace_substring(texts, " ", "-").take(encoded.indices)


def is_expression(text: str) -> bool:
    """Return whether an entry of `table.partition_by` is more than a column's name."""
    return "(" in text or "=" in text


def parse_time_partition(text: str, zone: str) -> TimePartition:
    """Parse an entry of `table.partition_by`: `day(ts)` adds column `ts_day`, `dt=day(ts)` adds `dt`, and
    `day(_kafka_timestamp)` adds `kafka_timestamp_day`.

    Raises ValueError.
    """
    match = _EXPRESSION.fullmatch(text.strip())
    shape = "allowed: year(column), month(column), day(column), hour(column), or name=day(column)"
    if match is None:
        raise ValueError(f"not a column and not a time expression; {shape}")
    if match["unit"] not in UNITS:
        raise ValueError(f"{match['unit']}() is not known; {shape}")
    column = match["alias"] or f"{match['source'].lstrip('_')}_{match['unit']}"
    return TimePartition(column, match["unit"], match["source"], zone)
