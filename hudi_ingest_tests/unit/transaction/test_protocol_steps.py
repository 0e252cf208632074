"""What each step of a transaction checks, and in which order it does what must outlive the next one, over the simulation's models. Orders of
several transactions' steps are for the simulation itself, to whose promises most of these checks are a second lock."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hudi_ingest.exceptions import (
    CommitOutcomeUnknown,
    CommitRefused,
    DeadlineExceeded,
    EngineLost,
    Fenced,
    IngestError,
    KafkaUnreachable,
    LedgerUnreachable,
    PlanOutdated,
    TableMismatch,
    TableUnreachable,
    TransactionInFlight,
    WriteIncomplete,
)
from hudi_ingest.hudi.storage.paths import CUT_LOGS
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.timeline.other_writers import STREAMER_KEY, streamer_text
from hudi_ingest.hudi.timeline.pipeline_table import LISTED_COMMITS, CommittedState, PipelineTable
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.ledger import Ledger, TransactionRow
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.complete_through import Mark
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import IngestPlan, LossReason, TakeOver
from hudi_ingest.model.report import BaseFile
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.transaction import protocol
from hudi_ingest.transaction.commit_contents import ExtendedGroups
from hudi_ingest.transaction.protocol import LISTS_ON_A_STORE, TransactionProtocol, is_cleaning_due, is_list_due
from hudi_ingest_tests.simulation.model import Ground, Run, Simulation, simulated
from hudi_ingest_tests.simulation.programs import Program
from hudi_ingest_tests.simulation.world import Setting, storage_in
from hudi_ingest_tests.unit.ledger.test_ledger import begin

SOURCE = TopicPartition("orders", 0)


@pytest.fixture
def ground() -> Iterator[Ground]:
    with simulated() as found:
        yield found


@pytest.fixture
def model(ground: Ground) -> Iterator[Simulation]:
    """A run stands at the beginning of its first op, begin."""
    model = Simulation(ground)
    model.start(1, 3)
    model.tick(0)
    yield model
    model.finish_all()
    model.end()


def _epoch(model: Simulation) -> Epoch:
    return TableEpoch(storage_in(model.world)).current()


def _row(model: Simulation, run: Run) -> TransactionRow:
    row = model.ledgers[0].transactions.find(run.plan.transaction_id)
    assert row is not None
    return row


def _until(model: Simulation, program: Program, point: str) -> list[str]:
    """The program stands at a point that begins like this, or has ended; returns the points it has come by."""
    points = []
    while not program.over and not program.point.startswith(point):
        model.step(program)
        points.append(program.point)
    return points


def _op(model: Simulation, name: str) -> Program:
    """The newest run's op of that name, with all before it done."""
    run = model.runs[-1]
    while (program := model.programs[-1]).name != f"{run.ident} {name}":
        model.run_to_its_end(program)
    return program


def test_p2_a_plan_that_is_no_longer_current_begins_nothing(model: Simulation) -> None:
    model.tick(0)
    model.run_through(model.runs[0])
    assert model.run_to_its_end(begin := model.programs[0]) is begin.failure
    assert isinstance(begin.failure, PlanOutdated)
    assert model.ledgers[0].transactions.find(model.runs[1].plan.transaction_id) is None


def test_only_one_begins_at_a_time(model: Simulation) -> None:
    model.tick(0)
    first, second = model.programs
    _until(model, first, "begin_cleared")
    model.run_to_its_end(second)
    assert isinstance(second.failure, TransactionInFlight)
    assert "the lock of" in str(second.failure)


@pytest.mark.parametrize(("timeout", "stale"), [(10, 60), (60, 60), (3600, 3600)])
def test_the_locks_holder_has_a_transactions_time_and_at_least_a_minute(
    model: Simulation, timeout: int, stale: int
) -> None:
    """Later it is fenced anyway, and earlier it would be interrupted for nothing."""
    asked: list[float] = []

    def table_lock(table: str, *, stale_seconds: float) -> AbstractContextManager[None]:
        asked.append(stale_seconds)
        return nullcontext()

    settings = model.pipeline.transaction.model_copy(update={"timeout_seconds": timeout})
    pipeline = model.pipeline.model_copy(update={"transaction": settings})
    ledger: Any = SimpleNamespace(table_lock=table_lock)
    with replace(model.protocols[0], pipeline=pipeline, ledger=ledger)._table_lock():
        assert asked == [stale]


