"""Measure upserts: our keyed table beside plain Spark's and beside our append table, on the same topic in the same run.

n orders, then rounds of n/5 changes of random orders in one transaction each, then a compaction, then 20 transactions of
n/100. Then the keyed tables are read as they are, compacted, and read again. All contenders publish one transaction before the next one's
records are produced; who begins rotates. At last our keyed table alone gets 20 more, is read after each, and compacted when that is due.

Plain Spark's process reads both tables, as a user's session would: a process that runs transactions optimizes its code late.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import topics
from benchmarks.contenders import Assignment, Outcome, Task
from benchmarks.contenders.process import Worker
from benchmarks.loads import Load
from benchmarks.measure import Meter
from benchmarks.pipelines import compaction_is_due, write_pipeline
from benchmarks.results import APPENDS, SPARK_UPSERTS, UPSERTS
from benchmarks.run import Settings, preamble, require_disk, turned, write_results
from benchmarks.upsert_load import BUCKETS, KEY, SMALL_TRANSACTIONS, UpsertLoad, last_times
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, Home
from hudi_ingest.local.broker import BrokerSettings, start_broker
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.local.progress import Report
from hudi_ingest.pipeline.file import load_pipeline

CONTENDERS = (UPSERTS, APPENDS, SPARK_UPSERTS)
_KEYED = (UPSERTS, SPARK_UPSERTS)
_TABLE = {UPSERTS: {"mode": "upsert", "key": [KEY], "buckets": BUCKETS}}
_FIRST_RECORDS = 10
_READS = 3
_SECONDS = 1200.0


@dataclass
class _Timed:
    """One contender's rounds: seconds by phase, and the CPU seconds of its changes."""

    base: float = 0.0
    changes: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    small: list[float] = field(default_factory=list)
    read_logs: list[float] = field(default_factory=list)
    compaction: float = 0.0
    read_compacted: list[float] = field(default_factory=list)
    read_compacted_cpu: list[float] = field(default_factory=list)
    read_due: list[float] = field(default_factory=list)
    """After each transaction, with compactions when due."""
    read_due_cpu: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Medians; the first round of changes is the cold one."""
        warm = self.changes[1:]
        return {
            "base_seconds": round(self.base, 3),
            "changes_cold_seconds": round(self.changes[0], 3),
            "changes_seconds": round(median(warm), 3),
            "changes_cpu_seconds": round(median(self.cpu[1:]), 3),
            "changes_seconds_of_each_round": [round(seconds, 3) for seconds in warm],
            "small_seconds": round(median(self.small), 3),
            "small_seconds_of_each": [round(seconds, 3) for seconds in self.small],
            **({"compaction_seconds": round(self.compaction, 3)} if self.compaction else {}),
            **({"read_logs_seconds": round(median(self.read_logs), 3)} if self.read_logs else {}),
            **({"read_compacted_seconds": round(median(self.read_compacted), 3)} if self.read_compacted else {}),
            **(
                {
                    "read_compacted_cpu_seconds": round(median(self.read_compacted_cpu), 3),
                    "read_due_seconds": round(mean(self.read_due), 3),
                    "read_due_seconds_of_each": [round(seconds, 3) for seconds in self.read_due],
                    "read_due_cpu_seconds": round(mean(self.read_due_cpu), 3),
                    "read_due_cpu_seconds_of_each": [round(seconds, 3) for seconds in self.read_due_cpu],
                }
                if self.read_due
                else {}
            ),
        }


def run_upserts(home: Home, load: UpsertLoad, settings: Settings, output: Path, report: Report) -> dict[str, Any]:
    """Measure the load; the results are in `output`, too. `home` is emptied first, and removed when all went well.

    Raises EnvironmentProblem, also when a keyed table holds anything but each order's last change.
    """
    require_disk(home.root, [replace(load.base, counts=tuple(6 * count for count in load.base.counts))])
    shutil.rmtree(home.root, ignore_errors=True)
    home.pipelines.mkdir(parents=True)
    with _started_arena(home, load, settings, report) as arena:
        arena.publish(replace(load.base, counts=tuple(min(_FIRST_RECORDS, count) for count in load.base.counts)))
        for contender, outcome in arena.publish(load.base):
            arena.timed[contender].base = outcome.seconds
        for version in range(1, settings.rounds + 2):
            report(f"{load.name}: {'cold changes' if version == 1 else f'changes, round {version - 1}'}")
            for contender, outcome in arena.publish(load.changes(version)):
                arena.timed[contender].changes.append(outcome.seconds)
                arena.timed[contender].cpu.append(arena.cpu_seconds[contender])
        for contender in _KEYED:
            seconds = arena.run(contender, Task.COMPACT, load.base.record_bytes).seconds
            arena.timed[contender].compaction = seconds
            report(f"{load.name}: {contender} compacted in {seconds:.1f} s")
        version = settings.rounds + 2
        for small in range(version, version + SMALL_TRANSACTIONS):
            for contender, outcome in arena.publish(load.small(small)):
                arena.timed[contender].small.append(outcome.seconds)
        _read(arena)
        report(f"{load.name}: small transactions with compactions when due")
        version += SMALL_TRANSACTIONS
        for small in range(version, version + SMALL_TRANSACTIONS):
            arena.publish(load.small(small), (UPSERTS,))
            _read_between_compactions(arena)
        figures = {contender: timed.figures() for contender, timed in arena.timed.items()}
    results = {**preamble(settings, settings.engine), "load": load.name, **figures, "ratios": upsert_ratios(figures)}
    write_results(output, results)
    shutil.rmtree(home.root, ignore_errors=True)
    return results


def upsert_ratios(figures: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return how often as fast as plain Spark we are, and how much slower than our appends and than a compacted table.

    Plain Spark's table pays for its log files, too: beside ours that says what of the price is ours, and what Hudi's.
    """
    ours, sparks = figures[UPSERTS], figures[SPARK_UPSERTS]
    return {
        "spark_to_upserts_changes": round(sparks["changes_seconds"] / ours["changes_seconds"], 2),
        "spark_to_upserts_small": round(sparks["small_seconds"] / ours["small_seconds"], 2),
        "upserts_to_appends_changes": round(ours["changes_seconds"] / figures[APPENDS]["changes_seconds"], 2),
        "upserts_to_appends_small": round(ours["small_seconds"] / figures[APPENDS]["small_seconds"], 2),
        "read_logs_to_compacted": round(ours["read_logs_seconds"] / ours["read_compacted_seconds"], 2),
        "spark_read_logs_to_compacted": round(sparks["read_logs_seconds"] / sparks["read_compacted_seconds"], 2),
        "upserts_to_spark_read_logs": round(ours["read_logs_seconds"] / sparks["read_logs_seconds"], 2),
        "read_due_to_compacted": round(ours["read_due_seconds"] / ours["read_compacted_seconds"], 2),
        "read_due_worst_to_compacted": round(max(ours["read_due_seconds_of_each"]) / ours["read_compacted_seconds"], 2),
        "read_due_to_compacted_cpu": round(ours["read_due_cpu_seconds"] / ours["read_compacted_cpu_seconds"], 2),
    }


