"""Through which Kafka timestamp a table is complete, on a real broker: idle and stopped partitions, open transactions, late records."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from dagster import AssetKey, DagsterInstance, RunRequest

from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka import cluster
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.broker import create_topic
from hudi_ingest.model.complete_through import BROKER_TIME_SECONDS
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.operations.health.judgement import NOTHING_LATE
from hudi_ingest.operations.observation import look_at
from hudi_ingest.operations.state import PipelineState, state_now
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.transactions import transaction_job
from hudi_ingest_tests.support.waiting import wait_for

TYPE = "message.timestamp.type"
pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def status_of(ground: Ground, pipeline: Pipeline) -> PipelineState:
    return state_now(pipeline, ground.ledger)


def told(pipeline: Pipeline) -> dict[str, datetime | None]:
    """What the newest commit says, by partition; the table's own is under ""."""
    metadata = PipelineTable(pipeline).committed().commits[0].metadata[pipeline.complete_key]
    content = json.loads(metadata)
    times = {"": content["complete_through"], **content["partitions"]}
    return {name: datetime.fromisoformat(text) if text else None for name, text in times.items()}


@pytest.mark.tier(1)
def test_s17_idle_partitions_advance_and_stopped_ones_and_open_transactions_hold_the_table_back(ground: Ground) -> None:
    create_topic(ground.bootstrap_servers, ground.name, 3, {TYPE: "LogAppendTime"})
    pipeline = make_pipeline(ground)
    stopped, idle = TopicPartition(ground.name, 0), TopicPartition(ground.name, 2)
    for partition in (0, 1):
        ground.send_rows(partition, 10)
    before = time.time() - BROKER_TIME_SECONDS
    ground.run(pipeline)
    times = told(pipeline)
    assert len(times) == 4
    committed = times[""]
    assert committed is not None
    assert all(found == committed for found in times.values()), "the partition without a record as well"
    # Times are whole milliseconds.
    assert before - 0.001 <= committed.timestamp() <= time.time() - BROKER_TIME_SECONDS

    def advances() -> bool:
        found = status_of(ground, pipeline).complete_through
        return found is not None and found > committed

    wait_for(advances, "an idle table is complete through later times without a commit")
    assert status_of(ground, pipeline).holding_back == ()
    producer = ground.transactional_producer()
    producer.begin_transaction()
    producer.produce(ground.name, b'{"id": "open", "n": 1, "dt": "d"}', partition=2)
    assert producer.flush(300) == 0
    wait_for(lambda: status_of(ground, pipeline).holding_back == (idle,), "the open transaction holds the table back")
    assert status_of(ground, pipeline).complete_through == committed
    producer.commit_transaction()
    wait_for(lambda: bool(observe(pipeline).lag.total), "the transaction can be read")
    assert ground.run(pipeline).rows == 1
    later = told(pipeline)[""]
    assert later is not None and later > committed
    ground.send_rows(0, 10, 10)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    for done in admin.delete_records([KafkaTopicPartition(ground.name, 0, 15)]).values():
        done.result(300)
    wait_for(lambda: status_of(ground, pipeline).holding_back == (stopped,), "the stopped partition holds it back")
    assert status_of(ground, pipeline).complete_through == later


def test_records_that_are_later_than_declared_are_committed_counted_and_shown(ground: Ground, topic: str) -> None:
    undeclared = make_pipeline(ground)
    ground.send_rows(0, 5)
    ground.run(undeclared)
    status = status_of(ground, undeclared)
    assert (status.complete_through, status.observed_through is not None) == (None, True), "producers set the times"
    pipeline = make_pipeline(ground, source={"lateness_seconds": 60})
    ground.send_rows(0, 5, 5)
    assert ground.run(pipeline).reports[0].times.late == 0
    complete = told(pipeline)[""]
    assert complete is not None
    early = int(datetime(2026, 1, 31, tzinfo=timezone.utc).timestamp() * 1000)
    ground.producer.produce(ground.name, b'{"id": "late", "n": 1, "dt": "d"}', partition=0, timestamp=early)
    assert ground.producer.flush(300) == 0
    receipt = ground.run(pipeline)
    report = next(each for each in receipt.reports if each.slice.count)
    assert (receipt.rows, report.times.late, report.times.earliest_late) == (1, 1, early)
    findings = {finding.check: finding for finding in look_at(pipeline).findings_on_commits}
    assert not findings[NOTHING_LATE].passed
    assert "2026-01-31 00:00:00 UTC" in findings[NOTHING_LATE].text


