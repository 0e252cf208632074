"""Which ended transactions and requests may be forgotten, and their deletion.

A ledger may be wiped at any time, so no deletion here can cost or repeat a row of the table. What is kept nevertheless is what
people, recovery and the work in progress read: open transactions, those of requests that are not forgotten themselves (a
request's progress is derived from them), active requests, and the newest of both. So the highest epoch stays, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from hudi_ingest.ledger.database import Repository
from hudi_ingest.ledger.requests import RequestState
from hudi_ingest.ledger.tables import (
    COORDINATORS,
    COUNTERS,
    PENDING_CHANGES,
    REQUESTS,
    SERVICE_RUNS,
    SWITCHES,
    TRANSACTIONS,
)
from hudi_ingest.model.transaction import TransactionState

_FORGOTTEN_AT_ONCE = 500
"""A batch takes some milliseconds, for which other writers of an SQLite ledger wait."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How much housekeeping keeps: the `least` newest, and of the others those since `since` that are among the `most` newest. In the
    ledger they are counted for each pipeline and go by their end; Dagster's runs for each pipeline and kind, by their beginning; its
    events for each asset and kind, and each check."""

    since: datetime
    most: int
    least: int


class Retention(Repository):
    """Deletion of expired transactions, attempts and requests."""

    def expired(self, pipeline: str, kept: Kept) -> tuple[int, int]:
        """Count the pipeline's transactions and requests that `forget` would delete now. Transactions of a request follow it, so
        `forget` may delete more of them."""
        with self._database.reading() as connection:
            return (
                _count(connection, _expired_transactions(pipeline, kept).subquery()),
                _count(connection, _expired_requests(pipeline, kept).subquery()),
            )

    def forget(self, pipeline: str, kept: Kept) -> tuple[int, int]:
        """Delete the pipeline's ended transactions, with their slices and attempts, and ended requests that need not be kept, in
        small batches; return how many there were of each."""
        requested = _expired_requests(pipeline, kept).limit(_FORGOTTEN_AT_ONCE)
        deleted_requests = 0
        while True:
            with self._database.writing() as connection:
                batch = connection.execute(requested).scalars().all()
                deleted_requests += connection.execute(
                    REQUESTS.delete().where(
                        REQUESTS.c.request_id.in_(batch), REQUESTS.c.state != RequestState.ACTIVE.value
                    )
                ).rowcount
            if len(batch) < _FORGOTTEN_AT_ONCE:
                break
        # Found once, and not in the writing transactions: to rank a long history takes longer than to delete a part of it.
        with self._database.reading() as connection:
            expired = connection.execute(_expired_transactions(pipeline, kept)).scalars().all()
        deleted = 0
        for start in range(0, len(expired), _FORGOTTEN_AT_ONCE):
            # Slices and attempts cascade. A transaction that has been opened again stays.
            ended = TRANSACTIONS.delete().where(
                TRANSACTIONS.c.transaction_id.in_(expired[start : start + _FORGOTTEN_AT_ONCE]),
                TRANSACTIONS.c.state != TransactionState.OPEN.value,
            )
            with self._database.writing() as connection:
                deleted += connection.execute(ended).rowcount
        return deleted, deleted_requests

    def pipelines(self, since: datetime) -> tuple[frozenset[str], frozenset[str]]:
        """Return all pipelines that have rows, and those of which something has begun, ended, ticked or been asked for at `since`
        or later."""
        with self._database.reading() as connection:
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

    def forget_pipeline(self, pipeline: str, *, dry_run: bool = False) -> tuple[int, int]:
        """Delete all rows of a pipeline that has no file any more, also the counters of its tables unless another pipeline has
        written to them; return how many transactions and requests there were."""
        if dry_run:
            with self._database.reading() as connection:
                transactions, requests = (
                    _count(connection, sa.select(table.c.pipeline).where(table.c.pipeline == pipeline).subquery())
                    for table in (TRANSACTIONS, REQUESTS)
                )
            return transactions, requests
        with self._database.writing() as connection:
            own = [
                sa.select(table.c.base_path).where(table.c.pipeline == pipeline)
                for table in (TRANSACTIONS, SERVICE_RUNS)
            ]
            paths = {*connection.execute(sa.union(*own)).scalars()}
            others = sa.select(TRANSACTIONS.c.base_path).where(TRANSACTIONS.c.pipeline != pipeline).distinct()
            paths -= {*connection.execute(others).scalars()}
            connection.execute(COUNTERS.delete().where(COUNTERS.c.base_path.in_(paths)))
            for table in (COORDINATORS, SWITCHES, SERVICE_RUNS, PENDING_CHANGES):
                connection.execute(table.delete().where(table.c.pipeline == pipeline))
            requests = connection.execute(REQUESTS.delete().where(REQUESTS.c.pipeline == pipeline)).rowcount
            transactions = connection.execute(TRANSACTIONS.delete().where(TRANSACTIONS.c.pipeline == pipeline)).rowcount
            return transactions, requests


def _count(connection: sa.Connection, rows: sa.Subquery) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(rows)).scalar_one())


def _expired_transactions(pipeline: str, kept: Kept) -> sa.Select[tuple[str]]:
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


def _expired_requests(pipeline: str, kept: Kept) -> sa.Select[tuple[str]]:
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
