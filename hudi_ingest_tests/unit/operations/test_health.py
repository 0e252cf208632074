"""What the checks find: when each fails, and that it says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hudi_ingest.hudi.files import read_amplification as amplification
from hudi_ingest.hudi.files.read_amplification import read_amplification
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.ledger import TransactionRow
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead, next_checkpoint
from hudi_ingest.model.complete_through import NO_TIMES, TimesRead
from hudi_ingest.model.finding import Finding
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import PLAN_TYPES, IngestPlan, LossReason, OffsetLoss, TransactionKind
from hudi_ingest.model.report import SliceReport, with_commit
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.health.judgement import (
    NOTHING_LATE,
    QUESTIONS,
    accounting_holds,
    compacted_in_time,
    dead_letters,
    expectations_met,
    files_large_enough,
    held_by_producers,
    lag_below_limit,
    not_fresh,
    nothing_late,
    offsets_honoured,
    questions,
    runs_succeed,
    up_to_date,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.transaction import MOST_OPS
from hudi_ingest.transaction.checks import lost_commits
from hudi_ingest.transaction.commit_contents import commit_metadata
from hudi_ingest_tests.support.pipeline_files import Write, load

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=timezone.utc)
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def pipeline(write: Write) -> Pipeline:
    return load(write)


class History:
    """Commits one after another, as transactions make them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.checkpoint: Checkpoint | None = None
        self.commits: list[CommittedInstant] = []

    def commit(
        self,
        slices: Sequence[Slice],
        resets: Sequence[OffsetLoss] = (),
        kind: TransactionKind = TransactionKind.INGEST,
        **counts: int,
    ) -> None:
        sequence = len(self.commits) + 1
        own: dict[str, Any] = {"resets": tuple(resets)} if resets else {}
        plan = PLAN_TYPES[kind]("orders", f"orders-{sequence}", sequence, tuple(slices), **own)
        reports = [self.report(slice_, counts) for slice_ in slices]
        self.checkpoint = next_checkpoint(self.checkpoint, plan, 0, f"2026112103000{sequence}000")
        metadata = commit_metadata(self.pipeline, plan, self.checkpoint, reports)
        rows = sum(report.rows for report in reports)
        self.commits.append(CommittedInstant(self.checkpoint.instant, metadata, NOW, {"dt=1/a": 1 << 27}, rows))

    @staticmethod
    def report(each: Slice, counts: Mapping[str, int]) -> SliceReport:
        skipped = min(counts.get("skipped", 0), each.count)
        return SliceReport(each, 0, rows=each.count - skipped, skipped=skipped)

    def finding(self) -> Finding:
        return accounting_holds(self.pipeline, self.checkpoint, self.commits)


def test_d1_every_check_has_a_question(write: Write) -> None:
    keyed = questions(load(write, table__mode="upsert", table__key=["id"]))
    assert keyed.keys() - QUESTIONS.keys() == {"compacted_in_time"}
    assert all(text.startswith("Fails ") and text.endswith(".") for text in keyed.values())


def test_p6_a_stopped_partition_fails_its_check_and_the_command_is_named(pipeline: Pipeline) -> None:
    assert offsets_honoured(pipeline, ()).passed
    found = offsets_honoured(pipeline, [OffsetLoss("orders", 0, 5, 9, 4, LossReason.RETENTION)])
    assert not found.passed
    assert "accept-loss orders --partition orders:0" in found.text
    assert found.figures == {"stopped": "orders:0"}


def test_d1_too_much_lag_fails_its_check(write: Write) -> None:
    by_default, by_hand = load(write, transaction__max_records=100), load(write, asset__max_lag=7)
    assert [lag_below_limit(by_default, waiting).passed for waiting in (0, 200, 201)] == [True, True, False]
    assert [lag_below_limit(by_hand, waiting).passed for waiting in (7, 8)] == [True, False]
    found = lag_below_limit(by_hand, 1234)
    assert "1,234 offsets waiting; the limit is 7 (asset.max_lag)" in found.text
    assert "raise transaction.max_records" in found.text
    # What does not change is no line of the plot.
    assert found.figures == {"lag (records)": 1234, "limit": "7 records"}


def committed(seconds_ago: float, took: float = 0.0) -> CommittedState:
    done = NOW - timedelta(seconds=seconds_ago)
    return CommittedState(True, last_began_at=done - timedelta(seconds=took), last_committed_at=done)


