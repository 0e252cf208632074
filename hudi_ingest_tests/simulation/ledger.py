"""The ledger as a model: what hudi_ingest/ledger keeps in SQL, in dictionaries.

SQL takes half of a schedule's time, and a schedule asks it hundreds of times. That the model answers as SQLite does is
tested: hudi_ingest_tests/unit/simulation/test_ledger_model.py.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from hudi_ingest.exceptions import Fenced, LedgerUnreachable, TransactionInFlight
from hudi_ingest.ledger import AttemptState, Ledger, Request, TransactionRow
from hudi_ingest.ledger.attempts import Attempts
from hudi_ingest.ledger.counters import Counters
from hudi_ingest.ledger.locks import LockRow
from hudi_ingest.ledger.notes import Service, ServiceRun, ServiceRuns
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.requests import Requests
from hudi_ingest.ledger.transactions import Transactions, require_open
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import CommitReceipt, SliceReport
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest_tests.simulation.programs import Program, running, stop


@dataclass
class Attempt:
    state: AttemptState = AttemptState.RUNNING
    report: SliceReport | None = None


Tables = tuple[
    dict[str, TransactionRow], dict[str, TransactionPlan], dict[str, dict[tuple[TopicPartition, int], Attempt]]
]


@dataclass
class Rows:
    """All that the database holds. A change is made in one piece: no program stops within it."""

    now: Callable[[], datetime]
    transactions: dict[str, TransactionRow] = field(default_factory=dict)
    plans: dict[str, TransactionPlan] = field(default_factory=dict)
    attempts: dict[str, dict[tuple[TopicPartition, int], Attempt]] = field(default_factory=dict)
    locks: dict[str, tuple[Program | None, datetime, bool]] = field(default_factory=dict)
    """By name: who holds it, since when, and whether unfenced."""
    forgets: bool = False
    """Whether the server answers before it flushes."""
    unflushed: deque[tuple[datetime, Tables]] = field(default_factory=lambda: deque(maxlen=6))
    """When changes were made, and what was there before each of them."""

    def __enter__(self) -> None:
        """A change begins."""
        stop("ledger", LedgerUnreachable)
        if self.forgets:
            attempts = {
                name: {key: copy(each) for key, each in theirs.items()} for name, theirs in self.attempts.items()
            }
            self.unflushed.append((self.now(), (dict(self.transactions), dict(self.plans), attempts)))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # The answer may be lost although the change is there.
        if kind is None:
            stop("ledger written", LedgerUnreachable)

    def forget(self, dice: Random) -> None:
        """The server's power is cut: some of the changes of the last second are lost, the newest first."""
        now = self.now()
        newest = [tables for time, tables in self.unflushed if now - time <= timedelta(seconds=1)]
        # That it keeps the attempts of the transactions that it keeps is a limit of the promises: a number may be given twice.
        possible = [
            tables
            for tables in newest
            if all(self.attempts[each].keys() == tables[2][each].keys() for each in tables[2])
        ]
        if possible and dice.random() < 0.7:
            self.transactions, self.plans, self.attempts = dice.choice(possible)
            # What a lock's holder does from here on must be safe without it.
            self.locks.clear()
        self.unflushed.clear()

    def open_in(self, table: str) -> TransactionRow | None:
        rows = self.transactions.values()
        return next((row for row in rows if row.table == table and row.state is TransactionState.OPEN), None)

    def newest_first(self, pipeline: str) -> list[TransactionRow]:
        rows = [row for row in self.transactions.values() if row.pipeline == pipeline]
        return sorted(rows, key=lambda row: (row.began_at, row.epoch), reverse=True)

    def end_attempts(self, transaction_id: str, reports: Collection[SliceReport], others: bool) -> None:
        """Those of the reports are done; the `others` that run have failed."""
        done = {(report.slice.source, report.attempt): report for report in reports}
        for key, attempt in self.attempts[transaction_id].items():
            if attempt.state is AttemptState.RUNNING and key in done:
                attempt.state, attempt.report = AttemptState.DONE, done[key]
            elif attempt.state is AttemptState.RUNNING and others:
                attempt.state = AttemptState.FAILED

    def commit(self, receipt: CommitReceipt | None, transaction_id: str, instant: str) -> bool:
        row = self.transactions.get(transaction_id)
        if row is None:
            return False
        if row.state is TransactionState.COMMITTED and row.instant != instant:
            raise Fenced(f"{transaction_id} is committed by {row.instant}, not by {instant}")
        if row.state is not TransactionState.COMMITTED:
            row = replace(row, state=TransactionState.COMMITTED, instant=instant, ended_at=self.now(), reason=None)
        if receipt is not None and row.rows is None:
            row = replace(row, rows=receipt.rows, files=receipt.files, size_bytes=receipt.size_bytes)
        self.transactions[transaction_id] = row
        self.end_attempts(transaction_id, receipt.reports if receipt else (), others=True)
        return True


