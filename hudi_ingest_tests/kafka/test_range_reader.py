"""Whole ranges are read into Arrow on a real broker: what records may be, what a range may end in, and what is said of trouble."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from hudi_ingest.exceptions import KafkaRefused, KafkaUnreachable, NoSuchOffset, TopicMissing, WriteIncomplete
from hudi_ingest.kafka.backlog import FetchPositions
from hudi_ingest.kafka.client_settings import Trouble
from hudi_ingest.kafka.message_columns import destroy
from hudi_ingest.kafka.range_reader import _consumer, read_ranges
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import wait_until
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest_tests.kafka.test_sample import abort_two, delete_before
from hudi_ingest_tests.kafka.test_security import WRONG
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.secured_broker import SecuredBroker

pytestmark = pytest.mark.kafka

MEBIBYTE = 1024 * 1024


def read(source: KafkaSource, slices: Sequence[Slice], *columns: str) -> dict[TopicPartition, pa.Table]:
    """The ranges' records; of each partition in one go."""
    batches: dict[TopicPartition, list[pa.RecordBatch]] = {}
    last = None
    for partition, batch in read_ranges(source, "test", slices, columns):
        assert partition == last or partition not in batches, "base files never mix partitions"
        batches.setdefault(partition, []).append(batch)
        last = partition
    return {partition: pa.Table.from_batches(found) for partition, found in batches.items()}


def offsets(source: KafkaSource, *slices: Slice) -> list[list[int]]:
    found = read(source, slices)
    return [found[slice_.source]["offset"].to_pylist() if slice_.source in found else [] for slice_ in slices]


def test_records_are_what_was_produced(ground: Ground, topic: str) -> None:
    produced: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]] = [
        (b"v", b"k", [("h", b"1"), ("h", None), ("", b""), ("é", b"\0")], 1),
        (None, None, [], 2),
        (b"", b"", [("empty", b"")], 1_767_268_800_000),
        (b"\0" * 5 * MEBIBYTE, b"large", [], 0),
        (b"after", None, [], 0),
    ]
    producer = Producer(
        {"bootstrap.servers": ground.bootstrap_servers, "message.max.bytes": 10**7, "compression.type": "zstd"}
    )
    for value, key, headers, timestamp in produced:
        producer.produce(topic, value, key, partition=1, headers=headers, timestamp=timestamp)
        assert producer.flush(300) == 0
    table = read(make_pipeline(ground).source, [Slice(topic, 1, 0, 5)], "key", "headers")[TopicPartition(topic, 1)]
    table.validate(full=True)
    assert table["offset"].to_pylist() == [*range(5)]
    assert table["value"].to_pylist() == [value for value, *_ in produced]
    assert table["key"].to_pylist() == [key for _, key, *_ in produced]
    assert table["headers"].to_pylist() == [
        [{"key": name, "value": value} for name, value in headers] or None for _, _, headers, _ in produced
    ]
    assert table["timestamp"].cast(pa.int64()).to_pylist()[:3] == [1, 2, 1_767_268_800_000]


@pytest.mark.tier(1)
def test_p1_a_range_is_read_whole_around_what_the_broker_does_not_deliver(ground: Ground, topic: str) -> None:
    source = make_pipeline(ground).source
    ground.send_rows(0, 3)
    abort_two(ground, source)
    ground.send_rows(0, 2, start=3)
    # Two aborted records and a marker are in between.
    for (start, end), there in {(0, 8): [0, 1, 2, 6, 7], (1, 4): [1, 2], (3, 6): [], (5, 7): [6], (8, 8): []}.items():
        assert offsets(source, Slice(topic, 0, start, end)) == [there]
    with pytest.raises(WriteIncomplete, match=r"ends at offset 8, within the range") as raised:
        offsets(source, Slice(topic, 0, 7, 9))
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == (topic, 0, 8)
    abort_two(ground, source)
    assert offsets(source, Slice(topic, 0, 7, 11)) == [[7]], "the range ends with what is not delivered"
    delete_before(ground, 2)
    with pytest.raises(NoSuchOffset, match="no longer has offset 0: retention deleted it"):
        offsets(source, Slice(topic, 0, 0, 8))


def test_p5_a_consumer_that_passes_over_aborted_records_gets_on(ground: Ground, topic: str) -> None:
    source = make_pipeline(ground, source={"request_timeout_seconds": 2}).source
    abort_two(ground, source)
    zero = TopicPartition(topic, 0)
    fetched, addresses = FetchPositions({zero: 0}), np.empty(1, np.int64)
    with closing(_consumer(source, "test", Trouble(), fetched.take)) as consumer:
        consumer.assign({zero: 0})

        def gets_on() -> bool:
            destroy(addresses, 0, consumer.poll(addresses, 100))
            return fetched.advance([zero])

        wait_until(gets_on, what="the consumer has come further", timeout_seconds=300)


