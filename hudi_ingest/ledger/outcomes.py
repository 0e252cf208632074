"""How transactions end, and their attempts with them: committed or aborted. Called inside the ledger's database transactions.

The Hudi table is the source of truth: a commit that is in the table is recorded even over an abort.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa

from hudi_ingest.exceptions import Fenced
from hudi_ingest.ledger import attempts, counters, transactions
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.tables import storable
from hudi_ingest.ledger.transactions import shown_time
from hudi_ingest.model.report import SliceReport
from hudi_ingest.model.transaction import CommittedTransaction, TransactionState


def commit(
    connection: sa.Connection,
    transaction_id: str,
    instant: str,
    figures: Mapping[str, int],
    reports: Iterable[SliceReport],
    seconds: Mapping[str, float] | None = None,
) -> bool:
    """Record a commit with its figures (rows, files, size_bytes) and seconds per phase; returns False if the transaction is
    unknown."""
    row = transactions.find(connection, transaction_id, lock=True)
    if row is None:
        return False
    values: dict[str, Any] = dict(figures) if row.rows is None else {}
    if values:
        # Once, because they come with the figures.
        counters.add(connection, row.table, counters.timed(seconds or {}))
    if row.state is TransactionState.COMMITTED:
        if row.instant != instant:
            raise Fenced(
                f"transaction {transaction_id} of table {row.table} is recorded as committed by instant "
                f"{row.instant} and now reported as committed by {instant}. Check both in the table's timeline: "
                "if both are completed, its rows are in the table twice.",
                transaction_id=transaction_id,
                instant=instant,
            )
    else:
        values |= {
            "state": TransactionState.COMMITTED.value,
            "instant": instant,
            "ended_at": datetime.now(timezone.utc),
            "reason": None,
        }
    if values:
        transactions.update(connection, transaction_id, values)
    running = attempts.running(connection, transaction_id)
    if running:
        # Those that the commit published were done, even if the ledger never recorded that.
        published = [report for report in reports if (report.slice.source, report.attempt) in running]
        attempts.end_as_done(connection, transaction_id, published)
        attempts.fail_running(connection, transaction_id, "the transaction was committed without this attempt")
    return True


def add_committed(
    connection: sa.Connection, committed: CommittedTransaction, base_path: str, owner: Owner, deadline: datetime
) -> None:
    """Add a committed transaction that this ledger does not know."""
    values = {
        "state": TransactionState.COMMITTED.value,
        "instant": committed.instant,
        "began_at": committed.began_at,
        "ended_at": committed.ended_at,
        "rows": committed.rows,
        "files": committed.files,
        "size_bytes": committed.size_bytes,
    }
    transactions.add(connection, committed.plan, base_path, owner, deadline, 0, values)


def abort(connection: sa.Connection, transaction_id: str, reason: str) -> bool:
    """Record a rollback; returns False if the transaction is unknown."""
    row = transactions.find(connection, transaction_id, lock=True)
    if row is None:
        return False
    if row.state is TransactionState.COMMITTED:
        raise Fenced(
            f"transaction {transaction_id} of table {row.table} was committed by instant {row.instant} at "
            f"{shown_time(row.ended_at)} and cannot be aborted ({reason}). Its rows are in the table; to "
            "replace them, replay the offsets.",
            transaction_id=transaction_id,
            instant=row.instant,
        )
    if row.state is TransactionState.OPEN:
        transactions.update(
            connection,
            transaction_id,
            {
                "state": TransactionState.ABORTED.value,
                "ended_at": datetime.now(timezone.utc),
                "reason": storable(reason),
            },
        )
        counters.add(connection, row.table, {counters.ABORTED: 1})
        attempts.fail_running(connection, transaction_id, f"the transaction was aborted: {reason}")
    return True


def lose(connection: sa.Connection, transaction_id: str, reason: str) -> bool:
    """Record that a commit is no longer in the table, whatever was recorded; returns False if the transaction is unknown."""
    if transactions.find(connection, transaction_id, lock=True) is None:
        return False
    values = {
        "state": TransactionState.ABORTED.value,
        "ended_at": datetime.now(timezone.utc),
        "reason": storable(reason),
        **dict.fromkeys(("rows", "files", "size_bytes")),
    }
    transactions.update(connection, transaction_id, values)
    attempts.fail_running(connection, transaction_id, f"the commit was lost: {reason}")
    return True
