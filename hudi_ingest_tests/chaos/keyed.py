"""The changes of one keyed table: produced by the lane, remembered as the broker acknowledged them, and judged by. Those of a mirror
are Debezium's events, of which some leave a value out and some are truncates.

Its model is a dictionary of each key's last change; it shares no code with the product. A key stays in its Kafka partition and
its table partition. Further anomalies: stale (a row of an earlier change of its key), undeleted (a row of a deleted key).
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.chaos.oracle import Record, StoredTable
from hudi_ingest_tests.chaos.records import Place, Records

KEYS = 90
"""In each Kafka partition: a `produce` changes most of them, some more than once."""
KEYED_TABLE = {
    "schema": "id string, n long, dt string, deleted boolean",
    "mode": "upsert",
    "key": ["id"],
    "buckets": 2,
    "delete_field": "deleted",
}
"""Of a pipeline file's `table`, beyond an append table's."""
MIRRORED_TABLE = {
    "schema": "id string not null, n long not null, dt string not null, note string",
    "mode": "upsert",
    "key": ["id"],
    "buckets": 2,
}
"""The same of a mirror."""
_DELETED_SHARE = 0.2
_LEFT_OUT_SHARE = 0.3
_TRUNCATED_SHARE = 0.005
_UNAVAILABLE = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class Deleted(Record):
    """A delete of the record's key."""


@dataclass(frozen=True, slots=True)
class Truncated(Deleted):
    """A delete of all keys before it."""


@dataclass(frozen=True, slots=True)
class Noted(Record):
    """A change of a mirror. `note` may be left out: then it is that of the key's change before."""

    note: str = _UNAVAILABLE


class KeyedRecords(Records):
    """`expected` has all changes that must be in the table, superseded ones and deletes too."""

    def __init__(self, topic: str, producer: Producer, dice: random.Random) -> None:
        super().__init__(topic, producer)
        self._dice = dice

    def produce(self, count: int) -> None:
        """`count` changes of random keys to each partition, the last one no delete, and a bad record to the first."""
        with self._lock:
            self._send_bad()
            for partition in range(self.partitions):
                for number in range(count):
                    self._send_change(partition, is_last=number == count - 1)
            self._flush()

    def _send_change(self, partition: int, *, is_last: bool) -> None:
        number = self._dice.randrange(KEYS)
        kind = Record if is_last or self._dice.random() > _DELETED_SHARE else Deleted
        now = int(time.time() * 1000)
        change = kind(f"k{partition}-{number}", self._number, f"d{number % 2}", now + self._number % 1000)
        self._number += 1
        fields = {"id": change.id, "n": change.n, "dt": change.dt, "deleted": kind is Deleted}
        self._send(
            json.dumps(fields).encode(),
            partition,
            lambda place: self.expected.update({place: change}),
            change.timestamp_ms,
        )

    # ---- What the table must hold

    def last_changes(self) -> dict[str, tuple[Place, Record]]:
        """Of each key its last change and where that is."""
        last: dict[str, tuple[Place, Record]] = {}
        for place, change in sorted(self.expected.items()):
            if isinstance(change, Truncated):
                last = dict.fromkeys(last, (place, change))
            else:
                known = last.get(change.id)
                last[change.id] = place, change if known is None else self._filled(change, known[1])
        return last

    def _filled(self, change: Record, before: Record) -> Record:
        """The change with what it leaves out."""
        return change

    def _expected_row(self, place: Place, change: Record) -> dict[str, Any]:
        return oracle.expected_row(self.topic, place, change, record_key=change.id)

    def all_in(self, stored: StoredTable) -> bool:
        """Whether each partition's last record, which is no delete, is in the table, or another one's after it."""
        return all(self.all_of_partition_in(stored, number) for number in range(self.partitions))

    def all_of_partition_in(self, stored: StoredTable, partition: int) -> bool:
        last = max((place for place in self.expected if place[0] == partition), default=None)
        return last is None or last in oracle.places(stored)

    def compare_rows(self, table: pa.Table) -> Counter[str]:
        """Anomalies of rows that a reader got; every column is compared."""
        last = self.last_changes()
        rows_of: Counter[str] = Counter()
        anomalies: Counter[str] = Counter()
        for row in oracle.comparable(table):
            key, place = row["id"], (row["_kafka_partition"], row["_kafka_offset"])
            rows_of[key] += 1
            if key not in last:
                anomalies["foreign"] += 1
            elif isinstance(last[key][1], Deleted):
                anomalies["undeleted"] += 1
            elif place != last[key][0]:
                anomalies["stale"] += 1
            elif row != self._expected_row(*last[key]):
                anomalies["changed"] += 1
        anomalies["duplicate"] += sum(times - 1 for times in rows_of.values())
        anomalies["lost"] += sum(
            1 for key, (_, change) in last.items() if not isinstance(change, Deleted) and not rows_of[key]
        )
        return +anomalies

    def reader(self, stored: StoredTable) -> oracle.Reader:
        return KeyedReader(stored, self)


