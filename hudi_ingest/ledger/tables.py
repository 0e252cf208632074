"""The ledger's SQL tables and the frozen rows read from them.

Valid on SQLite and PostgreSQL. Every name starts with `ingest_`, so a ledger may share a database with others (Dagster's
storage has an `alembic_version` of its own). A change here needs a new file in `migrations/versions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any

import sqlalchemy as sa

from hudi_ingest.ledger.owner import Owner, is_dead
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import OffsetLoss
from hudi_ingest.model.report import SliceReport
from hudi_ingest.model.transaction import TransactionState

REVISION_TABLE = "ingest_ledger_revision"
"""The table in which Alembic keeps the ledger's revision."""
_TEXT_LIMIT = 20_000
"""Maximum length of a stored error or reason, in characters."""


class AttemptState(str, Enum):
    """States of one attempt at a slice."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class UtcTime(sa.types.TypeDecorator[datetime]):
    """Timezone-aware UTC in and out; SQLite has no time zones and stores the UTC wall time."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.utcoffset() is None:
            raise ValueError(f"the ledger accepts only timezone-aware times, found {value!r}")
        utc = value.astimezone(timezone.utc)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)


METADATA = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

TRANSACTIONS = sa.Table(
    "ingest_transactions",
    METADATA,
    sa.Column("transaction_id", sa.Text, primary_key=True, comment="Which transaction is this?"),
    sa.Column("pipeline", sa.Text, nullable=False, comment="Which pipeline does it belong to?"),
    sa.Column("base_path", sa.Text, nullable=False, comment="Which Hudi table does it write to?"),
    sa.Column("sequence", sa.BigInteger, nullable=False, comment="Which place in the pipeline's row of commits?"),
    sa.Column("epoch", sa.BigInteger, nullable=False, comment="Which of two transactions of a table began later?"),
    sa.Column("state", sa.Text, nullable=False, comment="Is it open, committed or aborted?"),
    sa.Column("owner", sa.Text, nullable=False, comment="Whose death means that it needs to be recovered?"),
    sa.Column("instant", sa.Text, comment="Which Hudi instant publishes it? NULL before startCommit."),
    sa.Column("began_at", UtcTime, nullable=False, comment="Since when is it open?"),
    sa.Column("deadline", UtcTime, nullable=False, comment="After what time may anyone abort it?"),
    sa.Column("ended_at", UtcTime, comment="When was it committed or aborted? NULL while open."),
    sa.Column("rows", sa.BigInteger, comment="How many rows did it publish? NULL unless committed."),
    sa.Column("files", sa.BigInteger, comment="How many base files did it publish? NULL unless committed."),
    sa.Column("size_bytes", sa.BigInteger, comment="How large are these files? NULL unless committed."),
    sa.Column("reason", sa.Text, comment="Why was it aborted? NULL unless aborted."),
    sa.Column("resets", sa.JSON(none_as_null=True), comment="Which offsets does it give up, and why? NULL if none."),
    sa.Column("request_id", sa.Text, comment="Which request asked for it? NULL of a live one."),
    sa.UniqueConstraint("base_path", "epoch"),
    sa.CheckConstraint("state IN ('open', 'committed', 'aborted')", name="state_known"),
    sa.CheckConstraint("(state = 'open') = (ended_at IS NULL)", name="ended_unless_open"),
    sa.CheckConstraint("epoch > 0", name="epoch_positive"),
    sa.Index(
        "uq_ingest_transactions_one_open_a_table",
        "base_path",
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    ),
    sa.Index("ix_ingest_transactions_history", "pipeline", "began_at"),
    sa.Index("ix_ingest_transactions_request", "request_id"),
)

SLICES = sa.Table(
    "ingest_slices",
    METADATA,
    sa.Column(
        "transaction_id",
        sa.Text,
        sa.ForeignKey("ingest_transactions.transaction_id", ondelete="CASCADE"),
        primary_key=True,
        comment="Which transaction publishes it?",
    ),
    sa.Column("topic", sa.Text, primary_key=True, comment="Which Kafka topic?"),
    sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False, comment="Which Kafka partition?"),
    sa.Column("start_offset", sa.BigInteger, nullable=False, comment="Which offset is its first?"),
    sa.Column("end_offset", sa.BigInteger, nullable=False, comment="Which offset is the first behind it?"),
    sa.CheckConstraint("0 <= start_offset AND start_offset <= end_offset", name="range_half_open"),
)

