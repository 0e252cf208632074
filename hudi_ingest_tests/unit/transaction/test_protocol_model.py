"""P1–P7: orders of steps that a flaw of the protocol or of the models turns into a broken promise, each told by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import pytest

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.transaction import protocol as protocol_module
from hudi_ingest_tests.simulation.bucket import NoConnection
from hudi_ingest_tests.simulation.model import CLOCKS, Ground, Simulation, simulated
from hudi_ingest_tests.simulation.world import Setting


@pytest.fixture
def ground() -> Iterator[Ground]:
    with simulated() as found:
        yield found


def test_a_lease_that_never_ends_is_found(ground: Ground) -> None:
    model = Simulation(ground, frozenset({"lease never expires"}))
    model.start(1, 3)
    model.tick(0)
    model.run_to_its_end(model.programs[0])
    model.wipe_the_ledger(0)
    with pytest.raises(AssertionError, match=r"P5: .* is not done after .*TransactionInFlight"):
        model.everything_recovers(drain=False)
    model.end()


def test_p6_a_store_that_does_not_answer_the_first_begin_is_an_error_with_advice(ground: Ground) -> None:
    model = Simulation(ground, setting=Setting(on_s3=True))
    model.start(1, 3)
    model.tick(0)
    (begin,) = model.programs
    while not begin.point.startswith("put orders/.hoodie/hudi_ingest/probe"):
        model.step(begin)
    begin.go_on(NoConnection(begin.point))
    model.run_to_its_end(begin)
    assert isinstance(begin.failure, TableUnreachable)
    assert "cannot try conditional writes" in str(begin.failure)
    model.finish_all()
    model.end()


@pytest.mark.parametrize("flaws", [frozenset(), frozenset({"no barrier"})], ids=["as it is", "no barrier"])
@pytest.mark.parametrize("point", ["commit_leased", "guard passed", "metadata table written"])
def test_p4_a_clock_that_is_ahead_ends_no_commit_in_hudis_lock(
    ground: Ground, point: str, flaws: frozenset[str]
) -> None:
    """Another ledger's transaction begins in another engine, by whose clock the commit's lease has expired."""
    model = Simulation(ground, flaws, Setting(engines=2, ledgers=2))
    model.start(1, 3)
    model.tick(0)
    while model.programs[0].name != "run-0 commit":
        model.run_to_its_end(model.programs[0])
    while model.programs[0].point != point:
        model.step(model.programs[0])
    model.a_clock_jumps(1, CLOCKS.index(400))
    model.produce(0, ["row"])
    model.tick(1)
    broken = bool(flaws) and point != "commit_leased"
    with pytest.raises(AssertionError, match=r"P4: .* was rolled back") if broken else contextlib.nullcontext():
        model.run_to_its_end(model.programs[-1])
        while model.programs:
            model.run_to_its_end(model.programs[0])
        model.judge()
        model.finish_all()
    model.end()


ORDERS = {
    # flaws → where the older transaction's commit stands while the next one begins, and what must be found
    frozenset({"no epoch", "no open check", "no rollback check"}): (
        "commit_leased",
        "P4: .* was rolled back, and then written",
    ),
    frozenset({"rolls completed back"}): ("guard passed", "P4: .* was rolled back and is completed"),
    frozenset({"no barrier"}): ("guard passed", "P4: .* was rolled back and is completed"),
    frozenset({"no checkpoint check"}): ("", "P2: .* follows number 1"),
}


@pytest.mark.parametrize("flaws", ORDERS, ids=lambda flaws: ", ".join(sorted(flaws)))
def test_a_broken_protocol_is_found(ground: Ground, flaws: frozenset[str]) -> None:
    """The same order of steps is right with the protocol as it is, and is found wrong with the flaw."""
    _overtaken(Simulation(ground), ORDERS[flaws][0])
    broken = Simulation(ground, flaws)
    with contextlib.ExitStack() as unchecked, pytest.raises(AssertionError, match=ORDERS[flaws][1]):
        if "no checkpoint check" in flaws:
            for check in ("require_current", "require_sums"):
                unchecked.enter_context(mock.patch.object(protocol_module, check, lambda *anything: None))
        _overtaken(broken, ORDERS[flaws][0])
    broken.end()


def _overtaken(model: Simulation, point: str) -> None:
    """A transaction whose commit is taken for dead at `point` while another one begins; both then go on. Without a point
    the other one was planned before the first commits, and begins after it."""
    model.start(1, 3)
    model.tick(0)
    model.tick(0)
    first, second = model.programs
    model.run_to_its_end(first)
    model.run_to_its_end(model.programs[-1])
    commit = model.programs[-1]
    while commit.point != point and not commit.over:
        model.step(commit)
    commit.crashed = model.runs[0].finished = True
    while model.programs:
        model.run_to_its_end(second if second in model.programs else model.programs[0])
        model.judge()
    model.finish_all()
    model.end()


@pytest.mark.parametrize("asked", [True, False], ids=["as it is", "the broker is not asked again"])
def test_p1_p6_records_that_came_back_while_the_plan_waited_are_not_given_up(ground: Ground, asked: bool) -> None:
    model = Simulation(ground)
    model.start(1, 3)
    model.tick(0)
    while model.programs:
        model.run_to_its_end(model.programs[0])
    model.produce(0, ["row"] * 3)
    model.records_are_lost(2)
    model.tick(0)
    assert model.runs[-1].plan.resets
    model.lost_records_come_back()
    with contextlib.ExitStack() as expected:
        if not asked:
            expected.enter_context(mock.patch.object(protocol_module, "require_lost", lambda *anything: None))
            expected.enter_context(pytest.raises(AssertionError, match=r"P1: .* is given up"))
        while model.programs:
            model.run_to_its_end(model.programs[0])
        model.judge()
        model.finish_all()
    model.end()
    model.end()


@pytest.mark.parametrize("flaws", [frozenset(), frozenset({"no live check"})], ids=["as it is", "no live check"])
def test_p7_a_replay_of_a_file_that_another_writer_changes_meanwhile_is_refused(
    ground: Ground, flaws: frozenset[str]
) -> None:
    """The same order of steps is right with the guard as it is, and is found wrong without its look at the replaced files."""
    model = Simulation(ground, flaws)
    model.start(1, 3)
    model.tick(0)
    while model.programs:
        model.run_to_its_end(model.programs[0])
    model.another_writer_begins(rewrites=True)
    model.ask_for_a_range(0, TransactionKind.REPLAY, 0, 9)
    replayed = model.runs[-1]
    while model.programs and not (replayed.transaction and replayed.reports):
        model.run_to_its_end(model.programs[0])
    with contextlib.ExitStack() as expected:
        if flaws:
            expected.enter_context(
                pytest.raises(AssertionError, match=r"P1, P2: the table has|P7: .* was replaced while")
            )
        model.another_writer_commits()
        while model.programs:
            model.run_to_its_end(model.programs[0])
        model.judge()
        assert replayed.finished
        assert (TransactionKind.REPLAY, False) not in ground.published
        model.finish_all()
    model.end()
    model.end()
