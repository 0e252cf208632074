"""The plan of a transaction, made before it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, ClassVar
from zlib import crc32

from hudi_ingest.model.complete_through import Mark
from hudi_ingest.model.offsets import Offsets, Ranges, Slice, TopicPartition, TopicVersion


class LossReason(str, Enum):
    """Why a committed offset cannot be honoured."""

    RETENTION = "retention"
    """The broker deleted records after it that were not ingested."""
    RECREATED = "recreated"
    """The committed offset belongs to another topic of the same name."""
    TRUNCATED = "truncated"
    """The topic is the same, but its log was cut before the committed offset, whatever was written there since."""


_SELDOM = ("first", "diverges_at")
"""Left out of a loss's JSON where they are None."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetLoss:
    """A committed offset that the broker no longer has, and where reading would resume if the loss were accepted.

    Until it is accepted, it stops its partition. Accepted, it is a reset: the only jump allowed between commits.
    """

    topic: str
    partition: int
    committed: int
    """The next offset by the table's checkpoint."""
    restart: int | None
    """The broker's first offset, unless a person chose another; None when the partition no longer exists, which then leaves the
    checkpoint."""
    lost: int | None
    """How many offsets are lost; None when that is unknowable."""
    reason: LossReason
    first: int | None = None
    """The broker's first offset, if a person chose `restart`."""
    diverges_at: int | None = None
    """Where a log that was cut parts from the one that was read; None if that is unknown."""

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def repeats(self) -> bool:
        """Whether committed offsets are those of other records now, or are read again."""
        return self.reason is not LossReason.RETENTION

    def to_dict(self) -> dict[str, Any]:
        known = {name: value for name, value in asdict(self).items() if value is not None or name not in _SELDOM}
        return {**known, "reason": self.reason.value}

    @classmethod
    def from_dict(cls, loss: Mapping[str, Any]) -> OffsetLoss:
        return cls(**{**loss, "reason": LossReason(loss["reason"])})


@dataclass(frozen=True, slots=True)
class LogCut:
    """A partition whose log the broker cut before the committed offset, as it was found."""

    topic: str
    partition: int
    topic_id: str
    committed: int
    """The next offset by the checkpoint when it was found. A commit may still come of what was read before the cut."""
    diverges_at: int | None = None
    """Where the broker's log parts from the one that was read; None if that is unknown."""

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Where another system's ingestion into a table ended and this pipeline's begins."""

    writer: str
    """The other system, as text."""
    instant: str
    """The instant of its last commit."""
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
    def from_dict(cls, take_over: Mapping[str, Any]) -> TakeOver:
        offsets = {TopicPartition.parse(source): int(offset) for source, offset in take_over["offsets"].items()}
        return cls(str(take_over["writer"]), str(take_over["instant"]), offsets)


class TransactionKind(str, Enum):
    """The purpose of a transaction. Only `ingest` moves the committed offsets."""

    INGEST = "ingest"
    """Continues where the table's offsets end."""
    BACKFILL = "backfill"
    """Adds offset ranges that are not in the table."""
    REPLAY = "replay"
    """Rewrites ranges that are in the table, and replaces their rows."""
    RETRY = "retry"
    """Adds dead letters that can become rows now."""

    @property
    def moves_offsets(self) -> bool:
        return self is TransactionKind.INGEST


