"""X3, X4 on the real broker and table: what the broker does not hold any more stops its partition, and only a person, or
the pipeline file, lets it go on."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from dagster import AssetCheckEvaluation, AssetCheckKey, AssetKey, DagsterInstance, RunRequest
from typer.testing import CliRunner

from hudi_ingest.cli.app import app
from hudi_ingest.exceptions import NothingToDo, OffsetsLost, PlanOutdated, WriteIncomplete
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import wait_until
from hudi_ingest.local.verification import verify
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion
from hudi_ingest.model.plan import LossReason, OffsetLoss
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe, plan_accepting
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.transactions import transaction_job

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

DEADLINE_SECONDS = 240


@pytest.fixture(autouse=True)
def environment(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.set_environment(monkeypatch)


@pytest.fixture
def admin(ground: Ground) -> AdminClient:
    return AdminClient({"bootstrap.servers": ground.bootstrap_servers})


Delete = Callable[[int, int], None]


@pytest.fixture
def retention(ground: Ground, admin: AdminClient) -> Delete:
    """Deletes what is before an offset of a partition."""

    def delete(partition: int, before: int) -> None:
        for each in admin.delete_records([KafkaTopicPartition(ground.name, partition, before)]).values():
            each.result(DEADLINE_SECONDS)

    return delete


def command(*arguments: str) -> tuple[int, str]:
    """A command's exit code and what it printed."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def remedy(text: str) -> list[str]:
    """The command that the text names, as a shell would split it."""
    found = re.search(r"`hudi-ingest ([^`]+)`", text)
    assert found is not None, text
    return shlex.split(found[1])


def offsets(ground: Ground) -> dict[int, list[int]]:
    rows = ground.rows()
    found: dict[int, list[int]] = {}
    for partition, offset in zip(rows["_kafka_partition"].to_pylist(), rows["_kafka_offset"].to_pylist(), strict=True):
        found.setdefault(partition, []).append(offset)
    return {partition: sorted(each) for partition, each in sorted(found.items())}


def accounting(ground: Ground, pipeline: Pipeline, instant: str) -> dict[str, Any]:
    found = next(each for each in Timeline(ground.base_path)._completed() if each.instant == instant)
    told: dict[str, Any] = json.loads(found.metadata[pipeline.transaction_key])
    return told


@pytest.mark.tier(1)
def test_p6_x4_retention_stops_one_partition_until_a_person_accepts_the_loss(
    ground: Ground, pipeline: Pipeline, retention: Delete
) -> None:
    for partition in (0, 1):
        ground.send_rows(partition, 10)
    ground.run(pipeline)
    assert command("status", pipeline.name)[0] == 0
    for partition in (0, 1):
        ground.send_rows(partition, 10, 10)
    retention(0, 15)
    loss = OffsetLoss(ground.name, 0, 10, 15, 5, LossReason.RETENTION)
    receipt = ground.run(pipeline)
    assert (receipt.rows, receipt.plan.stopped) == (10, (loss,))
    code, shown = command("status", pipeline.name, "--json")
    assert code == 1
    assert [each["lost"] for each in json.loads(shown)[0]["stopped"]] == [5]
    assert f"`hudi-ingest accept-loss {pipeline.name} --partition {ground.name}:0`" in command("status")[1]
    with pytest.raises(OffsetsLost, match=f"{ground.name}:0.*5 records were deleted") as caught:
        ground.run(pipeline)
    planned = plan_accepting(pipeline, [TopicPartition(ground.name, 0)])
    held = OffsetLoss(ground.name, 1, 20, 1_000_000, 999_980, LossReason.RETENTION)
    jump = replace(planned, slices=(planned.slices[0], Slice(ground.name, 1, 1_000_000, 1_000_000)))
    with pytest.raises(PlanOutdated, match=f"{ground.name}:1.*now: nothing is lost"):
        ground.run(pipeline, replace(jump, resets=(loss, held)))
    retention(0, 17)
    with pytest.raises(PlanOutdated, match=r"up to 5 records.*now: .* up to 7 records"):
        ground.run(pipeline, planned)
    loss = replace(loss, restart=17, lost=7)
    wanted = remedy(str(caught.value))
    assert json.loads(command(*wanted, "--dry-run", "--json")[1])["resets"] == [loss.to_dict()]
    code, shown = command(*wanted, "--json")
    assert (code, json.loads(shown)["resets"]) == (0, [loss.to_dict()])
    assert offsets(ground) == {0: [*range(10), *range(17, 20)], 1: [*range(20)]}
    told = accounting(ground, pipeline, json.loads(shown)["instant"])
    assert told["resets"] == [loss.to_dict()]
    assert [row.resets for row in ground.ledger.transactions.history(pipeline.name)] == [(loss,), (), ()]
    assert command("status", pipeline.name)[0] == 0
    with pytest.raises(NothingToDo):
        ground.run(pipeline)
    done = CliRunner().invoke(app, wanted)
    assert isinstance(done.exception, NothingToDo)
    assert "is not stopped, so there is no loss to accept" in str(done.exception)


