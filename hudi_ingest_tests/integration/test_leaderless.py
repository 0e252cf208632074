"""P1, P2 and X4 on two real brokers: when one of them dies, the partitions of the other go on, and nothing is lost or doubled. A client
that has just worked with the dead one turns to the other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from dagster import DagsterInstance, SkipReason

from hudi_ingest.cli.views import status_view
from hudi_ingest.exceptions import LeaderMissing, NothingToDo
from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.kafka.admin_clients import AdminClients
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.local.broker import BrokerSettings, start_broker
from hudi_ingest.local.processes import LOOPBACK, ProcessRecord, free_port, stop, wait_until
from hudi_ingest.model.complete_through import BROKER_TIME_SECONDS, Mark, mark_of
from hudi_ingest.model.offsets import TopicPartition, Watermarks
from hudi_ingest.operations.health.judgement import UP_TO_DATE
from hudi_ingest.operations.requests.asked_ranges import in_time
from hudi_ingest.operations.requests.planning import known_state
from hudi_ingest.operations.state import full_state
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.support.ground import fresh_ground, make_pipeline
from hudi_ingest_tests.support.java import QUICK, java_options
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.ticks import tick

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@dataclass(frozen=True)
class Brokers:
    """`records`: their processes. `admin` asks the first."""

    first: BrokerSettings
    second: BrokerSettings
    records: list[ProcessRecord]
    admin: AdminClient

    def stop_second(self) -> None:
        stop([self.records.pop()], grace_seconds=0)

    def start_second(self) -> None:
        self.records.append(start_broker(self.second, lambda line: None))


@pytest.fixture(scope="module")
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """The first is the controller, too; tests may give it more settings."""
    tmp_path = tmp_path_factory.mktemp("brokers")
    first = BrokerSettings(tmp_path / "first", free_port(), free_port(), more=getattr(request, "param", {}))
    other = {
        "node.id": "2",
        "process.roles": "broker",
        "controller.quorum.voters": f"1@{LOOPBACK}:{first.controller_port}",
    }
    port = free_port()
    second = BrokerSettings(
        tmp_path / "second", port, free_port(), more={**other, "listeners": f"BROKER://{LOOPBACK}:{port}"}
    )
    records: list[ProcessRecord] = []
    with java_options(QUICK):
        try:
            records.append(start_broker(first, lambda line: None))
            second.home.mkdir()
            (second.home / "cluster-id").write_text((first.home / "cluster-id").read_text())
            records.append(start_broker(second, lambda line: None))
            admin = AdminClient({"bootstrap.servers": first.bootstrap})
            wait_until(
                lambda: len(admin.list_topics(timeout=120).brokers) == 2,
                what="two brokers are there",
                timeout_seconds=300,
            )
            yield Brokers(first, second, records, admin)
        finally:
            stop(records, grace_seconds=0)


def test_p1_p2_a_partition_without_a_leader_waits_and_the_others_go_on(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = brokers.admin
    with fresh_ground(brokers.first.bootstrap, tmp_path / "ground") as ground:
        topic = NewTopic(ground.name, num_partitions=2, replica_assignment=[[1], [2]])
        admin.create_topics([topic])[ground.name].result()
        # The second broker is the coordinator of all groups, too.
        groups = NewTopic("__consumer_offsets", num_partitions=4, replica_assignment=[[2]] * 4)
        admin.create_topics([groups])["__consumer_offsets"].result()
        pipeline = make_pipeline(ground)
        ground.send_rows(0, 5)
        ground.send_rows(1, 5)
        ground.run(pipeline)
        ground.send_rows(1, 4, start=5)

        brokers.stop_second()
        wait_until(
            lambda: admin.list_topics(ground.name, timeout=120).topics[ground.name].partitions[1].leader == -1,
            what="the second partition has lost its leader",
            timeout_seconds=300,
        )
        ground.send_rows(0, 3, start=5)
        # A coordinator is waited for as long as an answer.
        hasty = make_pipeline(ground, source={"request_timeout_seconds": 8})
        receipt = ground.run(hasty)
        assert receipt.rows == 3 and receipt.to_dict()["leaderless"] == [f"{ground.name}:1"]
        (warning,) = receipt.warnings
        assert f"consumer group {pipeline.group_id} was not updated" in warning
        situation = observe(hasty)
        status = full_state(seen(hasty, situation), ground.ledger)
        assert [(part.committed, part.end, part.lag) for part in status.partitions] == [(8, 8, 0), (5, None, None)]
        assert status.lag is None
        assert status_view(status)
        observation = seen(hasty, situation, status.transactions[0].began_at)
        findings = {finding.check: finding for finding in observation.findings_now}
        assert not findings[UP_TO_DATE].passed and f"{ground.name}:1 has no leader" in findings[UP_TO_DATE].text
        with pytest.raises(LeaderMissing, match=f"{ground.name}:1 has no leader"):
            in_time(hasty, situation, datetime(2026, 1, 1, tzinfo=timezone.utc), None)
        with pytest.raises(LeaderMissing, match=f"{ground.name}:1 has no leader"):
            known_state(seen(hasty, situation), [TopicPartition(ground.name, 1)])
        assert known_state(seen(hasty, situation), [TopicPartition(ground.name, 0)])
        with pytest.raises(NothingToDo, match=f"{ground.name}:1, which has no leader"):
            ground.plan(hasty)
        monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)
        with DagsterInstance.ephemeral() as instance:
            skipped = tick(hasty, instance, datetime.now(timezone.utc))
        assert isinstance(skipped, SkipReason)
        assert f"{ground.name}:1, which has no leader" in str(skipped.skip_message)
        assert f"consumer group {pipeline.group_id} has no coordinator" in str(skipped.skip_message)

        brokers.start_second()
        wait_until(lambda: not observe(pipeline).leaderless, what="the leader is back", timeout_seconds=300)
        receipt = ground.run(pipeline)
        assert receipt.rows == 4 and not receipt.warnings
        offsets = receipt.checkpoint.offsets
        assert KafkaCluster(pipeline.source).group_offsets(pipeline.group_id, offsets) == dict(offsets)
        rows = ground.rows().select(["_kafka_partition", "_kafka_offset", "id"]).to_pylist()
        read = {(row["_kafka_partition"], row["_kafka_offset"]): row["id"] for row in rows}
        assert len(rows) == len(read) == 17 and read == ground.produced


def test_a_dead_broker_that_a_client_knows_as_controller_and_leader_is_not_waited_for(brokers: Brokers) -> None:
    """The last test with brokers of these settings, one of which stays away."""
    admin = brokers.admin
    source = KafkaSource(bootstrap_servers=brokers.first.bootstrap, topics=("orders",), request_timeout_seconds=30)
    partition = TopicPartition("orders", 0)

    def leader() -> int:
        topic = admin.list_topics(timeout=120).topics.get("orders")
        return topic.partitions[0].leader if topic and topic.partitions else -1

    def knows_the_second() -> AdminClients | None:
        # KRaft names any live broker as the controller, each time another one.
        clients = AdminClients(source)
        KafkaCluster(source, clients).watermarks([partition])
        return clients if clients.admin.list_topics(timeout=120).controller_id == 2 else None

    admin.create_topics([NewTopic("orders", num_partitions=1, replica_assignment=[[2, 1]])])["orders"].result()
    wait_until(lambda: leader() == 2, what="the second broker leads the partition", timeout_seconds=300)
    describing, listing = (
        wait_until(
            knows_the_second,
            what="a client has been told that the second broker is the controller",
            timeout_seconds=300,
        )
        for _ in range(2)
    )
    brokers.stop_second()
    assert KafkaCluster(source, describing).topics()["orders"].partitions == (partition,)
    assert KafkaCluster(source, listing).watermarks([partition]) == {partition: Watermarks(0, 0)}


@pytest.mark.parametrize(
    "brokers", [{"replica.lag.time.max.ms": "900000", "broker.session.timeout.ms": "900000"}], indirect=True
)
def test_records_that_are_not_replicated_keep_a_table_from_being_complete(brokers: Brokers) -> None:
    first = brokers.first.bootstrap
    config = {"message.timestamp.type": "LogAppendTime"}
    topic = NewTopic("orders", num_partitions=2, replica_assignment=[[1, 2], [1, 2]], config=config)
    brokers.admin.create_topics([topic])["orders"].result()
    cluster = KafkaCluster(KafkaSource(bootstrap_servers=first, topics=("orders",)))
    partitions = [TopicPartition("orders", number) for number in range(2)]
    producer = Producer({"bootstrap.servers": first, "acks": 1})

    def send() -> None:
        producer.produce("orders", b"{}", partition=0)
        assert producer.flush(300) == 0

    def marks() -> list[Mark]:
        found = [mark_of(each, None) for each in cluster.watermarks(partitions).values()]
        return [mark for mark in found if mark is not None]

    def seconds_ago(mark: Mark) -> float:
        return time.time() - mark.since / 1000

    send()
    wait_until(lambda: marks()[0].offset == 1, what="the record is replicated", timeout_seconds=300)
    replicated_at = time.time()
    wait_until(lambda: time.time() > replicated_at + BROKER_TIME_SECONDS, what="it is old", timeout_seconds=60)
    written, empty = marks()
    assert written.offset == 1 and max(seconds_ago(written), seconds_ago(empty)) < 300, "nothing is hidden"
    os.kill(brokers.records[1].pid, signal.SIGSTOP)
    send()
    hidden_at = time.time()
    wait_until(lambda: time.time() > hidden_at + BROKER_TIME_SECONDS, what="it is old", timeout_seconds=60)
    assert marks()[0] == Mark(1, 0), "nothing is known of what is hidden"
    # The topic's settings may have been asked of the broker that is stopped; without them, nothing is known of any partition.
    wait_until(lambda: seconds_ago(marks()[1]) < 300, what="the other broker is asked", timeout_seconds=300)
    os.kill(brokers.records[1].pid, signal.SIGCONT)
    wait_until(lambda: marks()[0].offset == 2, what="the record is replicated", timeout_seconds=300)
    assert marks()[0].since > 0
