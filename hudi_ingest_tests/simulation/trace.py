"""The rules that traces keep: the lines of a home's transactions.log, or of a simulation's programs, in the order of their writing.

The line that says that a step has begun is older than all that the step does, the one that says how it ended is younger. A process that
was killed has no second line, and one that was stopped has it late. So two things count: a step that began after another one's end
comes after it, and what contradicts itself in any order.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]
POWER_CUT = {"step": "power cut"}
"""What a test adds when it has damaged the newest commit, as a power cut does: it may be rolled back then."""
CHANGED_BY_HAND = {"step": "changed by hand"}
"""What a test adds when it has taken commits out of a table: the lines before say nothing of it any more."""
_CHANGES_EPOCH = ("begin", "rollback", "abort")


class Broken(Exception):
    """A line that contradicts those before it."""


@dataclass
class Begun:
    """A transaction that has begun. Moments are numbers of lines; None: never, as far as is known."""

    pipeline: str
    """A table may be taken over by another one, whose numbers begin anew; epochs are the table's."""
    transaction: str
    epoch: int
    instant: str
    sequence: int
    slices: Mapping[str, Sequence[int]]
    moment: int
    firm: bool
    """Whether nobody else was changing the epoch when this transaction took its own: on a disk, which compares nothing, one that has
    lost its lock may set the epoch back."""
    ends: dict[str, int]
    """Where Kafka partitions end once it is committed, as far as the trace says."""
    written: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By Kafka partition: the attempts that were reported."""
    published: bool = False
    committed: int | None = None
    rolled_back: int | None = None

    def __str__(self) -> str:
        return f"{self.transaction} (number {self.sequence}, epoch {self.epoch}, instant {self.instant})"


def read(log: Path) -> list[Line]:
    """Its lines so far; one that is being written does not count."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]] if log.exists() else []


def add(log: Path, line: Line) -> None:
    with log.open("a") as file:
        file.write(f"{json.dumps(line)}\n")


def judge(log: Path) -> None:
    """Raises AssertionError if the lines break a rule."""
    broken = violation(read(log))
    assert not broken, f"{log}: {broken}"


def violation(lines: Sequence[Line]) -> str:
    """What the first line that keeps no rule breaks, in words; "" if there is none."""
    calls = _calls(lines)
    tables: dict[str, _Table] = defaultdict(lambda: _Table(calls))
    for moment, line in enumerate(lines):
        try:
            if "table" in line:
                tables[line["table"]].take(moment, line)
            elif line == POWER_CUT:
                for table in tables.values():
                    table.power_cut = moment
            elif line == CHANGED_BY_HAND:
                tables.clear()
        except Broken as broken:
            return f"line {moment + 1}: {broken}"
    return ""


@dataclass(frozen=True)
class _Call:
    """`end`: when its process was killed, if that is known, or `start`."""

    start: int
    end: int
    line: Line


def _calls(lines: Sequence[Line]) -> dict[int, _Call]:
    """Of each line that ends one, and of those that have no such line."""
    open_calls: dict[tuple[object, ...], deque[int]] = defaultdict(deque)
    found: dict[int, _Call] = {}
    for moment, line in enumerate(lines):
        if line["step"] == "killed":
            for key, starts in open_calls.items():
                if key[0] == line["pid"]:
                    found |= {-start - 1: _Call(start, moment, lines[start]) for start in starts}
                    starts.clear()
        if "outcome" not in line:
            continue
        # A begin may find that its transaction's id is used, and take another one.
        key = (line["pid"], line["table"], line["step"], "" if line["step"] == "begin" else line["transaction"])
        if line["outcome"] == "started":
            open_calls[key].append(moment)
        else:
            # Of several in one process the oldest, which says the least.
            found[moment] = _Call(open_calls[key].popleft(), moment, line)
    return found


