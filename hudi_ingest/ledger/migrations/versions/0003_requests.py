"""Requests of backfills, replays and retries, and which transactions are theirs

Revision 0003.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "ingest_transactions",
        sa.Column("request_id", sa.Text, comment="Which request asked for it? NULL of a live one."),
    )
    op.create_index("ix_ingest_transactions_request", "ingest_transactions", ["request_id"])
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
        sa.PrimaryKeyConstraint("pipeline", name="pk_ingest_coordinators"),
    )


def downgrade() -> None:
    op.drop_table("ingest_coordinators")
    op.drop_table("ingest_requests")
    op.drop_index("ix_ingest_transactions_request", "ingest_transactions")
    op.drop_column("ingest_transactions", "request_id")
