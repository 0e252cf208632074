"""Load `upserts-<n>`: n orders, then changes of random ones. Pure and deterministic.

Each order's changes are in one Kafka partition, as its key would put them there, and an order keeps its table partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.loads import PARTITION_STRIDE, Load, Shape, even, order_columns, order_json, orders_load, parse_number

KEY = "id"
BUCKETS = 2
"""Of each table partition, in every keyed table: n rows are a few dozen MB, so any number holds them."""
CHANGED_SHARE = 5
SMALL_SHARE = 100
SMALL_TRANSACTIONS = 20
_NAME = re.compile(r"upserts-(?P<number>[1-9][0-9]{0,8})(?P<unit>[km]?)")
_DAYS = 3
_KAFKA_PARTITIONS = 4
_VERSION_MS = 1_000


@dataclass(frozen=True, slots=True)
class UpsertLoad:
    """`base` has each order once. Each `changes(version)` has a fifth as many records, each `small(version)` a hundredth,
    of random orders; versions above 0 order the transactions."""

    base: Load

    @property
    def name(self) -> str:
        return self.base.name

    def changes(self, version: int) -> Load:
        return self._changed(version, self.base.records // CHANGED_SHARE)

    def small(self, version: int) -> Load:
        return self._changed(version, self.base.records // SMALL_SHARE)

    def _changed(self, version: int, records: int) -> Load:
        assert version > 0
        values = partial(_values, version=version, orders=min(self.base.counts))
        return replace(
            self.base, shape=replace(self.base.shape, values=values), counts=even(records, _KAFKA_PARTITIONS)
        )


def parse_upserts(loads: str) -> UpsertLoad | None:
    """Parse `upserts-<n>`; None for other loads. Raises ValueError if there are others beside it."""
    match = _NAME.fullmatch(loads.strip().lower())
    if match is not None:
        return upsert_load(parse_number(match["number"], match["unit"]), loads.strip().lower())
    if "upserts" in loads:
        raise ValueError("upserts-<n>, with n like 200k or 1m, is measured alone, without other loads")
    return None


def upsert_load(records: int, name: str) -> UpsertLoad:
    """Build the load. Raises ValueError for too few records to have a small transaction."""
    if records < SMALL_SHARE * _KAFKA_PARTITIONS:
        raise ValueError(f"{name} needs at least {SMALL_SHARE * _KAFKA_PARTITIONS} records")
    orders = orders_load(name, even(records, _KAFKA_PARTITIONS))
    shape = Shape(orders.shape.ddl, partial(_values, version=0, orders=min(orders.counts)))
    return UpsertLoad(replace(orders, shape=shape))


def last_times(transactions: Iterable[Load]) -> dict[str, int]:
    """Return what a keyed table must hold after `transactions` (the base too, if it is to count): each order's last `ts`."""
    latest: dict[str, int] = {}
    for transaction in transactions:
        for batch in _batches(transaction):
            latest.update(zip(batch["id"].to_pylist(), batch["ts"].to_pylist(), strict=True))
    return latest


def _batches(load: Load) -> Iterator[pa.RecordBatch]:
    values = load.shape.values
    assert isinstance(values, partial)
    for first, count in load.ranges():
        yield _columns(first, count, **values.keywords)


def _values(first: int, count: int, version: int, orders: int) -> pa.BinaryArray:
    return order_json(_columns(first, count, version, orders))


def _columns(first: int, count: int, version: int, orders: int) -> pa.RecordBatch:
    """Orders with numbers first to first + count - 1 as version 0, else `count` random ones of the same Kafka partition."""
    batch = order_columns(first, count, _DAYS)
    base = first // PARTITION_STRIDE * PARTITION_STRIDE
    numbers = np.arange(first, first + count)
    if version:
        numbers = base + np.random.default_rng([29, version, first]).integers(0, orders, count)
    days = pa.array([f"2026-01-0{number + 1}" for number in range(_DAYS)]).take(pa.array(numbers % _DAYS))
    times = pc.add(batch["ts"], pa.scalar(version * _VERSION_MS))
    ids = pc.binary_join_element_wise("o-1-", pa.array(numbers).cast(pa.string()), "")
    columns = {name: batch[name] for name in batch.schema.names} | {"id": ids, "ts": times, "dt": days}
    return pa.RecordBatch.from_pydict(columns)
