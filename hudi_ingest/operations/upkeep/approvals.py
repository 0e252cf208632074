"""A person's decisions that a pipeline waits for: giving up offsets that stopped partitions have lost, in one transaction that resumes at
the broker's first offsets, and approving a change of the table's columns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hudi_ingest.exceptions import NothingToDo, SchemaRefused
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.schema_change import approve, fingerprint, is_approved, proposed_schema
from hudi_ingest.transaction.plan.planning import plan_accepting
from hudi_ingest.transaction.run import run_transaction, when_table_is_free

_logger = logging.getLogger(__name__)


def accept_loss(
    pipeline: Pipeline,
    home: Home,
    partitions: Sequence[TopicPartition],
    topics: Sequence[str],
    report: Callable[[str], None] = _logger.info,
) -> CommitReceipt:
    """Accept the losses of these stopped partitions and of all stopped partitions of these topics, now, in this process.

    Raises NothingToDo unless each of them is stopped, TransactionInFlight if the table was not free within the pipeline's timeout,
    and what `run_transaction` raises.
    """

    def accept() -> CommitReceipt:
        plan = plan_accepting(pipeline, partitions, topics)
        return run_transaction(pipeline, home=home, plan=plan, report=report)

    # Partitions that are not stopped have transactions of their own, which end soon.
    return when_table_is_free(accept, pipeline.transaction.timeout_seconds, report)


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
    """Approve the change that waits, and return it. `expected`: the fingerprint of the change that was reviewed.

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