def test_d1_records_that_wait_too_long_fail_the_check_and_an_idle_topic_does_not(write: Write) -> None:
    pipeline = load(
        write, asset__late_after_seconds=600, transaction__min_records=10, transaction__max_wait_seconds=100
    )
    assert up_to_date(pipeline, 10**9, CommittedState(True), NOW).passed, "nothing was ever committed"
    assert up_to_date(pipeline, 10**9, committed(599), NOW).passed
    assert up_to_date(pipeline, 9, committed(601), NOW).passed, "min_records holds so few back"
    assert not up_to_date(pipeline, 9, committed(701), NOW).passed, "but not for ever"
    assert up_to_date(pipeline, 0, committed(9 * 86400), NOW).passed
    assert up_to_date(pipeline, 10, committed(9999), NOW, oldest_seconds=599).passed, "the topic was idle for long"
    found = up_to_date(pipeline, 10, committed(601), NOW, oldest_seconds=700, busy="run 1234abcd is running")
    assert not found.passed
    assert (
        "10 offsets waiting, the oldest for 700 s, and the last commit was 601 s ago, at 2026-11-21 02:49:59 UTC"
        in found.text
    )
    assert "Run 1234abcd is running. See why the newest runs of asset orders failed or hang." in found.text
    assert "hudi_ingest_coordinator" in up_to_date(pipeline, 10, committed(601), NOW).text
    assert found.figures == {"seconds since the last commit": 601.0, "lag (seconds)": 700}


def test_d1_records_that_wait_for_a_paused_pipeline_are_no_fault(write: Write) -> None:
    pipeline = load(write, asset__late_after_seconds=600, asset__max_lag=7)
    for found in (
        lag_below_limit(pipeline, 8, paused=True),
        up_to_date(pipeline, 8, committed(9 * 86400), NOW, paused=True),
    ):
        assert found.passed
        assert found.text == "8 offsets waiting; the pipeline is paused: `hudi-ingest resume orders` turns it on."
    assert up_to_date(pipeline, 8, committed(60), NOW, paused=True).figures == {"seconds since the last commit": 60.0}


def test_d1_by_default_a_minute_and_two_intervals_may_pass_and_twice_what_the_last_transaction_took(
    write: Write,
) -> None:
    quick = load(write, transaction__interval_seconds=10, transaction__timeout_seconds=300)
    assert [up_to_date(quick, 1, committed(age), NOW).passed for age in (80, 81)] == [True, False]
    assert [up_to_date(quick, 1, committed(age, took=40), NOW).passed for age in (160, 161)] == [True, False]


def test_d1_failed_runs_are_told_with_their_error_and_what_tries_at_once(pipeline: Pipeline) -> None:
    assert runs_succeed(pipeline, 0).passed
    once = runs_succeed(pipeline, 1, "1234abcd-5", "BadRecord: orders:3:17: …")
    assert (once.passed, once.warning) == (False, True)
    again = runs_succeed(pipeline, 4, "1234abcd-5", "BadRecord: orders:3:17: …")
    assert (again.passed, again.warning) == (False, False)
    assert again.text.startswith("The last 4 runs of orders failed, the newest is 1234abcd: BadRecord: orders:3:17: …")
    assert "Materialize" in again.text and "hudi-ingest run orders" in again.text


def test_d1_a_commit_of_a_clock_that_was_ahead_fails_the_check(pipeline: Pipeline) -> None:
    assert up_to_date(pipeline, 10**9, committed(-59), NOW).passed
    for waiting in (0, 10**9):
        found = up_to_date(pipeline, waiting, committed(-3_456_000), NOW)
        assert not found.passed
        assert "a clock was 3,456,000 s fast, or is slow now" in found.text


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.sampled_from([TransactionKind.INGEST, *TransactionKind])),
        max_size=8,
    ),
    st.integers(0, 3),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_p1_p2_what_transactions_commit_accounts_for_itself(
    pipeline: Pipeline, counts: list[tuple[int, int, TransactionKind]], skipped: int
) -> None:
    history = History(pipeline)
    first = {P0: 0, P1: 7}
    history.commit([Slice("orders", 0, 0, 60), Slice("orders", 1, 7, 67)], skipped=skipped)
    at = {P0: 60, P1: 67}
    for count0, count1, kind in counts:
        # What moves no offsets goes back to ones that were read before.
        starts = at if kind.moves_offsets else first
        slices = [
            Slice(source.topic, source.partition, starts[source], starts[source] + count)
            for source, count in ((P0, count0), (P1, count1))
        ]
        history.commit(slices, kind=kind, skipped=skipped)
        if kind.moves_offsets:
            at = {slice_.source: slice_.end for slice_ in slices}
    found = history.finding()
    assert found.passed, found.text
    assert (found.figures["transactions"], found.figures["offsets"]) == (len(counts) + 1, at[P0] + at[P1] - 7)


