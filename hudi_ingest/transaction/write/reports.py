"""The tasks' reports: combined for each slice, and compared with the broker and with the files that a replay replaces.

A gap is whatever remains of a range after counting the records that were read, so a loss on the way from the broker would
look like one. The longest gaps are therefore looked up once more, by another client.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from hudi_ingest.exceptions import OffsetsLost, RangeRefused, WriteIncomplete
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.kafka.records import first_records_in
from hudi_ingest.model.certificate import Certificate
from hudi_ingest.model.complete_through import TimesRead
from hudi_ingest.model.counts import Counts, added
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition, length
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import BaseFile, FieldsSeen, LogFile, SliceReport
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.dead_letters.letter_file import NAMED_BAD_RECORDS
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
    for task in sorted(tasks, key=_by_offset):
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


def require_same_topics(pipeline: Pipeline, plan: TransactionPlan, topics: Iterable[str]) -> None:
    """Raises OffsetsLost if a topic was recreated since the plan: an id seen before and after reading was there all the time,
    because ids are never reused."""
    with kept_cluster(pipeline.source) as cluster:
        current = cluster.topics()
    for topic in sorted(topics):
        planned_id, current_id = plan.topics[topic].topic_id, current[topic].topic_id
        if planned_id and current_id and planned_id != current_id:
            raise OffsetsLost(
                f"topic {topic} was deleted and recreated while transaction {plan.transaction_id} read it (id {planned_id}, now "
                f"{current_id}), so the records read may be from either topic. Nothing of it is visible; the next plan reports "
                "the loss.",
                servers=pipeline.source.bootstrap_servers,
                topic=topic,
            )


def require_all_replaced(
    transaction_id: str, replaced: Mapping[TopicPartition, Ranges], task_reports: Iterable[TaskReport]
) -> None:
    """Raises RangeRefused unless Kafka returned every record whose row a replay removes from the table: compaction may have
    removed some since, and their rows would be lost."""
    read_again: Counter[TopicPartition] = Counter()
    for report in task_reports:
        read_again[TopicPartition(report.topic, report.partition)] += report.replaced
    problems = [
        f"{source}: {length(offsets) - read_again[source]} of {length(offsets)} records with a row in the table are no longer in "
        "Kafka (most likely compacted away), and their rows would be lost. Replay a range whose records are all there"
        for source, offsets in sorted(replaced.items())
        if read_again[source] != length(offsets)
    ]
    if problems:
        raise RangeRefused(f"replay {transaction_id} is refused, nothing of it is visible", problems)


def slice_report(slice_: Slice, attempt: int, task_reports: Sequence[TaskReport], seconds: float) -> SliceReport:
    """Combine the reports of the tasks that read the slice's partition into the slice's. Raises WriteIncomplete if they overlap or leave the range."""
    tasks = sorted(task_reports, key=_by_offset)
    expected = slice_.start
    for task in tasks:
        if task.first_offset < expected or task.last_offset >= slice_.end:
            raise WriteIncomplete(
                f"{slice_}: a task read offsets {task.first_offset} to {task.last_offset}, outside the rest of the range from "
                f"{expected}. Nothing is visible; the op is retried."
            )
        expected = task.last_offset + 1
    counted = Counts.total(tasks)
    counted = replace(counted, gaps=slice_.count - counted.counted)
    files = [file for task in tasks for file in task.files]
    return SliceReport(
        slice=slice_,
        attempt=attempt,
        files=tuple(file for file in files if isinstance(file, BaseFile)),
        value_bytes=sum(task.value_bytes for task in tasks),
        seconds=round(seconds, 3),
        letters=tuple(file for task in tasks for file in task.letters),
        bad_records=tuple(note for task in tasks for note in task.bad_records)[:NAMED_BAD_RECORDS],
        log_files=tuple(file for file in files if isinstance(file, LogFile)),
        fields=FieldsSeen.combined(task.fields for task in tasks),
        times=TimesRead.combined(task.times for task in tasks),
        violations=added(task.violations for task in tasks),
        copies=(),
        last=max((task.last for task in tasks if task.last), key=attrgetter("offset"), default=None),
        certificate=Certificate.total(task.certificate for task in tasks),
        **counted.counts,
    )


def _by_offset(task: TaskReport) -> int:
    return task.first_offset
