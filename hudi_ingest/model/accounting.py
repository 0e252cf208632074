"""The accounting as JSON in a commit's metadata: what became of every offset of its transaction. `counts.py` adds its counts up.

Only this module knows the JSON, including that of older versions, which had no kinds, losses or counts of bad records.
`CommitGuard.java` reads one of its keys, `transaction`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hudi_ingest.model.certificate import Certificate
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.counts import CONTROL, Counts, added
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import OffsetLoss, ReplayPlan, TakeOver, TransactionKind, TransactionPlan
from hudi_ingest.model.report import FieldsSeen, SliceReport

VERSION = 1
_TIMES = ("earliest_late", "earliest", "latest")
_SOME = ("deletes", "superseded", "moves", *CONTROL, "truncated")
"""Counts that only keyed tables and change formats have."""


def transaction_id_of(text: str) -> str:
    """Read only the transaction's id from an accounting's JSON, of any version. Raises ValueError and KeyError."""
    transaction_id: str = json.loads(text)["transaction"]
    return transaction_id


@dataclass(frozen=True, slots=True)
class SliceAccount(Counts):
    """How many offsets of one slice became rows, and how many did not, by reason."""

    slice: Slice
    attempt: int = 0
    """The attempt of the op that wrote it; 0 where an older version did not record it."""
    late: int = 0
    """Records with a Kafka timestamp before what was complete already."""
    earliest_late: int | None = None
    """The earliest of their timestamps, in milliseconds."""
    earliest: int | None = None
    """The earliest Kafka timestamp of all records of a replay, backfill or retry; None if none has any."""
    latest: int | None = None
    violations: Mapping[str, int] = field(default_factory=dict)
    """How many records violate an expectation, by its name; they are among the other counts."""
    certificate: Certificate | None = None
    """None if an older version wrote it."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "topic": self.slice.topic,
            "partition": self.slice.partition,
            "start": self.slice.start,
            "end": self.slice.end,
            "rows": self.rows,
            "skipped": self.skipped,
            "filtered": self.filtered,
            "rejected": self.rejected,
            "gaps": self.gaps,
            "attempt": self.attempt,
            **{name: getattr(self, name) for name in (*_SOME, "late") if getattr(self, name)},
            **{name: getattr(self, name) for name in _TIMES if getattr(self, name) is not None},
            **({"violations": dict(self.violations)} if self.violations else {}),
            **({"certificate": self.certificate.to_dict()} if self.certificate else {}),
        }

    @classmethod
    def from_dict(cls, account: Mapping[str, Any]) -> SliceAccount:
        return cls(
            Slice(account["topic"], account["partition"], account["start"], account["end"]),
            rows=account["rows"],
            **{
                name: account.get(name, 0)
                for name in ("skipped", "filtered", "rejected", "gaps", "attempt", "late", *_SOME)
            },
            earliest_late=account.get("earliest_late"),
            earliest=account.get("earliest"),
            latest=account.get("latest"),
            violations=account.get("violations", {}),
            certificate=Certificate.from_dict(account.get("certificate")),
        )


