"""Transactions and their planned slices: how they begin and how they end, and their attempts with them.

The Hudi table is the source of truth: a commit that is in the table is recorded even over an abort. The functions below the
repository run inside the database transactions of it and of its neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from hudi_ingest.exceptions import Fenced, TransactionInFlight
from hudi_ingest.ledger import counters
from hudi_ingest.ledger.database import Repository
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.ledger.tables import (
    ATTEMPTS,
    SLICES,
    TRANSACTIONS,
    AttemptState,
    TransactionRow,
    normal_base_path,
    storable,
)
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import CommitReceipt, SliceReport
from hudi_ingest.model.transaction import CommittedTransaction, TransactionState

_BEGIN_TRIES = 20


class Transactions(Repository):
    """`table` is a Hudi table's base path."""

    def open_in(self, table: str) -> TransactionRow | None:
        """Return the table's open transaction, None if there is none."""
        with self._database.reading() as connection:
            return _open_in(connection, normal_base_path(table))

    def find(self, transaction_id: str) -> TransactionRow | None:
        with self._database.reading() as connection:
            return find(connection, transaction_id)

    def history(self, pipeline: str, limit: int = 10) -> tuple[TransactionRow, ...]:
        """Return the pipeline's transactions of all states, newest first. Raises ValueError unless `limit` is positive."""
        if limit < 1:
            raise ValueError(f"the limit of a history must be at least 1, found {limit}")
        statement = (
            sa.select(TRANSACTIONS)
            .where(TRANSACTIONS.c.pipeline == pipeline)
            .order_by(TRANSACTIONS.c.began_at.desc(), TRANSACTIONS.c.epoch.desc())
            .limit(limit)
        )
        with self._database.reading() as connection:
            return tuple(map(TransactionRow.from_mapping, connection.execute(statement).mappings()))

    def newest_commit(self, pipeline: str) -> TransactionRow | None:
        """Return the pipeline's newest commit in whichever table, None if there is none."""
        statement = (
            sa.select(TRANSACTIONS)
            .where(TRANSACTIONS.c.pipeline == pipeline, TRANSACTIONS.c.state == TransactionState.COMMITTED.value)
            .order_by(TRANSACTIONS.c.began_at.desc(), TRANSACTIONS.c.epoch.desc())
            .limit(1)
        )
        with self._database.reading() as connection:
            found = connection.execute(statement).mappings().one_or_none()
        return TransactionRow.from_mapping(found) if found is not None else None

    def committed_instants(self, table: str, instants: Collection[str]) -> frozenset[str]:
        """Select the instants of this table's committed transactions."""
        statement = sa.select(TRANSACTIONS.c.instant).where(
            TRANSACTIONS.c.base_path == normal_base_path(table),
            TRANSACTIONS.c.state == TransactionState.COMMITTED.value,
            TRANSACTIONS.c.instant >= min(instants, default=""),
        )
        with self._database.reading() as connection:
            return frozenset(connection.execute(statement).scalars()) & frozenset(instants)

    def committed_rows(self, pipelines: Collection[str], since: datetime, seconds: int) -> dict[str, dict[int, int]]:
        """Return how many rows the pipelines have committed since then, by pipeline and by the number of the period of that many
        `seconds`, from 0. Transactions that began more than an hour before `since` are left out."""
        # The index is on the time at which they began.
        whole = TRANSACTIONS.c.began_at > since - timedelta(hours=1)
        period = (
            sa.cast(sa.extract("epoch", TRANSACTIONS.c.ended_at), sa.BigInteger) - int(since.timestamp())
        ) // seconds
        statement = (
            sa.select(
                TRANSACTIONS.c.pipeline,
                period.label("period"),
                sa.cast(sa.func.sum(TRANSACTIONS.c.rows), sa.BigInteger),
            )
            .where(
                TRANSACTIONS.c.pipeline.in_(pipelines), whole, TRANSACTIONS.c.ended_at >= since, TRANSACTIONS.c.rows > 0
            )
            .group_by(TRANSACTIONS.c.pipeline, "period")
        )
        found: dict[str, dict[int, int]] = {}
        with self._database.reading() as connection:
            for pipeline, number, rows in connection.execute(statement):
                found.setdefault(pipeline, {})[number] = rows
        return found

    def forget_other_tables(self, pipeline: str, table: str) -> int:
        """Delete the pipeline's transactions of all tables but `table`; return how many there were."""
        others = TRANSACTIONS.delete().where(
            TRANSACTIONS.c.pipeline == pipeline, TRANSACTIONS.c.base_path != normal_base_path(table)
        )
        with self._database.writing() as connection:
            return connection.execute(others).rowcount

    def slices(self, transaction_id: str) -> tuple[Slice, ...]:
        """Return the planned slices by topic and partition; empty for an unknown transaction."""
        with self._database.reading() as connection:
            return slices(connection, transaction_id)

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
        base_path = normal_base_path(table)
        for retries in reversed(range(_BEGIN_TRIES)):
            try:
                with self._database.writing() as connection:
                    return _begin(connection, plan, base_path, owner, deadline, above)
            except IntegrityError:
                # PostgreSQL: another begin came between our check and our insert. The next check sees it.
                if not retries:
                    raise
        raise AssertionError("unreachable")

    def record_instant(self, transaction_id: str, instant: str) -> None:
        """Record the Hudi instant of an open transaction. Idempotent.

        Raises Fenced when the transaction is not open, or has another instant.
        """
        with self._database.writing() as connection:
            row = lock_open(connection, transaction_id, f"instant {instant} cannot be recorded")
            if row.instant not in (None, instant):
                raise Fenced(
                    f"transaction {transaction_id} already has instant {row.instant}, so {instant} cannot be recorded: two "
                    "begins ran for it. Abort it; the next transaction reads the same offsets.",
                    transaction_id=transaction_id,
                    instant=row.instant,
                )
            _update(connection, transaction_id, {"instant": instant})

    def mark_committed(self, receipt: CommitReceipt) -> bool:
        """Record a commit that is in the table, even over an abort: the table is the source of truth. Idempotent.

        Returns False, and records nothing, when this ledger does not know the transaction (it was wiped). Raises Fenced
        when the transaction is recorded as committed by another instant.
        """
        figures = {"rows": receipt.rows, "files": receipt.files, "size_bytes": receipt.size_bytes}
        with self._database.writing() as connection:
            return _commit(
                connection, receipt.plan.transaction_id, receipt.instant, figures, receipt.reports, receipt.seconds
            )

    def mark_committed_as_found(self, transaction_id: str, instant: str) -> bool:
        """Record a commit that was found in the table's timeline and whose receipt is lost; see `mark_committed`. Returns whether
        this call did: of several at once, one does.

        Rows, files and size stay None until `mark_committed` sets them.
        """
        with self._database.writing() as connection:
            row = find(connection, transaction_id, lock=True)
            known = _commit(connection, transaction_id, instant, {}, ())
            return known and row is not None and row.state is not TransactionState.COMMITTED

    def restore_committed(self, found: CommittedTransaction, *, table: str, owner: Owner, deadline: datetime) -> bool:
        """Make the ledger agree with the table about a committed transaction; False when it already does.

        The caller holds the table's lock. A transaction unknown to this ledger becomes `owner`'s. Raises Fenced
        when the transaction is recorded as committed by another instant.
        """
        row = self.find(found.plan.transaction_id)
        if (
            row is not None
            and row.state is TransactionState.COMMITTED
            and row.instant == found.instant
            and row.has_receipt
        ):
            return False
        figures = {"rows": found.rows, "files": found.files, "size_bytes": found.size_bytes}
        with self._database.writing() as connection:
            if row is not None:
                return _commit(connection, found.plan.transaction_id, found.instant, figures, ())
            values = {
                "state": TransactionState.COMMITTED.value,
                "instant": found.instant,
                "began_at": found.began_at,
                "ended_at": found.ended_at,
                **figures,
            }
            _add(connection, found.plan, normal_base_path(table), owner, deadline, 0, values)
            return True

    def mark_aborted(self, transaction_id: str, reason: str) -> bool:
        """Record that an open transaction was rolled back. An aborted one keeps its first reason.

        Returns False when this ledger does not know the transaction. Raises Fenced when it is committed: that is final.
        """
        with self._database.writing() as connection:
            row = find(connection, transaction_id, lock=True)
            if row is None:
                return False
            if row.state is TransactionState.COMMITTED:
                raise Fenced(
                    f"transaction {transaction_id} of table {row.table} was committed by instant {row.instant} at "
                    f"{_shown_time(row.ended_at)} and cannot be aborted ({reason}). Its rows are in the table; to "
                    "replace them, replay the offsets.",
                    transaction_id=transaction_id,
                    instant=row.instant,
                )
            if row.state is TransactionState.OPEN:
                _update(
                    connection,
                    transaction_id,
                    {
                        "state": TransactionState.ABORTED.value,
                        "ended_at": datetime.now(timezone.utc),
                        "reason": storable(reason),
                    },
                )
                counters.add(connection, row.table, {counters.ABORTED: 1})
                _fail_running(connection, transaction_id, f"the transaction was aborted: {reason}")
            return True

    def mark_lost(self, transaction_id: str, reason: str) -> bool:
        """Record as aborted a transaction whose commit a power cut destroyed, even if it is recorded as committed: the table is
        the source of truth. Returns False when this ledger does not know the transaction."""
        with self._database.writing() as connection:
            if find(connection, transaction_id, lock=True) is None:
                return False
            values = {
                "state": TransactionState.ABORTED.value,
                "ended_at": datetime.now(timezone.utc),
                "reason": storable(reason),
                **dict.fromkeys(("rows", "files", "size_bytes")),
            }
            _update(connection, transaction_id, values)
            _fail_running(connection, transaction_id, f"the commit was lost: {reason}")
            return True


