"""The one change of a table's columns that a person has approved, for pipelines with `table.on_schema_change: refuse`.

It is a file in the table: whoever begins a transaction finds it, whatever becomes of the ledger. It names the change by its
fingerprint, so any other change needs another approval.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone

from hudi_ingest.exceptions import SchemaNotApproved, TableUnreachable
from hudi_ingest.hudi.storage.paths import APPROVED_CHANGE
from hudi_ingest.hudi.storage.storage import advice
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline


def fingerprint(schema: TransactionSchema) -> str:
    """Identifies what changes in the columns and what they become."""
    facts = json.dumps([schema.changes, json.loads(schema.columns)])
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


def is_approved(pipeline: Pipeline, timeline: Timeline, schema: TransactionSchema) -> bool:
    """Whether a transaction with these columns may begin. Raises TableUnreachable."""
    if pipeline.table.on_schema_change != "refuse" or not schema.changes:
        return True
    return approved_fingerprint(timeline) == fingerprint(schema)


def require_approved(pipeline: Pipeline, timeline: Timeline, schema: TransactionSchema) -> None:
    """Raises SchemaNotApproved, TableUnreachable."""
    if not is_approved(pipeline, timeline, schema):
        raise SchemaNotApproved(
            pipeline=pipeline.name, origin=schema.origin, changes=schema.changes, fingerprint=fingerprint(schema)
        )


def approve(timeline: Timeline, schema: TransactionSchema) -> None:
    """Approve the change that these columns are, instead of any approved before. Raises TableUnreachable."""
    approval = {
        "fingerprint": fingerprint(schema),
        "changes": schema.changes,
        "origin": schema.origin,
        "approved_at": datetime.now(timezone.utc).isoformat(),
    }
    try:
        timeline.storage.replace(APPROVED_CHANGE, json.dumps(approval, indent=1).encode())
    except OSError as error:
        raise _unreachable(timeline, "written", error) from error


def approved_fingerprint(timeline: Timeline) -> str | None:
    """The fingerprint of the change that was approved last, None if none was. Raises TableUnreachable."""
    try:
        return str(json.loads(timeline.storage.read(APPROVED_CHANGE))["fingerprint"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreachable(timeline, "read", error) from error
    except (ValueError, LookupError, TypeError):
        # Damaged: the change is approved again.
        return None


def _unreachable(timeline: Timeline, done: str, error: OSError) -> TableUnreachable:
    return TableUnreachable(
        f"{APPROVED_CHANGE} of the table at {timeline.storage.base_path}, which names the approved change of its columns, cannot "
        f"be {done}: {error}. {advice(error)}"
    )
