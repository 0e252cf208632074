"""Checks that the gaps of a slice are gaps on the broker too.

A gap is whatever remains of a range after counting the records that were read, so a loss on the way from the broker would
look like one. The longest gaps are therefore looked up again, by another client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.kafka.records import first_records_in
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.write.task import TaskReport, longest

_logger = logging.getLogger(__name__)
LOOK_UP_SECONDS = 3.0
"""An existing record comes with the broker's first answer; a longer silence is a long run of aborted records."""


def longest_gaps(slices: Iterable[Slice], tasks: Sequence[TaskReport]) -> tuple[Slice, ...]:
    """The longest ranges of each slice in which none of its tasks reported a record."""
    tasks_of: dict[TopicPartition, list[TaskReport]] = {}
    for task in tasks:
        tasks_of.setdefault(TopicPartition(task.topic, task.partition), []).append(task)
    return tuple(
        Slice(slice_.topic, slice_.partition, start, end)
        for slice_ in slices
        for start, end in longest(_gaps(slice_, tasks_of.get(slice_.source, ())))
    )


def _gaps(slice_: Slice, tasks: Iterable[TaskReport]) -> Iterable[tuple[int, int]]:
    expected = slice_.start
    for task in sorted(tasks, key=lambda report: report.first_offset):
        yield (expected, task.first_offset)
        yield from task.longest_gaps
        expected = task.last_offset + 1
    yield (expected, slice_.end)


def require_true_gaps(pipeline: Pipeline, gaps: Sequence[Slice]) -> None:
    """Raises WriteIncomplete if the broker returns a committed record in one of the gaps.

    A broker that does not answer in time proves nothing, so what was read stands. Raises KafkaRefused.
    """
    answers = first_records_in(pipeline.source, pipeline.group_id, gaps, LOOK_UP_SECONDS)
    if len(answers) < len(gaps):
        _logger.info(
            "%s: the broker did not answer in time for %s of %s gaps",
            pipeline.name,
            len(gaps) - len(answers),
            len(gaps),
        )
    records = sorted((gap, offset) for gap, offset in answers.items() if offset is not None)
    if records:
        shown = "; ".join(f"{gap} without {offset}" for gap, offset in records[:5])
        raise WriteIncomplete(
            f"the tasks did not read records that the broker has: {shown}. They would have counted as gaps. Nothing is visible; "
            "the op is retried. If this persists, look for the Kafka client's warnings in the engine's log."
        )
