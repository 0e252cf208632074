"""The dead letters that wait for a retry: how many of which kind, and each of them."""

from __future__ import annotations

import itertools

from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog, WaitingFile
from hudi_ingest.transaction.dead_letters.reading import DeadLetter, LetterCount, count_letters, find_letters


def letter_counts(pipeline: Pipeline) -> tuple[LetterCount, ...]:
    """Count pending dead letters by commit, partition and error. Raises TableUnreachable."""
    return tuple(count_letters(*_pending(pipeline)))


def pending_letters(
    pipeline: Pipeline, source: TopicPartition | None, offset: int | None, error: str, limit: int
) -> tuple[DeadLetter, ...]:
    """Return the first pending dead letters, only those of a partition, at an offset, or whose error contains a text.

    Raises TableUnreachable.
    """
    letters = find_letters(*_pending(pipeline), source=source, offset=offset, text=error)
    return tuple(itertools.islice(letters, limit))


def _pending(pipeline: Pipeline) -> tuple[TableStorage, tuple[WaitingFile, ...]]:
    table = PipelineTable(pipeline)
    checkpoint = table.committed().checkpoint
    return table.storage, DeadLetterLog(table.storage).waiting(checkpoint.letters if checkpoint else None)
