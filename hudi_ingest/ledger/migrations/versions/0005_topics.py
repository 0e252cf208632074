"""The topics that have matched the patterns of templates

Revision 0005.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ingest_topics",
        sa.Column("template", sa.Text, nullable=False, comment="Which template's pattern does it match?"),
        sa.Column("topic", sa.Text, nullable=False, comment="Which topic? '' notes when they were first listed."),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False, comment="When was it first seen?"),
        sa.Column("at_start", sa.Boolean, nullable=False, comment="Was it there when they were first listed?"),
        sa.PrimaryKeyConstraint("template", "topic", name="pk_ingest_topics"),
    )


def downgrade() -> None:
    op.drop_table("ingest_topics")
