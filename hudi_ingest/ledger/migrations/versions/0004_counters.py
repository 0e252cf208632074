"""Counts per table that only grow

Revision 0004.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ingest_counters",
        sa.Column("base_path", sa.Text, nullable=False, comment="Which Hudi table is it about?"),
        sa.Column("name", sa.Text, nullable=False, comment="What is counted?"),
        sa.Column("value", sa.Double, nullable=False, comment="How much, since this ledger exists?"),
        sa.PrimaryKeyConstraint("base_path", "name", name="pk_ingest_counters"),
    )


def downgrade() -> None:
    op.drop_table("ingest_counters")
