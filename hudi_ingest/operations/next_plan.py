"""A pipeline's next transaction, the table's columns after it, and the number of buckets that a keyed table would get today: by the measured
size of its table partitions or, before it is created, by a sample of the records that its topics hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hudi_ingest.exceptions import NothingToDo
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.operations.sample import read_fairly
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.sections.table import MOST_BUCKETS
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest.records.schema.columns import columns_to_dicts, ddl, parse_spark_json
from hudi_ingest.transaction.columns.decoding import row_maker_of
from hudi_ingest.transaction.columns.schema_change import proposed_schema
from hudi_ingest.transaction.plan.planning import Situation, observe, plan_next
from hudi_ingest.transaction.table_preparation import require_writable_table


@dataclass(frozen=True, slots=True)
class NextPlan:
    """The next transaction, or why there is none now. `schema` is None while undeclared columns are unknown."""

    plan: IngestPlan | None
    skip: NothingToDo | None
    schema: TransactionSchema | None
    buckets: str | None
    """Buckets of a keyed table: how many it has, and how many its size, or that of its topics, asks for."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for users' scripts."""
        planned = self.plan.to_dict() if self.plan else {"skip": self.skip.reason} if self.skip else {}
        buckets = {"buckets": self.buckets} if self.buckets else {}
        return {**planned, **buckets, **(_schema_facts(self.schema) if self.schema else {})}


def next_plan(pipeline: Pipeline, ledger: Ledger) -> NextPlan:
    """Look at table and broker, and plan; changes nothing. Of a keyed table that does not exist yet, a few records are read.

    Raises TableMismatch where a begin would; OffsetsLost, KafkaUnreachable, KafkaRefused, TopicMissing, TableUnreachable,
    LedgerUnreachable, and what `proposed_schema` and `first_size` raise.
    """
    own_table = PipelineTable(pipeline)
    require_writable_table(pipeline, own_table, ledger)
    timeline, table, situation = own_table.timeline, pipeline.table, observe(pipeline, table=own_table)
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


BUCKET_BYTES = 1 << 30
"""Size of a file group that a compaction rewrites in one task, and that a reader still opens quickly."""
_MANY_TIMES = 4
"""Rebuilding a table is recommended if its number of buckets is off by this factor."""


def bucket_advice(buckets: int, sizes: Mapping[str, int]) -> str:
    """Say how many buckets the table's size asks for. `sizes`: bytes by table partition."""
    path, size = max(sizes.items(), key=lambda item: item[1], default=("", 0))
    if not size:
        return f"{counted(buckets, 'bucket')} per table partition; its data has not been measured yet"
    wanted = _wanted(size)
    where = f"its largest table partition, {path}," if path else "it"
    text = (
        f"{counted(buckets, 'bucket')} per table partition; {where} has {size / BUCKET_BYTES:.3f} GiB; recommended: "
        f"{counted(wanted, 'bucket')} of up to 1 GiB"
    )
    if wanted >= _MANY_TIMES * buckets:
        text += ". Compaction rewrites few large files: ingest into a new table with more buckets"
    return text


def first_advice(buckets: int, records: int, size: int, is_partitioned: bool) -> str:
    """Say how many buckets a table that does not exist yet should get, if the `records` of its topics take `size` bytes."""
    found = f"the topic's {records:,} records would take about {size / BUCKET_BYTES:.3f} GiB"
    if is_partitioned:
        return (
            f"{counted(buckets, 'bucket')} per table partition; {found} in all table partitions together: choose one for each GiB "
            "of the largest, before the table exists"
        )
    text = f"{counted(buckets, 'bucket')}; {found}; recommended: {counted(_wanted(size), 'bucket')} of up to 1 GiB"
    return f"{text}; set `table.buckets` to what it grows to, it cannot be changed once the table exists"


def _wanted(size: int) -> int:
    return min(MOST_BUCKETS, max(1, -(-size // BUCKET_BYTES)))


SAMPLE_RECORDS = 2_000


@dataclass(frozen=True, slots=True)
class FirstSize:
    """`size_bytes` if each of `records` were a row like the sampled ones; keys that come several times make it smaller."""

    records: int
    size_bytes: int


def first_size(pipeline: Pipeline, situation: Situation, schema: TransactionSchema) -> FirstSize | None:
    """Estimate the size from the records that the topics hold; None if none of the sampled ones becomes a row.

    Raises KafkaUnreachable, what `read_fairly` raises, and TransformFailed.
    """
    slices = [
        Slice(source.topic, source.partition, start, situation.watermarks[source].end)
        for source, start in sorted(situation.starts.items())
    ]
    pipeline = pipeline.reading({slice_.topic for slice_ in slices})
    maker = row_maker_of(pipeline, schema, datetime.now(timezone.utc))
    batches = read_fairly(pipeline, slices, SAMPLE_RECORDS)
    rows = [maker.make(source, batch).rows for source, batch in sorted(batches.items())]
    return estimate(rows, sum(batch.num_rows for batch in batches.values()), slices, pipeline.table.compression)


def estimate(rows: Sequence[pa.Table], sampled: int, slices: Sequence[Slice], compression: str) -> FirstSize | None:
    """Project the rows and deletes that `sampled` records became onto all offsets of the slices."""
    if not rows:
        return None
    table = pa.concat_tables(rows, promote_options="default")
    table = table.filter(pc.invert(table[DELETED]))
    table = table.drop_columns([name for name in (DELETED, LEFT_OUT, OLD_KEY) if name in table.column_names])
    if not table.num_rows:
        return None
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression=compression)
    records = sum(slice_.count for slice_ in slices)
    return FirstSize(records, buffer.getvalue().size * records // sampled)
