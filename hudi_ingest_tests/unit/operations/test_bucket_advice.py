from __future__ import annotations

import os

import pyarrow as pa
import pytest

from hudi_ingest.model.offsets import Slice
from hudi_ingest.operations.next_plan import bucket_advice, estimate, first_advice
from hudi_ingest.records.changes import DELETED

pytestmark = pytest.mark.fast

GIB = 1 << 30


def test_the_buckets_of_a_table_are_judged_by_its_largest_partition() -> None:
    assert bucket_advice(4, {}) == "4 buckets per table partition; its data has not been measured yet"
    assert bucket_advice(4, {"dt=a": GIB // 2, "dt=b": 3 * GIB}) == (
        "4 buckets per table partition; its largest table partition, dt=b, has 3.000 GiB; recommended: 3 buckets of up to 1 GiB"
    )
    assert bucket_advice(1, {"": 1}) == (
        "1 bucket per table partition; it has 0.000 GiB; recommended: 1 bucket of up to 1 GiB"
    )


def test_far_too_few_buckets_are_worth_a_new_table() -> None:
    assert bucket_advice(4, {"": 16 * GIB}).endswith("ingest into a new table with more buckets")
    assert "new table" not in bucket_advice(4, {"": 15 * GIB})


def test_before_the_first_load_the_topic_tells_how_many_buckets_to_choose() -> None:
    assert first_advice(4, 1_000_000, 20 * GIB, False) == (
        "4 buckets; the topic's 1,000,000 records would take about 20.000 GiB; recommended: 20 buckets of up to 1 GiB; "
        "set `table.buckets` to what it grows to, it cannot be changed once the table exists"
    )
    assert "in all table partitions together: choose one for each GiB of the largest" in first_advice(1, 9, GIB, True)


def test_the_first_size_is_that_of_the_sampled_rows_for_all_offsets() -> None:
    sampled = pa.table({"id": [os.urandom(1000) for _ in range(100)], DELETED: [False] * 60 + [True] * 40})
    slices = [Slice("customers", 0, 100, 1_100), Slice("customers", 1, 0, 2_000)]
    size = estimate([sampled.slice(0, 50), sampled.slice(50)], 100, slices, "zstd")
    assert size is not None
    assert size.records == 3_000
    # 60 of 100 records are rows of 1,000 bytes that do not compress.
    assert 1_800_000 < size.size_bytes < 2_200_000
    assert estimate([sampled.slice(60)], 40, slices, "zstd") is None, "deletes alone say nothing"
    assert estimate([], 0, slices, "zstd") is None
