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
Left = Mapping[TopicPartition, Ranges]
"""What is still to be read of each partition."""


@dataclass(frozen=True, slots=True)
class Known:
    """What table and broker say when a range is judged. `covered` is of every partition that is asked for."""

    pipeline: str
    checkpoint: Checkpoint | None
    covered: Mapping[TopicPartition, Ranges]
    watermarks: Mapping[TopicPartition, Watermarks]
    topic_ids: Mapping[str, str]


def to_backfill(known: Known, asked: Sequence[Slice], *, skip_covered: bool) -> Left:
    """What of the asked ranges is not in the table yet. Raises RangeRefused, KafkaUnreachable."""
    problems = []
    left: dict[TopicPartition, Ranges] = {}
    for each in asked:
        found = _unsafe(known, each, TransactionKind.BACKFILL)
        if found:
            problems.append(found)
            continue
        whole = ranges([(each.start, each.end)])
        covered = intersection(whole, known.covered.get(each.source, ()))
        rest = difference(whole, covered)
        if covered and not skip_covered:
            problems.append(
                f"{_shown(each.source, covered)} is in the table already. To write it anew: "
                f"{_commands('replay', known.pipeline, each.source, covered)}. To add only what is missing"
                + (f", {_shown(each.source, rest)}, " if rest else ", which is nothing here, ")
                + "give --skip-covered."
            )
        begin = known.watermarks[each.source].begin
        gone = intersection(rest, ranges([(0, begin)]))
        if gone:
            problems.append(
                f"{_shown(each.source, gone)} is gone from Kafka by retention: its first offset is {begin}. "
                + (f"What is left: --start {begin}." if rest[-1][1] > begin else "Nothing of the range is left.")
            )
        left[each.source] = union(left.get(each.source, ()), rest)
    _refuse(known, TransactionKind.BACKFILL, problems)
    return left


def to_replay(known: Known, asked: Sequence[Slice]) -> Left:
    """The asked ranges, if all of them are in the table and in Kafka. Raises RangeRefused, KafkaUnreachable."""
    problems = []
    left: dict[TopicPartition, Ranges] = {}
    for each in asked:
        found = _unsafe(known, each, TransactionKind.REPLAY)
        if found:
            problems.append(found)
            continue
        whole = ranges([(each.start, each.end)])
        missing = difference(whole, known.covered.get(each.source, ()))
        if missing:
            problems.append(
                f"{_shown(each.source, missing)} was never read into the table, so there is nothing to write anew. To add "
                f"it: {_commands('backfill', known.pipeline, each.source, missing)}."
            )
        begin = known.watermarks[each.source].begin
        gone = intersection(whole, ranges([(0, begin)]))
        if gone:
            problems.append(
                f"{_shown(each.source, gone)} is gone from Kafka by retention (its first offset is {begin}), so its rows "
                "cannot be made again, and stay as they are. "
                + (f"What is left: --start {begin}." if each.end > begin else "Nothing of the range is left.")
            )
        left[each.source] = union(left.get(each.source, ()), whole)
    _refuse(known, TransactionKind.REPLAY, problems)
    return left


def next_ranges(left: Left, most: int) -> tuple[Slice, ...]:
    """What the next transaction of at most `most` offsets reads: of each partition from its first range. Empty at the end."""
    first = {source: found[0] for source, found in left.items() if found}
    shares = fair_shares({source: end - start for source, (start, end) in first.items()}, most)
    return tuple(
        Slice(source.topic, source.partition, start, start + shares[source])
        for source, (start, _) in sorted(first.items())
        if shares[source]
    )


def most_offsets(pipeline: Pipeline, known: Known) -> int:
    """How many offsets a transaction may take."""
    settings = pipeline.transaction
    limits = Limits(settings.interval_seconds, settings.min_records, settings.max_records, settings.max_bytes)
    return backlog_limit(limits, known.checkpoint.record_bytes if known.checkpoint else 0)


def as_slices(left: Left) -> tuple[Slice, ...]:
    return tuple(
        Slice(source.topic, source.partition, start, end)
        for source, found in sorted(left.items())
        for start, end in found
    )


def range_facts(left: Left) -> list[dict[str, Any]]:
    """A row for each range, for people's scripts."""
    return [asdict(each) for each in as_slices(left)]


