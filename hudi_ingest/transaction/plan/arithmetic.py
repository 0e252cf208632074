"""The arithmetic of plans: where each partition continues, which committed offsets the broker no longer has and how to accept their
loss, whether a transaction is due, and how its records are shared among partitions. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from types import MappingProxyType
from zlib import crc32

from hudi_ingest.exceptions import KafkaUnreachable, OffsetsLost, TableMismatch
from hudi_ingest.exceptions.problems import counted, listed
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Offsets, Slice, TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import LogCut, LossReason, OffsetLoss, TakeOver, TransactionPlan
from hudi_ingest.pipeline.pipeline import Pipeline

FIRST_GUESS_RECORD_BYTES = 1000
"""Mean record size assumed for `max_bytes` until a transaction has measured one."""

RESUMES = ("first", "end", "divergence")
"""The places where a person may let a stopped partition go on, besides an offset: the broker's first offset, its end, and the offset at
which a log that was cut parts from the one that was read."""

SHOWN = 10
"""How many partitions a sentence names."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a transaction is due and how large it may be."""

    interval_seconds: float
    min_records: int
    max_records: int
    max_bytes: int | None = None
    max_wait_seconds: float = math.inf
    """How long `min_records` may hold a transaction back."""
    phase_seconds: float = 0.0
    """How long after the multiples of the interval, counted from 1970, the pipeline's transactions are due."""


def limits_of(pipeline: Pipeline) -> Limits:
    """Return when the pipeline's transactions are due, and how large they may be."""
    settings = pipeline.transaction
    return Limits(
        interval_seconds=settings.interval_seconds,
        min_records=settings.min_records,
        max_records=settings.max_records,
        max_bytes=settings.max_bytes,
        max_wait_seconds=settings.max_wait_seconds,
        phase_seconds=settings.interval_seconds * crc32(pipeline.name.encode()) / 2**32,
    )


@dataclass(frozen=True, slots=True)
class Lag:
    """Offsets between the committed ones and the broker's ends, per partition and in total."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())


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
    """Partitions without a leader have none: it is unknown."""
    return Lag({source: marks.end - starts[source] for source, marks in sorted(watermarks.items()) if marks.led})


def next_due(limits: Limits, last_at: datetime) -> datetime:
    """Return when the transaction is due that follows one planned at `last_at`. A pipeline's due times are an interval apart, so a
    transaction that is late does not delay all those after it: the next is due at the first that is a quarter of an interval later
    or more. If that is more than an interval later, it is due half an interval before that time, and the one after it at its time.

    Spark's Structured Streaming keeps to multiples of a trigger's interval, too; but hundreds of pipelines must not be due at once.
    """
    interval = limits.interval_seconds
    if not interval:
        return last_at
    last = last_at.timestamp()
    due = math.ceil((last - limits.phase_seconds) / interval + 0.25) * interval + limits.phase_seconds
    # Times are rounded, and one that begins on time is followed an interval later.
    if due - last > 1.001 * interval:
        due -= interval / 2
    return datetime.fromtimestamp(due, timezone.utc)


def reason_to_wait(
    waiting: int,
    most: int,
    partitions: int,
    has_to_commit: bool,
    limits: Limits,
    now: datetime,
    last_at: datetime | None,
) -> str:
    """Why no transaction begins now; "" when one does."""
    if waiting == 0 and not has_to_commit:
        return (
            f"no new records: all {partitions} partitions are read to their ends"
            if partitions != 1
            else "no new records: the only partition is read to its end"
        )
    if last_at is not None and last_at > now:
        # That clock was ahead; do not wait until its time comes.
        last_at = None
    if last_at is not None and waiting < most:
        due = next_due(limits, last_at)
        if now < due:
            return (
                f"{counted(waiting, 'record')} waiting; the next transaction is due in {(due - now).total_seconds():.0f} s "
                f"(interval_seconds {limits.interval_seconds:g}) or at {most:,} records"
            )
    if last_at is not None and waiting < min(limits.min_records, most) and not has_to_commit:
        remaining = limits.max_wait_seconds - (now - last_at).total_seconds()
        if remaining > 0:
            return (
                f"{counted(waiting, 'record')} waiting, fewer than min_records {limits.min_records:,}; a transaction takes them within "
                f"{remaining:.0f} s (max_wait_seconds {limits.max_wait_seconds:g})"
            )
    return ""


def undisturbed(waiting: int, most: int, limits: Limits, now: datetime, last_at: datetime | None) -> tuple[float, int]:
    """Return the seconds for which no transaction begins, and how many more records must come for one to begin sooner, while there is a
    `reason_to_wait`; 0 and 0 if that is unknown."""
    if last_at is None or last_at > now:
        return 0.0, 0
    due = next_due(limits, last_at)
    if now < due:
        return (due - now).total_seconds(), max(0, most - waiting)
    passed = (now - last_at).total_seconds()
    return max(0.0, limits.max_wait_seconds - passed), max(0, min(limits.min_records, most) - waiting)


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


def found_cut(
    checkpoint: Checkpoint, watermarks: Mapping[TopicPartition, Watermarks], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, LogCut]:
    """The partitions that end before their committed offset now. Once producers have passed it, offsets alone do not show that."""
    cuts = {}
    for source, offset in sorted(checkpoint.offsets.items()):
        marks, version = watermarks.get(source), checkpoint.topics.get(source.topic, TopicVersion(""))
        is_another = version.topic_id and topic_ids.get(source.topic) not in ("", version.topic_id)
        if marks is not None and offset > marks.end and not is_another:
            cuts[source] = cut_at(checkpoint, source)
    return cuts


def cut_at(checkpoint: Checkpoint, source: TopicPartition, diverges_at: int | None = None) -> LogCut:
    """The cut of a partition that stops it where it is committed."""
    version = checkpoint.topics.get(source.topic, TopicVersion(""))
    return LogCut(source.topic, source.partition, version.topic_id, checkpoint.offsets[source], diverges_at)


def find_losses(
    checkpoint: Checkpoint | None,
    watermarks: Mapping[TopicPartition, Watermarks],
    topic_ids: Mapping[str, str],
    cuts: Mapping[TopicPartition, LogCut] = MappingProxyType({}),
) -> tuple[OffsetLoss, ...]:
    """The committed offsets that the broker cannot honour; all of them for a recreated topic. `cuts`: the partitions whose logs were found
    to be cut before, see cut_logs.py.

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
        elif source not in watermarks or offset > watermarks[source].end or source in cuts:
            # Without both ids this is the only sign of a new topic, so its other partitions count as new too.
            recreated.add(source.topic)
    losses = []
    for source, offset in sorted(committed.items()):
        marks = watermarks.get(source)
        if source.topic in recreated or marks is None:
            restart = marks.begin if marks else None
            losses.append(OffsetLoss(source.topic, source.partition, offset, restart, None, LossReason.RECREATED))
        elif source in cuts or offset > marks.end:
            cut = cuts.get(source)
            where, truncated = cut.diverges_at if cut else None, LossReason.TRUNCATED
            losses.append(
                OffsetLoss(source.topic, source.partition, offset, marks.begin, None, truncated, diverges_at=where)
            )
        elif offset < marks.begin:
            lost = marks.begin - offset
            losses.append(OffsetLoss(source.topic, source.partition, offset, marks.begin, lost, LossReason.RETENTION))
    return tuple(losses)