def test_d1_what_is_counted_does_not_fall_when_the_timeline_is_archived(pipeline: Pipeline) -> None:
    history = History(pipeline)
    for start in range(0, 50, 10):
        history.commit([Slice("orders", 0, start, start + 10)])
    del history.commits[:3]
    found = history.finding()
    assert found.figures == {"transactions": 5, "offsets": 50, "transaction": "orders-5"}
    assert "Transactions 4 to 5 are on the active timeline. They account for each of their 20 offsets" in found.text


def test_p2_an_accepted_loss_is_no_hole(pipeline: Pipeline) -> None:
    history = History(pipeline)
    history.commit([Slice("orders", 0, 0, 5), Slice("orders", 1, 0, 5)])
    history.commit([Slice("orders", 0, 9, 12)], [OffsetLoss("orders", 0, 5, 9, 4, LossReason.RETENTION)])
    assert history.finding().passed
    history.commit([Slice("orders", 1, 6, 7)])
    found = history.finding()
    assert not found.passed
    assert "orders-3 starts orders:1 at 6, but the transaction before it ended at 5" in found.text
    assert "`hudi-ingest pause orders`" in found.text


def changed(commit: CommittedInstant, key: str, change: Any) -> CommittedInstant:
    import json

    told = json.loads(commit.metadata[key])
    change(told)
    return replace(commit, metadata={**commit.metadata, key: json.dumps(told)})


def test_p1_a_lost_row_is_found_in_the_counts_and_in_the_files(pipeline: Pipeline) -> None:
    history = History(pipeline)
    history.commit([Slice("orders", 0, 0, 5)])
    key = pipeline.transaction_key
    counted = changed(history.commits[0], key, lambda told: told["slices"][0].update(rows=4))
    found = accounting_holds(pipeline, history.checkpoint, [replace(counted, rows=4)])
    assert "orders-1 counts 4 of the offsets [0,5) of orders:0" in found.text
    found = accounting_holds(pipeline, history.checkpoint, [replace(history.commits[0], rows=3)])
    assert not found.passed
    assert "orders-1 counts 5 rows, but its commit published 3" in found.text


def test_p2_a_checkpoint_that_is_ahead_of_the_ranges_is_found(pipeline: Pipeline) -> None:
    history = History(pipeline)
    history.commit([Slice("orders", 0, 0, 5)])
    assert history.checkpoint is not None
    ahead = replace(history.checkpoint, offsets={P0: 6})
    found = accounting_holds(pipeline, ahead, history.commits)
    assert "orders:0 was read up to 5, but the checkpoint says 6" in found.text


def test_p7_a_table_that_hides_rows_or_has_lost_a_commit_is_told_with_the_remedy(pipeline: Pipeline) -> None:
    history = History(pipeline)
    history.commit([Slice("orders", 0, 0, 5)])
    unlisted = {"dt=1/a_0-0-0_20260101000000000.parquet": "20260101000000000"}
    found = accounting_holds(pipeline, history.checkpoint, history.commits, unlisted)
    assert not found.passed and found.figures["live files not listed"] == 1
    assert "does not list dt=1/a_0-0-0_20260101000000000.parquet, which commit 20260101000000000" in found.text
    assert "`hudi-ingest recover orders --metadata-table`" in found.text
    state = CommittedState(True, history.checkpoint, instants=frozenset(["20260101000000000"]))
    rows = [row(pipeline, number) for number in (1, 2, 3)]
    assert [each.sequence for each in lost_commits(pipeline.table.base_path, state, rows)] == [2, 3]
    others = [replace(rows[1], table="/elsewhere"), replace(rows[1], state=TransactionState.ABORTED)]
    assert lost_commits(pipeline.table.base_path, state, [*others, replace(rows[1], instant="20260101000000000")]) == []
    lost = accounting_holds(pipeline, history.checkpoint, history.commits, lost=rows[1:])
    assert not lost.passed
    assert "the ledger has orders-2 (instant 20260102000000000, 7 rows), orders-3" in lost.text
    assert "the table's timeline has lost them" in lost.text


