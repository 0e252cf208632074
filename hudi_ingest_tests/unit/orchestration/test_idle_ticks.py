"""A tick that has nothing to do makes up for what a commit could not do any more, on librdkafka's mock cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from dagster import DagsterInstance, SkipReason

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster, Topic
from hudi_ingest.kafka.shared_clusters import ClusterSnapshot
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition, Watermarks
from hudi_ingest.orchestration.coordinator import quiet_ticks
from hudi_ingest.orchestration.coordinator.quiet_ticks import moved, remember_idle
from hudi_ingest.orchestration.coordinator.tick import Tick
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.pipeline_files import Write, load

SOURCE = TopicPartition("orders", 0)


def test_a_broker_is_asked_once_which_of_many_topics_moved(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {TopicPartition(name, 0): 1 for name in ("a", "b", "c")}
    asked = list[int]()

    def answer(sources: Sequence[KafkaSource], seconds: float) -> ClusterSnapshot:
        asked.append(len(sources))
        if sources[0].bootstrap_servers == "away:9092":
            raise KafkaUnreachable("away")
        topics = {each.topic: Topic("id", (each,)) for each in ends}
        return ClusterSnapshot(topics, {each: Watermarks(0, end) for each, end in ends.items()})

    def pipeline(name: str, servers: str = "b:9092") -> Pipeline:
        changes: dict[str, Any] = {"source__topics": [name], "table__base_path": f"/data/{name}"}
        return load(write, name=name, source__bootstrap_servers=servers, **changes)

    monkeypatch.setattr(quiet_ticks, "snapshot_of_ends", answer)
    pipelines = [pipeline("a"), pipeline("b"), pipeline("c")]
    assert moved(pipelines) == frozenset()
    ends[TopicPartition("b", 0)] += 1
    assert moved(pipelines) == {"b"}
    assert moved(pipelines) == {"b"}, "until it has been looked at"
    assert asked == [3, 3, 3]
    looked_at = Situation(CommittedState(exists=False), {TopicPartition("b", 0): Watermarks(0, 2)}, {}, {})
    remember_idle(pipelines[1], looked_at, "nothing new")
    assert moved(pipelines) == frozenset()
    ends[TopicPartition("b", 0)] += 1
    ends[TopicPartition("c", 0)] += 1
    assert moved(pipelines) == {"b", "c"}
    assert moved([pipeline("away", "away:9092"), *pipelines]) == {"b", "c"}, "a cluster that is away hides no other"
    assert moved([pipeline("not_there"), *pipelines]) == {"b", "c"}


def test_p5_the_group_is_set_by_an_idle_tick_if_the_broker_died_right_behind_a_commit(
    write: Write, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    producer.produce("orders", b"{}", partition=0)
    assert producer.flush(120) == 0
    (broker,) = producer.list_topics(timeout=120).brokers.values()
    pipeline = load(
        write,
        source__bootstrap_servers=f"{broker.host}:{broker.port}",
        table__base_path=str(tmp_path / "table"),
    )
    committed = CommittedState(exists=True, checkpoint=Checkpoint(1, "t1", {SOURCE: 1}))
    situation = Situation(committed, {SOURCE: Watermarks(0, 1)}, {}, {})
    cluster = KafkaCluster(pipeline.source)
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger, DagsterInstance.ephemeral() as instance:
        tick = Tick(instance, ledger, PipelineTable(pipeline), datetime.now(timezone.utc))
        assert cluster.group_offsets(pipeline.group_id, [SOURCE]) == {}
        assert isinstance(tick.next_run(situation, cluster, 0.0), SkipReason)
    assert cluster.group_offsets(pipeline.group_id, [SOURCE]) == {SOURCE: 1}