def resumed(loss: OffsetLoss, at: int | str, marks: Watermarks | None) -> OffsetLoss:
    """The loss with the place where a person wants to go on: an offset, or one of RESUMES. Raises ValueError with the reason if that is
    not possible."""
    if marks is None or loss.restart is None:
        raise ValueError(
            f"{loss.source}: the topic has no such partition on this broker any more, so nothing can be read from it"
        )
    places = {"first": marks.begin, "end": marks.end, "divergence": loss.diverges_at}
    offset = places[at] if isinstance(at, str) else at
    if offset is None:
        raise ValueError(
            f"{loss.source}: it is unknown where the logs part: "
            + (
                "the broker's leader epochs do not say. Give an offset, `end` or `first`"
                if loss.reason is LossReason.TRUNCATED
                else "the log was not cut. Give an offset, `end` or `first`"
            )
        )
    if not marks.begin <= offset <= marks.end:
        raise ValueError(
            f"{loss.source}: {offset} is not between the broker's first offset {marks.begin} and its end {marks.end}"
        )
    lost = loss.lost if loss.reason is not LossReason.RETENTION else offset - loss.committed
    return replace(loss, restart=offset, lost=lost, first=marks.begin)


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
    """Say why the committed offset is lost."""
    if loss.reason is LossReason.RETENTION:
        first = _first(loss) or 0
        return (
            f"{loss.source}: the next offset to read is {loss.committed}, but the broker's first is {first}: "
            f"up to {first - loss.committed} records were deleted by retention before they were ingested"
        )
    if loss.reason is LossReason.TRUNCATED:
        where = "" if loss.diverges_at is None else f", from {loss.diverges_at} on"
        return (
            f"{loss.source}: the next offset to read is {loss.committed}, but the broker's log was cut before it: the broker lost "
            f"records that it had already delivered{where}, or was restored from an older copy; whatever it has at their offsets is not read"
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
        + ("the partition is no longer read" if loss.restart is None else f"resumes at {loss.restart}{_costs(loss)}")
        for loss in resets
    )


def _first(loss: OffsetLoss) -> int | None:
    """The broker's first offset."""
    return loss.restart if loss.first is None else loss.first


