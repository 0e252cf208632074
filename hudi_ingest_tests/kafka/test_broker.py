"""The embedded broker, for real: it starts, keeps what it is given over a kill, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.local import broker
from hudi_ingest.local.broker import BrokerSettings, create_topic, properties, start_broker
from hudi_ingest.local.processes import ProcessRecord, free_port, is_alive, stop, wait_until
from hudi_ingest.model import offsets as model
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest_tests.support.java import QUICK, java_options

pytestmark = pytest.mark.kafka

DEADLINE_SECONDS = 240.0


def silent(_: str) -> None:
    pass


def settings_in(home: Path) -> BrokerSettings:
    return BrokerSettings(home, free_port(), free_port(), heap_megabytes=256)


def produce(bootstrap: str, topic: str, partition: int, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
    """The first `count` values of the partition; fewer when they do not come within the deadline."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


@pytest.fixture(scope="module", autouse=True)
def quick_compiler() -> Iterator[None]:
    """Each of these brokers lives for seconds."""
    with java_options(QUICK):
        yield


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerSettings, ProcessRecord]]:
    settings = settings_in(tmp_path_factory.mktemp("broker"))
    record = start_broker(settings, silent)
    yield settings, record
    stop([record])


def test_the_settings_are_for_one_node_on_the_loopback_interface(tmp_path: Path) -> None:
    text = properties(BrokerSettings(tmp_path / "a\\é", 9092, 9093))
    values = dict(line.split("=", 1) for line in text.splitlines())
    assert values["listeners"] == "BROKER://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert values["advertised.listeners"] == "BROKER://127.0.0.1:9092"
    assert values["process.roles"] == "broker,controller"
    assert values["auto.create.topics.enable"] == "false"
    assert values["group.initial.rebalance.delay.ms"] == "0"
    assert {value for key, value in values.items() if key.endswith((".replication.factor", ".min.isr"))} == {"1"}
    assert values["log.dirs"] == f"{tmp_path}/a\\\\\\u00e9/data"


@pytest.mark.tier(3)
def test_records_and_topics_outlive_a_kill_and_a_start_on_other_ports(tmp_path: Path) -> None:
    """And then, one that cannot start is told with its log and leaves nothing."""
    home = tmp_path / "home é"
    said: list[str] = []
    first, second = settings_in(home), settings_in(home)
    values = [f"value {n}".encode() for n in range(1000)]
    record = start_broker(first, said.append)
    try:
        create_topic(first.bootstrap, "kept", 3, {"retention.ms": "-1"})
        produce(first.bootstrap, "kept", 2, values)
        cluster = AdminClient({"bootstrap.servers": first.bootstrap}).list_topics(timeout=DEADLINE_SECONDS).cluster_id
        assert any(line.startswith("formatting") for line in said)
        os.kill(record.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(record), what="the broker is dead", timeout_seconds=DEADLINE_SECONDS)
        said.clear()
        record = start_broker(second, said.append)
        found = AdminClient({"bootstrap.servers": second.bootstrap}).list_topics(timeout=DEADLINE_SECONDS)
        assert found.cluster_id == cluster == (home / "cluster-id").read_text()
        assert len(found.topics["kept"].partitions) == 3
        assert consume(second.bootstrap, "kept", 2, len(values)) == values
    finally:
        stop([record])
    assert not is_alive(record) and not psutil.pid_exists(record.pid)
    assert not any(line.startswith("formatting") for line in said)

    meta = home / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    with pytest.raises(
        EnvironmentProblem, match=r"\) ended with exit code 1 before the embedded Kafka broker answers.*node"
    ) as caught:
        start_broker(settings_in(home), silent)
    assert str(home / "broker.log") in str(caught.value)
    assert not [each for each in psutil.process_iter() if str(home / "server.properties") in _arguments(each)]


def test_a_group_that_is_not_there_has_no_offsets(running: tuple[BrokerSettings, ProcessRecord]) -> None:
    """The first of these tests that has a group."""
    settings, _ = running
    create_topic(settings.bootstrap, "orders", 1)
    # Its first group makes a young broker create a topic, which takes a busy machine its time.
    cluster = KafkaCluster(
        KafkaSource(bootstrap_servers=settings.bootstrap, topics=("orders",), request_timeout_seconds=300)
    )
    first, gone = (model.TopicPartition(name, 0) for name in ("orders", "gone"))
    assert cluster.group_offsets("nobody", [first]) == {}
    cluster.commit_group_offsets("somebody", {first: 3, gone: 1})
    cluster.commit_group_offsets("somebody", {gone: 1})
    assert cluster.group_offsets("somebody", [first, gone]) == {first: 3}
    assert cluster.group_offsets("nobody", [first]) == {}


def test_a_transaction_commits(running: tuple[BrokerSettings, ProcessRecord]) -> None:
    settings, _ = running
    create_topic(settings.bootstrap, "transactional", 1)
    producer = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": "test", "log_level": 0})
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce("transactional", b"x", partition=0)
    producer.commit_transaction(DEADLINE_SECONDS)
    assert consume(settings.bootstrap, "transactional", 0, 1) == [b"x"]


def test_creating_a_topic_again_is_fine(running: tuple[BrokerSettings, ProcessRecord]) -> None:
    settings, _ = running
    for _ in range(2):
        create_topic(settings.bootstrap, "again", 4)
    found = (
        AdminClient({"bootstrap.servers": settings.bootstrap})
        .list_topics("again", timeout=DEADLINE_SECONDS)
        .topics["again"]
    )
    assert sorted(found.partitions) == [0, 1, 2, 3]
    assert all(each.leader == 1 for each in found.partitions.values())


def test_a_topic_with_other_partitions_is_told(running: tuple[BrokerSettings, ProcessRecord]) -> None:
    settings, _ = running
    create_topic(settings.bootstrap, "narrow", 1)
    with pytest.raises(EnvironmentProblem, match="already exists with 1 partition instead of 2"):
        create_topic(settings.bootstrap, "narrow", 2)


def test_a_topic_that_the_broker_refuses(running: tuple[BrokerSettings, ProcessRecord]) -> None:
    settings, _ = running
    with pytest.raises(EnvironmentProblem, match=r"did not create topic a/b .*invalid"):
        create_topic(settings.bootstrap, "a/b", 1)


def test_a_topic_on_a_broker_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(broker, "REACH_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(EnvironmentProblem, match=r"No broker answered at 127\.0\.0\.1:"):
        create_topic(f"127.0.0.1:{free_port()}", "a", 1)
    assert capfd.readouterr().err == ""


def test_a_taken_port_is_told_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = BrokerSettings(tmp_path / "home", server.getsockname()[1], free_port())
        with pytest.raises(EnvironmentProblem, match="needed for the embedded Kafka broker, is in use"):
            start_broker(settings, silent)
    assert not (tmp_path / "home").exists()


def test_a_home_in_use_is_told_and_its_broker_stays_unharmed(running: tuple[BrokerSettings, ProcessRecord]) -> None:
    settings, record = running
    create_topic(settings.bootstrap, "unharmed", 1)
    second = BrokerSettings(settings.home, free_port(), free_port(), heap_megabytes=256)
    with pytest.raises(EnvironmentProblem, match="A Kafka broker is running or starting"):
        start_broker(second, silent)
    assert f":{settings.port}," in (settings.home / "server.properties").read_text()
    assert is_alive(record)
    produce(settings.bootstrap, "unharmed", 0, [b"x"])
    assert consume(settings.bootstrap, "unharmed", 0, 1) == [b"x"]


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
