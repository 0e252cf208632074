"""Reject records that are too old or too far in the future, or route them to table partitions of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records import kafka_columns
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.schema.columns import TIMESTAMP, ddl_type
from hudi_ingest.records.times import FIRST_MICROSECOND, LAST_MICROSECOND
from hudi_ingest.records.transform import Origins, Problem, Transformed
from hudi_ingest.records.transform.casts import shown, without_rejected
from hudi_ingest.records.transform.fields import missing_fields, require, unchanged

LATE = "late"
FUTURE = "future"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class EventTimeLimits:
    """Compares a time in the record with its Kafka timestamp, or with the transaction's begin.

    A time exactly at a limit is within it. So are null and, if compared with Kafka's, any time of a record without a Kafka
    timestamp.
    """

    field: str
    late_after: timedelta | None
    future_after: timedelta | None
    by_kafka: bool
    """Whether the time is compared with the record's Kafka timestamp rather than with the transaction's begin."""
    begin: datetime | None = None
    """The transaction's begin in UTC: data rather than the clock, so that another attempt finds the same rows late."""
    route: tuple[str, ...] = ()
    """Partition columns that get `late` or `future` instead of their value; if empty, the row is rejected."""

    def at(self, begin: datetime) -> EventTimeLimits:
        """Return the same limits for the transaction that began then."""
        return replace(self, begin=begin)

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([(("field",), self.field)], incoming)])
        kind = incoming.field(self.field).type
        if kind != TIMESTAMP:
            text = (
                f"{self.field} has type {ddl_type(kind)}; allowed: a timestamp, which the transform `timestamp` makes"
            )
            require([Problem(("field",), text)])
        if self.by_kafka and kafka_columns.TIMESTAMP not in incoming.names:
            require([Problem(("relative_to",), f"the batch has no {kafka_columns.TIMESTAMP}")])
        return incoming

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(incoming)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        late, future = self._outside(batch)
        if not pc.any(pc.or_(late, future), min_count=0).as_py():
            return Transformed(batch, None)
        if self.route:
            label = pc.if_else(late, LATE, FUTURE)
            outside = pc.or_(late, future)
            columns = [
                pc.if_else(outside, label, column) if name in self.route else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            return Transformed(pa.RecordBatch.from_arrays(columns, schema=batch.schema), None)
        rejected = {}
        for index in pc.indices_nonzero(pc.or_(late, future)).to_pylist():
            limit = self.late_after if late[index].as_py() else self.future_after
            side = "before" if late[index].as_py() else "after"
            expected = f"a time at most {limit} {side} {self._reference_text(batch, index)}"
            rejected[index] = Rejected(index, self.field, expected, shown(batch[self.field][index]))
        return without_rejected(batch, rejected)

    def _outside(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        times = batch[self.field].cast(pa.int64())
        if self.by_kafka:
            kafka_times = batch[kafka_columns.TIMESTAMP].cast(pa.int64())
            # Producers may write any number. Within these bounds no difference overflows. Records without one are never late.
            lower_bounded = pc.max_element_wise(kafka_times, FIRST_MICROSECOND, skip_nulls=False)
            reference = pc.min_element_wise(lower_bounded, LAST_MICROSECOND, skip_nulls=False)
        else:
            reference = pa.scalar(_microseconds(self._begin() - _EPOCH), pa.int64())
        behind = pc.subtract(reference, times)
        return self._beyond(behind, self.late_after), self._beyond(pc.negate(behind), self.future_after)

    def _beyond(self, distance: pa.Array, limit: timedelta | None) -> pa.Array:
        if limit is None:
            return pa.repeat(False, len(distance))
        return pc.fill_null(pc.greater(distance, _microseconds(limit)), False)

    def _begin(self) -> datetime:
        if self.begin is None:
            raise ValueError("limits relative to the transaction's begin need it: use Chain.at")
        return self.begin

    def _reference_text(self, batch: pa.RecordBatch, index: int) -> str:
        if self.by_kafka:
            return f"the record's Kafka timestamp {shown(batch[kafka_columns.TIMESTAMP][index])}"
        return f"the transaction's begin {self._begin().isoformat()}"


def _microseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