class ModelTransactions(Transactions):
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def open_in(self, table: str) -> TransactionRow | None:
        stop("ledger", LedgerUnreachable)
        return self._rows.open_in(table)

    def find(self, transaction_id: str) -> TransactionRow | None:
        stop("ledger", LedgerUnreachable)
        return self._rows.transactions.get(transaction_id)

    def history(self, pipeline: str, limit: int = 10) -> tuple[TransactionRow, ...]:
        stop("ledger", LedgerUnreachable)
        return tuple(self._rows.newest_first(pipeline)[:limit])

    def newest_commit(self, pipeline: str) -> TransactionRow | None:
        stop("ledger", LedgerUnreachable)
        committed = (row for row in self._rows.newest_first(pipeline) if row.state is TransactionState.COMMITTED)
        return next(committed, None)

    def begin(self, plan: TransactionPlan, *, table: str, owner: Owner, deadline: datetime, above: int = 0) -> int:
        with self._rows:
            blocking = self._rows.open_in(table)
            if blocking is not None:
                raise TransactionInFlight(f"{plan.transaction_id} cannot begin, {blocking.transaction_id} is open")
            if plan.transaction_id in self._rows.transactions:
                raise Fenced(f"transaction id {plan.transaction_id} was used before")
            epochs = [row.epoch for row in self._rows.transactions.values() if row.table == table]
            epoch = max([above, *epochs]) + 1
            self._rows.plans[plan.transaction_id] = plan
            self._rows.attempts[plan.transaction_id] = {}
            self._rows.transactions[plan.transaction_id] = TransactionRow(
                plan.transaction_id,
                plan.pipeline,
                table,
                plan.sequence,
                epoch,
                TransactionState.OPEN,
                owner,
                instant=None,
                began_at=self._rows.now(),
                deadline=deadline,
                ended_at=None,
                rows=None,
                files=None,
                size_bytes=None,
                reason=None,
                resets=plan.resets,
                request_id=plan.request or None,
            )
        return epoch

    def record_instant(self, transaction_id: str, instant: str) -> None:
        with self._rows:
            row = require_open(self._rows.transactions.get(transaction_id), transaction_id, "no instant is recorded")
            if row.instant not in (None, instant):
                raise Fenced(f"{transaction_id} already has instant {row.instant}, not {instant}")
            self._rows.transactions[transaction_id] = replace(row, instant=instant)

    def mark_committed(self, receipt: CommitReceipt) -> bool:
        with self._rows:
            known = self._rows.commit(receipt, receipt.plan.transaction_id, receipt.instant)
        return known

    def mark_committed_as_found(self, transaction_id: str, instant: str) -> bool:
        with self._rows:
            row = self._rows.transactions.get(transaction_id)
            known = self._rows.commit(None, transaction_id, instant)
        return known and row is not None and row.state is not TransactionState.COMMITTED

    def note_failure(self, transaction_id: str, error: str) -> None:
        """Without a trace: nothing decides by it."""

    def mark_aborted(self, transaction_id: str, reason: str) -> bool:
        with self._rows:
            row = self._rows.transactions.get(transaction_id)
            if row is not None and row.state is TransactionState.COMMITTED:
                raise Fenced(f"{transaction_id} was committed by instant {row.instant}")
            if row is not None and row.state is TransactionState.OPEN:
                self._rows.transactions[transaction_id] = replace(
                    row, state=TransactionState.ABORTED, ended_at=self._rows.now(), reason=reason
                )
                self._rows.end_attempts(transaction_id, (), others=True)
        return row is not None

    def mark_lost(self, transaction_id: str, reason: str) -> bool:
        with self._rows:
            row = self._rows.transactions.get(transaction_id)
            if row is None:
                return False
            lost = replace(row, rows=None, files=None, size_bytes=None)
            self._rows.transactions[transaction_id] = replace(
                lost, state=TransactionState.ABORTED, ended_at=self._rows.now(), reason=reason
            )
            self._rows.end_attempts(transaction_id, (), others=True)
        return True


