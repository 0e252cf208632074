"""How many bad records a transaction may have, and the error if it has more. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from hudi_ingest.exceptions import BadRecord, WriteIncomplete
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.report import BadRecordNote, SliceReport
from hudi_ingest.pipeline.pipeline import Pipeline

NAMED_BAD_RECORDS = 5
"""How many bad records a report names; all of them are counted."""


def most_bad_records(pipeline: Pipeline, kind: TransactionKind) -> int | None:
    """The number that a transaction may have; None for any. A retry's bad records have all been counted before."""
    if kind is TransactionKind.RETRY:
        return None
    return 0 if pipeline.on_bad_record == "fail" else pipeline.max_bad_records


def keeps_letters(pipeline: Pipeline, kind: TransactionKind) -> bool:
    """Whether bad records become dead letters. In a retry they stay dead letters whatever the pipeline file says now."""
    return pipeline.on_bad_record == "dead_letter" or kind is TransactionKind.RETRY


def withholds_bytes(pipeline: Pipeline, kind: TransactionKind) -> bool:
    """Whether dead letters must not hold the records' bytes, because they include masked values. A retry's letters keep the
    bytes they have: removing them would lose the records."""
    if kind is TransactionKind.RETRY:
        return False
    return any(transform.kind == "mask" for transform in pipeline.transforms) and not pipeline.dead_letters.keep_masked


def require_bad_accounted(pipeline: Pipeline, kind: TransactionKind, reports: Sequence[SliceReport]) -> None:
    """Raises BadRecord if the whole transaction has more bad records than the pipeline allows, WriteIncomplete unless each of
    them is a dead letter, if they are kept."""
    rejected = sum(report.rejected for report in reports)
    records = sum(report.rows + report.filtered + report.rejected for report in reports)
    # The first of each slice before the second of any.
    ranks = zip_longest(*(report.bad_records for report in sorted(reports, key=lambda report: report.slice)))
    notes = [note for rank in ranks for note in rank if note is not None]
    limit = most_bad_records(pipeline, kind)
    if limit is not None and rejected > limit:
        number = "1 record cannot become a row" if rejected == 1 else f"{rejected} records cannot become rows"
        setting = "on_bad_record is fail" if pipeline.on_bad_record == "fail" else f"max_bad_records is {limit}"
        raise _refusal(pipeline, f"{number}, and {setting}", rejected, notes)
    ratio = None if kind is TransactionKind.RETRY else pipeline.max_bad_ratio
    if ratio is not None and records and rejected / records > ratio:
        ratio_text = f"{rejected} of {records} records ({rejected / records:.2%}) cannot become rows, and max_bad_ratio is {ratio:g}"
        raise _refusal(pipeline, ratio_text, rejected, notes)
    kept = sum(file.letters for report in reports for file in report.letters)
    expected = rejected if keeps_letters(pipeline, kind) else 0
    if kept != expected:
        raise WriteIncomplete(
            f"pipeline {pipeline.name}: {rejected} bad records are reported, but the files of dead letters hold {kept}. "
            "Nothing was published; run the ops again."
        )


def _refusal(pipeline: Pipeline, limit: str, count: int, notes: Sequence[BadRecordNote]) -> BadRecord:
    alternative = "raise that limit"
    if pipeline.on_bad_record == "fail":
        alternative = (
            "continue without such records with on_bad_record: skip, or dead_letter, which keeps them for a retry"
        )
    return BadRecord(
        pipeline=pipeline.name,
        limit=limit,
        count=count,
        records=sorted(notes[:NAMED_BAD_RECORDS], key=lambda note: (note.topic, note.partition, note.offset)),
        alternative=alternative,
    )
