"""Alembic's entry: run only by `hudi_ingest.ledger.migrations`, on the connection that it passes.

The caller's transaction spans all migrations, on SQLite too, so a crash leaves the revision as it was.
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
