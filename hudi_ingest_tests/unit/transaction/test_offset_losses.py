"""X3, X4: a committed offset that the broker cannot honour is a stop, a reset or an error, and never passed over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import KafkaUnreachable, NothingToDo, OffsetsLost, PlanOutdated, WriteIncomplete
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import IngestPlan, LossReason, OffsetLoss
from hudi_ingest.model.report import SliceReport
from hudi_ingest.transaction.checks import require_current, require_sums
from hudi_ingest.transaction.plan.arithmetic import Limits, find_losses, stop_text
from hudi_ingest.transaction.plan.planning import Situation, plan_transaction

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
CHECKPOINT = Checkpoint(4, "t4", {P0: 10, P1: 20}, 100, {"orders": TopicVersion("one")})
HELD = {P0: Watermarks(0, 15), P1: Watermarks(0, 25)}
IDS = {"orders": "one"}


def planned(
    marks: dict[TopicPartition, Watermarks],
    ids: dict[str, str] = IDS,
    checkpoint: Checkpoint | None = CHECKPOINT,
    accepted: bool = False,
) -> IngestPlan:
    return plan_transaction(
        pipeline="shop",
        suffix="abc",
        situation=Situation(CommittedState(True, checkpoint), marks, {}, ids),
        limits=Limits(60, 1, 10**6),
        now=NOW,
        accepts=lambda loss: accepted,
    )


def reports(found: IngestPlan) -> list[SliceReport]:
    return [SliceReport(each, 0, rows=each.count) for each in found.slices]


sources = st.builds(TopicPartition, st.sampled_from(["orders", "payments"]), st.integers(0, 3))
marks = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: Watermarks(min(pair), max(pair)))
ids = st.fixed_dictionaries({"orders": st.sampled_from(["", "a", "b"]), "payments": st.sampled_from(["a", "b"])})


@given(
    st.dictionaries(sources, st.integers(0, 9), min_size=1),
    st.dictionaries(sources, marks, min_size=1),
    ids,
    ids,
    st.booleans(),
)
def test_p6_x4_every_offset_that_cannot_be_honoured_is_a_stop_a_reset_or_an_error(
    offsets: dict[TopicPartition, int],
    broker: dict[TopicPartition, Watermarks],
    known: dict[str, str],
    found_ids: dict[str, str],
    accepted: bool,
) -> None:
    asked = {each.topic for each in broker}
    checkpoint = Checkpoint(4, "t4", offsets, 0, {topic: TopicVersion(each) for topic, each in known.items() if each})

    def same(topic: str) -> bool:
        return known[topic] == found_ids[topic] != ""

    def another(topic: str) -> bool:
        return "" not in (known[topic], found_ids[topic]) and not same(topic)

    held = {
        source
        for source, offset in offsets.items()
        if source in broker and broker[source].begin <= offset <= broker[source].end and not another(source.topic)
    }
    lost = {source for source in offsets if source.topic in asked} - held
    try:
        found = planned(broker, found_ids, checkpoint, accepted)
    except NothingToDo:
        assert not lost
        return
    except KafkaUnreachable:
        assert any(same(each.topic) and each not in broker for each in lost)
        return
    except OffsetsLost as error:
        assert not accepted
        assert all(str(each) in str(error) for each in lost)
        return
    starts = {each.source: each.start for each in found.slices}
    resets = {each.source: each for each in found.resets}
    stopped = {each.source: each for each in found.stopped}
    assert lost <= resets.keys() | stopped.keys()
    assert not (resets if not accepted else stopped)
    for source, start in starts.items():
        assert source not in stopped
        if source in resets:
            assert start == resets[source].restart == broker[source].begin
        elif source in offsets:
            assert source in held
            assert start == offsets[source]
    # The others go on.
    assert {each for each in held if same(each.topic)} <= starts.keys()
    # What is planned may begin and be committed; afterwards only the stopped ones are left.
    require_current(found, checkpoint)
    after = next_checkpoint(checkpoint, found, 0)
    require_sums(checkpoint, after, found, reports(found))
    assert {each.source for each in find_losses(after, broker, found_ids)} == stopped.keys()
    ends = {each.source: each.end for each in found.slices}
    assert {source: after.offsets.get(source) for source in ends} == ends


def test_p6_retention_stops_one_partition_and_names_the_command() -> None:
    found = planned({P0: Watermarks(12, 15), P1: Watermarks(0, 25)})
    assert found.slices == (Slice("orders", 1, 20, 25),)
    assert found.stopped == (OffsetLoss("orders", 0, 10, 12, 2, LossReason.RETENTION),)
    text = stop_text("shop", found.stopped)
    assert "orders:0: the next offset to read is 10, but the broker's first is 12: up to 2 records were deleted" in text
    assert "`hudi-ingest accept-loss shop --partition orders:0`" in text
    assert next_checkpoint(CHECKPOINT, found, 0).offsets == {P0: 10, P1: 25}


def test_p6_when_nothing_else_is_to_be_done_a_stop_is_an_error() -> None:
    with pytest.raises(OffsetsLost, match=r"2 records were deleted.*\n.*no new records") as raised:
        planned({P0: Watermarks(12, 15), P1: Watermarks(0, 20)})
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("orders", 0, 10)


def test_p6_a_topic_made_again_that_has_outgrown_its_offsets_stops_whole() -> None:
    other = TopicPartition("payments", 0)
    broker = {**HELD, P2: Watermarks(0, 9), other: Watermarks(0, 3)}
    found = planned(broker, {"orders": "two", "payments": "p"})
    assert found.slices == (Slice("payments", 0, 0, 3),)
    assert [(each.source, each.reason) for each in found.stopped] == [
        (P0, LossReason.RECREATED),
        (P1, LossReason.RECREATED),
    ]
    assert "`hudi-ingest accept-loss shop --topic orders`" in stop_text("shop", found.stopped)


def test_x4_an_accepted_topic_begins_again_in_the_next_generation_and_drops_lost_partitions() -> None:
    found = planned({P0: Watermarks(0, 50)}, {"orders": "two"}, accepted=True)
    assert found.slices == (Slice("orders", 0, 0, 50),)
    after = next_checkpoint(CHECKPOINT, found, 0)
    assert after.offsets == {P0: 50}
    assert after.topics == {"orders": TopicVersion("two", 1)}
    third = planned({P0: Watermarks(0, 60)}, {"orders": "three"}, after, accepted=True)
    assert third.topics == {"orders": TopicVersion("three", 2)}


def test_p6_an_end_before_the_committed_offset_stops_its_partition() -> None:
    found = planned({P0: Watermarks(0, 7), P1: Watermarks(0, 25)})
    assert [(each.source, each.reason) for each in found.stopped] == [(P0, LossReason.TRUNCATED)]
    assert [each.source for each in found.slices] == [P1]
    again = planned({P0: Watermarks(0, 7), P1: Watermarks(0, 25)}, accepted=True)
    assert again.topics == {"orders": TopicVersion("one", 1)}, "its offsets come again, so their keys must differ"


def test_p6_without_topic_ids_an_end_before_the_offset_speaks_for_the_whole_topic() -> None:
    old = replace(CHECKPOINT, topics={})
    with pytest.raises(OffsetsLost, match=r"orders:0(.|\n)*orders:1"):
        planned({P0: Watermarks(0, 7), P1: Watermarks(0, 25)}, checkpoint=old)


def test_p6_a_broker_that_does_not_list_a_partition_of_the_same_topic_is_asked_again() -> None:
    with pytest.raises(KafkaUnreachable, match=r"orders:1.*metadata is stale") as raised:
        planned({P0: Watermarks(0, 15)}, accepted=True)
    assert (raised.value.topic, raised.value.partition) == ("orders", 1)


def test_a_checkpoint_without_topic_ids_takes_them_with_the_next_commit() -> None:
    old = replace(CHECKPOINT, topics={})
    assert next_checkpoint(old, planned(HELD, checkpoint=old), 0).topics == {"orders": TopicVersion("one")}


def test_x3_a_reset_without_new_records_is_committed_too() -> None:
    found = planned({P0: Watermarks(12, 12), P1: Watermarks(0, 20)}, accepted=True)
    assert found.slices == (Slice("orders", 0, 12, 12), Slice("orders", 1, 20, 20))


GOOD = planned({P0: Watermarks(12, 15), P1: Watermarks(0, 25)}, accepted=True)
RESET = GOOD.resets[0]
AGAIN = planned({P0: Watermarks(0, 50), P1: Watermarks(0, 50)}, {"orders": "two"}, accepted=True)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(GOOD, resets=()),
        replace(GOOD, resets=(replace(RESET, committed=9),)),
        replace(GOOD, resets=(replace(RESET, restart=11, lost=1),)),
        replace(GOOD, slices=GOOD.slices[1:]),
        replace(GOOD, stopped=GOOD.resets, resets=()),
        replace(GOOD, topics={}),
        replace(GOOD, topics={"orders": TopicVersion("two")}),
        replace(GOOD, topics={"orders": TopicVersion("one", 1)}),
        replace(AGAIN, resets=AGAIN.resets[1:]),
        replace(AGAIN, topics={"orders": TopicVersion("two")}),
    ],
)
def test_p2_x4_only_an_explicit_reset_may_jump(wrong: IngestPlan) -> None:
    require_current(GOOD, CHECKPOINT)
    require_current(AGAIN, CHECKPOINT)
    with pytest.raises(PlanOutdated, match="Nothing was written"):
        require_current(wrong, CHECKPOINT)


def test_x3_a_wrong_sum_is_refused() -> None:
    after = next_checkpoint(CHECKPOINT, GOOD, 0)
    require_sums(CHECKPOINT, after, GOOD, reports(GOOD))
    fewer = [replace(reports(GOOD)[0], rows=2), reports(GOOD)[1]]
    for wrong, told, found in [
        (GOOD, fewer, after),
        (GOOD, reports(GOOD)[1:], after),
        (replace(GOOD, resets=()), reports(GOOD), after),
        (replace(GOOD, resets=(replace(RESET, lost=1),)), reports(GOOD), after),
        (GOOD, reports(GOOD), replace(after, offsets={P1: 25})),
        (GOOD, reports(GOOD), replace(after, offsets={**after.offsets, P1: 24})),
        (GOOD, reports(GOOD), replace(after, offsets={**after.offsets, P2: 1})),
    ]:
        with pytest.raises(WriteIncomplete, match="do not add up"):
            require_sums(CHECKPOINT, found, wrong, told)
