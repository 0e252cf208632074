"""Replay: which files hold the rows of the ranges to rewrite, what that costs, and which deleted rows it brings back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hudi_ingest.exceptions import RangeRefused
from hudi_ingest.hudi.files.replaced_files import offsets_in_files, read_kafka_columns
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import ReplacedFile, TransactionKind
from hudi_ingest.operations.requests.asked_ranges import known_state
from hudi_ingest.operations.requests.ranges import (
    as_slices,
    most_offsets,
    require_committed_end,
    to_replay,
    to_upsert,
    total,
)
from hudi_ingest.operations.requests.replaced_files import (
    MissingRows,
    ReplaySurvey,
    accounted_slices,
    files_to_replace,
    missing_rows,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.situation import Situation


def survey_replay(pipeline: Pipeline, situation: Situation, requested: Sequence[Slice]) -> ReplaySurvey:
    """Return what a replay of the requested ranges would cost and bring back. Reads no records and changes nothing.

    Raises RangeRefused, KafkaUnreachable, TableUnreachable, OSError.
    """
    context = known_state(pipeline, situation, {slice_.source for slice_ in requested})
    if pipeline.table.is_keyed:
        require_committed_end(context, TransactionKind.REPLAY, requested)
        upserts = to_upsert(context, TransactionKind.REPLAY, requested, most_offsets(pipeline, context))
        return ReplaySurvey(pipeline.name, upserts, (), MissingRows(0, 0), 1, upserts=True)
    remaining = to_replay(context, requested)
    slices = as_slices(remaining)
    files = files_of(pipeline, context.checkpoint, slices)
    table = PipelineTable(pipeline)
    accounts = accounted_slices(table.commits(), pipeline.transaction_key)
    present = offsets_in_files(table.storage, files, slices)
    transactions = -(-total(remaining) // most_offsets(pipeline, context))
    return ReplaySurvey(pipeline.name, remaining, files, missing_rows(slices, present, accounts), transactions)


def files_of(pipeline: Pipeline, checkpoint: Checkpoint | None, slices: Sequence[Slice]) -> tuple[ReplacedFile, ...]:
    """Return the live files with rows of the slices, which their replay replaces. Raises RangeRefused, TableUnreachable,
    OSError."""
    where = f"the replay of pipeline {pipeline.name} is refused; nothing was written"
    topics = {source.topic for source in checkpoint.offsets} if checkpoint else set()
    if "topic" not in pipeline.table.kafka_columns and len(topics) > 1:
        problem = (
            "the table has rows of several topics but no column _kafka_topic (table.kafka_columns lacks topic), so it is not "
            "known which rows to replace. Ingest the topics into a new table that has the column"
        )
        raise RangeRefused(where, [problem])
    table = PipelineTable(pipeline)
    read = partial(read_kafka_columns, table.storage)
    return files_to_replace(table.timeline.files(), slices, read, where)
