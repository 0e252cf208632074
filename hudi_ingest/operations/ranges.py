"""Which offsets a backfill or a replay may touch, and what its next transaction reads: pure.

What a table covers, the checkpoint says (see model.Checkpoint.covered). Live transactions go on from the committed offset,
so a range that ends behind it is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hudi_ingest.exceptions import RangeRefused
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offset_ranges import Ranges, difference, intersection, length, ranges, union
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import LossReason, ReplacedFile, TransactionKind, TransactionPlan
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.planning import Limits, backlog_limit, fair_shares, find_losses, loss_text

_SHOWN_SLICES = 8
RemainingRanges = Mapping[TopicPartition, Ranges]
"""What is still to be read of each partition."""


@dataclass(frozen=True, slots=True)
class RangeContext:
    """What table and broker say when a range is judged. `covered` is of every partition that is asked for."""

    pipeline: str
    checkpoint: Checkpoint | None
    covered: Mapping[TopicPartition, Ranges]
    watermarks: Mapping[TopicPartition, Watermarks]
    topic_ids: Mapping[str, str]


def to_backfill(context: RangeContext, requested: Sequence[Slice], *, skip_covered: bool) -> RemainingRanges:
    """What of the asked ranges is not in the table yet. Raises RangeRefused, KafkaUnreachable."""
    problems = []
    remaining: dict[TopicPartition, Ranges] = {}
    for slice_ in requested:
        problem = _unsafe(context, slice_, TransactionKind.BACKFILL)
        if problem:
            problems.append(problem)
            continue
        whole_range = ranges([(slice_.start, slice_.end)])
        covered = intersection(whole_range, context.covered.get(slice_.source, ()))
        missing = difference(whole_range, covered)
        if covered and not skip_covered:
            problems.append(
                f"{_shown(slice_.source, covered)} is in the table already. To write it anew: "
                f"{_commands('replay', context.pipeline, slice_.source, covered)}. To add only what is missing"
                + (f", {_shown(slice_.source, missing)}, " if missing else ", which is nothing here, ")
                + "give --skip-covered."
            )
        begin = context.watermarks[slice_.source].begin
        expired = intersection(missing, ranges([(0, begin)]))
        if expired:
            problems.append(
                f"{_shown(slice_.source, expired)} is gone from Kafka by retention: its first offset is {begin}. "
                + (f"What is left: --start {begin}." if missing[-1][1] > begin else "Nothing of the range is left.")
            )
        remaining[slice_.source] = union(remaining.get(slice_.source, ()), missing)
    _refuse(context, TransactionKind.BACKFILL, problems)
    return remaining


def to_replay(context: RangeContext, requested: Sequence[Slice]) -> RemainingRanges:
    """The asked ranges, if all of them are in the table and in Kafka. Raises RangeRefused, KafkaUnreachable."""
    problems = []
    remaining: dict[TopicPartition, Ranges] = {}
    for slice_ in requested:
        problem = _unsafe(context, slice_, TransactionKind.REPLAY)
        if problem:
            problems.append(problem)
            continue
        whole_range = ranges([(slice_.start, slice_.end)])
        missing = difference(whole_range, context.covered.get(slice_.source, ()))
        if missing:
            problems.append(
                f"{_shown(slice_.source, missing)} was never read into the table, so there is nothing to write anew. To add "
                f"it: {_commands('backfill', context.pipeline, slice_.source, missing)}."
            )
        begin = context.watermarks[slice_.source].begin
        expired = intersection(whole_range, ranges([(0, begin)]))
        if expired:
            problems.append(
                f"{_shown(slice_.source, expired)} is gone from Kafka by retention (its first offset is {begin}), so its rows "
                "cannot be made again, and stay as they are. "
                + (f"What is left: --start {begin}." if slice_.end > begin else "Nothing of the range is left.")
            )
        remaining[slice_.source] = union(remaining.get(slice_.source, ()), whole_range)
    _refuse(context, TransactionKind.REPLAY, problems)
    return remaining


def next_ranges(remaining: RemainingRanges, most: int) -> tuple[Slice, ...]:
    """What the next transaction of at most `most` offsets reads: of each partition from its first range. Empty at the end."""
    first = {source: partition_ranges[0] for source, partition_ranges in remaining.items() if partition_ranges}
    shares = fair_shares({source: end - start for source, (start, end) in first.items()}, most)
    return tuple(
        Slice(source.topic, source.partition, start, start + shares[source])
        for source, (start, _) in sorted(first.items())
        if shares[source]
    )


def most_offsets(pipeline: Pipeline, context: RangeContext) -> int:
    """How many offsets a transaction may take."""
    settings = pipeline.transaction
    limits = Limits(settings.interval_seconds, settings.min_records, settings.max_records, settings.max_bytes)
    return backlog_limit(limits, context.checkpoint.record_bytes if context.checkpoint else 0)


def as_slices(remaining: RemainingRanges) -> tuple[Slice, ...]:
    return tuple(
        Slice(source.topic, source.partition, start, end)
        for source, partition_ranges in sorted(remaining.items())
        for start, end in partition_ranges
    )


def range_facts(remaining: RemainingRanges) -> list[dict[str, Any]]:
    """A row for each range, for people's scripts."""
    return [asdict(slice_) for slice_ in as_slices(remaining)]


