"""The CDC demo: hudi-ingest mirrors PostgreSQL tables that keep changing, through Debezium and Kafka, while parts of the way are
killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from hudi_ingest.exceptions import EnvironmentProblem, TransactionInFlight
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.read_amplification import COMPACT, read_amplification, why_due
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.tables import AttemptState, TransactionRow
from hudi_ingest.local.processes import require_running, wait_until
from hudi_ingest.local.progress import Report, one_interrupt
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.state import PipelineState, states
from hudi_ingest.operations.upkeep.table_services import ServicesResult, run_services
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.lab.cdc_stack import (
    PARTS,
    CdcStack,
    acknowledged_position,
    connector_runs,
    fetch_jars,
    require_postgresql,
    running_cdc,
    running_database,
)
from hudi_ingest_tests.lab.cluster_stack import emptied
from hudi_ingest_tests.lab.progress import elapsed
from hudi_ingest_tests.lab.row_comparison import RowComparison, compare_rows, read_with_hudi_rs, read_with_spark
from hudi_ingest_tests.lab.source_tables import DatabaseWriter, SourceTable, customers, random_tables

T = TypeVar("T")

FIRST_ROWS = 2_000
"""Of all tables together, but 50 of each at least."""
PER_SECOND = 150
CATCH_UP_SECONDS = 300
CATCH_UP_SECONDS_PER_TABLE = 10
KILLED = (*PARTS, "a run", "Kafka Connect")
SECONDS_FOR_KILLS = 120
"""In so many seconds each of KILLED is killed once, and at least once in all."""
_REPORT_SECONDS = 5.0
_STATUS_SECONDS = 1.0
_HISTORY = 1_000
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class CdcDemoSettings:
    """`tables`: the one of customers, and beyond it tables with random columns."""

    seconds: int
    tables: int
    seed: int


@dataclass(frozen=True, slots=True)
class CdcDemoResult:
    """The outcome. `changes`: how many of each kind PostgreSQL has committed; `killed`: in words, in order; `repeated`: transactions
    that were rolled back; `tables`: comparisons by the source table and who read the Hudi table."""

    seed: int
    changes: dict[str, int]
    records: int
    commits: int
    compactions: int
    repeated: int
    killed: tuple[str, ...]
    tables: dict[str, dict[str, RowComparison]]
    seconds: float

    @property
    def comparisons(self) -> dict[str, RowComparison]:
        """Return the sums over all tables, by reader."""
        readers = dict.fromkeys(reader for found in self.tables.values() for reader in found)
        return {reader: RowComparison.total(found[reader] for found in self.tables.values()) for reader in readers}

    @property
    def different(self) -> list[str]:
        """Return the tables that a reader does not find equal."""
        return [name for name, found in self.tables.items() if not all(rows.equal for rows in found.values())]

    @property
    def equal(self) -> bool:
        return not self.different

    def in_words(self) -> list[str]:
        kinds = ", ".join(f"{count:,} × {kind}" for kind, count in sorted(self.changes.items()))
        lines = [
            f"seed {self.seed}, changes in PostgreSQL: {kinds}",
            f"{self.records:,} records in {self.commits} commits, compacted {self.compactions} times; transactions rolled back: "
            f"{self.repeated}",
            *(f"killed: {killed}" for killed in self.killed),
        ]
        for reader, rows in self.comparisons.items():
            lines.append(
                f"{reader}: {rows.rows:,} rows, {rows.missing} missing, {rows.extra} extra, {rows.duplicate} duplicate, "
                f"{rows.different} different"
            )
        return [*lines, *table_lines(self.tables), self._verdict, f"everything is stopped, after {self.seconds:.0f} s"]

    @property
    def _verdict(self) -> str:
        verdict = "equals" if self.equal else "does NOT equal"
        values = "row by row and column by column"
        if len(self.tables) == 1:
            return f"the Hudi table {verdict} `select * from {next(iter(self.tables))}`, {values}"
        if self.equal:
            return f"each of the {len(self.tables)} Hudi tables equals `select *` from its source, {values}"
        return f"{len(self.different)} of {len(self.tables)} Hudi tables do NOT equal `select *` from their sources"

    def to_dict(self) -> dict[str, Any]:
        comparisons = {reader: asdict(rows) for reader, rows in self.comparisons.items()}
        return {**asdict(self), "comparisons": comparisons, "equal": self.equal}


def table_lines(tables: Mapping[str, Mapping[str, RowComparison]]) -> list[str]:
    """Return a line for each table: its rows, whether each reader finds them equal, and the first difference."""
    readers = list(dict.fromkeys(reader for found in tables.values() for reader in found))
    width = max(len("table"), *(len(name) for name in tables))
    lines = [f"{'table':{width}}  {'rows':>8}  {''.join(f'{reader:11}' for reader in readers)}first difference"]
    for name, found in tables.items():
        rows = next(iter(found.values())).rows
        equal = "".join(f"{'equal' if found[reader].equal else 'NOT equal':11}" for reader in readers)
        first = next((f"{reader}: {found[reader].examples[0]}" for reader in readers if not found[reader].equal), "")
        lines.append(f"{name:{width}}  {rows:>8,}  {equal}{first}".rstrip())
    return lines


def kills(seconds: int, dice: random.Random) -> list[str]:
    """Return what is killed in so many seconds, in this order: all of KILLED once or several times, each time in another order."""
    rounds = max(1, seconds // SECONDS_FOR_KILLS)
    return [part for _ in range(rounds) for part in dice.sample(KILLED, len(KILLED))]


def run_cdc_demo(home: Home, settings: CdcDemoSettings, report: Report) -> CdcDemoResult:
    """Change PostgreSQL tables while hudi-ingest follows and parts of the way are killed, compare them with the Hudi tables, and
    stop everything. The home is emptied first.

    Raises EnvironmentProblem, also if PostgreSQL is not installed, or if hudi-ingest does not catch up in time.
    """
    require_postgresql()
    fetch_jars(report)
    began = time.monotonic()
    report(f"seed {settings.seed}")
    # One for everything that is random, and drawn from by one thread at a time.
    dice = random.Random(settings.seed)
    tables = [customers(dice), *random_tables(settings.tables - 1, dice)]
    killed = kills(settings.seconds, dice)
    with one_interrupt() as ignore_further, emptied(home), running_database(report) as database:
        try:
            writer = DatabaseWriter(sa.create_engine(database), tables, dice)
            first = max(50, FIRST_ROWS // len(tables))
            with elapsed(report, f"creating {counted(len(tables), 'table')}"):
                writer.create(first)
            report(f"PostgreSQL has {counted(len(tables), 'table')} with {first:,} rows each")
            with running_cdc(home, database, tables, report) as cdc, Ledger.open(home.ledger_url) as ledger:
                demo = _Demo(cdc, writer, ledger, report)
                demo.find_pipelines()
                demo.change(settings.seconds, killed)
                records = demo.catch_up()
                compactions = demo.compactions()
                found = demo.compare()
                history = [
                    row
                    for pipeline in demo.pipelines.values()
                    for row in ledger.transactions.history(pipeline.name, _HISTORY)
                ]
            return CdcDemoResult(
                seed=settings.seed,
                changes=dict(writer.counts),
                records=records,
                commits=sum(row.state is TransactionState.COMMITTED for row in history),
                compactions=compactions,
                repeated=sum(row.state is TransactionState.ABORTED for row in history),
                killed=tuple(demo.killed),
                tables=found,
                seconds=time.monotonic() - began,
            )
        finally:
            ignore_further()


@dataclass
class _Demo:
    cdc: CdcStack
    writer: DatabaseWriter
    ledger: Ledger
    report: Report
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    """By the name of the source table."""
    killed: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _reported: float = field(default_factory=time.monotonic)

    def find_pipelines(self) -> None:
        """Wait until hudi-ingest has found all topics, and until each table has a commit.

        The first transaction creates a table: what is killed then is not in the middle of changes.
        """
        tables = len(self.writer.tables)
        self.report(f"waiting for a commit of the first rows of {counted(tables, 'table')}")
        self.pipelines = self._wait_until(
            self._all_pipelines, f"Dagster has found the topics of {counted(tables, 'table')}"
        )
        self._wait_until(self._have_commits, f"the first rows of {counted(tables, 'table')} are committed")

    def change(self, seconds: int, parts: Sequence[str]) -> None:
        """Change the tables for so long, and kill one part after the other meanwhile."""
        self.report(f"about {PER_SECOND} changes a second for {seconds} s")
        self._began = time.monotonic()
        with self._writing() as writing:
            for number, part in enumerate((*parts, "")):
                share = (number + 0.5) / len(parts) if part else 1.0
                while time.monotonic() - self._began < share * seconds:
                    if writing.done():
                        writing.result()
                    require_running(self.cdc.processes, "all changes were made")
                    self._show_progress()
                    time.sleep(_STATUS_SECONDS)
                if part:
                    self._kill(part)

    def catch_up(self) -> int:
        """Wait until the Hudi tables have all changes. Returns the number of records in Kafka."""
        position = self.writer.finish()
        self.report("no more changes; waiting for the last of them")
        connect = self.cdc.connect
        self._wait_until(
            lambda: connector_runs(connect) and (acknowledged_position(connect) or 0) >= position,
            "Kafka has all changes",
        )
        seconds = self._most_seconds
        deadline = time.monotonic() + seconds
        while True:
            require_running(self.cdc.processes, "the Hudi tables had all changes")
            self._show_progress()
            found = self._statuses()
            behind = [name for name in self.pipelines if name not in found or found[name].lag != 0]
            if not behind and not self._open_transactions():
                return sum(map(_records, found.values()))
            if time.monotonic() > deadline:
                reasons = "".join(map(self._why_behind, behind[:_SHOWN]))
                raise EnvironmentProblem(
                    f"not all changes were committed within {seconds} s: {len(behind)} of {counted(len(self.pipelines), 'table')} are behind. "
                    f"{reasons}The runs' errors are in {self.cdc.home.logs} and {self.cdc.home.dagster}."
                )
            time.sleep(_STATUS_SECONDS)

    def compare(self) -> dict[str, dict[str, RowComparison]]:
        """Return what each reader finds in each table, by its name and the reader's."""
        found: dict[str, dict[str, RowComparison]] = {}
        for table in self.writer.tables:
            expected = self.writer.rows(table)
            self.report(f"comparing with the {len(expected):,} rows of {table.name} ({len(found)} tables are compared)")
            base_path = self.pipelines[table.name].table.base_path
            readers: dict[str, Callable[[], list[dict[str, Any]]]] = {
                "hudi-rs": partial(read_with_hudi_rs, base_path),
                "Spark": partial(read_with_spark, base_path, self.cdc.home),
            }
            found[table.name] = {}
            for reader, read in readers.items():
                with elapsed(self.report, f"reading {table.name} with {reader}"):
                    found[table.name][reader] = compare_rows(expected, read(), *table.key)
        return found

    def compactions(self) -> int:
        """Wait for the compactions that are due, which a busy machine starts late, and return how many the tables' timelines have.

        Compacts tables with wider columns once more: hudi-rs refuses them until their next compaction.
        """
        commits = self._wait_until(self._compacted, "the compactions that are due have run")
        count = sum(commit.operation == COMPACT for commit in commits)
        for table in self.writer.tables:
            if table.is_widened:
                done = self._wait_until(partial(self._compact, table), f"{table.name} is compacted")
                count += len(done.compactions)
        return count

    def _compacted(self) -> list[CommittedInstant] | None:
        """The commits of all tables; None while a compaction is due."""
        now = datetime.now(timezone.utc)
        found = [(pipeline, observe(pipeline).committed.commits) for pipeline in self.pipelines.values()]
        due = any(why_due(pipeline.table.compaction, read_amplification(commits), now) for pipeline, commits in found)
        return None if due else [commit for _, commits in found for commit in commits]

    def _compact(self, table: SourceTable) -> ServicesResult | None:
        """None while the schedule's services are at work on the table."""
        pipeline, home = self.pipelines[table.name], self.cdc.home
        try:
            return run_services(pipeline, compact=True, clean=False, home=home, report=lambda line: None)
        except TransactionInFlight:
            return None

    @contextmanager
    def _writing(self) -> Iterator[Future[None]]:
        stopping = threading.Event()
        with ThreadPoolExecutor(1, "writer") as pool:
            writing = pool.submit(self.writer.keep_changing, PER_SECOND, stopping)
            try:
                yield writing
            finally:
                stopping.set()
        writing.result()

    def _kill(self, part: str) -> None:
        if part == "Kafka Connect":
            self.cdc.kill_connect()
            self.killed.append(part)
            return
        transaction = self._await_writing()
        if part in PARTS:
            self.cdc.kill(part)
            self.killed.append(f"{part}, while {transaction} was writing")
            return
        while not (runs := self.cdc.kill_runs()):
            # It ended a moment ago.
            transaction = self._await_writing()
        self.killed.append(f"the run of {transaction}" + (f", and {runs - 1} more" if runs > 1 else ""))

    def _await_writing(self) -> str:
        """Wait until an op writes, and return its transaction."""
        return self._wait_until(self._writing_transaction, "a transaction writes")

    def _writing_transaction(self) -> str | None:
        for row in self._open_transactions():
            attempts = self.ledger.attempts.of_transaction(row.transaction_id)
            if any(attempt.state is AttemptState.RUNNING for attempt in attempts):
                return row.transaction_id
        return None

    def _open_transactions(self) -> list[TransactionRow]:
        return list(self.ledger.overview().open.values())

    def _wait_until(self, condition: Callable[[], T | None], what: str) -> T:
        """Wait for the condition and show progress meanwhile. Raises EnvironmentProblem."""

        def watched() -> T | None:
            self._show_progress()
            return condition()

        return wait_until(watched, what=what, timeout_seconds=self._most_seconds, records_to_watch=self.cdc.processes)

    @property
    def _most_seconds(self) -> int:
        return CATCH_UP_SECONDS + CATCH_UP_SECONDS_PER_TABLE * len(self.writer.tables)

    def _show_progress(self) -> None:
        """Report every few seconds."""
        now = time.monotonic()
        if now - self._reported < _REPORT_SECONDS:
            return
        self._reported = now
        found = [status for status in self._statuses().values() if status.lag is not None]
        if found:
            records, lag = sum(map(_records, found)), sum(status.lag or 0 for status in found)
            behind = sum(status.lag != 0 for status in found)
            commits = sum(status.sequence or 0 for status in found)
            self.report(
                f"{now - self._began:.0f} s: {self.writer.counts.total():,} changes, {records:,} records in Kafka, "
                f"{records - lag:,} of them in {commits} commits; {behind} of {counted(len(self.writer.tables), 'table')} behind"
            )

    def _all_pipelines(self) -> dict[str, Pipeline] | None:
        found = self.cdc.pipelines(self.ledger.topics.of_template)
        return found if len(found) == len(self.writer.tables) else None

    def _have_commits(self) -> bool:
        found = self._statuses()
        return all(name in found and found[name].sequence for name in self.pipelines)

    def _statuses(self) -> dict[str, PipelineState]:
        """Return the pipelines' statuses by source table, without those whose broker or table does not answer now."""
        found = states([*self.pipelines.values()], self.ledger)
        by_table = {name: found[pipeline.name] for name, pipeline in self.pipelines.items()}
        return {name: status for name, status in by_table.items() if isinstance(status, PipelineState)}

    def _why_behind(self, name: str) -> str:
        [status] = states([self.pipelines[name]], self.ledger).values()
        trouble = status.error if isinstance(status, PipelineState) else status
        now = f"{name} cannot be asked: {trouble} " if trouble is not None else ""
        rows = self.ledger.transactions.history(self.pipelines[name].name, _HISTORY)
        reasons = [row.reason for row in rows if row.reason]
        return now + (f"The last transaction of {name} that was rolled back: {reasons[0]} " if reasons else "")


def _records(status: PipelineState) -> int:
    return sum(partition.end or 0 for partition in status.partitions)
