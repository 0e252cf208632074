"""The ledger: the SQL record of transactions, slices, attempts and requests.

The Hudi table is the source of truth. A ledger may be wiped at any time and never overrules the table: a committed
transaction that it does not know is not an error, and what the table says replaces what the ledger says. Its fencing is
only an early check: a transaction that is not open here gets no new attempts.

Each call takes a connection of its own, so threads and forked processes may share a ledger. Between calls a process keeps
at most one to a PostgreSQL server, and none once an attempt has started: a hundred writing ops do not hold a hundred
connections.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from hudi_ingest.exceptions import TransactionInFlight
from hudi_ingest.ledger import (
    attempts,
    counters,
    locks,
    outcomes,
    overview,
    pending_changes,
    requests,
    retention,
    service_runs,
    topics,
    transactions,
)
from hudi_ingest.ledger.database import WRITES, close_afterwards, open_engine, shown_url
from hudi_ingest.ledger.database_errors import translated
from hudi_ingest.ledger.overview import Overview
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.pending_changes import PendingChange
from hudi_ingest.ledger.requests import Request, RequestProgress, RequestState
from hudi_ingest.ledger.retention import Kept
from hudi_ingest.ledger.service_runs import Service, ServiceRun
from hudi_ingest.ledger.tables import AttemptRow, SliceRow, TransactionRow, storable
from hudi_ingest.ledger.upgrade import bring_up_to_date
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import CommitReceipt, SliceReport
from hudi_ingest.model.seen_topic import SeenTopic
from hudi_ingest.model.transaction import CommittedTransaction, TransactionState

_BEGIN_TRIES = 20
_LEAST_WAIT_SECONDS = 0.05
"""Shorter waits for a lock are not worth counting."""
_FORGOTTEN_AT_ONCE = 500
"""A batch takes some milliseconds, for which other writers of an SQLite ledger wait."""


class Ledger:
    """Access to the ledger. Leaving `with` keeps a connection for this process's next ledger. Each method is one database
    transaction. Safe to share between threads.

    Every method raises LedgerUnreachable, and EnvironmentProblem when the file is not a database.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(**{WRITES: True})
        self._where = f"ledger {shown_url(engine.url)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown_url(self._engine.url)}>"

    @property
    def place(self) -> str:
        """Where the ledger is, without a password. Two places that differ may still be one ledger, under two names."""
        return f"{self._where} on {socket.gethostname()}" if self._engine.dialect.name == "sqlite" else self._where

    @property
    def file(self) -> Path | None:
        """The SQLite file; None of a PostgreSQL ledger."""
        url = self._engine.url
        return Path(str(url.database)) if self._engine.dialect.name == "sqlite" else None

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Open `sqlite:///<path>` or `postgresql+psycopg2://…`, and create or migrate its tables.

        Any number of processes may do so at once. Raises ConfigError (bad URL), EnvironmentProblem (a newer hudi-ingest
        used this ledger; no write-ahead log on that file system; no driver) or LedgerUnreachable.
        """
        ledger = cls(open_engine(url))
        try:
            with translated(ledger._where):
                bring_up_to_date(ledger._engine, ledger._where)
        except BaseException:
            ledger.dispose()
            raise
        return ledger

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do nothing: the next call, or the process's next ledger, goes on with the same connection."""

    def dispose(self) -> None:
        """Close the idle connection. A held table lock is not affected."""
        self._engine.dispose()

    def damage(self) -> str:
        """Say what is wrong with the database's file; "" if nothing is, or if its server looks after that."""
        if self._engine.dialect.name != "sqlite":
            return ""
        with self._reading() as connection:
            answer = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
        return "" if answer == "ok" else answer

    def clock(self) -> datetime | None:
        """Return the time of the database's server; None if it has no server."""
        if self._engine.dialect.name == "sqlite":
            return None
        with self._reading() as connection:
            return connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()  # type: ignore[no-any-return]

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with translated(self._where), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with translated(self._where), self._writer.begin() as connection:
            yield connection

    # ---- Transactions

    def open_transaction(self, table: str) -> TransactionRow | None:
        """Return the open transaction of the Hudi table at base path `table`, None if there is none."""
        with self._reading() as connection:
            return transactions.open_in(connection, _base_path(table))

    def transaction(self, transaction_id: str) -> TransactionRow | None:
        with self._reading() as connection:
            return transactions.find(connection, transaction_id)

    def history(self, pipeline: str, limit: int = 10) -> tuple[TransactionRow, ...]:
        """Return the pipeline's transactions of all states, newest first. Raises ValueError unless `limit` is positive."""
        if limit < 1:
            raise ValueError(f"the limit of a history must be at least 1, found {limit}")
        with self._reading() as connection:
            return transactions.history(connection, pipeline, limit)

    def commit_elsewhere(self, pipeline: str, table: str) -> TransactionRow | None:
        """Return the pipeline's newest commit if it is in another table than the one at base path `table`, else None."""
        with self._reading() as connection:
            row = transactions.newest_commit(connection, pipeline)
        return row if row is not None and row.table != _base_path(table) else None

    def forget_other_tables(self, pipeline: str, table: str) -> int:
        """Delete the pipeline's transactions of all tables but the one at base path `table`; return how many there were."""
        with self._writing() as connection:
            return transactions.forget_other_tables(connection, pipeline, _base_path(table))

    def slices(self, transaction_id: str) -> tuple[SliceRow, ...]:
        """Return the planned slices by topic and partition; empty for an unknown transaction."""
        with self._reading() as connection:
            return transactions.slices(connection, transaction_id)

    def begin(self, plan: TransactionPlan, *, table: str, owner: Owner, deadline: datetime, above: int = 0) -> int:
        """Record the plan as the table's open transaction and return its epoch.

        A table's epochs grow with each begin; `above` is the epoch stored in the table itself, which a wiped ledger does
        not know. `deadline` is timezone-aware.
        Raises TransactionInFlight when the table has an open transaction, Fenced when the transaction id was used
        before, ValueError when a partition is planned twice or the deadline has no time zone.
        """
        sources = [planned.source for planned in plan.slices]
        if len(set(sources)) < len(sources):
            repeated = sorted({str(source) for source in sources if sources.count(source) > 1})
            raise ValueError(f"plan {plan.transaction_id} has more than one slice of {', '.join(repeated)}")
        if deadline.utcoffset() is None:
            raise ValueError(f"the deadline of {plan.transaction_id} needs a time zone, found {deadline!r}")
        base_path = _base_path(table)
        for retries in reversed(range(_BEGIN_TRIES)):
            try:
                with self._writing() as connection:
                    return transactions.begin(connection, plan, base_path, owner, deadline, above)
            except IntegrityError:
                # PostgreSQL: another begin came between our check and our insert. The next check sees it.
                if not retries:
                    raise
        raise AssertionError("unreachable")

    def record_instant(self, transaction_id: str, instant: str) -> None:
        """Record the Hudi instant of an open transaction. Idempotent.

        Raises Fenced when the transaction is not open, or has another instant.
        """
        with self._writing() as connection:
            transactions.record_instant(connection, transaction_id, instant)

    def mark_committed(self, receipt: CommitReceipt) -> bool:
        """Record a commit that is in the table, even over an abort: the table is the source of truth. Idempotent.

        Returns False, and records nothing, when this ledger does not know the transaction (it was wiped). Raises Fenced
        when the transaction is recorded as committed by another instant.
        """
        figures = {"rows": receipt.rows, "files": receipt.files, "size_bytes": receipt.size_bytes}
        with self._writing() as connection:
            return outcomes.commit(
                connection, receipt.plan.transaction_id, receipt.instant, figures, receipt.reports, receipt.seconds
            )

    def mark_committed_as_found(self, transaction_id: str, instant: str) -> bool:
        """Record a commit that was found in the table's timeline and whose receipt is lost; see `mark_committed`. Returns whether
        this call did: of several at once, one does.

        Rows, files and size stay None until `mark_committed` sets them.
        """
        with self._writing() as connection:
            row = transactions.find(connection, transaction_id, lock=True)
            known = outcomes.commit(connection, transaction_id, instant, {}, ())
            return known and row is not None and row.state is not TransactionState.COMMITTED

    def restore_committed(self, found: CommittedTransaction, *, table: str, owner: Owner, deadline: datetime) -> bool:
        """Make the ledger agree with the table about a committed transaction; False when it already does.

        The caller holds the table's lock. A transaction unknown to this ledger becomes `owner`'s. Raises Fenced
        when the transaction is recorded as committed by another instant.
        """
        row = self.transaction(found.plan.transaction_id)
        if (
            row is not None
            and row.state is TransactionState.COMMITTED
            and row.instant == found.instant
            and row.rows is not None
        ):
            return False
        with self._writing() as connection:
            if row is None:
                outcomes.add_committed(connection, found, _base_path(table), owner, deadline)
                return True
            figures = {"rows": found.rows, "files": found.files, "size_bytes": found.size_bytes}
            return outcomes.commit(connection, found.plan.transaction_id, found.instant, figures, ())

    def mark_aborted(self, transaction_id: str, reason: str) -> bool:
        """Record that an open transaction was rolled back. An aborted one keeps its first reason.

        Returns False when this ledger does not know the transaction. Raises Fenced when it is committed: that is final.
        """
        with self._writing() as connection:
            return outcomes.abort(connection, transaction_id, reason)

    def mark_lost(self, transaction_id: str, reason: str) -> bool:
        """Record as aborted a transaction whose commit a power cut destroyed, even if it is recorded as committed: the table is
        the source of truth. Returns False when this ledger does not know the transaction."""
        with self._writing() as connection:
            return outcomes.lose(connection, transaction_id, reason)

    @contextmanager
    def table_lock(
        self, table: str, timeout_seconds: float = 60, stale_seconds: float | None = None, unfenced: bool = False
    ) -> Iterator[None]:
        """Keep all other processes and threads out of this table's begin, commit, recover and abort.

        The lock is released when its holder dies, and taken from one that has held it for longer than `stale_seconds`,
        unless that holder is `unfenced`; locks.py says what a holder must ensure. Not reentrant. Raises TransactionInFlight
        when the lock is not free in time.
        """
        started = time.monotonic()
        try:
            with translated(self._where):
                held = locks.acquire(
                    self._engine, f"table {_base_path(table)}", timeout_seconds, stale_seconds, unfenced
                )
        except TransactionInFlight:
            self._count_wait(table, time.monotonic() - started)
            raise
        waited = time.monotonic() - started
        try:
            self._count_wait(table, waited)
            yield
        finally:
            held.release()

    def _count_wait(self, table: str, seconds: float) -> None:
        if seconds >= _LEAST_WAIT_SECONDS:
            self.count(table, {counters.LOCK_WAITS: 1, counters.LOCK_WAIT_SECONDS: seconds})

    # ---- Counters

    def overview(self) -> Overview:
        """Return what the ledger holds of all pipelines."""
        with self._reading() as connection:
            return overview.read(connection)

    def last_commits(self) -> dict[str, datetime]:
        """Return when the newest committed transaction of each table ended, by base path."""
        with self._reading() as connection:
            return overview.last_commits(connection)

    def counters(self) -> dict[str, dict[str, float]]:
        """Return all tables' counters, by base path and name."""
        with self._reading() as connection:
            return counters.read(connection)

    def count(self, table: str, counts: Mapping[str, float]) -> None:
        """Add to the counters of the Hudi table at base path `table`; counters.py names them."""
        with self._writing() as connection:
            counters.add(connection, _base_path(table), counts)

    # ---- Services

    def service_runs(self) -> tuple[ServiceRun, ...]:
        """Return the newest run of each service of all tables, and of housekeeping."""
        with self._reading() as connection:
            return service_runs.read(connection)

    def service_began(self, table: str, pipeline: str, service: Service, at: datetime) -> None:
        """Record that a service begins to work on the Hudi table at base path `table`; "" for housekeeping."""
        with self._writing() as connection:
            service_runs.began(connection, _base_path(table), pipeline, service, at)

    def service_ended(self, run: ServiceRun) -> None:
        """Record how a service's run ended, and count it."""
        with self._writing() as connection:
            service_runs.ended(connection, replace(run, base_path=_base_path(run.base_path)))

    # ---- Attempts

    def attempts(self, transaction_id: str) -> tuple[AttemptRow, ...]:
        """Return all attempts by topic, partition and number; empty for an unknown transaction."""
        with self._reading() as connection:
            return attempts.of_transaction(connection, transaction_id)

    def start_attempts(
        self, transaction_id: str, sources: Collection[TopicPartition], retry: int = 0
    ) -> dict[TopicPartition, int]:
        """Start an attempt at each slice and return their numbers: 0, 1, 2…, for a slice never the same twice.

        `retry`: how many attempts the orchestrator knows before this one; those that died before they started here count
        as failed, and their numbers are left out.

        Raises Fenced when the transaction is no longer open or is unknown (the ledger was wiped), ValueError when one of the
        sources is not in its plan.
        """
        with self._writing() as connection:
            # What follows may read and write for minutes.
            close_afterwards(connection)
            return attempts.start(connection, transaction_id, sources, retry)

    def finish_attempts(self, transaction_id: str, reports: Collection[SliceReport]) -> None:
        """Record that the reports' attempts are done. Idempotent for equal reports.

        Raises Fenced, and records none, when the transaction is no longer open, or one of the attempts is unknown, has failed,
        or is done with another report: what it wrote must not be published.
        """
        with self._writing() as connection:
            attempts.finish(connection, transaction_id, reports)

    def fail_attempt(self, transaction_id: str, source: TopicPartition, attempt: int, error: str) -> None:
        """Record why a running attempt failed. Leaves an unknown or ended attempt unchanged, and never raises Fenced, which
        would hide the reported failure."""
        with self._writing() as connection:
            attempts.fail(connection, transaction_id, source, attempt, error)

    # ---- Requests, and the coordinators that work on them

    def request(self, request_id: str) -> Request | None:
        with self._reading() as connection:
            return requests.find(connection, request_id)

    def standing_request(self, request: Request) -> Request | None:
        """Return the active request that asks for the same, which `file_request` would return; None if there is none."""
        with self._reading() as connection:
            return requests.standing(connection, _of_base_path(request))

    def active_requests(self, pipeline: str) -> tuple[Request, ...]:
        """Return the pipeline's active requests, oldest first."""
        with self._reading() as connection:
            return requests.active(connection, pipeline)

    def newest_requests(self, pipeline: str | None = None, limit: int = 20) -> tuple[Request, ...]:
        """Return requests of all states, newest first; of all pipelines with None."""
        with self._reading() as connection:
            return requests.newest(connection, pipeline, limit)

    def progress(self, request_id: str) -> RequestProgress:
        with self._reading() as connection:
            return requests.progress(connection, request_id)

    def last_request_tried(self, table: str) -> int | None:
        """Return the sequence of the last transaction made for a request, in the Hudi table at base path `table`."""
        with self._reading() as connection:
            return requests.last_tried(connection, _base_path(table))

    def file_request(self, request: Request) -> Request:
        """File a request and return it, or return the active request that already asks for the same."""
        with self._writing() as connection:
            return requests.file(connection, _of_base_path(request))

    def end_request(self, request_id: str, state: RequestState, reason: str | None = None) -> bool:
        """End an active request. Returns False, and changes nothing, if it had already ended."""
        ended_at = datetime.now(timezone.utc)
        stored = storable(reason) if reason is not None else None
        with self._writing() as connection:
            return requests.change(connection, request_id, state=state.value, ended_at=ended_at, reason=stored)

    def work_on_request(self, request_id: str, worker: Owner | None) -> bool:
        """Record which process runs an active request; None leaves it to the coordinator."""
        with self._writing() as connection:
            return requests.change(connection, request_id, worker=str(worker) if worker else None)

    def last_deadline_of(self, request_id: str) -> datetime | None:
        """Return the latest deadline of the request's transactions, None if it has had none."""
        with self._reading() as connection:
            return requests.last_deadline(connection, request_id)

    def pass_over(self, request_id: str, paths: Iterable[str]) -> None:
        """Record that no dead letter in these files can become a row now."""
        with self._writing() as connection:
            requests.pass_over(connection, request_id, paths)

    def coordinator_ticked_at(self, pipeline: str) -> datetime | None:
        """Return when the pipeline's coordinator last ticked, accurate to TICK_NOTED_SECONDS; None if it never has."""
        with self._reading() as connection:
            return requests.ticked(connection, pipeline)

    def note_tick(self, pipeline: str, now: datetime) -> None:
        """Note that the pipeline's coordinator ticks, unless it noted a tick in the last TICK_NOTED_SECONDS."""
        with self._reading() as connection:
            noted = requests.is_noted(connection, pipeline, now)
        if noted:
            return
        with self._writing() as connection:
            requests.note_tick(connection, pipeline, now)

    # ---- Retention

    def expired(self, pipeline: str, kept: Kept) -> tuple[int, int]:
        """Count the pipeline's transactions and requests that `forget` would delete now. Transactions of a request follow it, so
        `forget` may delete more of them."""
        with self._reading() as connection:
            return (
                retention.count(connection, retention.expired_transactions(pipeline, kept)),
                retention.count(connection, retention.expired_requests(pipeline, kept)),
            )

    def forget(self, pipeline: str, kept: Kept) -> tuple[int, int]:
        """Delete the pipeline's ended transactions, with their slices and attempts, and ended requests that need not be kept, in
        small batches; return how many there were of each."""
        requested = retention.expired_requests(pipeline, kept)
        deleted_requests = 0
        while True:
            with self._writing() as connection:
                batch = retention.ids(connection, requested, _FORGOTTEN_AT_ONCE)
                deleted_requests += retention.delete_requests(connection, batch)
            if len(batch) < _FORGOTTEN_AT_ONCE:
                break
        # Found once, and not in the writing transactions: to rank a long history takes longer than to delete a part of it.
        with self._reading() as connection:
            expired = connection.execute(retention.expired_transactions(pipeline, kept)).scalars().all()
        deleted = 0
        for start in range(0, len(expired), _FORGOTTEN_AT_ONCE):
            with self._writing() as connection:
                deleted += retention.delete_transactions(connection, expired[start : start + _FORGOTTEN_AT_ONCE])
        return deleted, deleted_requests

    def pipelines(self, since: datetime) -> tuple[frozenset[str], frozenset[str]]:
        """Return all pipelines that have rows, and those of which something has happened at `since` or later."""
        with self._reading() as connection:
            return retention.pipelines(connection, since)

    def forget_pipeline(self, pipeline: str, *, dry_run: bool = False) -> tuple[int, int]:
        """Delete all rows of a pipeline that has no file any more; return how many transactions and requests there were."""
        if dry_run:
            with self._reading() as connection:
                return retention.count_of(connection, pipeline)
        with self._writing() as connection:
            return retention.delete_pipeline(connection, pipeline)

    # ---- Changes of columns that wait for approval

    def pending_change(self, table: str) -> PendingChange | None:
        """Return the change of columns for which the Hudi table at base path `table` waits, as it was noted last."""
        with self._reading() as connection:
            return pending_changes.of_table(connection, _base_path(table))

    def note_pending_change(self, change: PendingChange) -> None:
        with self._writing() as connection:
            pending_changes.note(connection, replace(change, base_path=_base_path(change.base_path)))

    def forget_pending_change(self, table: str) -> bool:
        """Forget it, because it was approved or is gone. Returns whether there was one."""
        with self._writing() as connection:
            return pending_changes.forget(connection, _base_path(table))

    # ---- Topics of templates

    def topics(self, template: str) -> tuple[SeenTopic, ...]:
        """Return the topics that have matched the pattern of the template with this `name`, oldest first."""
        with self._reading() as connection:
            return topics.of_template(connection, template)

    def templates(self) -> dict[str, tuple[SeenTopic, ...]]:
        """Return the topics of each template that has seen some, oldest first."""
        with self._reading() as connection:
            return topics.of_all(connection)

    def forget_template(self, template: str) -> None:
        """Forget all topics of a template, and that they were ever listed."""
        with self._writing() as connection:
            topics.forget_template(connection, template)

    def remember_topics(self, template: str, names: Iterable[str], now: datetime) -> tuple[str, ...]:
        """Remember the topics that match now, and return those that are new."""
        with self._writing() as connection:
            return topics.remember(connection, template, names, now)

    def forget_topic(self, template: str, name: str) -> bool:
        """Forget a topic, which then has no pipeline any more. Returns False if it is not known."""
        with self._writing() as connection:
            return topics.forget(connection, template, name)


def _of_base_path(request: Request) -> Request:
    return replace(request, table=_base_path(request.table))


def _base_path(table: str) -> str:
    """Normalize a base path: `/data/orders` and `/data/orders/` are the same table."""
    return table.rstrip("/") or table