def row(pipeline: Pipeline, number: int) -> TransactionRow:
    """A committed transaction, as the ledger has it."""
    moment = datetime.now(timezone.utc)
    return TransactionRow(
        transaction_id=f"orders-{number}",
        pipeline=pipeline.name,
        table=pipeline.table.base_path,
        sequence=number,
        epoch=number,
        state=TransactionState.COMMITTED,
        owner=Owner.this_process(),
        instant=f"2026010{number}000000000",
        began_at=moment,
        deadline=moment,
        ended_at=moment,
        rows=7,
        files=1,
        size_bytes=1,
        reason=None,
    )


def test_p1_commits_beside_a_savepoint_leave_a_hole_that_proves_nothing(pipeline: Pipeline) -> None:
    history = History(pipeline)
    for start in (0, 5, 10):
        history.commit([Slice("orders", 0, start, start + 5)])
    assert accounting_holds(pipeline, history.checkpoint, [history.commits[0], history.commits[2]]).passed
    assert accounting_holds(pipeline, None, []).passed
    assert "archived" not in accounting_holds(pipeline, history.checkpoint, history.commits).text
    assert "older ones are archived" in accounting_holds(pipeline, history.checkpoint, history.commits[1:]).text


def test_h3_small_files_of_the_newest_commit_fail_the_check(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amplification, "SMALL_FILES_A_DAY", 1000)
    pipeline = load(write, transaction__interval_seconds=60)
    large = CommittedInstant("1", {}, NOW, {f"dt={n}/f": 1 << 27 for n in range(3)})
    small = CommittedInstant("2", {}, NOW, {f"dt={n}/f": 1 << 20 for n in range(3)})
    assert files_large_enough(pipeline, None, []).passed
    assert files_large_enough(pipeline, None, [small, replace(large, instant="3")]).passed
    found = files_large_enough(pipeline, None, [large, small])
    assert not found.passed
    assert "Raise transaction.interval_seconds" in found.text
    assert found.figures["small files"] == 3


def test_h3_the_first_commits_of_a_table_are_counted_and_not_multiplied(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amplification, "SMALL_FILES_A_DAY", 6)
    pipeline = load(write, transaction__interval_seconds=60)
    young = [
        CommittedInstant(str(1 - n), {}, NOW - timedelta(hours=30 * n), {f"dt={n}/f{m}": 1 << 20 for m in range(5)})
        for n in (1, 0)
    ]
    found = files_large_enough(pipeline, Checkpoint(2, "orders-2", {}), young)
    assert found.passed
    assert found.text.endswith(" The commits make 5 a day.")
    busy = [*young, replace(young[1], instant="2")]
    assert not files_large_enough(pipeline, Checkpoint(3, "orders-3", {}), busy).passed, "ten in a day"
    assert files_large_enough(pipeline, Checkpoint(40, "orders-40", {}), young).passed, "five in the newest day"


@pytest.mark.parametrize(("partitions", "passed"), [(8, True), (11, False)])
def test_h3_a_default_pipeline_with_all_its_ops_writing_at_every_interval_is_green(
    write: Write, partitions: int, passed: bool
) -> None:
    pipeline = load(write)
    assert (pipeline.transaction.interval_seconds, MOST_OPS) == (60, 8)
    files = {f"dt=1/f{number}": 1 << 20 for number in range(partitions)}
    # What archival leaves; the newest has its day's last rows in one partition and the next day's first ones in another.
    kept = [CommittedInstant(f"{n:02}", {}, NOW + timedelta(minutes=n), files) for n in range(20)]
    kept[-1] = replace(kept[-1], files={**files, **{f"dt=2/f{number}": 1 << 20 for number in range(partitions)}})
    found = files_large_enough(pipeline, Checkpoint(5000, "orders-5000", {}), kept)
    assert found.passed is passed, found.text
    if not passed:
        assert "The table's commits make 16,674 small files a day, more than 15,000" in found.text


