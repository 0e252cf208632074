"""`make soak`: steady records, the sensor running, random faults from the seed; bounded in time.

Watches the lag, the memory of every process, and a reader; ends on one line and exits 1 on any anomaly.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hudi_ingest.local.processes import is_marked
from hudi_ingest.local.stack import Stack
from hudi_ingest_tests.chaos import oracle
from hudi_ingest_tests.chaos.cases import Blow, Case
from hudi_ingest_tests.chaos.lane import Lane
from hudi_ingest_tests.chaos.platform import LocalPlatform, variables
from hudi_ingest_tests.chaos.records import PARTITIONS
from hudi_ingest_tests.support.waiting import NotInTime

PER_SECOND = 100
"""Records a second and partition."""
CALM_SECONDS = (20.0, 45.0)
"""Between two faults, at least and at most."""
SAMPLE_SECONDS = 5.0
LAG_SECONDS = 240
"""A lag of more than what is produced in this time is an anomaly."""
FAULTS = ("kill", "kill_worker", "kill_engine", "kill_daemon", "kill_broker", "raise")
POINTS = ("instant_begun", "attempt_started", "rows_written", "slices_written", "commit_leased", "commit_landed")
GROWTH = 1.25
SETTLED_SECONDS = 300
"""Memory is compared from here on in a process's life: before, it loads what it needs."""


@dataclass(frozen=True)
class Sample:
    """Resident memory of one process at one age, both in their units: bytes and seconds."""

    age: float
    resident: int


class Watch:
    """Samples the lag and the memory of all processes that belong to the lane's stack."""

    def __init__(self, lane: Lane) -> None:
        self.most_lag = 0
        self.memory: dict[tuple[str, int], list[Sample]] = defaultdict(list)
        self._lane = lane
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            seen = oracle.count(self._lane.stored)
            if seen >= 0:
                self.most_lag = max(self.most_lag, self._lane.produced_count - seen)
            for process in self._processes():
                with suppress(psutil.Error):
                    sample = Sample(time.time() - process.create_time(), process.memory_info().rss)
                    self.memory[_kind(process), process.pid].append(sample)

    def _processes(self) -> list[psutil.Process]:
        stack = Stack.read(self._lane.home)
        marks = {each.mark for each in stack.processes} if stack else set()
        return [process for process in psutil.process_iter() if is_marked(process, marks)]

    def growing(self) -> list[str]:
        """Processes whose memory went on growing after they had settled. A JVM is bounded by its heap instead."""
        found = []
        for (kind, pid), samples in self.memory.items():
            settled = [each.resident for each in samples if each.age > SETTLED_SECONDS]
            third = len(settled) // 3
            if kind.startswith("java") or third < 10:
                continue
            before, after = statistics.median(settled[:third]), statistics.median(settled[-third:])
            if after > before * GROWTH:
                found.append(f"{kind} (pid {pid}): {before / 1e6:.0f} MB, later {after / 1e6:.0f} MB")
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    options = parser.parse_args()
    _say(f"seed={options.seed} minutes={options.minutes:g} records a second={PER_SECOND * PARTITIONS}")
    dice = random.Random(options.seed)
    root = Path(tempfile.mkdtemp(prefix="hudi-ingest-soak-"))
    anomalies: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    with (
        variables(root / "faults"),
        Lane(LocalPlatform(root, None, None), {0: Case(0, ())}, options.seed, _say) as lane,
    ):
        lane.next_table()
        stopping = threading.Event()
        producer = threading.Thread(target=_keep_producing, args=(lane, stopping), name="producer", daemon=True)
        end = time.monotonic() + options.minutes * 60
        with Watch(lane) as watch, oracle.Reader(lane.stored, pause_seconds=2.0) as reader:
            producer.start()
            while time.monotonic() < end:
                blow = Blow(dice.choice(POINTS), dice.choice(FAULTS))
                reached = lane.strike(blow, [])
                struck[blow.fault] += reached
                behind = lane.produced_count - max(0, oracle.count(lane.stored))
                _say(f"{blow}{'' if reached else ' (not reached)'}: {behind:,} records wait")
                stopping.wait(min(dice.uniform(*CALM_SECONDS), max(0.0, end - time.monotonic())))
            stopping.set()
            producer.join(120)
            try:
                lane.await_all_committed()
            except NotInTime as error:
                anomalies["stuck"] += 1
                _say(str(error))
        anomalies += lane.finish_table()
        anomalies += reader.anomalies
        anomalies["lag"] += watch.most_lag > LAG_SECONDS * PER_SECOND * PARTITIONS
        growing = watch.growing()
        anomalies["memory"] += len(growing)
        for line in growing:
            _say(f"memory grows: {line}")
        _tell_memory(watch)
        _say(f"faults: {dict(struck)}; a reader looked {reader.polls} times; by name: {dict(+anomalies) or 'none'}")
        _say(
            f"minutes={options.minutes:g} records={lane.produced_count} faults={struck.total()} "
            f"most_lag={watch.most_lag} anomalies={anomalies.total()}"
        )
    # Not before the stack is down: its processes are known by a file in there.
    shutil.rmtree(root, ignore_errors=True)
    return 1 if anomalies.total() or not struck.total() else 0


def _keep_producing(lane: Lane, stopping: threading.Event) -> None:
    while not stopping.wait(1.0):
        lane.produce(PER_SECOND)


def _tell_memory(watch: Watch) -> None:
    most: dict[str, list[int]] = defaultdict(list)
    for (kind, _), samples in watch.memory.items():
        most[kind].append(max(each.resident for each in samples))
    for kind, found in sorted(most.items()):
        _say(f"memory: {kind}: {len(found)} processes, at most {max(found) / 1e6:.0f} MB")


def _kind(process: psutil.Process) -> str:
    words = process.cmdline()
    if "java" in words[0]:
        return "java broker" if any("kafka.Kafka" in each for each in words) else "java Spark"
    for kind in (
        "grpc",
        "embedded.daemon",
        "embedded.webserver",
        "forkserver",
        "spawn_main",
        "pyspark",
        "engine",
    ):
        if any(kind in each for each in words):
            return kind
    return "other"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
