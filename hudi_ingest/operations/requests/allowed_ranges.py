"""Which offsets a backfill or replay may touch, and which its next transaction reads. Pure.

The checkpoint says what a table covers (see model.Checkpoint.covered). Live transactions continue from the committed
offset, so everything from there on is theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hudi_ingest.exceptions import RangeRefused
from hudi_ingest.exceptions.problems import counted, listed, suggestion
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import (
    Ranges,
    Slice,
    TopicPartition,
    TopicVersion,
    Watermarks,
    difference,
    intersection,
    length,
    ranges,
    union,
)
from hudi_ingest.model.plan import BackfillPlan, LogCut, LossReason, RangePlan, ReplayPlan, TransactionKind
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.arithmetic import backlog_limit, fair_shares, find_losses, limits_of, loss_text

_SHOWN_SLICES = 8
RemainingRanges = Mapping[TopicPartition, Ranges]
"""The ranges still to be read, by partition."""


@dataclass(frozen=True, slots=True)
class RangeContext:
    """The state of table and broker that a range is judged by. `covered` has every requested partition."""

    pipeline: str
    checkpoint: Checkpoint | None
    covered: Mapping[TopicPartition, Ranges]
    watermarks: Mapping[TopicPartition, Watermarks]
    topic_ids: Mapping[str, str]
    cuts: Mapping[TopicPartition, LogCut] = field(default_factory=dict)
    """The partitions whose log was found to be cut."""


def to_read(
    context: RangeContext, kind: TransactionKind, requested: Sequence[Slice], *, skip_covered: bool = False
) -> RemainingRanges:
    """Return what a backfill adds, which are the parts of the requested ranges that are not in the table yet, or what a replay
    rewrites, which are all of them. `skip_covered`: a backfill may include what is in the table.

    Raises RangeRefused if a replay includes what is not in the table, or either what is not in Kafka any more.
    """
    problems = []
    remaining: dict[TopicPartition, Ranges] = {}
    replays = kind is TransactionKind.REPLAY
    for slice_ in requested:
        source = slice_.source
        problem = _unsafe(context, slice_, kind)
        if problem:
            problems.append(problem)
            continue
        whole_range = ranges([(slice_.start, slice_.end)])
        covered = intersection(whole_range, context.covered.get(source, ()))
        missing = difference(whole_range, covered)
        if replays and missing:
            problems.append(
                f"{_shown(source, missing)} was never ingested, so there is nothing to rewrite. To add it: "
                f"{_commands('backfill', context.pipeline, source, missing)}."
            )
        if covered and not replays and not skip_covered:
            problems.append(
                f"{_shown(source, covered)} is already in the table. To rewrite it: "
                f"{_commands('replay', context.pipeline, source, covered)}. To add only what is missing"
                + (f", {_shown(source, missing)}, " if missing else ", which is nothing here, ")
                + "give --skip-covered."
            )
        wanted = whole_range if replays else missing
        begin = context.watermarks[source].begin
        expired = intersection(wanted, ranges([(0, begin)]))
        if expired:
            lost = (
                f" (its first offset is {begin}), so its rows cannot be recreated and stay as they are. "
                if replays
                else f": its first offset is {begin}. "
            )
            rest = f"For the rest, give --start {begin}." if wanted[-1][1] > begin else "Nothing of the range is left."
            problems.append(f"{_shown(source, expired)} was deleted from Kafka by retention{lost}{rest}")
        remaining[source] = union(remaining.get(source, ()), wanted)
    _refuse(context, kind, problems)
    return remaining


def require_committed_end(context: RangeContext, kind: TransactionKind, requested: Sequence[Slice]) -> None:
    """Raises RangeRefused unless the ranges of a keyed table end at the committed offsets."""
    committed = context.checkpoint.offsets if context.checkpoint else {}
    _refuse(
        context,
        kind,
        [
            f"{slice_} ends before the committed offset {committed[slice_.source]}. The table is keyed: old changes alone would "
            "bring keys back whose later delete is compacted away. Leave out the end, or give "
            f"--end {committed[slice_.source]}."
            for slice_ in requested
            if slice_.source in committed and slice_.end < committed[slice_.source]
        ],
    )


def to_upsert(context: RangeContext, kind: TransactionKind, requested: Sequence[Slice], most: int) -> RemainingRanges:
    """Return what a keyed table reads again for the requested ranges: from their starts to the committed offsets, so that what
    live transactions have read since is included. A backfill of what is in the table already reads nothing.

    Raises RangeRefused, KafkaUnreachable. One transaction applies all of it, or readers would see deleted rows in between,
    so it is refused if it is more than `most` offsets.
    """
    committed = context.checkpoint.offsets if context.checkpoint else {}
    starts: dict[TopicPartition, int] = {}
    for slice_ in requested:
        starts[slice_.source] = min(slice_.start, starts.get(slice_.source, slice_.start))
    whole = [
        Slice(source.topic, source.partition, start, committed.get(source, start + 1))
        for source, start in sorted(starts.items())
    ]
    remaining = to_read(context, kind, whole, skip_covered=True)
    if kind is TransactionKind.BACKFILL:
        remaining = {
            source: ranges([(missing[0][0], committed[source])]) for source, missing in remaining.items() if missing
        }
    offsets = total(remaining)
    if offsets > most:
        problem = (
            f"{offsets:,} offsets up to the committed ones are more than the {most:,} of one transaction (transaction.max_records, "
            "max_bytes). The table is keyed: one transaction has to apply them all, or readers would see deleted rows in "
            "between. Raise the limit and transaction.timeout_seconds for this, begin later, or ingest the topic into a new table."
        )
        _refuse(context, kind, [problem])
    return remaining


def next_ranges(remaining: RemainingRanges, most: int) -> tuple[Slice, ...]:
    """Return the slices of the next transaction, at most `most` offsets in total, each from its partition's first range.
    Empty if nothing remains."""
    first = {source: partition_ranges[0] for source, partition_ranges in remaining.items() if partition_ranges}
    shares = fair_shares({source: end - start for source, (start, end) in first.items()}, most)
    return tuple(
        Slice(source.topic, source.partition, start, start + shares[source])
        for source, (start, _) in sorted(first.items())
        if shares[source]
    )


def most_offsets(pipeline: Pipeline, context: RangeContext) -> int:
    """Return the maximum number of offsets per transaction."""
    return backlog_limit(limits_of(pipeline), context.checkpoint.record_bytes if context.checkpoint else 0)


def as_slices(remaining: RemainingRanges) -> tuple[Slice, ...]:
    return tuple(
        Slice(source.topic, source.partition, start, end)
        for source, partition_ranges in sorted(remaining.items())
        for start, end in partition_ranges
    )


def range_facts(remaining: RemainingRanges) -> list[dict[str, Any]]:
    """Return a row for each range, for users' scripts."""
    return [asdict(slice_) for slice_ in as_slices(remaining)]


