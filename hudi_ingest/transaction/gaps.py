"""Whether the broker, too, has nothing where a slice has gaps.

A gap is what is left of a range when all records that Spark handed out are counted, so a loss on the way from the broker
would look like one. The longest ones are therefore looked up again, by another client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.kafka.records import first_records_in
from hudi_ingest.model.offsets import Slice
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.write.task import TaskReport, longest

_logger = logging.getLogger(__name__)
LOOK_UP_SECONDS = 3.0
"""A record that is there comes with the broker's first answer; what is silent for longer is a long row of aborted records."""


def longest_gaps(slices: Iterable[Slice], found: Sequence[TaskReport]) -> tuple[Slice, ...]:
    """Of each slice the longest ranges that none of its tasks' reports has a record in."""
    return tuple(
        Slice(each.topic, each.partition, start, end)
        for each in slices
        for start, end in longest(
            _gaps(each, [t for t in found if (t.topic, t.partition) == (each.topic, each.partition)])
        )
    )


def _gaps(whole: Slice, tasks: Iterable[TaskReport]) -> Iterable[tuple[int, int]]:
    expected = whole.start
    for task in sorted(tasks, key=lambda each: each.first_offset):
        yield (expected, task.first_offset)
        yield from task.gaps
        expected = task.last_offset + 1
    yield (expected, whole.end)


def require_true_gaps(pipeline: Pipeline, gaps: Sequence[Slice]) -> None:
    """Raises WriteIncomplete when the broker hands out a committed record in one of the gaps.

    A broker that does not answer in time proves nothing: what was read stands. Raises KafkaRefused.
    """
    told = first_records_in(pipeline.source, pipeline.group_id, gaps, LOOK_UP_SECONDS)
    if len(told) < len(gaps):
        _logger.info(
            "%s: the broker did not tell in time of %s of %s gaps", pipeline.name, len(gaps) - len(told), len(gaps)
        )
    records = sorted((gap, offset) for gap, offset in told.items() if offset is not None)
    if records:
        shown = "; ".join(f"{gap} without {offset}" for gap, offset in records[:5])
        raise WriteIncomplete(
            f"Spark did not hand out records that the broker has: {shown}. They would have counted as gaps. Nothing is visible; "
            "the op is tried again. If it stays so, see the engine's log for its Kafka consumer's warnings."
        )