def test_dagster_gets_each_complete_hour_once(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    from hudi_ingest.orchestration.definitions import build_definitions
    from hudi_ingest_tests.support.ticks import tick

    ground.set_environment(monkeypatch)
    create_topic(ground.bootstrap_servers, ground.name, 2, {TYPE: "LogAppendTime"})
    pipeline = make_pipeline(ground, asset={"complete": "hourly"})
    ground.send_rows(0, 5)
    with DagsterInstance.ephemeral() as instance:
        request = tick(pipeline, instance, datetime.now(timezone.utc))
        assert isinstance(request, RunRequest)
        definitions = build_definitions([pipeline])
        job = transaction_job(definitions, pipeline.name)
        done = job.execute_in_process(run_config=request.run_config, tags=request.tags, instance=instance)
        assert done.success
        event = instance.get_latest_materialization_event(AssetKey([pipeline.name]))
        assert event is not None and event.asset_materialization is not None
        assert "complete through" in event.asset_materialization.metadata
        began = datetime.now(timezone.utc) - timedelta(seconds=BROKER_TIME_SECONDS)
        began = began.replace(minute=0, second=0, microsecond=0)
        for _ in range(3):
            tick(pipeline, instance, datetime.now(timezone.utc))
        records = instance.fetch_materializations(AssetKey([f"{pipeline.name}_hours"]), limit=99).records
    hours = [str(record.partition_key) for record in reversed(records)]
    assert hours == sorted(set(hours)), "each once, and in order"
    # While this ran, another hour may have ended.
    assert f"{began - timedelta(hours=1):%Y-%m-%d-%H:00}" in hours
    assert max(hours) < f"{datetime.now(timezone.utc):%Y-%m-%d-%H:00}"


BROKERS, PRODUCERS = {TYPE: "LogAppendTime"}, {TYPE: "CreateTime"}
EARLY = datetime(2026, 1, 31, tzinfo=timezone.utc)


def send_early(ground: Ground) -> None:
    """Produces a record with a timestamp of long ago, which only a topic with the producers' timestamps keeps."""
    value = json.dumps({"id": "early", "n": 1, "dt": "d"})
    ground.producer.produce(ground.name, value, partition=1, timestamp=round(EARLY.timestamp() * 1000))
    assert ground.producer.flush(300) == 0


def test_a_topic_that_is_made_again_with_the_producers_timestamps_is_complete_no_longer(ground: Ground) -> None:
    create_topic(ground.bootstrap_servers, ground.name, 2, BROKERS)
    pipeline = make_pipeline(ground, source={"on_data_loss": "skip_to_earliest"})
    ground.send_rows(0, 5)
    ground.run(pipeline)
    said = told(pipeline)[""]
    assert said is not None
    ground.make_again(2, PRODUCERS)
    send_early(ground)
    assert status_of(ground, pipeline).complete_through == said, "no later time, until the new topic is read"
    receipt = ground.run(pipeline)
    assert told(pipeline) == {"": None}
    assert (receipt.rows, sum(report.times.late for report in receipt.reports)) == (1, 1), "earlier than what was said"
    ground.send_rows(0, 5)
    ground.run(pipeline)
    assert told(pipeline) == {"": None}


def test_a_topic_that_is_made_again_with_the_brokers_timestamps_is_complete_from_then_on(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(ground.bootstrap_servers, ground.name, 2, PRODUCERS)
    pipeline = make_pipeline(ground, source={"on_data_loss": "skip_to_earliest"})
    send_early(ground)
    ground.run(pipeline)
    assert told(pipeline) == {"": None}
    ground.make_again(2, BROKERS)
    made_at = time.time() - BROKER_TIME_SECONDS
    ground.send_rows(0, 5)
    receipt = ground.run(pipeline)
    assert receipt.rows == 5
    assert told(pipeline) == {"": None}, (
        "the producers are believed to set the timestamps for a while, which claims nothing"
    )
    monkeypatch.setattr(cluster, "_PRODUCERS_SECONDS", 0)
    ground.send_rows(1, 5)
    receipt = ground.run(pipeline)
    times = told(pipeline)
    assert len(times) == 3 and times[""] is not None
    assert made_at - 0.001 <= times[""].timestamp() <= time.time() - BROKER_TIME_SECONDS
    assert sum(report.times.late for report in receipt.reports) == 0
    send_early(ground)
    assert sum(report.times.late for report in ground.run(pipeline).reports) == 0, (
        "the broker gave it a time of its own"
    )


def test_a_commit_says_nothing_of_a_topic_that_was_made_again_since_its_records_were_read(ground: Ground) -> None:
    create_topic(ground.bootstrap_servers, ground.name, 2, BROKERS)
    pipeline = make_pipeline(ground)
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    assert len(opened.plan.marks) == 2
    reports = protocol.write(opened, opened.plan.busy)
    ground.make_again(2, PRODUCERS)
    send_early(ground)
    assert protocol.commit(opened, reports).rows == 5
    assert told(pipeline) == {"": None}


def test_nothing_is_said_to_be_complete_once_producers_set_the_timestamps(ground: Ground) -> None:
    create_topic(ground.bootstrap_servers, ground.name, 2, {TYPE: "LogAppendTime"})
    pipeline = make_pipeline(ground)
    ground.send_rows(0, 5)
    ground.run(pipeline)
    assert told(pipeline)[""] is not None

    def alter(kind: str) -> None:
        entry = ConfigEntry(TYPE, kind, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, ground.name, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
        admin.incremental_alter_configs([resource])[resource].result(300)
        broker = KafkaCluster(pipeline.source)
        wait_for(lambda: broker.topic_settings(ground.name)[TYPE] == kind, f"the topic has {kind}")

    ground.send_rows(0, 5, 5)
    planned = ground.plan(pipeline)
    assert isinstance(planned, IngestPlan) and len(planned.marks) == 2
    alter("CreateTime")
    send_early(ground)
    assert ground.run(pipeline, planned).rows == 5
    assert told(pipeline) == {"": None}, "the topic has a record of any time that the plan did not know of"
    assert status_of(ground, pipeline).complete_through is None
    assert ground.run(pipeline).rows == 1
    assert told(pipeline) == {"": None}
