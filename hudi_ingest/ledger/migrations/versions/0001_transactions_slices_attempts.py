"""Transactions, slices and attempts

Revision 0001, the first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
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


def downgrade() -> None:
    op.drop_table("ingest_attempts")
    op.drop_table("ingest_slices")
    op.drop_table("ingest_transactions")
