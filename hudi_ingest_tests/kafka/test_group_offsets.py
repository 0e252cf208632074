"""The consumer group's offsets on a broker that has never had a group."""

from __future__ import annotations

from pathlib import Path

import pytest

from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.local.broker import BrokerSettings, create_topic, start_broker
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest_tests.support.java import QUICK, java_options

pytestmark = pytest.mark.kafka


def test_a_group_that_is_not_there_has_no_offsets(tmp_path: Path) -> None:
    settings = BrokerSettings(tmp_path, free_port(), free_port())
    with java_options(QUICK):
        broker = start_broker(settings, lambda line: None)
    try:
        create_topic(settings.bootstrap, "orders", 1)
        # Its first group makes a young broker create a topic of fifty partitions, which takes a busy machine its time.
        source = KafkaSource(bootstrap_servers=settings.bootstrap, topics=("orders",), request_timeout_seconds=300)
        cluster = KafkaCluster(source)
        first, gone = TopicPartition("orders", 0), TopicPartition("gone", 0)
        assert cluster.group_offsets("nobody", [first]) == {}
        cluster.commit_group_offsets("somebody", {first: 3, gone: 1})
        cluster.commit_group_offsets("somebody", {gone: 1})
        assert cluster.group_offsets("somebody", [first, gone]) == {first: 3}
        assert cluster.group_offsets("nobody", [first]) == {}
    finally:
        stop([broker], grace_seconds=0)
