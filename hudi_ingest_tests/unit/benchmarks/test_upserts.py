"""The load `upserts-<n>`: which orders its changes change, and what must be in a table afterwards."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from benchmarks.results import APPENDS, SPARK_UPSERTS, UPSERTS
from benchmarks.upsert_load import last_times, parse_upserts
from benchmarks.upserts import upsert_ratios


def test_changes_are_of_orders_of_the_base_and_keep_partition_and_day() -> None:
    load = parse_upserts("upserts-2k")
    assert load is not None
    homes = defaultdict(set)
    latest: dict[str, int] = {}
    transactions = [load.base, load.changes(1), load.small(2)]
    assert [transaction.records for transaction in transactions] == [2_000, 400, 20]
    for transaction in transactions:
        for partition, values in transaction.blocks():
            for record in map(json.loads, values.to_pylist()):
                homes[record["id"]].add((partition, record["dt"]))
                latest[record["id"]] = record["ts"]
    assert len(homes) == 2_000
    assert all(len(home) == 1 for home in homes.values())
    assert last_times(transactions) == latest
    assert last_times([load.changes(1)]) != last_times([load.changes(2)])


@pytest.mark.parametrize("loads", ["", "orders-1m,tiny"])
def test_other_loads_are_not_upserts(loads: str) -> None:
    assert parse_upserts(loads) is None


@pytest.mark.parametrize("loads", ["upserts", "upserts-1g", "upserts-10", "upserts-1m,tiny"])
def test_upserts_are_measured_alone_and_have_a_size(loads: str) -> None:
    with pytest.raises(ValueError, match="upserts-"):
        parse_upserts(loads)


def test_ratios_above_one_mean_faster_than_spark_and_slower_than_appends() -> None:
    def figures(seconds: float, read_logs: float = 3) -> dict[str, Any]:
        return {
            "changes_seconds": seconds,
            "small_seconds": seconds,
            "read_logs_seconds": read_logs,
            "read_compacted_seconds": 2,
            "read_compacted_cpu_seconds": 1,
            "read_due_seconds": 3,
            "read_due_seconds_of_each": [2, 4],
            "read_due_cpu_seconds": 1.5,
        }

    assert upsert_ratios({UPSERTS: figures(2), APPENDS: figures(1), SPARK_UPSERTS: figures(6, read_logs=6)}) == {
        "spark_to_upserts_changes": 3.0,
        "spark_to_upserts_small": 3.0,
        "upserts_to_appends_changes": 2.0,
        "upserts_to_appends_small": 2.0,
        "read_logs_to_compacted": 1.5,
        "spark_read_logs_to_compacted": 3.0,
        "upserts_to_spark_read_logs": 0.5,
        "read_due_to_compacted": 1.5,
        "read_due_worst_to_compacted": 2.0,
        "read_due_to_compacted_cpu": 1.5,
    }
