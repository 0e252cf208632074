"""Transactions and their planned slices: reading, beginning and changing them. Called inside the ledger's database transactions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa

from hudi_ingest.exceptions import Fenced, TransactionInFlight
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.tables import SLICES, TRANSACTIONS, SliceRow, TransactionRow
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.transaction import TransactionState


def open_in(connection: sa.Connection, base_path: str) -> TransactionRow | None:
    statement = sa.select(TRANSACTIONS).where(
        TRANSACTIONS.c.base_path == base_path, TRANSACTIONS.c.state == TransactionState.OPEN.value
    )
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else TransactionRow.from_mapping(row)


def find(connection: sa.Connection, transaction_id: str, *, lock: bool = False) -> TransactionRow | None:
    """Read a transaction; `lock` keeps its other writers out until the end of the database transaction.

    SQLite has no row locks and needs none: its writers exclude one another from BEGIN IMMEDIATE on.
    """
    statement = sa.select(TRANSACTIONS).where(TRANSACTIONS.c.transaction_id == transaction_id)
    if lock:
        statement = statement.with_for_update(key_share=True)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else TransactionRow.from_mapping(row)


def history(connection: sa.Connection, pipeline: str, limit: int) -> tuple[TransactionRow, ...]:
    """Read the pipeline's transactions of all states, newest first."""
    statement = (
        sa.select(TRANSACTIONS)
        .where(TRANSACTIONS.c.pipeline == pipeline)
        .order_by(TRANSACTIONS.c.began_at.desc(), TRANSACTIONS.c.epoch.desc())
        .limit(limit)
    )
    return tuple(map(TransactionRow.from_mapping, connection.execute(statement).mappings()))


def newest_commit(connection: sa.Connection, pipeline: str) -> TransactionRow | None:
    """Read the committed transaction of the pipeline that began last, whichever table it is in."""
    statement = (
        sa.select(TRANSACTIONS)
        .where(TRANSACTIONS.c.pipeline == pipeline, TRANSACTIONS.c.state == TransactionState.COMMITTED.value)
        .order_by(TRANSACTIONS.c.began_at.desc(), TRANSACTIONS.c.epoch.desc())
        .limit(1)
    )
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else TransactionRow.from_mapping(row)


def forget_other_tables(connection: sa.Connection, pipeline: str, base_path: str) -> int:
    """Delete the pipeline's transactions of all tables but this one; return how many there were."""
    others = TRANSACTIONS.delete().where(TRANSACTIONS.c.pipeline == pipeline, TRANSACTIONS.c.base_path != base_path)
    return connection.execute(others).rowcount


def slices(connection: sa.Connection, transaction_id: str) -> tuple[SliceRow, ...]:
    statement = (
        sa.select(SLICES).where(SLICES.c.transaction_id == transaction_id).order_by(SLICES.c.topic, SLICES.c.partition)
    )
    return tuple(map(SliceRow.from_mapping, connection.execute(statement).mappings()))


def begin(
    connection: sa.Connection, plan: TransactionPlan, base_path: str, owner: Owner, deadline: datetime, above: int
) -> int:
    blocking = open_in(connection, base_path)
    if blocking is not None:
        raise TransactionInFlight(
            f"table {base_path}: transaction {plan.transaction_id} cannot begin, transaction {blocking.transaction_id} of "
            f"pipeline {blocking.pipeline} is open, owned by {blocking.owner}, since "
            f"{shown_time(blocking.began_at)} until {shown_time(blocking.deadline)} at the latest. Only one transaction "
            "per table runs at a time: wait for it, or end its owner, and the next begin recovers."
        )
    used = find(connection, plan.transaction_id)
    if used is not None:
        raise Fenced(
            f"transaction id {plan.transaction_id} was used before: it has been {used.state.value} on table {used.table} since "
            f"{shown_time(used.ended_at or used.began_at)}. Plan a new transaction; it reads what is not committed.",
            transaction_id=used.transaction_id,
            instant=used.instant,
        )
    values = {"state": TransactionState.OPEN.value, "began_at": datetime.now(timezone.utc)}
    return add(connection, plan, base_path, owner, deadline, above, values)


def add(
    connection: sa.Connection,
    plan: TransactionPlan,
    base_path: str,
    owner: Owner,
    deadline: datetime,
    above: int,
    values: Mapping[str, Any],
) -> int:
    last: int = connection.execute(
        sa.select(sa.func.coalesce(sa.func.max(TRANSACTIONS.c.epoch), 0)).where(TRANSACTIONS.c.base_path == base_path)
    ).scalar_one()
    epoch = max(last, above) + 1
    connection.execute(
        TRANSACTIONS.insert().values(
            transaction_id=plan.transaction_id,
            pipeline=plan.pipeline,
            base_path=base_path,
            sequence=plan.sequence,
            epoch=epoch,
            owner=str(owner),
            deadline=deadline,
            resets=[reset.to_dict() for reset in plan.resets] or None,
            request_id=plan.request or None,
            **values,
        )
    )
    if plan.slices:
        connection.execute(
            SLICES.insert(),
            [
                {
                    "transaction_id": plan.transaction_id,
                    "topic": planned.topic,
                    "partition": planned.partition,
                    "start_offset": planned.start,
                    "end_offset": planned.end,
                }
                for planned in plan.slices
            ],
        )
    return epoch


def record_instant(connection: sa.Connection, transaction_id: str, instant: str) -> None:
    row = lock_open(connection, transaction_id, f"instant {instant} cannot be recorded")
    if row.instant not in (None, instant):
        raise Fenced(
            f"transaction {transaction_id} already has instant {row.instant}, so {instant} cannot be recorded: two "
            "begins ran for it. Abort it; the next transaction reads the same offsets.",
            transaction_id=transaction_id,
            instant=row.instant,
        )
    update(connection, transaction_id, {"instant": instant})


def lock_open(connection: sa.Connection, transaction_id: str, consequence: str) -> TransactionRow:
    """Read an open transaction and keep its other writers out. Raises Fenced with the consequence when it is not open."""
    return require_open(find(connection, transaction_id, lock=True), transaction_id, consequence)


def require_open(row: TransactionRow | None, transaction_id: str, consequence: str) -> TransactionRow:
    if row is not None and row.state is TransactionState.OPEN:
        return row
    if row is None:
        state = "is unknown to this ledger (was it wiped, or is this a different one?)"
    else:
        state = f"of table {row.table} was {row.state.value} at {shown_time(row.ended_at)}"
        state += f" ({row.reason})" if row.reason else ""
    raise Fenced(
        f"transaction {transaction_id} {state}, so {consequence}. Stop this run; the next transaction reads what is not "
        "committed.",
        transaction_id=transaction_id,
        instant=row.instant if row else None,
    )


def update(connection: sa.Connection, transaction_id: str, values: Mapping[str, Any]) -> None:
    connection.execute(TRANSACTIONS.update().where(TRANSACTIONS.c.transaction_id == transaction_id).values(**values))


def shown_time(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