def shown_slices(slices: Sequence[Slice]) -> str:
    """Name the first few slices, and count the others."""
    return listed(slices, _SHOWN_SLICES)


def without(requested: Slice, done: Iterable[Slice]) -> tuple[Slice, ...]:
    """Return the parts of a range that are not in the slices `done`."""
    done_ranges = ranges((slice_.start, slice_.end) for slice_ in done if slice_.source == requested.source)
    return as_slices({requested.source: difference(ranges([(requested.start, requested.end)]), done_ranges)})


def total(remaining: RemainingRanges) -> int:
    return sum(map(length, remaining.values()))


def range_transaction(
    context: RangeContext,
    kind: TransactionKind,
    slices: tuple[Slice, ...],
    *,
    suffix: str,
    request: str = "",
    upserts: bool = False,
) -> RangePlan:
    """Plan the table's next transaction, of these slices. `suffix` makes its id unique; `upserts`: the table is keyed."""
    checkpoint = context.checkpoint
    assert checkpoint is not None, "ranges are refused while there is no checkpoint"
    sequence = checkpoint.sequence + 1
    unknown = TopicVersion("")
    return (ReplayPlan if kind is TransactionKind.REPLAY else BackfillPlan)(
        pipeline=context.pipeline,
        transaction_id=f"{context.pipeline}-{sequence:06d}-{kind.value}-{suffix}",
        sequence=sequence,
        slices=slices,
        topics={topic: checkpoint.topics.get(topic, unknown) for topic in sorted({slice_.topic for slice_ in slices})},
        request=request,
        covered={
            slice_.source: context.covered[slice_.source]
            for slice_ in slices
            if slice_.source not in checkpoint.covered
        },
        upserts=upserts,
    )


