"""Frozen records that cross the boundaries between planning, writing, committing and reporting.

Offsets are Kafka offsets; every range is half open, `[start, end)`. Sizes are bytes,
durations are seconds, times are timezone-aware UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from hudi_ingest.model.offset_ranges import Ranges, from_bounds, to_bounds, union


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One Kafka partition. Its text form is `topic:partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Of its text form. Raises ValueError."""
        topic, _, number = text.rpartition(":")
        if not topic or not number.isdecimal():
            raise ValueError(f"expected TOPIC:PARTITION, like orders:3; found {text!r}")
        return cls(topic, int(number))


Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Watermarks:
    """What a broker holds of one partition now: first offset still there, and the end that a reader may read to."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """One Kafka partition's bounded range `[start, end)`."""

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a slice needs 0 <= start <= end, found [{self.start}, {self.end}) of {self.source}")

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """How many offsets the range holds, broker gaps included."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}[{self.start},{self.end})"


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
class TopicVersion:
    """Which topic of a name the offsets count in.

    `topic_id` is the broker's, "" where it has none. `generation` grows by 1 whenever an accepted loss lets offsets of the
    topic come again; it keeps their record keys apart.
    """

    topic_id: str
    generation: int = 0


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


@dataclass(frozen=True, slots=True)
class TransactionSchema:
    """The columns that one transaction reads and writes: found once, at its begin, and the same for all its ops."""

    origin: str
    """Where `record` is from, in words."""
    record: str
    """What records are decoded to, as the JSON of a Spark StructType."""
    columns: str
    """The table's columns when the transaction is published, Kafka columns included; likewise."""
    declared: bool = True
    """Whether the pipeline file has the columns. If not, the table keeps `record` for the next transaction."""
    avro: tuple[tuple[str, ...], ...] = ()
    """The registry's schemas that `record` is made of, the texts that they refer to behind each."""
    schema_ids: tuple[int, ...] = ()
    """Every schema that the topics' subjects had in the registry."""
    changes: tuple[str, ...] = ()
    """What becomes of the columns of a table that is there; a line for each."""
    warnings: tuple[str, ...] = ()
    """What is a guess; a line for each."""
    record_key: tuple[str, ...] = ()
    """The columns that make the rows' keys in a table that another system made; none where topic, partition and offset do."""
    escaped_folders: bool = True
    """Whether unsafe signs of a value are escaped in its folder's name; if not, such a value has no folder."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> TransactionSchema:
        tuples = {name: tuple(found.get(name, ())) for name in ("schema_ids", "changes", "warnings", "record_key")}
        return cls(**{**found, **tuples, "avro": tuple(tuple(each) for each in found["avro"])})


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction between begin and commit: its plan and the Hudi instant that will publish it."""

    plan: TransactionPlan
    instant: str
    epoch: int
    """The table's epoch that this transaction may write in, and no other."""
    began_at: datetime
    deadline: datetime
    schema: TransactionSchema
    shape: str
    """Digest of the settings that decide how records become files."""
    begin_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": self.plan.to_dict(),
            "instant": self.instant,
            "epoch": self.epoch,
            "began_at": self.began_at.isoformat(),
            "deadline": self.deadline.isoformat(),
            "schema": self.schema.to_dict(),
            "shape": self.shape,
            "begin_seconds": self.begin_seconds,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> OpenTransaction:
        return cls(
            plan=TransactionPlan.from_dict(found["plan"]),
            instant=str(found["instant"]),
            epoch=int(found["epoch"]),
            began_at=datetime.fromisoformat(found["began_at"]),
            deadline=datetime.fromisoformat(found["deadline"]),
            schema=TransactionSchema.from_dict(found["schema"]),
            shape=str(found["shape"]),
            begin_seconds=float(found["begin_seconds"]),
        )


@dataclass(frozen=True, slots=True)
class OpenInstant:
    """An instant of a pipeline that is neither completed nor rolled back; `leased` while its heartbeat has not expired."""

    instant: str
    transaction_id: str
    leased: bool


