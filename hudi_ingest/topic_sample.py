"""The first records of a pipeline's topics, for a look at them: values with their places. No offset is committed."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from hudi_ingest.config import KafkaSource
from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.kafka import KafkaCluster, librdkafka_options
from hudi_ingest.model import TopicPartition, Watermarks

SAMPLE_BYTES = 64 * 1024 * 1024
_POLL_SECONDS = 0.2
_client_logger = logging.getLogger("librdkafka")


def first_values(source: KafkaSource, count: int) -> list[tuple[str, bytes]]:
    """The values of up to `count` records, from the earliest offsets that the broker has, as many of each partition; each
    with its `topic:partition:offset`. Tombstones have none, and it ends early at SAMPLE_BYTES.

    Raises KafkaUnreachable, KafkaRefused, TopicMissing.
    """
    cluster = KafkaCluster(source)
    partitions = [each for topic in cluster.topics().values() for each in topic.partitions]
    marks = cluster.watermarks(partitions)
    filled = {each: found for each, found in sorted(marks.items()) if found.begin < found.end}
    if not filled:
        return []
    options = {
        **librdkafka_options(source),
        "group.id": "hudi-ingest.sample",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    consumer = Consumer(options, logger=_client_logger)
    try:
        return _consume(consumer, source, filled, -(-count // len(filled)))
    finally:
        consumer.close()


def _consume(
    consumer: Any, source: KafkaSource, marks: Mapping[TopicPartition, Watermarks], share: int
) -> list[tuple[str, bytes]]:
    left = dict.fromkeys(marks, share)
    found: list[tuple[str, bytes]] = []
    size = 0
    consumer.assign([KafkaTopicPartition(each.topic, each.partition, marks[each].begin) for each in marks])
    deadline = time.monotonic() + source.request_timeout_seconds
    while left and size < SAMPLE_BYTES:
        messages = consumer.consume(min(500, sum(left.values())), _POLL_SECONDS)
        if not messages and time.monotonic() > deadline:
            raise KafkaUnreachable(
                f"the first records of {', '.join(map(str, left))} could not be read at Kafka {source.bootstrap_servers} "
                f"within {source.request_timeout_seconds:g} s. Check that the broker runs and answers consumers."
            )
        for message in messages:
            deadline = time.monotonic() + source.request_timeout_seconds
            partition = TopicPartition(message.topic(), message.partition())
            if _is_end(message.error(), source):
                _leave(consumer, left, partition)
            elif partition in left:
                if message.value() is not None:
                    found.append((f"{partition}:{message.offset()}", message.value()))
                    size += len(message.value())
                left[partition] -= 1
                if not left[partition]:
                    _leave(consumer, left, partition)
    return found


def _is_end(error: KafkaError | None, source: KafkaSource) -> bool:
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaUnreachable(
        f"the first records could not be read at Kafka {source.bootstrap_servers}: {error.str()}. Check that the broker "
        "runs, and that this login may read the topics."
    ) from KafkaException(error)


def _leave(consumer: Any, left: dict[TopicPartition, int], partition: TopicPartition) -> None:
    if left.pop(partition, None) is not None:
        consumer.incremental_unassign([KafkaTopicPartition(partition.topic, partition.partition)])
