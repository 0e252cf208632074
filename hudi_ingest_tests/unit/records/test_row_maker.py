"""P1, K4: each record of a batch is a row, rejected, skipped or filtered, whatever is in it and however it is cut."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.kafka.records import RECORDS
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.convert.converter import Converter, Decoded
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.row_maker import DECODING, PARTITIONING, BatchOutcome, Refusal, RowMaker, Tombstones
from hudi_ingest.records.schema.columns import table_schema
from hudi_ingest.records.times import FIRST_MILLISECOND, KAFKA_TIME, LAST_MILLISECOND
from hudi_ingest.records.transform import Transform
from hudi_ingest.records.transform.casts import Cast
from hudi_ingest.records.transform.chain import Chain, Step
from hudi_ingest.records.transform.columns import Constant, Filter, InsertKafka, KeepLast, Mask
from hudi_ingest.records.transform.timestamps import parse_time_partition
from hudi_ingest_tests.support.partition_split import split_by_partition

pytestmark = pytest.mark.fast

SOURCE = TopicPartition("orders", 3)
RECORD = pa.schema([("id", pa.string()), ("n", pa.int64())])
STEPS: tuple[Transform, ...] = (
    Filter("n", "!=", (0,)),
    Cast({"n": pa.int32()}),
    Constant.of("region", "eu", pa.string()),
    InsertKafka({"key": "message_key"}),
)


def maker(*steps: Transform, converter: Converter | None = None, **changes: Any) -> RowMaker:
    chain = Chain.of(RECORD, [Step(f"transforms[{number}]", each) for number, each in enumerate(steps)])
    columns = table_schema(chain.output, ("topic", "timestamp")).columns
    return RowMaker(converter or converter_for("json", RECORD), chain, columns, **changes)


def batch(values: list[bytes | None], first: int = 10) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["orders"] * count,
            "partition": [3] * count,
            "offset": [*range(first, first + count)],
            "timestamp": [datetime(2026, 1, 1, tzinfo=timezone.utc)] * count,
            "value": values,
            "key": [f"k{number}".encode() for number in range(count)],
            "headers": [None] * count,
        },
        schema=RECORDS,
    )


def value(number: int | None) -> bytes:
    return json.dumps({"id": f"o{number}", "n": number}).encode()


GOOD, ZERO, WIDE, BROKEN = value(7), value(0), value(2**40), b"{}}"
values = st.lists(st.sampled_from([GOOD, ZERO, WIDE, BROKEN, None, value(None)]), max_size=8)


def fates(made: BatchOutcome, count: int) -> list[str]:
    """By place: row, bad, or gone (skipped or filtered)."""
    kept = range(count) if made.kept is None else made.kept.to_pylist()
    bad = {each.index for each in made.bad}
    assert not bad & set(kept)
    return ["row" if place in kept else "bad" if place in bad else "gone" for place in range(count)]


@given(values, st.sampled_from(["skip", "fail", "row"]))
def test_p1_each_record_has_one_fate_and_it_depends_on_nothing_but_the_record(
    records: list[bytes | None], on_tombstone: Tombstones
) -> None:
    made_by = maker(*STEPS, on_tombstone=on_tombstone)
    made = made_by.make(SOURCE, batch(records))
    # As SQL has it, no comparison with null is true: the filter leaves out nulls, and so tombstones that are rows.
    expected = {GOOD: "row", ZERO: "gone", WIDE: "bad", BROKEN: "bad", value(None): "gone"}
    fate_of_none = "bad" if on_tombstone == "fail" else "gone"
    assert fates(made, len(records)) == [fate_of_none if each is None else expected[each] for each in records]
    assert made.rows.num_rows + made.skipped + made.filtered + len(made.bad) == len(records)
    assert made.skipped == (records.count(None) if on_tombstone == "skip" else 0)
    assert made.rows.schema == made_by.columns
    assert made.rows["_kafka_offset"].to_pylist() == [10 + n for n, each in enumerate(records) if each == GOOD]
    assert made.rows["message_key"].to_pylist() == [f"k{n}".encode() for n, each in enumerate(records) if each == GOOD]
    single = [made_by.make(SOURCE, batch([each], 10 + number)) for number, each in enumerate(records)]
    assert [row for each in single for row in each.rows.to_pylist()] == [
        {**row, "message_key": b"k0"} for row in made.rows.to_pylist()
    ]


def test_a_tombstone_as_a_row_has_its_key_and_constants_and_nothing_else() -> None:
    steps = (Constant.of("region", "eu", pa.string()), InsertKafka({"key": "message_key"}))
    made = maker(*steps, on_tombstone="row").make(SOURCE, batch([GOOD, None, BROKEN, None]))
    assert made.rows.select(["id", "n", "region", "message_key", "_kafka_offset"]).to_pylist() == [
        {"id": "o7", "n": 7, "region": "eu", "message_key": b"k0", "_kafka_offset": 10},
        {"id": None, "n": None, "region": "eu", "message_key": b"k1", "_kafka_offset": 11},
        {"id": None, "n": None, "region": "eu", "message_key": b"k3", "_kafka_offset": 13},
    ]
    assert [each.index for each in made.bad] == [2]
    nothing_else = maker(on_tombstone="row").make(SOURCE, batch([None, None]))
    assert nothing_else.rows["n"].to_pylist() == [None, None]


def test_a_tombstone_as_a_row_has_what_its_key_says() -> None:
    keys = pa.schema([pa.field("order_id", pa.string(), False)])
    whole = pa.schema([*RECORD, *keys])
    made_by = RowMaker(
        converter_for("json", RECORD),
        Chain.of(whole, ()),
        table_schema(whole, ()).columns,
        on_tombstone="row",
        key_converter=converter_for("string", keys),
        key_columns=keys,
    )
    made = made_by.make(SOURCE, batch([GOOD, None]))
    assert made.rows.select(["id", "n", "order_id"]).to_pylist() == [
        {"id": "o7", "n": 7, "order_id": "k0"},
        {"id": None, "n": None, "order_id": "k1"},
    ]


def test_d3_a_bad_record_is_named_with_its_field_and_a_masked_value_is_not_shown() -> None:
    masked = maker(Cast({"n": pa.int32()}), Mask(("id",), KeepLast(1)))
    records: list[bytes | None] = [value(2**40), json.dumps({"id": ["secret"], "n": 1}).encode()]
    made = masked.make(SOURCE, batch(records))
    assert [each.stage for each in made.bad] == ["transforming", "decoding"]
    assert made.bad[0] == Refusal(
        0, "transforming", "n", "a value that int holds exactly, by transforms[0]", "1099511627776"
    )
    assert (made.bad[1].index, made.bad[1].field) == (1, "id")
    assert "secret" not in str(made.bad[1])


@pytest.mark.parametrize(
    ("text", "hive_style", "expected"),
    [
        ("fine", False, None),
        ("", False, None),
        (None, False, None),
        (".hoodie", True, None),
        (".hoodie", False, "does not begin with . or _"),
        ("_x", False, "does not begin with . or _"),
        ("z" * 253, True, "at most 255 bytes"),
        ("z" * 255, False, None),
        ("z" * 256, False, "at most 255 bytes"),
    ],
)
def test_h4_a_value_that_no_folder_can_be_called_is_a_bad_record(
    text: str | None, hive_style: bool, expected: str | None
) -> None:
    records: list[bytes | None] = [GOOD, json.dumps({"id": text, "n": 1}).encode(), GOOD]
    made = maker(partition_by=("id",), hive_style=hive_style).make(SOURCE, batch(records))
    if expected is None:
        assert made.rows.num_rows == 3
        assert len(split_by_partition(made.rows, ("id",), hive_style)) == 2
        return
    (refusal,) = made.bad
    assert (refusal.index, refusal.field) == (1, "id")
    assert expected in refusal.expected
    assert made.rows["_kafka_offset"].to_pylist() == [10, 12]


class Forgetful:
    """A converter that loses a record without a word."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return replace(found := converter_for("json", RECORD).decode(values), rows=found.rows.slice(1))


