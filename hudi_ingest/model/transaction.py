"""A transaction that has begun, and the states that one can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from hudi_ingest.model.plan import TransactionPlan


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
