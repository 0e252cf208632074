"""The offsets that a transaction gives up

Revision 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "ingest_transactions",
        sa.Column("resets", sa.JSON, comment="Which offsets does it give up, and why? NULL if none."),
    )


def downgrade() -> None:
    op.drop_column("ingest_transactions", "resets")
