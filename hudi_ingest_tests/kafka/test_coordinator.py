"""The coordinator on a real broker, without a JVM: plans, reasons, and how fast a tick is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient
from dagster import AssetCheckKey, AssetKey, DagsterInstance, DagsterRunStatus, RunRequest, SkipReason
from dagster._core.storage.dagster_run import DagsterRun

from hudi_ingest.exceptions import NothingToDo, TableMismatch, TopicMissing, WriteIncomplete
from hudi_ingest.home.folder import LEDGER_VARIABLE
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.kafka.shared_clusters import snapshot
from hudi_ingest.ledger import Ledger, RequestState
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import wait_until
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.health.judgement import LAG_BELOW_LIMIT, LAG_RECORDS, LAG_SECONDS, QUESTIONS
from hudi_ingest.operations.looks import observe_all
from hudi_ingest.operations.observation import Observation
from hudi_ingest.operations.requests.planning import new_request
from hudi_ingest.operations.state import full_state, state_now
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.asset_keys import table_key
from hudi_ingest.orchestration.coordinator import fleet as fleet_module
from hudi_ingest.orchestration.coordinator import memory as memory_module
from hudi_ingest.orchestration.coordinator import quiet_ticks
from hudi_ingest.orchestration.coordinator.fleet import Fleet
from hudi_ingest.orchestration.coordinator.look import look_at
from hudi_ingest.orchestration.coordinator.quiet_ticks import next_tick, quiet_reasons
from hudi_ingest.orchestration.coordinator.sensor import report_look
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.arithmetic import limits_of, next_due
from hudi_ingest.transaction.plan.planning import observe, plan_next
from hudi_ingest.transaction.write import reports
from hudi_ingest.transaction.write.reports import require_true_gaps
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.partitions import add_partitions
from hudi_ingest_tests.support.statements import statements_of
from hudi_ingest_tests.support.ticks import MEMORY, tick
from hudi_ingest_tests.support.ticks import still_quiet as quiet
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def environment(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, ground.home.ledger_url)


def still_quiet(pipeline: Pipeline, instance: DagsterInstance) -> str | None:
    with Ledger.open(os.environ[LEDGER_VARIABLE]) as ledger:
        return quiet(pipeline, instance, ledger.requests)


def now() -> datetime:
    return datetime.now(timezone.utc)


@pytest.mark.tier(1)
def test_x1_a_tick_requests_one_run_with_every_slice(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 3)
    with DagsterInstance.ephemeral() as instance:
        request = tick(pipeline, instance, now())
    assert isinstance(request, RunRequest)
    shown = request.run_config["ops"][pipeline.name]["ops"]["begin"]["config"]["slices"]
    assert [(each["partition"], each["start"], each["end"]) for each in shown] == [(0, 0, 3), (1, 0, 0)]
    assert request.run_key == request.tags[tags.TRANSACTION]
    assert request.tags[tags.SEQUENCE] == "1"


def test_failed_runs_change_the_run_key_and_are_backed_off(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 3)
    run_tags = {tags.PIPELINE: pipeline.name, tags.TABLE: pipeline.table.base_path, tags.SEQUENCE: "1"}
    keys = set()
    with DagsterInstance.ephemeral() as instance:
        for number in range(2):
            failed = DagsterRun(job_name="any", status=DagsterRunStatus.STARTED, tags=run_tags)
            instance.add_run(failed)
            instance.report_run_failed(failed)
            found = tick(pipeline, instance, now() + timedelta(seconds=1))
            if number == 0:
                assert isinstance(found, RunRequest)
                keys.add(found.run_key)
        assert isinstance(found, SkipReason)
        assert "the last 2 runs of this transaction failed" in str(found.skip_message)
        later = tick(pipeline, instance, now() + timedelta(hours=1))
        assert isinstance(later, RunRequest)
        assert later.run_key not in keys, "a run key that was used once blocks for ever"
        # What failed before the pipeline file was changed says nothing of the file that it is now.
        assert isinstance(tick(pipeline, instance, now()), SkipReason)
        changed = make_pipeline(ground, on_bad_record="skip")
        assert isinstance(tick(changed, instance, now() + timedelta(seconds=1)), RunRequest)


def evaluated(pipeline: Pipeline, instance: DagsterInstance) -> dict[str, str]:
    keys = [AssetCheckKey(table_key(pipeline), name) for name in QUESTIONS]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    return {key.name: record.status.value for key, record in found.items()}


def test_d3_a_tick_beside_a_run_that_hangs_tells_of_the_checks_and_the_lag(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, asset={"max_lag": 2})
    ground.send_rows(0, 3)
    run_tags = {tags.TABLE: pipeline.table.base_path, tags.TRANSACTION: "orders-000001-abc"}
    with DagsterInstance.ephemeral() as instance:
        run = DagsterRun(job_name="__ASSET_JOB", status=DagsterRunStatus.STARTING, tags=run_tags)
        instance.add_run(run)
        began = now()
        # The report's own time is the real one, which the first tick may be late by.
        for seconds in (0, 30, 120):
            found = tick(pipeline, instance, began + timedelta(seconds=seconds))
            assert isinstance(found, SkipReason)
            assert "orders-000001-abc" in str(found.skip_message)
        assert set(evaluated(pipeline, instance)) == set(QUESTIONS)
        assert evaluated(pipeline, instance)[LAG_BELOW_LIMIT] == "FAILED"
        points = [
            record.asset_observation.metadata
            for record in instance.fetch_observations(table_key(pipeline), limit=10, ascending=True).records
            if record.asset_observation is not None and LAG_RECORDS in record.asset_observation.metadata
        ]
    assert [point[LAG_RECORDS].value for point in points] == [3, 3], "at most one a minute"
    assert 0 <= float(str(points[0][LAG_SECONDS].value)) < 60 <= float(str(points[1][LAG_SECONDS].value)) < 200


def test_nothing_new_is_a_reason_and_a_missing_topic_an_error(ground: Ground, pipeline: Pipeline) -> None:
    with DagsterInstance.ephemeral() as instance:
        found = tick(pipeline, instance, now())
        assert isinstance(found, SkipReason)
        assert "no new records" in str(found.skip_message)
        missing = make_pipeline(ground, source={"topics": ["nowhere"]})
        with pytest.raises(
            TopicMissing, match=r"topic nowhere is not on the broker[^;]*\. Create it.*--forget nowhere"
        ):
            tick(missing, instance, now())
    misspelt = make_pipeline(ground, source={"topics": [f"{pipeline.name}x"]})
    with pytest.raises(TopicMissing, match=rf"x is not on the broker.*; did you mean {pipeline.name}\? Create it"):
        observe(misspelt)


@pytest.mark.tier(1)
def test_p6_a_pattern_follows_its_topics_and_misses_one_that_disappeared(ground: Ground, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    pipeline = make_pipeline(ground, source={"topics_pattern": rf"{topic}\..+"})
    with pytest.raises(NothingToDo, match="no topic on the broker matches"):
        plan_next(pipeline, observe(pipeline))
    names = [f"{topic}.one", f"{topic}.two"]
    create_topic(ground.bootstrap_servers, names[0], 1)
    assert sorted(observe(pipeline).starts) == [TopicPartition(names[0], 0)]
    create_topic(ground.bootstrap_servers, names[1], 1)
    for name in names:
        ground.producer.produce(name, b"{}", partition=0)
    assert ground.producer.flush(300) == 0
    keyed = {"mode": "upsert", "key": ["id"], "schema": "id string not null, n long, dt string", "partition_by": []}
    with pytest.raises(TableMismatch, match=r"offsets of several topics.*one, .*two\).*table\.ordering"):
        several = make_pipeline(ground, source={"topics_pattern": rf"{topic}\..+"}, table=keyed)
        plan_next(several, observe(several))
    with DagsterInstance.ephemeral() as instance:
        request = tick(pipeline, instance, now())
        assert isinstance(request, RunRequest)
        plan = plan_next(pipeline, observe(pipeline))
        assert [slice_.source for slice_ in plan.slices] == [TopicPartition(name, 0) for name in names]
        (observation,) = instance.fetch_observations(AssetKey(["kafka", f"{pipeline.name}_topics"]), limit=5).records
        assert observation.asset_observation is not None
        assert observation.asset_observation.metadata["topics"].value == 2
    # One look for several pipelines says the same, and one that misses its topic is alone with that.
    missing = make_pipeline(ground, file="missing.yaml", source={"topics": ["nowhere"]})
    shared = snapshot([pipeline.source, missing.source], 5)
    assert observe(pipeline, shared.of(pipeline.source)).lag == observe(pipeline).lag
    with pytest.raises(TopicMissing, match="topic nowhere is not on the broker"):
        observe(missing, shared.of(missing.source))
    own = observe_all([missing])[missing.name]
    assert isinstance(own, Observation) and isinstance(own.error, TopicMissing)
    assert "source.topics in the pipeline file" in str(own.error), "in the words for its own file"
    # The table's checkpoint remembers what it has read.
    cluster = KafkaCluster(pipeline.source)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    admin.delete_topics([names[1]])[names[1]].result(300)
    wait_for(lambda: cluster.topic_names() == (names[0],), "the topic is gone")
    with pytest.raises(
        TopicMissing, match=rf"topic {names[1]} is not on the broker.*committed offsets.*topics_pattern"
    ):
        cluster.topics(committed=names)
    with pytest.raises(TopicMissing, match=rf"topic {names[1]}, of which the table has committed offsets"):
        snapshot([pipeline.source], 5).of(pipeline.source).topics(names)
    assert list(cluster.topics(committed=[names[0], "another"])) == [names[0]]


def test_starting_offsets_latest_timestamp_and_map(ground: Ground, topic: str) -> None:
    ground.send_rows(0, 5)
    ground.send_rows(1, 5)
    moment = now() + timedelta(seconds=0.05)
    while now() < moment:
        ground.producer.poll(0.01)
    ground.send_rows(0, 2, 5)

    def starts(policy: object) -> list[int]:
        pipeline = make_pipeline(ground, source={"starting_offsets": policy})
        return [each for _, each in sorted(observe(pipeline).starts.items())]

    assert starts("earliest") == [0, 0]
    assert starts("latest") == [7, 5]
    assert starts({"timestamp": moment.isoformat()}) == [5, 5]
    assert starts({topic: {0: 3}}) == [3, 0]


def test_p6_truncation_before_the_first_commit_is_not_a_loss(ground: Ground, pipeline: Pipeline) -> None:
    from confluent_kafka import TopicPartition as KafkaTopicPartition
    from confluent_kafka.admin import AdminClient

    ground.send_rows(0, 10)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    for each in admin.delete_records([KafkaTopicPartition(ground.name, 0, 4)]).values():
        each.result(300)
    plan = plan_next(pipeline, observe(pipeline), at_once=True)
    assert (plan.slices[0].start, plan.slices[0].end) == (4, 10)


@pytest.mark.tier(1)
def test_r8_group_offsets_are_set_and_read(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 3)
    cluster = KafkaCluster(pipeline.source)
    wanted = {TopicPartition(ground.name, 0): 2, TopicPartition(ground.name, 1): 0}
    cluster.commit_group_offsets(pipeline.group_id, wanted)
    assert cluster.group_offsets(pipeline.group_id, wanted) == wanted


def test_r8_a_group_that_others_moved_is_set_again_in_time(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.send_rows(0, 3)
    offsets = {TopicPartition(ground.name, 0): 3, TopicPartition(ground.name, 1): 0}
    situation = replace(observe(pipeline), committed=CommittedState(True, checkpoint=Checkpoint(1, "a", offsets)))
    cluster = KafkaCluster(pipeline.source)

    def after_a_tick() -> dict[TopicPartition, int]:
        assert not MEMORY.of(pipeline).keep_group_told(situation, cluster)
        return cluster.group_offsets(pipeline.group_id, offsets)

    assert after_a_tick() == offsets
    moved = {**offsets, TopicPartition(ground.name, 0): 1}
    cluster.commit_group_offsets(pipeline.group_id, moved)
    assert after_a_tick() == moved
    monkeypatch.setattr(memory_module, "GROUP_SECONDS", 0)
    assert after_a_tick() == offsets


def test_records_that_arrive_while_status_asks_belong_to_no_open_transaction(
    ground: Ground, pipeline: Pipeline
) -> None:
    ground.send_rows(0, 5)
    situation = observe(pipeline)
    ground.send_rows(0, 5, 5)
    status = full_state(seen(pipeline, situation), ground.ledger)
    assert [(each.end, each.undecided) for each in status.partitions] == [(5, None), (0, None)]


@pytest.mark.tier(1)
def test_p1_x3_a_gap_with_a_committed_record_in_it_is_refused(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets 0 to 9 are records, 10 to 29 aborted ones, 30 their marker, 31 to 33 records again."""
    ground.send_rows(0, 10)
    producer = ground.transactional_producer()
    producer.begin_transaction()
    for number in range(20):
        producer.produce(ground.name, str(number).encode(), partition=0)
    producer.flush(300)
    cluster = KafkaCluster(pipeline.source)
    status = state_now(pipeline, ground.ledger)
    open_offsets = Slice(ground.name, 0, 10, 30)
    assert [(each.end, each.lag, each.undecided) for each in status.partitions] == [
        (10, 10, open_offsets),
        (0, 0, None),
    ]
    producer.abort_transaction()
    # The marker comes after the answer.
    ends = partial(cluster.watermarks, [TopicPartition(ground.name, 0)])
    wait_until(lambda: [each.end for each in ends().values()] == [31], what="the marker is there", timeout_seconds=120)
    assert [each.undecided for each in ends().values()] == [0]
    ground.send_rows(0, 3, 31)
    true = [Slice(ground.name, 0, 10, 31), Slice(ground.name, 0, 15, 16), Slice(ground.name, 0, 30, 31)]
    # So long that only the broker's answer, and not the end of the look-up, comes in half of it.
    monkeypatch.setattr(reports, "LOOK_UP_SECONDS", 120.0)
    began = time.monotonic()
    require_true_gaps(pipeline, true)
    # Behind the topic's end, and of a partition without a record.
    require_true_gaps(pipeline, [Slice(ground.name, 0, 34, 40), Slice(ground.name, 1, 0, 5)])
    assert time.monotonic() - began < 60, "the broker has told"
    for false in (Slice(ground.name, 0, 4, 6), Slice(ground.name, 0, 9, 31), Slice(ground.name, 0, 10, 32)):
        with pytest.raises(WriteIncomplete, match=f"{ground.name}:0.* without (4|9|31)") as caught:
            require_true_gaps(pipeline, [*true, false])
        assert str(caught.value).count("without") == 1