def test_p1_a_converter_that_loses_a_record_is_refused() -> None:
    with pytest.raises(WriteIncomplete, match=r"orders:3: of 2 records 1 were decoded"):
        maker(converter=Forgetful()).make(SOURCE, batch([GOOD, GOOD]))


NANOSECONDS = 1_700_000_000_123_456_789
NOON = 1_767_268_800_000


def timed(*milliseconds: int) -> pa.RecordBatch:
    found = batch([GOOD] * len(milliseconds))
    return found.set_column(3, "timestamp", pa.array(milliseconds, pa.int64()).cast(KAFKA_TIME))


def test_any_kafka_timestamp_is_a_row_or_a_bad_record() -> None:
    made = maker().make(
        SOURCE, timed(NOON, NANOSECONDS, -1, NOON * 1000, 2**63 - 1, -(2**63), LAST_MILLISECOND, FIRST_MILLISECOND)
    )
    assert [(each.index, each.stage, each.field) for each in made.bad] == [
        (index, DECODING, "_kafka_timestamp") for index in (1, 3, 4, 5)
    ]
    assert "1700000000123456789, which is 2023-11-14 22:13:20 UTC in nanoseconds" in made.bad[0].found
    assert "in microseconds" in made.bad[1].found
    assert made.bad[2].found == str(2**63 - 1)
    assert made.rows["_kafka_offset"].to_pylist() == [10, 12, 16, 17]
    times = made.rows["_kafka_timestamp"].cast(pa.int64()).to_pylist()
    assert times == [NOON * 1000, None, LAST_MILLISECOND * 1000, FIRST_MILLISECOND * 1000]


def test_a_time_that_nobody_asks_for_stops_nothing() -> None:
    chain = Chain.of(RECORD, ())
    without = RowMaker(converter_for("json", RECORD), chain, table_schema(chain.output, ("topic",)).columns)
    assert without.make(SOURCE, timed(NOON, NANOSECONDS, -1)).rows.num_rows == 3


def test_no_time_is_a_bad_record_in_a_table_whose_times_are_never_null() -> None:
    made_by = maker(parse_time_partition("day(_kafka_timestamp)", "UTC"))
    assert made_by.make(SOURCE, timed(NOON, -1)).rows["kafka_timestamp_day"].to_pylist() == ["2026-01-01", None]
    required = [each.with_nullable(False) if "kafka_timestamp" in each.name else each for each in made_by.columns]
    made = replace(made_by, columns=pa.schema(required)).make(SOURCE, timed(NOON, -1, NOON))
    assert made.rows["_kafka_offset"].to_pylist() == [10, 12]
    ((index, stage, field),) = [(each.index, each.stage, each.field) for each in made.bad]
    assert (index, stage) == (1, PARTITIONING)
    assert "kafka_timestamp" in field
