"""Attempts at the slices of open transactions. Called inside the ledger's database transactions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa

from hudi_ingest.exceptions import Fenced
from hudi_ingest.ledger import transactions
from hudi_ingest.ledger.tables import ATTEMPTS, SLICES, AttemptRow, AttemptState, storable
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import SliceReport


def of_transaction(connection: sa.Connection, transaction_id: str) -> tuple[AttemptRow, ...]:
    statement = (
        sa.select(ATTEMPTS)
        .where(ATTEMPTS.c.transaction_id == transaction_id)
        .order_by(ATTEMPTS.c.topic, ATTEMPTS.c.partition, ATTEMPTS.c.attempt)
    )
    return tuple(map(AttemptRow.from_mapping, connection.execute(statement).mappings()))


def start(connection: sa.Connection, transaction_id: str, source: TopicPartition) -> int:
    transactions.lock_open(connection, transaction_id, f"no attempt at {source} may start")
    planned = connection.execute(
        sa.select(sa.literal(1)).where(
            SLICES.c.transaction_id == transaction_id,
            SLICES.c.topic == source.topic,
            SLICES.c.partition == source.partition,
        )
    ).first()
    if planned is None:
        raise ValueError(f"transaction {transaction_id} has no slice of {source} in its plan")
    # The transaction's row is locked, so no other attempt can take this number before the insert.
    attempt: int = connection.execute(
        sa.select(sa.func.coalesce(sa.func.max(ATTEMPTS.c.attempt) + 1, 0)).where(*_of(transaction_id, source))
    ).scalar_one()
    connection.execute(
        ATTEMPTS.insert().values(
            transaction_id=transaction_id,
            topic=source.topic,
            partition=source.partition,
            attempt=attempt,
            state=AttemptState.RUNNING.value,
            started_at=_now(),
        )
    )
    return attempt


def finish(connection: sa.Connection, transaction_id: str, attempt: int, report: SliceReport) -> None:
    source = report.slice.source
    name = f"attempt {attempt} at {source} of transaction {transaction_id}"
    row = transactions.find(connection, transaction_id, lock=True)
    rows = connection.execute(
        sa.select(ATTEMPTS).where(*_of(transaction_id, source), ATTEMPTS.c.attempt == attempt)
    ).mappings()
    recorded = next(map(AttemptRow.from_mapping, rows), None)
    if recorded is not None and recorded.report == report:
        return
    row = transactions.require_open(row, transaction_id, f"attempt {attempt} at {source} does not count")
    if recorded is None:
        raise Fenced(
            f"{name} was never started in this ledger. Start one and write the slice again.",
            transaction_id=transaction_id,
            instant=row.instant,
        )
    if recorded.state is not AttemptState.RUNNING:
        raise Fenced(
            f"{name} is already recorded as {recorded.state.value} ({recorded.error or 'with another report'}), so it "
            "cannot be recorded as done. Its files are not published; start another attempt.",
            transaction_id=transaction_id,
            instant=row.instant,
        )
    end_as_done(connection, transaction_id, attempt, report)


def fail(connection: sa.Connection, transaction_id: str, source: TopicPartition, attempt: int, error: str) -> None:
    transactions.find(connection, transaction_id, lock=True)
    values = {"state": AttemptState.FAILED.value, "error": storable(error)}
    _end(connection, transaction_id, source, attempt, values)


def end_as_done(connection: sa.Connection, transaction_id: str, attempt: int, report: SliceReport) -> None:
    """Record the report of an attempt if it is running."""
    values = {"state": AttemptState.DONE.value, "report": report.to_dict()}
    _end(connection, transaction_id, report.slice.source, attempt, values)


def fail_running(connection: sa.Connection, transaction_id: str, error: str) -> None:
    connection.execute(
        ATTEMPTS.update()
        .where(ATTEMPTS.c.transaction_id == transaction_id, ATTEMPTS.c.state == AttemptState.RUNNING.value)
        .values(state=AttemptState.FAILED.value, ended_at=_now(), error=storable(error))
    )


def _of(transaction_id: str, source: TopicPartition) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        ATTEMPTS.c.transaction_id == transaction_id,
        ATTEMPTS.c.topic == source.topic,
        ATTEMPTS.c.partition == source.partition,
    )


def _end(
    connection: sa.Connection, transaction_id: str, source: TopicPartition, attempt: int, values: Mapping[str, Any]
) -> None:
    """End one attempt if it is running."""
    connection.execute(
        ATTEMPTS.update()
        .where(
            *_of(transaction_id, source),
            ATTEMPTS.c.attempt == attempt,
            ATTEMPTS.c.state == AttemptState.RUNNING.value,
        )
        .values(ended_at=_now(), **values)
    )


def _now() -> datetime:
    return datetime.now(timezone.utc)