def shown_slices(slices: Sequence[Slice]) -> str:
    """The first of them."""
    return ", ".join(map(str, slices[:_SHOWN_SLICES])) + (
        f" and {len(slices) - _SHOWN_SLICES} more" if len(slices) > _SHOWN_SLICES else ""
    )


def without(asked: Slice, done: Iterable[Slice]) -> tuple[Slice, ...]:
    """What is left of a range when the slices are done."""
    ended = ranges((each.start, each.end) for each in done if each.source == asked.source)
    return as_slices({asked.source: difference(ranges([(asked.start, asked.end)]), ended)})


def total(left: Left) -> int:
    return sum(map(length, left.values()))


def range_transaction(
    known: Known,
    kind: TransactionKind,
    slices: tuple[Slice, ...],
    *,
    suffix: str,
    replaces: tuple[ReplacedFile, ...] = (),
    respect_deletes: bool = False,
) -> TransactionPlan:
    """A transaction of these slices, the next of the table. `suffix` makes its id unique."""
    checkpoint = known.checkpoint
    assert checkpoint is not None, "a range is refused before there is a checkpoint"
    sequence = checkpoint.sequence + 1
    unknown = TopicVersion("")
    return TransactionPlan(
        pipeline=known.pipeline,
        transaction_id=f"{known.pipeline}-{sequence:06d}-{kind.value}-{suffix}",
        sequence=sequence,
        slices=slices,
        topics={topic: checkpoint.topics.get(topic, unknown) for topic in sorted({each.topic for each in slices})},
        kind=kind,
        covered={each.source: known.covered[each.source] for each in slices if each.source not in checkpoint.covered},
        replaces=replaces,
        respect_deletes=respect_deletes,
    )


def _unsafe(known: Known, asked: Slice, kind: TransactionKind) -> str:
    """Why offsets of the partition mean nothing now, or the range is not ours; "" when all is well."""
    source, checkpoint = asked.source, known.checkpoint
    committed = checkpoint.offsets.get(source) if checkpoint else None
    if committed is None or checkpoint is None:
        return (
            f"{source} has no committed offset, so nobody knows yet where its live transactions begin. Run `hudi-ingest run "
            f"{known.pipeline}` once, and then this again."
            if source in known.watermarks
            else f"{source} is no partition of the pipeline's topics."
        )
    losses = [each for each in find_losses(checkpoint, known.watermarks, known.topic_ids) if each.source == source]
    if source not in known.watermarks or any(each.reason is not LossReason.RETENTION for each in losses):
        what = "; ".join(map(loss_text, losses)) or f"{source} is not on the broker"
        return f"{what}. Its offsets count other records now; see `hudi-ingest status {known.pipeline}`."
    if kind is TransactionKind.REPLAY and checkpoint.topics.get(source.topic, TopicVersion("")).generation:
        return (
            f"topic {source.topic} was made again while the table had rows of the old one, so two records may have one "
            "offset, and which rows are to be replaced cannot be told. Read the topic into a new table instead."
        )
    taken = checkpoint.taken_over.get(source, 0)
    if asked.start < taken:
        return (
            f"{asked} begins before offset {taken}, where this pipeline took the table over. What is before it is in the "
            "table in rows of another system, which do not say which records they are: a backfill would add them a second "
            "time, and a replay could not take them out. "
            + (f"Give --start {taken}." if asked.end > taken else "Read them into a new table instead.")
        )
    if asked.end > committed:
        return f"{asked} ends behind the committed offset {committed}, from which on live transactions read. " + (
            f"Give --end {committed}." if asked.start < committed else "There is nothing to do."
        )
    return ""


def _refuse(known: Known, kind: TransactionKind, problems: Sequence[str]) -> None:
    if problems:
        raise RangeRefused(f"the {kind.value} of pipeline {known.pipeline} is refused, nothing was written", problems)


def _shown(source: TopicPartition, found: Ranges) -> str:
    return f"{source} " + ", ".join(f"[{start},{end})" for start, end in found)


def _commands(command: str, pipeline: str, source: TopicPartition, found: Ranges) -> str:
    return " and ".join(
        f"`hudi-ingest {command} {pipeline} --partition {source} --start {start} --end {end}`" for start, end in found
    )
