"""What the next transaction reads: a pure function of committed offsets, watermarks, limits and the clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hudi_ingest.exceptions import KafkaUnreachable, NothingToDo, OffsetsLost
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Offsets, Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import IngestPlan, LossReason, OffsetLoss, TakeOver

FIRST_GUESS_RECORD_BYTES = 1000
"""Mean record size assumed for `max_bytes` until a transaction has measured one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a transaction is due and how large it may be."""

    interval_seconds: float
    min_records: int
    max_records: int
    max_bytes: int | None = None
    max_wait_seconds: float = math.inf
    """How long `min_records` may hold a transaction back."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Offsets between the committed ones and the broker's ends, per partition and in total."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())


def find_losses(
    checkpoint: Checkpoint | None, watermarks: Mapping[TopicPartition, Watermarks], topic_ids: Mapping[str, str]
) -> tuple[OffsetLoss, ...]:
    """The committed offsets that the broker cannot honour; all of them for a recreated topic.

    Resuming from any of them would silently lose or repeat records. Topics without watermarks are ignored. Raises
    KafkaUnreachable when the broker's metadata of a topic is stale.
    """
    if checkpoint is None:
        return ()
    topics = {source.topic for source in watermarks}
    committed = {source: offset for source, offset in checkpoint.offsets.items() if source.topic in topics}
    recreated = set()
    for source, offset in sorted(committed.items()):
        version = checkpoint.topics.get(source.topic, TopicVersion(""))
        found_id = topic_ids.get(source.topic, "")
        if version.topic_id and found_id:
            if version.topic_id != found_id:
                recreated.add(source.topic)
            elif source not in watermarks:
                raise KafkaUnreachable(
                    f"{source}: the broker does not list this partition, although the topic is the same (id {found_id}) and "
                    "Kafka never removes partitions: its metadata is stale. Nothing was written; try again.",
                    topic=source.topic,
                    partition=source.partition,
                    offset=offset,
                )
        elif source not in watermarks or offset > watermarks[source].end:
            # Without both ids this is the only sign of a new topic, so its other partitions count as new too.
            recreated.add(source.topic)
    losses = []
    for source, offset in sorted(committed.items()):
        marks = watermarks.get(source)
        if source.topic in recreated or marks is None:
            restart = marks.begin if marks else None
            losses.append(OffsetLoss(source.topic, source.partition, offset, restart, None, LossReason.RECREATED))
        elif offset < marks.begin:
            lost = marks.begin - offset
            losses.append(OffsetLoss(source.topic, source.partition, offset, marks.begin, lost, LossReason.RETENTION))
        elif offset > marks.end:
            losses.append(OffsetLoss(source.topic, source.partition, offset, marks.begin, None, LossReason.TRUNCATED))
    return tuple(losses)


def require_held(take_over: TakeOver, watermarks: Mapping[TopicPartition, Watermarks], pipeline: str) -> None:
    """Raises OffsetsLost unless the broker holds the next offset of every partition of a table to be taken over.

    No partition may be left out: afterwards nothing would say where it has to start.
    """
    checkpoint = Checkpoint(0, "", take_over.offsets)
    losses = find_losses(checkpoint, watermarks, {})
    missing = [loss.source for loss in losses if loss.source not in watermarks]
    if losses:
        lines = "\n".join(
            f"  - {loss.source} has no such partition on the broker"
            if loss.source in missing
            else f"  - {_take_over_loss(loss)}"
            for loss in losses
        )
        raise OffsetsLost(
            f"pipeline {pipeline} cannot take over the table that {take_over.writer} wrote up to instant {take_over.instant}: the "
            f"broker no longer has the next offsets.\n{lines}\nNothing was written. Correct source.bootstrap_servers if this is "
            f"the wrong broker. Otherwise let {take_over.writer} commit once more; its own settings decide how it skips lost records.",
            topic=losses[0].topic,
            partition=losses[0].partition,
            offset=losses[0].committed,
        )


def _take_over_loss(loss: OffsetLoss) -> str:
    if loss.reason is LossReason.RETENTION:
        return loss_text(loss)
    return (
        f"{loss.source}: the next offset to read is {loss.committed}, but this partition, or another one of the topic, ends "
        "before its next offset: the topic was recreated, or this is another broker"
    )


def loss_text(loss: OffsetLoss) -> str:
    """What happened to the committed offset."""
    if loss.reason is LossReason.RETENTION:
        return (
            f"{loss.source}: the next offset to read is {loss.committed}, but the broker's first is {loss.restart}: "
            f"up to {loss.lost} records were deleted by retention before they were ingested"
        )
    if loss.reason is LossReason.TRUNCATED:
        return (
            f"{loss.source}: the next offset to read is {loss.committed}, but the broker's end is before it: the broker lost "
            "records that it had already delivered, or was restored from an older copy"
        )
    without_partition = "" if loss.restart is not None else ", and the new topic has no such partition"
    return (
        f"{loss.source}: the topic was deleted and recreated after offset {loss.committed} was committed{without_partition}; "
        "how many records of the old topic were never ingested is unknown"
    )


