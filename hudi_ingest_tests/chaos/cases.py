"""Which faults strike where, and beside which work: the whole matrix, and random combinations beyond it. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from hudi_ingest.faults import POINTS

T = TypeVar("T")

AT_EVERY_POINT = ("kill", "kill_worker", "kill_engine", "zombie")
"""SIGKILL of the process that is there, of the run's worker, of the Spark engine; and the process stopped until a replacement
has committed, then let go on."""

ENVIRONMENT = (
    "raise",
    "kill_daemon",
    "kill_broker",
    "kill_code_child",
    "full",
    "disk_full",
    "cut_ledger",
    "cut_properties",
    "cut_power",
)
"""An error that nobody expects, at a few points: test_faults.py has it at each, and the simulation in every order; SIGKILL of Dagster's
daemon, of the broker (restarted on its log), of the process that serves the code location's definitions;
one write that finds no space; a disk that is full until a run has failed on it; every connection to the ledger's database cut;
the table's hoodie.properties left empty beside its backup, as a crash inside Hudi's update of it leaves them;
every process killed and the tables' disk left with what was written through to it."""

NOT_IN_THE_SLICE = ("full", "cut_properties", "cut_power")
"""What other tests of each change have: a disk that is full for longer, in the slice itself; emptied properties and power cuts on real
tables, in test_transactions.py; and power cuts at every step, in the simulation."""

LOCAL, CLUSTER = STACKS = ("local", "cluster")
"""What a stack stands on; see platform.py."""

OF_THE_CLUSTER = (
    "kill_executor",
    "kill_spark_worker",
    "s3_busy",
    "s3_hangs",
    "s3_slow",
    "s3_lost_puts",
    "restart_postgres",
)
"""SIGKILL of a Spark executor; of a Spark worker with all that is on its host, which comes back after a while; S3 answers 503,
does not answer at all, or answers late, for a while; it carries PUTs out whose answers are lost; PostgreSQL, which has ledger and
Dagster, is killed and comes back."""

IN_THE_SENSOR = {"tick_planned": ("kill", "kill_daemon")}
"""The sensor runs in no run, so there is no worker to kill and nobody to replace it while it is stopped."""

_ENVIRONMENT_POINTS = {
    "raise": ("tick_planned", "begin_cleared", "rows_written", "slices_written", "commit_landed", "ledger_told"),
    "kill_daemon": ("instant_recorded", "rows_written", "commit_landed"),
    "kill_broker": ("instant_recorded", "attempt_started", "commit_landed"),
    "kill_code_child": ("instant_recorded", "commit_landed"),
    "full": ("epoch_advanced", "marker_written", "file_opened", "rows_written", "file_ready"),
    "disk_full": ("ledger_opened", "attempt_started", "commit_checked"),
    "cut_ledger": ("begin_cleared", "attempt_started", "commit_checked", "commit_landed"),
    "cut_properties": ("tick_planned", "begin_cleared", "instant_recorded", "commit_checked", "commit_landed"),
    "cut_power": ("instant_recorded", "file_closed", "commit_landed", "ledger_told"),
}
_CLUSTER_POINTS = {
    "kill_executor": ("attempt_started", "marker_written", "rows_written", "file_closed", "commit_leased"),
    "kill_spark_worker": ("instant_recorded", "rows_written", "task_done", "commit_leased"),
    "s3_busy": ("tick_planned", "begin_cleared", "instant_requested", "file_opened", "commit_leased", "commit_landed"),
    "s3_hangs": ("begin_cleared", "instant_inflight", "rows_written", "commit_checked", "commit_leased"),
    "s3_slow": ("begin_cleared", "file_ready", "commit_leased"),
    "s3_lost_puts": (
        "begin_cleared",
        "epoch_advanced",
        "instant_requested",
        "rows_written",
        "commit_locked",
        "commit_leased",
    ),
    "restart_postgres": (
        "tick_planned",
        "begin_cleared",
        "ledger_opened",
        "attempt_started",
        "slices_written",
        "commit_checked",
        "commit_leased",
        "commit_landed",
        "group_told",
    ),
}
NEEDS_A_DEAD_TRANSACTION = ("abort_retired", "abort_rolled_back")

MERGING = "merge_begun"
"""Seen from outside: services have a clustering, or a keyed table's compaction, under way, which is on the table's timeline."""