def test_p6_x4_a_topic_made_again_and_outgrown_stops_whole_while_the_other_topic_goes_on(
    ground: Ground, topic: str, admin: AdminClient
) -> None:
    other = Ground(f"{ground.name}-other", ground.bootstrap_servers, ground.home)
    create_topic(other.bootstrap_servers, other.name, 1)
    pipeline = make_pipeline(ground, source={"topics": [ground.name, other.name]})
    ground.send_rows(0, 3)
    ground.send_rows(1, 3)
    other.send_rows(0, 3)
    ground.run(pipeline)
    ground.make_again(1)
    ground.send_rows(0, 8)
    other.send_rows(0, 4, 3)
    receipt = ground.run(pipeline)
    assert receipt.rows == 4
    assert [str(each.source) for each in receipt.plan.stopped] == [f"{ground.name}:0", f"{ground.name}:1"]
    assert receipt.warnings == ()
    with pytest.raises(OffsetsLost, match="deleted and recreated") as caught:
        ground.run(pipeline)
    wanted = remedy(str(caught.value))
    assert wanted == ["accept-loss", pipeline.name, "--topic", ground.name]
    code, shown = command(*wanted, "--json")
    assert (code, json.loads(shown)["rows"]) == (0, 8)
    checkpoint = observe(pipeline).committed.checkpoint
    assert checkpoint is not None
    assert dict(checkpoint.offsets) == {TopicPartition(ground.name, 0): 8, TopicPartition(other.name, 0): 7}
    assert (checkpoint.topics[ground.name].generation, checkpoint.topics[other.name].generation) == (1, 0)
    rows = ground.rows()
    assert rows.num_rows == 3 + 3 + 3 + 4 + 8
    assert len(set(rows["_hoodie_record_key"].to_pylist())) == rows.num_rows
    # What comes next goes on in the same generation.
    ground.send_rows(0, 2, 8)
    ground.run(pipeline)
    keys = ground.rows()["_hoodie_record_key"].to_pylist()
    assert f"{ground.name}-0-9-g1" in keys


def test_x4_skip_to_earliest_reads_a_new_smaller_topic_and_says_so(
    ground: Ground, topic: str, admin: AdminClient
) -> None:
    pipeline = make_pipeline(ground, source={"on_data_loss": "skip_to_earliest"})
    ground.send_rows(0, 6)
    ground.send_rows(1, 2)
    ground.run(pipeline)
    before = observe(pipeline).committed.checkpoint
    ground.make_again(2)
    ground.send_rows(0, 4)
    receipt = ground.run(pipeline)
    assert receipt.rows == 4
    assert [(each.partition, each.committed, each.restart) for each in receipt.plan.resets] == [(0, 6, 0), (1, 2, 0)]
    assert {each.reason for each in receipt.plan.resets} == {LossReason.RECREATED}
    assert before is not None
    assert receipt.checkpoint.topics[ground.name].generation == 1
    assert receipt.checkpoint.topics[ground.name].topic_id != before.topics[ground.name].topic_id
    assert offsets(ground) == {0: [0, 0, 1, 1, 2, 2, 3, 3, 4, 5], 1: [0, 1]}
    assert len(set(ground.rows()["_hoodie_record_key"].to_pylist())) == 12
    told = accounting(ground, pipeline, receipt.instant)
    assert told["resets"] == [each.to_dict() for each in receipt.plan.resets]
    with pytest.raises(NothingToDo):
        ground.run(pipeline)


def test_x4_skip_to_earliest_goes_on_behind_what_retention_took(ground: Ground, topic: str, retention: Delete) -> None:
    pipeline = make_pipeline(ground, source={"on_data_loss": "skip_to_earliest"})
    ground.send_rows(0, 6)
    ground.run(pipeline)
    ground.send_rows(0, 6, 6)
    retention(0, 12)
    # Nothing is left to read, and the jump is committed all the same.
    receipt = ground.run(pipeline)
    assert [(each.source.partition, each.lost) for each in receipt.plan.resets] == [(0, 6)]
    ground.send_rows(0, 2, 12)
    assert ground.run(pipeline).plan.resets == ()
    assert offsets(ground) == {0: [0, 1, 2, 3, 4, 5, 12, 13]}