@dataclass(frozen=True, slots=True, order=True)
class ReplacedFile:
    """A live base file whose rows a replay removes from the table: all of them, or the `rows` of a range, while the `kept`
    others are copied to a new file.

    `path` is relative to the table. The op that writes the slice of `topic` and `partition` makes the copy.
    """

    path: str
    rows: int
    """Rows that the replay removes with the file."""
    kept: int
    """Rows of other ranges, which a copy keeps; 0 if the file has none."""
    size_bytes: int
    topic: str
    partition: int

    @property
    def source(self) -> TopicPartition:
        """The Kafka partition whose op copies the kept rows."""
        return TopicPartition(self.topic, self.partition)

    @property
    def partition_path(self) -> str:
        """The table partition, relative to the table; "" in an unpartitioned table."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.rpartition("/")[2]

    @property
    def file_id(self) -> str:
        """The id of its file group, with which its name begins."""
        return self.name.split("_", 1)[0]


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """A fixed set of slices, published by one commit or not at all. Each kind of transaction is a subclass with what only that
    kind has; where all plans are asked for it, the others answer that they have none."""

    kind: ClassVar[TransactionKind]

    pipeline: str
    """The pipeline's name."""
    transaction_id: str
    """An id of its own; another plan of the same offsets has another one."""
    sequence: int
    """Its place among the pipeline's transactions, which its checkpoint will have."""
    slices: tuple[Slice, ...]
    """The ranges of offsets that it reads."""
    topics: Mapping[str, TopicVersion] = field(default_factory=dict)
    """Which topics the slices' offsets belong to."""
    schema_changes: tuple[str, ...] = field(default=(), kw_only=True)
    """The transaction's changes of the columns of an existing table, one line each. Determined at its begin."""

    @property
    def turn(self) -> int:
        """A number that grows by one with each of the pipeline's transactions. It is another one for each pipeline, so that tables that were
        made together do not all do at the same time what one transaction of several does."""
        return self.sequence + crc32(self.pipeline.encode())

    @property
    def count(self) -> int:
        """The number of offsets in all slices; gaps in Kafka count, too."""
        return sum(slice_.count for slice_ in self.slices)

    @property
    def busy(self) -> tuple[Slice, ...]:
        """The slices that have offsets to read."""
        return tuple(slice_ for slice_ in self.slices if slice_.count)

    @property
    def generations(self) -> Mapping[str, int]:
        """The generation of each topic that was recreated; see TopicVersion."""
        return {topic: version.generation for topic, version in self.topics.items() if version.generation}

    @property
    def resets(self) -> tuple[OffsetLoss, ...]:
        """The losses that it accepts: their partitions go on at `restart`."""
        return ()

    @property
    def stopped(self) -> tuple[OffsetLoss, ...]:
        """The losses that are not accepted: their partitions are left out."""
        return ()

    @property
    def leaderless(self) -> tuple[TopicPartition, ...]:
        return ()

    @property
    def marks(self) -> Mapping[TopicPartition, Mark]:
        """Where partitions ended when the plan was made, and at which time."""
        return {}

    @property
    def said_through(self) -> int | None:
        return None

    @property
    def take_over(self) -> TakeOver | None:
        """Where another system's ingestion ended, in the first transaction of a table that is taken over."""
        return None

    @property
    def replaces(self) -> tuple[ReplacedFile, ...]:
        """The files that a replay replaces."""
        return ()

    @property
    def request(self) -> str:
        """The id of the request that it works on; "" for a live transaction."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "transaction_id": self.transaction_id,
            "sequence": self.sequence,
            "slices": [asdict(slice_) for slice_ in self.slices],
            "topics": {topic: asdict(version) for topic, version in self.topics.items()},
            "resets": [loss.to_dict() for loss in self.resets],
            "stopped": [loss.to_dict() for loss in self.stopped],
            "kind": self.kind.value,
            **self._own_dict(),
            "schema_changes": list(self.schema_changes),
            **({"take_over": self.take_over.to_dict()} if self.take_over else {}),
            **({"request": self.request} if self.request else {}),
        }

    def _own_dict(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def from_dict(plan: Mapping[str, Any]) -> TransactionPlan:
        """Parse a plan of any kind and version. Raises TypeError if it has what its kind cannot have."""
        own = {name: parse(plan[name]) for name, parse in _OWN_FIELDS.items() if plan.get(name)}
        # Plans of older versions have no kind.
        return PLAN_TYPES[TransactionKind(plan.get("kind", TransactionKind.INGEST.value))](
            pipeline=str(plan["pipeline"]),
            transaction_id=str(plan["transaction_id"]),
            sequence=int(plan["sequence"]),
            slices=tuple(Slice(**slice_) for slice_ in plan["slices"]),
            topics={topic: TopicVersion(**version) for topic, version in plan["topics"].items()},
            schema_changes=tuple(plan.get("schema_changes", ())),
            **own,
        )


@dataclass(frozen=True, slots=True)
class IngestPlan(TransactionPlan):
    """Continues where the table's offsets end."""

    kind = TransactionKind.INGEST

    resets: tuple[OffsetLoss, ...] = ()
    """Accepted losses: these partitions' slices start at `restart` instead of their committed offsets."""
    stopped: tuple[OffsetLoss, ...] = ()
    """Losses not accepted: these partitions have no slice."""
    leaderless: tuple[TopicPartition, ...] = ()
    """Partitions whose ends are unknown because they have no leader: nothing is read from them."""
    take_over: TakeOver | None = None
    """Where the slices of the first transaction on a table written by another system begin."""
    marks: Mapping[TopicPartition, Mark] = field(default_factory=dict)
    """Marks of the partitions that the plan reads, unless nothing is known about their timestamps."""
    said_through: int | None = None
    """Through which time, in milliseconds, hours or days were reported to be complete before the plan was made."""

    def _own_dict(self) -> dict[str, Any]:
        marks = {str(source): [mark.offset, mark.since] for source, mark in self.marks.items()}
        return {
            **({"leaderless": [str(source) for source in self.leaderless]} if self.leaderless else {}),
            **({"marks": marks} if marks else {}),
            **({} if self.said_through is None else {"said_through": self.said_through}),
        }


