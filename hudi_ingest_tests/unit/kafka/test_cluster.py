"""What the admin client does while a partition has no leader."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from hudi_ingest.exceptions import KafkaUnreachable, LeaderMissing
from hudi_ingest.kafka import cluster as kafka
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.model.complete_through import Mark, mark_of
from hudi_ingest.model.offsets import TopicPartition, Watermarks
from hudi_ingest.pipeline.sections.source import KafkaSource


class _Admin:
    """A broker whose partitions, or those with these numbers, have no leader for the first so many requests: a real one cannot be
    made to."""

    def __init__(self, without_leader: int, partitions: tuple[int, ...] = (0, 1, 2)) -> None:
        self._left = without_leader
        self._partitions = partitions
        self.stamped = ["LogAppendTime"]
        """The answers about the topic of this name, the last one for ever; "": none comes."""

    def list_offsets(self, wanted: Any, **more: Any) -> dict[Any, Future[Any]]:
        self._left -= 1
        answers: dict[Any, Future[Any]] = {each: Future() for each in wanted}
        for partition, answer in answers.items():
            if self._left >= 0 and partition.partition in self._partitions:
                answer.set_exception(KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)))
            else:
                answer.set_result(SimpleNamespace(offset=self._offset(more["isolation_level"])))
        return answers

    def _offset(self, isolation: IsolationLevel) -> int:
        return 7

    def describe_configs(self, resources: Any, **more: Any) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {each: Future() for each in resources}
        for topic, answer in answers.items():
            if topic.name == "secret":
                answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
                continue
            kind = "CreateTime"
            if topic.name == "stamped":
                kind = self.stamped.pop(0) if len(self.stamped) > 1 else self.stamped[0]
            if kind:
                answer.set_result({"message.timestamp.type": SimpleNamespace(value=kind)})
        return answers

    def poll(self, seconds: float) -> None:
        pass


def test_a_partition_whose_leader_is_being_chosen_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_AGAIN_SECONDS", 0)
    cluster = KafkaCluster(KafkaSource(bootstrap_servers="a:1,b:2", topics=("orders",), request_timeout_seconds=0.2))
    monkeypatch.setitem(cluster._clients.__dict__, "admin", _Admin(3))
    partition = TopicPartition("orders", 0)
    assert cluster.watermarks([partition]) == {partition: Watermarks(7, 7)}
    monkeypatch.setitem(cluster._clients.__dict__, "admin", _Admin(10**9))
    with pytest.raises(
        KafkaUnreachable,
        match=r"could not read offsets at Kafka .*: orders:0: .* has no leader.* --unavailable-partitions",
    ) as raised:
        cluster.watermarks([partition])
    assert "Check source.bootstrap_servers" not in str(raised.value)


def test_partitions_without_a_leader_are_left_out_where_the_others_can_do_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "_AGAIN_SECONDS", 0)
    monkeypatch.setattr(kafka, "_ELECTION_SECONDS", 0.1)
    cluster = KafkaCluster(KafkaSource(bootstrap_servers="a:1,b:2", topics=("orders",), request_timeout_seconds=1))
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    monkeypatch.setitem(cluster._clients.__dict__, "admin", _Admin(3, (1,)))
    assert cluster.led_watermarks([first, second]) == {first: Watermarks(7, 7), second: Watermarks(7, 7)}
    monkeypatch.setitem(cluster._clients.__dict__, "admin", _Admin(10**9, (1,)))
    assert cluster.led_watermarks([first, second]) == {first: Watermarks(7, 7)}
    with pytest.raises(LeaderMissing, match="orders:1: ") as raised:
        cluster.watermarks([first, second])
    assert (raised.value.topic, raised.value.partition) == ("orders", 1)


def test_watermarks_say_when_they_were_asked_and_whose_timestamps_the_records_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "_kinds", {})
    source = KafkaSource(bootstrap_servers="a:1", topics=("stamped", "orders", "secret"))
    partitions = [TopicPartition(topic, 0) for topic in source.topics]
    for declared in (source, source.model_copy(update={"lateness_seconds": 5.0})):
        cluster = KafkaCluster(declared)
        monkeypatch.setitem(cluster._clients.__dict__, "admin", _Admin(0))
        before = int(time.time() * 1000)
        marks = cluster.watermarks(partitions)
        each = cluster.each_watermarks(partitions)
        for found in (*marks.values(), *each.values()):
            assert isinstance(found, Watermarks)
            assert (found.written, found.undecided) == (7, 0)
            assert found.asked_at is not None and found.asked_at >= before
        # Nobody needs to know it where the file says how late records are.
        stamped = [True, False, False] if declared is source else [False] * 3
        assert [marks[partition].broker_time for partition in partitions] == stamped
        assert not cluster._clients.has_failed, "a refusal is an answer"


def test_timestamps_are_the_brokers_if_they_are_so_before_and_after_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_kinds", {})
    partition = TopicPartition("stamped", 0)
    cluster = KafkaCluster(KafkaSource(bootstrap_servers="a:1", topics=("stamped",), request_timeout_seconds=0.1))
    admin = _Admin(0)
    monkeypatch.setitem(cluster._clients.__dict__, "admin", admin)

    def looked(*answers: str) -> list[Mark | None]:
        found = []
        for look in (cluster.watermarks, cluster.each_watermarks):
            admin.stamped = [*answers]
            marks = look([partition])[partition]
            assert isinstance(marks, Watermarks)
            found.append(mark_of(marks, None))
            kafka._kinds.clear()
        return found

    for marks in looked("LogAppendTime", "LogAppendTime"):
        assert marks is not None and marks.since > 0
    assert looked("LogAppendTime", "CreateTime") == [None, None]
    assert looked("CreateTime", "LogAppendTime") == [None, None]
    assert looked("LogAppendTime", "") == [Mark(7, 0), Mark(7, 0)], "what is known of the partition stays"


def test_altered_timestamps_are_noticed_by_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_kinds", {})
    partition = TopicPartition("stamped", 0)
    cluster = KafkaCluster(KafkaSource(bootstrap_servers="a:1", topics=("stamped",)))
    admin = _Admin(0)
    monkeypatch.setitem(cluster._clients.__dict__, "admin", admin)
    assert cluster.watermarks([partition])[partition].broker_time
    admin.stamped = ["CreateTime"]
    assert not cluster.watermarks([partition])[partition].broker_time
    admin.stamped = ["LogAppendTime"]
    assert not cluster.watermarks([partition])[partition].broker_time, "which may wait"
    monkeypatch.setattr(kafka, "_PRODUCERS_SECONDS", 0)
    assert cluster.watermarks([partition])[partition].broker_time


class _OpenTransaction(_Admin):
    """Two records behind the last stable offset."""

    def _offset(self, isolation: IsolationLevel) -> int:
        return 9 if isolation is IsolationLevel.READ_UNCOMMITTED else 7


def test_p1_a_partition_ends_with_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = KafkaCluster(KafkaSource(bootstrap_servers="a:1", topics=("orders",)))
    monkeypatch.setitem(cluster._clients.__dict__, "admin", _OpenTransaction(0))
    partition = TopicPartition("orders", 0)
    for marks in (cluster.watermarks([partition]), cluster.each_watermarks([partition])):
        assert isinstance(found := marks[partition], Watermarks)
        assert (found.end, found.written) == (7, 9)
    assert cluster.each_end([partition]) == {partition: Watermarks(7, 7)}