def find(connection: sa.Connection, transaction_id: str, *, lock: bool = False) -> TransactionRow | None:
    """Read a transaction; `lock` keeps its other writers out until the end of the database transaction.

    SQLite has no row locks and needs none: its writers exclude one another from BEGIN IMMEDIATE on.
    """
    statement = sa.select(TRANSACTIONS).where(TRANSACTIONS.c.transaction_id == transaction_id)
    if lock:
        statement = statement.with_for_update(key_share=True)
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else TransactionRow.from_mapping(row)


def slices(connection: sa.Connection, transaction_id: str) -> tuple[Slice, ...]:
    found = connection.execute(
        sa.select(SLICES.c.topic, SLICES.c.partition, SLICES.c.start_offset, SLICES.c.end_offset)
        .where(SLICES.c.transaction_id == transaction_id)
        .order_by(SLICES.c.topic, SLICES.c.partition)
    )
    return tuple(Slice(*row) for row in found)


def lock_open(connection: sa.Connection, transaction_id: str, consequence: str) -> TransactionRow:
    """Read an open transaction and keep its other writers out. Raises Fenced with the consequence when it is not open."""
    return require_open(find(connection, transaction_id, lock=True), transaction_id, consequence)


def require_open(row: TransactionRow | None, transaction_id: str, consequence: str) -> TransactionRow:
    if row is not None and row.state is TransactionState.OPEN:
        return row
    if row is None:
        state = "is unknown to this ledger (was it wiped, or is this a different one?)"
    else:
        state = f"of table {row.table} was {row.state.value} at {_shown_time(row.ended_at)}"
        state += f" ({row.reason})" if row.reason else ""
    raise Fenced(
        f"transaction {transaction_id} {state}, so {consequence}. Stop this run; the next transaction reads what is not "
        "committed.",
        transaction_id=transaction_id,
        instant=row.instant if row else None,
    )


