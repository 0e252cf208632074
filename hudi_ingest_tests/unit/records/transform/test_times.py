"""K4 and K5: times out of numbers and texts, partitions by time, and limits of a record's own time."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.kafka_columns import KAFKA_FIELDS
from hudi_ingest.records.schema.columns import TIMESTAMP
from hudi_ingest.records.transform import TransformProblems
from hudi_ingest.records.transform.timestamps import (
    UNITS,
    EventTimeLimits,
    TimePartition,
    ToTimestamp,
    parse_time_partition,
    pattern_regex,
    zone_problem,
)

pytestmark = pytest.mark.fast

UTC = timezone.utc
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia"]
# Within these years Arrow and Python read the same rules of a zone.
local_times = st.datetimes(datetime(1902, 1, 1), datetime(2037, 12, 1)) | st.datetimes(
    datetime(2026, 3, 29), datetime(2026, 3, 30)
)
zone_names = st.sampled_from(ZONES)


def texts(values: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"t": pa.array(values, pa.string())})


def read(step: ToTimestamp, values: list[Any], kind: pa.DataType) -> list[datetime | None]:
    """What each value becomes; None when it is rejected or null."""
    done = step.apply(pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["t"]))
    assert done.rows.schema == pa.schema([pa.field("t", TIMESTAMP)])
    refused = {fault.index for fault in done.rejected}
    rows = iter(done.rows["t"].to_pylist())
    return [None if i in refused else next(rows) for i in range(len(values))]


def instants(local: datetime, zone: str) -> list[datetime]:
    """The points in time at which clocks of the zone show `local`: none, one or two, ascending."""
    found = []
    for fold in (0, 1):
        moment = local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)
        if moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local and moment not in found:
            found.append(moment)
    return sorted(found)


@given(st.lists(local_times, max_size=8), zone_names, st.sampled_from(["reject", "earlier", "later"]))
def test_k4_local_times_are_those_of_zoneinfo(values: list[datetime], zone: str, ambiguous: str) -> None:
    expected = []
    for value in values:
        found = instants(value, zone)
        if len(found) == 2 and ambiguous != "reject":
            found = [found[0 if ambiguous == "earlier" else 1]]
        expected.append(found[0] if len(found) == 1 else None)
    for pattern, form in (("iso8601", None), ("%d.%m.%Y %H-%M-%S,%f", "%d.%m.%Y %H-%M-%S,%f")):
        shown = [value.strftime(form) if form else value.isoformat() for value in values]
        step = ToTimestamp(("t",), pattern, zone, ambiguous)
        assert read(step, shown, pa.string()) == expected


@given(st.lists(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))])), max_size=8))
def test_k4_offsets_in_the_text_count(values: list[datetime]) -> None:
    shown = [value.isoformat() for value in values]
    expected: list[datetime | None] = []
    for value in values:
        try:
            expected.append(value.astimezone(UTC))
        except OverflowError:
            expected.append(None)
    assert read(ToTimestamp(("t",), "iso8601", "Asia/Kolkata"), shown, pa.string()) == expected
    pattern = [value.strftime(f"{value.year:04d}-%m-%dT%H:%M:%S.%f%z") for value in values]
    assert read(ToTimestamp(("t",), "%Y-%m-%dT%H:%M:%S.%f%z"), pattern, pa.string()) == expected


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**11), 10**12), max_size=8))
def test_k4_epochs(values: list[int | None]) -> None:
    for format, unit in (("epoch_seconds", 10**6), ("epoch_millis", 10**3), ("epoch_micros", 1)):
        expected = []
        for value in values:
            try:
                moment = (
                    None if value is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value * unit)
                )
            except OverflowError:
                moment = None
            expected.append(moment)
        assert read(ToTimestamp(("t",), format), values, pa.int64()) == expected


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        ("iso8601", "2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("iso8601", "2026-01-31 10", "2026-01-31T10:00:00+00:00"),
        ("iso8601", "2026-01-31T10:20Z", "2026-01-31T10:20:00+00:00"),
        ("iso8601", "2026-01-31T10:20:30.5+0130", "2026-01-31T08:50:30.500000+00:00"),
        ("iso8601", "0001-01-01T00:00:00+01:00", None),
        ("iso8601", "2026-01-31T10:20:30.1234567", None),
        ("iso8601", "2026-01-31T10:20:30.123456000Z", "2026-01-31T10:20:30.123456+00:00"),
        ("iso8601", "2026-02-30", None),
        ("iso8601", "2026-01-31T24:00:00", None),
        ("iso8601", "2026-01-31T23:59:60", None),
        ("iso8601", "2026-01-31T10:00+24:00", None),
        ("iso8601", "2026-01-31\n", None),
        ("iso8601", "2026-1-31", None),
        ("iso8601", "", None),
        ("%d/%b/%Y:%H:%M:%S %z", "10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36+00:00"),
        ("%d/%b/%Y:%H:%M:%S %z", "10/Okt/2000:13:55:36 -0700", None),
        ("%d/%m/%Y", "1/2/2026", "2026-02-01T00:00:00+00:00"),
        ("%Y%m%d (%H:%M)", "20260131 (10:20)", "2026-01-31T10:20:00+00:00"),
        ("%Y-%m-%d %%", "2026-01-31 %", "2026-01-31T00:00:00+00:00"),
        ("%Y.%m.%d", "2026-01-31", None),
    ],
)
def test_k4_formats(format: str, text: str, expected: str | None) -> None:
    (found,) = read(ToTimestamp(("t",), format), [text], pa.string())
    assert (None if found is None else found.isoformat()) == expected
    if format == "iso8601":
        beside = [text, "2026-01-31", "2026-01-31T00:00Z"]  # so that neither short cut is taken
        assert read(ToTimestamp(("t",), format), beside, pa.string())[0] == found


def test_k4_times_with_and_without_an_offset_stand_side_by_side() -> None:
    values = ["2026-07-01T00:00:00", None, "2026-07-01T00:00:00Z"]
    found = read(ToTimestamp(("t",), "iso8601", "Europe/Berlin"), values, pa.string())
    assert [None if each is None else each.isoformat() for each in found] == [
        "2026-06-30T22:00:00+00:00",
        None,
        "2026-07-01T00:00:00+00:00",
    ]


def test_k4_a_rejected_time_says_what_was_expected() -> None:
    step = ToTimestamp(("t",), "iso8601", "Europe/Berlin")
    (rejected,) = step.apply(texts(["2026-03-29T02:30:00"])).rejected
    assert rejected.expected == "a time as ISO 8601, to the microsecond, one that clocks in Europe/Berlin showed once"
    assert rejected.found == '"2026-03-29T02:30:00"'


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%Y-%m-%q", "%q is not known; allowed: %Y"),
        ("%Y-%m-%d %", "% is not known"),
        ("%Y-%m-%d %d", "%d appears twice"),
        ("%Y-%m", "not a complete date"),
        ("%Y-%m-%b-%d", "not a complete date"),
    ],
)
def test_patterns_that_are_refused(pattern: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        pattern_regex(pattern)


def test_zones() -> None:
    assert zone_problem("Europe/Berlin") == zone_problem("UTC") == zone_problem("+02:00") == ""
    assert zone_problem("Europe/Berlim").startswith("unknown time zone; allowed: a name like UTC")


# ---- Partitions by time


@given(
    st.lists(st.none() | st.datetimes(timezones=st.just(UTC)), max_size=8)
    | st.lists(local_times.map(lambda t: t.replace(tzinfo=UTC))),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]),
)
def test_k5_partitions_are_what_clocks_show(values: list[datetime | None], zone: str) -> None:
    if zone != "UTC":
        values = [value for value in values if value is None or 1902 < value.year < 2037]
    batch = pa.RecordBatch.from_arrays([pa.array(values, TIMESTAMP)], names=["ts"])
    for unit, width in zip(UNITS, (4, 7, 10, 13), strict=True):
        step = TimePartition("p", unit, "ts", zone)
        rows = step.apply(batch).rows
        assert rows.schema == step.output_schema(batch.schema)
        shown = [None if value is None else value.astimezone(ZoneInfo(zone)).isoformat()[:width] for value in values]
        assert rows["p"].to_pylist() == [None if each is None else each.replace("T", "-") for each in shown]


def test_k5_dates_have_no_zone() -> None:
    batch = pa.RecordBatch.from_pydict({"d": [date(2026, 1, 31), None]})
    assert TimePartition("p", "month", "d", "Asia/Kolkata").apply(batch).rows["p"].to_pylist() == ["2026-01", None]
    with pytest.raises(TransformProblems, match=r"d has type date; hour\(\) takes a timestamp"):
        TimePartition("p", "hour", "d").output_schema(batch.schema)


def test_k5_names() -> None:
    assert parse_time_partition("day(ts)", "UTC") == TimePartition("ts_day", "day", "ts", "UTC")
    assert parse_time_partition(" dt = hour( ts )", "UTC") == TimePartition("dt", "hour", "ts", "UTC")
    assert parse_time_partition("month(_kafka_timestamp)", "UTC").column == "kafka_timestamp_month"
    for wrong in ("dya(ts)", "day(ts", "day()", "day(a.b)", "1=2", "x=y"):
        with pytest.raises(ValueError, match=r"allowed: year\(column\)"):
            parse_time_partition(wrong, "UTC")


# ---- Limits


moments = st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 3), timezones=st.just(UTC))
spans = st.none() | st.timedeltas(timedelta(0), timedelta(days=2))
BEGIN = datetime(2026, 1, 2, tzinfo=UTC)


@given(st.lists(st.tuples(st.none() | moments, moments), max_size=8), spans, spans, st.booleans())
def test_k5_limits(rows: list[tuple[datetime | None, datetime]], late: Any, future: Any, by_kafka: bool) -> None:
    schema = pa.schema([pa.field("ts", TIMESTAMP), pa.field("ts_day", pa.string()), KAFKA_FIELDS["timestamp"]])
    data = [{"ts": ts, "ts_day": "d", "_kafka_timestamp": kafka} for ts, kafka in rows]
    batch = pa.RecordBatch.from_pylist(data, schema=schema)
    expected = []
    for ts, kafka in rows:
        reference = kafka if by_kafka else BEGIN
        is_late = ts is not None and late is not None and reference - ts > late
        is_future = ts is not None and future is not None and ts - reference > future
        expected.append("late" if is_late else "future" if is_future else "d")
    limits = pickle.loads(pickle.dumps(EventTimeLimits("ts", late, future, by_kafka).at(BEGIN)))
    done = limits.apply(batch)
    assert [fault.index for fault in done.rejected] == [i for i, each in enumerate(expected) if each != "d"]
    assert done.rows.num_rows + len(done.rejected) == len(rows)
    routed = EventTimeLimits("ts", late, future, by_kafka, route=("ts_day",)).at(BEGIN).apply(batch)
    assert routed.rows["ts_day"].to_pylist() == expected
    assert (routed.kept, routed.rejected, routed.rows.schema) == (None, (), schema)


def test_k5_a_late_record_says_how_late_it_may_be() -> None:
    batch = pa.RecordBatch.from_pydict({"ts": pa.array([datetime(2025, 1, 1, tzinfo=UTC)], TIMESTAMP)})
    limits = EventTimeLimits("ts", timedelta(days=7), None, False)
    (rejected,) = limits.at(BEGIN).apply(batch).rejected
    assert (
        rejected.expected == "a time at most 7 days, 0:00:00 before the transaction's begin 2026-01-02T00:00:00+00:00"
    )
    assert rejected.found == "2025-01-01 00:00:00.000000Z"
    with pytest.raises(ValueError, match=r"use Chain\.at"):
        limits.apply(batch)


def test_k5_any_kafka_timestamp_is_compared_without_overflow() -> None:
    schema = pa.schema([pa.field("ts", TIMESTAMP), KAFKA_FIELDS["timestamp"]])
    lowest, highest = -(2**63), 2**63 - 1
    given = pa.array([lowest, highest, None], pa.int64())
    columns = [pa.array([0, 0, 0], pa.int64()).cast(TIMESTAMP), given.cast(TIMESTAMP)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    day = timedelta(days=1)
    limits = EventTimeLimits("ts", day, day, True)
    late, future = limits._outside(batch)
    assert (late.to_pylist(), future.to_pylist()) == ([False, True, False], [True, False, False])
    assert [fault.index for fault in limits.apply(batch).rejected] == [0, 1]
