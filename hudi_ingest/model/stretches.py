"""Stretches of offsets, each with the certificate of all rows that a table has of it: by the accountings of its commits, and of those
that are archived by the checkpoint. Pure arithmetic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.certificate import Certificate
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Ranges, Slice, TopicPartition, difference, intersection, length, ranges
from hudi_ingest.model.plan import TransactionKind

_MOST_OFFSETS = 1_000_000
"""Offsets of a stretch without a certificate: its rows are compared one by one."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets [start, end) of a partition, all of which the table covers."""

    source: TopicPartition
    start: int
    end: int
    rows: int | None = None
    """How many rows the table has of it; None if that is unknown, as it is without a certificate."""
    records: int | None = None
    """How many records were read; None if that is unknown."""
    certificate: Certificate | None = None
    sequence: int = 0
    """The number of the last transaction that changed its rows; 0 if that is archived."""

    @classmethod
    def of(cls, slice_: Slice) -> Stretch:
        return cls(slice_.source, slice_.start, slice_.end)

    def __str__(self) -> str:
        return f"{self.source}[{self.start},{self.end})"

    def overlaps(self, other: Stretch) -> bool:
        return self.source == other.source and self.start < other.end and other.start < self.end

    @property
    def uncertified(self) -> Stretch:
        return replace(self, rows=None, records=None, certificate=None)


def stretches_of(accountings: Iterable[Accounting], checkpoint: Checkpoint) -> list[Stretch]:
    """Return all that the checkpoint covers, ordered by partition and offset. `accountings`: of commits on the active timeline."""
    known: defaultdict[TopicPartition, list[Stretch]] = defaultdict(list)
    ingested: defaultdict[TopicPartition, list[Stretch]] = defaultdict(list)
    for accounting in sorted(accountings, key=lambda each: each.sequence):
        for loss in accounting.resets:
            if loss.repeats:
                # From now on these offsets, or those from where the logs part, are other records.
                parts = ((0, loss.diverges_at or 0),)
                known[loss.source] = [part for each in known[loss.source] for part in _within(each, parts)]
                ingested[loss.source] = []
        for own in _accounted(accounting):
            others = known[own.source]
            touched = [each for each in others if each.overlaps(own)]
            known[own.source] = [each for each in others if not each.overlaps(own)]
            known[own.source] += (
                [_with_retried(own, touched)] if accounting.kind is TransactionKind.RETRY else _replaced(own, touched)
            )
            if accounting.kind is TransactionKind.INGEST:
                ingested[own.source].append(own)
    for archived in _archived(checkpoint, ingested):
        if not any(each.overlaps(archived) for each in known[archived.source]):
            known[archived.source].append(archived)
    for source, covered in checkpoint.covered.items():
        rest = difference(covered, ranges((each.start, each.end) for each in known[source]))
        known[source] += [
            Stretch(source, start, min(start + _MOST_OFFSETS, end))
            for first, end in rest
            for start in range(first, end, _MOST_OFFSETS)
        ]
    return sorted((each for of_source in known.values() for each in of_source), key=lambda s: (s.source, s.start))


def _accounted(accounting: Accounting) -> Iterator[Stretch]:
    """Yield a stretch for each slice of a commit that has offsets."""
    for account in accounting.slices:
        slice_ = account.slice
        if slice_.count:
            own = replace(
                Stretch.of(slice_),
                rows=account.rows,
                records=slice_.count - account.gaps,
                certificate=account.certificate,
                sequence=accounting.sequence,
            )
            yield own if account.certificate is not None else own.uncertified


def _archived(checkpoint: Checkpoint, ingested: Mapping[TopicPartition, Sequence[Stretch]]) -> Iterator[Stretch]:
    """Yield what the checkpoint certifies of commits that are archived: its totals without those of the slices on the active timeline."""
    for source, total in checkpoint.certified.items():
        own_slices = [each for each in ingested[source] if each.start >= total.start]
        until = min((each.start for each in own_slices), default=checkpoint.offsets[source])
        certificate = Certificate.total(each.certificate for each in own_slices)
        if total.start < until and certificate is not None:
            rows = total.rows - sum(each.rows or 0 for each in own_slices)
            yield Stretch(source, total.start, until, rows, None, total.certificate - certificate)


def _with_retried(own: Stretch, touched: Sequence[Stretch]) -> Stretch:
    """A retry adds rows of records that were read before."""
    start, end = min(each.start for each in (own, *touched)), max(each.end for each in (own, *touched))
    whole = Stretch(own.source, start, end, sequence=own.sequence)
    before = Certificate.total(each.certificate for each in touched)
    if before is None or own.certificate is None or length(ranges((s.start, s.end) for s in touched)) < end - start:
        return whole
    certificate = before + replace(own.certificate, read=0)
    records = [each.records for each in touched]
    return replace(
        whole,
        rows=sum(each.rows or 0 for each in (own, *touched)),
        records=None if None in records else sum(each or 0 for each in records),
        certificate=certificate,
    )


def _within(stretch: Stretch, parts: Ranges) -> list[Stretch]:
    """Return what of a stretch is in these ranges; a part of one has no certificate."""
    return [
        stretch if (start, end) == (stretch.start, stretch.end) else replace(stretch.uncertified, start=start, end=end)
        for start, end in intersection(((stretch.start, stretch.end),), parts)
    ]


def _replaced(own: Stretch, touched: Sequence[Stretch]) -> list[Stretch]:
    """What was written anew, and what is left of the stretches that had it: a part of one has no certificate."""
    rest = [
        replace(each.uncertified, start=start, end=end)
        for each in touched
        for start, end in difference(((each.start, each.end),), ((own.start, own.end),))
    ]
    return [own, *rest]
