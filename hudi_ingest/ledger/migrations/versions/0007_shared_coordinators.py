"""The pipelines of a template share a sensor: each has a switch of its own, and what ticks must not forget is kept here.

Revision 0007.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "ingest_coordinators",
        sa.Column("settings", sa.Text, comment="Which settings did the pipeline have then? A hash."),
    )
    op.add_column(
        "ingest_coordinators",
        sa.Column("changed_at", sa.DateTime(timezone=True), comment="When were they seen to change? NULL: never."),
    )
    op.create_table(
        "ingest_switches",
        sa.Column("pipeline", sa.Text, nullable=False, comment="Which pipeline of a template was switched?"),
        sa.Column("is_on", sa.Boolean, nullable=False, comment="On?"),
        sa.PrimaryKeyConstraint("pipeline", name="pk_ingest_switches"),
    )


def downgrade() -> None:
    op.drop_table("ingest_switches")
    op.drop_column("ingest_coordinators", "changed_at")
    op.drop_column("ingest_coordinators", "settings")
