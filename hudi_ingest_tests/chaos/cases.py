"""Which faults strike where: the whole matrix, and random combinations beyond it. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from hudi_ingest.faults import POINTS

AT_EVERY_POINT = ("raise", "kill", "kill_worker", "kill_engine", "zombie")
"""An error that nobody expects; SIGKILL of the process that is there, of the run's worker, of the Spark engine; and the
process stopped until a replacement has committed, then let go on."""

ENVIRONMENT = ("kill_daemon", "kill_broker", "full", "disk_full", "cut_ledger")
"""SIGKILL of Dagster's daemon, of the broker (restarted on its log); one write that finds no space; a disk that is full until
a run has failed on it; every connection to the ledger's database cut."""

IN_THE_SENSOR = {"tick_planned": ("raise", "kill", "kill_daemon")}
"""The sensor runs in no run, so there is no worker to kill and nobody to replace it while it is stopped."""

_ENVIRONMENT_POINTS = {
    "kill_daemon": ("instant_recorded", "rows_written", "commit_landed"),
    "kill_broker": ("instant_recorded", "attempt_started", "commit_landed"),
    "full": ("epoch_advanced", "marker_written", "file_opened", "rows_written", "file_ready"),
    "disk_full": ("ledger_opened", "attempt_started", "commit_checked"),
    "cut_ledger": ("begin_cleared", "attempt_started", "commit_checked", "commit_landed"),
}
NEEDS_A_DEAD_TRANSACTION = ("abort_retired", "abort_rolled_back")


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault at one point."""

    point: str
    fault: str

    def __str__(self) -> str:
        return f"{self.fault} at {self.point}"


@dataclass(frozen=True, slots=True)
class Case:
    """Blows that fall one after another while records are produced."""

    number: int
    blows: tuple[Blow, ...]

    def __str__(self) -> str:
        return f"case {self.number}: {', then '.join(map(str, self.blows))}"


def matrix() -> tuple[tuple[Blow, ...], ...]:
    """Every fault point with every fault that can strike there."""
    found = [_reachable(Blow(point, fault)) for point in POINTS for fault in IN_THE_SENSOR.get(point, AT_EVERY_POINT)]
    found += [_reachable(Blow(point, fault)) for fault, points in _ENVIRONMENT_POINTS.items() for point in points]
    return tuple(found)


def choose(count: int, seed: int) -> tuple[Case, ...]:
    """`count` cases: the matrix in random order, or a part of it, then random combinations of two or three blows."""
    dice = random.Random(seed)
    blows = [*matrix()]
    dice.shuffle(blows)
    singles = [each[-1] for each in blows]
    blows += [_combination(dice, singles) for _ in range(count - len(blows))]
    return tuple(Case(number, each) for number, each in enumerate(blows[:count], start=1))


def _combination(dice: random.Random, singles: list[Blow]) -> tuple[Blow, ...]:
    return tuple(blow for single in dice.sample(singles, dice.choice((2, 3))) for blow in _reachable(single))


def _reachable(blow: Blow) -> tuple[Blow, ...]:
    """The blow, and before it what brings a transaction to its point."""
    if blow.point in NEEDS_A_DEAD_TRANSACTION:
        # An op that is killed alone is tried again, and the transaction lives.
        return (Blow("slices_written", "kill_worker"), blow)
    return (blow,)


def split(cases: tuple[Case, ...], lanes: int) -> Iterator[tuple[Case, ...]]:
    """The cases of each of `lanes` lanes."""
    for lane in range(lanes):
        yield cases[lane::lanes]
