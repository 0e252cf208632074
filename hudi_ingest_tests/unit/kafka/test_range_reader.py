"""Whole ranges read from librdkafka's mock cluster in this process, and the settings with which they are read. What needs transactions, retention
or a refusal is in hudi_ingest_tests/kafka/test_range_reader.py, on a real broker."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from hudi_ingest.exceptions import LogTruncated, NoSuchOffset, WriteIncomplete
from hudi_ingest.kafka.client_settings import Trouble
from hudi_ingest.kafka.librdkafka import _function
from hudi_ingest.kafka.message_columns import destroy, extent
from hudi_ingest.kafka.range_reader import Anchors, _consumer, read_ranges
from hudi_ingest.kafka.records import ReadRequest, compare_logs, first_records_in, read_records
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.records.times import KAFKA_TIME
from hudi_ingest.transaction.write.reports import require_true_gaps
from hudi_ingest_tests.support.pipeline_files import Write, load

RECORDS = 6
HEADERS = [("h", b"1"), ("h", None), ("", b""), ("é", b"\0")]
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaSource]:
    """Two partitions with a record a second, which say where they are: `<partition>-<offset>`; the fifth is a tombstone without a key."""
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    for offset in range(RECORDS):
        for source in (P0, P1):
            value, key = (None, None) if offset == 4 else (f"{source.partition}-{offset}".encode(), b"key")
            headers = HEADERS if offset == 1 else []
            producer.produce("orders", value, key, source.partition, timestamp=1000 * (offset + 1), headers=headers)
    assert producer.flush(120) == 0
    (broker,) = producer.list_topics(timeout=120).brokers.values()
    yield KafkaSource(
        bootstrap_servers=f"{broker.host}:{broker.port}",
        topics=("orders",),
        format="json",
        request_timeout_seconds=20,
    )


def _read(source: KafkaSource, *slices: Slice) -> dict[TopicPartition, pa.Table]:
    batches: dict[TopicPartition, list[pa.RecordBatch]] = {}
    for partition, batch in read_ranges(source, "test", slices, ("key", "headers")):
        batches.setdefault(partition, []).append(batch)
    return {partition: pa.Table.from_batches(found) for partition, found in batches.items()}


def test_p1_p2_a_range_is_all_its_records_and_no_other(cluster: KafkaSource) -> None:
    for start, end in ((0, 6), (1, 5), (2, 3)):
        found = _read(cluster, Slice("orders", 0, start, end), Slice("orders", 1, start, end))
        assert found.keys() == {P0, P1}
        for source, records in found.items():
            records.validate(full=True)
            expected = [*range(start, end)]
            assert records["offset"].to_pylist() == expected
            values = [None if offset == 4 else f"{source.partition}-{offset}".encode() for offset in expected]
            assert records["value"].to_pylist() == values
            assert records["key"].to_pylist() == [None if offset == 4 else b"key" for offset in expected]
            assert records["timestamp"].type == KAFKA_TIME
            times = records["timestamp"].cast(pa.int64()).to_pylist()
            assert times == [1000 * (offset + 1) for offset in expected]
            headers = [{"key": name, "value": value} for name, value in HEADERS]
            assert records["headers"].to_pylist() == [headers if offset == 1 else None for offset in expected]


def test_p1_a_range_that_is_not_all_there_is_an_error(cluster: KafkaSource) -> None:
    with pytest.raises(WriteIncomplete, match=rf"ends at offset {RECORDS}, within the range"):
        _read(cluster, Slice("orders", 0, 2, RECORDS + 1))
    with pytest.raises(NoSuchOffset, match="no longer has offset 100"):
        _read(cluster, Slice("orders", 0, 100, 101))


def test_p1_a_record_in_a_gap_is_found_and_one_behind_it_is_not_in_it(cluster: KafkaSource, write: Write) -> None:
    inside, before, behind = (Slice("orders", 0, *place) for place in ((2, 4), (5, 5), (RECORDS, RECORDS + 2)))
    found = first_records_in(cluster, "test", (inside, before, behind), 60)
    assert found == {inside: 2, before: None, behind: None}
    pipeline = load(write).model_copy(update={"source": cluster})
    require_true_gaps(pipeline, (behind,))
    with pytest.raises(WriteIncomplete, match=r"did not read records that the broker has: .* without 2\."):
        require_true_gaps(pipeline, (inside,))


SAME = LastRecord(1, 2000, 0)
"""The record before offset 2."""


def _after(source: KafkaSource, before: LastRecord, start: int = 2) -> tuple[list[int], LastRecord]:
    slices = [Slice("orders", 0, start, 5)]
    anchors = Anchors(slices, {P0: before})
    found = [batch["offset"].to_pylist() for _, batch in read_ranges(source, "test", slices, (), anchors)]
    return [offset for offsets in found for offset in offsets], anchors.last[P0]


@pytest.mark.parametrize("before", [SAME, replace(SAME, epoch=-1), replace(SAME, offset=2, timestamp=0)])
def test_p1_a_log_with_the_same_record_before_is_read_on(cluster: KafkaSource, before: LastRecord) -> None:
    """The last one: too far behind to be read again, so its epoch alone counts."""
    assert _after(cluster, before) == ([2, 3, 4], LastRecord(4, 5000, 0))


@pytest.mark.parametrize(
    "before",
    [replace(SAME, timestamp=1999), replace(SAME, epoch=1), replace(SAME, offset=0, timestamp=1000)],
    ids=["another time", "another epoch", "a record between"],
)
def test_p1_a_log_with_another_record_before_is_not_read(cluster: KafkaSource, before: LastRecord) -> None:
    with pytest.raises(LogTruncated, match=r"orders:0: the records before offset 2 are no longer those") as raised:
        _after(cluster, before)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("orders", 0, 2)


def test_p1_a_log_that_ends_before_the_range_was_cut(cluster: KafkaSource) -> None:
    slices = [Slice("orders", 0, RECORDS + 2, RECORDS + 3)]
    with pytest.raises(LogTruncated):
        [*read_ranges(cluster, "test", slices, (), Anchors(slices, {P0: LastRecord(RECORDS - 1, 6000, 0)}))]


def test_p1_a_record_that_is_gone_proves_nothing(cluster: KafkaSource) -> None:
    """As after compaction, or once retention has taken it."""
    slices = [Slice("orders", 0, 2, 5)]
    anchors = Anchors(slices, {P0: SAME})
    anchors._before[P0] = LastRecord(RECORDS + 9, 1, -1)
    found = [batch["offset"].to_pylist() for _, batch in read_ranges(cluster, "test", slices, (), anchors)]
    assert found == [[2, 3, 4]]


def test_x4_a_broker_says_whether_it_still_has_a_record(cluster: KafkaSource) -> None:
    records = {SAME: True, replace(SAME, timestamp=1): False, replace(SAME, epoch=7): False}
    for record, answer in records.items():
        assert compare_logs(cluster, "test", {P0: record, P1: SAME}, 60) == {P0: answer, P1: True}
    assert compare_logs(cluster, "test", {P0: LastRecord(100, 1)}, 60) == {}


def test_headers_count_for_the_size_of_what_waits_if_they_are_read(cluster: KafkaSource) -> None:
    addresses = np.empty(2, np.int64)
    with closing(_consumer(cluster, "test", Trouble(), lambda statistics: None)) as consumer:
        consumer.assign({P0: 1})
        count = 0
        while not count:
            count = consumer.poll(addresses, 1000)
        sizes = [extent(addresses, 0, 1, RECORDS, 10**6, headers).size for headers in (True, False)]
        destroy(addresses, 0, count)
    # 8 bytes for each header besides its name and value.
    assert sizes[0] - sizes[1] == sum(len(name.encode()) + len(value or b"") + 8 for name, value in HEADERS)


def test_a_sample_ends_with_its_range(cluster: KafkaSource) -> None:
    found = read_records(cluster, "test", [ReadRequest(Slice("orders", 0, 1, 3), 10)])
    assert found[P0]["offset"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isolation.level", "read_committed"),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("check.crcs", "true"),
    ],
)
def test_p1_p2_the_client_reads_what_is_committed_and_whole_and_commits_nothing(
    cluster: KafkaSource, name: str, value: str
) -> None:
    pointer = ctypes.c_void_p
    settings_of = _function("rd_kafka_conf", pointer, pointer)
    setting = _function("rd_kafka_conf_get", ctypes.c_int, pointer, ctypes.c_char_p, pointer, pointer)
    text, size = ctypes.create_string_buffer(100), ctypes.c_size_t(100)
    with closing(_consumer(cluster, "test", Trouble(), lambda statistics: None)) as consumer:
        settings = settings_of(consumer._client)
        assert setting(settings, name.encode(), ctypes.addressof(text), ctypes.addressof(size)) == 0
    assert text.value.decode() == value
