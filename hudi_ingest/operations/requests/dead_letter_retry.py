"""Retry dead letters: those that can become rows now are written to the table, exactly once.

A retry is a transaction like any other: one commit publishes the rows together with a list of dead letters that drops the
files it took. Letters that are still bad go to new files. A retry starts from the checkpoint whose list it read, and
commits only on top of that checkpoint, so no two retries take the same letters.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import RetriedFile, Retry, RetryPlan
from hudi_ingest.model.report import BadRecordNote
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.columns.decoding import row_maker_of
from hudi_ingest.transaction.columns.schema_change import resolve_schema
from hudi_ingest.transaction.dead_letters.letter_file import read_letters, records_for_retry
from hudi_ingest.transaction.dead_letters.log import (
    DeadLetter,
    DeadLetterLog,
    LetterCount,
    WaitingFile,
    count_letters,
    find_letters,
)
from hudi_ingest.transaction.write.task import notes_of

MOST_FILES = 200
"""Maximum number of dead-letter files per transaction: its plan names each of them."""
_SHOWN_REASONS = 3

Places = dict[TopicPartition, tuple[int, int, int]]
"""One file's number of letters, first offset and last offset, per Kafka partition."""


@dataclass(frozen=True, slots=True)
class RetryResult:
    """The result of a retry. `tried` counts the dead letters it took, `withheld` those it could not take because their bytes
    were not kept, and `waiting` all that are still pending."""

    pipeline: str
    tried: int
    rows: int
    filtered: int
    waiting: int
    withheld: int
    instants: tuple[str, ...]
    reasons: tuple[str, ...]
    """Why letters are still bad: the first reason of each transaction."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "tried": self.tried,
            "rows": self.rows,
            "filtered": self.filtered,
            "waiting": self.waiting,
            "withheld": self.withheld,
            "instants": list(self.instants),
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class RetrySurvey:
    """The effect that a retry would have now. `bad` would stay dead letters; `left_out` would be filtered, or are tombstones."""

    pipeline: str
    transactions: int
    rows: int
    left_out: int
    bad: int
    withheld: int
    reasons: tuple[str, ...]
    """Why letters would stay bad: a few examples."""

    @property
    def tried(self) -> int:
        return self.rows + self.left_out + self.bad

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "transactions": self.transactions,
            "tried": self.tried,
            "rows": self.rows,
            "left_out": self.left_out,
            "bad": self.bad,
            "withheld": self.withheld,
            "reasons": list(self.reasons),
        }


def survey_retry(pipeline: Pipeline) -> RetrySurvey:
    """Convert all pending dead letters in this process, without writing anything and without comparing them with the rows of a keyed
    table. Raises TableUnreachable, TransformFailed, and what `resolve_schema` and `row_maker_of` raise."""
    table, checkpoint, waiting = _waiting(pipeline)
    plans = tuple(_plans(pipeline, checkpoint, table.storage, waiting))
    rows, left_out, bad = 0, 0, 0
    notes: list[BadRecordNote] = []
    if plans:
        pipeline = pipeline.reading({slice_.topic for plan in plans for slice_ in plan.slices})
        schema = resolve_schema(pipeline, table.timeline)
        maker = row_maker_of(pipeline, schema, datetime.now(timezone.utc))
        for plan in plans:
            for source, batch in records_for_retry(table.storage, plan.retry.files, plan.slices):
                outcome = maker.make(source, batch)
                rows += outcome.rows.num_rows
                left_out += outcome.filtered + outcome.skipped
                bad += len(outcome.bad)
                notes += notes_of(source, batch, outcome.bad[: _SHOWN_REASONS - len(notes)])
    return RetrySurvey(
        pipeline.name, len(plans), rows, left_out, bad, withheld_letters(waiting), tuple(map(str, notes))
    )


def plan_retry(
    pipeline: Pipeline, passed_over: Collection[str], instants: Collection[str], filed_at: datetime
) -> RetryPlan | None:
    """Plan the next transaction of a retry that was requested at `filed_at`; None if nothing remains. Raises
    TableUnreachable."""
    table, checkpoint, waiting = _waiting(pipeline)
    return plan_letters(pipeline, checkpoint, table.storage, untried(waiting, passed_over, instants, filed_at))


def untried(
    waiting: Sequence[WaitingFile], passed_over: Collection[str], instants: Collection[str], filed_at: datetime
) -> list[WaitingFile]:
    """Return the files that a retry has yet to try: not those in `passed_over`, not those that its own commits (`instants`)
    wrote, and none added after it was requested, or it would never end while bad records keep coming."""
    newest = filed_at.astimezone(timezone.utc).strftime("%Y%m%d%H%M%S%f")[:17]
    return [
        waiting_file
        for waiting_file in waiting
        if waiting_file.file.path not in passed_over
        and waiting_file.entry.instant not in instants
        and waiting_file.entry.instant <= newest
    ]


def waiting_letters(pipeline: Pipeline) -> tuple[WaitingFile, ...]:
    """Return the files with pending dead letters. Raises TableUnreachable."""
    return _waiting(pipeline)[2]


def plan_letters(
    pipeline: Pipeline, checkpoint: Checkpoint | None, storage: TableStorage, waiting: Sequence[WaitingFile]
) -> RetryPlan | None:
    """Plan a retry's next transaction: as many files with bytes as `max_records` and MOST_FILES allow, but at least one.
    None if there are none. Raises TableUnreachable."""
    taken: list[RetriedFile] = []
    ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
    generations = None
    remaining = pipeline.transaction.max_records
    for waiting_file in waiting:
        if waiting_file.entry.withheld or (generations is not None and waiting_file.entry.generations != generations):
            continue
        places = places_of(
            read_letters(storage, waiting_file.file.path, ("topic", "partition", "offset"), waiting_file.without)
        )
        letters = sum(count for count, _, _ in places.values())
        if not letters or _overlap(places, ranges):
            continue
        if taken and (letters > remaining or len(taken) >= MOST_FILES):
            break
        taken.append(
            RetriedFile(waiting_file.file.path, letters, waiting_file.without, tuple(sorted(map(str, places))))
        )
        generations = waiting_file.entry.generations
        remaining -= letters
        for source, (_, first, last) in places.items():
            ranges.setdefault(source, []).append((first, last))
    if not taken or checkpoint is None:
        return None
    sequence = checkpoint.sequence + 1
    return RetryPlan(
        pipeline=pipeline.name,
        transaction_id=f"{pipeline.name}-{sequence:06d}-{secrets.token_hex(3)}",
        sequence=sequence,
        slices=tuple(
            Slice(source.topic, source.partition, min(first for first, _ in spans), max(last for _, last in spans) + 1)
            for source, spans in sorted(ranges.items())
        ),
        retry=Retry(tuple(taken), dict(generations or {})),
    )


def _waiting(pipeline: Pipeline) -> tuple[PipelineTable, Checkpoint | None, tuple[WaitingFile, ...]]:
    table = PipelineTable(pipeline)
    checkpoint = table.committed().checkpoint
    return table, checkpoint, DeadLetterLog(table.storage).waiting(checkpoint.letters if checkpoint else None)


def withheld_letters(waiting: Sequence[WaitingFile]) -> int:
    """Count the letters without bytes, which no retry can take."""
    return sum(waiting_file.file.letters for waiting_file in waiting if waiting_file.entry.withheld)


def _plans(
    pipeline: Pipeline, checkpoint: Checkpoint | None, storage: TableStorage, waiting: Sequence[WaitingFile]
) -> Iterator[RetryPlan]:
    """Yield all transactions of a retry, provided nothing else commits in between."""
    remaining = list(waiting)
    while True:
        plan = plan_letters(pipeline, checkpoint, storage, remaining)
        if plan is None:
            return
        yield plan
        taken = {file.path for file in plan.retry.files}
        remaining = [waiting_file for waiting_file in remaining if waiting_file.file.path not in taken]


def places_of(letters: pa.Table) -> Places:
    """Summarize `letters`, which has the columns topic, partition and offset."""
    groups = letters.group_by(["topic", "partition"]).aggregate(
        [("offset", "count"), ("offset", "min"), ("offset", "max")]
    )
    return {
        TopicPartition(row["topic"], row["partition"]): (row["offset_count"], row["offset_min"], row["offset_max"])
        for row in groups.to_pylist()
    }


def _overlap(places: Places, ranges: dict[TopicPartition, list[tuple[int, int]]]) -> bool:
    """Return whether a file's letters interleave with those of other files: the ranges that a transaction's tasks report
    must not overlap."""
    return any(
        first <= taken_last and taken_first <= last
        for source, (_, first, last) in places.items()
        for taken_first, taken_last in ranges.get(source, ())
    )


def letter_counts(pipeline: Pipeline) -> tuple[LetterCount, ...]:
    """Count pending dead letters by commit, partition and error. Raises TableUnreachable."""
    table, _, waiting = _waiting(pipeline)
    return tuple(count_letters(table.storage, waiting))


def pending_letters(
    pipeline: Pipeline, source: TopicPartition | None, offset: int | None, error: str, limit: int
) -> tuple[DeadLetter, ...]:
    """Return the first pending dead letters, only those of a partition, at an offset, or whose error contains a text.

    Raises TableUnreachable.
    """
    table, _, waiting = _waiting(pipeline)
    letters = find_letters(table.storage, waiting, source=source, offset=offset, text=error)
    return tuple(itertools.islice(letters, limit))