def _unsafe(context: RangeContext, requested: Slice, kind: TransactionKind) -> str:
    """Say why the partition's offsets cannot be trusted now, or why the range is not ours to touch; "" if neither."""
    source, checkpoint = requested.source, context.checkpoint
    committed = checkpoint.offsets.get(source) if checkpoint else None
    if committed is None or checkpoint is None:
        return (
            f"{source} has no committed offset, so it is not known yet where its live transactions begin. Run `hudi-ingest "
            f"run {context.pipeline}` once, then try again."
            if source in context.watermarks
            else _no_partition(source, context.watermarks)
        )
    lost = find_losses(checkpoint, context.watermarks, context.topic_ids, context.cuts)
    losses = [loss for loss in lost if loss.source == source]
    if source not in context.watermarks or any(loss.reason is not LossReason.RETENTION for loss in losses):
        reasons = "; ".join(map(loss_text, losses)) or f"{source} is not on the broker"
        return f"{reasons}. Its offsets refer to other records now; see `hudi-ingest status {context.pipeline}`."
    if kind is TransactionKind.REPLAY and checkpoint.topics.get(source.topic, TopicVersion("")).generation:
        return (
            f"topic {source.topic} was recreated while the table had rows of the old one, so two records may share an "
            "offset, and it is not known which rows to replace. Ingest the topic into a new table instead."
        )
    taken_over = checkpoint.taken_over.get(source, 0)
    if requested.start < taken_over:
        return (
            f"{requested} begins before offset {taken_over}, where this pipeline took over the table. Another system wrote the "
            "earlier records, and its rows do not say which records they are: a backfill would duplicate them, and a replay "
            "could not remove them. "
            + (f"Give --start {taken_over}." if requested.end > taken_over else "Ingest them into a new table instead.")
        )
    if requested.end > committed:
        return f"{requested} ends after the committed offset {committed}, where live transactions continue. " + (
            f"Give --end {committed}." if requested.start < committed else "There is nothing to do."
        )
    return ""


def _no_partition(source: TopicPartition, known: Iterable[TopicPartition]) -> str:
    topics = Counter(partition.topic for partition in known)
    if source.topic in topics:
        return f"topic {source.topic} has no partition {source.partition}; it has {counted(topics[source.topic], 'partition')}, from 0 on."
    meant = suggestion(source.topic, topics) or f"; choose one of {listed(sorted(topics), _SHOWN_SLICES)}."
    return f"{source.topic} is not a topic of the pipeline{meant}"


def _refuse(context: RangeContext, kind: TransactionKind, problems: Sequence[str]) -> None:
    if problems:
        raise RangeRefused(f"the {kind.value} of pipeline {context.pipeline} is refused; nothing was written", problems)


def _shown(source: TopicPartition, offset_ranges: Ranges) -> str:
    return f"{source} " + ", ".join(f"[{start},{end})" for start, end in offset_ranges)


def _commands(command: str, pipeline: str, source: TopicPartition, offset_ranges: Ranges) -> str:
    return " and ".join(
        f"`hudi-ingest {command} {pipeline} --partition {source} --start {start} --end {end}`"
        for start, end in offset_ranges
    )
