"""The records of one table: produced by the lane, and remembered for the oracle as the broker acknowledged them."""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.chaos.oracle import Record, StoredTable

PARTITIONS = 2
_BAD = b"not JSON"
_BIG_COUNT, _BIG_BYTES = 100, 240_000
"""In two files, which are of more than 10 MiB each: text of random bytes can hardly be compressed."""

Place = tuple[int, int]
"""Partition and offset."""


class Records:
    """`expected` must be rows of the table, and `bad`, with their values, its dead letters.

    `history` is older than the table's start: it is in the table only when a backfill was asked for it. `lost` is what the broker
    deleted before it was read.
    """

    partitions = PARTITIONS
    """Of the topic."""
    columns: Sequence[str] = oracle.COMPARED

    def __init__(self, topic: str, producer: Producer) -> None:
        self.topic = topic
        self.expected: dict[Place, Record] = {}
        self.bad: dict[Place, bytes] = {}
        self.history: dict[Place, Record] = {}
        self.lost: dict[Place, Record] = {}
        self.with_big_ones = False
        """Whether `produce` adds records that are so large that their base files are multipart uploads."""
        self._repairable: dict[Place, Record] = {}
        self._producer = producer
        self._number = 0
        self._lock = threading.Lock()

    def produce(self, count: int) -> None:
        """`count` good records to each partition, and a bad one; returns when they are acknowledged. Threads may do so at once."""
        with self._lock:
            self._send_bad()
            self._send_rows(count, self.expected)
            if self.with_big_ones:
                for record in self._records(_BIG_COUNT):
                    self._send_row(_big(record), 0, self.expected)
            self._flush()

    def produce_history(self, count: int) -> None:
        """`count` good records to each partition, which nobody expects yet."""
        with self._lock:
            self._send_rows(count, self.history)
            self._flush()

    def produce_repairable(self, count: int) -> None:
        """`count` records to the first partition whose `n` is a text: bad until the pipeline file takes it as one."""
        with self._lock:
            for record in self._records(count):
                value = json.dumps({"id": record.id, "n": str(record.n), "dt": record.dt}).encode()
                self._send(value, 0, self._note_repairable(record, value), record.timestamp_ms)
            self._flush()

    def expect_history(self, partition: int, count: int) -> tuple[int, int]:
        """The first `count` offsets of the partition's history must be in the table from now on. Returns [start, end)."""
        places = sorted(place for place in self.history if place[0] == partition)[:count]
        for place in places:
            self.expected[place] = self.history.pop(place)
        return places[0][1], places[-1][1] + 1

    def expect_repaired(self) -> None:
        """What is repairable must be rows from now on, and no dead letters."""
        for place, record in self._repairable.items():
            self.bad.pop(place)
            self.expected[place] = record
        self._repairable = {}

    def expect_lost(self, partition: int, start: int, end: int) -> None:
        """What was produced to these offsets, good records all of them, must not be in the table."""
        for offset in range(start, end):
            self.lost[partition, offset] = self.expected.pop((partition, offset))

    def ends(self) -> dict[int, int]:
        """Of each partition the offset after the last record."""
        places = [*self.expected, *self.bad, *self.history, *self.lost]
        return {
            number: 1 + max((at for where, at in places if where == number), default=-1)
            for number in range(self.partitions)
        }

    # ---- What the table must hold

    def all_in(self, stored: StoredTable) -> bool:
        return oracle.count(stored) >= len(self.expected)

    def all_of_partition_in(self, stored: StoredTable, partition: int) -> bool:
        return {place for place in self.expected if place[0] == partition} <= oracle.places(stored)

    def compare(self, stored: StoredTable) -> Counter[str]:
        """Anomalies of the table's rows, every column of them, and of the folders that they are in."""
        return self.compare_rows(oracle.rows(stored, [*self.columns])) + oracle.misplaced(stored)

    def compare_rows(self, table: pa.Table) -> Counter[str]:
        """Anomalies of rows that a reader got."""
        return oracle.compare_rows(table, self.topic, self.expected)

    def reader(self, stored: StoredTable) -> oracle.Reader:
        return oracle.Reader(stored)

    def _note_repairable(self, record: Record, value: bytes) -> Any:
        def note(place: Place) -> None:
            self.bad[place] = value
            self._repairable[place] = record

        return note

    def _records(self, count: int) -> list[Record]:
        now = int(time.time() * 1000)
        first, self._number = self._number, self._number + count
        return [Record(f"r{n}", n, f"d{n % 2}", now + n % 1000) for n in range(first, first + count)]

    def _send_bad(self) -> None:
        self._send(_BAD, 0, lambda place: self.bad.update({place: _BAD}))

    def _send_rows(self, count: int, into: dict[Place, Record]) -> None:
        for partition in range(self.partitions):
            for record in self._records(count):
                self._send_row(record, partition, into)

    def _send_row(self, record: Record, partition: int, into: dict[Place, Record]) -> None:
        value = json.dumps({"id": record.id, "n": record.n, "dt": record.dt}).encode()
        self._send(value, partition, lambda place: into.update({place: record}), record.timestamp_ms)

    def _send(self, value: bytes, partition: int, acknowledged: Any, timestamp_ms: int | None = None) -> None:
        def delivered(error: object, message: Any) -> None:
            assert error is None, error
            acknowledged((message.partition(), message.offset()))

        more: Mapping[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        self._producer.produce(self.topic, value, partition=partition, on_delivery=delivered, **more)
        self._producer.poll(0)

    def _flush(self) -> None:
        missing = self._producer.flush(60)
        assert not missing, f"{missing} records are not acknowledged"


def _big(record: Record) -> Record:
    text = base64.b64encode(random.Random(record.n).randbytes(_BIG_BYTES)).decode()
    return replace(record, id=f"{record.id}-{text}")
