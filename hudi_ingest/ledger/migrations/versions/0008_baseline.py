"""All tables.

Revision 0008, the first that can be upgraded.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ingest_transactions",
        sa.Column("transaction_id", sa.Text, nullable=False, comment="Which transaction is this?"),
        sa.Column("pipeline", sa.Text, nullable=False, comment="Which pipeline does it belong to?"),
        sa.Column("base_path", sa.Text, nullable=False, comment="Which Hudi table does it write to?"),
        sa.Column("sequence", sa.BigInteger, nullable=False, comment="Which place in the pipeline's row of commits?"),
        sa.Column("epoch", sa.BigInteger, nullable=False, comment="Which of two transactions of a table began later?"),
        sa.Column("state", sa.Text, nullable=False, comment="Is it open, committed or aborted?"),
        sa.Column("owner", sa.Text, nullable=False, comment="Whose death means that it needs to be recovered?"),
        sa.Column("instant", sa.Text, comment="Which Hudi instant publishes it? NULL before startCommit."),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False, comment="Since when is it open?"),
        sa.Column(
            "deadline", sa.DateTime(timezone=True), nullable=False, comment="After what time may anyone abort it?"
        ),
        sa.Column("ended_at", sa.DateTime(timezone=True), comment="When was it committed or aborted? NULL while open."),
        sa.Column("rows", sa.BigInteger, comment="How many rows did it publish? NULL unless committed."),
        sa.Column("files", sa.BigInteger, comment="How many base files did it publish? NULL unless committed."),
        sa.Column("size_bytes", sa.BigInteger, comment="How large are these files? NULL unless committed."),
        sa.Column("reason", sa.Text, comment="Why was it aborted? NULL unless aborted."),
        sa.Column("resets", sa.JSON, comment="Which offsets does it give up, and why? NULL if none."),
        sa.Column("request_id", sa.Text, comment="Which request asked for it? NULL of a live one."),
        sa.PrimaryKeyConstraint("transaction_id", name="pk_ingest_transactions"),
        sa.UniqueConstraint("base_path", "epoch", name="uq_ingest_transactions_base_path_epoch"),
        sa.CheckConstraint(
            "state IN ('open', 'committed', 'aborted')", name=op.f("ck_ingest_transactions_state_known")
        ),
        sa.CheckConstraint(
            "(state = 'open') = (ended_at IS NULL)", name=op.f("ck_ingest_transactions_ended_unless_open")
        ),
        sa.CheckConstraint("epoch > 0", name=op.f("ck_ingest_transactions_epoch_positive")),
    )
    op.create_index(
        "uq_ingest_transactions_one_open_a_table",
        "ingest_transactions",
        ["base_path"],
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_index("ix_ingest_transactions_history", "ingest_transactions", ["pipeline", "began_at"])
    op.create_index("ix_ingest_transactions_request", "ingest_transactions", ["request_id"])
    op.create_table(
        "ingest_slices",
        sa.Column("transaction_id", sa.Text, nullable=False, comment="Which transaction publishes it?"),
        sa.Column("topic", sa.Text, nullable=False, comment="Which Kafka topic?"),
        sa.Column("partition", sa.Integer, nullable=False, comment="Which Kafka partition?"),
        sa.Column("start_offset", sa.BigInteger, nullable=False, comment="Which offset is its first?"),
        sa.Column("end_offset", sa.BigInteger, nullable=False, comment="Which offset is the first behind it?"),
        sa.PrimaryKeyConstraint("transaction_id", "topic", "partition", name="pk_ingest_slices"),
        sa.ForeignKeyConstraint(
            ["transaction_id"],
            ["ingest_transactions.transaction_id"],
            name="fk_ingest_slices_ingest_transactions",
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "0 <= start_offset AND start_offset <= end_offset", name=op.f("ck_ingest_slices_range_half_open")
        ),
    )
    op.create_table(
        "ingest_attempts",
        sa.Column("transaction_id", sa.Text, nullable=False, comment="For which transaction?"),
        sa.Column("topic", sa.Text, nullable=False, comment="At which topic's slice?"),
        sa.Column("partition", sa.Integer, nullable=False, comment="At which partition's slice?"),
        sa.Column("attempt", sa.Integer, nullable=False, comment="Which try is it, from 0?"),
        sa.Column("state", sa.Text, nullable=False, comment="Is it running, done or failed?"),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False, comment="When was its number handed out?"),
        sa.Column("ended_at", sa.DateTime(timezone=True), comment="When was it done or failed? NULL while running."),
        sa.Column("report", sa.JSON, comment="What did it do with each offset? NULL unless done."),
        sa.Column("error", sa.Text, comment="Why did it fail? NULL unless failed."),
        sa.PrimaryKeyConstraint("transaction_id", "topic", "partition", "attempt", name="pk_ingest_attempts"),
        sa.ForeignKeyConstraint(
            ["transaction_id", "topic", "partition"],
            ["ingest_slices.transaction_id", "ingest_slices.topic", "ingest_slices.partition"],
            name="fk_ingest_attempts_ingest_slices",
            ondelete="CASCADE",
        ),
        sa.CheckConstraint("attempt >= 0", name=op.f("ck_ingest_attempts_attempt_from_zero")),
        sa.CheckConstraint("state IN ('running', 'done', 'failed')", name=op.f("ck_ingest_attempts_state_known")),
        sa.CheckConstraint(
            "(state = 'running') = (ended_at IS NULL)", name=op.f("ck_ingest_attempts_ended_unless_running")
        ),
    )
    op.create_table(
        "ingest_requests",
        sa.Column("request_id", sa.Text, nullable=False, comment="Which request is this?"),
        sa.Column("pipeline", sa.Text, nullable=False, comment="Which pipeline is it for?"),
        sa.Column("base_path", sa.Text, nullable=False, comment="Which Hudi table does it write to?"),
        sa.Column("kind", sa.Text, nullable=False, comment="Is it a backfill, a replay or a retry of dead letters?"),
        sa.Column("ranges", sa.JSON, nullable=False, comment="Which offsets does it want?"),
        sa.Column("skip_covered", sa.Boolean, nullable=False, comment="Does it leave out what the table has?"),
        sa.Column("respect_deletes", sa.Boolean, nullable=False, comment="Does it leave deleted rows out?"),
        sa.Column("state", sa.Text, nullable=False, comment="Is it active, done, failed or cancelled?"),
        sa.Column("filed_at", sa.DateTime(timezone=True), nullable=False, comment="When was it asked for?"),
        sa.Column("worker", sa.Text, comment="Which process works it off itself? NULL: the coordinator does."),
        sa.Column("ended_at", sa.DateTime(timezone=True), comment="When did it end? NULL while active."),
        sa.Column("reason", sa.Text, comment="Why did it end so? NULL when all is done."),
        sa.Column("passed_over", sa.JSON, nullable=False, comment="Which files of dead letters brought no row?"),
        sa.PrimaryKeyConstraint("request_id", name="pk_ingest_requests"),
        sa.CheckConstraint(
            "state IN ('active', 'done', 'failed', 'cancelled')", name=op.f("ck_ingest_requests_state_known")
        ),
        sa.CheckConstraint(
            "(state = 'active') = (ended_at IS NULL)", name=op.f("ck_ingest_requests_ended_unless_active")
        ),
    )
    op.create_index("ix_ingest_requests_filed", "ingest_requests", ["pipeline", "filed_at"])
    op.create_table(
        "ingest_coordinators",
        sa.Column("pipeline", sa.Text, nullable=False, comment="Whose coordinator?"),
        sa.Column("ticked_at", sa.DateTime(timezone=True), nullable=False, comment="When did it tick last, about?"),
        sa.Column("settings", sa.Text, comment="Which settings did the pipeline have then? A hash."),
        sa.Column("changed_at", sa.DateTime(timezone=True), comment="When were they seen to change? NULL: never."),
        sa.PrimaryKeyConstraint("pipeline", name="pk_ingest_coordinators"),
    )
    op.create_table(
        "ingest_counters",
        sa.Column("base_path", sa.Text, nullable=False, comment="Which Hudi table is it about?"),
        sa.Column("name", sa.Text, nullable=False, comment="What is counted?"),
        sa.Column("value", sa.Double, nullable=False, comment="How much, since this ledger exists?"),
        sa.PrimaryKeyConstraint("base_path", "name", name="pk_ingest_counters"),
    )
    op.create_table(
        "ingest_topics",
        sa.Column("template", sa.Text, nullable=False, comment="Which template's pattern does it match?"),
        sa.Column("topic", sa.Text, nullable=False, comment="Which topic? '' notes when they were first listed."),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False, comment="When was it first seen?"),
        sa.Column("at_start", sa.Boolean, nullable=False, comment="Was it there when they were first listed?"),
        sa.PrimaryKeyConstraint("template", "topic", name="pk_ingest_topics"),
    )
    op.create_table(
        "ingest_service_runs",
        sa.Column("base_path", sa.Text, nullable=False, comment="Which Hudi table is it about? '' for housekeeping."),
        sa.Column("service", sa.Text, nullable=False, comment="Which service: compaction, ttl, housekeeping…?"),
        sa.Column("pipeline", sa.Text, nullable=False, comment="Whose table is it? '' for housekeeping."),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False, comment="When did its newest run begin?"),
        sa.Column(
            "ended_at",
            sa.DateTime(timezone=True),
            comment="When did that end? NULL while it runs, or if it was killed.",
        ),
        sa.Column("succeeded_at", sa.DateTime(timezone=True), comment="When did one succeed last? NULL if none has."),
        sa.Column("seconds", sa.Double, comment="How long did the last one that ended take?"),
        sa.Column("error", sa.Text, comment="Why did that fail? NULL if it succeeded."),
        sa.Column("due", sa.BigInteger, comment="How much did it find to do? NULL if unknown."),
        sa.Column("done", sa.BigInteger, comment="How much did it do? NULL if unknown."),
        sa.PrimaryKeyConstraint("base_path", "service", name="pk_ingest_service_runs"),
    )
    op.create_table(
        "ingest_pending_changes",
        sa.Column("base_path", sa.Text, nullable=False, comment="Which Hudi table would change?"),
        sa.Column("pipeline", sa.Text, nullable=False, comment="Which pipeline does it belong to?"),
        sa.Column("fingerprint", sa.Text, nullable=False, comment="Which change of its columns waits for approval?"),
        sa.Column("origin", sa.Text, nullable=False, comment="Where do the columns come from?"),
        sa.Column("changes", sa.JSON, nullable=False, comment="What would change, line by line?"),
        sa.Column(
            "found_at", sa.DateTime(timezone=True), nullable=False, comment="When was a begin refused because of it?"
        ),
        sa.PrimaryKeyConstraint("base_path", name="pk_ingest_pending_changes"),
    )
    op.create_table(
        "ingest_switches",
        sa.Column("pipeline", sa.Text, nullable=False, comment="Which pipeline was switched?"),
        sa.Column("is_on", sa.Boolean, nullable=False, comment="On?"),
        sa.PrimaryKeyConstraint("pipeline", name="pk_ingest_switches"),
    )
    op.create_table(
        "ingest_locks",
        sa.Column("name", sa.Text, nullable=False, comment="What is locked: which table, or its services?"),
        sa.Column("token", sa.Text, nullable=False, comment="Which acquisition is it?"),
        sa.Column("owner", sa.Text, nullable=False, comment="Whose death means that it is free?"),
        sa.Column("holder", sa.Text, nullable=False, comment="Who is that, for people?"),
        sa.Column("unfenced", sa.Boolean, nullable=False, comment="Is its holder safe with the lock only?"),
        sa.Column("taken_at", sa.Double, nullable=False, comment="Since when, in seconds by the database's clock?"),
        sa.Column("renewed_at", sa.Double, nullable=False, comment="When was it renewed last, by that clock?"),
        sa.PrimaryKeyConstraint("name", name="pk_ingest_locks"),
    )


def downgrade() -> None:
    for table in (
        "ingest_locks",
        "ingest_switches",
        "ingest_pending_changes",
        "ingest_service_runs",
        "ingest_topics",
        "ingest_counters",
        "ingest_coordinators",
        "ingest_requests",
        "ingest_attempts",
        "ingest_slices",
        "ingest_transactions",
    ):
        op.drop_table(table)
