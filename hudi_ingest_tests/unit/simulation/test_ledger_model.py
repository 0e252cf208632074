"""The simulation's ledger answers as the real one does, in SQLite and in PostgreSQL: the same random programs of calls on both."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hudi_ingest.exceptions import IngestError, TransactionInFlight
from hudi_ingest.ledger import Ledger, TransactionRow, locks
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.tables import LOCKS
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import CommitReceipt, SliceReport
from hudi_ingest_tests.simulation import ledger as model_ledger
from hudi_ingest_tests.simulation.ledger import LedgerModel
from hudi_ingest_tests.simulation.programs import Program
from hudi_ingest_tests.support import postgres

PROGRAMS = int(os.environ.get("HUDI_INGEST_MODEL_PROGRAMS", "20"))
"""Of PostgreSQL, where a call takes longer, a quarter."""
CALLS = 20
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDENTS = 5
TABLE = "/data/orders"


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.tier(2))])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    if request.param == "sqlite":
        with Ledger.open(f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}") as ledger:
            yield ledger
        return
    with postgres.running() as url:
        if url is None:
            pytest.skip("PostgreSQL is not installed")
        with Ledger.open(url) as ledger:
            yield ledger


def test_the_model_of_the_ledger_answers_like_the_ledger(real: Ledger) -> None:
    for seed in range(PROGRAMS if real.database.is_sqlite else PROGRAMS // 4):
        draw = random.Random(seed)
        moments = (datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=second) for second in count())
        model = LedgerModel(moments.__next__, moments.__next__)
        for _ in range(CALLS):
            ident, call = _drawn(draw, f"program{seed}")
            assert _answer(model, ident, call) == _answer(real, ident, call), f"seed {seed}"
        for number in range(IDENTS):
            ident = f"program{seed}-{number}"
            assert _shown(model.transactions.find(ident)) == _shown(real.transactions.find(ident)), f"seed {seed}"


Call = tuple[str, Callable[[Ledger], Any]]


def _drawn(draw: random.Random, pipeline: str) -> tuple[str, Call]:
    """A transaction, and a call that concerns it. Each pipeline has two tables of its own."""
    ident, table = f"{pipeline}-{draw.randrange(IDENTS)}", f"/data/{pipeline}/{draw.choice((1, 1, 2))}"
    source, attempt, rows = draw.choice((P0, P1)), draw.randrange(3), draw.randrange(1, 3)
    instant = draw.choice(("i1", "i2"))
    plan = IngestPlan(pipeline, ident, 1, (Slice("orders", 0, 0, 5), Slice("orders", 1, 0, 5)))
    report = SliceReport(Slice(source.topic, source.partition, 0, 5), attempt, rows=rows, gaps=5 - rows)
    receipt = CommitReceipt(plan, instant, Checkpoint(1, ident, {P0: 5, P1: 5}), (report,))
    deadline, owner = datetime(2026, 1, 2, tzinfo=timezone.utc), Owner.dagster_run(ident)
    retry = draw.choice((0, 0, 2))
    calls: list[Call] = [
        (
            f"begin {ident}",
            lambda to: to.transactions.begin(plan, table=table, owner=owner, deadline=deadline, above=attempt),
        ),
        (f"instant {ident} {instant}", lambda to: to.transactions.record_instant(ident, instant)),
        (f"start {ident} {source}", lambda to: to.attempts.start(ident, [source], retry)),
        (f"start {ident}", lambda to: to.attempts.start(ident, [P0, P1])),
        (f"finish {ident} {report}", lambda to: to.attempts.finish(ident, [report])),
        (f"fail {ident} {source} {attempt}", lambda to: to.attempts.fail(ident, source, attempt, "it broke")),
        (f"committed {ident} {instant}", lambda to: to.transactions.mark_committed(receipt)),
        (f"found {ident} {instant}", lambda to: to.transactions.mark_committed_as_found(ident, instant)),
        (f"aborted {ident}", lambda to: to.transactions.mark_aborted(ident, "asked for")),
        ("newest commit", lambda to: _shown(to.transactions.newest_commit(pipeline))),
        (f"open in {table}", lambda to: _shown(to.transactions.open_in(table))),
        ("history", lambda to: [_shown(row) for row in to.transactions.history(pipeline, 3)]),
    ]
    # More of them begin and write than end.
    return ident, calls[draw.choice((0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 5, 6, 7, 8, 9, 10, 11))]


def _answer(ledger: Ledger, ident: str, call: Call) -> tuple[str, object, object]:
    name, ask = call
    try:
        answer = ask(ledger)
    except IngestError as error:
        answer = type(error).__name__
    return name, answer, _shown(ledger.transactions.find(ident))


def _shown(row: TransactionRow | None) -> object:
    if row is None:
        return None
    ended, reason = row.ended_at is not None, row.reason is not None
    figures = (row.rows, row.files, row.size_bytes)
    return row.transaction_id, row.table, row.epoch, row.state, row.owner, row.instant, ended, reason, figures


@pytest.mark.parametrize("seed", range(PROGRAMS // 4))
def test_the_models_locks_are_held_and_lost_like_the_ledgers(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By random programs of processes that take it, let go of it, die or are paused, while time passes."""
    database = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}").database
    draw, clock, start = random.Random(seed), [1000.0], datetime(2026, 1, 1, tzinfo=timezone.utc)
    model = LedgerModel(lambda: start, lambda: start + timedelta(seconds=clock[0]))
    processes = [Program(f"process {number}", lambda: None, number) for number in range(4)]
    held: dict[Program, tuple[locks.HeldLock, AbstractContextManager[None]]] = {}
    dead: set[str] = set()
    asking = [processes[0]]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(locks, "_has_ended", lambda found: found.token in dead)
    monkeypatch.setattr(model_ledger, "running", lambda: asking[0])
    outcomes = set()
    for step in range(60):
        process = asking[0] = draw.choice(processes)
        stale, unfenced = draw.choice((None, 60.0, 300.0)), draw.random() < 0.3
        act = draw.choice(("take", "take", "release", "wait", "wait", "die"))
        if act == "wait":
            clock[0] += draw.choice((1.0, 20.0, 44.0, 46.0, 100.0, 601.0))
            # The model's rule: each second host pauses whole processes.
            for lock in [lock for owner, (lock, _) in held.items() if owner.host % 2 == 0]:
                with database.writing() as connection:
                    connection.execute(LOCKS.update().where(lock._mine).values(renewed_at=clock[0]))
        elif act == "take" and process not in held:
            entering = model.table_lock(TABLE, 0, stale, unfenced)
            lock_or_none = _unless_in_flight(partial(locks.acquire, database, TABLE, 0, stale, unfenced))
            is_in = _unless_in_flight(partial(_entered, entering))
            assert (lock_or_none is None) == (is_in is None), f"step {step}"
            outcomes.add(is_in)
            if lock_or_none is not None:
                held[process] = lock_or_none, entering
        elif act == "release" and process in held:
            lock, entered = held.pop(process)
            lock.release()
            entered.__exit__(None, None, None)
        elif act == "die" and process in held:
            lock, _ = held.pop(process)
            lock._released.set()
            dead.add(lock._token)
            process.crashed = True
            processes[processes.index(process)] = Program("its successor", lambda: None, process.host)
    for lock, _ in held.values():
        lock.release()
    assert outcomes == {True, None}, "some were let in, and some were not"


T = TypeVar("T")


def _entered(entering: AbstractContextManager[None]) -> bool:
    entering.__enter__()
    return True


def _unless_in_flight(take: Callable[[], T]) -> T | None:
    try:
        return take()
    except TransactionInFlight:
        return None
