"""Fill the loads' topics. Only reading is measured, so writing is fast and checked, but not timed."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from benchmarks.loads import Load
from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import wait_until
from hudi_ingest.local.progress import Report
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource

_FLUSH_SECONDS = 120
_ASK_SECONDS = 30
_TELL_SECONDS = 5.0
_QUEUED_RECORDS = 200_000
_ROOM_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Produced:
    """A filled topic. `value_bytes` is the sum of its values' lengths, without Kafka's own bytes and compression."""

    records: int
    value_bytes: int
    seconds: float


def produce(load: Load, bootstrap_servers: str, report: Report) -> Produced:
    """Create the load's topic and fill it, compressed with lz4. Raises KafkaUnreachable unless the broker then has exactly the
    load's records, and EnvironmentProblem when the topic exists with another number of partitions."""
    create(load, bootstrap_servers)
    return append(load, bootstrap_servers, report)


def create(load: Load, bootstrap_servers: str) -> None:
    """Create the load's topic, empty. Raises EnvironmentProblem."""
    create_topic(bootstrap_servers, load.topic, len(load.counts), {"retention.ms": "-1"})
    # A newly elected leader may not know yet that it is one.
    wait_until(
        lambda: _tells_offsets(bootstrap_servers, load),
        what=f"the broker at {bootstrap_servers} tells the offsets of topic {load.topic}",
        timeout_seconds=_ASK_SECONDS,
    )


def _tells_offsets(bootstrap_servers: str, load: Load) -> bool:
    try:
        topic_size(bootstrap_servers, load)
    except KafkaUnreachable:
        return False
    return True


def append(load: Load, bootstrap_servers: str, report: Report) -> Produced:
    """Produce the load's records to its topic once more. Raises KafkaUnreachable unless the broker has accepted all of them."""
    before = topic_size(bootstrap_servers, load)
    began = reported_at = time.monotonic()
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": _QUEUED_RECORDS,
            "queue.buffering.max.kbytes": 256 * 1024,
            "error_cb": lambda error: errors.append(error.str()),
            "log_level": 0,
        }
    )
    records = value_bytes = 0
    for partition, values in load.blocks():
        _send(producer, load.topic, partition, [{"value": value} for value in values.to_pylist()])
        records += len(values)
        value_bytes += pc.sum(pc.binary_length(values)).as_py()
        if time.monotonic() - reported_at > _TELL_SECONDS:
            reported_at = time.monotonic()
            report(f"{load.name}: {records:,} of {load.records:,} records produced")
    unacknowledged = producer.flush(_FLUSH_SECONDS)
    added = topic_size(bootstrap_servers, load) - before
    if unacknowledged or added != load.records:
        raise KafkaUnreachable(
            f"topic {load.topic} at {bootstrap_servers} got {added:,} of {load.records:,} records "
            f"({'; '.join(errors[-3:]) or f'{unacknowledged} not acknowledged'}). See the broker's log, and start the benchmark again."
        )
    return Produced(records, value_bytes, time.monotonic() - began)


def topic_size(bootstrap_servers: str, load: Load) -> int:
    """Count the offsets in the load's topic. Raises KafkaUnreachable."""
    source = KafkaSource(
        bootstrap_servers=bootstrap_servers, topics=(load.topic,), request_timeout_seconds=_ASK_SECONDS
    )
    sources = [TopicPartition(load.topic, number) for number in range(len(load.counts))]
    return sum(marks.end - marks.begin for marks in KafkaCluster(source).watermarks(sources).values())


def delete(load: Load, bootstrap_servers: str) -> None:
    """Delete the topic to free disk space. Raises KafkaUnreachable."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        # The client must live until it has the answer.
        client.delete_topics([load.topic])[load.topic].result(_ASK_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaUnreachable(
                f"topic {load.topic} at {bootstrap_servers} could not be deleted: {error}. See the broker's log."
            ) from error


def _send(producer: Producer, topic: str, partition: int, messages: list[dict[str, bytes]]) -> None:
    """Queue all messages, waiting while the queue is full."""
    while True:
        queued = producer.produce_batch(topic, messages, partition=partition)
        producer.poll(0)
        if queued == len(messages):
            return
        # The client marks messages that did not fit into its queue.
        messages = [{"value": message["value"]} for message in messages if "_error" in message]
        producer.poll(_ROOM_SECONDS)
