"""Committed offsets that the broker no longer has: finds them and says what was lost, and how to accept it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hudi_ingest.exceptions import KafkaUnreachable, OffsetsLost
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition, TopicVersion, Watermarks
from hudi_ingest.model.plan import LossReason, OffsetLoss, TakeOver


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