@pytest.mark.tier(1)
def test_s19_an_idle_tick_of_a_template_asks_the_ledger_nothing(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, of_template = DagsterInstance.ephemeral(), pipeline.model_copy(update={"enabled": True}).made_by("shop")
    for module, constant in (
        (quiet_ticks, "WHOLE_SECONDS"),
        (quiet_ticks, "_ANSWER_SECONDS"),
        (fleet_module, "TICK_NOTED_SECONDS"),
    ):
        # Else a slow machine could be the reason.
        monkeypatch.setattr(module, constant, 3600.0)
    fleet, file = Fleet([of_template], look_at, report_look), ground.ledger.file
    assert file is not None

    def evaluate() -> None:
        evaluation = fleet.evaluate(instance, now(), lambda pipeline, request: None)
        assert evaluation.text == "no new records"

    memory = fleet.memory.of(of_template)
    memory.idle = memory.idle_at(observe(of_template), "no new records")
    evaluate()
    earlier = file.stat().st_mtime - 3600
    # The last commits are in its log.
    for each in (file, f"{file}-wal"):
        os.utime(each, (earlier, earlier))
    assert len(statements_of(ground.ledger.database.engine, evaluate)) == 1, "it has changed"
    assert statements_of(ground.ledger.database.engine, evaluate) == []


def test_x1_a_tick_of_an_idle_pipeline_is_whole_again_once_anything_is_new(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = DagsterInstance.ephemeral()

    def remember() -> None:
        memory = MEMORY.of(pipeline)
        memory.idle = memory.idle_at(observe(pipeline), "no new records")
        assert still_quiet(pipeline, instance) == "no new records"

    # Else a slow machine would be the reason.
    monkeypatch.setattr(quiet_ticks, "WHOLE_SECONDS", 3600.0)
    ground.send_rows(0, 3)
    assert still_quiet(pipeline, instance) is None, "the first tick of a process is whole"
    remember()
    ground.send_rows(1, 1)
    assert still_quiet(pipeline, instance) is None, "a record came"
    remember()
    ends = observe(pipeline).watermarks
    asked = [Slice(ground.name, 0, 0, ends[TopicPartition(ground.name, 0)].end)]
    request = ground.ledger.requests.file(new_request(pipeline, TransactionKind.REPLAY, asked))
    assert still_quiet(pipeline, instance) is None, "a replay was asked for"
    ground.ledger.requests.end(request.request_id, RequestState.CANCELLED)
    remember()
    assert still_quiet(make_pipeline(ground), instance) is None, "the pipelines were loaded again"
    remember()
    add_partitions(AdminClient({"bootstrap.servers": ground.bootstrap_servers}), ground.name, 3)
    wait_for(lambda: still_quiet(pipeline, instance) is None, "the new partition is seen")
    wait_for(lambda: len(observe(pipeline).watermarks) == 3, "the new partition has offsets")
    remember()
    monkeypatch.setattr(quiet_ticks, "WHOLE_SECONDS", 0.0)
    assert still_quiet(pipeline, instance) is None, "it is time for a whole one"


def test_x1_once_its_run_has_committed_a_pipeline_is_looked_at_when_its_interval_is_over(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a slow machine would be the reason.
    monkeypatch.setattr(quiet_ticks, "_WHOLE_SECONDS_EACH", 3600.0)
    monkeypatch.setattr(quiet_ticks, "_WHOLE_SECONDS_OF_MANY", 3600.0)
    monkeypatch.setattr(quiet_ticks, "WHOLE_SECONDS", 3600.0)
    pipeline = make_pipeline(ground, transaction={"interval_seconds": 600, "max_records": 10})
    fleet = [pipeline, pipeline.model_copy(update={"name": "another"})]

    def reason(run: DagsterRun, planned_at: datetime | None = None) -> str | None:
        MEMORY.of(pipeline).remember_requested(situation, plan, planned_at or now())
        with instance_with(run) as instance:
            return quiet_reasons(MEMORY.of_each(fleet), instance, ground.ledger.requests.wishes).get(pipeline.name)

    @contextmanager
    def instance_with(run: DagsterRun) -> Iterator[DagsterInstance]:
        with DagsterInstance.ephemeral() as instance:
            instance.add_run(run)
            yield instance

    def run_of(status: DagsterRunStatus, instant: str = "") -> DagsterRun:
        instant_tag = {tags.INSTANT: instant} if instant else {}
        run_tags = {tags.TABLE: pipeline.table.base_path, tags.TRANSACTION: plan.transaction_id, **instant_tag}
        return DagsterRun(job_name="__ASSET_JOB", status=status, tags=run_tags)

    ground.send_rows(0, 3)
    situation = observe(pipeline)
    plan = plan_next(pipeline, situation)
    assert "is working on" in str(reason(run_of(DagsterRunStatus.STARTED)))
    (due,) = next_tick(MEMORY.of_each(fleet)).runs.values()
    assert due == pytest.approx(next_due(limits_of(pipeline), now()).timestamp(), abs=60), "then the next is due"
    assert reason(run_of(DagsterRunStatus.SUCCESS)) is None, "it has begun nothing"
    committed = run_of(DagsterRunStatus.SUCCESS, "20260101000000000")
    assert reason(run_of(DagsterRunStatus.FAILURE, committed.tags[tags.INSTANT])) is None
    assert reason(committed, now() - timedelta(seconds=601)) is None, "the next is due"
    assert f"{plan.transaction_id} is committed; the next is due" in str(reason(committed))
    assert 0 < next_tick(MEMORY.of_each(fleet)).due - time.time() <= 600
    ground.send_rows(0, 9)
    assert reason(committed) is not None, "they wait for their interval"
    ground.send_rows(0, 1)
    assert reason(committed) is None, "max_records are waiting"


def test_h3_the_interval_counts_from_the_time_when_the_last_transaction_was_planned(ground: Ground, topic: str) -> None:
    pipeline, planned_at = make_pipeline(ground), now() - timedelta(seconds=50)
    ground.send_rows(0, 3)
    situation = observe(pipeline)
    MEMORY.of(pipeline).remember_requested(situation, plan_next(pipeline, situation, now=planned_at), planned_at)
    other = replace(
        situation, committed=CommittedState(True, Checkpoint(1, "of another process", {}), last_began_at=now())
    )
    assert MEMORY.of(pipeline).with_plan_time(other).last_at == other.committed.last_began_at
    plan = plan_next(pipeline, situation, now=planned_at)
    MEMORY.of(pipeline).remember_requested(situation, plan, planned_at)
    known = replace(
        situation, committed=CommittedState(True, Checkpoint(1, plan.transaction_id, {}), last_began_at=now())
    )
    assert MEMORY.of(pipeline).with_plan_time(known).last_at == planned_at