class _Table:
    def __init__(self, calls: Mapping[int, _Call]) -> None:
        self._calls = calls
        self._changes = [call for call in calls.values() if call.line["step"] in _CHANGES_EPOCH]
        self._begun: dict[str, Begun] = {}
        """By instant."""
        self._rolled_back: dict[str, int] = {}
        self.power_cut = -1

    def take(self, moment: int, line: Line) -> None:
        step, outcome = line["step"], line["outcome"]
        if outcome not in ("done", "published", "committed"):
            return
        since, begun = self._calls[moment].start, self._begun.get(line["instant"])
        if step == "begin":
            self._begin(moment, since, line)
        elif step == "rollback":
            if outcome == "done":
                self._roll_back(moment, line["instant"])
            elif begun is not None:
                self._commit(moment, begun)
        elif begun is None or (begun.transaction, begun.epoch) != (line["transaction"], line["epoch"]):
            raise Broken(
                f"P4: a {step} of {line['transaction']}, which has not begun as {line['instant']} in epoch {line['epoch']}"
            )
        elif step == "write":
            self._write(begun, since, line["attempts"])
        else:
            if outcome == "published":
                self._publish(begun, since)
            self._commit(moment, begun)

    def _begin(self, moment: int, since: int, line: Line) -> None:
        instant, after = line["instant"], self._begun.get(line["after"] or "")
        who = f"{line['transaction']} (number {line['sequence']}, epoch {line['epoch']}, instant {instant})"
        if instant in self._begun:
            raise Broken(f"P4: {who} has begun, and so has {self._begun[instant]}")
        if after is not None:
            if after.sequence != line["sequence"] - 1:
                raise Broken(f"P2: {who} follows {after}")
            self._commit(moment, after)
        ends = dict(after.ends) if after is not None else {}
        for source, restart in line["resets"].items():
            ends.pop(source, None)
            if restart is not None:
                ends[source] = restart
        if line["kind"] == "ingest":
            for source, (start, end) in line["slices"].items():
                if ends.get(source, start) != start:
                    raise Broken(f"P2: {who} reads {source} from {start}, and {ends[source]} is next after {after}")
                ends[source] = end
        for other in self._begun.values():
            if other.firm and other.moment < since and other.epoch >= line["epoch"]:
                raise Broken(f"P4: {who} has begun, and before it {other}")
        for other in self._of(line["pipeline"]):
            if other.committed is not None and other.committed < since and other.sequence >= line["sequence"]:
                if other.committed > self.power_cut:
                    raise Broken(f"P2: {who} has begun, and before it {other} was committed")
                self._lose(other)
        self._begun[instant] = Begun(
            pipeline=line["pipeline"],
            transaction=line["transaction"],
            epoch=line["epoch"],
            instant=instant,
            sequence=line["sequence"],
            slices=line["slices"],
            moment=moment,
            firm=self._is_firm(since, moment, line),
            ends=ends,
            rolled_back=self._rolled_back.get(instant),
        )

    def _is_firm(self, since: int, moment: int, line: Line) -> bool:
        return not any(
            call.start < moment
            and call.end > since
            and call.line["pid"] != line["pid"]
            and call.line["table"] == line["table"]
            for call in self._changes
        )

    def _of(self, pipeline: str) -> list[Begun]:
        return [begun for begun in self._begun.values() if begun.pipeline == pipeline]

    def _write(self, begun: Begun, since: int, attempts: Mapping[str, int]) -> None:
        self._require_current(begun, since, "written")
        if begun.rolled_back is not None and begun.rolled_back < since:
            raise Broken(f"P4: {begun} was written after it was rolled back")
        for source, attempt in attempts.items():
            if source not in begun.slices:
                raise Broken(f"P3: {begun} has written {source}, which is not in its plan")
            if attempt in begun.written[source]:
                raise Broken(f"P3: {begun} has written {source} twice in attempt {attempt}")
            begun.written[source].add(attempt)

    def _publish(self, begun: Begun, since: int) -> None:
        self._require_current(begun, since, "published")
        if begun.published:
            raise Broken(f"P2: {begun} was published twice")
        begun.published = True

    def _commit(self, moment: int, begun: Begun) -> None:
        """It is in the table, whoever has found that."""
        if begun.committed is not None:
            return
        if begun.rolled_back is not None:
            raise Broken(f"P4: {begun} is committed, and was rolled back")
        for source, (start, end) in begun.slices.items():
            if start < end and not begun.written[source]:
                raise Broken(f"P3: {begun} is committed, and {source} was not written")
        for other in self._of(begun.pipeline):
            if other.committed is not None and begun.sequence == other.sequence:
                raise Broken(f"P2: {begun} is committed, and so is {other}")
        begun.committed = moment

    def _roll_back(self, moment: int, instant: str) -> None:
        self._rolled_back[instant] = moment
        begun = self._begun.get(instant)
        if begun is None:
            return
        begun.rolled_back = moment
        if begun.committed is None:
            return
        if begun.committed > self.power_cut:
            raise Broken(f"P4: {begun} was rolled back, and is committed")
        for later in self._of(begun.pipeline):
            if later.committed is not None and later.sequence > begun.sequence:
                raise Broken(f"P1: {begun} was rolled back, and {later} is committed after it")
        self._lose(begun)

    def _lose(self, begun: Begun) -> None:
        """The power cut took its commit."""
        begun.committed, begun.published = None, False

    def _require_current(self, begun: Begun, since: int, what: str) -> None:
        for later in self._begun.values():
            if later.firm and later.epoch > begun.epoch and later.moment < since:
                raise Broken(f"P4: {begun} was {what} after {later} had begun")
