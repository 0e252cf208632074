"""How large a keyed table will be once it has what its topics hold now: from a sample of the records, before it is created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.transaction import TransactionSchema
from hudi_ingest.operations.sample import read_fairly
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.changes import DELETED
from hudi_ingest.transaction.decoding import row_maker_of
from hudi_ingest.transaction.plan.situation import Situation

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
    table = pa.concat_tables(rows)
    table = table.filter(pc.invert(table[DELETED])).drop_columns([DELETED])
    if not table.num_rows:
        return None
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression=compression)
    records = sum(slice_.count for slice_ in slices)
    return FirstSize(records, buffer.getvalue().size * records // sampled)