def test_p5_a_begin_that_fails_leaves_nothing_that_others_wait_for(model: Simulation) -> None:
    begin = model.programs[0]
    _until(model, begin, "begin")
    _until(model, begin, "epoch_advanced")
    assert _epoch(model).transaction_id == model.runs[0].plan.transaction_id
    begin.go_on(EngineLost("injected"))
    while not begin.over:
        begin.go_on()
    assert isinstance(begin.failure, EngineLost)
    assert _row(model, model.runs[0]).state is TransactionState.ABORTED
    assert _epoch(model).transaction_id == ""


def test_p1_p6_a_write_that_finds_a_log_cut_stops_its_partition(ground: Ground) -> None:
    model = Simulation(ground, setting=Setting(log_cuts=True, accepts_losses=False))
    model.start(2, 3)
    model.tick(0)
    model.run_through(model.runs[-1])
    model.produce(0, ["row"])
    model.tick(0)
    model.run_to_its_end(_op(model, "begin"))
    # The broker comes back with a copy of before, and producers write as much.
    model.world.cut[SOURCE] = (1, ["row"] * 3)
    model.run_through(model.runs[-1])
    assert model.runs[-1].finished
    assert _row(model, model.runs[-1]).state is TransactionState.ABORTED
    assert json.loads(storage_in(model.world).read(CUT_LOGS))[0]["committed"] == 3
    plan = model.plan()
    assert plan is None or SOURCE not in {slice_.source for slice_ in plan.slices}
    model.cut_logs_are_back()
    model.finish_all()
    model.end()


def test_x4_a_commit_that_accepts_a_cut_forgets_it(ground: Ground) -> None:
    model = Simulation(ground, setting=Setting(log_cuts=True))
    model.start(1, 3)
    model.tick(0)
    model.run_through(model.runs[-1])
    model.world.cut[SOURCE] = (1, [])
    model.accepts = False
    assert model.plan() is None
    assert json.loads(storage_in(model.world).read(CUT_LOGS))
    # A person accepts it, and that is committed.
    model.accepts = True
    plan = model.plan()
    assert plan is not None and [loss.reason for loss in plan.resets] == [LossReason.TRUNCATED]
    model.tick(0)
    model.run_through(model.runs[-1])
    assert json.loads(storage_in(model.world).read(CUT_LOGS)) == []
    model.end()


def test_p5_a_begin_looks_at_the_timeline_once_more_when_older_processes_are_fenced(ground: Ground) -> None:
    """A process of an older transaction opens its instant after the begin's first look, which an object store is asked for once."""
    model = Simulation(ground, setting=Setting(on_s3=True))
    model.start(1, 3)
    model.tick(0)
    model.run_through(model.runs[-1])
    model.produce(0, ["row"])
    model.tick(0)
    begin = model.programs[-1]
    _until(model, begin, "ledger_opened")
    late = model.world.new_instant()
    _until(model, begin, "instant_recorded")
    assert late.name not in model.world.active
    model.finish_all()
    model.end()


def test_p2_an_op_that_begins_once_more_uses_another_id(model: Simulation) -> None:
    begin = model.programs[0]
    _until(model, begin, "epoch_advanced")
    begin.go_on(EngineLost("injected"))
    model.run_to_its_end(begin)
    # The op is tried again, with the same plan.
    _op(model, "write")
    assert model.runs[0].plan.transaction_id.endswith("-2")


