"""Transactions that go on one after another beside a pipeline's live ones, turn by turn.

A table has one transaction at a time. Who finds it taken waits until it is free; after each of ours a live one that is due
goes first, so the lag of live records grows by no more than one of ours takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

from hudi_ingest.config import Pipeline
from hudi_ingest.coordinator import Situation, observe, plan_next
from hudi_ingest.exceptions import IngestError, PlanOutdated, TransactionInFlight
from hudi_ingest.home import Home
from hudi_ingest.ingest import run_transaction
from hudi_ingest.ledger import Ledger
from hudi_ingest.model import CommitReceipt, TransactionPlan

LIVE_TURN_SECONDS = 120.0
"""How long a live transaction that is due may take to begin where live ones have run lately: a tick of the sensor and the start
of a run, which on a busy machine or in a container takes its time."""
SHORT_TURN_SECONDS = 20.0
"""The same where none has: most likely the sensor is off."""
ASK_AGAIN_SECONDS = 1.0
TRY_AGAIN_SECONDS = 15.0
"""Who finds the table taken tries again when the ledger says that it is free, and this often anyway: what a holder that died
has left is put right by a try."""
WAIT_TIMEOUTS = 3
"""How many of the pipeline's timeouts a transaction waits for the table by default."""


@dataclass(frozen=True)
class Turns:
    """`wait_seconds` is how long a transaction may wait for the table. The rest are the world, as tests may want it."""

    pipeline: Pipeline
    wait_seconds: float
    report: Callable[[str], None]
    look: Callable[[], Situation]
    run: Callable[[TransactionPlan], CommitReceipt]
    live_waits: Callable[[], bool]
    """Whether a live transaction is due and has not begun."""
    live_runs: Callable[[], bool]
    """Whether live transactions have run lately."""
    held: Callable[[], bool]
    """Whether the ledger knows an open transaction of the table."""
    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def each(
        self, next_plan: Callable[[Situation], TransactionPlan | None], more: Callable[[], bool] = lambda: True
    ) -> Iterator[CommitReceipt]:
        """Runs what `next_plan` makes of the situation until it makes nothing. `more` may say after each that nothing is known
        to be left, so that nobody is let go first for it.

        Raises TransactionInFlight when the table was not free in time, and what planning and running raise.
        """
        patience = LIVE_TURN_SECONDS if self.live_runs() else SHORT_TURN_SECONDS
        while True:
            receipt = self._one(next_plan)
            if receipt is None:
                return
            yield receipt
            if more() and self.live_waits():
                patience = LIVE_TURN_SECONDS if self._let_live_begin(patience) else SHORT_TURN_SECONDS

    def _one(self, next_plan: Callable[[Situation], TransactionPlan | None]) -> CommitReceipt | None:
        until = self.now() + self.wait_seconds
        told = ""
        while True:
            # Planned anew each time: whoever had the table has moved it on.
            plan = next_plan(self.look())
            if plan is None:
                return None
            try:
                return self.run(plan)
            except (TransactionInFlight, PlanOutdated) as error:
                if self.now() > until:
                    raise
                if str(error) != told:
                    told = str(error)
                    self.report(f"waiting for the table: {told}")
                self._pause_while_held(until)

    def _pause_while_held(self, until: float) -> None:
        # To plan for each look would read the statistics of the table's files each time.
        until = min(until, self.now() + TRY_AGAIN_SECONDS)
        self.pause(ASK_AGAIN_SECONDS)
        while self.held() and self.now() < until:
            self.pause(ASK_AGAIN_SECONDS)

    def _let_live_begin(self, seconds: float) -> bool:
        """Whether one began in so many seconds."""
        until = self.now() + seconds
        self.report(f"a live transaction is due and goes first, if it begins within {seconds:g} s")
        while self.live_waits():
            if self.now() > until:
                return False
            self.pause(ASK_AGAIN_SECONDS)
        return True


RunTransaction = Callable[[TransactionPlan], CommitReceipt]


def turns_of(
    pipeline: Pipeline,
    home: Home,
    wait_seconds: float | None,
    report: Callable[[str], None],
    run: RunTransaction | None = None,
) -> Turns:
    """Over the real table, broker and ledger; `run` is for who owns his transactions in another way than by this process."""
    return Turns(
        pipeline=pipeline,
        wait_seconds=WAIT_TIMEOUTS * pipeline.transaction.timeout_seconds if wait_seconds is None else wait_seconds,
        report=report,
        look=partial(observe, pipeline),
        run=run or (lambda plan: run_transaction(pipeline, home=home, plan=plan, report=report)),
        live_waits=partial(_live_waits, pipeline, home),
        live_runs=partial(_live_runs, pipeline),
        held=partial(_held, pipeline, home),
    )


def _live_runs(pipeline: Pipeline) -> bool:
    began = observe(pipeline).committed.last_began_at
    # Each may last until its timeout, and the next is due an interval after its begin.
    lately = max(pipeline.transaction.interval_seconds, pipeline.transaction.timeout_seconds) + LIVE_TURN_SECONDS
    return began is not None and (datetime.now(timezone.utc) - began).total_seconds() < lately


def _held(pipeline: Pipeline, home: Home) -> bool:
    ledger = Ledger.open(home.ledger_url)
    try:
        return ledger.open_transaction(pipeline.table.base_path) is not None
    finally:
        ledger.dispose()


def _live_waits(pipeline: Pipeline, home: Home) -> bool:
    ledger = Ledger.open(home.ledger_url)
    try:
        if ledger.open_transaction(pipeline.table.base_path) is not None:
            return False
        return isinstance(plan_next(pipeline, observe(pipeline)), TransactionPlan)
    except IngestError:
        # Such as offsets that are lost: then there is no live transaction, and its own tick says why.
        return False
    finally:
        ledger.dispose()
