"""Promises 1 (no loss) and 2 (no duplicate) while partitions have no leader: they wait, and the others go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import LeaderMissing, NothingToDo
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.kafka.cluster import Topic
from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.jobs.run_config import run_tags
from hudi_ingest.transaction.plan.arithmetic import Limits, left_out_text
from hudi_ingest.transaction.plan.planning import Situation, held_offsets, oldest_waiting_seconds, plan_transaction
from hudi_ingest_tests.support.pipeline_files import Write, load

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
FIRST, SECOND, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("returns", 0)


@dataclass
class Broker:
    """The end of each partition, those without a leader, and each topic's id."""

    ends: dict[TopicPartition, int]
    leaderless: set[TopicPartition] = field(default_factory=set)
    ids: dict[str, str] = field(default_factory=lambda: {"orders": "o1", "returns": "r1"})

    def topics(self, committed: Iterable[str] = ()) -> dict[str, Topic]:
        names = sorted({source.topic for source in self.ends})
        partitions = {name: tuple(sorted(source for source in self.ends if source.topic == name)) for name in names}
        return {name: Topic(self.ids[name], partitions[name]) for name in names}

    def watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        partitions = list(partitions)
        if self.leaderless.intersection(partitions):
            raise LeaderMissing("no leader")
        return self.led_watermarks(partitions)

    def led_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return {source: Watermarks(0, self.ends[source]) for source in partitions if source not in self.leaderless}

    def first_offsets(self, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        return {source: marks.begin for source, marks in watermarks.items()}


def planned(broker: Broker, checkpoint: Checkpoint | None) -> IngestPlan:
    topic_ids, marks = held_offsets(broker, checkpoint)
    return plan_transaction(
        pipeline="orders",
        suffix="abc",
        situation=Situation(CommittedState(True, checkpoint), marks, broker.first_offsets(marks), topic_ids),
        limits=Limits(interval_seconds=60, min_records=1, max_records=50),
        now=NOW,
    )


@given(st.lists(st.tuples(st.sets(st.sampled_from([FIRST, SECOND, OTHER])), st.integers(0, 40)), max_size=12))
def test_p1_every_offset_is_read_once_whatever_leaders_are_missing(
    steps: list[tuple[set[TopicPartition], int]],
) -> None:
    broker = Broker({FIRST: 5, SECOND: 3})
    checkpoint: Checkpoint | None = None
    read: dict[TopicPartition, int] = {}
    for leaderless, produced in [*steps, *[(set[TopicPartition](), 0)] * 30]:
        broker.leaderless = leaderless
        broker.ends = {source: end + produced for source, end in broker.ends.items()} | (
            {OTHER: broker.ends.get(OTHER, 0) + produced} if checkpoint else {}
        )
        try:
            plan = planned(broker, checkpoint)
        except (LeaderMissing, NothingToDo):
            continue
        for slice_ in plan.slices:
            assert slice_.start == read.get(slice_.source, 0)
            assert not slice_.count or slice_.source not in leaderless
            read[slice_.source] = slice_.end
        checkpoint = next_checkpoint(checkpoint, plan, 10)
    assert {source: end for source, end in read.items() if end} == {
        source: end for source, end in broker.ends.items() if end
    }


COMMITTED = Checkpoint(1, "t", {FIRST: 5, SECOND: 3}, topics={"orders": TopicVersion("o1")})


def test_a_partition_without_a_leader_keeps_its_committed_offset() -> None:
    plan = planned(Broker({FIRST: 9, SECOND: 9}, {SECOND}), COMMITTED)
    assert plan.slices == (Slice("orders", 0, 5, 9), Slice("orders", 1, 3, 3))
    assert next_checkpoint(COMMITTED, plan, 10).offsets == {FIRST: 9, SECOND: 3}


def test_a_transaction_names_the_partitions_that_it_leaves_out(write: Write) -> None:
    plan = planned(Broker({FIRST: 9, SECOND: 9}, {SECOND}), COMMITTED)
    assert plan.leaderless == (SECOND,) and not planned(Broker({FIRST: 9, SECOND: 9}), COMMITTED).leaderless
    shown = left_out_text("orders", plan.stopped, plan.resets, plan.leaderless)
    assert [*shown] == ["left out"] and shown["left out"].startswith(
        "orders:1 has no leader, so it is unknown how many"
    )
    assert run_tags(load(write), plan)[tags.LEADERLESS] == "orders:1"


def test_nothing_to_do_names_the_partitions_without_a_leader() -> None:
    with pytest.raises(NothingToDo, match="it is unknown how many records wait in orders:1, which has no leader"):
        planned(Broker({FIRST: 5, SECOND: 9}, {SECOND}), COMMITTED)


def test_a_topic_of_which_nothing_is_committed_may_wait_as_well() -> None:
    plan = planned(Broker({FIRST: 9, SECOND: 3, OTHER: 4}, {OTHER}), COMMITTED)
    assert [slice_.source for slice_ in plan.slices] == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("broker", "checkpoint"),
    [
        (Broker({FIRST: 9, SECOND: 9}, {SECOND}), None),
        (Broker({FIRST: 9, SECOND: 9}, {FIRST, SECOND}), COMMITTED),
        (Broker({FIRST: 9, SECOND: 9}, {SECOND}, {"orders": "o2"}), COMMITTED),
        (Broker({FIRST: 9, SECOND: 9}, {SECOND}, {"orders": ""}), COMMITTED),
        (Broker({FIRST: 9, SECOND: 9}, {SECOND}), Checkpoint(1, "t", {FIRST: 5, SECOND: 3})),
    ],
    ids=["first transaction", "none has a leader", "recreated", "no id on the broker", "no id committed"],
)
def test_leaders_are_waited_for_where_it_is_not_certain_how_the_partition_continues(
    broker: Broker, checkpoint: Checkpoint | None
) -> None:
    with pytest.raises(LeaderMissing):
        held_offsets(broker, checkpoint)


def test_the_age_of_the_oldest_waiting_record_is_unknown_and_not_zero(write: Write) -> None:
    marks = {FIRST: Watermarks(0, 5), SECOND: Watermarks(3, 3, led=False)}
    unled = Situation(CommittedState(True, COMMITTED), marks, {}, {"orders": "o1"})
    assert oldest_waiting_seconds(load(write), unled, NOW) is None
    led = replace(unled, watermarks={FIRST: Watermarks(0, 5), SECOND: Watermarks(0, 3)})
    assert oldest_waiting_seconds(load(write), led, NOW) == 0
