"""Which ranges may be backfilled and replayed, and that their transactions read each offset once (P1, P2, P6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import PlanOutdated, RangeRefused, WriteIncomplete
from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.offsets import (
    Ranges,
    Slice,
    TopicPartition,
    TopicVersion,
    Watermarks,
    difference,
    intersection,
    ranges,
    union,
)
from hudi_ingest.model.plan import (
    PLAN_TYPES,
    IngestPlan,
    LossReason,
    OffsetLoss,
    TakeOver,
    TransactionKind,
    TransactionPlan,
)
from hudi_ingest.model.report import SliceReport
from hudi_ingest.operations.requests.allowed_ranges import (
    RangeContext,
    next_ranges,
    range_transaction,
    require_committed_end,
    to_read,
    to_upsert,
    without,
)
from hudi_ingest.transaction.checks import renumbered, require_current, require_sums

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
CHECKPOINT = Checkpoint(
    4,
    "t-4",
    {P0: 100, P1: 50},
    10,
    {"orders": TopicVersion("id")},
    "4",
    covered={P0: ((40, 60), (70, 100)), P1: ((10, 50),)},
)
KNOWN = RangeContext(
    "orders", CHECKPOINT, CHECKPOINT.covered, {P0: Watermarks(0, 120), P1: Watermarks(20, 50)}, {"orders": "id"}
)


def asked(start: int, end: int, source: TopicPartition = P0) -> list[Slice]:
    return [Slice(source.topic, source.partition, start, end)]


def refusal(known: RangeContext, wanted: list[Slice], kind: str = "backfill") -> str:
    with pytest.raises(RangeRefused, match="nothing was written") as raised:
        if kind == "backfill":
            to_read(known, TransactionKind.BACKFILL, wanted, skip_covered=False)
        else:
            to_read(known, TransactionKind.REPLAY, wanted)
    (problem,) = raised.value.problems
    return problem


def test_p2_a_backfill_of_what_is_in_the_table_is_refused_with_the_ranges_and_the_replay_command() -> None:
    assert refusal(KNOWN, asked(30, 75)) == (
        "orders:0 [40,60), [70,75) is already in the table. To rewrite it: `hudi-ingest replay orders --partition orders:0 "
        "--start 40 --end 60` and `hudi-ingest replay orders --partition orders:0 --start 70 --end 75`. To add only what is "
        "missing, orders:0 [30,40), [60,70), give --skip-covered."
    )
    left = to_read(KNOWN, TransactionKind.BACKFILL, asked(30, 75), skip_covered=True)
    assert left == {P0: ((30, 40), (60, 70))}
    assert to_read(KNOWN, TransactionKind.BACKFILL, asked(0, 40), skip_covered=False) == {P0: ((0, 40),)}


def test_p6_what_is_gone_from_kafka_is_refused_before_anything_is_written() -> None:
    assert "orders:1 [0,10) was deleted from Kafka by retention: its first offset is 20" in refusal(
        KNOWN, asked(0, 10, P1)
    )
    old = replace(KNOWN, watermarks={**KNOWN.watermarks, P0: Watermarks(15, 120)})
    assert "[0,15) was deleted" in refusal(old, asked(0, 40))
    assert "For the rest, give --start 15." in refusal(old, asked(0, 40))
    assert "orders:1 [10,20) was deleted" in refusal(KNOWN, asked(10, 50, P1), "replay")


def test_p1_a_replay_of_what_was_never_read_is_refused_with_the_backfill_command() -> None:
    problem = refusal(KNOWN, asked(50, 80), "replay")
    assert "orders:0 [60,70) was never ingested" in problem
    assert "`hudi-ingest backfill orders --partition orders:0 --start 60 --end 70`" in problem
    assert to_read(KNOWN, TransactionKind.REPLAY, asked(45, 55)) == {P0: ((45, 55),)}


@pytest.mark.parametrize("kind", ["backfill", "replay"])
def test_ranges_that_are_not_ours_are_refused(kind: str) -> None:
    assert "where live transactions continue. Give --end 100." in refusal(KNOWN, asked(90, 110), kind)
    assert "There is nothing to do." in refusal(KNOWN, asked(100, 110), kind)
    new = TopicPartition("orders", 2)
    known = replace(KNOWN, watermarks={**KNOWN.watermarks, new: Watermarks(0, 9)})
    assert "Run `hudi-ingest run orders` once" in refusal(known, asked(0, 5, new), kind)
    assert refusal(KNOWN, asked(0, 5, new), kind) == "topic orders has no partition 2; it has 2 partitions, from 0 on."
    order, else_ = TopicPartition("order", 0), TopicPartition("else", 0)
    assert refusal(KNOWN, asked(0, 5, order), kind) == "order is not a topic of the pipeline; did you mean orders?"
    assert refusal(KNOWN, asked(0, 5, else_), kind) == "else is not a topic of the pipeline; choose one of orders."
    assert "recreated" in refusal(replace(KNOWN, topic_ids={"orders": "another"}), asked(0, 5), kind)
    assert refusal(replace(KNOWN, checkpoint=None), asked(0, 5), kind)


def test_a_replay_of_a_topic_that_was_made_again_is_refused() -> None:
    again = replace(CHECKPOINT, topics={"orders": TopicVersion("id", 1)})
    assert "two records may share an offset" in refusal(replace(KNOWN, checkpoint=again), asked(45, 55), "replay")
    assert to_read(replace(KNOWN, checkpoint=again), TransactionKind.BACKFILL, asked(0, 5), skip_covered=False)


offset = st.integers(0, 99)
covers = st.lists(st.tuples(offset, offset), max_size=4).map(ranges)


@pytest.mark.parametrize("kind", [TransactionKind.BACKFILL, TransactionKind.REPLAY])
def test_p8_a_keyed_table_reads_again_up_to_the_committed_end_or_not_at_all(kind: TransactionKind) -> None:
    with pytest.raises(RangeRefused) as raised:
        require_committed_end(KNOWN, kind, [*asked(30, 100), *asked(20, 49, P1), *asked(20, 50, P1)])
    (problem,) = raised.value.problems
    assert problem.startswith("orders:1[20,49) ends before the committed offset 50. The table is keyed: ")
    assert problem.endswith("Leave out the end, or give --end 50.")

    # Live transactions have moved on since these were asked for.
    remaining = to_upsert(KNOWN, kind, [*asked(75, 80), *asked(72, 90), *asked(20, 30, P1)], 58)
    assert remaining == ({P0: ((72, 100),), P1: ((20, 50),)} if kind is TransactionKind.REPLAY else {})
    if kind is TransactionKind.REPLAY:
        with pytest.raises(RangeRefused, match="nothing was written") as raised:
            to_upsert(KNOWN, kind, [*asked(72, 100), *asked(20, 50, P1)], 57)
        assert raised.value.problems[0].startswith("58 offsets up to the committed ones are more than the 57 of one")


def test_p8_a_backfill_of_a_keyed_table_begins_at_what_it_lacks_and_a_replay_cannot() -> None:
    remaining = to_upsert(KNOWN, TransactionKind.BACKFILL, asked(45, 100), 1000)
    assert remaining == {P0: ((60, 100),)}
    with pytest.raises(RangeRefused, match="nothing was written") as raised:
        to_upsert(KNOWN, TransactionKind.REPLAY, asked(45, 100), 1000)
    assert "orders:0 [60,70) was never ingested" in raised.value.problems[0]

    plan = range_transaction(KNOWN, TransactionKind.BACKFILL, tuple(asked(60, 100)), suffix="x", upserts=True)
    assert TransactionPlan.from_dict(plan.to_dict()) == plan
    require_current(plan, CHECKPOINT)
    assert committed(CHECKPOINT, plan).covered[P0] == ((40, 100),)
    moved_on = replace(CHECKPOINT, offsets={P0: 101, P1: 50})
    with pytest.raises(PlanOutdated, match="of a keyed table does not end at the committed offset 101"):
        require_current(plan, moved_on)


@given(covers, covers, st.tuples(offset, offset).map(sorted), st.integers(1, 40), st.integers(0, 30))
def test_p1_p2_a_backfill_reads_each_missing_offset_once_and_never_moves_the_live_ones(
    zero: Ranges, one: Ranges, wanted: list[int], most: int, crash: int
) -> None:
    """Also when it is cut off after any transaction and begun again, and whatever comes between two of its transactions."""
    checkpoint = replace(CHECKPOINT, offsets={P0: 100, P1: 100}, covered={P0: zero, P1: one})
    marks = {P0: Watermarks(0, 10_000), P1: Watermarks(0, 10_000)}
    want = [*asked(wanted[0], wanted[1]), *asked(wanted[0], wanted[1], P1)]
    seen: list[Slice] = []
    for turn in range(400):
        known = RangeContext("orders", checkpoint, checkpoint.covered, marks, {"orders": "id"})
        slices = next_ranges(to_read(known, TransactionKind.BACKFILL, want, skip_covered=True), most)
        if not slices:
            break
        plan = range_transaction(known, TransactionKind.BACKFILL, slices, suffix="x")
        assert plan.count <= most
        require_current(plan, checkpoint)
        after = committed(checkpoint, plan)
        assert after.offsets == checkpoint.offsets
        if turn == crash:
            continue  # It died before its commit.
        seen += slices
        checkpoint = Checkpoint.from_json(after.to_json())
        if turn % 3 == 0:
            live = ingest(checkpoint)
            require_current(live, checkpoint)
            checkpoint = committed(checkpoint, live)
    whole = ranges([(wanted[0], wanted[1])])
    for source, before in ((P0, zero), (P1, one)):
        mine = [(each.start, each.end) for each in seen if each.source == source]
        assert ranges(mine) == difference(whole, before)
        assert sum(end - start for start, end in mine) == sum(end - start for start, end in ranges(mine))
        assert intersection(checkpoint.covered[source], ranges([(0, 100)])) == union(before, mine)


def test_p2_a_live_plan_outlives_a_backfill_that_came_between_and_no_other_live_one() -> None:
    live = ingest(CHECKPOINT)
    backfill = range_transaction(KNOWN, TransactionKind.BACKFILL, tuple(asked(0, 9)), suffix="x")
    between = committed(CHECKPOINT, backfill)
    with pytest.raises(PlanOutdated, match="it is number 5"):
        require_current(live, between)
    moved = renumbered(live, between)
    require_current(moved, between)
    after = committed(between, moved)
    assert (after.sequence, after.offsets) == (6, {slice_.source: slice_.end for slice_ in live.slices})
    assert renumbered(live, after) is live
    assert renumbered(moved, CHECKPOINT) is moved
    assert renumbered(backfill, after) is backfill


def ingest(checkpoint: Checkpoint) -> IngestPlan:
    slices = tuple(Slice("orders", each.partition, at, at + 7) for each, at in checkpoint.offsets.items())
    return IngestPlan("orders", f"t-{checkpoint.sequence + 1}", checkpoint.sequence + 1, slices, checkpoint.topics)


def committed(checkpoint: Checkpoint, plan: TransactionPlan) -> Checkpoint:
    reports = [SliceReport(slice_, 0, rows=slice_.count) for slice_ in plan.slices]
    after = next_checkpoint(checkpoint, plan, 10, str(plan.sequence))
    require_sums(checkpoint, after, plan, reports)
    return after


@pytest.mark.parametrize("kind", [TransactionKind.BACKFILL, TransactionKind.REPLAY, TransactionKind.RETRY])
def test_p2_what_is_no_ingest_never_moves_offsets(kind: TransactionKind) -> None:
    slices = tuple(asked(0, 10) if kind is TransactionKind.BACKFILL else asked(40, 60))
    plan = PLAN_TYPES[kind]("orders", "t-5", 5, slices, CHECKPOINT.topics)
    require_current(plan, CHECKPOINT)
    after = committed(CHECKPOINT, plan)
    assert (after.sequence, after.offsets, after.topics) == (5, CHECKPOINT.offsets, CHECKPOINT.topics)
    assert after.moved_by == CHECKPOINT.instant
    assert committed(after, replace(plan, sequence=6, slices=())).moved_by == CHECKPOINT.instant
    assert committed(after, replace(ingest(after), sequence=6)).moved_by == ""
    moved = replace(after, offsets={P0: 101, P1: 50})
    with pytest.raises(WriteIncomplete, match=f"is a {kind.value} and must not change the committed offsets"):
        require_sums(CHECKPOINT, moved, plan, [])


@pytest.mark.parametrize(
    ("kind", "wrong", "said"),
    [
        (TransactionKind.BACKFILL, asked(30, 50), r"is a backfill, but the table has \(\(40, 50\),\) of it"),
        (TransactionKind.REPLAY, asked(55, 65), r"is a replay, but the table has \(\(55, 60\),\) of it"),
        (TransactionKind.BACKFILL, asked(95, 105), "is not before the committed offset 100"),
        (TransactionKind.REPLAY, asked(0, 1, TopicPartition("orders", 7)), "is not before the committed offset None"),
    ],
)
def test_p2_begin_and_commit_refuse_a_range_that_the_table_does_not_fit(
    kind: TransactionKind, wrong: list[Slice], said: str
) -> None:
    plan = PLAN_TYPES[kind]("orders", "t-5", 5, tuple(wrong), CHECKPOINT.topics)
    with pytest.raises(PlanOutdated, match=said):
        require_current(plan, CHECKPOINT)
    with pytest.raises(PlanOutdated, match="topic orders is"):
        require_current(replace(plan, topics={"orders": TopicVersion("other")}), CHECKPOINT)
    with pytest.raises(PlanOutdated, match="it is number 5"):
        require_current(plan, replace(CHECKPOINT, sequence=5))


def test_coverage_follows_losses_and_is_not_made_up_for_older_tables() -> None:
    lost = OffsetLoss("orders", 0, 100, 120, 20, LossReason.RETENTION)
    cut = OffsetLoss("orders", 0, 100, 0, None, LossReason.TRUNCATED)
    gone = OffsetLoss("orders", 1, 50, None, None, LossReason.RECREATED)
    plan = IngestPlan("orders", "t-5", 5, (Slice("orders", 0, 120, 130),), CHECKPOINT.topics, (lost,))
    assert next_checkpoint(CHECKPOINT, plan, 0).covered[P0] == ((40, 60), (70, 100), (120, 130))
    again = replace(plan, slices=(Slice("orders", 0, 0, 30),), resets=(cut, gone))
    assert next_checkpoint(CHECKPOINT, again, 0).covered == {P0: ((0, 30),)}
    older = replace(CHECKPOINT, covered={})
    new = replace(plan, slices=(Slice("orders", 0, 100, 130), Slice("orders", 2, 5, 9)), resets=())
    after = next_checkpoint(older, new, 0)
    assert after.covered == {TopicPartition("orders", 2): ((5, 9),)}, "of partition 0 nobody knows what came before"
    found = range_transaction(
        replace(KNOWN, checkpoint=after, covered={P0: ((40, 130),)}),
        TransactionKind.BACKFILL,
        tuple(asked(0, 9)),
        suffix="x",
    )
    assert TransactionPlan.from_dict(found.to_dict()) == found
    assert next_checkpoint(after, found, 0).covered[P0] == ((0, 9), (40, 130))


def test_coverage_costs_one_number_for_each_partition() -> None:
    offsets = {TopicPartition("orders", number): 5_000_000_000 + number for number in range(1000)}
    plain = Checkpoint(1, "t", offsets, covered={})
    whole = Checkpoint(1, "t", offsets, covered={source: ((10, end),) for source, end in offsets.items()})
    assert len(whole.to_json()) - len(plain.to_json()) < 12 * len(offsets)
    assert Checkpoint.from_json(whole.to_json()) == whole


def test_what_is_left_of_a_range() -> None:
    whole = Slice("orders", 0, 0, 100)
    assert without(whole, asked(0, 30)) == (Slice("orders", 0, 30, 100),)
    assert without(whole, [*asked(20, 30), *asked(0, 100, P1)]) == (
        Slice("orders", 0, 0, 20),
        Slice("orders", 0, 30, 100),
    )
    assert without(whole, [whole]) == ()


def test_x6_p2_what_is_before_a_take_over_is_neither_added_nor_written_anew() -> None:
    taken = replace(KNOWN, checkpoint=replace(CHECKPOINT, taken_over={P0: 40}))
    for kind in ("backfill", "replay"):
        said = refusal(taken, asked(30, 60), kind)
        assert said.startswith("orders:0[30,60) begins before offset 40, where this pipeline took over the table")
        assert said.endswith("Give --start 40.")
        assert refusal(taken, asked(10, 40), kind).endswith("Ingest them into a new table instead.")
    assert to_read(taken, TransactionKind.BACKFILL, asked(60, 70), skip_covered=False) == {P0: ((60, 70),)}
    assert to_read(taken, TransactionKind.REPLAY, asked(40, 60)) == {P0: ((40, 60),)}
    assert to_read(taken, TransactionKind.REPLAY, asked(20, 30, P1)) == {P1: ((20, 30),)}


def test_x6_the_checkpoint_keeps_where_the_table_was_taken_over_until_offsets_come_again() -> None:
    found = TakeOver("Hudi Streamer", "1", {P0: 40, P1: 5})
    plan = IngestPlan(
        "orders",
        "t-1",
        1,
        (Slice("orders", 0, 40, 50), Slice("orders", 1, 5, 5)),
        {"orders": TopicVersion("id")},
        take_over=found,
    )
    require_current(plan, None)
    first = next_checkpoint(None, plan, 10, "1")
    assert first.taken_over == {P0: 40, P1: 5}
    assert first.covered == {P0: ((40, 50),), P1: ()}
    again = OffsetLoss("orders", 0, 50, 0, None, LossReason.TRUNCATED)
    later = IngestPlan("orders", "t-2", 2, (Slice("orders", 0, 0, 9),), plan.topics, (again,))
    assert next_checkpoint(first, later, 10, "2").taken_over == {P1: 5}
    elsewhere = replace(plan, slices=(Slice("orders", 0, 41, 50), Slice("orders", 1, 5, 5)))
    with pytest.raises(PlanOutdated, match="orders:0 starts at 41, but 40 is committed"):
        require_current(elsewhere, None)
    with pytest.raises(PlanOutdated, match="orders:1 is taken over but has no slice"):
        require_current(replace(plan, slices=plan.slices[:1]), None)
    with pytest.raises(PlanOutdated, match="it takes over a table that already has a checkpoint"):
        require_current(replace(plan, sequence=2), first)
