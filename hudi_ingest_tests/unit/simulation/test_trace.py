"""P1–P4: which traces of steps keep the rules, and that traces of a broken protocol do not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hudi_ingest_tests.simulation.model import Ground, Simulation, simulated
from hudi_ingest_tests.simulation.mutations import MUTATIONS
from hudi_ingest_tests.simulation.schedule import run, schedule_of
from hudi_ingest_tests.simulation.trace import CHANGED_BY_HAND, POWER_CUT, Line, add, read, violation

ON_A_DISK = (3005086, 3005478, 3005575)
"""In their schedules a begin that has lost its lock sets the epoch of a table on a disk back."""
REFUSED = {
    "the fence is left out": (2457, "P4: ", "was written after it was rolled back"),
    "a rollback waits for no commit inside Hudi's lock": (105, "P4: ", "is committed, and was rolled back"),
    "the next offset is off by one": (0, "P2: ", "reads orders:0 from 3, and 2 is next"),
    "commit before all is written": (137, "P3: ", "is committed, and orders:0 was not written"),
    "a plan is not compared with the checkpoint": (15, "P2: ", "follows"),
}
"""Mutations, by a seed whose trace shows each."""


def transaction(number: int, start: int = 0, **facts: Any) -> dict[str, Any]:
    """One of ten offsets of one Kafka partition, from `start` on."""
    return {
        "pipeline": "orders",
        "table": "/orders",
        "pid": 1,
        "transaction": f"t{number}",
        "epoch": number,
        "instant": f"i{number}",
        "kind": "ingest",
        "sequence": number,
        "after": f"i{number - 1}",
        "slices": {"orders:0": [start, start + 10]},
        "resets": {},
        "attempts": {"orders:0": 0},
        **facts,
    }


def step(name: str, of: Line, outcome: str = "done", **facts: Any) -> list[Line]:
    line = {**of, "step": name, **facts}
    return [{**line, "outcome": "started"}, {**line, "outcome": outcome}]


def through(of: Line) -> list[Line]:
    """All steps of a transaction."""
    return [*step("begin", of), *step("write", of), *step("commit", of, "published")]


ONE, TWO = transaction(1), transaction(2, 10)
LATE = {**transaction(1), "pid": 2}
BEGUN, WRITTEN, PUBLISHED = (step(name, ONE, end) for name, end in (("begin", "done"), ("write", "done"), ("commit", "published")))  # fmt: skip
ROLLED_BACK = step("rollback", ONE)

KEPT: dict[str, Sequence[Line]] = {
    "one after another": [*through(ONE), *through(TWO)],
    "two tables": [*through(ONE), *through({**ONE, "table": "/others"})],
    "another pipeline takes the table over": [
        *through(ONE),
        *through(transaction(1, epoch=2, instant="i2", pipeline="again")),
    ],
    "a write is refused and tried again": [*BEGUN, *step("write", ONE, "KafkaUnreachable"), *WRITTEN, *PUBLISHED],
    "a commit is asked for twice": [*BEGUN, *WRITTEN, *PUBLISHED, *step("commit", ONE, "committed")],
    "the process of a commit was killed": [*BEGUN, *WRITTEN, PUBLISHED[0], *through(TWO)],
    "it says later that it has landed": [*BEGUN, *WRITTEN, PUBLISHED[0], *through(TWO), PUBLISHED[1]],
    "a rollback finds the commit": [*BEGUN, *WRITTEN, PUBLISHED[0], *step("rollback", ONE, "committed"), *through(TWO)],
    "its successor reads the same offsets": [*BEGUN, *ROLLED_BACK, *through(transaction(1, epoch=3, instant="i3"))],
    "a late process is refused": [*BEGUN, *ROLLED_BACK, *step("commit", LATE, "Fenced")],
    "a begin was killed": [BEGUN[0], *step("rollback", {**ONE, "instant": "i0"}), *through(ONE)],
    "a loss was accepted": [*through(ONE), *through(transaction(2, 14, resets={"orders:0": 14}))],
    "a partition disappears and comes back": [
        *through(ONE),
        *through(transaction(2, slices={}, attempts={}, resets={"orders:0": None})),
        *through(transaction(3)),
    ],
    "a replay in between": [*through(ONE), *through(transaction(2, kind="replay")), *through(transaction(3, 10))],
    "an idle partition": [*through({**ONE, "slices": {**ONE["slices"], "orders:1": [5, 5]}})],
    "a power cut takes the newest commit": [
        *through(ONE),
        POWER_CUT,
        *ROLLED_BACK,
        *through(transaction(1, epoch=3, instant="i3")),
    ],
    "a commit was taken out by hand": [*through(ONE), CHANGED_BY_HAND, *through(transaction(1, epoch=3, instant="i3"))],
    "one that has lost its lock sets the epoch back": [
        step("begin", LATE)[0],
        *step("begin", TWO),
        step("begin", LATE)[1],
        *step("write", TWO),
    ],
}
BROKEN: dict[str, tuple[Sequence[Line], str]] = {
    "an older epoch": ([*step("begin", TWO), *step("begin", ONE)], "P4: t1 .* has begun, and before it t2"),
    "an epoch twice": (
        [*BEGUN, *step("begin", transaction(1, instant="i9"))],
        "P4: t1 .* has begun, and before it t1",
    ),
    "an instant twice": ([*BEGUN, *BEGUN], "P4: .* has begun, and so has t1"),
    "a write after a later epoch had begun": (
        [*BEGUN, *step("begin", transaction(1, epoch=2, instant="i2")), *WRITTEN],
        "P4: t1 .* was written after t1 .*epoch 2",
    ),
    "a commit after a later epoch had begun": (
        [*BEGUN, *WRITTEN, *step("begin", transaction(1, epoch=2, instant="i2")), *PUBLISHED],
        "P4: t1 .* was published after t1 .*epoch 2",
    ),
    "a write after the rollback": ([*BEGUN, *ROLLED_BACK, *WRITTEN], "P4: t1 .* was written after it was rolled back"),
    "a write of one that has not begun": (WRITTEN, "P4: a write of t1, which has not begun as i1 in epoch 1"),
    "a write under another epoch": ([*BEGUN, *step("write", ONE, epoch=2)], "P4: a write of t1, which has not begun as i1 in epoch 2"),
    "an attempt twice": ([*BEGUN, *WRITTEN, *WRITTEN], "P3: t1 .* has written orders:0 twice in attempt 0"),
    "a slice that was not planned": (
        [*BEGUN, *step("write", ONE, attempts={"orders:7": 0})],
        "P3: t1 .* has written orders:7, which is not in its plan",
    ),
    "a slice that was not written": ([*BEGUN, *PUBLISHED], "P3: t1 .* is committed, and orders:0 was not written"),
    "it follows one whose slice was not written": (
        [*BEGUN, *step("begin", TWO)],
        "P3: t1 .* is committed, and orders:0 was not written",
    ),
    "published twice": ([*through(ONE), *PUBLISHED], "P2: t1 .* was published twice"),
    "two commits of a number": (
        [*BEGUN, *WRITTEN, *through(transaction(1, epoch=2, instant="i2")), *step("commit", ONE, "committed")],
        "P2: t1 .*i1.* is committed, and so is t1 .*i2",
    ),
    "a commit was not seen": (
        [*through(ONE), *step("begin", transaction(1, epoch=2, instant="i2"))],
        "P2: t1 .* has begun, and before it t1 .* was committed",
    ),
    "a number was left out": ([*through(ONE), *step("begin", transaction(3, 10, after="i1"))], "P2: t3 .* follows t1"),
    "offsets left out": ([*through(ONE), *step("begin", transaction(2, 11))], "P2: t2 .* reads orders:0 from 11, and 10 is next"),
    "offsets twice": ([*through(ONE), *step("begin", transaction(2, 9))], "P2: t2 .* reads orders:0 from 9, and 10 is next"),
    "offsets left out behind a replay": (
        [*through(ONE), *through(transaction(2, kind="replay")), *step("begin", transaction(3, 11))],
        "P2: t3 .* reads orders:0 from 11, and 10 is next",
    ),
    "another restart than was accepted": (
        [*through(ONE), *step("begin", transaction(2, 15, resets={"orders:0": 14}))],
        "P2: t2 .* reads orders:0 from 15, and 14 is next",
    ),
    "a rollback of what is committed": ([*through(ONE), *ROLLED_BACK], "P4: t1 .* was rolled back, and is committed"),
    "a commit of what was rolled back": (
        [*BEGUN, *WRITTEN, PUBLISHED[0], *ROLLED_BACK, PUBLISHED[1]],
        "P4: t1 .* is committed, and was rolled back",
    ),
    "it follows one that was rolled back": (
        [*BEGUN, *WRITTEN, PUBLISHED[0], *ROLLED_BACK, *step("begin", TWO)],
        "P4: t1 .* is committed, and was rolled back",
    ),
    "a power cut takes more than the newest commit": (
        [*through(ONE), *through(TWO), POWER_CUT, *ROLLED_BACK],
        "P1: t1 .* was rolled back, and t2 .* is committed after it",
    ),
    "what a power cut has left goes later": ([POWER_CUT, *through(ONE), *ROLLED_BACK], "P4: t1 .* was rolled back"),
}  # fmt: skip


@pytest.fixture
def ground() -> Iterator[Ground]:
    with simulated() as found:
        yield found


@pytest.mark.parametrize("name", KEPT)
def test_p2_p3_p4_steps_in_the_protocols_order_are_accepted(name: str) -> None:
    assert violation(KEPT[name]) == ""


@pytest.mark.parametrize("name", BROKEN)
def test_p1_p2_p3_p4_a_step_that_no_order_explains_is_named(name: str) -> None:
    lines, told = BROKEN[name]
    assert re.search(f"^line \\d+: {told}", violation(lines)), violation(lines)


@pytest.mark.parametrize("name", REFUSED)
def test_the_trace_of_a_broken_protocol_is_refused(ground: Ground, name: str) -> None:
    seed, promise, told = REFUSED[name]
    mutation = MUTATIONS[name]
    # Else the simulation's own judgement ends the schedule at the first wrong row.
    with mutation.applied(), mock.patch.object(Simulation, "judge", lambda simulation: None):
        run(schedule_of(seed), ground, mutation.flaws)
    assert ground.world is not None
    found = violation(ground.world.trace)
    assert promise in found and told in found
    assert run(schedule_of(seed), ground) is None


@pytest.mark.parametrize("seed", ON_A_DISK)
def test_p4_an_epoch_that_was_set_back_on_a_disk_is_no_violation(ground: Ground, seed: int) -> None:
    assert run(schedule_of(seed), ground) is None
    assert ground.world is not None
    begun = [line for line in ground.world.trace if line["step"] == "begin" and line["outcome"] == "done"]
    assert any(later["epoch"] <= line["epoch"] for line, later in pairwise(begun))


def test_a_log_is_read_as_far_as_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "transactions.log"
    assert read(log) == []
    add(log, POWER_CUT)
    with log.open("a") as file:
        file.write('{"step": "beg')
    assert read(log) == [POWER_CUT]