WORK = ("services", "backfill", "replay", "retry", "accept_loss")
"""Commands that are at work while the blow falls; of all but the first it falls on their own transactions."""

BIG_FILES = "big files"
"""No command: records come that are so large that base files are multipart uploads."""

_WORK_BLOWS = {
    "services": (
        (MERGING, "kill_command"),
        (MERGING, "kill_engine"),
        (MERGING, "cut_power"),
        ("slices_written", "kill_worker"),
        ("commit_leased", "zombie"),
        ("commit_landed", "kill"),
    ),
    "backfill": (
        ("instant_inflight", "kill"),
        ("rows_written", "kill_engine"),
        ("commit_checked", "raise"),
        ("commit_leased", "kill"),
        ("commit_landed", "kill"),
    ),
    "replay": (
        ("instant_inflight", "kill"),
        ("file_closed", "kill_engine"),
        ("commit_checked", "raise"),
        ("commit_leased", "kill"),
        ("commit_landed", "kill"),
    ),
    "accept_loss": (
        ("begin_cleared", "kill"),
        ("instant_inflight", "raise"),
        ("instant_recorded", "kill"),
        ("file_opened", "full"),
        ("rows_written", "kill_engine"),
        ("commit_checked", "raise"),
        ("commit_leased", "kill"),
        ("commit_landed", "kill"),
        ("commit_landed", "cut_ledger"),
        ("group_told", "raise"),
    ),
    "retry": (("slices_written", "kill"), ("letters_listed", "kill_engine"), ("commit_landed", "kill")),
}
_CLUSTER_WORK_BLOWS = {
    BIG_FILES: (
        ("rows_written", "kill_worker"),
        ("file_ready", "kill_executor"),
        ("file_ready", "zombie"),
        ("rows_written", "s3_hangs"),
        ("rows_written", "s3_lost_puts"),
        ("file_closed", "kill_engine"),
    ),
}