def stop_text(pipeline: str, stopped: Sequence[OffsetLoss]) -> str:
    """One line per stopped partition: what happened, and the command that accepts it."""
    return "\n".join(f"  - {loss_text(loss)}. {_remedy(pipeline, loss)}" for loss in stopped)


def reset_text(resets: Sequence[OffsetLoss]) -> str:
    """One line per reset: what it gives up and where it resumes."""
    return "\n".join(
        f"  - {loss_text(loss)}; given up: "
        + ("the partition is no longer read" if loss.restart is None else f"resumes at {loss.restart}")
        for loss in resets
    )


def losses_text(pipeline: str, stopped: Sequence[OffsetLoss], resets: Sequence[OffsetLoss]) -> dict[str, str]:
    """Losses to show to people, by title: "stopped", "given up". Empty when nothing is lost."""
    texts = {"stopped": stop_text(pipeline, stopped), "given up": reset_text(resets)}
    return {title: text for title, text in texts.items() if text}


def sources_text(losses: Iterable[OffsetLoss]) -> str:
    return " ".join(str(loss.source) for loss in losses)


def _remedy(pipeline: str, loss: OffsetLoss) -> str:
    command = f"hudi-ingest accept-loss {pipeline}"
    if loss.reason is LossReason.RETENTION:
        return f"`{command} --partition {loss.source}` skips them and resumes at {loss.restart}."
    if loss.reason is LossReason.TRUNCATED:
        return (
            f"`{command} --partition {loss.source}` rereads the partition from its first offset {loss.restart}; records "
            "already in the table are added a second time, under other keys."
        )
    return f"`{command} --topic {loss.topic}` reads the new topic into the same table, from its first offsets."


def is_stopped(source: TopicPartition, stopped: Iterable[OffsetLoss]) -> bool:
    """Whether the partition may not be read; a recreated topic is stopped as a whole, new partitions included."""
    return any(
        loss.source == source or (loss.topic == source.topic and loss.reason is LossReason.RECREATED)
        for loss in stopped
    )


def slice_starts(
    checkpoint: Checkpoint | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    first: Offsets,
    losses: Iterable[OffsetLoss],
) -> dict[TopicPartition, int]:
    """Where each partition resumes: its committed offset, else its configured first offset; after a loss, where it would
    resume if the loss were accepted."""
    starts = {
        source: min(max(first.get(source, marks.begin), marks.begin), marks.end)
        for source, marks in sorted(watermarks.items())
    }
    committed = checkpoint.offsets if checkpoint else {}
    starts.update({source: committed[source] for source in starts.keys() & committed.keys()})
    starts.update({loss.source: loss.restart for loss in losses if loss.restart is not None})
    return starts


def lag(starts: Offsets, watermarks: Mapping[TopicPartition, Watermarks]) -> Lag:
    return Lag({source: marks.end - starts[source] for source, marks in sorted(watermarks.items())})


def plan_transaction(
    *,
    pipeline: str,
    suffix: str,
    checkpoint: Checkpoint | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    topic_ids: Mapping[str, str],
    first: Offsets,
    limits: Limits,
    now: datetime,
    last_began_at: datetime | None,
    accepts: Callable[[OffsetLoss], bool] = lambda loss: False,
    take_over: TakeOver | None = None,
) -> IngestPlan:
    """The next transaction.

    `suffix` makes the transaction's id unique among attempts at the same sequence. `first` holds the configured first
    offsets of partitions without a commit. The interval and `max_wait_seconds` count from the start of the table's last
    transaction; the first transaction and a full one do not wait. Every partition gets a slice, an empty one if idle; all
    are empty when a first start is pinned at the topics' ends. A partition whose committed offset the broker cannot honour
    is reset if `accepts` says so (for all partitions of a recreated topic, or for none), else it is stopped: the plan
    names it and gives it no slice. `take_over`: another system's rows in the table; `first` then holds its offsets.

    Raises NothingToDo when none is due; OffsetsLost instead when a partition is stopped; and KafkaUnreachable.
    """
    losses = find_losses(checkpoint, watermarks, topic_ids)
    resets = tuple(loss for loss in losses if accepts(loss))
    stopped = tuple(loss for loss in losses if not accepts(loss))
    readable = {source: marks for source, marks in watermarks.items() if not is_stopped(source, stopped)}
    starts = slice_starts(checkpoint, readable, first, resets)
    backlog = lag(starts, readable)
    most = backlog_limit(limits, checkpoint.record_bytes if checkpoint else 0)
    # A first start at a topic's end must be committed, or each tick would find a later end and never read anything. A
    # take-over must be, so that the table belongs to this pipeline from then on, and an accepted loss too, or it would
    # stay invisible until the next record.
    has_to_commit = bool(resets or take_over) or (
        checkpoint is None and any(starts[source] > marks.begin for source, marks in readable.items())
    )
    wait = _reason_to_wait(backlog.total, most, len(readable), has_to_commit, limits, now, last_began_at)
    if wait:
        raise _lost_for_now(pipeline, stopped, wait if readable else "") if stopped else NothingToDo(pipeline, wait)
    shares = fair_shares(backlog.by_partition, most)
    sequence = checkpoint.sequence + 1 if checkpoint else 1
    return IngestPlan(
        pipeline=pipeline,
        transaction_id=f"{pipeline}-{sequence:06d}-{suffix}",
        sequence=sequence,
        slices=tuple(
            Slice(source.topic, source.partition, starts[source], starts[source] + shares[source])
            for source in sorted(readable)
        ),
        topics={
            topic: _version(topic, checkpoint, topic_ids, resets)
            for topic in sorted({source.topic for source in readable})
        },
        resets=resets,
        stopped=stopped,
        take_over=take_over,
    )


