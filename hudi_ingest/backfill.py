"""Backfill: adds ranges of offsets to the table that are not in it, beside the live transactions and without moving them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence

from hudi_ingest.asked_ranges import known_state
from hudi_ingest.config import Pipeline
from hudi_ingest.coordinator import Situation
from hudi_ingest.exceptions import RangeRefused
from hudi_ingest.home import Home
from hudi_ingest.model import CommitReceipt, Slice, TransactionKind, TransactionPlan
from hudi_ingest.range_planning import Left, most_offsets, next_ranges, range_transaction, to_backfill, total
from hudi_ingest.turns import RunTransaction, turns_of

_logger = logging.getLogger(__name__)
_SHOWN_RANGES = 8


def what_is_missing(pipeline: Pipeline, situation: Situation, asked: Sequence[Slice], *, skip_covered: bool) -> Left:
    """What a backfill of the asked ranges would add. Raises RangeRefused, KafkaUnreachable, TableUnreachable."""
    known = known_state(pipeline, situation, {each.source for each in asked})
    return to_backfill(known, asked, skip_covered=skip_covered)


def run_backfill(
    pipeline: Pipeline,
    asked: Sequence[Slice],
    *,
    skip_covered: bool = False,
    home: Home | None = None,
    wait_seconds: float | None = None,
    report: Callable[[str], None] = _logger.info,
    run: RunTransaction | None = None,
) -> Iterator[CommitReceipt]:
    """Adds the asked ranges in transactions of at most `transaction.max_records`, and yields each one's receipt.

    What is in the table is refused, or left out with `skip_covered`: so the same call goes on after any crash. What is
    missing is found anew for each transaction, so nothing comes twice. Raises RangeRefused, TransactionInFlight, and what
    `run_transaction` raises; transactions before the error stay.
    """
    done: list[CommitReceipt] = []
    left_behind = 0

    def next_plan(situation: Situation) -> TransactionPlan | None:
        nonlocal left_behind
        known = known_state(pipeline, situation, {each.source for each in asked})
        try:
            left = to_backfill(known, asked, skip_covered=skip_covered or bool(done))
        except RangeRefused as error:
            raise _stopped(pipeline, done, error) from error
        if not total(left):
            return None
        if not done:
            report(f"{pipeline.name}: {total(left):,} offsets are to be added")
        slices = next_ranges(left, most_offsets(pipeline, known))
        left_behind = total(left) - sum(each.count for each in slices)
        return range_transaction(known, TransactionKind.BACKFILL, slices, suffix=secrets.token_hex(3))

    turns = turns_of(pipeline, home or Home.from_environment(), wait_seconds, report, run)
    for receipt in turns.each(next_plan, more=lambda: left_behind > 0):
        done.append(receipt)
        report(progress_line(receipt, done))
        yield receipt


def progress_line(receipt: CommitReceipt, done: Sequence[CommitReceipt]) -> str:
    return (
        f"{receipt.plan.transaction_id}: {receipt.rows:,} rows of {ranges_text(receipt)} are in the table; "
        f"{sum(each.plan.count for each in done):,} offsets done in {len(done)} transactions"
    )


def ranges_text(receipt: CommitReceipt) -> str:
    """The transaction's first ranges."""
    slices = receipt.plan.slices
    return ", ".join(map(str, slices[:_SHOWN_RANGES])) + (
        f" and {len(slices) - _SHOWN_RANGES} more" * (len(slices) > _SHOWN_RANGES)
    )


def _stopped(pipeline: Pipeline, done: Sequence[CommitReceipt], error: RangeRefused) -> RangeRefused:
    if not done:
        return error
    return RangeRefused(
        f"the backfill of pipeline {pipeline.name} stops after {len(done)} transactions, whose rows stay in the table",
        error.problems,
    )
