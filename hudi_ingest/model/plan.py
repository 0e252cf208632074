"""What a transaction is to do, decided before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from hudi_ingest.model.offset_ranges import Ranges
from hudi_ingest.model.offsets import Offsets, Slice, TopicPartition, TopicVersion


class LossReason(str, Enum):
    """Why a committed offset cannot be honoured."""

    RETENTION = "retention"
    """The broker deleted records behind it that were not ingested."""
    RECREATED = "recreated"
    """The topic is another one than the committed offset counts in."""
    TRUNCATED = "truncated"
    """The topic is the same, and its end is before the committed offset."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetLoss:
    """A committed offset that the broker cannot honour, and where reading would go on if the loss were accepted.

    Not accepted it stops its partition; accepted it is a reset, the only jump that successive commits may make.
    """

    topic: str
    partition: int
    committed: int
    restart: int | None
    """The broker's first offset; None when it has no such partition any more, which then leaves the checkpoint."""
    lost: int | None
    """How many offsets are given up; None when nobody can know."""
    reason: LossReason

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def repeats(self) -> bool:
        """Whether offsets from `restart` on were committed before, with other records or the same ones."""
        return self.reason is not LossReason.RETENTION

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "reason": self.reason.value}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> OffsetLoss:
        return cls(**{**found, "reason": LossReason(found["reason"])})


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Where another system's ingestion into a table ended, and a pipeline's begins."""

    writer: str
    """In words."""
    instant: str
    """Of its last commit."""
    offsets: Offsets
    """The next offset of each Kafka partition."""

    def __str__(self) -> str:
        following = ", ".join(f"{source} {offset}" for source, offset in sorted(self.offsets.items()))
        return (
            f"{self.writer} wrote this table up to instant {self.instant}; its next offsets are {following}; the first "
            "transaction continues there"
        )

    def to_dict(self) -> dict[str, Any]:
        offsets = {str(source): offset for source, offset in sorted(self.offsets.items())}
        return {"writer": self.writer, "instant": self.instant, "offsets": offsets}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> TakeOver:
        offsets = {TopicPartition.parse(source): int(offset) for source, offset in found["offsets"].items()}
        return cls(str(found["writer"]), str(found["instant"]), offsets)


class TransactionKind(str, Enum):
    """What a transaction is for. Only `ingest` moves the committed offsets."""

    INGEST = "ingest"
    """Goes on where the table's offsets end."""
    BACKFILL = "backfill"
    """Adds ranges of offsets that are not in the table."""
    REPLAY = "replay"
    """Writes ranges anew that are in the table, in place of their rows."""
    RETRY = "retry"
    """Adds dead letters that can become rows now."""

    @property
    def moves_offsets(self) -> bool:
        return self is TransactionKind.INGEST


