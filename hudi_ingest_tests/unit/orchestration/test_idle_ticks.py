"""A tick that has nothing to do makes up for what a commit could not do any more, on librdkafka's mock cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from dagster import DagsterInstance

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.kafka.cluster import KafkaCluster, Topic
from hudi_ingest.kafka.shared_clusters import ClusterSnapshot
from hudi_ingest.ledger import Ledger, Owner
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.complete_through import Mark
from hudi_ingest.model.offsets import Slice, TopicPartition, Watermarks
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.orchestration.coordinator import look as look_module
from hudi_ingest.orchestration.coordinator import quiet_ticks
from hudi_ingest.orchestration.coordinator.look import Sight, answer_to, busy_with
from hudi_ingest.orchestration.coordinator.memory import Memory, PipelineMemory
from hudi_ingest.orchestration.coordinator.quiet_ticks import moved
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.transaction.dead_letters.copies import LetterCopies
from hudi_ingest.transaction.plan import planning
from hudi_ingest.transaction.plan.planning import Situation, confirmed_marks, keep_group_told
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.pipeline_files import Write, load

SOURCE = TopicPartition("orders", 0)


def sight_of(pipeline: Pipeline, situation: Situation, instance: DagsterInstance, ledger: Ledger) -> Sight:
    return Sight(instance, ledger, seen(pipeline, situation), PipelineMemory(pipeline))


def test_s19_a_broker_is_asked_once_which_of_many_topics_moved(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
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
    memory = Memory()
    pipelines = memory.of_each([pipeline("a"), pipeline("b"), pipeline("c")])
    assert moved(pipelines) == frozenset()
    ends[TopicPartition("b", 0)] += 1
    assert moved(pipelines) == {"b"}
    assert moved(pipelines) == {"b"}, "until it has been looked at"
    assert asked == [3, 3, 3]
    looked_at = Situation(CommittedState(exists=False), {TopicPartition("b", 0): Watermarks(0, 2)}, {}, {})
    pipelines[1].idle = pipelines[1].idle_at(looked_at, "nothing new")
    assert moved(pipelines) == frozenset()
    ends[TopicPartition("b", 0)] += 1
    ends[TopicPartition("c", 0)] += 1
    assert moved(pipelines) == {"b", "c"}
    assert moved([memory.of(pipeline("away", "away:9092")), *pipelines]) == {"b", "c"}, (
        "a cluster that is away hides no other"
    )
    assert moved([memory.of(pipeline("not_there")), *pipelines]) == {"b", "c"}


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
        sight = sight_of(pipeline, situation, instance, ledger)
        assert cluster.group_offsets(pipeline.group_id, [SOURCE]) == {}
        assert isinstance(answer_to(sight, cluster), str)
    assert cluster.group_offsets(pipeline.group_id, [SOURCE]) == {SOURCE: 1}


def _idle(pipeline: Pipeline, letters: LettersHead | None = None) -> Situation:
    checkpoint = Checkpoint(1, "t1", {SOURCE: 1}, letters=letters)
    return Situation(CommittedState(True, checkpoint), {SOURCE: Watermarks(0, 1)}, {}, {})


class Group:
    """A consumer group on a broker that answers."""

    def __init__(self, offset: int) -> None:
        self.offsets = {SOURCE: offset}

    def group_offsets(self, group: str, sources: object) -> dict[TopicPartition, int]:
        return dict(self.offsets)

    def commit_group_offsets(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)


@pytest.mark.parametrize("offset", [0, 9], ids=["behind", "ahead"])
def test_p5_a_group_that_is_not_where_the_table_is_is_set(write: Write, offset: int) -> None:
    """Ahead, as after a restore of the table, it would hide the records that are read again."""
    group: Any = Group(offset)
    pipeline = load(write)
    assert keep_group_told(pipeline, _idle(pipeline), group)
    assert group.offsets == {SOURCE: 1}
    assert not keep_group_told(pipeline, _idle(pipeline), group)


def test_p1_an_idle_tick_copies_dead_letters_that_a_commit_could_not(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load(write, table__base_path=str(tmp_path / "table"))
    copied: list[LettersHead | None] = []

    def catch_up(self: LetterCopies, head: LettersHead | None) -> int:
        copied.append(head)
        return 0

    monkeypatch.setattr(LetterCopies, "catch_up", catch_up)
    letters, group = LettersHead(".hoodie/hudi_ingest/dead_letters/1/manifest.json", 3), Group(1)
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger, DagsterInstance.ephemeral() as instance:
        sight = sight_of(pipeline, _idle(pipeline, letters), instance, ledger)
        assert isinstance(answer_to(sight, cast(KafkaCluster, group)), str)
    assert copied == [letters]


def test_dead_letters_that_cannot_be_copied_hide_no_reason_and_are_tried_again_by_the_next_tick(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load(write, table__base_path=str(tmp_path / "table"))

    def catch_up(self: LetterCopies, head: LettersHead | None) -> int:
        raise KafkaUnreachable("nobody takes dead letters")

    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger, DagsterInstance.ephemeral() as instance:
        sight = sight_of(pipeline, _idle(pipeline), instance, ledger)
        reason = answer_to(sight, cast(KafkaCluster, Group(1)))
        assert sight.memory.idle is not None
        monkeypatch.setattr(LetterCopies, "catch_up", catch_up)
        assert answer_to(sight, cast(KafkaCluster, Group(1))) == f"{reason}; nobody takes dead letters"
        assert sight.memory.idle is None, "the next tick looks in full"


def test_p5_a_commit_whose_op_died_behind_it_is_recorded_by_an_idle_tick(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later run would do so while the topic is idle."""
    pipeline = load(write, table__base_path=str(tmp_path / "table"))
    landed: list[str] = []
    monkeypatch.setattr(look_module, "mark_if_committed", lambda table, ledger, ident: landed.append(ident))
    plan = IngestPlan("orders", "t2", 2, (Slice("orders", 0, 1, 2),))
    now = datetime.now(timezone.utc)
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger, DagsterInstance.ephemeral() as instance:
        table = PipelineTable(pipeline)
        owner = Owner("process", "elsewhere:1:2.00")
        ledger.transactions.begin(plan, table=pipeline.table.base_path, owner=owner, deadline=now + timedelta(hours=1))
        assert "is working on transaction t2" in busy_with(instance, table, ledger, now)
        assert not landed
        monkeypatch.setattr(look_module, "is_over", lambda row, finished: True)
        assert busy_with(instance, table, ledger, now) == ""
    assert landed == ["t2"]


@pytest.mark.parametrize(
    ("sets_times", "mark"),
    [(True, Mark(5, 1_000)), (None, Mark(5, 0)), (False, None)],
    ids=["broker", "silent", "producers"],
)
def test_marks_of_a_topic_whose_producers_set_the_times_by_now_are_none(
    write: Write, monkeypatch: pytest.MonkeyPatch, sets_times: bool | None, mark: Mark | None
) -> None:
    @contextmanager
    def cluster(source: object) -> Iterator[Any]:
        yield SimpleNamespace(broker_sets_times=lambda topics: dict.fromkeys(topics, sets_times))

    monkeypatch.setattr(planning, "kept_cluster", cluster)
    confirmed = confirmed_marks(load(write).source, {SOURCE: Mark(5, 1_000)})
    assert confirmed == ({} if mark is None else {SOURCE: mark})
