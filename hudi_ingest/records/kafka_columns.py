"""The columns that say where in Kafka a row came from: their names, types, and how to tell them from a record's fields."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

PREFIX = "_kafka_"
TOPIC = "_kafka_topic"
PARTITION = "_kafka_partition"
OFFSET = "_kafka_offset"
TIMESTAMP = "_kafka_timestamp"
KEY = "_kafka_key"
HEADERS = "_kafka_headers"

KAFKA_FIELDS: Mapping[str, pa.Field] = {
    "topic": pa.field(TOPIC, pa.string(), False),
    "partition": pa.field(PARTITION, pa.int32(), False),
    "offset": pa.field(OFFSET, pa.int64(), False),
    "timestamp": pa.field(TIMESTAMP, pa.timestamp("us", tz="UTC")),
    "key": pa.field(KEY, pa.binary()),
    "headers": pa.field(HEADERS, pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
}
"""A record's Kafka metadata, as columns next to the record's fields."""


def is_kafka(name: str) -> bool:
    """Return whether this is a Kafka column rather than a field of the record."""
    return name.startswith(PREFIX)
