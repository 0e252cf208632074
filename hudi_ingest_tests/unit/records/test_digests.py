"""Digests: their definition, computed once more by another library, and that they add up over any split and differ for any fault."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.model.certificate import Certificate
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.digests import places_of, record_hashes, row_hashes, total

pytestmark = pytest.mark.fast

SOURCE = TopicPartition("orders", 3)
M = (1 << 64) - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64, from its specification."""

    def rotated(number: int, bits: int) -> int:
        return (number << bits | number >> 64 - bits) & M

    def round_(state: int, value: int) -> int:
        return rotated((state + value * P2) & M, 31) * P1 & M

    length, place = len(data), 0
    if length >= 32:
        states = [(seed + P1 + P2) & M, (seed + P2) & M, seed & M, (seed - P1) & M]
        while place <= length - 32:
            for lane in range(4):
                states[lane] = round_(states[lane], int.from_bytes(data[place : place + 8], "little"))
                place += 8
        found = sum(rotated(state, bits) for state, bits in zip(states, (1, 7, 12, 18), strict=True)) & M
        for state in states:
            found = ((found ^ round_(0, state)) * P1 + P4) & M
    else:
        found = (seed + P5) & M
    found = (found + length) & M
    while place <= length - 8:
        found = (rotated(found ^ round_(0, int.from_bytes(data[place : place + 8], "little")), 27) * P1 + P4) & M
        place += 8
    if place <= length - 4:
        found = (rotated(found ^ int.from_bytes(data[place : place + 4], "little") * P1 & M, 23) * P2 + P3) & M
        place += 4
    while place < length:
        found = rotated(found ^ data[place] * P5 & M, 11) * P1 & M
        place += 1
    found = (found ^ found >> 33) * P2 & M
    found = (found ^ found >> 29) * P3 & M
    return found ^ found >> 32


def h(*values: Any) -> int:
    """Spark's xxhash64: chained, from 42."""
    found = 42
    for value in values:
        found = spread(value, found)
    return found


def spread(value: Any, seed: int) -> int:
    """The hash of a value, by docs/guarantees.md."""
    if value is None:
        return seed
    if isinstance(value, Decimal):
        return xxh64(int(value.scaleb(2)).to_bytes(16, "little", signed=True), seed)
    if isinstance(value, datetime):
        value = (value - datetime(1970, 1, 1, tzinfo=timezone.utc)) // (datetime.resolution)
    if isinstance(value, float):
        value = 0.0 if value == 0 else value
        return xxh64(struct.pack("<d", float("nan") if value != value else value), seed)
    if isinstance(value, int):
        return xxh64((value & M).to_bytes(8, "little"), seed)
    if isinstance(value, dict):
        return spread(sum(spread(v, spread(k, seed)) for k, v in value.items() if v is not None) & M, seed)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        entries = [spread(0 if v is None else spread(v, seed), spread(k, seed)) for k, v in value]
        return spread(sum(entries) & M, seed)
    if isinstance(value, list):
        entries = [spread(place, 0 if v is None else spread(v, seed)) for place, v in enumerate(value)]
        return spread(sum(entries) & M, seed)
    return xxh64(value.encode() if isinstance(value, str) else value, seed)


def hash_of_row(row: dict[str, Any]) -> int:
    content = (
        sum(h(name, value) for name, value in row.items() if value is not None and not name.startswith("_kafka")) & M
    )
    return h(SOURCE.topic, SOURCE.partition, row["_kafka_offset"], content)


