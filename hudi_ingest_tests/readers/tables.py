"""The two tables: one of appended rows, one with a row for each key, both with what readers get wrong most easily.

Nested columns, decimals beyond 18 digits, dates before 1900 and after 2262, names of folders that Hudi escapes, a partition without a
value, a partition that comes late, files that a clustering, a compaction or an update replaced, a column that was added and one that was
widened in the append table, an update and a delete in the keyed one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from hudi_ingest.hudi.iceberg.publisher import IcebergPublisher
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.local.broker import create_topic
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.iceberg_sync import publish_iceberg
from hudi_ingest_tests.readers.rows import Map, lines
from hudi_ingest_tests.support.ground import Ground, make_pipeline

_COLUMNS = """
  id string not null, small int, big bigint, ratio float, exact double, ok boolean, price decimal(12,2), amount decimal(38,10), day date,
  at timestamp, raw binary, tags array<string>, counts map<string, bigint>,
  lines array<struct<sku: string, at: timestamp>>,
  customer struct<name: string, addresses: array<struct<zip: string, since: date>>, extra: map<string, array<int>>>,
  dt string, place string
"""
_WIDER = _COLUMNS.replace("small int", "small long") + ", note string"
_SETTINGS: Mapping[str, Any] = {"partition_by": ["dt", "place"], "kafka_columns": ["topic"], "iceberg": {}}
_FULL: Mapping[str, Any] = {
    "small": -7,
    "big": 2**62,
    "ratio": 0.5,
    "exact": 0.1,
    "ok": True,
    "price": Decimal("-1234567890.05"),
    "amount": Decimal("1234567890123456789012345678.0123456789"),
    "day": date(2026, 2, 28),
    "at": datetime(2026, 2, 28, 21, 59, 59, 123456, tzinfo=timezone.utc),
    "raw": b"\x00\xff",
    "tags": ["a", None, "ü🙂"],
    "counts": Map(x=1, y=None),
    "lines": [{"sku": "s", "at": datetime(2026, 1, 31, 10, 0, 0, 5, tzinfo=timezone.utc)}],
    "customer": {
        "name": "Ada",
        "addresses": [{"zip": "1", "since": date(2020, 1, 1)}, {"zip": None, "since": None}],
        "extra": Map(k=[1, 2]),
    },
}
_EMPTY: Mapping[str, Any] = dict.fromkeys(_FULL)
ANCIENT = "ancient"
"""The id of the row with dates and times that not all engines have."""
_ANCIENT: Mapping[str, Any] = {
    **_EMPTY,
    "small": 2**31 - 1,
    "day": date(1, 1, 1),
    "at": datetime(1582, 10, 4, 23, 59, 59, 999999, tzinfo=timezone.utc),
    "customer": {"name": None, "addresses": [{"zip": None, "since": date(9999, 12, 31)}], "extra": None},
}
_PLACES = ("plain", "a:b", "50% ü/x", None)


@dataclass(frozen=True)
class ReadTable:
    """A table and its rows, as `rows.lines` has them."""

    ground: Ground
    settings: Mapping[str, Any]
    """`table` in its pipeline's file."""
    rows: tuple[str, ...]
    in_base_files: tuple[str, ...]
    """The rows that readers of base files see: all of them, or those as of the last compaction."""

    @property
    def path(self) -> str:
        return self.ground.base_path

    @property
    def iceberg(self) -> str:
        """Where the newest Iceberg metadata is, as file:///….metadata.json."""
        pipeline = self.pipeline()
        publisher = IcebergPublisher(pipeline, Timeline.of(pipeline.table), self.ground.home)
        return str(publisher.table().metadata_location)

    def pipeline(self, **blocks: Any) -> Pipeline:
        """Return the table's pipeline with further blocks in its file."""
        return make_pipeline(self.ground, table=self.settings, **blocks)


