"""The locks of tables are rows, which hold behind a pooler of connections as well.

Revision 0008.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
    op.drop_table("ingest_locks")
