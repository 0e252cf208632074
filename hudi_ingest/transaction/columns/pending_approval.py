"""Column changes that wait for approval. A refused begin records the change in the ledger, so that the sensor starts no run that would
fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from hudi_ingest.exceptions import IngestError, SchemaNotApproved, Transient
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import Ledger, PendingChange
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.planned import (
    approved_fingerprint,
    fingerprint,
    is_approved,
    proposed_schema,
    resolve_schema,
)


def resolve_and_note(pipeline: Pipeline, ledger: Ledger, timeline: Timeline) -> TransactionSchema:
    """The columns of the next transaction. A change that is not approved is noted in the ledger. Raises what `resolve_schema`
    raises, and LedgerUnreachable."""
    try:
        schema = resolve_schema(pipeline, timeline)
    except SchemaNotApproved as error:
        ledger.pending_changes.note(
            PendingChange(
                base_path=pipeline.table.base_path,
                pipeline=pipeline.name,
                fingerprint=error.fingerprint,
                origin=error.origin,
                changes=error.changes,
                found_at=datetime.now(timezone.utc),
            )
        )
        raise
    if _asks(pipeline) and ledger.pending_changes.of_table(pipeline.table.base_path) is not None:
        ledger.pending_changes.forget(pipeline.table.base_path)
    return schema


def pending_approval(pipeline: Pipeline, ledger: Ledger, timeline: Timeline) -> PendingChange | None:
    """The change that waits, as it is now; None if none does. Looks at the columns again, and so asks the registry if they come from
    there, only while a begin has noted one. Raises LedgerUnreachable."""
    if not _asks(pipeline):
        return None
    noted = ledger.pending_changes.of_table(pipeline.table.base_path)
    if noted is None:
        return None
    try:
        schema = proposed_schema(pipeline, timeline)
        waits = not is_approved(pipeline, timeline, schema)
    except IngestError as error:
        # What does not pass by itself is the next run's to report.
        return noted if isinstance(error, Transient) else None
    if not waits:
        ledger.pending_changes.forget(noted.base_path)
        return None
    found = fingerprint(schema)
    if found != noted.fingerprint:
        noted = replace(noted, fingerprint=found, origin=schema.origin, changes=schema.changes)
        ledger.pending_changes.note(noted)
    return noted


def noted_change(pipeline: Pipeline, ledger: Ledger, timeline: Timeline) -> PendingChange | None:
    """The change that waits, as it was noted last, unless it is approved by now. Changes nothing and asks no registry. Raises
    LedgerUnreachable, TableUnreachable."""
    noted = ledger.pending_changes.of_table(pipeline.table.base_path) if _asks(pipeline) else None
    return noted if noted is not None and noted.fingerprint != approved_fingerprint(timeline) else None


def _asks(pipeline: Pipeline) -> bool:
    return pipeline.table.on_schema_change == "refuse"