ENDED: dict[str, tuple[Callable[[Simulation, Run], object], type[IngestError], str]] = {
    "in the ledger": (
        lambda model, run: model.ledgers[0].transactions.mark_aborted(run.plan.transaction_id, "by hand"),
        Fenced,
        "is aborted .by hand. and cannot be committed",
    ),
    "by time": (lambda model, run: model.time_passes(301), DeadlineExceeded, "past its timeout_seconds"),
    "by its epoch": (
        lambda model, run: TableEpoch(storage_in(model.world)).retire(run.plan.transaction_id),
        Fenced,
        "must not continue: epoch 1 of transaction .* is over",
    ),
}


@pytest.mark.parametrize("how", ENDED)
@pytest.mark.parametrize("op", ["write", "commit"])
def test_p4_a_transaction_that_has_ended_does_not_go_on(model: Simulation, op: str, how: str) -> None:
    end, kind, said = ENDED[how]
    program, run = _op(model, op), model.runs[0]
    end(model, run)
    model.run_to_its_end(program)
    assert isinstance(program.failure, kind)
    if op == "commit" or how != "in the ledger":
        assert re.search(said, str(program.failure))
    assert not model.world.completed()


def test_p5_a_commit_that_a_power_cut_has_damaged_is_not_reported_when_it_is_called_again(ground: Ground) -> None:
    model = Simulation(ground, setting=Setting(ledgers=1, power_cuts=True))
    model.start(1, 3)
    model.tick(0)
    run, world = model.runs[0], model.world
    _until(model, _op(model, "commit"), "commit_landed")
    model.die(0)
    (instant,) = world.completed()
    instant.damage, instant.written_at = "metadata", world.now
    world.damaged.add(instant.name)
    assert isinstance(model.run_to_its_end(model.publish(run)), TransactionInFlight), "it may still be being written"
    model.time_passes(61)
    assert isinstance(model.run_to_its_end(model.publish(run)), Fenced)
    assert _row(model, run).state is TransactionState.ABORTED
    assert not world.group
    model.finish_all()
    model.end()


def test_p1_a_commit_needs_a_report_of_each_slice(model: Simulation) -> None:
    _op(model, "commit")
    run = model.runs[0]
    assert run.transaction is not None
    with pytest.raises(WriteIncomplete, match="missing: "):
        model.protocols[0].commit(run.transaction, [])


def test_a_commit_that_is_called_once_more_has_the_same_outcome(model: Simulation) -> None:
    commit, run = _op(model, "commit"), model.runs[0]
    model.run_to_its_end(commit)
    assert run.transaction is not None
    receipt = model.protocols[0].commit(run.transaction, [*run.reports.values()])
    assert (receipt.instant, receipt.checkpoint.offsets) == (run.transaction.instant, {SOURCE: 3})
    assert len(model.world.completed()) == 1


def test_a_commit_whose_error_proves_nothing_is_unknown_and_nothing_is_deleted(model: Simulation) -> None:
    commit = _op(model, "commit")
    _until(model, commit, "guard passed")
    files = {*model.world.files}
    commit.go_on(TableUnreachable("injected"))
    while not commit.over:
        commit.go_on()
    assert isinstance(commit.failure, CommitOutcomeUnknown)
    assert {*model.world.files} == files
    assert _row(model, model.runs[0]).state is TransactionState.OPEN


def test_why_a_commit_failed_first_is_kept_for_the_abort(tmp_path: Path) -> None:
    """The second try finds an instant that the first has rolled back, which says nothing of the disk that was full."""
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        begin(ledger)
        ledger.transactions.note_failure("t1", "could not commit: No space left on device")
        ledger.transactions.note_failure("t1", "later")
        (row,) = ledger.transactions.history("orders")
        assert (row.state, row.reason) == (TransactionState.OPEN, "could not commit: No space left on device")
        ledger.transactions.mark_aborted("t1", "its owner is dead")
        (row,) = ledger.transactions.history("orders")
        assert row.reason == "its owner is dead. It began with: could not commit: No space left on device"
        ledger.transactions.note_failure("t1", "later")
        assert ledger.transactions.history("orders") == (row,), "it has ended"


