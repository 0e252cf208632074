"""CPU time and memory of process trees, seen from outside: what a contender starts is measured without its help.

CPU: a process that its parent waits for leaves its time in the parent's `children` times, so the sum over a tree's living
processes of own and children's time loses nobody who was waited for. Those whose parent ended before them are counted with
what was last seen of them, at most one pause ago. Memory: resident bytes, summed; pages that forked processes share count
once for each, so it is an upper bound.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

import psutil

PAUSE_SECONDS = 0.2
_WORKER = "pyspark.daemon"


@dataclass(frozen=True, slots=True)
class Sample:
    """What one group of processes had used up to a moment. `at` is in seconds since the epoch."""

    at: float
    cpu_seconds: float
    rss_bytes: int
    worker_rss_bytes: int
    """Of Spark's Python workers alone."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group used between two moments. `cpu_seconds` is user and system time of all its processes."""

    cpu_seconds: float
    peak_rss_bytes: int
    peak_worker_rss_bytes: int


def usage_between(samples: Sequence[Sample], begin: float, end: float) -> Usage:
    """CPU from the last sample at or before `begin` to the first at or after `end`, and the peak in between.

    Raises ValueError when there is no sample.
    """
    if not samples:
        raise ValueError("no sample was taken, so there is nothing to tell")
    first = max((index for index, each in enumerate(samples) if each.at <= begin), default=0)
    last = min((index for index, each in enumerate(samples) if each.at >= end), default=len(samples) - 1)
    window = samples[first : max(first, last) + 1]
    return Usage(
        window[-1].cpu_seconds - window[0].cpu_seconds,
        max(each.rss_bytes for each in window),
        max(each.worker_rss_bytes for each in window),
    )


@dataclass(slots=True)
class ProcessTrees:
    """The processes `roots` (pids) and all that they start, those included that outlive their parents."""

    roots: tuple[int, ...]
    _known: dict[psutil.Process, float] = field(default_factory=dict)
    """CPU seconds last seen, waited-for children's included."""
    _parents: dict[psutil.Process, int] = field(default_factory=dict)
    _workers: dict[psutil.Process, bool] = field(default_factory=dict)
    _lost: float = 0.0

    def sample(self) -> Sample:
        """CPU seconds since the processes began, and resident bytes now. A process that is gone is not an error."""
        at = time.time()
        seen: dict[psutil.Process, float] = {}
        rss = of_workers = 0
        for process in self._members():
            try:
                with process.oneshot():
                    parent, seconds = process.ppid(), _cpu_seconds(process)
                    resident, is_worker = process.memory_info().rss, self._is_worker(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue  # it ended between two of these questions: what is not told whole is not told
            seen[process], self._parents[process] = seconds, parent
            rss += resident
            of_workers += resident * is_worker
        alive_before = {each.pid for each in self._known}
        for process, seconds in self._known.items():
            # One whose parent was alive is in the parent's times now; so is one that ended together with it.
            if process not in seen and self._parents[process] not in alive_before:
                self._lost += seconds
        self._known = seen
        return Sample(at, sum(seen.values()) + self._lost, rss, of_workers)

    def _is_worker(self, process: psutil.Process) -> bool:
        if process not in self._workers:
            self._workers[process] = _WORKER in process.cmdline()
        return self._workers[process]

    def _members(self) -> Iterable[psutil.Process]:
        """Found by one look at all processes: to ask each for its children would be such a look each time."""
        below: dict[int, list[psutil.Process]] = {}
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                below.setdefault(process.ppid(), []).append(process)
        found: dict[psutil.Process, None] = {}
        waiting = [*_processes(self.roots), *self._known]
        while waiting:
            process = waiting.pop()
            # The pid of one that has ended may be another's by now.
            if process not in found and process.is_running():
                found[process] = None
                waiting += below.get(process.pid, ())
        return found


class Meter:
    """Samples named groups of processes every 200 ms in a thread of its own, while it is entered."""

    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        self._trees = {name: ProcessTrees(tuple(pids)) for name, pids in groups.items()}
        self._samples: dict[str, list[Sample]] = {name: [] for name in groups}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)

    def __enter__(self) -> Meter:
        self._take()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._take()

    def usage(self, group: str, begin: float, end: float) -> Usage:
        """Between two times in seconds since the epoch; both must lie in the time that the meter was entered."""
        return usage_between(self._samples[group], begin, end)

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_SECONDS):
            self._take()

    def _take(self) -> None:
        for name, trees in self._trees.items():
            self._samples[name].append(trees.sample())


def _processes(pids: Iterable[int]) -> Iterable[psutil.Process]:
    for pid in pids:
        try:
            yield psutil.Process(pid)
        except psutil.NoSuchProcess:
            continue


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    # Where the system does not tell of children, those that are waited for are missed.
    waited_for = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + waited_for)