@dataclass(frozen=True, slots=True)
class RequestPlan(TransactionPlan):
    """Works on what a person asked for, and moves no offsets."""

    request: str = ""
    """Id of the request."""


@dataclass(frozen=True, slots=True)
class RangePlan(RequestPlan):
    """Reads offsets before the committed ones."""

    covered: Mapping[TopicPartition, Ranges] = field(default_factory=dict)
    """Covered offsets of partitions whose checkpoint lacks them, determined when the plan was made."""
    upserts: bool = False
    """Whether the table is keyed. Then the slices end at the committed offsets, and their changes are applied again."""

    def _own_dict(self) -> dict[str, Any]:
        pairs = [[str(source), ranges] for source, ranges in self.covered.items()]
        return {**({"covered": pairs} if pairs else {}), **({"upserts": True} if self.upserts else {})}


@dataclass(frozen=True, slots=True)
class BackfillPlan(RangePlan):
    """Adds offset ranges that are not in the table."""

    kind = TransactionKind.BACKFILL


@dataclass(frozen=True, slots=True)
class ReplayPlan(RangePlan):
    """Rewrites ranges that are in the table, and replaces their rows."""

    kind = TransactionKind.REPLAY

    replaces: tuple[ReplacedFile, ...] = ()
    """The files that hold rows of the slices."""
    respect_deletes: bool = False
    """Whether it writes only offsets that have a row in the table."""

    def _own_dict(self) -> dict[str, Any]:
        return {
            **RangePlan._own_dict(self),
            **({"replaces": [asdict(file) for file in self.replaces]} if self.replaces else {}),
            **({"respect_deletes": True} if self.respect_deletes else {}),
        }


@dataclass(frozen=True, slots=True)
class RetriedFile:
    """A file of dead letters that a transaction takes: all its letters, except those in `without`, replaced since."""

    path: str
    letters: int
    without: tuple[Slice, ...] = ()
    sources: tuple[str, ...] = ()
    """The Kafka partitions of its letters, as `topic:partition`."""

    def concerns(self, slices: Iterable[Slice]) -> bool:
        """Whether the file has letters of these slices' partitions."""
        return any(str(slice_.source) in self.sources for slice_ in slices)


@dataclass(frozen=True, slots=True)
class Retry:
    """The dead letters that a transaction takes; those of one topic are all of one generation."""

    files: tuple[RetriedFile, ...]
    generations: Mapping[str, int] = field(default_factory=dict)
    """The generation of each topic that was recreated; see TopicVersion."""

    @property
    def letters(self) -> int:
        return sum(file.letters for file in self.files)

    @classmethod
    def from_dict(cls, retry: Mapping[str, Any]) -> Retry:
        files = (
            RetriedFile(
                file["path"],
                file["letters"],
                tuple(Slice(**without) for without in file["without"]),
                tuple(file["sources"]),
            )
            for file in retry["files"]
        )
        return cls(tuple(files), dict(retry["generations"]))


@dataclass(frozen=True, slots=True)
class RetryPlan(RequestPlan):
    """Adds dead letters that can become rows now. Its slices span from their first to their last offset in each partition."""

    kind = TransactionKind.RETRY

    retry: Retry = Retry(())
    """Empty in a run's config, which does not list them."""

    @property
    def generations(self) -> Mapping[str, int]:
        return self.retry.generations

    def _own_dict(self) -> dict[str, Any]:
        return {"retry": asdict(self.retry)} if self.retry.files else {}


PLAN_TYPES: Mapping[TransactionKind, type[TransactionPlan]] = {
    plan_type.kind: plan_type for plan_type in (IngestPlan, BackfillPlan, ReplayPlan, RetryPlan)
}


def _losses(losses: Iterable[Mapping[str, Any]]) -> tuple[OffsetLoss, ...]:
    return tuple(map(OffsetLoss.from_dict, losses))


_OWN_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "resets": _losses,
    "stopped": _losses,
    "leaderless": lambda sources: tuple(map(TopicPartition.parse, sources)),
    "marks": lambda marks: {TopicPartition.parse(source): Mark(*mark) for source, mark in marks.items()},
    "said_through": int,
    "retry": Retry.from_dict,
    "covered": lambda pairs: {
        TopicPartition.parse(source): tuple((start, end) for start, end in ranges) for source, ranges in pairs
    },
    "replaces": lambda files: tuple(ReplacedFile(**file) for file in files),
    "respect_deletes": bool,
    "upserts": bool,
    "take_over": TakeOver.from_dict,
    "request": str,
}
"""How the JSON of each field that only some plans have is read."""
