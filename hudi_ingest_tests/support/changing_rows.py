"""Rows of an upstream table that change at random: as records of a topic, and as the changes that a keyed table must apply.

Three forms. `debezium`: envelopes of a table that is partitioned by a column that changes; offsets order, and updates leave out a text
that they do not change. `mirror`: the same from one Kafka partition, and the table is truncated now and then. `fields`: JSON rows with
a flag that deletes and a time that orders, which need not rise; the table partition is derived from the key.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hudi_ingest_tests.support.keyed_model import Change

KAFKA_PARTITIONS = 2
_KEYS = 12
_DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
_TIMES = 40
_DELETED_SHARE = 0.25
_MOVED_SHARE = 0.3
_LEFT_OUT_SHARE = 0.4
_LEFT_OUT = "__debezium_unavailable_value"
_TRUNCATED_SHARE = 0.05

Form = Literal["debezium", "mirror", "fields"]


@dataclass(frozen=True, slots=True)
class Record:
    """One record: where it goes, and what it changes (a row that moves has two changes)."""

    kafka_partition: int
    value: bytes
    changes: tuple[Change, ...]


@dataclass
class ChangingRows:
    """Draws records; offsets are counted, so that all of the topic must come from here."""

    form: Form
    offsets: list[int] = field(default_factory=lambda: [0] * KAFKA_PARTITIONS)
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _number: int = 0

    @property
    def kafka_partitions(self) -> int:
        """How many the topic has."""
        return 1 if self.form == "mirror" else KAFKA_PARTITIONS

    def settings(self) -> dict[str, Any]:
        """Blocks of the pipeline file."""
        table = {"mode": "upsert", "key": ["id"], "buckets": 2, "partition_by": ["dt"]}
        if self.form != "fields":
            columns = "id string not null, n long not null, note string, dt string"
            return {
                "source": {"envelope": "debezium", "before_image": "row"},
                "table": {**table, "schema": columns, "cdc": True},
            }
        columns = "id string, n long, note string, dt string, at long, gone boolean"
        return {"table": {**table, "schema": columns, "ordering": "at", "delete_field": "gone"}}

    def records(self, dice: random.Random, count: int) -> list[Record]:
        """The last one is no truncate, so that it writes a file."""
        return [self._record(dice, is_last=number == count - 1) for number in range(count)]

    def _record(self, dice: random.Random, is_last: bool) -> Record:
        key = f"k{dice.randrange(_KEYS)}"
        self._number += 1
        kafka_partition = int(key[1:]) % self.kafka_partitions
        offset = self.offsets[kafka_partition]
        self.offsets[kafka_partition] += 1
        if self.form == "mirror" and not is_last and dice.random() < _TRUNCATED_SHARE:
            self._rows.clear()
            return Record(kafka_partition, b'{"op": "t"}', (Change("", "", kafka_partition, offset, None),))
        note = dice.choice((None, "", "ö" * dice.randrange(1, 40), f"note {self._number}"))
        row = {"id": key, "n": self._number, "note": note, "dt": dice.choice(_DAYS)}
        draw = self._fields if self.form == "fields" else self._debezium
        value, changes = draw(dice, row, kafka_partition, offset)
        return Record(kafka_partition, json.dumps(value).encode(), tuple(changes))

    def _debezium(
        self, dice: random.Random, row: dict[str, Any], kafka_partition: int, offset: int
    ) -> tuple[dict[str, Any], list[Change]]:
        key, before = row["id"], self._rows.get(row["id"])
        if before is not None and dice.random() < _DELETED_SHARE:
            del self._rows[key]
            return {"op": "d", "before": before, "after": None}, [
                Change(before["dt"], key, kafka_partition, offset, None)
            ]
        if before is not None and dice.random() > _MOVED_SHARE:
            row["dt"] = before["dt"]
        after = row
        stays = before is not None and before["dt"] == row["dt"] and dice.random() < _LEFT_OUT_SHARE
        # A database stores no null apart from its row, so it never leaves one out.
        if before is not None and stays and before["note"] is not None:
            after = row | {"note": _LEFT_OUT}
            row["note"] = before["note"]
        self._rows[key] = row
        changes = [Change(row["dt"], key, kafka_partition, offset, row)]
        if before is not None and before["dt"] != row["dt"]:
            changes.insert(0, Change(before["dt"], key, kafka_partition, offset, None))
        return {"op": "c" if before is None else "u", "before": before, "after": after}, changes

    def _fields(
        self, dice: random.Random, row: dict[str, Any], kafka_partition: int, offset: int
    ) -> tuple[dict[str, Any], list[Change]]:
        row = row | {"dt": _DAYS[int(row["id"][1:]) % len(_DAYS)], "at": dice.randrange(_TIMES)}
        gone = dice.random() < _DELETED_SHARE
        change = Change(row["dt"], row["id"], kafka_partition, offset, None if gone else row, row["at"])
        return row | {"gone": gone}, [change]


def by_partition(records: Sequence[Record]) -> dict[int, list[bytes]]:
    return {
        number: [record.value for record in records if record.kafka_partition == number]
        for number in range(KAFKA_PARTITIONS)
    }
