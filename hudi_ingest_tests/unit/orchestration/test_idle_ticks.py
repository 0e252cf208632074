"""A tick that has nothing to do makes up for what a commit could not do any more, on librdkafka's mock cluster."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from confluent_kafka import Producer
from dagster import DagsterInstance, SkipReason

from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition, Watermarks
from hudi_ingest.orchestration.coordinator.tick import Tick
from hudi_ingest.transaction.plan.planning import Situation
from hudi_ingest_tests.support.pipeline_files import Write, load

SOURCE = TopicPartition("orders", 0)


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