def write_append_table(ground: Ground) -> ReadTable:
    """Two commits in the first columns, a clustering of a partition that has files of both, and a late commit with more columns."""
    sent = _Sent(ground)
    pipeline = make_pipeline(ground, table={**_SETTINGS, "schema": _COLUMNS})
    for number, place in enumerate(_PLACES):
        sent.send(_row(f"full-{number}", _FULL, "2026-02-28", place))
    ground.run(pipeline)
    sent.send(_row(ANCIENT, _ANCIENT, "2026-02-28", "plain"))
    sent.send(_row("empty", _EMPTY, None, None))
    ground.run(pipeline)
    services = services_for(pipeline, ground.ledger, current_session(ground.home), ground.home)
    assert services.run(cluster=True, clean=False, report=lambda line: None).replaced == 2
    sent.send({**_row("late", {**_FULL, "small": 2**40}, "2026-01-01", "a:b"), "note": "two\nlines"})
    settings = {**_SETTINGS, "schema": _WIDER}
    ground.run(make_pipeline(ground, table=settings))
    rows = tuple(lines({"note": None, **row} for row in sent.with_coordinates()))
    return ReadTable(ground, settings, rows, rows)


def write_keyed_table(ground: Ground) -> ReadTable:
    """Inserts and an update, which are compacted, and then an update, a delete, and rows of new partitions, one of them earlier."""
    sent = _Sent(ground)
    columns = {"schema": f"{_COLUMNS}, gone boolean", "delete_field": "gone"}
    settings = {**_SETTINGS, **columns, "mode": "upsert", "key": ["id"], "buckets": 1}
    pipeline = make_pipeline(ground, table=settings)
    for number, place in enumerate(_PLACES):
        sent.send(_row(f"full-{number}", _FULL, "2026-02-28", place))
    sent.send(_row(ANCIENT, _ANCIENT, "2026-02-28", "plain"))
    ground.run(pipeline)
    sent.send(_row("full-1", {**_FULL, "small": 8}, "2026-02-28", "a:b"))
    ground.run(pipeline)
    services = services_for(pipeline, ground.ledger, current_session(ground.home), ground.home)
    assert services.run(compact=True, clean=False, report=lambda line: None).compactions
    compacted = tuple(lines(sent.newest()))
    publish_iceberg(pipeline, home=ground.home)
    sent.send(_row("full-0", {**_FULL, "tags": [], "customer": None}, "2026-02-28", "plain"))
    sent.send({"id": "full-2", "dt": "2026-02-28", "place": "50% ü/x", "gone": True})
    sent.send(_row("late", _FULL, "2026-01-01", "a:b"))
    sent.send(_row("empty", _EMPTY, None, None))
    ground.run(pipeline)
    return ReadTable(ground, settings, tuple(lines(sent.newest())), compacted)


class _Sent:
    """What was produced to a ground's topic, in order; all of it to partition 0, so each row's offset is its number."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        create_topic(ground.bootstrap_servers, ground.name, 2)
        self._rows: list[Mapping[str, Any]] = []

    def send(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        self._ground.send(0, [json.dumps(row, default=_as_json).encode()])

    def with_coordinates(self) -> list[Mapping[str, Any]]:
        """Return all rows, with the Kafka columns."""
        return [
            {**row, "_kafka_topic": self._ground.name, "_kafka_partition": 0, "_kafka_offset": offset}
            for offset, row in enumerate(self._rows)
        ]

    def newest(self) -> Iterable[Mapping[str, Any]]:
        """Return the last row of each key that was not deleted."""
        found = {(row["dt"], row["place"], row["id"]): row for row in self.with_coordinates()}
        return [row for row in found.values() if "gone" not in row]


def _row(identifier: str, values: Mapping[str, Any], dt: str | None, place: str | None) -> dict[str, Any]:
    return {"id": identifier, **values, "dt": dt, "place": place}


def _as_json(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else str(value.isoformat())
