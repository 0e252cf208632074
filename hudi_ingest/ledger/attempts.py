"""Attempts at the slices of open transactions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timezone

import sqlalchemy as sa

from hudi_ingest.exceptions import Fenced
from hudi_ingest.ledger import counters, transactions
from hudi_ingest.ledger.database import Repository, close_afterwards
from hudi_ingest.ledger.tables import ATTEMPTS, AttemptRow, AttemptState, storable
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import SliceReport


class Attempts(Repository):
    """The attempts of transactions to write their slices."""

    def of_transaction(self, transaction_id: str) -> tuple[AttemptRow, ...]:
        """Return all attempts by topic, partition and number; empty for an unknown transaction."""
        with self._database.reading() as connection:
            statement = (
                sa.select(ATTEMPTS)
                .where(ATTEMPTS.c.transaction_id == transaction_id)
                .order_by(ATTEMPTS.c.topic, ATTEMPTS.c.partition, ATTEMPTS.c.attempt)
            )
            return tuple(map(AttemptRow.from_mapping, connection.execute(statement).mappings()))

    def counts(self, transaction_id: str) -> dict[TopicPartition, int]:
        """Return how many attempts were started at each slice; empty for an unknown transaction."""
        with self._database.reading() as connection:
            statement = (
                sa.select(ATTEMPTS.c.topic, ATTEMPTS.c.partition, sa.func.count())
                .where(ATTEMPTS.c.transaction_id == transaction_id)
                .group_by(ATTEMPTS.c.topic, ATTEMPTS.c.partition)
            )
            return {
                TopicPartition(topic, partition): count for topic, partition, count in connection.execute(statement)
            }

    def start(
        self, transaction_id: str, sources: Collection[TopicPartition], retry: int = 0
    ) -> dict[TopicPartition, int]:
        """Start an attempt at each slice and return their numbers: 0, 1, 2…, for a slice never the same twice.

        `retry`: how many attempts the orchestrator knows before this one; those that died before they started here count
        as failed, and their numbers are left out.

        Raises Fenced when the transaction is no longer open or is unknown (the ledger was wiped), ValueError when one of the
        sources is not in its plan.
        """
        with self._database.writing() as connection:
            # What follows may read and write for minutes.
            close_afterwards(connection)
            if not sources:
                # A transaction that only resets offsets reads nothing.
                return {}
            row = transactions.lock_open(connection, transaction_id, f"no attempt at {_shown(sources)} may start")
            planned = {slice_.source for slice_ in transactions.slices(connection, transaction_id)}
            unplanned = sorted(set(sources) - planned)
            if unplanned:
                raise ValueError(f"transaction {transaction_id} has no slice of {_shown(unplanned)} in its plan")
            # The transaction's row is locked, so no other attempt can take these numbers before the insert.
            newest = connection.execute(
                sa.select(ATTEMPTS.c.topic, ATTEMPTS.c.partition, sa.func.max(ATTEMPTS.c.attempt))
                .where(*_of_sources(transaction_id, sources))
                .group_by(ATTEMPTS.c.topic, ATTEMPTS.c.partition)
            )
            newest_attempts = {TopicPartition(topic, partition): attempt for topic, partition, attempt in newest}
            before = {source: newest_attempts.get(source, -1) for source in sources}
            numbers = {source: max(number + 1, retry) for source, number in before.items()}
            started_at = _now()
            connection.execute(
                ATTEMPTS.insert(),
                [
                    {
                        "transaction_id": transaction_id,
                        "topic": source.topic,
                        "partition": source.partition,
                        "attempt": attempt,
                        "state": AttemptState.RUNNING.value,
                        "started_at": started_at,
                    }
                    for source, attempt in numbers.items()
                ],
            )
            counts = {
                counters.RETRIES: sum(number - max(0, before[source]) for source, number in numbers.items()),
                counters.ATTEMPTS_FAILED: sum(number - before[source] - 1 for source, number in numbers.items()),
            }
            counters.add(connection, row.table, {name: count for name, count in counts.items() if count})
            return numbers

    def finish(self, transaction_id: str, reports: Collection[SliceReport]) -> None:
        """Record that the reports' attempts are done. Idempotent for equal reports.

        Raises Fenced, and records none, when the transaction is no longer open, or one of the attempts is unknown, has failed,
        or is done with another report: what it wrote must not be published.
        """
        with self._database.writing() as connection:
            row = transactions.find(connection, transaction_id, lock=True)
            statement = sa.select(ATTEMPTS).where(
                *_of_sources(transaction_id, [report.slice.source for report in reports])
            )
            recorded = {
                (attempt.source, attempt.attempt): attempt
                for attempt in map(AttemptRow.from_mapping, connection.execute(statement).mappings())
            }
            unrecorded = [
                (report, attempt)
                for report in reports
                if (attempt := recorded.get((report.slice.source, report.attempt))) is None or attempt.report != report
            ]
            for report, attempt in unrecorded:
                name = f"attempt {report.attempt} at {report.slice.source}"
                row = transactions.require_open(row, transaction_id, f"{name} does not count")
                if attempt is None:
                    raise Fenced(
                        f"{name} of transaction {transaction_id} was never started in this ledger. Start one and write the slice "
                        "again.",
                        transaction_id=transaction_id,
                        instant=row.instant,
                    )
                if attempt.state is not AttemptState.RUNNING:
                    raise Fenced(
                        f"{name} of transaction {transaction_id} is already recorded as {attempt.state.value} "
                        f"({attempt.error or 'with another report'}), so it cannot be recorded as done. Its files are not published; "
                        "start another attempt.",
                        transaction_id=transaction_id,
                        instant=row.instant,
                    )
            if unrecorded:
                transactions.end_as_done(connection, transaction_id, [report for report, _ in unrecorded])

    def fail(self, transaction_id: str, source: TopicPartition, attempt: int, error: str) -> None:
        """Record why a running attempt failed. Leaves an unknown or ended attempt unchanged, and never raises Fenced, which
        would hide the reported failure."""
        with self._database.writing() as connection:
            row = transactions.find(connection, transaction_id, lock=True)
            failed = connection.execute(
                ATTEMPTS.update()
                .where(
                    ATTEMPTS.c.transaction_id == transaction_id,
                    ATTEMPTS.c.topic == source.topic,
                    ATTEMPTS.c.partition == source.partition,
                    ATTEMPTS.c.attempt == attempt,
                    ATTEMPTS.c.state == AttemptState.RUNNING.value,
                )
                .values(ended_at=_now(), state=AttemptState.FAILED.value, error=storable(error))
            )
            if failed.rowcount and row is not None:
                counters.add(connection, row.table, {counters.ATTEMPTS_FAILED: 1})


def _of_sources(transaction_id: str, sources: Collection[TopicPartition]) -> tuple[sa.ColumnElement[bool], ...]:
    """Select the attempts at these partitions, and a few more if topics share partition numbers."""
    return (
        ATTEMPTS.c.transaction_id == transaction_id,
        ATTEMPTS.c.topic.in_({source.topic for source in sources}),
        ATTEMPTS.c.partition.in_({source.partition for source in sources}),
    )


def _shown(sources: Collection[TopicPartition]) -> str:
    first = min(sources)
    return str(first) if len(sources) == 1 else f"{first} and {len(sources) - 1} more"


def _now() -> datetime:
    return datetime.now(timezone.utc)
