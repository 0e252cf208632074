"""Whether Kafka offsets tell which record of a key is the newest, as a keyed table without `table.ordering` relies on. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hudi_ingest.exceptions import TableMismatch
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.pipeline.pipeline import Pipeline


def require_offset_order(pipeline: Pipeline, checkpoint: Checkpoint | None, plan: TransactionPlan) -> None:
    """Raises TableMismatch if offsets that the plan reads may be smaller than those of older records with the same keys."""
    table = pipeline.table
    if not table.is_keyed or table.ordering is not None:
        return
    topics = sorted({slice_.topic for slice_ in plan.slices})
    if len(topics) > 1:
        raise TableMismatch(
            f"the table at {table.base_path} keeps the record with the greatest Kafka offset of each key, and offsets of several "
            f"topics ({', '.join(topics)}) do not tell which record is newer. Nothing was written. Name a column that does as "
            "table.ordering, or write each topic to its own table: `{topic}` in table.base_path and in name."
        )
    if checkpoint is None:
        return
    new = sorted({slice_.source for slice_ in plan.slices} - checkpoint.offsets.keys())
    again = sorted({reset.source for reset in plan.resets if reset.repeats})
    if new:
        why = f"{_text(new)} did not exist when the table was created, and the keys that are there now were elsewhere before"
    elif again:
        why = f"the offsets of {_text(again)} start over"
    else:
        return
    raise TableMismatch(
        f"the table at {table.base_path} keeps the record with the greatest Kafka offset of each key, but offsets no longer tell "
        f"which record is newer: {why}. Nothing was written. Give pipeline {pipeline.name} a new name, a new "
        "table.base_path and a column as table.ordering, and read the topic again from its start."
    )


def _text(sources: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sources))
