"""Alembic's entry point, run only by `hudi_ingest.ledger.migrations`, on the connection that it passes.

The caller's transaction spans all migrations, also on SQLite, so a crash leaves the revision unchanged.
"""

from __future__ import annotations

from alembic import context

from hudi_ingest.ledger.tables import METADATA, REVISION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=REVISION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
