"""The steps of a transaction, as listeners such as lineage receive them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.model.transaction import OpenTransaction


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
