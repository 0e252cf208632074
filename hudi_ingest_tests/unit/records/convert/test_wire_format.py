"""The framing of Confluent's serializers: split in batches, and equal to reading it value by value."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hudi_ingest.records.convert.wire_format import Framed, split_message_indexes, split_schema_ids

pytestmark = pytest.mark.fast
RELAXED = settings(suppress_health_check=list(HealthCheck))


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">BI", 0, schema_id) + payload


def zigzag(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def message_indexes(path: tuple[int, ...]) -> bytes:
    return zigzag(len(path)) + b"".join(map(zigzag, path))


def pairs(split: Framed, count: int) -> list[tuple[int, bytes] | None]:
    """Per value its id and payload, None when it was rejected, after checking that every value is accounted."""
    places = list(range(count)) if split.indexes is None else split.indexes.tolist()
    out = [fault.index for fault in split.rejected]
    assert sorted(places + out) == list(range(count))
    assert len(split.schema_ids) == len(split.payloads) == len(places)
    found: list[tuple[int, bytes] | None] = [None] * count
    for place, schema_id, payload in zip(places, split.schema_ids.tolist(), split.payloads.to_pylist(), strict=True):
        found[place] = (schema_id, payload)
    return found


def expected(value: bytes) -> tuple[int, bytes] | None:
    return (struct.unpack(">I", value[1:5])[0], value[5:]) if len(value) >= 5 and value[0] == 0 else None


headers = st.builds(framed, st.integers(0, 2**32 - 1), st.binary(max_size=8))


@RELAXED
@given(st.lists(st.one_of(headers, st.binary(max_size=7), st.just(b"")), max_size=12), st.integers(0, 3))
def test_a_batch_is_split_as_its_values_are(values: list[bytes], skip: int) -> None:
    array = pa.array(values, pa.binary()).slice(skip)
    assert pairs(split_schema_ids(array), len(array)) == [expected(value) for value in values[skip:]]


def test_what_has_no_header_is_rejected_with_the_reason() -> None:
    values = [b"", b"{}", b"\0\0\0\1", framed(7, b""), framed(2**32 - 1, b"x"), b"\x01\0\0\0\1"]
    split = split_schema_ids(pa.array(values, pa.binary()))
    assert [(fault.index, fault.found) for fault in split.rejected] == [
        (0, "an empty value"),
        (1, "first byte 0x7b; the producer may write no schema id, or write it into headers"),
        (2, "4 bytes"),
        (5, "first byte 0x01, of a schema GUID; make the producer write schema ids"),
    ]
    assert split.schema_ids.tolist() == [7, 2**32 - 1]
    assert split.indexes is not None and split.indexes.tolist() == [3, 4]


def test_a_good_batch_names_no_indexes() -> None:
    split = split_schema_ids(pa.array([framed(7, b"a"), framed(8, b"bc")], pa.binary()))
    assert split.indexes is None and split.rejected == ()
    assert split.payloads.to_pylist() == [b"a", b"bc"]


def test_what_the_caller_gets_wrong_raises() -> None:
    with pytest.raises(ValueError, match="tombstones"):
        split_schema_ids(pa.array([None], pa.binary()))
    with pytest.raises(TypeError, match="binary"):
        split_schema_ids(pa.array(["a"]))


def by_place(values: pa.BinaryArray) -> list[Any]:
    """Per value its path and payload, or what was found, after checking that every value is accounted."""
    groups, rejected = split_message_indexes(values)
    assert len({group.path for group in groups}) == len(groups)
    found: list[Any] = [None] * len(values)
    for group in groups:
        indexes = np.arange(len(values)) if group.indexes is None else group.indexes
        assert indexes.tolist() == sorted(indexes.tolist())
        for index, payload in zip(indexes.tolist(), group.payloads.to_pylist(), strict=True):
            assert found[index] is None
            found[index] = (group.path, payload)
    for each in rejected:
        assert found[each.index] is None
        found[each.index] = each.found
    assert None not in found
    return found


paths = st.lists(st.integers(0, 300), min_size=1, max_size=3).map(tuple)
encoded = st.one_of(
    st.tuples(paths, st.binary(max_size=4)).map(lambda each: message_indexes(each[0]) + each[1]),
    st.binary(max_size=4).map(lambda each: b"\0" + each),
    st.binary(max_size=6),
)


@RELAXED
@given(st.lists(encoded, max_size=30))
def test_the_outcome_of_message_indexes_does_not_depend_on_neighbours(values: list[bytes]) -> None:
    array = pa.array(values, pa.binary())
    assert by_place(array) == [by_place(array.slice(index, 1))[0] for index in range(len(array))]


@RELAXED
@given(paths, st.binary(max_size=4))
def test_message_indexes_come_back(path: tuple[int, ...], payload: bytes) -> None:
    assert by_place(pa.array([message_indexes(path) + payload], pa.binary())) == [(path, payload)]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"\0payload", ((0,), b"payload")),
        (b"\x02\x00payload", ((0,), b"payload")),
        (b"\x80\x00payload", ((0,), b"payload")),
        (b"", "the end of the value"),
        (b"\x02", "the end of the value"),
        (b"\x01", "-1 of them"),
        (message_indexes((0,) * 65), "65 of them"),
        (b"\x02\x01", "the message index -1"),
        (b"\xff" * 11, "a number of more than 10 bytes"),
    ],
)
def test_message_indexes_one_by_one(value: bytes, found: Any) -> None:
    assert by_place(pa.array([value], pa.binary())) == [found]