def test_d3_bad_records_of_the_last_transaction_fail_the_check_and_the_commands_are_named(write: Write) -> None:
    keeping, skipping = load(write, on_bad_record="dead_letter"), load(write, on_bad_record="skip")
    checkpoint = Checkpoint(2, "orders-2", {}, letters=LettersHead("m", 1234))
    found = dead_letters(keeping, checkpoint, 3)
    assert not found.passed
    assert "had 3 bad records, kept as dead letters. 1,234 dead letters pending" in found.text
    assert "dead-letters list orders" in found.text and "dead-letters retry orders" in found.text
    assert found.figures == {
        "bad records of the last transaction": 3,
        "pending dead letters": 1234,
        "transaction": "orders-2",
    }
    left_out = dead_letters(skipping, Checkpoint(2, "orders-2", {}), 3)
    assert not left_out.passed
    assert left_out.text.endswith("counted and left out. Set on_bad_record: dead_letter to keep such records.")


def test_d3_letters_that_wait_since_earlier_fail_the_check_until_they_are_dealt_with(pipeline: Pipeline) -> None:
    waiting = dead_letters(pipeline, Checkpoint(2, "orders-2", {}, letters=LettersHead("m", 7)), 0)
    assert (waiting.passed, waiting.warning) == (False, True)
    assert waiting.text.startswith("7 dead letters pending")
    assert dead_letters(pipeline, None, 0).text == "The last transaction had no bad records."


def test_d3_letters_of_a_keyed_table_can_be_retried(write: Write) -> None:
    pipeline = load(write, table__mode="upsert", table__key=["id"])
    waiting = dead_letters(pipeline, Checkpoint(2, "orders-2", {}, letters=LettersHead("m", 7)), 0)
    assert "retry orders` turns them into changes, but for those that could undo a newer one." in waiting.text


def test_d1_log_files_that_nobody_compacts_fail_the_check(write: Write) -> None:
    pipeline = load(write, table__mode="upsert", table__key=["id"], table__compaction={"delta_commits": 2})

    def commit(number: int) -> CommittedInstant:
        files = {f"dt=1/.0000000{bucket}-0_2026112103000{number}000.log.1_0-0-0": 500 for bucket in range(number)}
        bases = {f"dt=1/0000000{bucket}-0_0-0-0_20261121025900000.parquet": 1000 for bucket in range(5)}
        return CommittedInstant(f"2026112102590{number}000", {}, NOW - timedelta(seconds=9), {**files, **bases})

    none = compacted_in_time(pipeline, read_amplification([]), NOW)
    assert none.passed
    assert none.figures["due"] == "no"
    due = compacted_in_time(pipeline, read_amplification([commit(1), commit(3)]), NOW)
    assert due.passed
    assert due.text == (
        "4 log files of 2 commits not compacted: 2,000 bytes, 67% of their base files, in 3 file groups of 1.3 log files on "
        "average and 2 at most. Last compaction: none. Due: 2 commits not compacted (delta_commits: 2)."
    )
    assert due.figures == {
        "log files per file group (mean)": 1.33,
        "log files per file group (max)": 2,
        "log bytes": 2000,
        "commits not compacted": 2,
        "last compaction": "none",
        "due": "yes",
        "log bytes / base bytes": 0.667,
    }
    overdue = compacted_in_time(pipeline, read_amplification(commit(number) for number in range(1, 5)), NOW)
    assert (overdue.passed, overdue.warning) == (False, True)
    assert "Overdue: 4 commits not compacted" in overdue.text
    assert "`hudi-ingest services orders` compacts now" in overdue.text


def test_a_producer_that_leaves_its_transaction_open_is_seen_although_nothing_can_be_read(pipeline: Pipeline) -> None:
    committed = CommittedState(
        True, last_began_at=NOW - timedelta(seconds=9001), last_committed_at=NOW - timedelta(seconds=9000)
    )
    limit = 60 + 2 * pipeline.transaction.interval_seconds + 2 + 2
    times = [NOW - timedelta(seconds=limit + more) for more in (-1, 1)]
    assert held_by_producers(pipeline, times[0], [P0], committed, NOW) is None
    assert held_by_producers(pipeline, times[1], [], committed, NOW) is None, "an idle topic is not late"
    assert held_by_producers(pipeline, None, [P0], committed, NOW) is None
    found = held_by_producers(pipeline, times[1], [P0], committed, NOW)
    assert found is not None
    assert not found.passed
    assert "orders:0" in found.text