def end_as_done(connection: sa.Connection, transaction_id: str, reports: Iterable[SliceReport]) -> None:
    """Record the reports of those attempts that are running."""
    statement = (
        ATTEMPTS.update()
        .where(
            ATTEMPTS.c.transaction_id == transaction_id,
            ATTEMPTS.c.topic == sa.bindparam("of_topic"),
            ATTEMPTS.c.partition == sa.bindparam("of_partition"),
            ATTEMPTS.c.attempt == sa.bindparam("of_attempt"),
            ATTEMPTS.c.state == AttemptState.RUNNING.value,
        )
        .values(
            state=AttemptState.DONE.value,
            ended_at=datetime.now(timezone.utc),
            report=sa.bindparam("its_report", type_=ATTEMPTS.c.report.type),
        )
    )
    values = [
        {
            "of_topic": report.slice.topic,
            "of_partition": report.slice.partition,
            "of_attempt": report.attempt,
            "its_report": report.to_dict(),
        }
        for report in reports
    ]
    if values:
        connection.execute(statement, values)


def _open_in(connection: sa.Connection, base_path: str) -> TransactionRow | None:
    statement = sa.select(TRANSACTIONS).where(
        TRANSACTIONS.c.base_path == base_path, TRANSACTIONS.c.state == TransactionState.OPEN.value
    )
    row = connection.execute(statement).mappings().one_or_none()
    return None if row is None else TransactionRow.from_mapping(row)


