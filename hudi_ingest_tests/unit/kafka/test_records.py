"""Reading a few records, from librdkafka's mock cluster in this process."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from hudi_ingest.kafka.records import first_times
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource

BROKERS, PARTITIONS, RECORDS = 3, 4, 300
TOPICS = tuple(f"topic{number}" for number in range(6))


@pytest.fixture
def mock_cluster() -> Iterator[KafkaSource]:
    # The cluster lives as long as this client, and creates topics with four partitions when they are written.
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": BROKERS, "log_level": 0})
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            for _ in range(RECORDS):
                producer.produce(topic, b"value", partition=partition)
    assert producer.flush(120) == 0
    brokers = producer.list_topics(timeout=120).brokers.values()
    yield KafkaSource(
        bootstrap_servers=",".join(f"{broker.host}:{broker.port}" for broker in brokers), topics=TOPICS, format="json"
    )


def test_a_full_queue_does_not_hold_up_the_other_partitions(mock_cluster: KafkaSource) -> None:
    ranges = [Slice(topic, partition, 0, RECORDS) for topic in TOPICS for partition in range(PARTITIONS)]

    def seconds() -> float:
        began = time.monotonic()
        times = first_times(mock_cluster, "test", ranges)
        assert times.keys() == {TopicPartition(slice_.topic, slice_.partition) for slice_ in ranges}
        return time.monotonic() - began

    # It takes milliseconds, where librdkafka's own backoff made six of seven calls take a second or more.
    _, second_best, *_ = sorted(seconds() for _ in range(7))
    assert second_best < 0.9
