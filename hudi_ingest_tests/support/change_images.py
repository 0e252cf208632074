"""Records of keyed tables, and a converter for changes that come with the row as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from hudi_ingest.kafka.records import RECORDS
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.changes import BEFORE, DELETED
from hudi_ingest.records.convert.converter import Decoded, Rejected

SOURCE = TopicPartition("customers", 1)
Record = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""A key and a value."""
_BEFORE_TYPE = pa.struct([("id", pa.int64()), ("country", pa.string())])
MOVABLE = pa.schema([pa.field("id", pa.int64()), pa.field("country", pa.string()), pa.field("at", pa.int64())])


class Images:
    """Decodes {"after": row, "before": row, "deleted": flag}, as change formats do."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        records = [json.loads(value) for value in values.to_pylist()]
        schema = pa.schema([*MOVABLE, pa.field(DELETED, pa.bool_()), pa.field(BEFORE, _BEFORE_TYPE)])
        rows = [
            {**(record.get("after") or {}), DELETED: record.get("deleted", False), BEFORE: record.get("before")}
            for record in records
        ]
        good = [index for index, record in enumerate(records) if "broken" not in record]
        rejected = tuple(Rejected(index, "", "x", "y") for index in range(len(records)) if index not in good)
        batch = pa.RecordBatch.from_pylist([rows[index] for index in good], schema=schema)
        return Decoded(batch, pa.array(good, pa.int64()) if rejected else None, rejected)


def batch(records: Sequence[Record], first: int = 10) -> pa.RecordBatch:
    """Keys and values."""
    count = len(records)
    return pa.RecordBatch.from_pydict(
        {
            "topic": [SOURCE.topic] * count,
            "partition": [SOURCE.partition] * count,
            "offset": [*range(first, first + count)],
            "timestamp": [datetime(2026, 1, 1, tzinfo=timezone.utc)] * count,
            "key": [None if key is None else json.dumps(key).encode() for key, _ in records],
            "value": [None if value is None else json.dumps(value).encode() for _, value in records],
            "headers": [None] * count,
        },
        schema=RECORDS,
    )


def change(
    after: dict[str, Any] | None, before: dict[str, Any] | None = None, **more: Any
) -> tuple[None, dict[str, Any]]:
    return None, {"after": after, "before": before, **more}


EU, US = {"id": 1, "country": "eu", "at": 5}, {"id": 1, "country": "us", "at": 6}
