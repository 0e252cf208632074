"""Batches of a size, whatever number and size of records they come in."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.kafka.backlog import bounded
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS

pytestmark = pytest.mark.fast

HEADERS = KAFKA_FIELDS["headers"].type
sizes = st.one_of(st.none(), st.integers(0, 30))
headers = st.one_of(st.none(), st.lists(st.tuples(st.integers(0, 10), sizes), max_size=3))


@given(st.lists(st.lists(st.tuples(sizes, sizes, headers), max_size=8), max_size=6))
def test_no_batch_is_too_large_and_every_record_stays_in_its_place(
    records: list[list[tuple[int | None, int | None, list[tuple[int, int | None]] | None]]],
) -> None:
    def content(size: int | None) -> bytes | None:
        return None if size is None else b"x" * size

    def entries(sizes: list[tuple[int, int | None]] | None) -> list[dict[str, object]] | None:
        return None if sizes is None else [{"key": "n" * name, "value": content(value)} for name, value in sizes]

    given, offset = [], 0
    for batch in records:
        offsets = pa.array(range(offset, offset + len(batch)), pa.int64())
        keys = pa.array([content(key) for key, _, _ in batch], pa.binary())
        values = pa.array([content(value) for _, value, _ in batch], pa.binary())
        headers = pa.array([entries(each) for _, _, each in batch], HEADERS)
        columns = ["offset", "key", "value", "headers"]
        given.append(pa.RecordBatch.from_arrays([offsets, keys, values, headers], columns))
        offset += len(batch)
    found = [*bounded(iter(given), most_bytes=40, most_rows=10)]
    assert [row for batch in found for row in batch.to_pylist()] == [
        row for batch in given for row in batch.to_pylist()
    ]
    for batch in found:
        size = sum(len(row[name] or b"") for row in batch.to_pylist() for name in ("key", "value"))
        size += sum(
            len(header["key"]) + len(header["value"] or b"")
            for row in batch.to_pylist()
            for header in row["headers"] or ()
        )
        assert batch.num_rows <= 10
        assert batch.num_rows == 1 or size <= 40


def test_small_batches_are_joined() -> None:
    one = pa.RecordBatch.from_pydict({"value": pa.array([b"12345"] * 4, pa.binary())})
    found = [*bounded(iter([one] * 10), most_bytes=1000, most_rows=16)]
    assert [each.num_rows for each in found] == [16, 16, 8]
