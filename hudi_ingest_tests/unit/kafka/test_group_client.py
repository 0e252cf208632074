"""A group's coordinator that hangs, played by librdkafka's own broker in a process that is stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from hudi_ingest.exceptions import IngestError
from hudi_ingest.kafka.admin_clients import AdminClients
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest_tests.support.waiting import suspend, wait_for

FIRST = TopicPartition("orders", 0)
BROKER = """
import sys
from confluent_kafka import Producer
broker = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
broker.produce("orders", b"")
assert broker.flush(300) == 0
(found,) = broker.list_topics(timeout=300).brokers.values()
print(f"{found.host}:{found.port}", flush=True)
sys.stdin.read()
"""


@contextmanager
def broker() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", BROKER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_r8_a_coordinator_that_hangs_holds_nothing_up_and_the_group_is_set_once_it_is_back() -> None:
    with broker() as (process, address):
        source = KafkaSource(bootstrap_servers=address, topics=("orders",), request_timeout_seconds=300)
        cluster = KafkaCluster(source)
        assert cluster.group_offsets("g", [FIRST]) == {}
        cluster.commit_group_offsets("g", {FIRST: 5, TopicPartition("gone", 0): 1})
        assert cluster.group_offsets("g", [FIRST]) == {FIRST: 5}

        hurried = AdminClients(source.model_copy(update={"request_timeout_seconds": 5.0}))
        with pytest.raises(KafkaException, match="Timed out"), hurried.of_group("g") as client:
            client.committed([Place("orders", 0)])
            suspend(psutil.Process(process.pid))
            client.commit([Place("orders", 0, 7)])
        psutil.Process(process.pid).resume()
        wait_for(
            lambda: all(thread.name != "close a consumer" for thread in threading.enumerate()), "its client is closed"
        )
        cluster.commit_group_offsets("g", {FIRST: 8})
        assert cluster.group_offsets("g", [FIRST]) == {FIRST: 8}


@pytest.mark.parametrize(
    ("code", "raises"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, True), (KafkaError.UNKNOWN_TOPIC_OR_PART, False)]
)
def test_an_offset_that_the_coordinator_refuses_is_not_taken_for_set(code: int, raises: bool) -> None:
    """The answer as a whole is none of an error: each partition has its own."""
    refused = SimpleNamespace(topic="orders", partition=0, error=KafkaError(code))

    @contextmanager
    def of_group(group: str) -> Iterator[Any]:
        yield SimpleNamespace(commit=lambda places: [SimpleNamespace(topic="orders", partition=1, error=None), refused])

    clients: Any = SimpleNamespace(of_group=of_group, trouble=SimpleNamespace(refusal=None, all_down=False))
    cluster = KafkaCluster(KafkaSource(bootstrap_servers="b:1", topics=("orders",)), clients)
    if raises:
        with pytest.raises(IngestError, match="orders:0"):
            cluster.commit_group_offsets("g", {FIRST: 5, TopicPartition("orders", 1): 1})
    else:
        cluster.commit_group_offsets("g", {FIRST: 5, TopicPartition("orders", 1): 1})
