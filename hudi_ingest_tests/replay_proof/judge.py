"""What the reader's polls may have seen, and what the turns of live and range transactions may have been: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hudi_ingest_tests.replay_proof.poll import Poll, Run


@dataclass(frozen=True)
class Transaction:
    """A committed one. Times are seconds since the epoch; `slices` are partition → (start, end)."""

    name: str
    instant: str
    kind: str
    began: float
    ended: float
    slices: Mapping[int, tuple[int, int]]
    version: int | None = None
    """Of the converter, for a replay."""


@dataclass
class Verdict:
    """`findings` by their kind, with how often; `first` tells each kind's first one."""

    findings: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    polls: int = 0
    states: dict[tuple[int, ...], int] = field(default_factory=dict)
    """How many polls saw how many rows of the range of versions 1, 2, 3, in the order in which they were first seen."""

    def find(self, kind: str, text: str) -> None:
        self.findings[kind] += 1
        self.first.setdefault(kind, text)


def judge_polls(polls: Sequence[Poll], asked: Mapping[int, int], replays: Sequence[Transaction]) -> Verdict:
    """`asked` is the replayed range, partition → offset behind its last, from 0. `replays` are in the order of their commits.

    Each poll shows every offset from 0 to the partition's end once; a replay's rows all together, once and for ever; and
    other rows as the poll before has shown them.
    """
    verdict = Verdict()
    before: Poll | None = None
    rank = {each.instant: place for place, each in enumerate(replays, 1)}
    applied_before = 0
    for poll in polls:
        when = f"poll {verdict.polls} at {poll.at:.1f}"
        verdict.polls += 1
        if poll.error:
            verdict.find("unreadable", f"{when}: {poll.error}")
            continue
        if poll.foreign:
            verdict.find("foreign", f"{when}: {poll.foreign} rows have another record's content")
        for kind, text in (*_not_once(poll.runs), *_range_missing(poll.runs, asked)):
            verdict.find(kind, f"{when}: {text}")
        inside, outside = _split(poll.runs, asked)
        applied = 0
        for place, replay in enumerate(replays, 1):
            new, rows = _rows_since(inside, replay, rank, place)
            if 0 < new < rows:
                verdict.find("torn", f"{when}: {new} of {rows} rows of {replay.name} are new")
            applied += new == rows
        if applied < applied_before:
            verdict.find("undone", f"{when}: {applied_before} replays were visible before, now {applied}")
        for run in inside:
            place = rank.get(run.instant, 0)
            expected = replays[place - 1].version if place else 1
            if run.version != expected:
                verdict.find("wrong value", f"{when}: {run} should be of version {expected}")
        for run in outside:
            if run.version == 0:
                verdict.find("wrong value", f"{when}: {run} is of no version")
        if before is not None:
            for text in _changed(_split(before.runs, asked)[1], outside):
                verdict.find("live rows changed", f"{when}: {text}")
        counts: Counter[int] = Counter()
        for run in inside:
            counts[run.version] += run.end - run.start
        state = (counts[1], counts[2], counts[3])
        verdict.states[state] = verdict.states.get(state, 0) + 1
        before, applied_before = poll, applied
    return verdict


def _not_once(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    for left, right in pairwise(runs):
        if left.partition != right.partition:
            continue
        if right.start < left.end:
            yield "duplicate", f"partition {right.partition} offset {right.start} is there twice"
        elif right.start > left.end:
            yield "hole", f"partition {right.partition} has no row of offsets [{left.end},{right.start})"


def _range_missing(runs: Sequence[Run], asked: Mapping[int, int]) -> Iterator[tuple[str, str]]:
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for run in runs:
        starts.setdefault(run.partition, run.start)
        ends[run.partition] = run.end
    for partition, end in sorted(asked.items()):
        if starts.get(partition) != 0 or ends[partition] < end:
            yield (
                "hole",
                f"partition {partition} has rows of [{starts.get(partition)},{ends.get(partition)}), not of [0,{end})",
            )
    for partition in sorted(starts.keys() - asked.keys()):
        yield "foreign", f"nothing was produced to partition {partition}"


def _split(runs: Sequence[Run], asked: Mapping[int, int]) -> tuple[list[Run], list[Run]]:
    """Those of the range and those behind it; a run over its border is cut."""
    inside, outside = [], []
    for run in runs:
        border = asked.get(run.partition, 0)
        if run.start < border:
            inside.append(Run(run.partition, run.start, min(run.end, border), run.version, run.instant))
        if run.end > border:
            outside.append(Run(run.partition, max(run.start, border), run.end, run.version, run.instant))
    return inside, outside


def _rows_since(inside: Sequence[Run], replay: Transaction, rank: Mapping[str, int], place: int) -> tuple[int, int]:
    """How many rows of the replay's slices are of it or of one after it, and how many there are to be."""
    new = 0
    for run in inside:
        start, end = replay.slices.get(run.partition, (0, 0))
        if rank.get(run.instant, 0) >= place:
            new += max(0, min(run.end, end) - max(run.start, start))
    return new, sum(end - start for start, end in replay.slices.values())


def _changed(before: Sequence[Run], now: Sequence[Run]) -> Iterator[str]:
    there = set(now)
    for run in before:
        if run not in there:
            yield f"{run} was there before"


@dataclass(frozen=True)
class Turn:
    """The wait of one live transaction: from when it was due to its begin."""

    name: str
    waited: float
    overtaken: int
    """Range transactions that began meanwhile."""


def turns(transactions: Sequence[Transaction], interval: float) -> list[Turn]:
    """Of each live transaction but the first, if a range transaction ran between it and the live one before. Records wait all
    the time, so a live one is due at the latest when `interval` has passed since the one before began."""
    ordered = sorted(transactions, key=lambda each: each.began)
    live = [each for each in ordered if each.kind == "ingest"]
    found = []
    for last, following in pairwise(live):
        due = last.began + interval
        between = [each for each in ordered if each.kind != "ingest" and last.began < each.began < following.began]
        if between:
            overtaken = sum(1 for each in between if each.began > due)
            found.append(Turn(following.name, max(0.0, following.began - due), overtaken))
    return found
