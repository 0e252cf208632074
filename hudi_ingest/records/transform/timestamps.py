"""`timestamp`: convert numbers and text to timestamps, by a format and a zone declared in the pipeline file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.schema.columns import TIMESTAMP, ddl_type
from hudi_ingest.records.transform import Origins, Problem, Transformed
from hudi_ingest.records.transform.casts import Conversion, Convert, convert_columns, refuse, within_time
from hudi_ingest.records.transform.fields import missing_fields, require, unchanged

EPOCHS: Mapping[str, int] = {"epoch_seconds": 1_000_000, "epoch_millis": 1_000, "epoch_micros": 1}
"""Microseconds in one of the unit."""
ISO8601 = "iso8601"

_LOCAL = pa.timestamp("us")
_MONTHS = pa.array(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
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
        index = pc.index_in(pc.utf8_lower(part["month_name"]), value_set=_MONTHS)
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