COLUMNS = pa.schema(
    [
        ("_kafka_topic", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("id", pa.string()),
        ("n", pa.int64()),
        ("few", pa.int32()),
        ("price", pa.float64()),
        ("flag", pa.bool_()),
        ("cost", pa.decimal128(20, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("more", pa.map_(pa.string(), pa.int64())),
        ("who", pa.struct([("name", pa.string()), ("age", pa.int32())])),
    ]
)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.text(max_size=40),
    "n": NUMBERS,
    "few": st.integers(-(2**31), 2**31 - 1),
    "price": st.floats(),
    "flag": st.booleans(),
    "cost": st.integers(-(10**20) + 1, 10**20 - 1).map(lambda number: Decimal(number).scaleb(-2)),
    "at": st.datetimes(timezones=st.just(timezone.utc)),
    "raw": st.binary(max_size=70),
    "tags": st.lists(st.none() | st.text(max_size=9), max_size=3),
    "more": st.dictionaries(st.text(max_size=9), st.none() | NUMBERS, max_size=3).map(lambda d: [*d.items()]),
    "who": st.fixed_dictionaries({"name": st.none() | st.text(max_size=9), "age": st.none() | st.integers(0, 99)}),
}
CONTENTS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def table(contents: Sequence[dict[str, Any]], first: int = 7) -> pa.Table:
    rows = [
        {"_kafka_topic": SOURCE.topic, "_kafka_partition": SOURCE.partition, "_kafka_offset": first + place, **row}
        for place, row in enumerate(contents)
    ]
    return pa.Table.from_pylist(rows, COLUMNS)


@given(st.lists(CONTENTS, max_size=4))
def test_hashes_of_rows_are_those_of_the_definition(contents: list[dict[str, Any]]) -> None:
    rows = table(contents)
    found = [int(each) & M for each in row_hashes(rows, SOURCE)]
    assert found == [hash_of_row({**row, "_kafka_offset": 7 + place}) for place, row in enumerate(rows.to_pylist())]
    # Slices, chunks and files that encode texts as dictionaries hold the same rows.
    chunks = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    place = chunks.schema.get_field_index("id")
    encoded = chunks.set_column(place, "id", chunks["id"].dictionary_encode())
    assert (row_hashes(encoded, places_of([SOURCE], np.zeros(len(rows), np.int64))) == row_hashes(rows, SOURCE)).all()
    assert (row_hashes(rows.slice(1), SOURCE) == row_hashes(rows, SOURCE)[1:]).all()


def test_columns_that_a_table_gets_and_numbers_that_widen_leave_hashes_as_they_are() -> None:
    rows = table([{"id": "a", "few": 5, "n": -2, "who": {"name": "x", "age": None}}])
    evolved = rows.append_column("new", pa.nulls(1, pa.string())).select([*reversed([*rows.column_names, "new"])])
    place = evolved.schema.get_field_index("few")
    evolved = evolved.set_column(place, "few", evolved["few"].cast(pa.int64()))
    assert (row_hashes(evolved, SOURCE) == row_hashes(rows, SOURCE)).all()
    moved = rows.rename_columns(["other" if name == "id" else name for name in rows.column_names])
    assert (row_hashes(moved, SOURCE) != row_hashes(rows, SOURCE)).all(), "a value in another column is another row"


RECORDS = st.lists(st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=99)), max_size=20)


def batch(records: Sequence[tuple[bytes | None, bytes | None]], offsets: Sequence[int]) -> pa.RecordBatch:
    keys, values = [key for key, _ in records], [value for _, value in records]
    columns = [pa.array(offsets, pa.int64()), pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["offset", "key", "value"])


@given(RECORDS)
def test_hashes_of_records_are_those_of_the_definition(records: list[tuple[bytes | None, bytes | None]]) -> None:
    found = record_hashes(SOURCE, batch(records, range(5, 5 + len(records))))
    assert [int(each) & M for each in found] == [
        h("orders", 3, 5 + place, h(key), h(value)) for place, (key, value) in enumerate(records)
    ]


@given(st.data())
def test_p1_p2_digests_add_up_over_any_split_in_any_order_and_differ_for_any_fault(data: st.DataObject) -> None:
    contents = data.draw(st.lists(CONTENTS, min_size=1, max_size=12))
    rows = table(contents)
    whole = total(row_hashes(rows, SOURCE))
    order = data.draw(st.permutations(range(len(contents))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(contents)), max_size=4)))
    shuffled, parts = rows.take(pa.array(order)), []
    for start, end in zip([0, *cuts], [*cuts, len(contents)], strict=True):
        parts.append(Certificate(0, total(row_hashes(shuffled.slice(start, end - start), SOURCE))))
    assert Certificate.total(parts) == Certificate(0, whole)
    assert Certificate(0, whole) - parts[0] == Certificate.total(parts[1:])
    place = data.draw(st.integers(0, len(contents) - 1))
    lost = pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])
    doubled = pa.concat_tables([rows, rows.slice(place, 1)])
    assert total(row_hashes(lost, SOURCE)) != whole
    assert total(row_hashes(doubled, SOURCE)) != whole
    elsewhere = total(row_hashes(rows.slice(place, 1), TopicPartition("orders", 4)))
    assert (total(row_hashes(lost, SOURCE)) + elsewhere) & M != whole
    changed = data.draw(CONTENTS)
    altered = table([*contents[:place], changed, *contents[place + 1 :]])
    same = hash_of_row({**altered.slice(place, 1).to_pylist()[0]}) == hash_of_row(
        {**rows.slice(place, 1).to_pylist()[0]}
    )
    assert same or total(row_hashes(altered, SOURCE)) != whole
    if len(contents) > 1 and contents[0] != contents[1]:
        swapped = table([contents[1], contents[0], *contents[2:]])
        ours, theirs = (Certificate(0, total(row_hashes(each, SOURCE))) for each in (rows, swapped))
        assert ours != theirs or _alike(contents[0], contents[1]), "rows that changed places"


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """NaN is itself, and -0.0 is 0.0, to a hash."""
    return hash_of_row({**one, "_kafka_offset": 0}) == hash_of_row({**other, "_kafka_offset": 0})


def test_certificates_of_older_versions_are_unknown() -> None:
    assert Certificate.total([Certificate(1, 2), None]) is None
    assert Certificate.total([]) == Certificate(0, 0)
    assert Certificate(5, 7) + Certificate(M, None) == Certificate(4, None)
    for certificate in (Certificate(M, 3), Certificate(5, None)):
        assert Certificate.from_dict(certificate.to_dict()) == certificate
    assert Certificate.from_dict(None) is None