_KEYED_WORK_BLOWS = {
    "services": (
        (MERGING, "kill_command"),
        (MERGING, "kill_engine"),
        (MERGING, "cut_power"),
        ("slices_written", "kill_worker"),
        ("file_closed", "kill"),
        ("commit_leased", "zombie"),
        ("commit_landed", "kill"),
    ),
    "replay": _WORK_BLOWS["replay"],
    "accept_loss": (("rows_written", "kill_engine"), ("commit_landed", "kill")),
}


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault at one point."""

    point: str
    fault: str

    def __str__(self) -> str:
        return f"{self.fault} at {self.point}"


@dataclass(frozen=True, slots=True)
class Case:
    """Blows that fall one after another while records are produced, and `work` is done."""

    number: int
    blows: tuple[Blow, ...]
    work: str = ""
    keyed: bool = False
    """Whether the table is a keyed one."""

    @property
    def mirrors(self) -> bool:
        """Whether the table is a mirror, whose one Kafka partition has no other that could go on without it."""
        # Lanes take cases by turns, of which there may be two.
        return self.keyed and self.number // 2 % 2 == 1 and self.work != "accept_loss"

    def __str__(self) -> str:
        beside = f" beside {self.work}" if self.work else ""
        table = ", keyed" * self.keyed + ", mirror" * self.mirrors
        return f"case {self.number}{table}: {', then '.join(map(str, self.blows))}{beside}"


def matrix(on: str = LOCAL) -> tuple[tuple[Blow, ...], ...]:
    """Every fault point with every fault that can strike there."""
    found = [_reachable(Blow(point, fault)) for point in POINTS for fault in IN_THE_SENSOR.get(point, AT_EVERY_POINT)]
    places = _ENVIRONMENT_POINTS | (_CLUSTER_POINTS if on == CLUSTER else {})
    found += [_reachable(Blow(point, fault)) for fault, points in places.items() for point in points]
    return tuple(found)


def work_matrix(on: str = LOCAL) -> tuple[tuple[str, Blow], ...]:
    """Every kind of work with every blow that falls beside it."""
    return tuple((work, Blow(*blow)) for work, blows in _work_blows(on).items() for blow in blows)


def _work_blows(on: str) -> Mapping[str, tuple[tuple[str, str], ...]]:
    return _WORK_BLOWS | (_CLUSTER_WORK_BLOWS if on == CLUSTER else {})


def choose(count: int, seed: int, on: str = LOCAL) -> tuple[Case, ...]:
    """`count` cases: the matrices, or a part of them, then random combinations of two or three blows.

    The order is random, but takes turns: few cases, too, have every fault and every kind of work.
    """
    dice = random.Random(seed)
    beside = [(blows, "") for blows in matrix(on)] + [((blow,), work) for work, blow in work_matrix(on)]
    dice.shuffle(beside)
    beside = _taking_turns(beside, lambda found: found[1] or found[0][-1].fault)
    singles = [blows[-1] for blows in matrix(on)]
    beside += [(_combination(dice, singles), "") for _ in range(count - len(beside))]
    return tuple(Case(number, blows, work) for number, (blows, work) in enumerate(beside[:count], start=1))


def choose_keyed(count: int, seed: int, first: int, on: str = LOCAL) -> tuple[Case, ...]:
    """`count` cases on keyed tables, numbered from `first`: all kinds of work under each of their blows, then single blows, so
    that each further one has a point or a fault that none before it had while there are such."""
    dice = random.Random(seed)
    beside = [((Blow(*blow),), work) for work, blows in _KEYED_WORK_BLOWS.items() for blow in blows]
    singles = [(blows, "") for blows in matrix(on)]
    dice.shuffle(singles)
    points, faults = set[str](), set[str]()
    fresh: list[tuple[tuple[Blow, ...], str]] = []
    others: list[tuple[tuple[Blow, ...], str]] = []
    for blows, work in singles:
        is_fresh = blows[-1].point not in points or blows[-1].fault not in faults
        (fresh if is_fresh else others).append((blows, work))
        points.add(blows[-1].point)
        faults.add(blows[-1].fault)
    return tuple(
        Case(number, blows, work, keyed=True)
        for number, (blows, work) in enumerate((beside + fresh + others)[:count], start=first)
    )


def slice_of_all(seed: int, on: str = LOCAL) -> tuple[Case, ...]:
    """A few cases in which every kind of fault, but those NOT_IN_THE_SLICE, falls once, and every kind of work is done under one. Half
    of them, every second one, are on keyed tables."""
    dice = random.Random(seed)
    faults = [*AT_EVERY_POINT, *ENVIRONMENT, *(OF_THE_CLUSTER if on == CLUSTER else ())]
    faults = [fault for fault in faults if fault not in NOT_IN_THE_SLICE]
    # Under each kind of work another fault, so that no further case is needed for it.
    kinds = _work_blows(on)
    ways = [
        ways
        for ways in itertools.product(*kinds.values())
        if len({fault for _, fault in ways} & set(faults)) == len(kinds)
    ]
    beside = [(Blow(*blow), work) for blow, work in zip(dice.choice(ways), kinds, strict=True)]
    single = [blows[0] for blows in matrix(on) if len(blows) == 1]
    rest = [fault for fault in faults if fault not in {blow.fault for blow, _ in beside}]
    beside += [(dice.choice([blow for blow in single if blow.fault == fault]), "") for fault in rest]
    fit = [found for found in beside if not found[1] or found in _keyed_work()][-((len(beside) + 1) // 2) :]
    others = [found for found in beside if found not in fit]
    turns = [found for turn in itertools.zip_longest(fit, others) for found in turn if found is not None]
    return tuple(Case(number, (blow,), work, (blow, work) in fit) for number, (blow, work) in enumerate(turns, start=1))


def _keyed_work() -> set[tuple[Blow, str]]:
    return {(Blow(*blow), work) for work, blows in _KEYED_WORK_BLOWS.items() for blow in blows}


def _taking_turns(found: list[T], kind: Callable[[T], str]) -> list[T]:
    """Those of each kind in their order, one of each kind after the other."""
    by_kind: dict[str, list[T]] = {}
    for one in found:
        by_kind.setdefault(kind(one), []).append(one)
    return [one for turn in itertools.zip_longest(*by_kind.values()) for one in turn if one is not None]


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


def never_reached(found: Iterable[tuple[str, bool]]) -> list[str]:
    """Cases that no try reached, of (case, reached) in the order of the tries."""
    reached: dict[str, bool] = {}
    for case, was_reached in found:
        reached[case] = reached.get(case, False) or was_reached
    return [case for case, was_reached in reached.items() if not was_reached]