@dataclass
class _Arena:
    """A broker, and a process for each contender."""

    load: UpsertLoad
    home: Home
    bootstrap_servers: str
    workers: dict[str, Worker]
    report: Report
    timed: dict[str, _Timed]
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    published: list[Load] = field(default_factory=list)
    last_times: dict[str, int] = field(default_factory=dict)
    """What a keyed table holds after the first `counted` transactions."""
    counted: int = 0

    def publish(self, transaction: Load, contenders: Sequence[str] = CONTENDERS) -> list[tuple[str, Outcome]]:
        """Produce the records and let each contender publish them. Raises EnvironmentProblem unless all of them were."""
        produced = topics.append(transaction, self.bootstrap_servers, self.report)
        outcomes = []
        for contender in turned([*contenders], len(self.published)):
            outcome = self.run(contender, Task.WRITE, produced.value_bytes // produced.records)
            if outcome.rows != produced.records:
                raise EnvironmentProblem(
                    f"{contender} published {outcome.rows:,} of {produced.records:,} records of {self.load.name}; see its log."
                )
            self.report(
                f"{transaction.name}: {contender} published {outcome.rows:,} records in {outcome.seconds:.2f} s"
            )
            outcomes.append((contender, outcome))
        self.published.append(transaction)
        return outcomes

    def run(self, contender: str, task: Task, record_bytes: int) -> Outcome:
        """Let a contender do a task; its CPU seconds are then in `cpu_seconds`."""
        folder, file = self.home.root / "rounds" / contender, self.file(contender)
        worker = self.workers[SPARK_UPSERTS if task is Task.READ else contender]
        with Meter({contender: (worker.pid,)}) as meter:
            outcome = worker.run(Assignment(str(file), str(folder), record_bytes, task=task), _SECONDS)
        self.cpu_seconds[contender] = meter.usage(contender, outcome.began, outcome.ended).cpu_seconds
        return outcome

    def read(self, contender: str) -> Outcome:
        """Raises EnvironmentProblem unless each order's last change is what is read."""
        outcome = self.run(contender, Task.READ, self.load.base.record_bytes)
        for transaction in self.published[self.counted :]:
            self.last_times |= last_times([transaction])
        self.counted = len(self.published)
        totals = len(self.last_times), sum(self.last_times.values())
        if (outcome.rows, outcome.checksum) != totals:
            raise EnvironmentProblem(
                f"the table of {contender} has {outcome.rows:,} rows with checksum {outcome.checksum}, not "
                f"{totals[0]:,} with {totals[1]}. The speed of a wrong result means nothing."
            )
        return outcome

    def file(self, contender: str) -> Path:
        folder = self.home.root / "rounds" / contender
        load = replace(self.load.base, table=_TABLE.get(contender, {}))
        return write_pipeline(folder, f"{load.pipeline}_{contender}", load, self.bootstrap_servers, folder / "table")


def _read(arena: _Arena) -> None:
    """Time reads before and after a compaction."""
    for contender in _KEYED:
        timed = arena.timed[contender]
        timed.read_logs.extend(arena.read(contender).seconds for _ in range(_READS))
        arena.run(contender, Task.COMPACT, arena.load.base.record_bytes)
        for _ in range(_READS):
            timed.read_compacted.append(arena.read(contender).seconds)
            timed.read_compacted_cpu.append(arena.cpu_seconds[contender])
        arena.report(
            f"{arena.load.name}: {contender} reads in {median(timed.read_logs):.2f} s, "
            f"compacted in {median(timed.read_compacted):.2f} s"
        )


def _read_between_compactions(arena: _Arena) -> None:
    """Time a read of our table, then compact it if that is due, as the services' schedule would."""
    timed = arena.timed[UPSERTS]
    timed.read_due.append(arena.read(UPSERTS).seconds)
    timed.read_due_cpu.append(arena.cpu_seconds[UPSERTS])
    if compaction_is_due(load_pipeline(arena.file(UPSERTS))):
        arena.run(UPSERTS, Task.COMPACT, arena.load.base.record_bytes)


@contextmanager
def _started_arena(home: Home, load: UpsertLoad, settings: Settings, report: Report) -> Iterator[_Arena]:
    broker = BrokerSettings(home.kafka, free_port(), free_port())
    with ExitStack() as running:
        running.callback(stop, [start_broker(broker, report)])
        topics.create(load.base, broker.bootstrap)
        workers: dict[str, Worker] = {}
        for name in CONTENDERS:
            root = home.root / name
            root.mkdir()
            environment = {HOME_VARIABLE: str(root), LEDGER_VARIABLE: f"sqlite:///{root / 'ledger.db'}"}
            workers[name] = Worker(name, settings.engine, home.logs / f"{name}.log", environment)
            running.callback(workers[name].stop)
        for worker in workers.values():
            worker.await_ready()
        yield _Arena(load, home, broker.bootstrap, workers, report, {name: _Timed() for name in CONTENDERS})