class MirrorRecords(KeyedRecords):
    """Events of a table of a database, in one Kafka partition, so that truncates have an order among them."""

    partitions = 1
    columns = (*oracle.COMPARED, "note")

    def __init__(self, topic: str, producer: Producer, dice: random.Random) -> None:
        super().__init__(topic, producer, dice)
        self._rows: dict[str, dict[str, Any]] = {}

    def _send_change(self, partition: int, *, is_last: bool) -> None:
        number, now = self._dice.randrange(KEYS), int(time.time() * 1000)
        key, dt, at = f"k{partition}-{number}", f"d{number % 2}", now + self._number % 1000
        before, n, draw = self._rows.get(key), self._number, self._dice.random()
        self._number += 1
        event: dict[str, Any]
        change: Record
        if not is_last and draw < _TRUNCATED_SHARE:
            event, change = {"op": "t"}, Truncated("", n, "", at)
            self._rows.clear()
        elif not is_last and before is not None and draw < _DELETED_SHARE:
            event, change = {"op": "d", "before": self._rows.pop(key), "after": None}, Deleted(key, n, dt, at)
        else:
            note = _UNAVAILABLE if before is not None and self._dice.random() < _LEFT_OUT_SHARE else f"note {n}"
            change = Noted(key, n, dt, at, note)
            after = {"id": key, "n": n, "dt": dt, "note": note}
            event = {"op": "c" if before is None else "u", "before": before, "after": after}
            self._rows[key] = after
        self._send(json.dumps(event).encode(), partition, self._noting(change), at)

    def _noting(self, change: Record) -> Callable[[Place], None]:
        return lambda place: self.expected.update({place: change})

    def _filled(self, change: Record, before: Record) -> Record:
        if isinstance(change, Noted) and change.note == _UNAVAILABLE and isinstance(before, Noted):
            return replace(change, note=before.note)
        return change

    def _expected_row(self, place: Place, change: Record) -> dict[str, Any]:
        assert isinstance(change, Noted)
        return super()._expected_row(place, change) | {"note": change.note}


class KeyedReader(oracle.Reader):
    """Reads the table again and again: of each Kafka partition it must show what its first changes up to some offset come to,
    and never fewer of them than before."""

    def __init__(self, stored: StoredTable, records: KeyedRecords) -> None:
        super().__init__(stored)
        self._records = records
        self._ends: dict[int, int] = {}

    def forget(self) -> None:
        super().forget()
        self._ends = {}

    def _judge_places(self, places: Counter[Place]) -> None:
        changes = sorted(dict(self._records.expected).items())
        for partition in range(self._records.partitions):
            offsets = {offset for number, offset in places if number == partition}
            ends = prefixes(offsets, [(at, change) for (number, at), change in changes if number == partition])
            later = [end for end in ends if end >= self._ends.get(partition, 0)]
            if later:
                self._ends[partition] = later[0]
            else:
                self.anomalies["vanished" if ends else "torn-read"] += 1


def prefixes(offsets: set[int], changes: list[tuple[int, Record]]) -> list[int]:
    """Ends (how many changes, from the first one) at which the rows of exactly these offsets are what is there."""
    last: dict[str, int] = {}
    # Offsets that only one side has: the rows seen, or the changes so far.
    different = len(offsets)
    ends = [] if different else [0]
    for end, (offset, change) in enumerate(changes, start=1):
        gone = [*last] if isinstance(change, Truncated) else [change.id]
        for replaced in [last.pop(key) for key in gone if key in last]:
            different += 1 if replaced in offsets else -1
        if not isinstance(change, Deleted):
            last[change.id] = offset
            different += -1 if offset in offsets else 1
        if not different:
            ends.append(end)
    return ends
