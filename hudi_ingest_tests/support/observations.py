"""Observations of pipelines whose table and broker a test knows already."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Owner, TransactionRow
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.observation import Observation
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation


def seen(pipeline: Pipeline, situation: Situation, at: datetime | None = None) -> Observation:
    """The observation that would find this situation."""
    at = at or datetime.now(timezone.utc)
    return Observation(PipelineTable(pipeline), at, situation.committed, situation)


def open_row(pipeline: str, began_at: datetime) -> TransactionRow:
    """The ledger's row of the pipeline's open transaction."""
    return TransactionRow(
        transaction_id=f"{pipeline}-000001-aaaa",
        pipeline=pipeline,
        table=f"/data/{pipeline}",
        sequence=1,
        epoch=1,
        state=TransactionState.OPEN,
        owner=Owner.this_process(),
        instant=None,
        began_at=began_at,
        deadline=began_at + timedelta(minutes=5),
        ended_at=None,
        rows=None,
        files=None,
        size_bytes=None,
        reason=None,
    )
