"""The times that tables and their readers support, the years 1 to 9999, and Kafka's times in them. Pure.

A Kafka record's time is milliseconds since 1970 in 64 bits, and producers may write any number.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.schema.columns import TIMESTAMP

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
MICROSECONDS_OF_DAY = 86_400_000_000

FIRST_DAY = date.min.toordinal() - EPOCH_ORDINAL
"""0001-01-01 in days since 1970; Python has no earlier dates."""
LAST_DAY = date.max.toordinal() - EPOCH_ORDINAL
FIRST_MICROSECOND = FIRST_DAY * MICROSECONDS_OF_DAY
LAST_MICROSECOND = (LAST_DAY + 1) * MICROSECONDS_OF_DAY - 1
FIRST_SECOND = FIRST_MICROSECOND // 1_000_000
LAST_SECOND = LAST_MICROSECOND // 1_000_000


KAFKA_TIME = pa.timestamp("ms", "UTC")
"""Holds every time that a record can have."""
NO_TIME = -1
"""Kafka's value for a record without a time."""
FIRST_MILLISECOND, LAST_MILLISECOND = FIRST_MICROSECOND // 1000, LAST_MICROSECOND // 1000
"""The years 1 to 9999, the times that tables and their readers support."""
EXPECTED_KAFKA_TIME = "a Kafka timestamp in milliseconds, in the years 1 to 9999"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_OTHER_UNITS = {"microseconds": 1000, "nanoseconds": 1_000_000}
_LIKELY = range(1990, 2100)
_TICKS = {"ms": 1, "us": 1000}


def kafka_times(times: pa.Array) -> pa.Array:
    """Convert timestamps in milliseconds or microseconds to KAFKA_TIME, in whole milliseconds."""
    return pc.divide(times.cast(pa.int64()), _TICKS[times.type.unit]).cast(KAFKA_TIME)


def outside_years(times: pa.Array) -> pa.Array:
    """Return for each KAFKA_TIME whether it is outside the years 1 to 9999."""
    milliseconds = times.cast(pa.int64())
    return pc.or_(pc.less(milliseconds, FIRST_MILLISECOND), pc.greater(milliseconds, LAST_MILLISECOND))


def table_times(times: pa.Array) -> pa.Array:
    """Convert KAFKA_TIME in the years 1 to 9999 to a table's timestamps, null where the record has none."""
    milliseconds = times.cast(pa.int64())
    return pc.if_else(pc.equal(milliseconds, NO_TIME), pa.scalar(None, KAFKA_TIME), times).cast(TIMESTAMP)


def as_datetime(milliseconds: int) -> datetime | None:
    """Convert to a datetime; None if the record has no time, or one outside the years 1 to 9999."""
    if milliseconds == NO_TIME or not FIRST_MILLISECOND <= milliseconds <= LAST_MILLISECOND:
        return None
    return _EPOCH + timedelta(milliseconds=milliseconds)


def time_text(milliseconds: int) -> str:
    """Format the time for people, or say why there is none."""
    if milliseconds == NO_TIME:
        return "no Kafka timestamp"
    known = as_datetime(milliseconds)
    if known is not None:
        # Not by strftime, which writes years before 1000 with fewer than four digits.
        return f"{known.replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"
    return f"Kafka timestamp {wrong_time_text(milliseconds)}"


def wrong_time_text(milliseconds: int) -> str:
    """Format a number outside the years 1 to 9999, with the unit that the producer most likely used by mistake."""
    for unit, ticks in _OTHER_UNITS.items():
        likely = as_datetime(milliseconds // ticks)
        if likely is not None and likely.year in _LIKELY:
            return (
                f"{milliseconds}, which is {likely:%Y-%m-%d %H:%M:%S} UTC in {unit}: the producer sets the wrong unit"
            )
    return str(milliseconds)