ATTEMPTS = sa.Table(
    "ingest_attempts",
    METADATA,
    sa.Column("transaction_id", sa.Text, primary_key=True, comment="For which transaction?"),
    sa.Column("topic", sa.Text, primary_key=True, comment="At which topic's slice?"),
    sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False, comment="At which partition's slice?"),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False, comment="Which try is it, from 0?"),
    sa.Column("state", sa.Text, nullable=False, comment="Is it running, done or failed?"),
    sa.Column("started_at", UtcTime, nullable=False, comment="When was its number handed out?"),
    sa.Column("ended_at", UtcTime, comment="When was it done or failed? NULL while running."),
    sa.Column("report", sa.JSON(none_as_null=True), comment="What did it do with each offset? NULL unless done."),
    sa.Column("error", sa.Text, comment="Why did it fail? NULL unless failed."),
    sa.ForeignKeyConstraint(
        ["transaction_id", "topic", "partition"],
        ["ingest_slices.transaction_id", "ingest_slices.topic", "ingest_slices.partition"],
        ondelete="CASCADE",
    ),
    sa.CheckConstraint("attempt >= 0", name="attempt_from_zero"),
    sa.CheckConstraint("state IN ('running', 'done', 'failed')", name="state_known"),
    sa.CheckConstraint("(state = 'running') = (ended_at IS NULL)", name="ended_unless_running"),
)

REQUESTS = sa.Table(
    "ingest_requests",
    METADATA,
    sa.Column("request_id", sa.Text, primary_key=True, comment="Which request is this?"),
    sa.Column("pipeline", sa.Text, nullable=False, comment="Which pipeline is it for?"),
    sa.Column("base_path", sa.Text, nullable=False, comment="Which Hudi table does it write to?"),
    sa.Column("kind", sa.Text, nullable=False, comment="Is it a backfill, a replay or a retry of dead letters?"),
    sa.Column("ranges", sa.JSON, nullable=False, comment="Which offsets does it want?"),
    sa.Column("skip_covered", sa.Boolean, nullable=False, comment="Does it leave out what the table has?"),
    sa.Column("respect_deletes", sa.Boolean, nullable=False, comment="Does it leave deleted rows out?"),
    sa.Column("state", sa.Text, nullable=False, comment="Is it active, done, failed or cancelled?"),
    sa.Column("filed_at", UtcTime, nullable=False, comment="When was it asked for?"),
    sa.Column("worker", sa.Text, comment="Which process works it off itself? NULL: the coordinator does."),
    sa.Column("ended_at", UtcTime, comment="When did it end? NULL while active."),
    sa.Column("reason", sa.Text, comment="Why did it end so? NULL when all is done."),
    sa.Column("passed_over", sa.JSON, nullable=False, comment="Which files of dead letters brought no row?"),
    sa.CheckConstraint("state IN ('active', 'done', 'failed', 'cancelled')", name="state_known"),
    sa.CheckConstraint("(state = 'active') = (ended_at IS NULL)", name="ended_unless_active"),
    sa.Index("ix_ingest_requests_filed", "pipeline", "filed_at"),
)

COORDINATORS = sa.Table(
    "ingest_coordinators",
    METADATA,
    sa.Column("pipeline", sa.Text, primary_key=True, comment="Whose coordinator?"),
    sa.Column("ticked_at", UtcTime, nullable=False, comment="When did it tick last, about?"),
    sa.Column("settings", sa.Text, comment="Which settings did the pipeline have then? A hash."),
    sa.Column("changed_at", UtcTime, comment="When were they seen to change? NULL: never."),
)

SWITCHES = sa.Table(
    "ingest_switches",
    METADATA,
    sa.Column("pipeline", sa.Text, primary_key=True, comment="Which pipeline was switched?"),
    sa.Column("is_on", sa.Boolean, nullable=False, comment="On?"),
)

LOCKS = sa.Table(
    "ingest_locks",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True, comment="What is locked: which table, or its services?"),
    sa.Column("token", sa.Text, nullable=False, comment="Which acquisition is it?"),
    sa.Column("owner", sa.Text, nullable=False, comment="Whose death means that it is free?"),
    sa.Column("holder", sa.Text, nullable=False, comment="Who is that, for people?"),
    sa.Column("unfenced", sa.Boolean, nullable=False, comment="Is its holder safe with the lock only?"),
    sa.Column("taken_at", sa.Double, nullable=False, comment="Since when, in seconds by the database's clock?"),
    sa.Column("renewed_at", sa.Double, nullable=False, comment="When was it renewed last, by that clock?"),
)

COUNTERS = sa.Table(
    "ingest_counters",
    METADATA,
    sa.Column("base_path", sa.Text, primary_key=True, comment="Which Hudi table is it about?"),
    sa.Column("name", sa.Text, primary_key=True, comment="What is counted?"),
    sa.Column("value", sa.Double, nullable=False, comment="How much, since this ledger exists?"),
)

