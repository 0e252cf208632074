"""P1, P6, X4: a partition whose log the broker cut is stopped until a person answers, also once producers have passed the committed offset;
where it goes on then; and what `observe` sees of a broker and a table in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import (
    LeaderMissing,
    LogTruncated,
    NothingToDo,
    OffsetsLost,
    PlanOutdated,
    RangeRefused,
    TableUnreachable,
)
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import CUT_LOGS
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.kafka.cluster import Topic
from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import IngestPlan, LossReason, OffsetLoss, TransactionKind
from hudi_ingest.model.report import SliceReport, last_after
from hudi_ingest.operations.requests.allowed_ranges import to_read
from hudi_ingest.operations.requests.planning import known_state
from hudi_ingest.operations.upkeep.approvals import resume_at, resumes_in
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.checks import require_lost
from hudi_ingest.transaction.plan import planning
from hudi_ingest.transaction.plan.arithmetic import find_losses, reset_text, resumed, stop_text
from hudi_ingest.transaction.plan.cut_logs import forget, remember
from hudi_ingest.transaction.plan.planning import losses_now, observe, plan_accepting, plan_next, stopped_partitions
from hudi_ingest_tests.support.observations import seen
from hudi_ingest_tests.support.pipeline_files import Write, load

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
LAST = LastRecord(49, 1_000, 3)


@dataclass
class Broker:
    """One topic, as KafkaCluster shows it: of each partition its first offset and its end. `answers`: what it says about last records."""

    marks: dict[TopicPartition, Watermarks]
    topic_id: str = "one"
    answers: Mapping[TopicPartition, int | bool] = field(default_factory=dict)
    asked: list[Mapping[TopicPartition, LastRecord]] = field(default_factory=list)

    def topics(self, committed: Iterable[str] = ()) -> dict[str, Topic]:
        return {"orders": Topic(self.topic_id, tuple(sorted(self.marks)))}

    def watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        return {source: self.marks[source] for source in partitions}

    led_watermarks = watermarks

    def first_offsets(self, watermarks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
        return {source: marks.end for source, marks in watermarks.items()}

    def compare(self, source: object, group: str, last: Mapping[TopicPartition, LastRecord], seconds: float) -> Any:
        self.asked.append(last)
        return {source: answer for source, answer in self.answers.items() if source in last}


class Table:
    """A table's checkpoint, and a folder for the small files."""

    def __init__(self, folder: Path, checkpoint: Checkpoint | None) -> None:
        self.checkpoint, self.storage, self.timeline = checkpoint, LocalStorage(str(folder)), self

    def restore_properties(self) -> bool:
        return False

    def exists(self) -> bool:
        return self.checkpoint is not None

    def completed(self) -> tuple[()]:
        return ()

    def committed(self) -> CommittedState:
        return CommittedState(self.checkpoint is not None, self.checkpoint)


@dataclass
class Scene:
    pipeline: Pipeline
    broker: Broker
    table: Any

    def look(self) -> planning.Situation:
        return observe(self.pipeline, self.broker, self.table)

    def stopped(self) -> list[tuple[TopicPartition, LossReason]]:
        return [(loss.source, loss.reason) for loss in stopped_partitions(self.pipeline, self.look())]

    def ends_at(self, end: int) -> None:
        self.broker.marks[P0] = Watermarks(0, end)