def test_trouble_with_the_broker_is_told_as_elsewhere(
    ground: Ground, secured: SecuredBroker, secured_ground: Ground
) -> None:
    quick = {"request_timeout_seconds": 2}
    with pytest.raises(TopicMissing, match=r"topic no-such-topic is not on the broker"):
        offsets(make_pipeline(ground, source=quick).source, Slice("no-such-topic", 0, 0, 1))
    nowhere = make_pipeline(ground, source={**quick, "bootstrap_servers": "127.0.0.1:1"}).source
    with pytest.raises(KafkaUnreachable, match=r"Check source\.bootstrap_servers"):
        offsets(nowhere, Slice(ground.name, 0, 0, 1))
    secured_ground.send_rows(0, 1)
    one = Slice(secured_ground.name, 0, 0, 1)
    allowed = make_pipeline(secured_ground, source=secured.source("LOGIN")).source
    assert offsets(allowed, one) == [[0]]
    for kind, changes, told in (
        (KafkaRefused, secured.source("LOGIN", password=WRONG), "does not accept user"),
        (KafkaRefused, secured.source("SSL", ca_file="/nowhere/ca.pem"), "Check the files that source.security names"),
        (
            KafkaRefused,
            secured.source("SSL", ca_file=str(secured.stranger.certificate)),
            "correct source.security.ca_file",
        ),
        (
            KafkaUnreachable,
            {**secured.source("SSL"), "bootstrap_servers": secured.bootstrap, "request_timeout_seconds": 5},
            "does not match the port",
        ),
    ):
        with pytest.raises(kind) as raised:
            offsets(make_pipeline(secured_ground, source=changes).source, one)
        assert told in str(raised.value)
        assert WRONG not in str(raised.value)


def test_a_batch_beyond_the_bound_of_memory_is_named_with_the_setting(ground: Ground, topic: str) -> None:
    options: dict[str, Any] = {
        "bootstrap.servers": ground.bootstrap_servers,
        "compression.type": "zstd",
        "linger.ms": 1000,
    }
    producer = Producer({**options, "message.max.bytes": 10**8, "batch.size": 10**8})
    producer.produce(topic, b"first", partition=1)
    assert producer.flush(30) == 0
    for _ in range(20):
        producer.produce(topic, b"a" * MEBIBYTE, partition=1)
    assert producer.flush(30) == 0
    whole = Slice(topic, 1, 0, 21)
    bound = {"receive.message.max.bytes": "2000000", "fetch.max.bytes": "1000000"}
    with pytest.raises(
        KafkaUnreachable, match=r"message at 1 .*receive\.message\.max\.bytes\. Raise that in source\.kafka"
    ):
        offsets(make_pipeline(ground, source={"kafka": bound}).source, whole)
    assert offsets(make_pipeline(ground).source, whole) == [[*range(21)]]


def test_many_partitions_with_few_records_are_read_at_once(ground: Ground) -> None:
    create_topic(ground.bootstrap_servers, ground.name, 300)
    for partition in range(300):
        ground.producer.produce(ground.name, b"%d" % partition, partition=partition)
    assert ground.producer.flush(300) == 0
    slices = [Slice(ground.name, partition, 0, 1) for partition in range(300)]
    found = read(make_pipeline(ground).source, slices)
    assert {source.partition: table["value"].to_pylist() for source, table in found.items()} == {
        partition: [b"%d" % partition] for partition in range(300)
    }


def test_memory_is_bounded_whatever_the_size_of_the_records(ground: Ground, topic: str) -> None:
    """Of both partitions of 200 MiB each, one with large values and one with large headers, which one task reads, a small part
    is in memory at a time."""
    options: dict[str, Any] = {"bootstrap.servers": ground.bootstrap_servers, "message.max.bytes": 2 * MEBIBYTE}
    producer = Producer({**options, "compression.type": "none"})
    for number in range(400):
        name, large = number.to_bytes(4, "big"), number.to_bytes(4, "big") * (MEBIBYTE // 4 - 64)
        if number % 2:
            producer.produce(topic, name, partition=1, headers=[("stack", large)])
        else:
            producer.produce(topic, large, partition=0)
        if number % 20 == 19:
            assert producer.flush(300) == 0
    del producer
    gc.collect()
    slices = [Slice(topic, partition, 0, 200) for partition in (0, 1)]
    memory, peak = psutil.Process(), 0
    before = memory.memory_info().rss
    numbers: dict[int, list[int]] = {0: [], 1: []}
    for partition, batch in read_ranges(make_pipeline(ground).source, "test", slices, ["headers"]):
        peak = max(peak, memory.memory_info().rss)
        numbers[partition.partition] += [int.from_bytes(value.as_buffer()[:4], "big") for value in batch["value"]]
    assert numbers == {0: [*range(0, 400, 2)], 1: [*range(1, 400, 2)]}
    assert peak - before < 250 * MEBIBYTE
