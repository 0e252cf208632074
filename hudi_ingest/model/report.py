"""The ops' reports of what they read and wrote, the receipt of a commit, and the totals of all commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from hudi_ingest.exceptions.problems import listed, namesake
from hudi_ingest.model.certificate import Certificate, Certified
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.complete_through import NO_TIMES, UNKNOWN, Completeness, Mark, TimesRead, next_states
from hudi_ingest.model.counts import Counts, added
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition
from hudi_ingest.model.plan import ReplayPlan, TransactionKind, TransactionPlan

MOST_NAMED = 50
"""How many fields without a column are kept: the keys of a map at the top of the records may be as many as records."""
_SHOWN = 10
_DELETE_MARKER = "_hoodie_is_deleted"
Totals = Mapping[str, Mapping[str, int]]
"""What all commits of a pipeline add up to, which a commit's checkpoint carries, so that it outlives archived commits and the
ledger. By kind of transaction, by name: transactions, rows, files, bytes, tombstones, filtered, bad_skipped, bad_kept, gaps, deletes,
superseded, moves, truncated, lost (offsets whose loss was accepted), late (records before what was complete), violates:NAME (records
that violate an expectation), and replaced (rows that replays removed; missing if a replay did not count them). Other zeros are left
out."""
_VIOLATES = "violates:"


@dataclass(frozen=True, slots=True)
class FieldsSeen:
    """The fields of some records, compared with the columns that the records' own fields become, as far as a few records show."""

    absent: tuple[str, ...] = ()
    """Columns for which no record had a value, in the columns' order."""
    others: tuple[str, ...] = ()
    """Fields at the top of the first records that are no columns, sorted, at most MOST_NAMED."""
    matched: bool = True
    """Whether a record had a field for at least one column."""

    @classmethod
    def combined(cls, parts: Iterable[FieldsSeen | None]) -> FieldsSeen | None:
        """Return the fields that all these records had; None if no part says."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        absent = tuple(name for name in known[0].absent if all(name in part.absent for part in known))
        others = sorted({name for part in known for name in part.others})[:MOST_NAMED]
        return cls(absent, tuple(others), any(part.matched for part in known))

    @property
    def text(self) -> str:
        """Name both for people; "" when each column has its field, and each field its column."""
        absent = [f"{name} (did you mean {other}?)" if (other := self._meant(name)) else name for name in self.absent]
        parts = [f"no record has a value for {listed(absent, _SHOWN)}"] if absent else []
        parts += [f"fields without a column: {listed(self.others, _SHOWN)}"] if self.others else []
        if _DELETE_MARKER in self.others:
            parts.append(
                f"{_DELETE_MARKER} deletes nothing: in a table of mode upsert declare it, and name it in `table.delete_field`"
            )
        return "; ".join(parts)

    @property
    def is_suspect(self) -> bool:
        """Whether a column without a value is named almost like a field without a column. Anything else may be on purpose:
        fields are often left out, and optional ones are null in every record of a small transaction. Deletes that are not
        applied are no purpose, either."""
        return _DELETE_MARKER in self.others or any(map(self._meant, self.absent))

    def _meant(self, column: str) -> str | None:
        # 0.8 is met by one or two wrong letters, but not by pairs like created_at and deleted_at.
        return namesake(column, self.others, 0.8)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> FieldsSeen | None:
        return None if fields is None else cls(tuple(fields["absent"]), tuple(fields["others"]), fields["matched"])


class ColumnStatistics(NamedTuple):
    """The statistics of one column of a data file. `path` has a dot before each member of a struct; the bounds are hexadecimal, in
    Iceberg's single-value serialization, None if unknown or if all values are null."""

    path: str
    size_bytes: int
    values: int
    nulls: int | None
    lower: str | None
    upper: str | None


@dataclass(frozen=True, slots=True)
class BaseFile:
    """One Hudi base file of a slice. `path` is relative to the table; `partition_path` is "" in an unpartitioned table."""

    partition_path: str
    file_id: str
    """The file group's id: a new one for each base file of an append table."""
    path: str
    rows: int
    size_bytes: int
    first_offset: int
    """The lowest offset of its rows."""
    last_offset: int
    """The highest offset of its rows, inclusive."""
    columns: tuple[ColumnStatistics, ...] = ()
    """Empty unless the table has Iceberg metadata."""

    @classmethod
    def from_dict(cls, file: Mapping[str, Any]) -> BaseFile:
        return cls(**{**file, "columns": tuple(ColumnStatistics(*column) for column in file.get("columns", ()))})


