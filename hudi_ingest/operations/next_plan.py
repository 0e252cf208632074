"""What a pipeline's next transaction would read, and the table's columns after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.operations.health.bucket_advice import bucket_advice, first_advice
from hudi_ingest.operations.health.first_size import first_size
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import columns_to_dicts, ddl, parse_spark_json
from hudi_ingest.transaction.columns.planned import proposed_schema
from hudi_ingest.transaction.plan.situation import observe, plan_next


@dataclass(frozen=True, slots=True)
class NextPlan:
    """The next transaction, or why there is none now. `schema` is None while undeclared columns are unknown."""

    plan: IngestPlan | None
    skip: NothingToDo | None
    schema: TransactionSchema | None
    buckets: str | None
    """For a keyed table: how many buckets it has, and how many its size, or that of its topics, asks for."""

    def to_dict(self) -> dict[str, Any]:
        """For users' scripts."""
        planned = self.plan.to_dict() if self.plan else {"skip": self.skip.reason} if self.skip else {}
        buckets = {"buckets": self.buckets} if self.buckets else {}
        return {**planned, **buckets, **(_schema_facts(self.schema) if self.schema else {})}


def next_plan(pipeline: Pipeline) -> NextPlan:
    """Look at table and broker, and plan; changes nothing. Of a keyed table that does not exist yet, a few records are read.

    Raises OffsetsLost, KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable, and what `proposed_schema` and `first_size`
    raise.
    """
    timeline, table, situation = PipelineTable(pipeline).timeline, pipeline.table, observe(pipeline)
    is_new = not situation.committed.exists
    buckets = bucket_advice(table.buckets, {} if is_new else timeline.partition_sizes()) if table.is_keyed else None
    try:
        plan = plan_next(pipeline, situation, at_once=True)
    except NothingToDo as error:
        # Undeclared columns may be unknown until there are records.
        schema = proposed_schema(pipeline, timeline) if table.declares_schema or not is_new else None
        return NextPlan(None, error, schema, buckets)
    schema = proposed_schema(pipeline, timeline)
    if table.is_keyed and is_new and (size := first_size(pipeline, situation, schema)) is not None:
        buckets = first_advice(table.buckets, size.records, size.size_bytes, bool(table.partition_by))
    return NextPlan(replace(plan, schema_changes=schema.changes), None, schema, buckets)


def _schema_facts(schema: TransactionSchema) -> dict[str, Any]:
    """Describe a transaction's columns for programs: their origin, the record's columns, and the table's."""
    facts = {
        "origin": schema.origin,
        "declared": schema.declared,
        "record": ddl(parse_spark_json(schema.record)),
        "changes": list(schema.changes),
        "warnings": list(schema.warnings),
    }
    return {"schema": facts, "columns": columns_to_dicts(parse_spark_json(schema.columns))}
