"""The CDC demo: hudi-ingest mirrors a PostgreSQL table that keeps changing, through Debezium and Kafka, while parts of the way are
killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeVar

import sqlalchemy as sa

from hudi_ingest.exceptions import EnvironmentProblem, KafkaUnreachable, TableUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.read_amplification import COMPACT, read_amplification, why_due
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.tables import AttemptState
from hudi_ingest.local.cdc_stack import (
    NAME,
    CdcStack,
    acknowledged_position,
    fetch_jars,
    require_postgresql,
    running_cdc,
    running_database,
)
from hudi_ingest.local.cluster_stack import emptied
from hudi_ingest.local.processes import require_running, wait_until
from hudi_ingest.local.progress import Report, elapsed, one_interrupt
from hudi_ingest.local.samples import KEY, NEW_COLUMN, SCHEMA, TABLE, CustomerWriter
from hudi_ingest.local.verification import RowComparison, column_names, compare_rows, read_with_hudi_rs, read_with_spark
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.health.status import PipelineStatus, pipeline_status
from hudi_ingest.transaction.plan.planning import observe

T = TypeVar("T")

FIRST_ROWS = 2_000
PER_SECOND = 150
CATCH_UP_SECONDS = 300
_SEED = 19
_REPORT_SECONDS = 10.0
_STATUS_SECONDS = 1.0
_HISTORY = 1_000


@dataclass(frozen=True, slots=True)
class CdcDemoResult:
    """The outcome. `changes`: how many of each kind PostgreSQL has committed; `killed`: in words, in order; `repeated`: transactions
    that were rolled back; `comparisons`: by who read the Hudi table."""

    changes: dict[str, int]
    records: int
    commits: int
    compactions: int
    repeated: int
    killed: tuple[str, ...]
    comparisons: dict[str, RowComparison]
    seconds: float

    @property
    def equal(self) -> bool:
        return all(comparison.equal for comparison in self.comparisons.values())

    def in_words(self) -> list[str]:
        kinds = ", ".join(f"{count:,} × {kind}" for kind, count in sorted(self.changes.items()))
        lines = [
            f"changes in PostgreSQL: {kinds}",
            f"{self.records:,} records in {self.commits} commits, compacted {self.compactions} times; transactions rolled back: "
            f"{self.repeated}",
            *(f"killed: {killed}" for killed in self.killed),
        ]
        for reader, rows in self.comparisons.items():
            lines.append(
                f"{reader}: {rows.rows:,} rows, {rows.missing} missing, {rows.extra} extra, {rows.duplicate} duplicate, "
                f"{rows.different} different"
            )
            lines += [f"  {example}" for example in rows.examples]
        verdict = "equals" if self.equal else "does NOT equal"
        return [
            *lines,
            f"the Hudi table {verdict} `select * from {TABLE}`, row by row and column by column",
            f"everything is stopped, after {self.seconds:.0f} s",
        ]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal}


def run_cdc_demo(home: Home, seconds: int, report: Report) -> CdcDemoResult:
    """Change a PostgreSQL table for `seconds` while hudi-ingest follows and parts of the way are killed, compare both tables, and
    stop everything. The home is emptied first.

    Raises EnvironmentProblem, also if PostgreSQL is not installed, or if hudi-ingest does not catch up in time.
    """
    require_postgresql()
    fetch_jars(report)
    began = time.monotonic()
    with one_interrupt() as ignore_further, emptied(home), running_database(report) as database:
        try:
            writer = CustomerWriter(sa.create_engine(database), _SEED)
            with elapsed(report, f"inserting {FIRST_ROWS:,} customers"):
                writer.create(FIRST_ROWS)
            with running_cdc(home, database, report) as cdc, Ledger.open(home.ledger_url) as ledger:
                demo = _Demo(cdc, writer, ledger, report)
                demo.change(seconds)
                records = demo.catch_up()
                compactions = demo.compactions()
                comparisons = demo.compare()
                history = ledger.transactions.history(NAME, _HISTORY)
            return CdcDemoResult(
                changes=dict(writer.counts),
                records=records,
                commits=sum(row.state is TransactionState.COMMITTED for row in history),
                compactions=compactions,
                repeated=sum(row.state is TransactionState.ABORTED for row in history),
                killed=tuple(demo.killed),
                comparisons=comparisons,
                seconds=time.monotonic() - began,
            )
        finally:
            ignore_further()


def demo_home(home: Home) -> Home:
    """Return the demo's own home below the given one."""
    return home.below("cdc-demo")


