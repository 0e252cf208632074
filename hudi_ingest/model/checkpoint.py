"""The offsets that a commit records as ingested, and those that the next one will record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from hudi_ingest.model.certificate import Certificate, Certified
from hudi_ingest.model.complete_through import Completeness
from hudi_ingest.model.complete_through import from_dict as completeness_from_dict
from hudi_ingest.model.complete_through import to_dict as completeness_to_dict
from hudi_ingest.model.offsets import (
    LastRecord,
    Ranges,
    TopicPartition,
    TopicVersion,
    from_bounds,
    intersection,
    to_bounds,
    union,
)
from hudi_ingest.model.plan import IngestPlan, RangePlan, RetryPlan, TransactionPlan


@dataclass(frozen=True, slots=True)
class LettersHead:
    """The end of a pipeline's list of dead letters; see transaction/dead_letters/log.py."""

    manifest: str
    """Path of the newest manifest, relative to the table."""
    waiting: int
    """Pending dead letters: those that have not become rows yet."""

    @property
    def instant(self) -> str:
        """The instant of the newest transaction on the list."""
        return self.manifest.split("/")[-2]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A pipeline's record in one committed instant: the whole map of next offsets, and its place in the sequence of
    commits.

    `sequence` grows by one with each transaction of the pipeline. It, not the instant's time, orders checkpoints:
    another writer's commit may carry an older checkpoint forward under a later instant.
    """

    sequence: int
    transaction_id: str
    offsets: Mapping[TopicPartition, int]
    """The next offset to ingest of each partition; all before it is accounted for."""
    record_bytes: int = 0
    """Mean size of a record's value in the last transaction that had any; 0 when none had."""
    topics: Mapping[str, TopicVersion] = field(default_factory=dict)
    """Version 1 had none; a topic without a version gets the broker's with the next commit."""
    instant: str = ""
    """The transaction's own instant, whichever commit carries the checkpoint now. Version 1 had none."""
    letters: LettersHead | None = None
    """None while the pipeline has never had dead letters."""
    covered: Mapping[TopicPartition, Ranges] = field(default_factory=dict)
    """The offset ranges of a partition that transactions have already ingested, including deleted rows; normally one range
    that ends at the committed offset. Checkpoints of older versions lack it."""
    moved_by: str = ""
    """Instant of the newest transaction that moved offsets, if it is not `instant`."""
    taken_over: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the pipeline took the table over from another system. Everything before these offsets is in the table, in rows
    that do not identify their records."""
    totals: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The sum of all commits since the first that counted; see `Totals` in model/report.py."""
    complete: Mapping[TopicPartition, Completeness] = field(default_factory=dict)
    """Up to which Kafka timestamp each partition is complete. Checkpoints of older versions lack it."""
    certified: Mapping[TopicPartition, Certified] = field(default_factory=dict)
    """The certificates of partitions up to the committed offsets; see `certified_after` in model/report.py."""
    last: Mapping[TopicPartition, LastRecord] = field(default_factory=dict)
    """The last record before the committed offset, by which the next transaction recognizes a partition's log. Checkpoints of older
    versions lack it."""

    def to_json(self) -> str:
        """Serialize canonically: equal checkpoints give equal text, so the commit guard may compare text."""
        topics: dict[str, dict[str, int]] = {}
        for source, offset in sorted(self.offsets.items()):
            topics.setdefault(source.topic, {})[str(source.partition)] = offset
        covered: dict[str, dict[str, list[int]]] = {}
        for source, ranges in sorted(self.covered.items()):
            covered.setdefault(source.topic, {})[str(source.partition)] = to_bounds(ranges, self.offsets[source])
        return json.dumps(
            {
                # Versions that do not know `taken_over` would add those records a second time, so they must refuse.
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
                **(
                    {"totals": {k: dict(sorted(v.items())) for k, v in sorted(self.totals.items())}}
                    if self.totals
                    else {}
                ),
                **({"complete": completeness_to_dict(self.complete)} if self.complete else {}),
                **(
                    {
                        "certified": {
                            str(source): {"start": each.start, "count": each.rows, **each.certificate.to_dict()}
                            for source, each in sorted(self.certified.items())
                        }
                    }
                    if self.certified
                    else {}
                ),
                **(
                    {"last": {str(k): [v.offset, v.timestamp, v.epoch] for k, v in sorted(self.last.items())}}
                    if self.last
                    else {}
                ),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Checkpoint:
        """Parse a checkpoint. Raises ValueError when the text was written by a newer version or is not a checkpoint."""
        checkpoint = json.loads(text)
        if checkpoint.get("version") not in (1, 2, 3):
            raise ValueError(f"unknown checkpoint version {checkpoint.get('version')!r}, expected 1, 2 or 3")
        offsets = {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in checkpoint["offsets"].items()
            for partition, offset in partitions.items()
        }
        topics = {topic: TopicVersion(**version) for topic, version in checkpoint.get("topics", {}).items()}
        covered = {
            TopicPartition(topic, int(partition)): from_bounds(bounds, offsets[TopicPartition(topic, int(partition))])
            for topic, partitions in checkpoint.get("covered", {}).items()
            for partition, bounds in partitions.items()
        }
        return cls(
            int(checkpoint["sequence"]),
            str(checkpoint["transaction"]),
            offsets,
            int(checkpoint["record_bytes"]),
            topics,
            checkpoint.get("instant", ""),
            LettersHead(**checkpoint["dead_letters"]) if "dead_letters" in checkpoint else None,
            covered,
            checkpoint.get("moved_by", ""),
            {TopicPartition.parse(source): int(offset) for source, offset in checkpoint.get("taken_over", {}).items()},
            checkpoint.get("totals", {}),
            completeness_from_dict(checkpoint.get("complete", {})),
            {
                TopicPartition.parse(source): Certified(each["start"], each["count"], certificate)
                for source, each in checkpoint.get("certified", {}).items()
                if (certificate := Certificate.from_dict(each)) is not None
            },
            {
                TopicPartition.parse(source): LastRecord(*record)
                for source, record in checkpoint.get("last", {}).items()
            },
        )


def next_checkpoint(
    current: Checkpoint | None, plan: TransactionPlan, record_bytes: int, instant: str = ""
) -> Checkpoint:
    """The checkpoint in `plan`'s commit, `instant`. A mean record size of 0 keeps the previous one."""
    offsets = dict(current.offsets) if current else {}
    known = current.record_bytes if current else 0
    topics = dict(current.topics) if current else {}
    moves_offsets = isinstance(plan, IngestPlan)
    if moves_offsets:
        for reset in plan.resets:
            offsets.pop(reset.source, None)
        offsets.update({slice_.source: slice_.end for slice_ in plan.slices})
        topics |= plan.topics
    taken_over = dict(current.taken_over) if current else {}
    if plan.take_over is not None:
        taken_over |= plan.take_over.offsets
    for reset in plan.resets:
        if reset.repeats:
            # The rows from before the take-over are not of the records that have these offsets now.
            taken_over.pop(reset.source, None)
    letters = current.letters if current else None
    moved_by = "" if moves_offsets or current is None else current.moved_by or current.instant
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
        current.totals if current else {},
        current.complete if current else {},
        current.certified if current else {},
        current.last if current else {},
    )


def next_coverage(current: Checkpoint | None, plan: TransactionPlan) -> dict[TopicPartition, Ranges]:
    """Return the covered offsets after `plan`'s commit. Leaves out partitions whose earlier coverage is unknown."""
    committed = current.offsets if current else {}
    covered = dict(current.covered) if current else {}
    if isinstance(plan, RetryPlan):
        return covered
    if isinstance(plan, RangePlan):
        # Keep what the plan determined about an older table, so that it need not be determined again.
        covered = {**plan.covered, **covered}
    for reset in plan.resets:
        if reset.repeats:
            # The same offsets are other records from now on, or from where the logs part.
            same = ((0, reset.diverges_at or 0),)
            covered[reset.source] = intersection(covered.get(reset.source, ()), same)
        if reset.restart is None:
            covered.pop(reset.source, None)
    for slice_ in plan.slices:
        if slice_.source in covered or slice_.source not in committed:
            covered[slice_.source] = union(covered.get(slice_.source, ()), [(slice_.start, slice_.end)])
    return covered
