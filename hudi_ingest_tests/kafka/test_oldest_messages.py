"""A topic that has been there since Kafka 0.8: the broker keeps its oldest segments as they were written, and they are read."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from hudi_ingest.local.broker import BrokerSettings, create_topic, start_broker
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest_tests.kafka.test_range_reader import read
from hudi_ingest_tests.support.ground import fresh_ground, make_pipeline
from hudi_ingest_tests.support.java import QUICK, java_options

pytestmark = pytest.mark.kafka

GZIP, LOG_APPEND_TIME = 1, 8


def message(
    offset: int, value: bytes | None, key: bytes | None = None, *, time: int | None = None, attributes: int = 0
) -> bytes:
    """An entry of a log in message format 0, or in 1 if it has a time."""
    content = struct.pack(">bb", 0, attributes) if time is None else struct.pack(">bbq", 1, attributes, time)
    for part in (key, value):
        content += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    content = struct.pack(">I", zlib.crc32(content)) + content
    return struct.pack(">qi", offset, len(content)) + content


def segment() -> bytes:
    """Offsets 0 to 8: in format 0 and 1, plain and compressed, with a gap and both kinds of times."""
    zero = message(2, b"c", b"k2") + message(4, b"e")
    one = [(0, b"g", 1000), (1, b"h", 2000)]
    return b"".join(
        [
            message(0, b"a", b"k0"),
            message(1, None, b"k1"),
            # Compressed, they have their offsets inside in format 0, and count from 0 in format 1.
            message(4, gzip.compress(zero), attributes=GZIP),
            message(5, b"f", b"", time=1_400_000_000_000),
            message(7, _compressed(one), time=2000, attributes=GZIP),
            message(8, _compressed([(0, b"i", -1)]), time=5000, attributes=GZIP | LOG_APPEND_TIME),
        ]
    )


def _compressed(records: list[tuple[int, bytes, int]]) -> bytes:
    return gzip.compress(b"".join(message(offset, value, time=time) for offset, value, time in records))


def test_records_in_the_oldest_message_formats_are_read(tmp_path: Path) -> None:
    written = segment()
    settings = BrokerSettings(tmp_path / "broker", free_port(), free_port())
    with fresh_ground(settings.bootstrap, tmp_path) as ground, java_options(QUICK):
        record = start_broker(settings, lambda line: None)
        try:
            create_topic(settings.bootstrap, ground.name, 1)
        finally:
            stop([record])
        # Brokers no longer write these formats, but leave what is on their disks as it is.
        (log,) = settings.home.glob(f"data/{ground.name}-0/*0.log")
        log.write_bytes(written)
        for index in [*log.parent.glob("*.index"), *log.parent.glob("*.timeindex")]:
            index.unlink()
        record = start_broker(settings, lambda line: None)
        try:
            producer = Producer({"bootstrap.servers": settings.bootstrap})
            producer.produce(ground.name, b"new", partition=0, timestamp=3000)
            assert producer.flush(300) == 0
            del producer
            assert log.read_bytes().startswith(written)
            slices = [Slice(ground.name, 0, 0, 10)]
            table = read(make_pipeline(ground).source, slices, "key", "headers")[TopicPartition(ground.name, 0)]
        finally:
            stop([record])
    table.validate(full=True)
    assert table["offset"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert table["value"].to_pylist() == [b"a", None, b"c", b"e", b"f", b"g", b"h", b"i", b"new"]
    assert table["key"].to_pylist() == [b"k0", b"k1", b"k2", None, b"", None, None, None, None]
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    assert times == [-1, -1, -1, -1, 1_400_000_000_000, 1000, 2000, 5000, 3000]
    assert table["headers"].null_count == table.num_rows
