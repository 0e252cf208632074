"""What would change in a table's columns, and its approval."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hudi_ingest.exceptions import NothingToDo, SchemaRefused
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.planned import proposed_schema
from hudi_ingest.transaction.columns.schema_approval import approve, fingerprint, is_approved


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """How the next transaction would change a table's columns."""

    pipeline: str
    origin: str
    """Where the columns come from."""
    changes: tuple[str, ...]
    """One line each; at least one."""
    fingerprint: str
    approved: bool
    """Whether the transaction may begin."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "changes": list(self.changes)}


def schema_change(pipeline: Pipeline) -> SchemaChange:
    """The change that waits. Asks the registry if the columns come from there. Raises NothingToDo if there is none, and what
    `proposed_schema` raises."""
    timeline = PipelineTable(pipeline).timeline
    schema = _waiting_change(pipeline, timeline)
    approved = is_approved(pipeline, timeline, schema)
    return SchemaChange(pipeline.name, schema.origin, schema.changes, fingerprint(schema), approved)


def approve_schema_change(pipeline: Pipeline, expected: str | None = None) -> SchemaChange:
    """Approve the change that waits, and return it. `expected`: the fingerprint of the change that was looked at.

    Raises SchemaRefused if another one waits now, NothingToDo, TableUnreachable, and what `proposed_schema` raises.
    """
    timeline = PipelineTable(pipeline).timeline
    schema = _waiting_change(pipeline, timeline)
    found = fingerprint(schema)
    if expected not in (None, found):
        lines = "; ".join(schema.changes)
        raise SchemaRefused(
            f"pipeline {pipeline.name}: the change that waits now has the fingerprint {found}, not {expected}: {lines}. Nothing was "
            "approved. Look at it, and approve it by its own fingerprint."
        )
    approve(timeline, schema)
    return SchemaChange(pipeline.name, schema.origin, schema.changes, found, approved=True)


def _waiting_change(pipeline: Pipeline, timeline: Timeline) -> TransactionSchema:
    schema = proposed_schema(pipeline, timeline)
    if schema.changes:
        return schema
    if not timeline.exists():
        reason = "the table does not exist yet; its first transaction creates it with the columns of its records"
        raise NothingToDo(pipeline.name, reason)
    raise NothingToDo(pipeline.name, "the table has all columns of its records")