@dataclass(frozen=True, slots=True)
class LogFile:
    """One slice's part of a Hudi log file of a keyed table. `path` is relative to the table.

    Slices that are written together share files; then each has a part of the rows and of the bytes.
    """

    partition_path: str
    file_id: str
    path: str
    upserts: int
    """Keys that it inserts or updates."""
    deletes: int
    """Keys that it deletes."""
    size_bytes: int
    first_offset: int
    last_offset: int
    """The highest offset of its changes, inclusive."""
    file_rows: int | None = None
    """Rows of all parts of a shared file; None if the slice has it alone."""

    @property
    def rows(self) -> int:
        """Keys that the file inserts, updates or deletes."""
        return self.upserts + self.deletes


def whole_files(parts: Iterable[LogFile]) -> list[LogFile]:
    """Put together the parts of each log file. The offsets of a shared file are those of one of its slices."""
    files: dict[str, LogFile] = {}
    for part in parts:
        other = files.get(part.path)
        files[part.path] = (
            part
            if other is None
            else replace(
                other,
                upserts=other.upserts + part.upserts,
                deletes=other.deletes + part.deletes,
                size_bytes=other.size_bytes + part.size_bytes,
            )
        )
    return [*files.values()]


@dataclass(frozen=True, slots=True)
class LetterFile:
    """One file of dead letters. `path` is relative to the table."""

    path: str
    letters: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BadRecordNote:
    """Where a bad record is and what is wrong with it, without masked values."""

    topic: str
    partition: int
    offset: int
    field: str
    """"" when the whole record is bad."""
    expected: str
    """The type or form that the column asks for."""
    found: str
    """The value instead, shortened, as text that is safe to print."""

    @property
    def reason(self) -> str:
        """Say what is wrong, without the record's place."""
        return f"{f'field {self.field}: ' if self.field else ''}expected {self.expected}, found {self.found}"

    def __str__(self) -> str:
        field = f" field {self.field}" if self.field else ""
        return f"{self.topic}:{self.partition}:{self.offset}{field}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True)