@pytest.fixture
def scene(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Partition 0 is committed up to 50 of 50, partition 1 up to 10 of 10."""
    versions = {"orders": TopicVersion("one")}
    checkpoint = Checkpoint(4, "orders-000004", {P0: 50, P1: 10}, 100, versions, last={P0: LAST})
    broker = Broker({P0: Watermarks(0, 50), P1: Watermarks(0, 10)})
    monkeypatch.setattr(planning, "compare_logs", broker.compare)
    found = Scene(load(write), broker, Table(tmp_path / "table", checkpoint))

    class Kept:
        def __enter__(self) -> Broker:
            return broker

        def __exit__(self, *_: object) -> None:
            return

    monkeypatch.setattr(planning, "kept_cluster", lambda source: Kept())
    monkeypatch.setattr(planning, "PipelineTable", lambda pipeline: found.table)
    return found


TRUNCATED = [(P0, LossReason.TRUNCATED)]


def test_p1_p6_a_stop_that_was_noticed_outlives_the_records_that_pass_it(scene: Scene) -> None:
    assert scene.stopped() == []
    assert not scene.table.storage.exists(CUT_LOGS), "a table that is well has no such file"
    scene.ends_at(30)
    assert scene.stopped() == TRUNCATED
    for end in (50, 55, 5_000):
        scene.ends_at(end)
        assert scene.stopped() == TRUNCATED
        with pytest.raises(OffsetsLost, match=r"orders:0.*log was cut.*accept-loss"):
            plan_next(scene.pipeline, scene.look(), at_once=True)
        assert [loss.reason for loss in losses_now(scene.pipeline, scene.table, scene.table.checkpoint)] == [
            LossReason.TRUNCATED
        ]
    scene.broker.marks[P1] = Watermarks(0, 14)
    plan = plan_next(scene.pipeline, scene.look(), at_once=True)
    assert plan.slices == (Slice("orders", 1, 10, 14),)
    # Also when retention has taken what the broker had instead.
    scene.broker.marks[P0] = Watermarks(60, 90)
    assert scene.stopped() == TRUNCATED


def test_p6_a_stop_of_a_broker_without_topic_ids_outlives_it_too(scene: Scene) -> None:
    scene.table.checkpoint = replace(scene.table.checkpoint, topics={})
    scene.broker.topic_id = ""
    scene.ends_at(30)
    assert {source for source, _ in scene.stopped()} == {P0, P1}
    scene.ends_at(55)
    assert {source for source, _ in scene.stopped()} == {P0, P1}


def test_x4_a_log_that_has_the_old_records_again_goes_on(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.ends_at(30)
    scene.broker.answers = {P0: 30}
    assert [loss.diverges_at for loss in scene.look().losses] == [30]
    scene.broker.answers = {}
    scene.ends_at(55)
    assert [loss.diverges_at for loss in scene.look().losses] == [30]
    scene.broker.answers = {P0: False}
    assert [loss.diverges_at for loss in scene.look().losses] == [30], "known from before"
    scene.ends_at(49)
    scene.broker.answers = {P0: True}
    assert scene.stopped() == TRUNCATED, "what came after its last record is not there yet"
    scene.ends_at(55)
    scene.broker.answers = {}
    assert scene.stopped() == TRUNCATED, "no answer proves nothing"
    scene.broker.answers = {P0: True}
    with caplog.at_level(logging.WARNING):
        assert scene.stopped() == []
    assert "has the old records again" in caplog.text
    asked = len(scene.broker.asked)
    scene.broker.answers = {}
    assert scene.stopped() == []
    assert len(scene.broker.asked) == asked, "whoever is well is not asked"


def test_p6_what_a_write_has_found_is_remembered_until_it_is_accepted(scene: Scene) -> None:
    error = LogTruncated("cut", topic="orders", partition=0, offset=50)
    error.diverges_at = 30
    scene.ends_at(55)
    remember(scene.table.storage, scene.table.checkpoint, error)
    assert [(loss.source, loss.diverges_at) for loss in scene.look().losses] == [(P0, 30)]
    # A commit of what was read before the cut.
    later = replace(scene.table.checkpoint, offsets={P0: 52, P1: 10})
    scene.table.checkpoint = later
    assert scene.stopped() == TRUNCATED
    forget(scene.table.storage, later, [P1])
    assert scene.stopped() == TRUNCATED
    forget(scene.table.storage, later, [P0])
    assert scene.stopped() == []
    # The topic is another one, so what is known of the one before is of no account.
    remember(scene.table.storage, later, error)
    scene.table.checkpoint = replace(later, topics={"orders": TopicVersion("two", 1)})
    scene.broker.topic_id = "two"
    assert scene.stopped() == []


def test_a_list_of_cut_logs_that_cannot_be_read_stops_all_plans(scene: Scene) -> None:
    scene.table.storage.replace(CUT_LOGS, b"[{")
    with pytest.raises(TableUnreachable, match=r"cut_logs\.json.*cannot be read.*Restore it from a copy"):
        scene.look()


def test_whoever_may_only_read_the_table_sees_the_stop_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str, content: bytes) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(scene.table.storage, "replace", refuse)
    scene.ends_at(30)
    assert scene.stopped() == TRUNCATED
    assert "read-only" in caplog.text


def test_p1_a_range_of_a_log_that_was_cut_is_neither_backfilled_nor_replayed(scene: Scene) -> None:
    """It follows no record that is known, so the last one is asked for, also where nobody has noticed anything yet."""
    scene.table.checkpoint = replace(scene.table.checkpoint, covered={P0: ((0, 50),), P1: ((0, 10),)})
    scene.ends_at(55)
    same: tuple[Mapping[TopicPartition, int | bool], ...] = {P0: True}, {}
    others: tuple[Mapping[TopicPartition, int | bool], ...] = {P0: 30}, {P0: False}
    for answer in same:
        scene.broker.answers = answer
        known = known_state(seen(scene.pipeline, scene.look()), [P0, P1])
        assert to_read(known, TransactionKind.REPLAY, [Slice("orders", 0, 5, 9)]) == {P0: ((5, 9),)}
    for answer in others:
        scene.broker.answers = answer
        known = known_state(seen(scene.pipeline, scene.look()), [P0, P1])
        with pytest.raises(RangeRefused, match=r"orders:0.*log was cut.*refer to other records now"):
            to_read(known, TransactionKind.REPLAY, [Slice("orders", 0, 5, 9)])


# Where it goes on.


def accepted(scene: Scene, at: int | str, *, diverges_at: int | None = None) -> IngestPlan:
    scene.ends_at(55)
    error = LogTruncated("cut", topic="orders", partition=0, offset=50)
    error.diverges_at = diverges_at
    remember(scene.table.storage, scene.table.checkpoint, error)
    return plan_accepting(scene.pipeline, [], (), {P0: at})


@pytest.mark.parametrize(
    ("at", "diverges_at", "start", "told"),
    [
        ("end", 30, 55, "resumes at 55; its offsets 30 to 54 are skipped; the rows of the lost offsets 30 to 49 stay"),
        (
            "end",
            None,
            55,
            "resumes at 55; what the broker has from where the logs part, which is unknown, to 54 is skipped",
        ),
        ("divergence", 30, 30, "resumes at 30; the rows of the lost offsets 30 to 49 stay"),
        (20, 30, 20, "resumes at 20; its offsets 20 to 29 are read a second time, under other keys; the rows of"),
        (40, 30, 40, "resumes at 40; its offsets 30 to 39 are skipped; the rows of the lost offsets 30 to 49 stay"),
        ("first", 30, 0, "resumes at 0; its offsets 0 to 29 are read a second time, under other keys"),
        (20, None, 20, "what was read from 20 to where the logs part is read a second time, under other keys"),
    ],
)
def test_x4_a_cut_log_goes_on_where_a_person_says(
    scene: Scene, at: int | str, diverges_at: int | None, start: int, told: str
) -> None:
    plan = accepted(scene, at, diverges_at=diverges_at)
    (loss,) = plan.resets
    assert (loss.restart, loss.first, loss.lost, loss.diverges_at) == (start, 0, None, diverges_at)
    assert plan.slices == (Slice("orders", 0, start, 55), Slice("orders", 1, 10, 10))
    assert told in reset_text(plan.resets)
    assert plan.topics["orders"].generation == 1, "the offsets from 30 to 49 are those of other records now"
    after = next_checkpoint(scene.table.checkpoint, plan, 0)
    assert after.offsets == {P0: 55, P1: 10}
    require_lost(plan, losses_now(scene.pipeline, scene.table, scene.table.checkpoint))
    assert OffsetLoss.from_dict(loss.to_dict()) == loss


def test_x4_what_was_read_before_the_logs_part_stays_covered(scene: Scene) -> None:
    before = replace(scene.table.checkpoint, covered={P0: ((0, 50),), P1: ((0, 10),)})
    plan = accepted(scene, "end", diverges_at=30)
    assert next_checkpoint(before, plan, 0).covered[P0] == ((0, 30),)
    assert next_checkpoint(before, accepted(scene, "divergence", diverges_at=30), 0).covered[P0] == ((0, 55),)
    unknown = replace(plan, resets=tuple(replace(loss, diverges_at=None) for loss in plan.resets))
    assert next_checkpoint(before, unknown, 0).covered[P0] == ()


def test_x4_a_place_that_the_broker_does_not_have_is_refused(scene: Scene) -> None:
    for at, problem in (
        (56, "orders:0: 56 is not between the broker's first offset 0 and its end 55"),
        ("divergence", "orders:0: it is unknown where the logs part: the broker's leader epochs do not say"),
    ):
        with pytest.raises(RangeRefused, match=problem):
            accepted(scene, at)
    with pytest.raises(NothingToDo, match="orders:1 is not stopped"):
        plan_accepting(scene.pipeline, [], (), {P0: "end", P1: 3})
    scene.broker.marks[P0] = Watermarks(50, 50, led=False)
    with pytest.raises(LeaderMissing, match="orders:0"):
        plan_accepting(scene.pipeline, [P0])


def test_x4_records_behind_what_retention_took_are_skipped_by_count(scene: Scene) -> None:
    scene.broker.marks[P0] = Watermarks(60, 90)
    (loss,) = plan_accepting(scene.pipeline, [], (), {P0: 75}).resets
    assert (loss.reason, loss.restart, loss.lost, loss.first) == (LossReason.RETENTION, 75, 25, 60)
    told = reset_text([loss])
    assert "first is 60: up to 10 records were deleted" in told
    assert "resumes at 75; its offsets 60 to 74 are skipped" in told


def test_x4_a_topic_on_another_cluster_goes_on_where_a_file_says(scene: Scene) -> None:
    scene.broker.topic_id = "two"
    scene.broker.marks = {P0: Watermarks(0, 45), P1: Watermarks(0, 12)}
    with pytest.raises(RangeRefused, match=r"orders is another one now.*orders:1 must be named, too"):
        plan_accepting(scene.pipeline, [], (), {P0: 44})
    plan = plan_accepting(scene.pipeline, [], (), {P0: 44, P1: "end"})
    assert plan.slices == (Slice("orders", 0, 44, 45), Slice("orders", 1, 12, 12))
    assert plan.topics == {"orders": TopicVersion("two", 1)}
    assert "resumes at 44; its offsets 0 to 43 are skipped" in reset_text(plan.resets)
    assert "--offsets FILE" in stop_text(
        "orders", find_losses(scene.table.checkpoint, scene.broker.marks, {"orders": "two"})
    )
    rest = plan_accepting(scene.pipeline, [], ("orders",), {P0: 44})
    assert [slice_.start for slice_ in rest.slices] == [44, 0]


def test_x4_a_begin_looks_whether_the_broker_still_has_the_chosen_offset(scene: Scene) -> None:
    plan = accepted(scene, 20, diverges_at=30)
    scene.broker.marks[P0] = Watermarks(20, 60)
    require_lost(plan, losses_now(scene.pipeline, scene.table, scene.table.checkpoint))
    scene.broker.marks[P0] = Watermarks(21, 60)
    with pytest.raises(PlanOutdated, match="the broker's losses have changed"):
        require_lost(plan, losses_now(scene.pipeline, scene.table, scene.table.checkpoint))


@given(st.integers(0, 60), st.integers(0, 60), st.none() | st.integers(0, 49), st.integers(0, 20))
def test_x4_every_offset_is_accounted_for_wherever_it_goes_on(
    at: int, end: int, diverges_at: int | None, begin: int
) -> None:
    """What is said of the offsets adds up: those behind where the logs part and before the restart are skipped, the others from it on that
    were read are read again."""
    loss = OffsetLoss("orders", 0, 50, begin, None, LossReason.TRUNCATED, diverges_at=diverges_at)
    marks = Watermarks(begin, max(begin, end))
    if not marks.begin <= at <= marks.end:
        with pytest.raises(ValueError, match="is not between"):
            resumed(loss, at, marks)
        return
    told = reset_text([resumed(loss, at, marks)])
    if diverges_at is not None:
        assert ("are skipped" in told) == (at > diverges_at)
        assert ("a second time" in told) == (at < diverges_at)


def test_offsets_are_read_as_kafkas_tools_print_them() -> None:
    group = "hudi-ingest-orders"
    mirrored = "Checkpoint{{consumerGroupId={}, topicPartition=us-west.orders-3, upstreamOffset=200, downstreamOffset={}, metadata=}}"
    lines = ["# moved", "", "orders:0=12", "orders:1=end", "orders,2,77", '"orders","4",5']
    assert resumes_in(lines[:5], "f", group) == {P0: 12, P1: "end", TopicPartition("orders", 2): 77}
    checkpoints = [mirrored.format(group, 10), mirrored.format("others", 11), mirrored.format(group, 12)]
    assert resumes_in(checkpoints, "f", group) == {TopicPartition("us-west.orders", 3): 12}
    with pytest.raises(RangeRefused) as refused:
        resumes_in(["orders:0", "orders:0=-1", "orders:1=5", "orders:1=6", "x"], "f", group)
    assert [problem[:7] for problem in refused.value.problems] == ["line 1:", "line 2:", "line 4:", "line 5:"]
    with pytest.raises(RangeRefused, match="only those of other consumer groups"):
        resumes_in([mirrored.format("others", 11)], "f", group)


@pytest.mark.parametrize("text", ["orders", "orders:x=1", "orders:0=", "orders:0=later"])
def test_a_place_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        resume_at(text)


# The last record that was read.


def test_p1_the_last_record_of_each_partition_is_in_the_checkpoint() -> None:
    first = Checkpoint(1, "a", {P0: 50, P1: 10}, last={P0: LAST, P1: LastRecord(8, 5)})
    assert Checkpoint.from_json(first.to_json()) == first
    plain = replace(first, last={})
    assert '"last"' not in plain.to_json(), "checkpoints of tables that never had one stay as they were"
    assert Checkpoint.from_json(plain.to_json()).last == {}
    plan = IngestPlan("orders", "b", 2, (Slice("orders", 0, 50, 60), Slice("orders", 1, 10, 10)))
    newer = LastRecord(58, 7, 4)
    told = [SliceReport(plan.slices[0], 0, last=newer), SliceReport(plan.slices[1], 0)]
    assert last_after(first, plan, told) == {P0: newer, P1: LastRecord(8, 5)}
    loss = OffsetLoss("orders", 1, 10, 0, None, LossReason.TRUNCATED)
    assert last_after(first, replace(plan, resets=(loss,)), told) == {P0: newer}
    assert SliceReport.from_dict(told[0].to_dict()) == told[0]


# What `observe` makes of a broker.


def test_p1_a_partition_that_is_added_later_is_read_from_its_first_offset(scene: Scene) -> None:
    """n44: `starting_offsets: latest` is for the first start alone."""
    added = TopicPartition("orders", 2)
    scene.broker.marks[added] = Watermarks(2, 7)
    assert scene.look().starts[added] == 2
    plan = plan_next(scene.pipeline, scene.look(), at_once=True)
    assert Slice("orders", 2, 2, 7) in plan.slices
    scene.table.checkpoint = None
    assert scene.look().starts == {P0: 50, P1: 10, added: 7}


@pytest.mark.parametrize(("known", "found", "skips"), [("", "two", False), ("one", "", False), ("one", "two", True)])
def test_p2_a_topic_of_unknown_id_is_not_read_once_more_without_a_person(
    scene: Scene, write: Write, known: str, found: str, skips: bool
) -> None:
    """n42: with stale metadata a topic looks like another one."""
    pipeline = load(write, source__on_data_loss="skip_to_earliest")
    scene.table.checkpoint = replace(scene.table.checkpoint, topics={"orders": TopicVersion(known)})
    scene.broker.topic_id = found
    scene.ends_at(30)
    stopped = stopped_partitions(pipeline, scene.look())
    assert bool(stopped) != skips
    if skips:
        assert [loss.restart for loss in plan_next(pipeline, scene.look(), at_once=True).resets] == [0, 0]
    else:
        with pytest.raises(OffsetsLost):
            plan_next(pipeline, scene.look(), at_once=True)


@pytest.mark.parametrize(("asked", "start"), [(0, 5), (5, 5), (7, 7), (9, 9), (10, 9), (1_000, 9)])
def test_p1_a_first_start_is_never_outside_what_the_broker_has(
    scene: Scene, asked: int, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """a36: starting_offsets may name an offset before or behind what the partition holds."""
    scene.table.checkpoint = None
    scene.broker.marks = {P0: Watermarks(5, 9)}
    monkeypatch.setattr(scene.broker, "first_offsets", lambda watermarks: {P0: asked})
    situation = scene.look()
    assert situation.starts == {P0: start}
    assert situation.lag.total == 9 - start