@pytest.mark.tier(1)
def test_p1_x4_a_topic_made_again_under_an_open_transaction_publishes_nothing(
    ground: Ground, pipeline: Pipeline, admin: AdminClient
) -> None:
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    ground.make_again(2)
    ground.send_rows(0, 9)
    with pytest.raises(OffsetsLost, match="deleted and recreated while transaction"):
        protocol.write(opened, opened.plan.slices)
    with pytest.raises(WriteIncomplete):
        protocol.commit(opened, [])
    protocol.abort(opened, "the topic is another one")
    assert ground.run(pipeline).rows == 9
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(1)
def test_p1_x3_a_compacted_topic_is_read_whole_and_its_gaps_are_counted(ground: Ground, admin: AdminClient) -> None:
    broker = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([broker])[broker].result(DEADLINE_SECONDS)
    policy = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    create_topic(ground.bootstrap_servers, ground.name, 1, {**policy, "min.compaction.lag.ms": "0"})
    pipeline = make_pipeline(ground)

    def send(number: int) -> None:
        value = json.dumps({"id": f"k{number % 3}-{number}", "n": number, "dt": "d"}).encode()
        ground.producer.produce(ground.name, value, key=f"k{number % 3}", partition=0)
        assert ground.producer.flush(DEADLINE_SECONDS) == 0

    for number in range(60):
        send(number)
    sent = 60

    def compacted() -> bool:
        # Only closed segments are compacted, and only a new record closes the last one.
        nonlocal sent
        send(sent)
        sent += 1
        return held(ground, sent) < 40

    wait_until(compacted, what="the broker compacted the topic", timeout_seconds=DEADLINE_SECONDS)
    receipt = ground.run(pipeline)
    report = receipt.reports[0]
    assert report.slice.count == sent
    assert report.gaps > 20
    assert report.rows + report.gaps == sent
    assert {row["n"] % 3: row["n"] for row in sorted(ground.rows().to_pylist(), key=lambda row: row["n"])} == {
        (sent - back) % 3: sent - back for back in (1, 2, 3)
    }
    send(sent)
    assert ground.run(pipeline).rows == 1


def held(ground: Ground, end: int) -> int:
    """How many records the broker still hands out before `end`."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": ground.bootstrap_servers, "group.id": "look", "enable.auto.commit": False}
    )
    try:
        consumer.assign([KafkaTopicPartition(ground.name, 0, 0)])
        count = 0
        while True:
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None and message.error() is None
            count += 1
            if message.offset() == end - 1:
                return count
    finally:
        consumer.close()


def test_p6_d1_dagster_shows_the_stop_in_the_tick_the_run_the_asset_and_its_check(
    ground: Ground, pipeline: Pipeline, retention: Delete
) -> None:
    from hudi_ingest.operations.health.judgement import OFFSETS_HONOURED
    from hudi_ingest.orchestration import tags
    from hudi_ingest.orchestration.definitions import build_definitions
    from hudi_ingest_tests.support.ticks import tick

    ground.send_rows(0, 3)
    ground.run(pipeline)
    check = AssetCheckKey(AssetKey([pipeline.name]), OFFSETS_HONOURED)

    def now() -> datetime:
        return datetime.now(timezone.utc)

    def evaluation(instance: DagsterInstance) -> AssetCheckEvaluation:
        record = instance.get_latest_asset_check_evaluation_record(check)
        assert record is not None and record.evaluation is not None
        return record.evaluation

    soon = make_pipeline(ground, transaction={"interval_seconds": 5})
    with DagsterInstance.ephemeral() as instance:
        tick(soon, instance, now())
        assert evaluation(instance).passed
        ground.send_rows(0, 4, 3)
        ground.send_rows(1, 2)
        retention(0, 5)
        request = tick(soon, instance, now() + timedelta(seconds=2 * soon.transaction.interval_seconds))
        assert isinstance(request, RunRequest)
        assert request.tags[tags.STOPPED] == f"{ground.name}:0"
        assert not evaluation(instance).passed
        assert "accept-loss" in str(evaluation(instance).description)
        definitions = build_definitions([soon])
        job = transaction_job(definitions, soon.name)
        done = job.execute_in_process(run_config=request.run_config, tags=request.tags, instance=instance)
        assert done.success
        event = instance.get_latest_materialization_event(AssetKey([pipeline.name]))
        assert event is not None and event.asset_materialization is not None
        assert f"{ground.name}:0" in str(event.asset_materialization.metadata["stopped"].value)
        with pytest.raises(OffsetsLost, match="accept-loss"):
            tick(soon, instance, now())
        by_hand = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_check_selection={check})
        assert by_hand.execute_in_process(instance=instance).get_asset_check_evaluations()[0].passed is False
        assert command("accept-loss", pipeline.name, "--partition", f"{ground.name}:0")[0] == 0
        tick(soon, instance, now())
        assert evaluation(instance).passed
    assert offsets(ground) == {0: [0, 1, 2, 5, 6], 1: [0, 1]}


def test_a_checkpoint_of_before_topic_ids_is_read_and_gets_them(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hudi_ingest.model.checkpoint import Checkpoint

    def version_1(checkpoint: Checkpoint) -> str:
        found = json.loads(written(checkpoint)) | {"version": 1}
        found.pop("topics")
        return json.dumps(found, separators=(",", ":"))

    ground.send_rows(0, 3)
    written = Checkpoint.to_json
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "to_json", version_1)
        ground.run(pipeline)
    before = observe(pipeline).committed.checkpoint
    assert before is not None and before.topics == {}
    ground.send_rows(0, 3, 3)
    found = ground.run(pipeline).checkpoint.topics
    assert found == {ground.name: TopicVersion(KafkaCluster(pipeline.source).topics()[ground.name].topic_id)}
    assert verify(ground.base_path, ground.produced).exact