def _costs(loss: OffsetLoss) -> str:
    """Say which of the broker's offsets are skipped, and which are read a second time, where reading does not simply go on."""
    first, restart = _first(loss) or 0, loss.restart or 0
    costs = []
    if loss.reason is LossReason.TRUNCATED:
        parts = loss.diverges_at
        known = min(restart, loss.committed) if parts is None else parts
        if parts is None and restart:
            costs.append(f"what the broker has from where the logs part, which is unknown, to {restart - 1} is skipped")
        elif restart > known:
            costs.append(f"its offsets {known} to {restart - 1} are skipped")
        if parts is None and restart < loss.committed:
            costs.append(f"what was read from {restart} to where the logs part is read a second time, under other keys")
        elif restart < known:
            costs.append(f"its offsets {restart} to {known - 1} are read a second time, under other keys")
        if parts is not None and parts < loss.committed:
            costs.append(f"the rows of the lost offsets {parts} to {loss.committed - 1} stay")
    elif restart > first:
        costs.append(f"its offsets {first} to {restart - 1} are skipped")
    return "".join(f"; {cost}" for cost in costs)


def leaderless_text(leaderless: Sequence[TopicPartition]) -> str:
    """Word that these partitions' offsets are unknown without a leader, and how they get one; "" if there are none."""
    if not leaderless:
        return ""
    has = "has" if len(leaderless) == 1 else "have"
    return (
        f"{listed(leaderless, SHOWN)} {has} no leader, so it is unknown how many records wait there; the other partitions continue. "
        "The brokers with replicas are down: start them. `kafka-topics.sh --describe --unavailable-partitions` names them."
    )


def left_out_text(
    pipeline: str,
    stopped: Sequence[OffsetLoss],
    resets: Sequence[OffsetLoss] = (),
    leaderless: Sequence[TopicPartition] = (),
) -> dict[str, str]:
    """Return texts about offsets that are not read, by title: "stopped", "given up", "left out". Empty when all are read."""
    texts = {
        "stopped": stop_text(pipeline, stopped),
        "given up": reset_text(resets),
        "left out": leaderless_text(leaderless),
    }
    return {title: text for title, text in texts.items() if text}


def sources_text(losses: Iterable[OffsetLoss]) -> str:
    return " ".join(str(loss.source) for loss in losses)


def _remedy(pipeline: str, loss: OffsetLoss) -> str:
    command = f"hudi-ingest accept-loss {pipeline}"
    if loss.reason is LossReason.RETENTION:
        return f"`{command} --partition {loss.source}` skips them and resumes at {loss.restart}."
    if loss.reason is LossReason.TRUNCATED:
        parting = (
            f"`{command} --partition {loss.source}=divergence` goes on where the logs part, so nothing is skipped or read twice; "
            if loss.diverges_at is not None
            else ""
        )
        return (
            f"{parting}`{command} --partition {loss.source}=end` goes on at the broker's end and skips what is there now, "
            f"`--partition {loss.source}=OFFSET` anywhere else; `--partition {loss.source}` rereads the partition from its first "
            f"offset {loss.restart}, and records already in the table are added a second time, under other keys. `--dry-run` says what "
            "each would skip."
        )
    return (
        f"`{command} --topic {loss.topic}` reads the new topic into the same table, from its first offsets. If the topic has moved to "
        "another cluster, `--offsets FILE` goes on at the offsets that the file names for its partitions; docs/moving-clusters.md."
    )


def is_stopped(source: TopicPartition, stopped: Iterable[OffsetLoss]) -> bool:
    """Whether the partition may not be read; a recreated topic is stopped as a whole, new partitions included."""
    return any(
        loss.source == source or (loss.topic == source.topic and loss.reason is LossReason.RECREATED)
        for loss in stopped
    )


def require_offset_order(pipeline: Pipeline, checkpoint: Checkpoint | None, plan: TransactionPlan) -> None:
    """Raises TableMismatch if offsets that the plan reads may be smaller than those of older records with the same keys."""
    table = pipeline.table
    if not table.is_keyed or table.ordering is not None:
        return
    topics = sorted({slice_.topic for slice_ in plan.slices})
    if len(topics) > 1:
        raise TableMismatch(
            f"the table at {table.base_path} keeps the record with the greatest Kafka offset of each key, and offsets of several "
            f"topics ({', '.join(topics)}) do not say which record is newer. Nothing was written. Name a column that does as "
            "table.ordering, or write each topic to its own table: `{topic}` in table.base_path and in name."
        )
    if checkpoint is None:
        return
    new = sorted({slice_.source for slice_ in plan.slices} - checkpoint.offsets.keys())
    again = sorted({reset.source for reset in plan.resets if reset.repeats and (reset.restart or 0) < reset.committed})
    if new:
        why = f"{_text(new)} did not exist when the table was created, and the keys that are there now were elsewhere before"
    elif again:
        why = f"the offsets of {_text(again)} start over"
    else:
        return
    raise TableMismatch(
        f"the table at {table.base_path} keeps the record with the greatest Kafka offset of each key, but offsets no longer tell "
        f"which record is newer: {why}. Nothing was written. Give pipeline {pipeline.name} a new name, a new "
        "table.base_path and a column as table.ordering, and read the topic again from its start."
    )


def _text(sources: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sources))
