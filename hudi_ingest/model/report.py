"""What the ops of a transaction wrote, and what came of its commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionPlan


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


def mean_record_bytes(reports: Iterable[SliceReport]) -> int:
    """Mean value size over all rows of a transaction, rounded up; 0 when there are no rows."""
    rows = value_bytes = 0
    for report in reports:
        rows += report.rows
        value_bytes += report.value_bytes
    return -(-value_bytes // rows) if rows else 0
