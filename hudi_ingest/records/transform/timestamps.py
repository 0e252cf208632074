"""Times: the transform `timestamp`, table partitions by time, and limits on how old or new a record may be.

`day(ts)` in `table.partition_by` becomes a column, added at the end of the chain. Hudi partitions tables by columns only. The
value is a text that includes all larger units, so one column suffices and texts sort like the times: 2026, 2026-01, 2026-01-31,
2026-01-31-23, the same as in Iceberg and Flink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records import kafka_columns
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.schema.columns import TIMESTAMP, ddl_type
from hudi_ingest.records.times import FIRST_MICROSECOND, LAST_MICROSECOND
from hudi_ingest.records.transform import (
    Origins,
    Problem,
    Transformed,
    missing_fields,
    name_problems,
    require,
    unchanged,
    with_arrays,
    with_columns,
)
from hudi_ingest.records.transform.casts import (
    Conversion,
    Convert,
    convert_columns,
    refuse,
    shown,
    within_time,
    without_rejected,
)

EPOCHS: Mapping[str, int] = {"epoch_seconds": 1_000_000, "epoch_millis": 1_000, "epoch_micros": 1}
"""Microseconds in one of the unit."""
ISO8601 = "iso8601"

_LOCAL = pa.timestamp("us")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DIRECTIVES: Mapping[str, str] = {
    "Y": r"(?P<year>[0-9]{4})",
    "m": r"(?P<month>[0-9]{1,2})",
    "b": r"(?P<month_name>[A-Za-z]{3})",
    "d": r"(?P<day>[0-9]{1,2})",
    "H": r"(?P<hour>[0-9]{1,2})",
    "M": r"(?P<minute>[0-9]{1,2})",
    "S": r"(?P<second>[0-9]{1,2})",
    "f": r"(?P<fraction>[0-9]{1,6})",
    "z": r"(?P<offset>Z|[+-][0-9]{2}(?::?[0-9]{2})?)",
    "%": "%",
}
DIRECTIVES = ", ".join(f"%{directive}" for directive in _DIRECTIVES)
_ISO = (
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?:[ T](?P<hour>[0-9]{2})(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6})0*)?)?)?"
    r"(?P<offset>Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_ISO_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO_TIME = r"[ T][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?"
_ISO_WITH_OFFSET = rf"^{_ISO_DAY}{_ISO_TIME}(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)\z"
_ISO_WITHOUT_OFFSET = rf"^{_ISO_DAY}(?:{_ISO_TIME})?\z"


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """Converts fields to timestamps (microseconds, UTC). Anything that is not a time in the years 1 to 9999 is rejected."""

    fields: tuple[str, ...]
    format: str
    """A key of EPOCHS, ISO8601, or a strptime pattern of DIRECTIVES."""
    zone: str = "UTC"
    """The zone of text without an offset of its own."""
    ambiguous: str = "reject"
    """How to read a local time that clocks showed twice: reject, earlier or later. Skipped times are always rejected."""

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([(("fields", i), name) for i, name in enumerate(self.fields)], incoming)])
        kinds = (pa.int32(), pa.int64()) if self.format in EPOCHS else (pa.string(),)
        problems = [
            Problem(
                ("fields", index),
                f"{name} has type {ddl_type(kind)}; {self.format} is read from {' or '.join(map(ddl_type, kinds))}",
            )
            for index, name in enumerate(self.fields)
            if (kind := incoming.field(name).type) not in kinds
        ]
        require(problems)
        return pa.schema([field.with_type(TIMESTAMP) if field.name in self.fields else field for field in incoming])

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(incoming)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        convert, expected = self._conversion()
        conversions = {
            name: Conversion(batch.schema.field(name).with_type(TIMESTAMP), convert, expected) for name in self.fields
        }
        return convert_columns(batch, conversions)

    def _conversion(self) -> tuple[Convert, str]:
        if self.format in EPOCHS:
            return partial(_of_epoch, EPOCHS[self.format]), f"a time as {self.format}, in the years 1 to 9999"
        shape = "ISO 8601, to the microsecond" if self.format == ISO8601 else self.format
        expected = f"a time as {shape}"
        if self.zone != "UTC":
            expected += f", one that clocks in {self.zone} showed{' once' if self.ambiguous == 'reject' else ''}"
        if self.format == ISO8601:
            return partial(_of_iso, self.zone, self.ambiguous), expected
        return partial(_of_text, pattern_regex(self.format), self.zone, self.ambiguous), expected


def iso8601_times(column: pa.Array) -> pa.Array:
    """Convert ISO 8601 text; UTC unless it has an offset. Raises ArrowInvalid when a value is no time in the years 1 to 9999."""
    return _of_iso("UTC", "reject", column)


def zone_problem(zone: str) -> str:
    """Say why times cannot be read in the zone; "" when they can."""
    try:
        # Ask Arrow, because rows are converted with Arrow's time zone database.
        pc.assume_timezone(pa.array([0], _LOCAL), zone)
    except pa.ArrowInvalid:
        return "unknown time zone; allowed: a name like UTC, Europe/Berlin or America/New_York, or +02:00"
    return ""


def pattern_regex(pattern: str) -> str:
    """Return the regular expression of a strptime pattern. Raises ValueError when it has directives other than DIRECTIVES, one
    of them twice, or no complete date."""
    parts, seen = [], []
    for literal, directive in re.findall(r"([^%]+)|%(.?)", pattern, re.DOTALL):
        if literal:
            parts.append(re.escape(literal).replace(r"\ ", " "))
        elif directive not in _DIRECTIVES:
            raise ValueError(f"%{directive} is not known; allowed: {DIRECTIVES}")
        else:
            parts.append(_DIRECTIVES[directive])
            seen.append(directive)
    twice = sorted({directive for directive in seen if seen.count(directive) > 1 and directive != "%"})
    if twice:
        raise ValueError(f"%{twice[0]} appears twice; keep one")
    if "Y" not in seen or "d" not in seen or ("m" in seen) == ("b" in seen):
        raise ValueError("not a complete date; a pattern needs %Y, %d, and one of %m and %b")
    return "".join(parts)


def _of_epoch(unit: int, column: pa.Array) -> pa.Array:
    ticks = pc.multiply_checked(column.cast(pa.int64()), pa.scalar(unit, pa.int64()))
    return within_time(ticks.cast(TIMESTAMP))


def _of_iso(zone: str, ambiguous: str, column: pa.Array) -> pa.Array:
    # For text of these shapes, Arrow's own parser gives the same results and is faster.
    if pc.all(pc.match_substring_regex(column, _ISO_WITH_OFFSET), min_count=0).as_py():
        return within_time(column.cast(TIMESTAMP))
    if pc.all(pc.match_substring_regex(column, _ISO_WITHOUT_OFFSET), min_count=0).as_py():
        return within_time(_in_zone(column.cast(_LOCAL), zone, ambiguous))
    return _of_text(_ISO, zone, ambiguous, column)


def _of_text(regex: str, zone: str, ambiguous: str, column: pa.Array) -> pa.Array:
    parts = pc.extract_regex(column, f"^(?:{regex})\\z")
    refuse(pc.and_(pc.is_null(parts), pc.is_valid(column)))
    names = {field.name for field in parts.type}
    part = {name: pc.struct_field(parts, name) for name in names}

    def digits(name: str, width: int) -> pa.Array | str:
        # A missing optional part is an empty text.
        return pc.utf8_lpad(part[name], width, "0") if name in names else "0" * width

    month: pa.Array | str
    if "month_name" in names:
        index = pc.index_in(pc.utf8_lower(part["month_name"]), value_set=pa.array(_MONTHS))
        refuse(pc.and_(pc.is_null(index), pc.is_valid(column)))
        month = pc.utf8_lpad(pc.add(index, 1).cast(pa.string()), 2, "0")
    else:
        month = digits("month", 2)
    fraction = pc.utf8_rpad(part["fraction"], 6, "0") if "fraction" in names else "000000"
    dates = pc.binary_join_element_wise(digits("year", 4), month, digits("day", 2), "-")
    times = pc.binary_join_element_wise(digits("hour", 2), digits("minute", 2), digits("second", 2), ":")
    # Arrow judges the numbers: there is no February 30th and no second 60.
    local = pc.binary_join_element_wise(pc.binary_join_element_wise(dates, times, " "), fraction, ".").cast(_LOCAL)
    offset = part.get("offset")
    if offset is None:
        return within_time(_in_zone(local, zone, ambiguous))
    has_offset = pc.greater(pc.binary_length(offset), 0)
    if not pc.any(has_offset).as_py():
        return within_time(_in_zone(local, zone, ambiguous))
    shifted = pc.subtract(local.cast(pa.int64()), _microseconds(offset)).cast(TIMESTAMP)
    if pc.all(has_offset).as_py():
        return within_time(shifted)
    # Only times without an offset may be judged by the zone's clocks.
    zoned = _in_zone(pc.if_else(has_offset, pa.scalar(None, _LOCAL), local), zone, ambiguous)
    return within_time(pc.if_else(has_offset, shifted, zoned))


def _in_zone(local: pa.Array, zone: str, ambiguous: str) -> pa.Array:
    chosen = {"reject": "raise", "earlier": "earliest", "later": "latest"}[ambiguous]
    # Raises for times that the zone's clocks skipped.
    return pc.assume_timezone(local, zone, ambiguous=chosen, nonexistent="raise").cast(TIMESTAMP)


def _microseconds(offset: pa.Array) -> pa.Array:
    """Parse offsets like Z, +02, +0200 and -02:00; 0 for empty text."""
    encoded = offset.dictionary_encode()
    ticks = []
    for text in encoded.dictionary.to_pylist():
        numbers = text.strip("Z").replace(":", "")
        hours, minutes = int(numbers[1:3] or 0), int(numbers[3:5] or 0)
        if hours > 23 or minutes > 59:
            raise pa.ArrowInvalid("an offset is beyond 23:59")
        ticks.append((hours * 60 + minutes) * (-60_000_000 if numbers.startswith("-") else 60_000_000))
    return pa.array(ticks, pa.int64()).take(encoded.indices)


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


LATE = "late"
FUTURE = "future"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


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

    def judged(self, incoming: pa.Schema) -> frozenset[str]:
        return frozenset([self.field])

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
            reference = pa.scalar((self._begin() - _EPOCH) // _MICROSECOND, pa.int64())
        behind = pc.subtract(reference, times)
        return self._beyond(behind, self.late_after), self._beyond(pc.negate(behind), self.future_after)

    def _beyond(self, distance: pa.Array, limit: timedelta | None) -> pa.Array:
        if limit is None:
            return pa.repeat(False, len(distance))
        return pc.fill_null(pc.greater(distance, limit // _MICROSECOND), False)

    def _begin(self) -> datetime:
        if self.begin is None:
            raise ValueError("limits relative to the transaction's begin need it: use Chain.at")
        return self.begin

    def _reference_text(self, batch: pa.RecordBatch, index: int) -> str:
        if self.by_kafka:
            return f"the record's Kafka timestamp {shown(batch[kafka_columns.TIMESTAMP][index])}"
        return f"the transaction's begin {self._begin().isoformat()}"
