"""The newest run of each service of a table, and changes of columns that wait for approval

Revision 0006.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("ingest_pending_changes")
    op.drop_table("ingest_service_runs")