@dataclass
class _Demo:
    cdc: CdcStack
    writer: CustomerWriter
    ledger: Ledger
    report: Report
    killed: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _reported: float = field(default_factory=time.monotonic)

    def change(self, seconds: int) -> None:
        """Change the table for so long, and kill one part after the other meanwhile."""
        steps: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.1, self._kill_engine),
            (0.3, self._kill_run),
            (0.45, self._kill_connect),
            (0.6, self._add_column),
            (0.75, self._kill_run),
            (0.9, self._kill_connect),
            (1.0, lambda: None),
        )
        self.report(f"waiting for a commit of the first {FIRST_ROWS:,} customers")
        # The first transaction creates the table: what is killed then is not in the middle of changes.
        self._wait_until(self._has_commit, "the first customers are committed")
        self.report(f"about {PER_SECOND} changes a second for {seconds} s")
        self._began = time.monotonic()
        with self._writing() as writing:
            for share, step in steps:
                while time.monotonic() - self._began < share * seconds:
                    if writing.done():
                        writing.result()
                    require_running(self.cdc.processes, "all changes were made")
                    self._show_progress()
                    time.sleep(_STATUS_SECONDS)
                step()

    def catch_up(self) -> int:
        """Wait until the Hudi table has all changes. Returns the number of records in Kafka."""
        position = self.writer.finish()
        self.report("no more changes; waiting for the last of them")
        self._wait_until(lambda: (acknowledged_position(self.cdc.connect) or 0) >= position, "Kafka has all changes")
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while True:
            require_running(self.cdc.processes, "the Hudi table had all changes")
            self._show_progress()
            status = self._status()
            if status is not None and status.lag == 0 and self._open_transaction() is None:
                return _records(status)
            if time.monotonic() > deadline:
                raise EnvironmentProblem(
                    f"not all changes were committed within {CATCH_UP_SECONDS} s. {self._last_abort()}The runs' errors are in "
                    f"{self.cdc.home.logs} and {self.cdc.home.dagster}."
                )
            time.sleep(_STATUS_SECONDS)

    def compare(self) -> dict[str, RowComparison]:
        expected = self.writer.rows()
        self.report(f"comparing with the {len(expected):,} rows of PostgreSQL")
        base_path = self.cdc.pipeline().table.base_path
        readers: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "hudi-rs": lambda: read_with_hudi_rs(base_path),
            "Spark": lambda: read_with_spark(base_path, self.cdc.home),
        }
        comparisons = {}
        for name, read in readers.items():
            with elapsed(self.report, f"reading with {name}"):
                comparisons[name] = compare_rows(expected, read(), KEY)
        return comparisons

    def compactions(self) -> int:
        """Wait for the compaction that is due, which a busy machine starts late, and return how many the table's timeline has."""
        commits = self._wait_until(self._compacted, "the compaction that is due has run")
        return sum(commit.operation == COMPACT for commit in commits)

    def _compacted(self) -> Sequence[CommittedInstant] | None:
        """The table's commits; None while a compaction is due."""
        pipeline = self.cdc.pipeline()
        commits = observe(pipeline).committed.commits
        due = why_due(pipeline.table.compaction, read_amplification(commits), datetime.now(timezone.utc))
        return None if due else commits

    @contextmanager
    def _writing(self) -> Iterator[Future[None]]:
        stopping = threading.Event()
        with ThreadPoolExecutor(1, "customers") as pool:
            writing = pool.submit(self.writer.keep_changing, PER_SECOND, stopping)
            try:
                yield writing
            finally:
                stopping.set()
        writing.result()

    def _kill_engine(self) -> None:
        transaction = self._await_writing()
        self.cdc.kill_engine()
        self.killed.append(f"the engine, while {transaction} was writing")

    def _kill_run(self) -> None:
        transaction = self._await_writing()
        while not self.cdc.kill_run():
            # It ended a moment ago.
            transaction = self._await_writing()
        self.killed.append(f"the run of {transaction}")

    def _kill_connect(self) -> None:
        self.cdc.kill_connect()
        self.killed.append("Kafka Connect")

    def _add_column(self) -> None:
        """Declare the column first: values of a column that the pipeline does not know would be left out."""
        self.report(f"adding {NEW_COLUMN}, to the pipeline first")
        self.cdc.declare_columns(f"{SCHEMA}, {NEW_COLUMN}")
        base_path = self.cdc.pipeline().table.base_path
        self._wait_until(
            lambda: NEW_COLUMN.split()[0] in column_names(base_path),
            "a commit has brought the Hudi table the new column",
        )
        self.writer.add_column()

    def _await_writing(self) -> str:
        """Wait until an op writes, and return its transaction."""
        return self._wait_until(self._writing_transaction, "a transaction writes")

    def _writing_transaction(self) -> str | None:
        transaction = self._open_transaction()
        if transaction is None:
            return None
        attempts = self.ledger.attempts.of_transaction(transaction)
        return transaction if any(attempt.state is AttemptState.RUNNING for attempt in attempts) else None

    def _open_transaction(self) -> str | None:
        row = self.ledger.transactions.open_in(self.cdc.pipeline().table.base_path)
        return row.transaction_id if row is not None else None

    def _wait_until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait for the condition and show progress meanwhile. Raises EnvironmentProblem."""

        def watched() -> T | None:
            self._show_progress()
            return condition()

        return wait_until(watched, what=what, timeout_seconds=CATCH_UP_SECONDS, records_to_watch=self.cdc.processes)

    def _show_progress(self) -> None:
        """Report every few seconds."""
        now = time.monotonic()
        if now - self._reported < _REPORT_SECONDS:
            return
        self._reported = now
        status = self._status()
        if status is not None and status.lag is not None:
            records = _records(status)
            self.report(
                f"{now - self._began:.0f} s: {self.writer.counts.total():,} changes, {records:,} records in Kafka, "
                f"{records - status.lag:,} of them in {status.sequence} commits"
            )

    def _has_commit(self) -> bool:
        status = self._status()
        return status is not None and status.sequence > 0

    def _status(self) -> PipelineStatus | None:
        """Return the pipeline's status; None if broker or table do not answer now."""
        pipeline = self.cdc.pipeline()
        try:
            return pipeline_status(pipeline, observe(pipeline), self.ledger)
        except (KafkaUnreachable, TableUnreachable):
            return None

    def _last_abort(self) -> str:
        reasons = [row.reason for row in self.ledger.transactions.history(NAME, _HISTORY) if row.reason]
        return f"The last transaction that was rolled back: {reasons[0]} " if reasons else ""


def _records(status: PipelineStatus) -> int:
    return sum(partition.end or 0 for partition in status.partitions)