@dataclass(frozen=True, slots=True)
class BaseFile:
    """One Hudi base file that a slice wrote. `path` is relative to the table, `partition_path` is "" when not partitioned."""

    partition_path: str
    file_id: str
    path: str
    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class LetterFile:
    """One file of dead letters. `path` is relative to the table."""

    path: str
    letters: int
    size_bytes: int


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


@dataclass(frozen=True, slots=True)
class BadRecordNote:
    """Where a bad record is and what is wrong with it, without any value that is masked."""

    topic: str
    partition: int
    offset: int
    field: str
    """"" when the record as a whole is wrong."""
    expected: str
    found: str

    @property
    def reason(self) -> str:
        return f"{f'field {self.field}: ' if self.field else ''}expected {self.expected}, found {self.found}"

    def __str__(self) -> str:
        field = f" field {self.field}" if self.field else ""
        return f"{self.topic}:{self.partition}:{self.offset}{field}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True)
class SliceReport:
    """What one attempt at one slice did with every offset of the range."""

    slice: Slice
    attempt: int
    files: tuple[BaseFile, ...] = ()
    rows: int = 0
    skipped: int = 0
    """Tombstones: records with no value."""
    filtered: int = 0
    """Records that a transform left out on purpose."""
    gaps: int = 0
    """Offsets the broker does not hand out: compacted away, transaction markers, aborted records. In a retry, offsets of
    the range that are of no dead letter it takes."""
    value_bytes: int = 0
    seconds: float = 0.0
    rejected: int = 0
    """Bad records: those that cannot become rows."""
    letters: tuple[LetterFile, ...] = ()
    """Where they are kept, unless they are skipped; slices may share files."""
    bad_records: tuple[BadRecordNote, ...] = ()
    """The first of them."""
    copies: tuple[BaseFile, ...] = ()
    """Files of a replay with rows of other ranges, copied from files that it replaces; their rows are not among `rows`."""

    @property
    def accounted(self) -> bool:
        counted = self.rows + self.skipped + self.filtered + self.rejected + self.gaps
        return self.gaps >= 0 and counted == self.slice.count

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> SliceReport:
        return cls(
            **{
                **found,
                "slice": Slice(**found["slice"]),
                "files": tuple(BaseFile(**each) for each in found["files"]),
                # Reports of older versions have none.
                "letters": tuple(LetterFile(**each) for each in found.get("letters", ())),
                "bad_records": tuple(BadRecordNote(**each) for each in found.get("bad_records", ())),
                "copies": tuple(BaseFile(**each) for each in found.get("copies", ())),
            }
        )


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """A completed commit."""

    plan: TransactionPlan
    instant: str
    checkpoint: Checkpoint
    reports: tuple[SliceReport, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall seconds per phase: begin, write (the slowest slice), commit, between them, and in total."""
    warnings: tuple[str, ...] = ()
    """What went wrong after the commit was durable; each line says what to do."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.reports)

    @property
    def rejected(self) -> int:
        return sum(each.rejected for each in self.reports)

    @property
    def bad_records(self) -> tuple[BadRecordNote, ...]:
        """The first of each slice."""
        return tuple(note for each in self.reports for note in each.bad_records)

    @property
    def base_files(self) -> tuple[BaseFile, ...]:
        return tuple(file for each in self.reports for file in each.files)

    @property
    def files(self) -> int:
        return len(self.base_files)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.reports)


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A committed transaction as the table tells it, without its attempts."""

    plan: TransactionPlan
    instant: str
    began_at: datetime
    ended_at: datetime
    rows: int
    files: int
    size_bytes: int


class TransactionState(str, Enum):
    """States of a transaction in the ledger."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


def mean_record_bytes(reports: Iterable[SliceReport]) -> int:
    """Mean value size over all rows of a transaction, rounded up; 0 when there are no rows."""
    rows = value_bytes = 0
    for report in reports:
        rows += report.rows
        value_bytes += report.value_bytes
    return -(-value_bytes // rows) if rows else 0