class SliceReport(Counts):
    """The outcome of one attempt at one slice, for every offset of the range."""

    slice: Slice
    """The range of offsets that was read, and of which `Counts` accounts for each one."""
    attempt: int
    """The number of this try at the slice, from 0. Earlier ones have left nothing visible."""
    files: tuple[BaseFile, ...] = ()
    """The base files of an append table."""
    value_bytes: int = 0
    """The size of the values that were read, as Arrow holds them."""
    seconds: float = 0.0
    """The wall time of the Spark job that wrote it, which may have written other slices, too."""
    letters: tuple[LetterFile, ...] = ()
    """The files with the bad records, unless they are skipped; slices may share files."""
    bad_records: tuple[BadRecordNote, ...] = ()
    """The first bad records."""
    copies: tuple[BaseFile, ...] = ()
    """Files of a replay with rows of other ranges, copied from files that it replaces; `rows` does not count them."""
    log_files: tuple[LogFile, ...] = ()
    """The files of a keyed table, which has no `files`. Each of its `rows` is one record's change."""
    fields: FieldsSeen | None = None
    """The records' fields, compared with the columns; None if unknown."""
    times: TimesRead = NO_TIMES
    """The records' Kafka timestamps."""
    violations: Mapping[str, int] = field(default_factory=dict)
    """How many records violate an expectation, by its name."""
    certificate: Certificate | None = None
    last: LastRecord | None = None
    """The last record of the slice; None if it has none."""

    @property
    def accounted(self) -> bool:
        """Whether the counts add up to the slice's offsets; nothing is committed otherwise."""
        return self.gaps >= 0 and self.counted == self.slice.count

    @property
    def written(self) -> tuple[BaseFile | LogFile, ...]:
        """The files with the slice's rows, or its parts of them."""
        return (*self.files, *self.log_files)

    @property
    def size_bytes(self) -> int:
        """The size of the files, or of its parts of them."""
        return sum(file.size_bytes for file in self.written)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, report: Mapping[str, Any]) -> SliceReport:
        return cls(
            **{
                **report,
                "slice": Slice(**report["slice"]),
                "files": tuple(map(BaseFile.from_dict, report["files"])),
                # Reports of older versions have none.
                "letters": tuple(LetterFile(**file) for file in report.get("letters", ())),
                "bad_records": tuple(BadRecordNote(**note) for note in report.get("bad_records", ())),
                "copies": tuple(map(BaseFile.from_dict, report.get("copies", ()))),
                "log_files": tuple(LogFile(**file) for file in report.get("log_files", ())),
                "fields": FieldsSeen.from_dict(report.get("fields")),
                "times": TimesRead(**report.get("times", {})),
                "violations": report.get("violations", {}),
                "certificate": Certificate(**report["certificate"]) if report.get("certificate") else None,
                "last": LastRecord(**report["last"]) if report.get("last") else None,
            }
        )


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """A completed commit, as `run_transaction` returns it."""

    plan: TransactionPlan
    """The offsets of the transaction, with its id and its kind."""
    instant: str
    """The commit's instant on Hudi's timeline, `yyyyMMddHHmmssSSS` in UTC."""
    checkpoint: Checkpoint
    """Where the next transaction begins, of each partition."""
    reports: tuple[SliceReport, ...]
    """One for each slice: its rows, bad records, gaps and files."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall seconds per phase: begin, write (the slowest slice), commit, between them, and in total."""
    warnings: tuple[str, ...] = ()
    """Faults after the commit was durable, and doubts about its rows, one line each."""

    @property
    def rows(self) -> int:
        """The number of records that became rows."""
        return sum(report.rows for report in self.reports)

    @property
    def rejected(self) -> int:
        """The number of bad records, which were skipped or are dead letters now."""
        return sum(report.rejected for report in self.reports)

    @property
    def violations(self) -> Mapping[str, int]:
        """How many of the transaction's records violate an expectation, by its name."""
        return added(report.violations for report in self.reports)

    @property
    def fields(self) -> FieldsSeen | None:
        """The fields of the transaction's records, compared with the columns; None if unknown."""
        return FieldsSeen.combined(report.fields for report in self.reports)

    @property
    def bad_records(self) -> tuple[BadRecordNote, ...]:
        """The first bad records of each slice."""
        return tuple(note for report in self.reports for note in report.bad_records)

    @property
    def written(self) -> tuple[BaseFile | LogFile, ...]:
        """The files with the transaction's rows."""
        files = [file for report in self.reports for file in report.files]
        return (*files, *whole_files(file for report in self.reports for file in report.log_files))

    @property
    def files(self) -> int:
        """The number of base and log files that the commit added."""
        return len(self.written)

    @property
    def size_bytes(self) -> int:
        """The size of the files with the transaction's rows."""
        return sum(report.size_bytes for report in self.reports)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON takes, for users' scripts: sizes in bytes, times in seconds."""
        return {
            "transaction_id": self.plan.transaction_id,
            "kind": self.plan.kind.value,
            "instant": self.instant,
            "rows": self.rows,
            "bad_records": self.rejected,
            "files": self.files,
            "bytes": self.size_bytes,
            "fields": self.fields.to_dict() if self.fields else None,
            "seconds": dict(self.seconds),
            "slices": [report.to_dict() for report in self.reports],
            "resets": [loss.to_dict() for loss in self.plan.resets],
            "stopped": [loss.to_dict() for loss in self.plan.stopped],
            **({"leaderless": [str(source) for source in self.plan.leaderless]} if self.plan.leaderless else {}),
            "replaced": [file.path for file in self.plan.replaces],
        }