class ModelAttempts(Attempts):
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def start(
        self, transaction_id: str, sources: Collection[TopicPartition], retry: int = 0
    ) -> dict[TopicPartition, int]:
        with self._rows:
            numbers: dict[TopicPartition, int] = {}
            if sources:
                require_open(self._rows.transactions.get(transaction_id), transaction_id, "no attempt may start")
                planned = {each.source for each in self._rows.plans[transaction_id].slices}
                if unplanned := {*sources} - planned:
                    raise ValueError(f"transaction {transaction_id} has no slice of {unplanned} in its plan")
                attempts = self._rows.attempts[transaction_id]
                for source in sources:
                    newest = max((number for other, number in attempts if other == source), default=-1)
                    numbers[source] = max(newest + 1, retry)
                attempts |= {each: Attempt() for each in numbers.items()}
        return numbers

    def finish(self, transaction_id: str, reports: Collection[SliceReport]) -> None:
        with self._rows:
            row = self._rows.transactions.get(transaction_id)
            attempts = self._rows.attempts.get(transaction_id, {})
            unrecorded = []
            for report in reports:
                attempt = attempts.get((report.slice.source, report.attempt))
                if attempt is not None and attempt.report == report:
                    continue
                require_open(row, transaction_id, f"attempt {report.attempt} does not count")
                if attempt is None or attempt.state is not AttemptState.RUNNING:
                    raise Fenced(f"attempt {report.attempt} at {report.slice.source} cannot be recorded as done")
                unrecorded.append(report)
            if unrecorded:
                self._rows.end_attempts(transaction_id, unrecorded, others=False)

    def counts(self, transaction_id: str) -> dict[TopicPartition, int]:
        return dict(Counter(source for source, _ in self._rows.attempts.get(transaction_id, {})))

    def fail(self, transaction_id: str, source: TopicPartition, attempt: int, error: str) -> None:
        with self._rows:
            found = self._rows.attempts.get(transaction_id, {}).get((source, attempt))
            if found is not None and found.state is AttemptState.RUNNING:
                found.state = AttemptState.FAILED


class ModelCounters(Counters):
    """Steps without a trace: nothing decides by counters."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def add(self, table: str, counts: Mapping[str, float]) -> None:
        with self._rows:
            pass


class ModelRequests(Requests):
    def __init__(self) -> None:
        return

    def active(self, pipeline: str) -> tuple[Request, ...]:
        stop("ledger", LedgerUnreachable)
        return ()

    def pass_over(self, request_id: str, files: Iterable[str]) -> None:
        raise AssertionError("plans here have no request")


class ModelServiceRuns(ServiceRuns):
    """Steps without a trace, like the counters."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def began(self, table: str, pipeline: str, service: Service, at: datetime) -> None:
        with self._rows:
            pass

    def ended(self, run: ServiceRun) -> None:
        with self._rows:
            pass


class LedgerModel(Ledger):
    """One database, with its locks: the table's, and that of its services.

    One that waits for the lock is told at once what it would be told after the timeout.
    """

    place = "the ledger's model"

    def __init__(self, now: Callable[[], datetime], real_now: Callable[[], datetime], forgets: bool = False) -> None:
        """`now`: by the clock of who asks. `real_now`: the lock's, which no host's clock moves. `forgets`: see `Rows`."""
        self.rows = Rows(now, forgets=forgets)
        self.transactions = ModelTransactions(self.rows)
        self.attempts = ModelAttempts(self.rows)
        self.counters = ModelCounters(self.rows)
        self.requests = ModelRequests()
        self.service_runs = ModelServiceRuns(self.rows)
        self._real_now = real_now

    def __repr__(self) -> str:
        return "<the ledger's model>"

    def wipe(self) -> None:
        """As if the database were deleted."""
        for rows in (self.rows.transactions, self.rows.plans, self.rows.attempts, self.rows.locks):
            rows.clear()
        self.rows.unflushed.clear()

    @contextmanager
    def table_lock(
        self, table: str, timeout_seconds: float = 60, stale_seconds: float | None = None, unfenced: bool = False
    ) -> Iterator[None]:
        stop("table_lock", LedgerUnreachable)
        now = self._real_now()
        held = self.rows.locks.get(table)
        if held is not None:
            holder, since, kept = held
            # Each second host pauses whole processes, in which nothing renews the lock; the others' hang in one thread.
            renewed = since if holder is not None and holder.host % 2 else now
            row = LockRow("", Owner.this_process(), "", kept, since.timestamp(), renewed.timestamp())
            if not row.lost_because(now.timestamp(), stale_seconds, holder is not None and holder.crashed):
                raise TransactionInFlight(f"the lock of {table} is held by {holder.name if holder else 'somebody'}")
        self.rows.locks[table] = mine = running(), now, unfenced
        try:
            yield
        finally:
            if self.rows.locks.get(table) == mine:
                del self.rows.locks[table]