@dataclass(frozen=True, slots=True)
class Accounting:
    """The account of one committed transaction. `slices` are ordered by topic, partition and offset."""

    transaction_id: str
    sequence: int
    kind: TransactionKind
    slices: tuple[SliceAccount, ...]
    resets: tuple[OffsetLoss, ...] = ()
    """Losses that the transaction accepted."""
    respect_deletes: bool = False
    schema_changes: tuple[str, ...] = ()
    take_over: TakeOver | None = None
    fields: FieldsSeen | None = None
    """The records' fields, compared with the columns; None if unknown, or of an older version."""

    @property
    def rows(self) -> int:
        return sum(account.rows for account in self.slices)

    @property
    def rows_in_files(self) -> int:
        """Number of rows that the commit's files must hold."""
        return sum(account.rows_in_files for account in self.slices)

    @property
    def rejected(self) -> int:
        """Bad records."""
        return sum(account.rejected for account in self.slices)

    @property
    def violations(self) -> Mapping[str, int]:
        """How many records violate an expectation, by its name."""
        return added(account.violations for account in self.slices)

    @classmethod
    def of(cls, plan: TransactionPlan, reports: Sequence[SliceReport]) -> Accounting:
        return cls(
            transaction_id=plan.transaction_id,
            sequence=plan.sequence,
            kind=plan.kind,
            slices=tuple(
                SliceAccount(
                    report.slice,
                    report.attempt,
                    report.times.late,
                    report.times.earliest_late,
                    None if plan.kind.moves_offsets else report.times.earliest,
                    None if plan.kind.moves_offsets else report.times.latest,
                    report.violations,
                    report.certificate,
                    **report.counts,
                )
                for report in sorted(reports, key=lambda report: report.slice)
            ),
            resets=tuple(plan.resets),
            respect_deletes=isinstance(plan, ReplayPlan) and plan.respect_deletes,
            schema_changes=tuple(plan.schema_changes),
            take_over=plan.take_over,
            fields=FieldsSeen.combined(report.fields for report in reports),
        )

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": VERSION,
                "transaction": self.transaction_id,
                "sequence": self.sequence,
                "kind": self.kind.value,
                "slices": [account.to_dict() for account in self.slices],
                "resets": [loss.to_dict() for loss in self.resets],
                **({"respect_deletes": True} if self.respect_deletes else {}),
                "schema_changes": list(self.schema_changes),
                **({"take_over": self.take_over.to_dict()} if self.take_over else {}),
                **({"fields": self.fields.to_dict()} if self.fields else {}),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Accounting:
        """Parse the JSON of any version. Raises ValueError, KeyError or TypeError for anything else."""
        accounting: dict[str, Any] = json.loads(text)
        take_over = accounting.get("take_over")
        return cls(
            transaction_id=accounting["transaction"],
            sequence=accounting["sequence"],
            kind=TransactionKind(accounting.get("kind", TransactionKind.INGEST.value)),
            slices=tuple(SliceAccount.from_dict(account) for account in accounting["slices"]),
            resets=tuple(OffsetLoss.from_dict(loss) for loss in accounting.get("resets", ())),
            respect_deletes=accounting.get("respect_deletes", False),
            schema_changes=tuple(accounting.get("schema_changes", ())),
            take_over=TakeOver.from_dict(take_over) if take_over else None,
            fields=FieldsSeen.from_dict(accounting.get("fields")),
        )


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A committed offset that is not where the transaction that read the partition last has ended: both facts are in commits, so one
    of them was changed later."""

    source: TopicPartition
    read_to: int
    """The end of the partition's slice in the accounting."""
    committed: int | None
    """Its offset in the checkpoint, None if that has none."""
    transaction_id: str

    def __str__(self) -> str:
        return f"{self.source} was read up to {self.read_to}, but the checkpoint says {self.committed} ({self.transaction_id} read it last)"


def contradictions(checkpoint: Checkpoint, newest_first: Iterable[Accounting]) -> Iterator[Contradiction]:
    """Compare a checkpoint with the accountings of the transactions that it counts, newest first. Reads only as many
    accountings as name all its partitions, and none behind a gap in their numbers, where commits were archived."""
    known: set[TopicPartition] = set()
    for number, accounting in enumerate(newest_first):
        if accounting.sequence != checkpoint.sequence - number:
            return
        if not accounting.kind.moves_offsets:
            continue
        ends = {account.slice.source: account.slice.end for account in accounting.slices}
        for source, end in sorted(ends.items()):
            if source not in known and checkpoint.offsets.get(source) != end:
                yield Contradiction(source, end, checkpoint.offsets.get(source), accounting.transaction_id)
        known |= {*ends, *(loss.source for loss in accounting.resets)}
        if checkpoint.offsets.keys() <= known:
            return
