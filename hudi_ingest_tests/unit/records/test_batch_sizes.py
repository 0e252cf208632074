"""Batches of a size, whatever number and size of records they come in."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.records.batch_sizes import bounded

pytestmark = pytest.mark.fast

sizes = st.one_of(st.none(), st.integers(0, 30))


@given(st.lists(st.lists(st.tuples(sizes, sizes), max_size=8), max_size=6))
def test_no_batch_is_too_large_and_every_record_stays_in_its_place(
    records: list[list[tuple[int | None, int | None]]],
) -> None:
    def column(sizes: list[int | None]) -> pa.Array:
        return pa.array([None if size is None else b"x" * size for size in sizes], pa.binary())

    given, offset = [], 0
    for batch in records:
        offsets = pa.array(range(offset, offset + len(batch)), pa.int64())
        keys, values = column([key for key, _ in batch]), column([value for _, value in batch])
        given.append(pa.RecordBatch.from_arrays([offsets, keys, values], ["offset", "key", "value"]))
        offset += len(batch)
    found = [*bounded(iter(given), most_bytes=40, most_rows=10)]
    assert [row for batch in found for row in batch.to_pylist()] == [
        row for batch in given for row in batch.to_pylist()
    ]
    for batch in found:
        content = sum(len(row[name] or b"") for row in batch.to_pylist() for name in ("key", "value"))
        assert batch.num_rows <= 10
        assert batch.num_rows == 1 or content <= 40


def test_small_batches_are_joined() -> None:
    one = pa.RecordBatch.from_pydict({"value": pa.array([b"12345"] * 4, pa.binary())})
    found = [*bounded(iter([one] * 10), most_bytes=1000, most_rows=16)]
    assert [each.num_rows for each in found] == [16, 16, 8]
