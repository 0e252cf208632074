"""Which ended transactions and requests may be forgotten, and their deletion. Called inside the ledger's database transactions.

A ledger may be wiped at any time, so no deletion here can cost or repeat a row of the table. What is kept nevertheless is what
people, recovery and the work in progress read: open transactions, those of requests that are not forgotten themselves (a
request's progress is derived from them), active requests, and the newest of both. So the highest epoch stays, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from hudi_ingest.ledger.requests import RequestState
from hudi_ingest.ledger.tables import COORDINATORS, COUNTERS, PENDING_CHANGES, REQUESTS, SERVICE_RUNS, TRANSACTIONS
from hudi_ingest.model.transaction import TransactionState


@dataclass(frozen=True, slots=True)
class Kept:
    """Of each pipeline the `least` newest rows are kept, and of the others those that ended at `since` or later and are among
    the `most` newest."""

    since: datetime
    most: int
    least: int


def expired_transactions(pipeline: str, kept: Kept) -> sa.Select[tuple[str]]:
    newest_first = sa.func.row_number().over(order_by=(TRANSACTIONS.c.began_at.desc(), TRANSACTIONS.c.epoch.desc()))
    ranked = (
        sa.select(
            TRANSACTIONS.c.transaction_id,
            TRANSACTIONS.c.state,
            TRANSACTIONS.c.ended_at,
            TRANSACTIONS.c.request_id,
            newest_first.label("place"),
        )
        .where(TRANSACTIONS.c.pipeline == pipeline)
        .subquery()
    )
    of_request = sa.exists().where(REQUESTS.c.request_id == ranked.c.request_id)
    return sa.select(ranked.c.transaction_id).where(
        ranked.c.state != TransactionState.OPEN.value,
        ranked.c.place > kept.least,
        sa.or_(ranked.c.place > kept.most, ranked.c.ended_at < kept.since),
        ~of_request,
    )


def expired_requests(pipeline: str, kept: Kept) -> sa.Select[tuple[str]]:
    newest_first = sa.func.row_number().over(order_by=(REQUESTS.c.filed_at.desc(), REQUESTS.c.request_id))
    ranked = (
        sa.select(REQUESTS.c.request_id, REQUESTS.c.state, REQUESTS.c.ended_at, newest_first.label("place"))
        .where(REQUESTS.c.pipeline == pipeline)
        .subquery()
    )
    return sa.select(ranked.c.request_id).where(
        ranked.c.state != RequestState.ACTIVE.value,
        ranked.c.place > kept.least,
        sa.or_(ranked.c.place > kept.most, ranked.c.ended_at < kept.since),
    )


def pipelines(connection: sa.Connection, since: datetime) -> tuple[frozenset[str], frozenset[str]]:
    """Return all pipelines that have rows, and those of which something has begun, ended, ticked or been asked for at `since` or
    later."""
    last = (
        (TRANSACTIONS.c.pipeline, TRANSACTIONS.c.began_at),
        (TRANSACTIONS.c.pipeline, TRANSACTIONS.c.deadline),
        (TRANSACTIONS.c.pipeline, TRANSACTIONS.c.ended_at),
        (REQUESTS.c.pipeline, REQUESTS.c.filed_at),
        (REQUESTS.c.pipeline, REQUESTS.c.ended_at),
        (COORDINATORS.c.pipeline, COORDINATORS.c.ticked_at),
        (SERVICE_RUNS.c.pipeline, SERVICE_RUNS.c.began_at),
        (PENDING_CHANGES.c.pipeline, PENDING_CHANGES.c.found_at),
    )
    known, active = set[str](), set[str]()
    for pipeline, at in last:
        known |= {*connection.execute(sa.select(pipeline).distinct()).scalars()}
        active |= {*connection.execute(sa.select(pipeline).where(at >= since).distinct()).scalars()}
    # Housekeeping's own runs are of no pipeline.
    return frozenset(known - {""}), frozenset(active)


def delete_pipeline(connection: sa.Connection, pipeline: str) -> tuple[int, int]:
    """Delete all rows of a pipeline, also the counters of its tables unless another one has written to them; return how many
    transactions and requests there were."""
    own = [sa.select(table.c.base_path).where(table.c.pipeline == pipeline) for table in (TRANSACTIONS, SERVICE_RUNS)]
    paths = {*connection.execute(sa.union(*own)).scalars()}
    others = sa.select(TRANSACTIONS.c.base_path).where(TRANSACTIONS.c.pipeline != pipeline).distinct()
    paths -= {*connection.execute(others).scalars()}
    connection.execute(COUNTERS.delete().where(COUNTERS.c.base_path.in_(paths)))
    for table in (COORDINATORS, SERVICE_RUNS, PENDING_CHANGES):
        connection.execute(table.delete().where(table.c.pipeline == pipeline))
    requests = connection.execute(REQUESTS.delete().where(REQUESTS.c.pipeline == pipeline)).rowcount
    transactions = connection.execute(TRANSACTIONS.delete().where(TRANSACTIONS.c.pipeline == pipeline)).rowcount
    return transactions, requests


def count_of(connection: sa.Connection, pipeline: str) -> tuple[int, int]:
    """Return how many transactions and requests of the pipeline there are."""
    transactions, requests = (
        sa.select(sa.func.count()).select_from(table).where(table.c.pipeline == pipeline)
        for table in (TRANSACTIONS, REQUESTS)
    )
    return int(connection.execute(transactions).scalar_one()), int(connection.execute(requests).scalar_one())


def count(connection: sa.Connection, expired: sa.Select[tuple[str]]) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(expired.subquery())).scalar_one())


def ids(connection: sa.Connection, expired: sa.Select[tuple[str]], most: int) -> Sequence[str]:
    return connection.execute(expired.limit(most)).scalars().all()


def delete_transactions(connection: sa.Connection, transaction_ids: Sequence[str]) -> int:
    """Delete them with their slices and attempts, which cascade. Leaves a transaction that has been opened again alone."""
    deleted = connection.execute(
        TRANSACTIONS.delete().where(
            TRANSACTIONS.c.transaction_id.in_(transaction_ids), TRANSACTIONS.c.state != TransactionState.OPEN.value
        )
    )
    return deleted.rowcount


def delete_requests(connection: sa.Connection, request_ids: Sequence[str]) -> int:
    deleted = connection.execute(
        REQUESTS.delete().where(REQUESTS.c.request_id.in_(request_ids), REQUESTS.c.state != RequestState.ACTIVE.value)
    )
    return deleted.rowcount
