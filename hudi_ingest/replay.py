"""Replay: writes ranges of offsets anew that are in the table, in place of the rows that were made of them before."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from hudi_ingest.asked_ranges import known_state
from hudi_ingest.backfill import progress_line
from hudi_ingest.config import Pipeline
from hudi_ingest.coordinator import Situation
from hudi_ingest.exceptions import RangeRefused
from hudi_ingest.home import Home
from hudi_ingest.hudi.timeline import Timeline
from hudi_ingest.kafka_columns import offsets_in_files, read_kafka_columns
from hudi_ingest.model import CommitReceipt, ReplacedFile, Slice, TransactionKind, TransactionPlan
from hudi_ingest.range_planning import (
    Known,
    as_slices,
    most_offsets,
    next_ranges,
    range_transaction,
    to_replay,
    total,
    without,
)
from hudi_ingest.replaced_files import ReplaySurvey, accounted_slices, files_to_replace, missing_rows
from hudi_ingest.storage import TableStorage
from hudi_ingest.turns import RunTransaction, turns_of

_logger = logging.getLogger(__name__)


def survey_replay(pipeline: Pipeline, situation: Situation, asked: Sequence[Slice]) -> ReplaySurvey:
    """What a replay of the asked ranges would cost, and what it would bring back. Reads no records and changes nothing.

    Raises RangeRefused, KafkaUnreachable, TableUnreachable, OSError.
    """
    known = known_state(pipeline, situation, {each.source for each in asked})
    left = to_replay(known, asked)
    slices = as_slices(left)
    files = _files(pipeline, known, slices)
    timeline = Timeline(pipeline.table.base_path)
    accounts = accounted_slices(timeline.commits_of(pipeline.transaction_key), pipeline.transaction_key)
    present = offsets_in_files(TableStorage(pipeline.table.base_path), files, slices)
    transactions = -(-total(left) // most_offsets(pipeline, known))
    return ReplaySurvey(pipeline.name, left, files, missing_rows(slices, present, accounts), transactions)


def run_replay(
    pipeline: Pipeline,
    asked: Sequence[Slice],
    *,
    respect_deletes: bool = False,
    home: Home | None = None,
    wait_seconds: float | None = None,
    report: Callable[[str], None] = _logger.info,
    run: RunTransaction | None = None,
) -> Iterator[CommitReceipt]:
    """Writes the asked ranges anew in transactions of at most `transaction.max_records`, and yields each one's receipt.

    Readers see the old rows of a transaction or its new ones. With `respect_deletes` offsets without a row in the table get
    none. After a crash the same call does it again from the start, which gives the same table. Raises RangeRefused,
    TransactionInFlight, CommitRefused when another writer changed a file meanwhile, and what `run_transaction` raises.
    """
    done: list[CommitReceipt] = []
    rest = list(asked)

    def next_plan(situation: Situation) -> TransactionPlan | None:
        if not rest:
            return None
        known = known_state(pipeline, situation, {each.source for each in rest})
        left = to_replay(known, rest)
        if not done:
            report(f"{pipeline.name}: {total(left):,} offsets are to be written anew")
        slices = next_ranges(left, most_offsets(pipeline, known))
        return range_transaction(
            known,
            TransactionKind.REPLAY,
            slices,
            suffix=secrets.token_hex(3),
            replaces=_files(pipeline, known, slices),
            respect_deletes=respect_deletes,
        )

    def more() -> bool:
        return bool(rest)

    for receipt in turns_of(pipeline, home or Home.from_environment(), wait_seconds, report, run).each(next_plan, more):
        done.append(receipt)
        rest = [piece for each in rest for piece in without(each, receipt.plan.slices)]
        report(progress_line(receipt, done))
        yield receipt


def _files(pipeline: Pipeline, known: Known, slices: Sequence[Slice]) -> tuple[ReplacedFile, ...]:
    where = f"the replay of pipeline {pipeline.name} is refused, nothing was written"
    topics = {each.topic for each in known.checkpoint.offsets} if known.checkpoint else set()
    if "topic" not in pipeline.table.kafka_columns and len(topics) > 1:
        problem = "its rows are of several topics and do not say of which: table.kafka_columns has no topic"
        raise RangeRefused(where, [problem])
    read = partial(read_kafka_columns, TableStorage(pipeline.table.base_path))
    return files_to_replace(Timeline(pipeline.table.base_path).files(), slices, read, where)