def _begin(
    connection: sa.Connection, plan: TransactionPlan, base_path: str, owner: Owner, deadline: datetime, above: int
) -> int:
    blocking = _open_in(connection, base_path)
    if blocking is not None:
        raise TransactionInFlight(
            f"table {base_path}: transaction {plan.transaction_id} cannot begin, transaction {blocking.transaction_id} of "
            f"pipeline {blocking.pipeline} is open, owned by {blocking.owner}, since "
            f"{_shown_time(blocking.began_at)} until {_shown_time(blocking.deadline)} at the latest. Only one transaction "
            "per table runs at a time: wait for it, or end its owner, and the next begin recovers."
        )
    used = find(connection, plan.transaction_id)
    if used is not None:
        raise Fenced(
            f"transaction id {plan.transaction_id} was used before: it has been {used.state.value} on table {used.table} since "
            f"{_shown_time(used.ended_at or used.began_at)}. Plan a new transaction; it reads what is not committed.",
            transaction_id=used.transaction_id,
            instant=used.instant,
        )
    values = {"state": TransactionState.OPEN.value, "began_at": datetime.now(timezone.utc)}
    return _add(connection, plan, base_path, owner, deadline, above, values)


def _add(
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


def _commit(
    connection: sa.Connection,
    transaction_id: str,
    instant: str,
    figures: Mapping[str, int],
    reports: Iterable[SliceReport],
    seconds: Mapping[str, float] | None = None,
) -> bool:
    """Record a commit with its figures (rows, files, size_bytes) and seconds per phase; returns False if the transaction is
    unknown."""
    row = find(connection, transaction_id, lock=True)
    if row is None:
        return False
    values: dict[str, Any] = dict(figures) if not row.has_receipt else {}
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
        _update(connection, transaction_id, values)
    running = _running(connection, transaction_id)
    if running:
        # Those that the commit published were done, even if the ledger never recorded that.
        published = [report for report in reports if (report.slice.source, report.attempt) in running]
        end_as_done(connection, transaction_id, published)
        _fail_running(connection, transaction_id, "the transaction was committed without this attempt")
    return True


def _running(connection: sa.Connection, transaction_id: str) -> set[tuple[TopicPartition, int]]:
    """Return the slices' sources and the numbers of the attempts that run."""
    statement = sa.select(ATTEMPTS.c.topic, ATTEMPTS.c.partition, ATTEMPTS.c.attempt).where(
        ATTEMPTS.c.transaction_id == transaction_id, ATTEMPTS.c.state == AttemptState.RUNNING.value
    )
    return {(TopicPartition(topic, partition), attempt) for topic, partition, attempt in connection.execute(statement)}


def _fail_running(connection: sa.Connection, transaction_id: str, error: str) -> None:
    connection.execute(
        ATTEMPTS.update()
        .where(ATTEMPTS.c.transaction_id == transaction_id, ATTEMPTS.c.state == AttemptState.RUNNING.value)
        .values(state=AttemptState.FAILED.value, ended_at=datetime.now(timezone.utc), error=storable(error))
    )


def _update(connection: sa.Connection, transaction_id: str, values: Mapping[str, Any]) -> None:
    connection.execute(TRANSACTIONS.update().where(TRANSACTIONS.c.transaction_id == transaction_id).values(**values))


def _shown_time(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
