"""A transaction that has begun, the states of transactions, and their steps as listeners such as lineage receive them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from hudi_ingest.model.offsets import LastRecord, TopicPartition
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.report import CommitReceipt


@dataclass(frozen=True, slots=True)
class RecentFields:
    """Fields that the schemas in the records got since the table was made. A record written before may lack them, and then they are
    null; later, a schema without them shows that the source has dropped them."""

    paths: tuple[str, ...] = ()
    until: Mapping[str, int] = field(default_factory=dict)
    """Where each Kafka partition, `topic:partition`, ended when the last of the fields was found."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RecentFields:
        return cls(tuple(fields.get("paths", ())), dict(fields.get("until", {})))


@dataclass(frozen=True, slots=True)
class TransactionSchema:
    """The columns that one transaction reads and writes: determined once, at its begin, and the same for all its ops."""

    origin: str
    """Where `record` comes from, as text."""
    record: str
    """The columns that records are decoded to, as the JSON of a Spark StructType."""
    columns: str
    """The table's columns once the transaction is published, including the Kafka columns; also as JSON."""
    declared: bool = True
    """Whether the pipeline file declares the columns. If not, the table keeps `record` for the next transaction."""
    avro: tuple[tuple[str, ...], ...] = ()
    """The registry's schemas that `record` is made of, each followed by the texts that it refers to."""
    schema_ids: tuple[int, ...] = ()
    """Every schema that the topics' subjects had in the registry."""
    changes: tuple[str, ...] = ()
    """Changes of the columns of an existing table, one line each."""
    warnings: tuple[str, ...] = ()
    """Guesses, one line each."""
    record_key: tuple[str, ...] = ()
    """The columns of the key, in a keyed table and in one that another system created; empty where the key is topic, partition and
    offset."""
    escaped_folders: bool = True
    """Whether unsafe characters of a value are escaped in its folder's name; if not, such a value has no folder."""

    descriptions: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of columns in the registry's schemas, by name."""
    recent: RecentFields | None = None
    """None unless the columns follow the schemas in the records."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, schema: Mapping[str, Any]) -> TransactionSchema:
        tuples = {name: tuple(schema.get(name, ())) for name in ("schema_ids", "changes", "warnings", "record_key")}
        avro = tuple(tuple(texts) for texts in schema["avro"])
        recent = RecentFields.from_dict(schema["recent"]) if schema.get("recent") else None
        return cls(**{**schema, **tuples, "avro": avro, "recent": recent})


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction between begin and commit: its plan and the Hudi instant that will publish it."""

    plan: TransactionPlan
    instant: str
    epoch: int
    """The table's epoch, in which only this transaction may write."""
    began_at: datetime
    deadline: datetime
    schema: TransactionSchema
    shape: str
    """Digest of the settings that decide how records become files."""
    begin_seconds: float = 0.0
    groups: Mapping[str, str] = field(default_factory=dict)
    """The file ids of a keyed table's buckets that are not the usual ones; see hudi/files/file_groups.py."""
    record_bytes: int = 0
    """Mean length of the last commits' values; 0 if unknown."""
    late_before: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Before which Kafka timestamp, in milliseconds, a partition's records are late: up to there it was complete already."""
    follows: Mapping[TopicPartition, LastRecord] = field(default_factory=dict)
    """The record that each slice comes after, by which the partition's log is recognized."""

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
            "groups": dict(self.groups),
            "record_bytes": self.record_bytes,
            "late_before": {str(source): time for source, time in self.late_before.items()},
            "follows": {str(source): asdict(record) for source, record in self.follows.items()},
        }

    @classmethod
    def from_dict(cls, transaction: Mapping[str, Any]) -> OpenTransaction:
        return cls(
            plan=TransactionPlan.from_dict(transaction["plan"]),
            instant=str(transaction["instant"]),
            epoch=int(transaction["epoch"]),
            began_at=datetime.fromisoformat(transaction["began_at"]),
            deadline=datetime.fromisoformat(transaction["deadline"]),
            schema=TransactionSchema.from_dict(transaction["schema"]),
            shape=str(transaction["shape"]),
            begin_seconds=float(transaction["begin_seconds"]),
            groups=dict(transaction.get("groups", {})),
            record_bytes=int(transaction.get("record_bytes", 0)),
            late_before={
                TopicPartition.parse(source): int(time) for source, time in transaction.get("late_before", {}).items()
            },
            follows={
                TopicPartition.parse(source): LastRecord(**record)
                for source, record in transaction.get("follows", {}).items()
            },
        )


@dataclass(frozen=True, slots=True)
class OpenInstant:
    """A pipeline's instant that is neither completed nor rolled back; `leased` until its heartbeat expires."""

    instant: str
    transaction_id: str
    leased: bool


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A committed transaction as the table records it, without its attempts."""

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


class Progress(Enum):
    """The names are OpenLineage's."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class TransactionStep:
    """A transaction began, was committed or was rolled back. A process that only finds out how another's ended knows no more than
    its id."""

    transaction_id: str
    progress: Progress
    at: datetime
    transaction: OpenTransaction | None = None
    receipt: CommitReceipt | None = None
    reason: str = ""
    """Why it was rolled back."""


LineageListener = Callable[[TransactionStep], None]
"""Receives each step; never raises, and returns within seconds."""


def unheard(step: TransactionStep) -> None:
    """A listener that ignores every event."""


def began(transaction: OpenTransaction) -> TransactionStep:
    return TransactionStep(transaction.plan.transaction_id, Progress.START, transaction.began_at, transaction)


def committed(transaction: OpenTransaction, receipt: CommitReceipt) -> TransactionStep:
    return TransactionStep(transaction.plan.transaction_id, Progress.COMPLETE, _now(), transaction, receipt)


def found_committed(transaction_id: str) -> TransactionStep:
    return TransactionStep(transaction_id, Progress.COMPLETE, _now())


def rolled_back(transaction_id: str, reason: str) -> TransactionStep:
    return TransactionStep(transaction_id, Progress.FAIL, _now(), reason=reason)


def _now() -> datetime:
    return datetime.now(timezone.utc)
