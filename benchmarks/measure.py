"""Measure CPU time and memory of process trees from outside, without the contender's help.

CPU: when a parent waits for a child, the child's time is added to the parent's `children` times. So summing own and
children's times over a tree's living processes misses no process that was waited for. A process whose parent ended first
counts with its last sample, at most one pause old. Memory: the sum of resident bytes; pages shared by forked processes
count once per process, so it is an upper bound.
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
_WORKER = "hudi_ingest.transaction.write.worker_daemon"
"""The argument that Spark's Python workers have."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources that a group of processes had used at a moment. `at` is in seconds since the epoch."""

    at: float
    cpu_seconds: float
    rss_bytes: int
    worker_rss_bytes: int
    """Resident bytes of Spark's Python workers alone."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a group used between two moments. `cpu_seconds` is the user and system time of all its processes."""

    cpu_seconds: float
    peak_rss_bytes: int
    peak_worker_rss_bytes: int


def usage_between(samples: Sequence[Sample], begin: float, end: float) -> Usage:
    """Return the CPU time from the last sample at or before `begin` to the first at or after `end`, and the peaks in between.

    Raises ValueError when there is no sample.
    """
    if not samples:
        raise ValueError("no sample was taken, so there is nothing to report")
    first = max((index for index, sample in enumerate(samples) if sample.at <= begin), default=0)
    last = min((index for index, sample in enumerate(samples) if sample.at >= end), default=len(samples) - 1)
    window = samples[first : max(first, last) + 1]
    return Usage(
        window[-1].cpu_seconds - window[0].cpu_seconds,
        max(sample.rss_bytes for sample in window),
        max(sample.worker_rss_bytes for sample in window),
    )


@dataclass(slots=True)
class ProcessTrees:
    """The processes `roots` (pids) and all their descendants, including those that outlive their parents."""

    roots: tuple[int, ...]
    _known: dict[psutil.Process, float] = field(default_factory=dict)
    """CPU seconds at the last sample, including children that were waited for."""
    _parents: dict[psutil.Process, int] = field(default_factory=dict)
    _workers: dict[psutil.Process, bool] = field(default_factory=dict)
    _lost: float = 0.0

    def sample(self) -> Sample:
        """Return CPU seconds since the processes began, and resident bytes now. Processes that have ended are not errors."""
        at = time.time()
        seen: dict[psutil.Process, float] = {}
        rss = of_workers = 0
        for process in self._members():
            try:
                with process.oneshot():
                    parent, seconds = process.ppid(), _cpu_seconds(process)
                    resident, is_worker = process.memory_info().rss, self._is_worker(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue  # it ended in between: incomplete figures are dropped
            seen[process], self._parents[process] = seconds, parent
            rss += resident
            of_workers += resident * is_worker
        alive_before = {process.pid for process in self._known}
        for process, seconds in self._known.items():
            # If its parent was alive, its time is in the parent's now, even if both have ended together.
            if process not in seen and self._parents[process] not in alive_before:
                self._lost += seconds
        self._known = seen
        return Sample(at, sum(seen.values()) + self._lost, rss, of_workers)

    def _is_worker(self, process: psutil.Process) -> bool:
        if process not in self._workers:
            self._workers[process] = is_python_worker(process)
        return self._workers[process]

    def _members(self) -> Iterable[psutil.Process]:
        """Find them by a single scan of all processes: asking each process for its children would scan every time."""
        below: dict[int, list[psutil.Process]] = {}
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                below.setdefault(process.ppid(), []).append(process)
        members: dict[psutil.Process, None] = {}
        waiting = [*_processes(self.roots), *self._known]
        while waiting:
            process = waiting.pop()
            # The pid of a process that has ended may have been reused by now.
            if process not in members and process.is_running():
                members[process] = None
                waiting += below.get(process.pid, ())
        return members


class Meter:
    """Samples named groups of processes every 200 ms in a thread, inside its `with` block."""

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
        """Return the usage between two times in seconds since the epoch, both within the meter's `with` block."""
        return usage_between(self._samples[group], begin, end)

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_SECONDS):
            self._take()

    def _take(self) -> None:
        for name, trees in self._trees.items():
            self._samples[name].append(trees.sample())


def is_python_worker(process: psutil.Process) -> bool:
    """Whether it is one of Spark's Python workers, or the daemon that forks them. Raises psutil.NoSuchProcess."""
    return _WORKER in process.cmdline()


def _processes(pids: Iterable[int]) -> Iterable[psutil.Process]:
    for pid in pids:
        try:
            yield psutil.Process(pid)
        except psutil.NoSuchProcess:
            continue


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    # On systems that do not report children's times, children that were waited for are missed.
    waited_for = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + waited_for)