def test_a_commit_that_is_fenced_says_why_its_first_try_failed(
    model: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: dict[str, str] = {}
    ledger = model.ledgers[0]
    monkeypatch.setattr(ledger.transactions, "note_failure", noted.setdefault)
    commit, run = _op(model, "commit"), model.runs[0]
    _until(model, commit, "guard passed")
    commit.go_on(TableUnreachable("No space left on device"))
    while not commit.over:
        commit.go_on()
    ((transaction_id, text),) = noted.items()
    assert "No space left on device" in text
    noted_row = replace(_row(model, run), reason=text)
    monkeypatch.setattr(ledger.transactions, "find", lambda _: noted_row)
    second = model.publish(run)
    _until(model, second, "guard passed")
    second.go_on(Fenced("rolled back", transaction_id=transaction_id))
    while not second.over:
        second.go_on()
    assert isinstance(second.failure, Fenced)
    assert str(second.failure).endswith(f" The first try failed: {text}")


def test_a_commit_that_is_fenced_says_that_the_ledger_cannot_be_read(
    model: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(_: str) -> TransactionRow:
        raise LedgerUnreachable("its server is away")

    commit = _op(model, "commit")
    _until(model, commit, "guard passed")
    monkeypatch.setattr(model.ledgers[0].transactions, "find", find)
    commit.go_on(Fenced("rolled back"))
    while not commit.over:
        commit.go_on()
    assert isinstance(commit.failure, Fenced)
    text = "rolled back The ledger, which knows whether an earlier try failed, cannot be read: its server is away"
    assert str(commit.failure) == text


def test_p5_a_commit_is_flushed_before_anybody_is_told(model: Simulation) -> None:
    commit = _op(model, "commit")
    _until(model, commit, "commit_landed")
    points = _until(model, commit, "nowhere")
    assert points.index("sync_changes") < points.index("commit_group_offsets") < points.index("ledger written")
    assert model.world.group == {SOURCE: 3}
    row = _row(model, model.runs[0])
    assert (row.state, row.rows) == (TransactionState.COMMITTED, 3)


def _committed_despite(model: Simulation, point: str, error: Exception) -> TransactionRow:
    """What the ledger has of a commit that met an error at a point, and did not fail."""
    commit = _op(model, "commit")
    _until(model, commit, point)
    commit.go_on(error)
    model.run_to_its_end(commit)
    assert commit.failure is None
    return _row(model, model.runs[0])


def test_a_durable_commit_is_none_that_failed_because_the_broker_is_away(model: Simulation) -> None:
    row = _committed_despite(model, "commit_group_offsets", KafkaUnreachable("injected"))
    assert row.state is TransactionState.COMMITTED


def test_p5_the_ledger_has_no_receipt_of_a_commit_that_was_not_flushed(model: Simulation) -> None:
    row = _committed_despite(model, "sync_changes", OSError("injected"))
    assert (row.state, row.rows) == (TransactionState.COMMITTED, None), "the repair would not look at it"


@pytest.mark.parametrize("is_over", [True, False], ids=["the run is over", "the run lives"])
def test_p5_a_commit_whose_op_died_is_flushed_before_it_is_recorded(model: Simulation, is_over: bool) -> None:
    commit, run = _op(model, "commit"), model.runs[0]
    _until(model, commit, "commit_landed")
    model.die(model.programs.index(commit))
    run.finished = is_over
    model.produce(0, ["row"])
    model.tick(0)
    points = _until(model, model.programs[-1], "begin_cleared")
    assert points.index("sync_changes") < points.index("ledger written")
    assert _row(model, run).state is TransactionState.COMMITTED


def _refused(model: Simulation) -> str:
    """Why another transaction does not begin now."""
    model.produce(0, ["row"])
    model.tick(0)
    begin = model.programs[-1]
    model.run_to_its_end(begin)
    assert isinstance(begin.failure, TransactionInFlight)
    return str(begin.failure)


@pytest.fixture(params=[False, True], ids=["append", "keyed"])
def committed(ground: Ground, request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """Two transactions are committed, and a third one stands at its begin."""
    model = Simulation(ground, setting=Setting(ledgers=1, keyed=request.param))
    model.start(1, 3)
    for _ in range(2):
        model.tick(0)
        assert model.run_through(model.runs[-1]) is None
        model.produce(0, ["row"] * 3)
    model.tick(0)
    yield model
    model.end()


def _third(model: Simulation) -> Program:
    begin = model.programs[-1]
    model.run_to_its_end(begin)
    assert [each.name for each in model.world.active.values() if each.state != "completed"] == []
    return begin


def test_p7_nothing_begins_while_the_table_does_not_list_a_file_of_a_commit(committed: Simulation) -> None:
    instant = committed.world.completed()[-1]
    # Its receipt is in the ledger, so no repair looks at it.
    instant.damage, instant.written_at = "metadata", committed.world.now
    committed.world.damaged.add(instant.name)
    begin = _third(committed)
    assert isinstance(begin.failure, TableMismatch)
    assert f"hides rows that are committed: it does not list {min(instant.files)}" in str(begin.failure)
    assert f"which commit {instant.name} published" in str(begin.failure)
    assert "`hudi-ingest recover orders --metadata-table`" in str(begin.failure)
    instant.damage = ""
    committed.world.damaged.clear()
    committed.tick(0)
    assert committed.run_through(committed.runs[-1]) is None


@pytest.mark.parametrize("change", [-1, 1])
def test_p2_nothing_begins_from_an_offset_that_contradicts_its_own_commit(committed: Simulation, change: int) -> None:
    instant, key = committed.world.completed()[-1], committed.pipeline.checkpoint_key
    right = Checkpoint.from_json(instant.metadata[key])
    changed = replace(right, offsets={SOURCE: 6 + change}).to_json()
    instant.metadata = {**instant.metadata, key: changed}
    committed.world.version += 1
    committed.tick(0)
    begin = _third(committed)
    assert isinstance(begin.failure, TableMismatch)
    assert f"orders:0 was read up to 6, but the checkpoint says {6 + change}" in str(begin.failure)


def test_p2_a_commit_that_only_the_ledger_has_is_recorded_as_lost(
    committed: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    lost, run = committed.world.completed()[-1], committed.runs[1]
    del committed.world.active[lost.name]
    committed.world.version += 1
    committed.tick(0)
    assert committed.run_through(committed.runs[-1]) is None
    row = _row(committed, run)
    assert (row.state, row.rows) == (TransactionState.ABORTED, None)
    assert row.reason is not None and "the table's timeline has lost it" in row.reason
    assert f"{run.plan.transaction_id} (instant {lost.name}, 3 rows)" in caplog.text
    assert _row(committed, committed.runs[0]).state is TransactionState.COMMITTED


def test_p4_a_living_transaction_is_not_ended_by_the_next(model: Simulation) -> None:
    _op(model, "write")
    assert "Only one transaction may run on a table" in _refused(model)


def test_p4_a_living_transaction_that_the_ledger_does_not_know_is_not_ended(model: Simulation) -> None:
    _op(model, "write")
    model.wipe_the_ledger(0)
    assert "this ledger does not know it" in _refused(model)


def test_p4_a_commit_at_work_past_its_deadline_is_waited_for(model: Simulation) -> None:
    _until(model, _op(model, "commit"), "commit_leased")
    model.time_passes(301)
    assert "so its commit may still be running" in _refused(model)


def test_p4_the_writers_of_an_open_instant_are_fenced_before_its_files_are_deleted(model: Simulation) -> None:
    _op(model, "commit")
    run = model.runs[0]
    # Its abort could not reach the table.
    model.ledgers[0].transactions.mark_aborted(run.plan.transaction_id, "by hand")
    run.finished = True
    model.programs[-1].crashed = True
    model.produce(0, ["row"])
    model.tick(0)
    _until(model, model.programs[-1], "roll_back")
    assert _epoch(model).transaction_id == ""


def test_a_transaction_that_is_aborted_leaves_no_dead_letters(model: Simulation) -> None:
    model.produce(0, ["bad"])
    model.runs[0].finished = True
    model.tick(0)
    _op(model, "commit")
    run = model.runs[-1]
    assert model.world.letters and run.transaction is not None
    model.protocols[0].abort(run.transaction, "asked for")
    assert not model.world.letters
    assert _row(model, run).state is TransactionState.ABORTED


def test_each_begin_looks_at_the_list_on_a_disk_and_one_of_five_on_a_store() -> None:
    plans = [IngestPlan("orders", f"orders-{number}", number, ()) for number in range(1, 21)]
    assert all(is_list_due(plan, True) for plan in plans)
    due = [plan.sequence for plan in plans if is_list_due(plan, False)]
    assert due == [due[0], due[0] + 5, due[0] + 10, due[0] + 15]
    assert 2 * LISTS_ON_A_STORE <= LISTED_COMMITS, "each commit is looked at twice"


def test_one_of_twenty_commits_cleans_but_not_the_same_in_all_tables() -> None:
    firsts = set[int]()
    for name in ("orders", "payments", "clicks"):
        due = [number for number in range(1, 61) if is_cleaning_due(IngestPlan(name, f"{name}-{number}", number, ()))]
        assert due == [due[0], due[0] + 20, due[0] + 40]
        turns = [IngestPlan(name, f"{name}-{number}", number, ()).turn for number in (1, 2)]
        assert turns[1] == turns[0] + 1
        firsts.add(due[0])
    assert len(firsts) > 1


def _protocol(model: Simulation, **ports: Any) -> TransactionProtocol:
    """The protocol of all ops from now on, with other ports."""
    model.protocols[0] = replace(model.protocols[0], **ports)
    return model.protocols[0]


def test_p4_another_thread_of_the_same_process_is_not_taken_for_dead(model: Simulation) -> None:
    """A run has one begin op, a process may have several threads."""
    plan, owner = model.runs[0].plan, Owner.this_process()

    def begin() -> None:
        model.protocols[0].begin(plan, owner, lambda run_id: None)

    first = model.spawn("one thread", begin)
    assert model.run_to_its_end(first) is None
    second = model.spawn("another", begin)
    assert isinstance(model.run_to_its_end(second), TransactionInFlight)
    assert f"of {owner} has been open since" in str(second.failure)


def test_p5_ctrl_c_in_a_begin_leaves_nothing_that_others_wait_for(model: Simulation) -> None:
    plan, owner = model.runs[0].plan, Owner.this_process()

    def by_hand() -> None:
        model.protocols[0].begin(plan, owner, lambda run_id: None)

    begin = model.spawn("by hand", by_hand)
    _until(model, begin, "epoch_advanced")
    begin.go_on(KeyboardInterrupt())
    while not begin.over:
        begin.go_on()
    assert isinstance(begin.failure, KeyboardInterrupt)
    model.programs.remove(begin)
    assert _row(model, model.runs[0]).state is TransactionState.ABORTED
    assert _epoch(model).transaction_id == ""


def test_p5_a_commit_that_the_timeline_does_not_show_yet_gives_no_receipt(model: Simulation) -> None:
    """A listing may be stale; the next call, or the next begin, finds the commit."""
    model.run_through(model.runs[0])
    model.runs[0].finished = True
    model.produce(0, ["row"])
    model.tick(0)
    commit, run = _op(model, "commit"), model.runs[-1]
    table = model.protocols[0].table
    before, group = table.committed(), dict(model.world.group)

    class Stale(PipelineTable):
        def committed(self) -> CommittedState:
            return before

    _protocol(model, table=Stale(table.pipeline, table.timeline))
    model.run_to_its_end(commit)
    assert isinstance(commit.failure, CommitOutcomeUnknown)
    assert "does not show its checkpoint yet" in str(commit.failure)
    assert len(model.world.completed()) == 2
    assert model.world.group == group
    assert _row(model, run).state is TransactionState.OPEN


@pytest.mark.parametrize("attempts", [0, 2])
def test_p2_a_commit_whose_attempts_are_not_known_needs_its_files(model: Simulation, attempts: int) -> None:
    """A commit that was given another attempt's files, and was cut off, has deleted these."""
    commit, run = _op(model, "commit"), model.runs[0]
    known = model.ledgers[0].attempts
    counts = {SOURCE: attempts} if attempts else {}
    model.ledgers[0].attempts = SimpleNamespace(  # type: ignore[assignment]
        counts=lambda transaction_id: counts, start=known.start, finish=known.finish, fail=known.fail
    )
    file = next(file for report in run.reports.values() for file in report.written)
    del model.world.files[file.path]
    model.run_to_its_end(commit)
    assert isinstance(commit.failure, CommitRefused)
    assert f"file {file.path} of attempt" in str(commit.failure)
    assert not model.world.completed()


class _Published(Exception):
    publication: Publication

    def __init__(self, publication: Publication) -> None:
        self.publication = publication


def _publication(model: Simulation, monkeypatch: pytest.MonkeyPatch, **ports: Any) -> Publication:
    """What the commit of the newest run hands to Hudi."""
    _op(model, "commit")
    run = model.runs[-1]
    instants = model.protocols[0].instants

    def caught(publication: Publication) -> None:
        raise _Published(publication)

    monkeypatch.setattr(type(instants), "commit", lambda self, publication: caught(publication))
    assert run.transaction is not None
    with pytest.raises(_Published) as published:
        _protocol(model, **ports).commit(run.transaction, [*run.reports.values()])
    return published.value.publication


def test_p8_a_publication_has_the_groups_that_its_log_files_extend(
    model: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change queries read the files that were there before from it."""
    first = BaseFile("dt=1", "f-0", "dt=1/f-0_0-0-0_1.parquet", 0, 400, 0, 0)
    groups = ExtendedGroups([first], {("dt=1", "f-0"): (first.path,)})
    monkeypatch.setattr(protocol, "extended_groups", lambda *arguments: groups)
    publication = _publication(model, monkeypatch)
    assert first in publication.files
    assert publication.before == groups.before


def test_p1_a_commit_keeps_the_last_record_that_its_reports_have(
    model: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _publication(model, monkeypatch).metadata[model.pipeline.checkpoint_key]
    kept = {report.slice.source: report.last for report in model.runs[-1].reports.values()}
    assert None not in kept.values()
    assert Checkpoint.from_json(text).last == kept


def test_marks_are_confirmed_when_they_are_committed(model: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may have been set to its producers' times since the plan was made."""
    run, mark = model.runs[0], Mark(3, 1_000)
    assert isinstance(run.plan, IngestPlan)
    run.plan = replace(run.plan, marks={SOURCE: mark})
    asked: list[object] = []

    def confirmed(marks: Mapping[TopicPartition, Mark]) -> dict[TopicPartition, Mark]:
        asked.append(dict(marks))
        return {}

    text = _publication(model, monkeypatch, confirm_marks=confirmed).metadata[model.pipeline.checkpoint_key]
    assert asked == [{SOURCE: mark}]
    state = Checkpoint.from_json(text).complete[SOURCE]
    assert (state.through, state.pending) == (None, None)


def test_x6_a_take_over_is_judged_at_its_begin_and_its_commit_and_its_guard_knows_what_was_judged(
    model: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str | None] = []
    monkeypatch.setattr(protocol, "require_take_over", lambda ports, plan, own=None: judged.append(own))
    run = model.runs[0]
    assert isinstance(run.plan, IngestPlan)
    run.plan = replace(run.plan, take_over=TakeOver("Hudi Streamer", "1", {SOURCE: 0}))
    _op(model, "write")
    assert judged == [None]
    assert run.transaction is not None
    theirs = {STREAMER_KEY: streamer_text("orders", {0: 0})}
    completed = CommittedInstant("20260101000000000", theirs, datetime(2026, 1, 1, tzinfo=timezone.utc))
    monkeypatch.setattr(type(model.timeline), "completed", lambda self: (completed,))
    publication = _publication(model, monkeypatch)
    assert judged == [None, run.transaction.instant]
    assert publication.seen == [completed.instant]
