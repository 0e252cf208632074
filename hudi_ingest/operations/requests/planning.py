"""Plan a request's next transaction, and decide whose turn it is: the request's or the live transactions'.

Nothing here remembers what was done. For a backfill the table's checkpoint says what is covered, for a retry the list of
dead letters says what is pending, and for a replay the request's committed transactions say which ranges they rewrote.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from hudi_ingest.exceptions import PlanOutdated, RangeRefused
from hudi_ingest.exceptions.problems import counted
from hudi_ingest.hudi.files.replaced_files import offsets_in_files, read_kafka_columns
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger, Request, RequestProgress
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, ranges
from hudi_ingest.model.plan import ReplacedFile, ReplayPlan, RequestPlan, TransactionKind, TransactionPlan
from hudi_ingest.operations.observation import Observation
from hudi_ingest.operations.requests.allowed_ranges import (
    RangeContext,
    RemainingRanges,
    as_slices,
    most_offsets,
    next_ranges,
    range_transaction,
    require_committed_end,
    shown_slices,
    to_read,
    to_upsert,
    total,
    without,
)
from hudi_ingest.operations.requests.asked_ranges import require_leaders
from hudi_ingest.operations.requests.dead_letter_retry import plan_retry
from hudi_ingest.operations.requests.replaced_files import (
    MissingRows,
    ReplaySurvey,
    accounted_slices,
    files_to_replace,
    first_offsets,
    missing_rows,
)
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.cut_logs import other_logs
from hudi_ingest.transaction.plan.planning import log_comparer, mark_if_committed


def new_request(
    pipeline: Pipeline,
    kind: TransactionKind,
    ranges: Sequence[Slice] = (),
    *,
    skip_covered: bool = False,
    respect_deletes: bool = False,
) -> Request:
    """Create a request to file. Its id is unique, and names the pipeline and the kind.

    Raises RangeRefused if the pipeline's table cannot have such a request.
    """
    if pipeline.table.is_keyed and respect_deletes:
        raise RangeRefused(
            f"the replay of pipeline {pipeline.name} is refused; nothing was written",
            [
                "--respect-deletes is for tables that are not keyed; this one is, and a replay up to now applies its deletes too"
            ],
        )
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


def what_is_missing(observation: Observation, requested: Sequence[Slice], *, skip_covered: bool) -> RemainingRanges:
    """Return what a backfill of the requested ranges would add. Raises RangeRefused, KafkaUnreachable, TableUnreachable."""
    pipeline, context = observation.pipeline, known_state(observation, {slice_.source for slice_ in requested})
    if pipeline.table.is_keyed:
        require_committed_end(context, TransactionKind.BACKFILL, requested)
        return to_upsert(context, TransactionKind.BACKFILL, requested, most_offsets(pipeline, context))
    return to_read(context, TransactionKind.BACKFILL, requested, skip_covered=skip_covered)


def settled_progress(pipeline: Pipeline, ledger: Ledger, request_id: str) -> RequestProgress:
    """Return the request's progress, including a commit that landed although its process died before it noted it in the ledger.

    Raises TableUnreachable, LedgerUnreachable.
    """
    row = ledger.transactions.open_in(pipeline.table.base_path)
    if row is not None:
        mark_if_committed(PipelineTable(pipeline), ledger, row.transaction_id)
    return ledger.requests.progress(request_id)


def request_goes_first(live_is_due: bool, next_sequence: int, last_tried: int | None) -> bool:
    """Return whether a request's transaction is next rather than a live one.

    `next_sequence` is the number of the table's next transaction, `last_tried` that of the last request's transaction,
    committed or not. A live transaction that is due goes first unless one was committed since. So a request delays live
    records by no more than one transaction, and a request that fails does not hold up live ingestion.
    """
    return not live_is_due or last_tried is None or last_tried < next_sequence - 1


def remaining_offsets(observation: Observation, request: Request, progress: RequestProgress) -> int:
    """Count the offsets of a backfill or replay that are still to be written. Raises what `next_transaction` raises."""
    return total(_remaining(observation, request, progress)[1])


def next_transaction(observation: Observation, request: Request, progress: RequestProgress) -> RequestPlan | None:
    """Plan the request's next transaction; None if the request is done. The files that a replay replaces are still missing
    in it: see `completed`.

    Raises RangeRefused if the rest cannot be done, KafkaUnreachable, TableUnreachable.
    """
    pipeline = observation.pipeline
    if request.kind is TransactionKind.RETRY:
        instants = {commit.instant for commit in progress.commits}
        plan = plan_retry(pipeline, request.passed_over, instants, request.filed_at)
        return replace(plan, request=request.request_id) if plan else None
    context, remaining = _remaining(observation, request, progress)
    slices = next_ranges(remaining, most_offsets(pipeline, context))
    return _range_transaction(context, request, slices, pipeline.table.is_keyed) if slices else None


def completed(
    observation: Observation, request: Request, progress: RequestProgress, planned: TransactionPlan
) -> RequestPlan:
    """Complete the planned transaction just before it begins, from a fresh observation of table and broker.

    Raises PlanOutdated if the request's next transaction is a different one by now, RangeRefused if the rest cannot be
    done, KafkaUnreachable, TableUnreachable.
    """
    plan = next_transaction(observation, request, progress)
    if plan is None or plan.slices != planned.slices:
        raise PlanOutdated(
            f"plan {planned.transaction_id} of request {request.request_id} is no longer current: it planned "
            f"{shown_slices(planned.slices)}, but next is {shown_slices(plan.slices) if plan else 'nothing'}. Nothing was written. "
            "The coordinator plans again on its own."
        )
    if isinstance(plan, ReplayPlan) and not plan.upserts:
        plan = replace(plan, replaces=files_of(observation.table, observation.committed.checkpoint, plan.slices))
    return replace(plan, transaction_id=planned.transaction_id)


def ending_reason(request: Request, progress: RequestProgress) -> str | None:
    """Say which dead letters a finished retry leaves pending; None if none."""
    if not request.passed_over:
        return None
    return progress.reason or (
        f"none of the dead letters in {counted(len(request.passed_over), 'file')} can become a row now"
    )


def _remaining(
    observation: Observation, request: Request, progress: RequestProgress
) -> tuple[RangeContext, RemainingRanges]:
    pipeline, context = observation.pipeline, known_state(observation, {slice_.source for slice_ in request.ranges})
    if pipeline.table.is_keyed:
        # One transaction does all of it; afterwards its ranges no longer end at the committed offsets.
        done = bool(progress.commits)
        return context, {} if done else to_upsert(
            context, request.kind, request.ranges, most_offsets(pipeline, context)
        )
    remaining: Sequence[Slice] = request.ranges
    if request.kind is TransactionKind.REPLAY:
        remaining = [slice_ for requested in request.ranges for slice_ in without(requested, progress.done)]
    # The ranges that a backfill's own transactions added are in the table now.
    skip_covered = request.skip_covered or bool(progress.commits)
    return context, to_read(context, request.kind, remaining, skip_covered=skip_covered)


def _range_transaction(
    context: RangeContext, request: Request, slices: tuple[Slice, ...], upserts: bool
) -> RequestPlan:
    plan = range_transaction(
        context, request.kind, slices, suffix=secrets.token_hex(3), request=request.request_id, upserts=upserts
    )
    return replace(plan, respect_deletes=request.respect_deletes) if isinstance(plan, ReplayPlan) else plan


def known_state(observation: Observation, sources: Iterable[TopicPartition]) -> RangeContext:
    """Return the table's and the broker's state of the partitions. Where a checkpoint of an older version does not say what
    is covered, it is derived from the table's commits and its files' statistics. Raises TableUnreachable, and LeaderMissing if
    one of them has no leader."""
    pipeline, table, situation, sources = observation.pipeline, observation.table, observation.situation, set(sources)
    require_leaders(sources.intersection(situation.leaderless))
    checkpoint = situation.committed.checkpoint
    covered = dict(checkpoint.covered) if checkpoint else {}
    committed = checkpoint.offsets if checkpoint else {}
    unrecorded = {source for source in sources if source in committed and source not in covered}
    if unrecorded:
        accounts = accounted_slices(observation.own_commits, pipeline.transaction_key)
        read = partial(read_kafka_columns, table.storage)
        first = first_offsets(table.timeline.files(), accounts, unrecorded, read)
        covered |= {
            source: ranges([(first.get(source, committed[source]), committed[source])]) for source in unrecorded
        }
    others = other_logs(checkpoint, situation.watermarks, sources, log_comparer(pipeline)) if checkpoint else {}
    cuts = {**others, **situation.cuts}
    return RangeContext(pipeline.name, checkpoint, covered, situation.watermarks, situation.topic_ids, cuts)


def survey_replay(observation: Observation, requested: Sequence[Slice]) -> ReplaySurvey:
    """Return what a replay of the requested ranges would cost and bring back. Reads no records and changes nothing.

    Raises RangeRefused, KafkaUnreachable, TableUnreachable, OSError.
    """
    pipeline, table = observation.pipeline, observation.table
    context = known_state(observation, {slice_.source for slice_ in requested})
    if pipeline.table.is_keyed:
        require_committed_end(context, TransactionKind.REPLAY, requested)
        upserts = to_upsert(context, TransactionKind.REPLAY, requested, most_offsets(pipeline, context))
        return ReplaySurvey(pipeline.name, upserts, (), MissingRows(0, 0), 1, upserts=True)
    remaining = to_read(context, TransactionKind.REPLAY, requested)
    slices = as_slices(remaining)
    files = files_of(table, context.checkpoint, slices)
    accounts = accounted_slices(observation.own_commits, pipeline.transaction_key)
    present = offsets_in_files(table.storage, files, slices)
    transactions = -(-total(remaining) // most_offsets(pipeline, context))
    return ReplaySurvey(pipeline.name, remaining, files, missing_rows(slices, present, accounts), transactions)


def files_of(table: PipelineTable, checkpoint: Checkpoint | None, slices: Sequence[Slice]) -> tuple[ReplacedFile, ...]:
    """Return the live files with rows of the slices, which their replay replaces. Raises RangeRefused, TableUnreachable,
    OSError."""
    where = f"the replay of pipeline {table.pipeline.name} is refused; nothing was written"
    topics = {source.topic for source in checkpoint.offsets} if checkpoint else set()
    if "topic" not in table.pipeline.table.kafka_columns and len(topics) > 1:
        problem = (
            "the table has rows of several topics but no column _kafka_topic (table.kafka_columns lacks topic), so it is not "
            "known which rows to replace. Ingest the topics into a new table that has the column"
        )
        raise RangeRefused(where, [problem])
    read = partial(read_kafka_columns, table.storage)
    return files_to_replace(table.timeline.files(), slices, read, where)