@dataclass(frozen=True, slots=True, order=True)
class ReplacedFile:
    """A live base file whose rows a replay takes out of the table: all of them, or `rows` of a range while `kept` others are
    copied to a new file.

    `path` is relative to the table. The write of the slice of `topic` and `partition` makes the copy.
    """

    path: str
    rows: int
    kept: int
    size_bytes: int
    topic: str
    partition: int

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def partition_path(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def file_id(self) -> str:
        return self.name.split("_", 1)[0]


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """A fixed set of slices that is published by one commit, or not at all."""

    pipeline: str
    transaction_id: str
    sequence: int
    slices: tuple[Slice, ...]
    topics: Mapping[str, TopicVersion] = field(default_factory=dict)
    """Which topics the slices' offsets count in."""
    resets: tuple[OffsetLoss, ...] = ()
    """Accepted losses: these partitions' slices start at `restart` and not at their committed offsets."""
    stopped: tuple[OffsetLoss, ...] = ()
    """Losses that nobody has accepted: these partitions have no slice."""
    kind: TransactionKind = TransactionKind.INGEST
    retry: Retry | None = None
    """What a `retry` takes; its slices are from the first to the last offset of these dead letters, in each partition."""
    covered: Mapping[TopicPartition, Ranges] = field(default_factory=dict)
    """What the table holds of partitions whose checkpoint does not say it, found out when the plan was made."""
    replaces: tuple[ReplacedFile, ...] = ()
    """The files that hold rows of a replay's slices."""
    respect_deletes: bool = False
    """A replay writes only offsets that have a row in the table."""
    schema_changes: tuple[str, ...] = ()
    """What the transaction changes in the columns of a table that is there; a line for each. Found at its begin."""
    take_over: TakeOver | None = None
    """Of the first transaction on a table that another system wrote: where its slices begin."""
    request: str = ""
    """Id of the request that asked for it; "" of a live transaction."""

    @property
    def count(self) -> int:
        return sum(each.count for each in self.slices)

    @property
    def busy(self) -> tuple[Slice, ...]:
        """The slices that have offsets to read."""
        return tuple(piece for piece in self.slices if piece.count)

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "transaction_id": self.transaction_id,
            "sequence": self.sequence,
            "slices": [asdict(each) for each in self.slices],
            "topics": {topic: asdict(version) for topic, version in self.topics.items()},
            "resets": [each.to_dict() for each in self.resets],
            "stopped": [each.to_dict() for each in self.stopped],
            "kind": self.kind.value,
            **({"retry": asdict(self.retry)} if self.retry else {}),
            **({"covered": [[str(source), found] for source, found in self.covered.items()]} if self.covered else {}),
            **({"replaces": [asdict(each) for each in self.replaces]} if self.replaces else {}),
            **({"respect_deletes": True} if self.respect_deletes else {}),
            "schema_changes": list(self.schema_changes),
            **({"take_over": self.take_over.to_dict()} if self.take_over else {}),
            **({"request": self.request} if self.request else {}),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> TransactionPlan:
        return cls(
            pipeline=str(found["pipeline"]),
            transaction_id=str(found["transaction_id"]),
            sequence=int(found["sequence"]),
            slices=tuple(Slice(**each) for each in found["slices"]),
            topics={topic: TopicVersion(**version) for topic, version in found["topics"].items()},
            resets=tuple(OffsetLoss.from_dict(each) for each in found["resets"]),
            stopped=tuple(OffsetLoss.from_dict(each) for each in found["stopped"]),
            # Plans of older versions name none.
            kind=TransactionKind(found.get("kind", TransactionKind.INGEST.value)),
            retry=Retry.from_dict(found["retry"]) if "retry" in found else None,
            covered={
                TopicPartition.parse(source): tuple((start, end) for start, end in pairs)
                for source, pairs in found.get("covered", ())
            },
            replaces=tuple(ReplacedFile(**each) for each in found.get("replaces", ())),
            respect_deletes=bool(found.get("respect_deletes", False)),
            schema_changes=tuple(found.get("schema_changes", ())),
            take_over=TakeOver.from_dict(found["take_over"]) if found.get("take_over") else None,
            request=str(found.get("request", "")),
        )


@dataclass(frozen=True, slots=True)
class RetriedFile:
    """A file of dead letters that a transaction takes: all its letters, but those `without` has since replaced."""

    path: str
    letters: int
    without: tuple[Slice, ...] = ()
    sources: tuple[str, ...] = ()
    """The Kafka partitions of its letters, as `topic:partition`."""

    def concerns(self, slices: Iterable[Slice]) -> bool:
        """Whether it has letters of these slices' partitions."""
        return any(str(piece.source) in self.sources for piece in slices)


@dataclass(frozen=True, slots=True)
class Retry:
    """The dead letters that a transaction takes, all of topics of one generation each."""

    files: tuple[RetriedFile, ...]
    generations: Mapping[str, int] = field(default_factory=dict)
    """Of each topic that was made again; see TopicVersion."""

    @property
    def letters(self) -> int:
        return sum(each.letters for each in self.files)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Retry:
        files = (
            RetriedFile(
                each["path"],
                each["letters"],
                tuple(Slice(**without) for without in each["without"]),
                tuple(each["sources"]),
            )
            for each in found["files"]
        )
        return cls(tuple(files), dict(found["generations"]))
