"""`python -m benchmarks.ledger URL`: many pipelines' transactions against one ledger, without tables, Kafka or Spark.

Each pipeline ticks, begins, writes and commits as the protocol does, from several processes. An error of the ledger ends a
transaction as it would end a run: the next one aborts it and takes its offsets again. At the end the ledger must hold each
sequence number exactly once as committed.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from statistics import median
from threading import Event, Thread
from typing import Annotated, Any
from uuid import uuid4

import psutil
import sqlalchemy as sa
import typer

from benchmarks.measure import ProcessTrees
from hudi_ingest.exceptions import LedgerUnreachable
from hudi_ingest.ledger import Ledger, Owner
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import BaseFile, CommitReceipt, SliceReport

_OPS = 4
_STEPS = ("tick", "begin", "write", "commit")
_LOOK_SECONDS = 0.05
_AGAIN_SECONDS = 0.1
_DEADLINE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Work:
    """What one process does: `transactions` of each pipeline, with a slice of each Kafka partition."""

    url: str
    pipelines: tuple[str, ...]
    transactions: int
    kafka_partitions: int


@dataclass(frozen=True, slots=True)
class Done:
    """`seconds`: of each tick, begin, write op and commit. `errors`: how often the ledger raised what, by its message."""

    seconds: Mapping[str, tuple[float, ...]]
    errors: Mapping[str, int]


class _Pipeline:
    def __init__(self, work: Work, name: str) -> None:
        self._work, self._name, self._table = work, name, f"/load/{name}"
        self._sequence = 1
        self.seconds: dict[str, list[float]] = {step: [] for step in _STEPS}
        self.errors: Counter[str] = Counter()

    def step(self) -> bool:
        """Run the next transaction, or fail; returns whether there are more."""
        try:
            self._tick()
            self._sequence = self._transaction(self._sequence) + 1
        except LedgerUnreachable as error:
            self.errors[str(error)] += 1
            time.sleep(_AGAIN_SECONDS)
        return self._sequence <= self._work.transactions

    def _transaction(self, sequence: int) -> int:
        """Run the transaction unless a commit of that sequence landed unnoticed; returns the newest committed sequence."""
        slices = tuple(Slice("load", number, sequence, sequence + 1) for number in range(self._work.kafka_partitions))
        plan = IngestPlan(self._name, f"{self._name}-{sequence:06d}-{uuid4().hex[:8]}", sequence, slices)
        with self._timed("begin") as ledger:
            newest = max(
                (row.sequence for row in ledger.transactions.history(self._name, 3) if row.state.value == "committed"),
                default=0,
            )
            if newest >= sequence:
                return newest
            self._begin(ledger, plan)
        reports: list[SliceReport] = []
        for group in filter(None, (slices[op::_OPS] for op in range(_OPS))):
            with self._timed("write") as ledger:
                attempts = ledger.attempts.start(plan.transaction_id, [slice_.source for slice_ in group])
                done = [_report(slice_, attempts[slice_.source]) for slice_ in group]
                ledger.attempts.finish(plan.transaction_id, done)
            reports += done
        with self._timed("commit") as ledger, ledger.table_lock(self._table, stale_seconds=60):
            ledger.transactions.find(plan.transaction_id)
            checkpoint = Checkpoint(sequence, plan.transaction_id, {slice_.source: slice_.end for slice_ in slices})
            ledger.transactions.mark_committed(CommitReceipt(plan, f"{sequence:017d}", checkpoint, tuple(reports)))
        return sequence

    def _begin(self, ledger: Ledger, plan: IngestPlan) -> None:
        with ledger.table_lock(self._table, stale_seconds=60):
            dead = ledger.transactions.open_in(self._table)
            if dead is not None:
                # Only this process runs this pipeline, so it is its own.
                ledger.transactions.mark_aborted(dead.transaction_id, "rolled back by the next begin")
            ledger.transactions.find(plan.transaction_id)
            deadline = datetime.now(timezone.utc) + _DEADLINE
            ledger.transactions.begin(plan, table=self._table, owner=Owner.this_process(), deadline=deadline)
            ledger.transactions.record_instant(plan.transaction_id, f"{plan.sequence:017d}")

    def _tick(self) -> None:
        with self._timed("tick") as ledger:
            ledger.requests.note_tick(self._name, datetime.now(timezone.utc))
            ledger.transactions.open_in(self._table)
            ledger.requests.active(self._name)

    @contextmanager
    def _timed(self, step: str) -> Iterator[Ledger]:
        began = time.monotonic()
        with Ledger.open(self._work.url) as ledger:
            yield ledger
        self.seconds[step].append(time.monotonic() - began)


def _report(slice_: Slice, attempt: int) -> SliceReport:
    path = f"dt=2026-01-01/{uuid4()}-0_0-0-0_20260101000000000.parquet"
    file = BaseFile("dt=2026-01-01", path[14:54], path, 1, 4096, slice_.start, slice_.start)
    return SliceReport(slice_, attempt, (file,), rows=1, value_bytes=190, seconds=0.1)


def drive(work: Work) -> Done:
    """Run the work: a transaction of each pipeline in turn."""
    pipelines = [_Pipeline(work, name) for name in work.pipelines]
    unfinished = pipelines
    while unfinished:
        unfinished = [pipeline for pipeline in unfinished if pipeline.step()]
    seconds = {step: tuple(value for pipeline in pipelines for value in pipeline.seconds[step]) for step in _STEPS}
    return Done(seconds, sum((pipeline.errors for pipeline in pipelines), Counter()))


def run_load(
    url: str,
    pipelines: int,
    transactions: int,
    kafka_partitions: int,
    processes: int,
    beside: Callable[[], None] | None = None,
) -> Done:
    """Spread the pipelines over processes and run `beside` meanwhile. Raises what the work raises."""
    Ledger.open(url).dispose()
    names = [f"load{number:03d}" for number in range(pipelines)]
    works = [Work(url, tuple(names[first::processes]), transactions, kafka_partitions) for first in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(drive, work) for work in works]
        if beside is not None:
            beside()
        parts = [each.result() for each in running]
    seconds = {step: tuple(value for part in parts for value in part.seconds[step]) for step in _STEPS}
    return Done(seconds, sum((Counter(part.errors) for part in parts), Counter()))


def wrong_rows(url: str, pipelines: int, transactions: int) -> list[str]:
    """Say what of the load's state was lost or doubled; nothing when the ledger is right."""
    problems = []
    with Ledger.open(url) as ledger:
        for name in (f"load{number:03d}" for number in range(pipelines)):
            rows = ledger.transactions.history(name, 100 * transactions)
            committed = sorted(row.sequence for row in rows if row.state.value == "committed")
            if committed != list(range(1, transactions + 1)):
                problems.append(f"{name}: committed sequences {committed}")
            if len({row.epoch for row in rows}) != len(rows):
                problems.append(f"{name}: an epoch was handed out twice")
            for row in rows:
                states = {attempt.state.value for attempt in ledger.attempts.of_transaction(row.transaction_id)}
                if row.state.value == "open" or (row.state.value == "committed" and states != {"done"}):
                    problems.append(f"{row.transaction_id}: {row.state.value}, its attempts {states}")
    return problems