def _lost_for_now(pipeline: str, stopped: Sequence[OffsetLoss], others_wait: str) -> OffsetsLost:
    others = f"\nThe other partitions continue; now: {others_wait}." if others_wait else ""
    return OffsetsLost(
        f"pipeline {pipeline}: the broker no longer has the next offset of {sources_text(stopped)}. Nothing was "
        f"written.\n{stop_text(pipeline, stopped)}{others}",
        topic=stopped[0].topic,
        partition=stopped[0].partition,
        offset=stopped[0].committed,
    )


def _version(
    topic: str, checkpoint: Checkpoint | None, topic_ids: Mapping[str, str], resets: Iterable[OffsetLoss]
) -> TopicVersion:
    version = checkpoint.topics.get(topic, TopicVersion("")) if checkpoint else TopicVersion("")
    repeats = any(loss.topic == topic and loss.repeats for loss in resets)
    return TopicVersion(topic_ids.get(topic) or version.topic_id, version.generation + repeats)


def _reason_to_wait(
    waiting: int,
    most: int,
    partitions: int,
    has_to_commit: bool,
    limits: Limits,
    now: datetime,
    last_began_at: datetime | None,
) -> str:
    """Why no transaction begins now; "" when one does."""
    if waiting == 0 and not has_to_commit:
        return f"no new records: all {partitions} partitions are read to their ends"
    if last_began_at is not None and last_began_at > now:
        # That clock was ahead; do not wait until its time comes.
        last_began_at = None
    if last_began_at is not None and waiting < most:
        due = last_began_at + timedelta(seconds=limits.interval_seconds)
        if now < due:
            return (
                f"{waiting:,} records waiting; the next transaction is due in {(due - now).total_seconds():.0f} s "
                f"(interval_seconds {limits.interval_seconds:g}) or at {most:,} records"
            )
    if last_began_at is not None and waiting < min(limits.min_records, most) and not has_to_commit:
        remaining = limits.max_wait_seconds - (now - last_began_at).total_seconds()
        if remaining > 0:
            return (
                f"{waiting:,} records waiting, fewer than min_records {limits.min_records:,}; a transaction takes them within "
                f"{remaining:.0f} s (max_wait_seconds {limits.max_wait_seconds:g})"
            )
    return ""


def backlog_limit(limits: Limits, record_bytes: int) -> int:
    """The tighter of `max_records` and what `max_bytes` allows at a mean of `record_bytes`, at least 1."""
    if limits.max_bytes is None:
        return limits.max_records
    return max(1, min(limits.max_records, limits.max_bytes // (record_bytes or FIRST_GUESS_RECORD_BYTES)))


def fair_shares(waiting: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Max-min fair shares that add up to min(most, the whole backlog).

    No partition gets more than it has; one with less than an even share leaves the rest to the others, so a busy
    partition cannot starve a quiet one.
    """
    shares = {}
    remaining = min(most, sum(waiting.values()))
    by_size = sorted(waiting, key=lambda source: (waiting[source], source))
    for position, source in enumerate(by_size):
        even_share = -(-remaining // (len(by_size) - position))
        shares[source] = min(waiting[source], even_share)
        remaining -= shares[source]
    return shares


def group_slices(slices: Sequence[Slice], most: int) -> tuple[tuple[Slice, ...], ...]:
    """Group slices into at most `most` groups with even record counts; one slice per group if there are few enough.

    The longest goes first, onto the lightest group (Graham's LPT rule). Groups and their slices are sorted.
    """
    if len(slices) <= most:
        return tuple((slice_,) for slice_ in slices)
    groups: list[list[Slice]] = [[] for _ in range(most)]
    weights = [(0, 0)] * most
    for slice_ in sorted(slices, key=lambda slice_: (-slice_.count, slice_)):
        lightest = min(range(most), key=lambda index: weights[index])
        groups[lightest].append(slice_)
        weights[lightest] = (weights[lightest][0] + slice_.count, weights[lightest][1] + 1)
    return tuple(sorted(tuple(sorted(group)) for group in groups))
