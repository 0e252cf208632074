"""What a request's next transaction is, and whose turn it is: the request's or the live transactions'.

Nothing here remembers what was done. Of a backfill the table's checkpoint says what is covered, of a retry the list of dead
letters says what waits, and of a replay the request's committed transactions say which ranges they wrote.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

from hudi_ingest.exceptions import PlanOutdated
from hudi_ingest.ledger import Ledger, Request, RequestProgress
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind, TransactionPlan
from hudi_ingest.operations.asked_ranges import known_state
from hudi_ingest.operations.dead_letter_retry import plan_retry
from hudi_ingest.operations.ranges import (
    RangeContext,
    RemainingRanges,
    most_offsets,
    next_ranges,
    range_transaction,
    shown_slices,
    to_backfill,
    to_replay,
    total,
    without,
)
from hudi_ingest.operations.replay import files_of
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.situation import Situation, mark_if_committed


def new_request(
    pipeline: Pipeline,
    kind: TransactionKind,
    ranges: Sequence[Slice] = (),
    *,
    skip_covered: bool = False,
    respect_deletes: bool = False,
) -> Request:
    """A request that can be filed. Its id is unique, and says the pipeline and the kind."""
    return Request(
        request_id=f"{pipeline.name}-{kind.value}-{secrets.token_hex(4)}",
        pipeline=pipeline.name,
        table=pipeline.table.base_path,
        kind=kind,
        filed_at=datetime.now(timezone.utc),
        ranges=tuple(ranges),
        skip_covered=skip_covered,
        respect_deletes=respect_deletes,
    )


def what_is_missing(
    pipeline: Pipeline, situation: Situation, requested: Sequence[Slice], *, skip_covered: bool
) -> RemainingRanges:
    """What a backfill of the asked ranges would add. Raises RangeRefused, KafkaUnreachable, TableUnreachable."""
    context = known_state(pipeline, situation, {piece.source for piece in requested})
    return to_backfill(context, requested, skip_covered=skip_covered)


def settled_progress(pipeline: Pipeline, ledger: Ledger, request_id: str) -> RequestProgress:
    """What the request has come to, a commit included that landed and whose process died before it told the ledger.

    Raises TableUnreachable, LedgerUnreachable.
    """
    row = ledger.open_transaction(pipeline.table.base_path)
    if row is not None:
        mark_if_committed(pipeline, ledger, row.transaction_id)
    return ledger.progress(request_id)


def request_goes_first(live_is_due: bool, next_sequence: int, last_tried: int | None) -> bool:
    """Whether a request's transaction is next, and not a live one.

    `next_sequence` is the number of the table's next transaction, `last_tried` that of the last one that was a request's, committed
    or not. A live transaction that is due goes first unless one has been committed since: so the lag of live records grows by
    no more than one transaction of a request, and a request that fails holds up nobody.
    """
    return not live_is_due or last_tried is None or last_tried < next_sequence - 1


def remaining_offsets(pipeline: Pipeline, situation: Situation, request: Request, progress: RequestProgress) -> int:
    """How many offsets of a backfill or a replay are still to be written. Raises what `next_transaction` raises."""
    return total(_remaining(pipeline, situation, request, progress)[1])


def next_transaction(
    pipeline: Pipeline, situation: Situation, request: Request, progress: RequestProgress
) -> TransactionPlan | None:
    """The request's next transaction, None when all is done. What a replay replaces is not in it yet: see `completed`.

    Raises RangeRefused when the rest cannot be done, KafkaUnreachable, TableUnreachable.
    """
    if request.kind is TransactionKind.RETRY:
        instants = {commit.instant for commit in progress.commits}
        plan = plan_retry(pipeline, request.passed_over, instants, request.filed_at)
        return replace(plan, request=request.request_id) if plan else None
    context, remaining = _remaining(pipeline, situation, request, progress)
    slices = next_ranges(remaining, most_offsets(pipeline, context))
    return _range_transaction(context, request, slices) if slices else None


def completed(
    pipeline: Pipeline, situation: Situation, request: Request, progress: RequestProgress, planned: TransactionPlan
) -> TransactionPlan:
    """The planned transaction with all that its begin needs: read from table and broker anew, just before.

    Raises PlanOutdated when the request has another next transaction now, RangeRefused when it has none that can be done,
    KafkaUnreachable, TableUnreachable.
    """
    plan = next_transaction(pipeline, situation, request, progress)
    if plan is None or plan.slices != planned.slices:
        raise PlanOutdated(
            f"plan {planned.transaction_id} of request {request.request_id} is no longer current: it planned "
            f"{shown_slices(planned.slices)}, but next is {shown_slices(plan.slices) if plan else 'nothing'}. Nothing was written. "
            "The coordinator plans again by itself."
        )
    if plan.kind is TransactionKind.REPLAY:
        plan = replace(plan, replaces=files_of(pipeline, situation.committed.checkpoint, plan.slices))
    return replace(plan, transaction_id=planned.transaction_id)


def ending_reason(request: Request, progress: RequestProgress) -> str | None:
    """What is to be said of a request that is done: which dead letters stay."""
    if not request.passed_over:
        return None
    return progress.reason or f"none of the dead letters in {len(request.passed_over)} files can become a row now"


def _remaining(
    pipeline: Pipeline, situation: Situation, request: Request, progress: RequestProgress
) -> tuple[RangeContext, RemainingRanges]:
    context = known_state(pipeline, situation, {piece.source for piece in request.ranges})
    if request.kind is TransactionKind.BACKFILL:
        # What its own transactions have added is in the table now.
        return context, to_backfill(
            context, request.ranges, skip_covered=request.skip_covered or bool(progress.commits)
        )
    remaining = [piece for requested in request.ranges for piece in without(requested, progress.done)]
    return context, to_replay(context, remaining)


def _range_transaction(context: RangeContext, request: Request, slices: tuple[Slice, ...]) -> TransactionPlan:
    plan = range_transaction(
        context, request.kind, slices, suffix=secrets.token_hex(3), respect_deletes=request.respect_deletes
    )
    return replace(plan, request=request.request_id)
