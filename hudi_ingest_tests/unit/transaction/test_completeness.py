"""A pipeline's completeness from look to plan to commit, and the Kafka timestamps that a task reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.complete_through import NO_TIMES, TimesRead, holding_back, of_table
from hudi_ingest.model.offsets import TopicPartition, Watermarks
from hudi_ingest.model.report import SliceReport, complete_after
from hudi_ingest.records.times import KAFKA_TIME, NO_TIME
from hudi_ingest.transaction.plan.arithmetic import Limits
from hudi_ingest.transaction.plan.planning import Situation, plan_transaction
from hudi_ingest.transaction.write.task import times_read

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


def marks(end: int, asked_at: int, written: int | None = None, begin: int = 0) -> Watermarks:
    return Watermarks(begin, end, written=end if written is None else written, asked_at=asked_at)


def looked(checkpoint: Checkpoint | None, watermarks: dict[TopicPartition, Watermarks]) -> Situation:
    state = CommittedState(exists=checkpoint is not None, checkpoint=checkpoint)
    first = {source: found.begin for source, found in watermarks.items()}
    return Situation(state, watermarks, first, {"orders": "id"}, lateness_seconds=1.0)


def committed(situation: Situation, most: int = 100) -> Checkpoint:
    """The checkpoint after a transaction that this situation makes due."""
    plan = plan_transaction(pipeline="o", suffix="a", situation=situation, limits=Limits(0, 1, most), now=NOW)
    current = situation.committed.checkpoint
    following = next_checkpoint(current, plan, 0, "1")
    reports = [SliceReport(slice_, 0, times=TimesRead(1, 2)) for slice_ in plan.busy]
    found = replace(following, complete=complete_after(current, following, plan, plan.marks, reports))
    assert Checkpoint.from_json(found.to_json()) == found
    return found


def test_a_commit_is_complete_through_the_time_of_its_plans_look() -> None:
    first = committed(looked(None, {P0: marks(5, 10_000), P1: marks(0, 10_000)}))
    assert {source: state.through for source, state in first.complete.items()} == {P0: 9_000, P1: 9_000}
    assert [first.complete[source].seen for source in (P0, P1)] == [2, None]
    idle = looked(first, {P0: marks(5, 60_000), P1: marks(0, 60_000)})
    assert of_table(idle.complete) == 59_000


def test_a_partition_that_a_plan_cuts_advances_to_where_it_ended_before() -> None:
    checkpoint = committed(looked(None, {P0: marks(10, 10_000)}), most=6)
    assert of_table(checkpoint.complete) is None
    checkpoint = committed(looked(checkpoint, {P0: marks(90, 20_000)}), most=6)
    assert of_table(checkpoint.complete) == 9_000


def test_open_transactions_stopped_leaderless_and_new_partitions_hold_the_table_back() -> None:
    first = committed(looked(None, {P0: marks(5, 10_000), P1: marks(5, 10_000)}))
    later = marks(5, 60_000)
    held = {
        "an open transaction": marks(5, 60_000, written=7),
        "retention": marks(9, 60_000, begin=7),
        "no leader": Watermarks(5, 5, led=False),
        "lag": marks(9, 60_000),
    }
    for why, watermarks in held.items():
        found = looked(first, {P0: later, P1: watermarks}).complete
        assert (of_table(found), holding_back(found)) == (9_000, (P1,)), why
    # It may have had records before its leader went away, and other commits must not let the table forget them.
    new = looked(first, {P0: marks(6, 60_000), P1: later, P2: Watermarks(0, 0, led=False)})
    second = committed(new)
    assert P2 not in second.offsets
    assert of_table(second.complete) == 9_000
    there = looked(second, {P0: marks(6, 90_000), P1: marks(5, 90_000), P2: marks(3, 90_000)})
    assert holding_back(there.complete) == (P2,)
    assert of_table(committed(there).complete) == 89_000


def test_without_a_declared_lateness_what_was_said_is_taken_back() -> None:
    first = committed(looked(None, {P0: marks(5, 10_000)}))
    undeclared = replace(looked(first, {P0: marks(5, 60_000)}), lateness_seconds=None)
    assert of_table(undeclared.complete) is None


@pytest.mark.parametrize(
    ("times", "late_before", "found"),
    [
        ([5, 9, 7], None, TimesRead(5, 9)),
        ([5, 9, 7], 5, TimesRead(5, 9)),
        ([5, 9, 7], 8, TimesRead(5, 9, 2, 5)),
        ([NO_TIME, 9, 7], 8, TimesRead(7, 9, 1, 7)),
        ([NO_TIME], 8, NO_TIMES),
    ],
)
def test_late_records_are_counted_and_records_without_a_time_are_not(
    times: list[int], late_before: int | None, found: TimesRead
) -> None:
    assert times_read(pa.array(times, pa.int64()).cast(KAFKA_TIME), late_before) == found


def test_the_times_of_several_batches_are_combined() -> None:
    parts = [TimesRead(5, 9, 2, 5), NO_TIMES, TimesRead(3, 4)]
    assert TimesRead.combined(parts) == TimesRead(3, 9, 2, 5)
