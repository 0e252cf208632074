"""Partitions that are added to a topic."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewPartitions

from hudi_ingest_tests.support.waiting import wait_for

_SECONDS = 300


def add_partitions(admin: AdminClient, topic: str, total: int) -> None:
    """Add partitions, so that there are `total`, and wait until clients are told of them: the broker answers before that."""
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(_SECONDS)
    wait_for(
        lambda: len(admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions) == total,
        f"{topic} has {total} partitions",
        _SECONDS,
    )
