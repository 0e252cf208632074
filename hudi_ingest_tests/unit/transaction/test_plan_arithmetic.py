"""Promises 1 (no loss) and 2 (no duplicate) as far as planning holds them: ranges tile, and nothing is passed over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, Watermarks
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.transaction.plan.arithmetic import (
    Limits,
    backlog_limit,
    fair_shares,
    group_slices,
    next_due,
    reason_to_wait,
    slice_starts,
    undisturbed,
)
from hudi_ingest.transaction.plan.planning import Situation, plan_transaction

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
ANY = Limits(interval_seconds=60, min_records=1, max_records=1000)

sources = st.builds(TopicPartition, st.sampled_from(["orders", "payments"]), st.integers(0, 20))
waiting = st.dictionaries(sources, st.integers(0, 10**6), min_size=1, max_size=12)


def plan(
    checkpoint: Checkpoint | None,
    marks: dict[TopicPartition, Watermarks],
    limits: Limits = ANY,
    last: datetime | None = None,
    planned_at: datetime | None = None,
) -> IngestPlan | NothingToDo:
    first = {source: each.begin for source, each in marks.items()}
    committed = CommittedState(True, checkpoint, last_began_at=last)
    try:
        return plan_transaction(
            pipeline="orders",
            suffix="abc",
            situation=Situation(committed, marks, first, {"orders": "o1", "payments": "p1"}, planned_at=planned_at),
            limits=limits,
            now=NOW,
        )
    except NothingToDo as nothing:
        return nothing


@given(waiting, st.integers(1, 10**6))
def test_fair_shares_use_the_whole_limit_and_never_more_than_waits(
    counts: dict[TopicPartition, int], most: int
) -> None:
    shares = fair_shares(counts, most)
    assert sum(shares.values()) == min(most, sum(counts.values()))
    assert all(0 <= shares[source] <= counts[source] for source in counts)


@given(waiting, st.integers(1, 10**6))
def test_no_partition_is_starved(counts: dict[TopicPartition, int], most: int) -> None:
    shares = fair_shares(counts, most)
    least = min(counts.values()) if counts else 0
    assert all(share >= min(least, most // len(counts)) for share in shares.values())


@given(st.lists(waiting, min_size=1, max_size=8), st.integers(1, 10**6))
def test_p1_p2_successive_plans_tile_each_partition(arrivals: list[dict[TopicPartition, int]], most: int) -> None:
    ends: dict[TopicPartition, int] = {}
    checkpoint: Checkpoint | None = None
    read: dict[TopicPartition, int] = {}
    for arrival in arrivals:
        for source, count in arrival.items():
            ends[source] = ends.get(source, 0) + count
        marks = {source: Watermarks(0, end) for source, end in ends.items()}
        found = plan(checkpoint, marks, Limits(60, 1, most))
        if isinstance(found, NothingToDo):
            assert read == {source: end for source, end in ends.items() if source in read}
            continue
        for each in found.slices:
            assert each.start == read.get(each.source, 0)
            assert each.end <= ends[each.source]
            read[each.source] = each.end
        assert {each.source for each in found.slices} == set(ends)
        assert found.count <= most
        checkpoint = next_checkpoint(checkpoint, found, 100)
        assert dict(checkpoint.offsets) == read


@given(st.lists(st.builds(lambda p, n: Slice("t", p, 0, n), st.integers(0, 500), st.integers(0, 99)), min_size=1))
def test_groups_hold_each_slice_once(slices: list[Slice]) -> None:
    for most in (1, 3, 8):
        groups = group_slices(slices, most)
        assert len(groups) <= max(most, 1)
        assert sorted(each for group in groups for each in group) == sorted(slices)
        assert all(groups)


def test_k2_thousand_partitions_fit_eight_ops_evenly() -> None:
    groups = group_slices([Slice("t", number, 0, 1000 + number) for number in range(1000)], 8)
    sizes = [sum(each.count for each in group) for group in groups]
    assert len(groups) == 8
    assert max(sizes) - min(sizes) < 3000


def test_f2_an_idle_partition_gets_an_empty_slice() -> None:
    marks = {TopicPartition("orders", 0): Watermarks(0, 5), TopicPartition("orders", 1): Watermarks(3, 3)}
    found = plan(None, marks)
    assert isinstance(found, IngestPlan)
    assert found.slices == (Slice("orders", 0, 0, 5), Slice("orders", 1, 3, 3))


def test_h3_waits_until_it_is_due_unless_full() -> None:
    source = TopicPartition("orders", 0)
    checkpoint = Checkpoint(1, "t", {source: 10})
    just_now = NOW - timedelta(seconds=20)
    limits = replace(ANY, phase_seconds=(just_now.timestamp() - 7) % 60)
    waits = plan(checkpoint, {source: Watermarks(0, 20)}, limits, last=just_now)
    assert isinstance(waits, NothingToDo)
    assert "due in 33 s" in waits.reason, "the last one was 7 s late"
    assert isinstance(plan(checkpoint, {source: Watermarks(0, 5000)}, limits, last=just_now), IngestPlan)
    late = NOW - timedelta(seconds=54)
    assert isinstance(
        plan(
            checkpoint,
            {source: Watermarks(0, 20)},
            replace(limits, phase_seconds=(late.timestamp() - 7) % 60),
            last=late,
        ),
        IngestPlan,
    )


@given(
    st.floats(1, 86_400, allow_subnormal=False),
    st.floats(0, 1, exclude_max=True),
    st.lists(st.floats(0, 0.749), min_size=1, max_size=50),
)
def test_h3_transactions_are_due_an_interval_apart_however_late_each_begins(
    interval: float, phase: float, lateness: list[float]
) -> None:
    limits = replace(ANY, interval_seconds=interval, phase_seconds=phase * interval)
    due = next_due(limits, NOW)
    assert interval / 4 - 0.001 <= (due - NOW).total_seconds() <= 1.001 * interval + 0.001
    # If it was planned too late for that, the next is due half an interval before its time, and the one after that at its time.
    first = due = next_due(limits, due)
    for late in lateness:
        due = next_due(limits, due + timedelta(seconds=late * interval))
    assert abs((due - first).total_seconds() - interval * len(lateness)) < 0.001


@given(
    st.integers(1, 2000),
    st.integers(1, 1500),
    st.integers(1, 1000),
    st.floats(0, 1000),
    st.integers(0, 2000),
    st.floats(0, 1000),
)
def test_h3_a_pipeline_that_is_undisturbed_still_has_a_reason_to_wait(
    waiting: int, most: int, least: int, passed: float, more: int, later: float
) -> None:
    limits = Limits(60, least, 1000, max_wait_seconds=600)
    began = NOW - timedelta(seconds=passed)
    seconds, records = undisturbed(waiting, most, limits, NOW, began)
    # Datetimes are as precise as a microsecond.
    soon = later + 0.001 < seconds
    if reason_to_wait(waiting, most, 1, False, limits, NOW, began) and soon and more < records:
        then = NOW + timedelta(seconds=later)
        assert reason_to_wait(waiting + more, most, 1, False, limits, then, began)
    assert undisturbed(waiting, most, limits, NOW, None) == (0.0, 0)


def test_p5_nobody_waits_for_the_time_of_a_clock_that_was_ahead() -> None:
    source = TopicPartition("orders", 0)
    checkpoint = Checkpoint(4, "t4", {source: 10})
    few = Limits(interval_seconds=60, min_records=100, max_records=1000, max_wait_seconds=600)
    for limits in (ANY, few):
        found = plan(checkpoint, {source: Watermarks(0, 20)}, limits, last=NOW + timedelta(days=40))
        assert isinstance(found, IngestPlan), found


@given(st.floats(0, 300))
def test_h3_a_transaction_that_began_late_is_followed_an_interval_after_it_was_planned(passed: float) -> None:
    source, planned_at = TopicPartition("orders", 0), NOW - timedelta(seconds=passed)
    found = plan(Checkpoint(4, "t4", {source: 10}), {source: Watermarks(0, 20)}, last=NOW, planned_at=planned_at)
    assert isinstance(found, IngestPlan) == (next_due(ANY, planned_at) <= NOW), found


def test_h3_p5_a_plan_from_after_its_begin_is_of_a_clock_that_was_ahead() -> None:
    source, began_at = TopicPartition("orders", 0), NOW - timedelta(seconds=90)
    found = plan(
        Checkpoint(4, "t4", {source: 10}),
        {source: Watermarks(0, 20)},
        last=began_at,
        planned_at=NOW + timedelta(hours=1),
    )
    assert isinstance(found, IngestPlan), found


def test_min_records_and_no_records_say_why() -> None:
    source = TopicPartition("orders", 0)
    checkpoint = Checkpoint(1, "t", {source: 0})
    limits = Limits(60, 10, 100, max_wait_seconds=600)
    few = plan(checkpoint, {source: Watermarks(0, 3)}, limits, NOW - timedelta(seconds=400))
    assert isinstance(few, NothingToDo)
    assert few.reason == (
        "3 records waiting, fewer than min_records 10; a transaction takes them within 200 s (max_wait_seconds 600)"
    )
    none = plan(Checkpoint(1, "t", {source: 3}), {source: Watermarks(0, 3)})
    assert isinstance(none, NothingToDo)
    assert "no new records" in none.reason


@given(
    st.integers(1, 2000),
    st.integers(0, 4000),
    st.integers(1, 3000),
    st.integers(1, 1000),
    st.one_of(st.none(), st.integers(1, 10**6)),
    st.integers(5, 2000),
    st.integers(0, 3000),
)
def test_records_begin_a_transaction_when_enough_wait_or_long_enough(
    waits: int, age: int, least: int, most: int, most_bytes: int | None, interval: int, longest: int
) -> None:
    source = TopicPartition("orders", 0)
    limits = Limits(interval, least, most, most_bytes, longest)
    full = waits >= backlog_limit(limits, 0)
    found = plan(Checkpoint(1, "t", {source: 0}), {source: Watermarks(0, waits)}, limits, NOW - timedelta(seconds=age))
    is_due = next_due(limits, NOW - timedelta(seconds=age)) <= NOW
    begins = full or (is_due and (waits >= least or age >= longest))
    assert isinstance(found, IngestPlan) == begins, found
    # Before the first transaction nothing tells how long the records have waited.
    assert isinstance(plan(None, {source: Watermarks(0, waits)}, limits), IngestPlan)


def test_max_bytes_uses_the_measured_record_size() -> None:
    limits = Limits(60, 1, 1000, max_bytes=10_000)
    assert backlog_limit(limits, record_bytes=0) == 10
    assert backlog_limit(limits, record_bytes=100) == 100
    assert backlog_limit(limits, record_bytes=1) == 1000
    assert backlog_limit(limits, record_bytes=10**9) == 1


def test_k1_a_new_partition_starts_at_its_configured_first_offset() -> None:
    old, new = TopicPartition("orders", 0), TopicPartition("orders", 1)
    marks = {old: Watermarks(0, 10), new: Watermarks(5, 9)}
    assert slice_starts(Checkpoint(1, "t", {old: 10}), marks, {new: 5}, ()) == {old: 10, new: 5}


def test_a_first_start_at_the_end_is_pinned_by_an_empty_transaction() -> None:
    source = TopicPartition("orders", 0)
    found = plan_transaction(
        pipeline="orders",
        suffix="abc",
        situation=Situation(CommittedState(True, None), {source: Watermarks(0, 50)}, {source: 50}, {"orders": "o1"}),
        limits=Limits(60, 10, 100),
        now=NOW,
    )
    assert found.slices == (Slice("orders", 0, 50, 50),)


def test_f1_a_first_start_at_the_end_of_an_empty_topic_is_pinned_before_records_come() -> None:
    source = TopicPartition("orders", 0)
    empty = {source: Watermarks(0, 0)}
    first = partial(
        plan_transaction,
        pipeline="orders",
        suffix="abc",
        situation=Situation(CommittedState(True, None), empty, {source: 0}, {"orders": "o1"}),
        limits=Limits(60, 10, 100),
        now=NOW,
    )
    assert first(starts_at_ends=True).slices == (Slice("orders", 0, 0, 0),)
    # One that starts at the earliest offset finds it again at each tick.
    with pytest.raises(NothingToDo):
        first()