def test_records_that_are_later_than_declared_are_seen_while_their_commits_are_on_the_timeline(
    pipeline: Pipeline,
) -> None:
    times = TimesRead(1_000, 9_000_000, 2, 3_600_000)
    plan = PLAN_TYPES[TransactionKind.INGEST]("orders", "orders-1", 1, (Slice("orders", 0, 0, 5),))
    commits, checkpoint = [], None
    for sequence, seen in enumerate((NO_TIMES, times, NO_TIMES), 1):
        plan = replace(plan, transaction_id=f"orders-{sequence}", sequence=sequence)
        report = SliceReport(plan.slices[0], 0, rows=5, times=seen)
        totals = with_commit(checkpoint.totals if checkpoint else {}, plan, [report], keeps_bad=False)
        checkpoint = replace(next_checkpoint(checkpoint, plan, 0, str(sequence)), totals=totals)
        metadata = commit_metadata(pipeline, plan, checkpoint, [report])
        commits.append(CommittedInstant(str(sequence), metadata, NOW))
    assert checkpoint is not None
    found = nothing_late(pipeline, checkpoint, commits)
    assert (found.passed, found.warning, found.figures["late records"]) == (False, True, 2)
    assert all(text in found.text for text in ("orders:0", "orders-2", "1970-01-01 01:00:00 UTC"))
    later = nothing_late(pipeline, checkpoint, commits[2:])
    assert (later.passed, later.figures["late records of all commits"]) == (True, 2)
    assert NOTHING_LATE not in questions(pipeline), "only where somebody relies on it"
    source = pipeline.source.model_copy(update={"lateness_seconds": 5.0})
    assert NOTHING_LATE in questions(pipeline.model_copy(update={"source": source}))


def test_freshness_is_that_of_the_time_through_which_the_table_is_complete(pipeline: Pipeline) -> None:
    asset = pipeline.asset.model_copy(update={"fresh_within_seconds": 300.0})
    undeclared = pipeline.model_copy(update={"asset": asset})
    source = pipeline.source.model_copy(update={"lateness_seconds": 60.0})
    declared = undeclared.model_copy(update={"source": source})
    just, late = (NOW - timedelta(seconds=seconds) for seconds in (359, 361))
    assert not_fresh(undeclared, None, [P0], NOW) is None, "Dagster's policy says it"
    assert not_fresh(pipeline.model_copy(update={"source": source}), late, [P0], NOW) is None
    assert not_fresh(declared, just, [P0], NOW) is None
    for through, text in ((late, "361 s ago"), (None, "no time")):
        found = not_fresh(declared, through, [P0], NOW)
        assert found is not None
        assert not found.passed
        assert text in found.text
        assert "orders:0 holds it back" in found.text


def test_each_expectation_has_a_check_of_the_last_transaction(write: Write) -> None:
    expectations = [
        {"name": "positive", "condition": "n > 0"},
        {"name": "named", "condition": "id IS NOT NULL", "severity": "reject"},
    ]
    pipeline = load(write, expectations=expectations)
    assert [name for name in questions(pipeline) if name.startswith("expect_")] == ["expect_positive", "expect_named"]
    assert [each.passed for each in expectations_met(pipeline, None, ())] == [True, True]
    checkpoint = Checkpoint(2, "t2", {})

    def commit(sequence: int, **violations: int) -> CommittedInstant:
        slice_ = Slice("orders", 0, 10 * sequence, 10 * sequence + 10)
        plan = IngestPlan("orders", f"t{sequence}", sequence, (slice_,))
        report = SliceReport(slice_, 0, rows=8, rejected=2, violations=violations)
        return CommittedInstant("1", commit_metadata(pipeline, plan, checkpoint, [report]), NOW, {}, 8)

    commits = [commit(2, positive=3, named=2), commit(1, positive=9)]
    warned, rejected = expectations_met(pipeline, checkpoint, commits)
    assert (warned.passed, warned.warning, rejected.warning) == (False, True, True)
    assert warned.figures == {"violations": 3, "records": 10, "transaction": "t2"}
    assert warned.text.startswith("3 records of the last transaction violate `n > 0`; they are in the table.")
    assert "bad records" in rejected.text
    assert [each.passed for each in expectations_met(pipeline, checkpoint, [commit(3), *commits])] == [True, True]