def mean_record_bytes(reports: Iterable[SliceReport]) -> int:
    """Mean value size over all rows of a transaction, rounded up; 0 when there are no rows."""
    rows = value_bytes = 0
    for report in reports:
        rows += report.rows
        value_bytes += report.value_bytes
    return -(-value_bytes // rows) if rows else 0


def complete_after(
    current: Checkpoint | None,
    following: Checkpoint,
    plan: TransactionPlan,
    marks: Mapping[TopicPartition, Mark],
    reports: Iterable[SliceReport],
) -> dict[TopicPartition, Completeness]:
    """Return up to which Kafka timestamp each partition is complete after the plan's commit. `following`: its checkpoint; `marks`: those
    of the plan that are still true."""
    states = dict(current.complete) if current else {}
    if plan.kind.moves_offsets:
        read = next_states(
            states,
            current.topics if current else (),
            {slice_.source: slice_.end for slice_ in plan.slices},
            marks,
            restarted=[loss.source for loss in plan.resets if loss.repeats],
            not_asked=plan.leaderless,
        )
        latest = {report.slice.source: report.times.latest for report in reports}
        states |= {source: state.with_seen(latest.get(source)) for source, state in read.items()}
    gone = {loss.source for loss in plan.resets if loss.restart is None}
    kept = {source: state for source, state in states.items() if source not in gone}
    return {**dict.fromkeys(following.offsets, UNKNOWN), **kept}


def certified_after(
    current: Checkpoint | None, plan: TransactionPlan, reports: Iterable[SliceReport]
) -> dict[TopicPartition, Certified]:
    """Return the certificates of partitions up to the committed offsets after the plan's commit. One begins with the first slice
    of an ingestion, and ends with what would change its rows (a replay, a retry) or its offsets; the next slice begins another."""
    certified = dict(current.certified) if current else {}
    for loss in plan.resets:
        certified.pop(loss.source, None)
    for report in reports:
        slice_ = report.slice
        if not slice_.count:
            continue
        known = certified.pop(slice_.source, None)
        if not plan.kind.moves_offsets:
            if known is not None and slice_.end <= known.start:
                certified[slice_.source] = known
        elif report.certificate is not None:
            known = known or Certified(slice_.start, 0, Certificate())
            rows = known.rows + report.rows
            certified[slice_.source] = Certified(known.start, rows, known.certificate + report.certificate)
    return certified


def last_after(
    current: Checkpoint | None, plan: TransactionPlan, reports: Iterable[SliceReport]
) -> dict[TopicPartition, LastRecord]:
    """Return the last records before the committed offsets after the plan's commit."""
    last = dict(current.last) if current else {}
    if plan.kind.moves_offsets:
        for loss in plan.resets:
            last.pop(loss.source, None)
        last |= {report.slice.source: report.last for report in reports if report.last is not None}
    return last


def with_commit(totals: Totals, plan: TransactionPlan, reports: Sequence[SliceReport], keeps_bad: bool) -> Totals:
    """Return the totals after the plan's commit. `keeps_bad`: whether bad records become dead letters."""
    own = Counter(totals.get(plan.kind.value, {}))
    own["transactions"] += 1
    own["lost"] += sum(loss.lost or 0 for loss in plan.resets)
    own["files"] += len(whole_files(file for report in reports for file in report.log_files))
    own["files"] += sum(len(report.files) for report in reports)
    own["bytes"] += sum(report.size_bytes for report in reports)
    own["late"] += sum(report.times.late for report in reports)
    own.update({f"{_VIOLATES}{name}": count for name, count in added(each.violations for each in reports).items()})
    names = {"skipped": "tombstones", "rejected": "bad_kept" if keeps_bad else "bad_skipped"}
    counted = Counts.total(reports)
    for name, count in counted.counts.items():
        own[names.get(name, name)] += count
    own["tombstones"] -= counted.control
    if isinstance(plan, ReplayPlan) and ("replaced" in own or plan.kind.value not in totals):
        own["replaced"] += sum(file.rows for file in plan.replaces)
    return {**totals, plan.kind.value: {name: count for name, count in own.items() if count or name == "replaced"}}


def violations_in(totals: Mapping[str, int]) -> dict[str, int]:
    """Return how many records of one kind of transaction violate each expectation, of those that any of them violates."""
    return {name.removeprefix(_VIOLATES): count for name, count in totals.items() if name.startswith(_VIOLATES)}


def rows_appended(checkpoint: Checkpoint) -> int | None:
    """Return how many rows all commits have left in an append table; None if some did not count theirs, or others were there before."""
    totals = checkpoint.totals.values()
    uncounted = sum(own["transactions"] for own in totals) != checkpoint.sequence
    replays = checkpoint.totals.get(TransactionKind.REPLAY.value, {"replaced": 0})
    if uncounted or checkpoint.taken_over or "replaced" not in replays:
        return None
    return sum(own.get("rows", 0) - own.get("replaced", 0) for own in totals)
