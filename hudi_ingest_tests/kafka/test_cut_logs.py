"""P1, X4 on real brokers: a log that lost its tail is recognized by the record before a range, also once it has grown over its old end: after
an unclean election, by the leader epochs; and after the broker's restore from a copy, when it has given the same epochs once more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from hudi_ingest.exceptions import LogTruncated
from hudi_ingest.kafka.range_reader import Anchors, read_ranges
from hudi_ingest.kafka.records import compare_logs
from hudi_ingest.local.broker import BrokerSettings, create_topic, start_broker
from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, free_port, stop, wait_until
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest_tests.support.java import QUICK, java_options

pytestmark = [pytest.mark.kafka, pytest.mark.tier(3)]

SECONDS = 240.0
ZERO = TopicPartition("orders", 0)


def silent(_: str) -> None:
    pass


@pytest.fixture
def records() -> Iterator[list[ProcessRecord]]:
    """The brokers' processes, which end with the test."""
    found: list[ProcessRecord] = []
    with java_options(QUICK):
        yield found
    stop(found, grace_seconds=0)


def send(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce("orders", str(number).encode(), partition=0)
    assert producer.flush(SECONDS) == 0


def source_of(bootstrap: str) -> KafkaSource:
    return KafkaSource(bootstrap_servers=bootstrap, topics=("orders",), format="json", request_timeout_seconds=SECONDS)


def read(bootstrap: str, start: int, end: int, before: LastRecord | None = None) -> LastRecord:
    """Read the range after a record, and return its last."""
    slices = [Slice("orders", 0, start, end)]
    anchors = Anchors(slices, {ZERO: before} if before else {})
    found = [batch["offset"].to_pylist() for _, batch in read_ranges(source_of(bootstrap), "test", slices, (), anchors)]
    assert [offset for offsets in found for offset in offsets] == [*range(start, end)]
    return anchors.last[ZERO]


def test_p1_a_log_is_recognized_after_a_restart_and_not_after_the_restore_of_a_copy(
    tmp_path: Path, records: list[ProcessRecord]
) -> None:
    settings = BrokerSettings(tmp_path / "broker", free_port(), free_port(), heap_megabytes=256)
    records.append(start_broker(settings, silent))
    create_topic(settings.bootstrap, "orders", 1)
    send(settings.bootstrap, 30)
    thirty = read(settings.bootstrap, 0, 30)
    stop([records.pop()])
    shutil.copytree(settings.home, tmp_path / "copy")
    records.append(start_broker(settings, silent))
    send(settings.bootstrap, 20)
    fifty = read(settings.bootstrap, 30, 50, thirty)
    assert fifty.epoch > thirty.epoch >= 0, "whatever was read before the restart is still the same"
    stop([records.pop()], grace_seconds=0)
    shutil.rmtree(settings.home)
    shutil.copytree(tmp_path / "copy", settings.home)
    records.append(start_broker(settings, silent))
    send(settings.bootstrap, 25)
    another = read(settings.bootstrap, 50, 55)
    assert another.epoch == fifty.epoch, "the leader epochs are the same, so they show nothing"
    source = source_of(settings.bootstrap)
    assert compare_logs(source, "test", {ZERO: fifty}, SECONDS) == {ZERO: False}
    assert compare_logs(source, "test", {ZERO: thirty}, SECONDS) == {ZERO: True}
    with pytest.raises(LogTruncated, match="the records before offset 50 are no longer those that were read"):
        read(settings.bootstrap, 50, 55, fifty)
    # Whose last record was before the copy goes on.
    read(settings.bootstrap, 30, 55, thirty)


def test_p1_an_unclean_election_is_recognized_with_the_offset_where_the_logs_part(
    tmp_path: Path, records: list[ProcessRecord]
) -> None:
    unclean = {"unclean.leader.election.enable": "true", "unclean.leader.election.interval.ms": "500"}
    first = BrokerSettings(tmp_path / "1", free_port(), free_port(), heap_megabytes=256, more=unclean)
    records.append(start_broker(first, silent))
    others = []
    for number in (2, 3):
        port = free_port()
        more = {
            "node.id": str(number),
            "process.roles": "broker",
            "controller.quorum.voters": f"1@{LOOPBACK}:{first.controller_port}",
            "listeners": f"BROKER://{LOOPBACK}:{port}",
        }
        other = BrokerSettings(tmp_path / str(number), port, free_port(), heap_megabytes=256, more=more)
        other.home.mkdir()
        (other.home / "cluster-id").write_text((first.home / "cluster-id").read_text())
        records.append(start_broker(other, silent))
        others.append(other)
    admin = AdminClient({"bootstrap.servers": first.bootstrap})

    def until(what: str, leader: int, in_sync: int) -> None:
        def is_so() -> bool:
            state = admin.list_topics("orders", timeout=60).topics["orders"].partitions.get(0)
            return state is not None and state.leader == leader and len(state.isrs) == in_sync

        wait_until(is_so, what=what, timeout_seconds=SECONDS)

    wait_until(lambda: len(admin.list_topics(timeout=60).brokers) == 3, what="all are there", timeout_seconds=SECONDS)
    admin.create_topics([NewTopic("orders", num_partitions=1, replica_assignment=[[2, 3]])])["orders"].result()
    until("both replicas are in sync", 2, 2)
    send(first.bootstrap, 30)
    thirty = read(first.bootstrap, 0, 30)
    stop([records.pop()], grace_seconds=0)
    until("the second goes on alone", 2, 1)
    send(first.bootstrap, 20)
    fifty = read(first.bootstrap, 30, 50, thirty)
    stop([records.pop()], grace_seconds=0)
    records.append(start_broker(others[1], silent))
    until("the third leads, without the last twenty", 3, 1)
    send(first.bootstrap, 25)
    source = source_of(first.bootstrap)
    assert compare_logs(source, "test", {ZERO: fifty}, SECONDS) == {ZERO: 30}
    with pytest.raises(LogTruncated, match="the logs part at offset 30") as raised:
        read(first.bootstrap, 50, 55, fifty)
    assert raised.value.diverges_at == 30
    # The epochs show it where the record itself is not looked at.
    with pytest.raises(LogTruncated):
        read(first.bootstrap, 50, 55, LastRecord(50, 0, fifty.epoch))
    read(first.bootstrap, 30, 55, thirty)