TOPICS = sa.Table(
    "ingest_topics",
    METADATA,
    sa.Column("template", sa.Text, primary_key=True, comment="Which template's pattern does it match?"),
    sa.Column("topic", sa.Text, primary_key=True, comment="Which topic? '' notes when they were first listed."),
    sa.Column("seen_at", UtcTime, nullable=False, comment="When was it first seen?"),
    sa.Column("at_start", sa.Boolean, nullable=False, comment="Was it there when they were first listed?"),
)

SERVICE_RUNS = sa.Table(
    "ingest_service_runs",
    METADATA,
    sa.Column("base_path", sa.Text, primary_key=True, comment="Which Hudi table is it about? '' for housekeeping."),
    sa.Column("service", sa.Text, primary_key=True, comment="Which service: compaction, ttl, housekeeping…?"),
    sa.Column("pipeline", sa.Text, nullable=False, comment="Whose table is it? '' for housekeeping."),
    sa.Column("began_at", UtcTime, nullable=False, comment="When did its newest run begin?"),
    sa.Column("ended_at", UtcTime, comment="When did that end? NULL while it runs, or if it was killed."),
    sa.Column("succeeded_at", UtcTime, comment="When did one succeed last? NULL if none has."),
    sa.Column("seconds", sa.Double, comment="How long did the last one that ended take?"),
    sa.Column("error", sa.Text, comment="Why did that fail? NULL if it succeeded."),
    sa.Column("due", sa.BigInteger, comment="How much did it find to do? NULL if unknown."),
    sa.Column("done", sa.BigInteger, comment="How much did it do? NULL if unknown."),
)

PENDING_CHANGES = sa.Table(
    "ingest_pending_changes",
    METADATA,
    sa.Column("base_path", sa.Text, primary_key=True, comment="Which Hudi table would change?"),
    sa.Column("pipeline", sa.Text, nullable=False, comment="Which pipeline does it belong to?"),
    sa.Column("fingerprint", sa.Text, nullable=False, comment="Which change of its columns waits for approval?"),
    sa.Column("origin", sa.Text, nullable=False, comment="Where do the columns come from?"),
    sa.Column("changes", sa.JSON, nullable=False, comment="What would change, line by line?"),
    sa.Column("found_at", UtcTime, nullable=False, comment="When was a begin refused because of it?"),
)


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transaction as the ledger knows it. `table` is the Hudi table's base path, without a trailing slash.

    `rows`, `files` and `size_bytes` are None until `mark_committed` sets them, `reason` is None unless it is aborted or a try to commit it
    has failed, `ended_at` is None while it is open.
    """

    transaction_id: str
    pipeline: str
    table: str
    sequence: int
    epoch: int
    state: TransactionState
    owner: Owner
    instant: str | None
    began_at: datetime
    deadline: datetime
    ended_at: datetime | None
    rows: int | None
    files: int | None
    size_bytes: int | None
    reason: str | None
    resets: tuple[OffsetLoss, ...] = ()
    request_id: str | None = None

    @property
    def has_receipt(self) -> bool:
        """Whether its commit's receipt is in the ledger, which it gets once the commit has been flushed."""
        return self.rows is not None

    @classmethod
    def from_mapping(cls, row: sa.RowMapping) -> TransactionRow:
        values: dict[str, Any] = dict(row)
        values["table"] = values.pop("base_path")
        values["state"] = TransactionState(values["state"])
        values["owner"] = Owner.parse(values["owner"])
        values["resets"] = tuple(OffsetLoss.from_dict(reset) for reset in values["resets"] or ())
        return cls(**values)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One try at a slice. `report` is None unless done, `error` is None unless failed, `ended_at` None while running."""

    transaction_id: str
    topic: str
    partition: int
    attempt: int
    state: AttemptState
    started_at: datetime
    ended_at: datetime | None
    report: SliceReport | None
    error: str | None

    @classmethod
    def from_mapping(cls, row: sa.RowMapping) -> AttemptRow:
        values: dict[str, Any] = dict(row)
        values["state"] = AttemptState(values["state"])
        if values["report"] is not None:
            values["report"] = SliceReport.from_dict(values["report"])
        return cls(**values)

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def is_over(row: TransactionRow, run_is_finished: Callable[[str], bool | None]) -> bool:
    """Whether an open transaction can make no more progress: its owner is dead or its deadline has passed."""
    return is_dead(row.owner, run_is_finished) or datetime.now(timezone.utc) > row.deadline


def storable(text: str) -> str:
    """Make text storable in both backends: no NUL (PostgreSQL), no lone surrogates, no endless stack traces."""
    limited = text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}… ({len(text)} characters)"
    return limited.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def normal_base_path(table: str) -> str:
    """Return a Hudi table's base path without a trailing slash: `/data/orders` and `/data/orders/` are the same table."""
    return table.rstrip("/") or table
