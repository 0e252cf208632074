"""What a commit says has been ingested, and what the next one will say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from hudi_ingest.model.offset_ranges import Ranges, from_bounds, to_bounds, union
from hudi_ingest.model.offsets import TopicPartition, TopicVersion
from hudi_ingest.model.plan import TransactionKind, TransactionPlan


@dataclass(frozen=True, slots=True)
class LettersHead:
    """Where the list of a pipeline's dead letters ends: see transaction/dead_letters/log.py."""

    manifest: str
    """Path of the newest manifest, relative to the table."""
    waiting: int
    """Dead letters that have not become rows yet."""

    @property
    def instant(self) -> str:
        """Of the newest transaction on the list."""
        return self.manifest.split("/")[-2]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one committed instant says of a pipeline: the whole map of next offsets, and its place in the row of commits.

    `sequence` grows by one with each transaction of the pipeline. It, not the instant's time, orders checkpoints:
    another writer's commit may carry an older checkpoint forward under a later instant.
    """

    sequence: int
    transaction_id: str
    offsets: Mapping[TopicPartition, int]
    record_bytes: int = 0
    """Mean size of a record's value in the last transaction that had any; 0 when none had."""
    topics: Mapping[str, TopicVersion] = field(default_factory=dict)
    """Version 1 had none: a topic without one takes the broker's with the next commit."""
    instant: str = ""
    """The transaction's own instant, whichever commit carries the checkpoint now. Version 1 had none."""
    letters: LettersHead | None = None
    """None while the pipeline has never had dead letters."""
    covered: Mapping[TopicPartition, Ranges] = field(default_factory=dict)
    """Which offsets of a partition transactions have read into the table, deleted rows included; in the normal case one
    range that ends at the committed offset. Checkpoints of older versions do not say it of their partitions."""
    moved_by: str = ""
    """Instant of the newest transaction that moved offsets, where that is another one than `instant`."""
    taken_over: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the pipeline took the table over from another system: what is before these offsets is in the table, in rows
    that do not say which records they are."""

    def to_json(self) -> str:
        """A canonical text: equal checkpoints give equal texts, so the commit guard may compare them as texts."""
        topics: dict[str, dict[str, int]] = {}
        for source, offset in sorted(self.offsets.items()):
            topics.setdefault(source.topic, {})[str(source.partition)] = offset
        covered: dict[str, dict[str, list[int]]] = {}
        for source, found in sorted(self.covered.items()):
            covered.setdefault(source.topic, {})[str(source.partition)] = to_bounds(found, self.offsets[source])
        return json.dumps(
            {
                # Versions that know nothing of it would add those records a second time.
                "version": 3 if self.taken_over else 2,
                "sequence": self.sequence,
                "transaction": self.transaction_id,
                "offsets": topics,
                "record_bytes": self.record_bytes,
                "topics": {topic: asdict(version) for topic, version in sorted(self.topics.items())},
                "instant": self.instant,
                **({"dead_letters": asdict(self.letters)} if self.letters else {}),
                **({"covered": covered} if covered else {}),
                **({"moved_by": self.moved_by} if self.moved_by else {}),
                **({"taken_over": {str(k): v for k, v in sorted(self.taken_over.items())}} if self.taken_over else {}),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Checkpoint:
        """Raises ValueError when the text was written by a newer version or is not a checkpoint."""
        found = json.loads(text)
        if found.get("version") not in (1, 2, 3):
            raise ValueError(f"checkpoint version {found.get('version')!r} is not known, expected 1, 2 or 3")
        offsets = {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in found["offsets"].items()
            for partition, offset in partitions.items()
        }
        topics = {topic: TopicVersion(**version) for topic, version in found.get("topics", {}).items()}
        covered = {
            TopicPartition(topic, int(partition)): from_bounds(bounds, offsets[TopicPartition(topic, int(partition))])
            for topic, partitions in found.get("covered", {}).items()
            for partition, bounds in partitions.items()
        }
        return cls(
            int(found["sequence"]),
            str(found["transaction"]),
            offsets,
            int(found["record_bytes"]),
            topics,
            found.get("instant", ""),
            LettersHead(**found["dead_letters"]) if "dead_letters" in found else None,
            covered,
            found.get("moved_by", ""),
            {TopicPartition.parse(source): int(offset) for source, offset in found.get("taken_over", {}).items()},
        )


def next_checkpoint(
    current: Checkpoint | None, plan: TransactionPlan, record_bytes: int, instant: str = ""
) -> Checkpoint:
    """The checkpoint that `plan`'s commit, `instant`, carries; a mean record size of 0 keeps the one known before."""
    offsets = dict(current.offsets) if current else {}
    known = current.record_bytes if current else 0
    topics = dict(current.topics) if current else {}
    if plan.kind.moves_offsets:
        for reset in plan.resets:
            offsets.pop(reset.source, None)
        offsets.update({each.source: each.end for each in plan.slices})
        topics |= plan.topics
    taken_over = dict(current.taken_over) if current else {}
    if plan.take_over is not None:
        taken_over |= plan.take_over.offsets
    for reset in plan.resets:
        if reset.repeats:
            # The rows that were there are of other records than those that have these offsets now.
            taken_over.pop(reset.source, None)
    letters = current.letters if current else None
    moved_by = "" if plan.kind.moves_offsets or current is None else current.moved_by or current.instant
    return Checkpoint(
        plan.sequence,
        plan.transaction_id,
        offsets,
        record_bytes or known,
        topics,
        instant,
        letters,
        next_coverage(current, plan),
        moved_by,
        taken_over,
    )


def next_coverage(current: Checkpoint | None, plan: TransactionPlan) -> dict[TopicPartition, Ranges]:
    """What is covered after `plan`'s commit. A partition of which nobody knows what was covered before is left out."""
    committed = current.offsets if current else {}
    covered = dict(current.covered) if current else {}
    if plan.kind is TransactionKind.RETRY:
        return covered
    # What was found out about an older table need not be found out again.
    covered = {**plan.covered, **covered}
    for reset in plan.resets:
        if reset.repeats:
            # What comes now under the same offsets are other records.
            covered[reset.source] = ()
        if reset.restart is None:
            covered.pop(reset.source, None)
    for each in plan.slices:
        if each.source in covered or each.source not in committed:
            covered[each.source] = union(covered.get(each.source, ()), [(each.start, each.end)])
    return covered
