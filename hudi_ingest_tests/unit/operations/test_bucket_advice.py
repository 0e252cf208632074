from __future__ import annotations

import pytest

from hudi_ingest.operations.bucket_advice import bucket_advice

pytestmark = pytest.mark.fast

GIB = 1 << 30


def test_the_buckets_of_a_table_are_judged_by_its_largest_partition() -> None:
    assert bucket_advice(4, {}) == "4 buckets per table partition; its data has not been measured yet"
    assert bucket_advice(4, {"dt=a": GIB // 2, "dt=b": 3 * GIB}) == (
        "4 buckets per table partition; its largest table partition, dt=b, has 3.000 GiB, for which 3 buckets of up to 1 GiB "
        "would be chosen"
    )
    assert bucket_advice(1, {"": 1}) == (
        "1 bucket per table partition; it has 0.000 GiB, for which 1 bucket of up to 1 GiB would be chosen"
    )


def test_far_too_few_buckets_are_worth_a_new_table() -> None:
    assert bucket_advice(4, {"": 16 * GIB}).endswith("ingest into a new table with more buckets")
    assert "new table" not in bucket_advice(4, {"": 15 * GIB})
