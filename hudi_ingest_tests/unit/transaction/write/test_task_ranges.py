"""Which ranges each Spark task reads."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.model.offsets import Slice
from hudi_ingest.transaction.write.job import (
    SMALLEST_TASK_BYTES,
    SMALLEST_TASK_ROWS,
    ranges_of_tasks,
    rows_of_a_slice,
    rows_per_task,
)

pytestmark = pytest.mark.fast


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=40), st.integers(1, 64), st.integers(0, 30_000))
def test_h3_tasks_keep_all_cores_busy_and_are_no_smaller_than_need_be(
    counts: list[int], parallelism: int, record_bytes: int
) -> None:
    slices = [Slice("t", number, 7, 7 + count) for number, count in enumerate(counts)]
    slice_rows = rows_of_a_slice(record_bytes)
    rows = sum(counts) + slice_rows * len(counts)
    most = rows_per_task(rows, parallelism, record_bytes)
    smallest = max(1, min(SMALLEST_TASK_ROWS, SMALLEST_TASK_BYTES // max(1, record_bytes)))
    assert smallest <= most <= 2_000_000
    tasks = ranges_of_tasks(slices, most, slice_rows)
    assert len(tasks) >= min(parallelism, sum(counts) // smallest) - len(counts)
    assert len(tasks) <= max(parallelism, rows // 2_000_000 + 1) + 2 + len(counts) // 2
    for ranges in tasks:
        assert 0 < sum(range_.count for range_ in ranges) <= 2 * most
        assert len({range_.partition for range_ in ranges}) == len(ranges), "one range per partition"
    joined = [
        (partition, *(bound for range_ in parts for bound in (range_.start, range_.end)))
        for partition, parts in groupby(
            sorted(range_ for ranges in tasks for range_ in ranges), key=lambda range_: range_.partition
        )
    ]
    for partition, start, *inner, end in joined:
        assert (start, end) == (7, 7 + counts[partition])
        assert inner[::2] == inner[1::2], "each offset is in one range"
    assert [partition for partition, *_ in joined] == [number for number, count in enumerate(counts) if count]


def test_h3_large_records_keep_all_cores_busy_and_a_slice_a_little_too_long_is_one_task() -> None:
    assert rows_per_task(100_000, 2, 20_000) == 50_000
    assert rows_per_task(100_000, 2, 190) == SMALLEST_TASK_ROWS
    quarter = Slice("t", 0, 0, 2_500_000)
    most = rows_per_task(10_000_000, 2, 190)
    assert ranges_of_tasks([quarter], most, 1000) == ((quarter,),)


def test_short_slices_share_tasks_evenly() -> None:
    slices = [Slice("t", number, 0, 1000 * count) for number, count in enumerate((90, 10, 50, 40, 60, 50))]
    tasks = ranges_of_tasks(slices, 102_000, 1000)
    assert [sum(range_.count for range_ in ranges) for ranges in tasks] == [100_000, 100_000, 100_000]
    assert [[range_.partition for range_ in ranges] for ranges in tasks] == [[0, 1], [3, 4], [2, 5]]


def test_many_slices_with_few_records_are_worth_several_tasks() -> None:
    few = [Slice("t", number, 0, 1) for number in range(1000)]
    slice_rows = rows_of_a_slice(190)
    most = rows_per_task(1000 + 1000 * slice_rows, 2, 190)
    assert [len(ranges) for ranges in ranges_of_tasks(few, most, slice_rows)] == [500, 500]
    assert len(ranges_of_tasks(few[:4], SMALLEST_TASK_ROWS, slice_rows)) == 1
    assert rows_of_a_slice(5_000_000) == 0, "a few large records are worth more than a slice"
