"""Transactions beside live ones take turns: they wait for the table, plan anew, and let a live one that is due go first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from hudi_ingest.coordinator import Situation
from hudi_ingest.exceptions import PlanOutdated, TransactionInFlight
from hudi_ingest.hudi.timeline import CommittedState
from hudi_ingest.model import Checkpoint, CommitReceipt, TransactionPlan
from hudi_ingest.turns import LIVE_TURN_SECONDS, SHORT_TURN_SECONDS, TRY_AGAIN_SECONDS, Turns

SITUATION = Situation(CommittedState(False), {}, {}, {})


@dataclass
class Stage:
    """A clock, and what happens on it. `errors` come before each run succeeds; `live` says until when one is due."""

    errors: list[Exception] = field(default_factory=list)
    live_begins_after: float = 0.0
    seconds: float = 0.0
    done: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    due_since: float | None = None
    held_until: float = 0.0
    """What the ledger says of the table."""
    tries: list[float] = field(default_factory=list)
    live_runs: bool = False
    """Whether live transactions have run before."""

    def run(self, plan: TransactionPlan) -> CommitReceipt:
        self.tries.append(self.seconds)
        if self.errors:
            raise self.errors.pop(0)
        self.done.append(plan.transaction_id)
        self.due_since = self.seconds
        return CommitReceipt(plan, "1", Checkpoint(1, plan.transaction_id, {}), ())

    def live_waits(self) -> bool:
        return self.due_since is not None and self.seconds < self.due_since + self.live_begins_after

    def pause(self, seconds: float) -> None:
        self.seconds += seconds

    def turns(self, wait_seconds: float = 10) -> Turns:
        return Turns(
            cast(Any, None),
            wait_seconds,
            lambda line: None,
            lambda: SITUATION,
            self.run,
            self.live_waits,
            lambda: self.live_runs,
            lambda: self.seconds < self.held_until,
            lambda: self.seconds,
            self.pause,
        )


def plans(count: int) -> Any:
    left = [TransactionPlan("orders", f"t-{number}", number, ()) for number in range(count)]

    def next_plan(situation: Situation) -> TransactionPlan | None:
        ended = len(stage_done)
        return left[ended] if ended < len(left) else None

    stage_done: list[str] = []
    next_plan.done = stage_done  # type: ignore[attr-defined]
    return next_plan


def run(stage: Stage, count: int, wait_seconds: float = 10) -> list[CommitReceipt]:
    next_plan = plans(count)
    stage.done = next_plan.done
    return list(stage.turns(wait_seconds).each(next_plan))


def test_it_waits_for_the_table_and_plans_anew() -> None:
    stage = Stage([TransactionInFlight("busy"), TransactionInFlight("busy"), PlanOutdated("moved")])
    assert len(run(stage, 2)) == 2
    assert stage.done == ["t-0", "t-1"]
    assert stage.seconds == 3


def test_it_tries_when_the_ledger_says_that_the_table_is_free_and_sometimes_before() -> None:
    stage = Stage([TransactionInFlight("busy")] * 2, held_until=TRY_AGAIN_SECONDS + 5)
    run(stage, 1, wait_seconds=60)
    assert stage.tries == [0, TRY_AGAIN_SECONDS, TRY_AGAIN_SECONDS + 5]


def test_it_does_not_wait_for_ever() -> None:
    stage = Stage([TransactionInFlight("busy")] * 100)
    with pytest.raises(TransactionInFlight):
        run(stage, 1, wait_seconds=5)
    assert 5 <= stage.seconds <= 7


def test_a_live_transaction_that_is_due_goes_first_and_nobody_waits_long_for_one_that_never_comes() -> None:
    stage = Stage(live_begins_after=4)
    run(stage, 3)
    assert stage.seconds == 12
    slow = Stage(live_begins_after=100, live_runs=True)
    run(slow, 3)
    assert slow.seconds == 300
    nobody = Stage(live_begins_after=10_000)
    run(nobody, 3)
    assert nobody.seconds == pytest.approx(3 * SHORT_TURN_SECONDS, abs=3)


def test_a_live_one_that_does_not_come_any_more_is_waited_for_once() -> None:
    stage = Stage(live_begins_after=10_000, live_runs=True)
    run(stage, 3)
    assert stage.seconds == pytest.approx(LIVE_TURN_SECONDS + 2 * SHORT_TURN_SECONDS, abs=3)


def test_nobody_is_let_go_first_when_nothing_is_left_to_do() -> None:
    stage = Stage(live_begins_after=10_000)
    next_plan = plans(2)
    stage.done = next_plan.done
    receipts = list(stage.turns().each(next_plan, lambda: len(stage.done) < 2))
    assert len(receipts) == 2
    assert stage.seconds == pytest.approx(SHORT_TURN_SECONDS, abs=1)