def shown_slices(slices: Sequence[Slice]) -> str:
    """The first of them."""
    return ", ".join(map(str, slices[:_SHOWN_SLICES])) + (
        f" and {len(slices) - _SHOWN_SLICES} more" if len(slices) > _SHOWN_SLICES else ""
    )


def without(requested: Slice, done: Iterable[Slice]) -> tuple[Slice, ...]:
    """What is left of a range when the slices are done."""
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
    replaces: tuple[ReplacedFile, ...] = (),
    respect_deletes: bool = False,
) -> TransactionPlan:
    """A transaction of these slices, the next of the table. `suffix` makes its id unique."""
    checkpoint = context.checkpoint
    assert checkpoint is not None, "a range is refused before there is a checkpoint"
    sequence = checkpoint.sequence + 1
    unknown = TopicVersion("")
    return TransactionPlan(
        pipeline=context.pipeline,
        transaction_id=f"{context.pipeline}-{sequence:06d}-{kind.value}-{suffix}",
        sequence=sequence,
        slices=slices,
        topics={topic: checkpoint.topics.get(topic, unknown) for topic in sorted({slice_.topic for slice_ in slices})},
        kind=kind,
        covered={
            slice_.source: context.covered[slice_.source]
            for slice_ in slices
            if slice_.source not in checkpoint.covered
        },
        replaces=replaces,
        respect_deletes=respect_deletes,
    )


def _unsafe(context: RangeContext, requested: Slice, kind: TransactionKind) -> str:
    """Why offsets of the partition mean nothing now, or the range is not ours; "" when all is well."""
    source, checkpoint = requested.source, context.checkpoint
    committed = checkpoint.offsets.get(source) if checkpoint else None
    if committed is None or checkpoint is None:
        return (
            f"{source} has no committed offset, so nobody knows yet where its live transactions begin. Run `hudi-ingest run "
            f"{context.pipeline}` once, and then this again."
            if source in context.watermarks
            else f"{source} is no partition of the pipeline's topics."
        )
    losses = [loss for loss in find_losses(checkpoint, context.watermarks, context.topic_ids) if loss.source == source]
    if source not in context.watermarks or any(loss.reason is not LossReason.RETENTION for loss in losses):
        reasons = "; ".join(map(loss_text, losses)) or f"{source} is not on the broker"
        return f"{reasons}. Its offsets count other records now; see `hudi-ingest status {context.pipeline}`."
    if kind is TransactionKind.REPLAY and checkpoint.topics.get(source.topic, TopicVersion("")).generation:
        return (
            f"topic {source.topic} was recreated while the table had rows of the old one, so two records may share an "
            "offset, and nothing tells which rows to replace. Read the topic into a new table instead."
        )
    taken_over = checkpoint.taken_over.get(source, 0)
    if requested.start < taken_over:
        return (
            f"{requested} begins before offset {taken_over}, where this pipeline took the table over. What is before it is in the "
            "table in rows of another system, which do not say which records they are: a backfill would add them a second "
            "time, and a replay could not take them out. "
            + (f"Give --start {taken_over}." if requested.end > taken_over else "Read them into a new table instead.")
        )
    if requested.end > committed:
        return f"{requested} ends behind the committed offset {committed}, from which on live transactions read. " + (
            f"Give --end {committed}." if requested.start < committed else "There is nothing to do."
        )
    return ""


def _refuse(context: RangeContext, kind: TransactionKind, problems: Sequence[str]) -> None:
    if problems:
        raise RangeRefused(f"the {kind.value} of pipeline {context.pipeline} is refused, nothing was written", problems)


def _shown(source: TopicPartition, offset_ranges: Ranges) -> str:
    return f"{source} " + ", ".join(f"[{start},{end})" for start, end in offset_ranges)


def _commands(command: str, pipeline: str, source: TopicPartition, offset_ranges: Ranges) -> str:
    return " and ".join(
        f"`hudi-ingest {command} {pipeline} --partition {source} --start {start} --end {end}`"
        for start, end in offset_ranges
    )