class _Server:
    """What a PostgreSQL server of this machine counts."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with self._engine.connect() as connection:
            backend = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
            connection.execute(sa.text("CREATE EXTENSION IF NOT EXISTS pg_stat_statements"))
        self._trees = ProcessTrees((psutil.Process(backend).ppid(),))
        self._stop = Event()
        self.most_connections = 0
        self.waits = 0

    def counters(self) -> dict[str, float]:
        with self._engine.connect() as connection:
            row = connection.execute(
                sa.text(
                    "SELECT (SELECT sum(calls) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_%') AS statements, sessions AS connections, deadlocks,"
                    " (SELECT wal_bytes FROM pg_stat_wal) AS wal_bytes FROM pg_stat_database WHERE datname = current_database()"
                )
            ).one()
        return {**{name: float(value) for name, value in row._mapping.items()}, "cpu": self._trees.sample().cpu_seconds}

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _watch(self) -> None:
        statement = sa.text(
            "SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock') FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        while not self._stop.wait(_LOOK_SECONDS):
            with self._engine.connect() as connection:
                connections, waits = connection.execute(statement).one()
            self.most_connections, self.waits = max(self.most_connections, connections), self.waits + waits


def main(
    url: Annotated[
        str, typer.Argument(help="An empty database: postgresql+psycopg2://… with pg_stat_statements loaded.")
    ],
    pipelines: int = 20,
    transactions: Annotated[int, typer.Option(help="Of each pipeline.")] = 100,
    kafka_partitions: int = 4,
    processes: int = 20,
) -> None:
    """Measure what transactions cost a PostgreSQL server; exits with 1 if its state is wrong afterwards."""
    server = _Server(url)
    Ledger.open(url).dispose()
    before, began = server.counters(), time.monotonic()
    with server.watched():
        done = run_load(url, pipelines, transactions, kafka_partitions, processes)
    seconds, after = time.monotonic() - began, server.counters()
    count = pipelines * transactions
    result: dict[str, Any] = {
        "transactions": count,
        "transactions_per_second": round(count / seconds, 1),
        "each": {name: round((after[name] - before[name]) / count, 4) for name in before},
        "most_connections": server.most_connections,
        "sampled_lock_waits": server.waits,
        "milliseconds": {step: _shown(values) for step, values in done.seconds.items()},
        "errors": dict(done.errors),
        "wrong": wrong_rows(url, pipelines, transactions),
    }
    typer.echo(json.dumps(result, indent=2))
    raise typer.Exit(1 if result["wrong"] else 0)


def _shown(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(1000 * value for value in values)
    return {
        "median": round(median(ordered), 1),
        "p99": round(ordered[int(0.99 * len(ordered))], 1),
        "max": round(ordered[-1], 1),
    }


if __name__ == "__main__":
    typer.run(main)
