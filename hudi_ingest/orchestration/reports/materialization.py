"""The metadata of a commit's materialization: figures, files, slices and bad records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagster import (
    MetadataValue,
    TableColumn,
    TableRecord,
    TableSchema,
)

from hudi_ingest.model.accounting import SliceAccount
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.report import BaseFile, CommitReceipt, LogFile, SliceReport
from hudi_ingest.transaction.plan.offset_losses import losses_text

SHOWN_BAD_RECORDS = 20


def materialization(receipt: CommitReceipt, lag: Mapping[TopicPartition, int], small: str) -> dict[str, Any]:
    """Return the metadata of one commit. `lag`: offsets waiting now; `small`: the warning about small files."""
    plan = receipt.plan
    return {
        "instant": receipt.instant,
        "transaction": plan.transaction_id,
        "rows": receipt.rows,
        "skipped": sum(report.skipped for report in receipt.reports),
        "filtered": sum(report.filtered for report in receipt.reports),
        **changes_of(receipt.reports),
        **_bad_records(receipt),
        **({"fields": text} if receipt.fields is not None and (text := receipt.fields.text) else {}),
        "files": receipt.files,
        "bytes": receipt.size_bytes,
        "bytes per file": receipt.size_bytes // receipt.files if receipt.files else 0,
        **({"small files": small} if small else {}),
        **({"schema changes": "\n".join(plan.schema_changes)} if plan.schema_changes else {}),
        **losses_text(plan.pipeline, plan.stopped, plan.resets),
        **{f"seconds/{phase}": MetadataValue.float(value) for phase, value in receipt.seconds.items()},
        "partitions": metadata_table(
            [*SLICE_COLUMNS[:4], TableColumn("lag", "int"), *SLICE_COLUMNS[4:]],
            [{**slice_row(report), "lag": lag.get(report.slice.source)} for report in receipt.reports],
        ),
        "written files": metadata_table(
            _FILE_COLUMNS,
            [_file_row(report, file) for report in receipt.reports for file in report.written][:_MOST_FILES],
        ),
    }


def changes_of(slices: Iterable[SliceReport | SliceAccount]) -> dict[str, int]:
    """Sum what only a commit to a keyed table counts; empty if there is none of it."""
    counts = [(piece.deletes, piece.superseded, piece.moves) for piece in slices]
    totals = (sum(count) for count in zip(*counts, strict=True))
    return {name: total for name, total in zip(("deletes", "superseded", "moves"), totals, strict=False) if total}


def by_kind(kind: TransactionKind, metadata: dict[str, Any]) -> dict[str, Any]:
    """Prefix the figures of a backfill, replay or retry, e.g. `backfill/rows`: Dagster plots each name, and the plots of live
    commits would jump."""
    if kind is TransactionKind.INGEST:
        return metadata
    return {
        f"{kind.value}/{name}" if name in _PLOTTED or name.startswith("seconds/") else name: value
        for name, value in metadata.items()
    }


_PLOTTED = {
    "rows",
    "skipped",
    "filtered",
    "deletes",
    "superseded",
    "moves",
    "bad records",
    "files",
    "bytes",
    "bytes per file",
}


def _bad_records(receipt: CommitReceipt) -> dict[str, Any]:
    """Return how many records could not become rows, and the first of them."""
    letters = receipt.checkpoint.letters
    metadata: dict[str, Any] = {"bad records": receipt.rejected}
    if letters is not None:
        metadata["pending dead letters"] = letters.waiting
    if receipt.rejected:
        rows = [
            {"partition": f"{record.topic}:{record.partition}", "offset": record.offset, "reason": record.reason}
            for record in receipt.bad_records[:SHOWN_BAD_RECORDS]
        ]
        metadata["first bad records"] = metadata_table(_BAD_RECORD_COLUMNS, rows)
    return metadata


_BAD_RECORD_COLUMNS = [
    TableColumn("partition", "string"),
    TableColumn("offset", "int"),
    TableColumn("reason", "string"),
]


SLICE_COLUMNS = [
    TableColumn("partition", "string"),
    TableColumn("start", "int"),
    TableColumn("end", "int"),
    TableColumn("rows", "int"),
    TableColumn("files", "int"),
    TableColumn("bytes", "int"),
    TableColumn("seconds", "float"),
    TableColumn("skipped", "int"),
    TableColumn("filtered", "int"),
    TableColumn("bad records", "int"),
    TableColumn("gaps", "int"),
    TableColumn("attempt", "int"),
]


def slice_row(report: SliceReport) -> dict[str, str | int | float]:
    return {
        "partition": str(report.slice.source),
        "start": report.slice.start,
        "end": report.slice.end,
        "rows": report.rows,
        "files": len(report.written),
        "bytes": report.size_bytes,
        "seconds": report.seconds,
        "skipped": report.skipped,
        "filtered": report.filtered,
        "bad records": report.rejected,
        "gaps": report.gaps,
        "attempt": report.attempt,
    }


_FILE_COLUMNS = [
    TableColumn("path", "string"),
    TableColumn("partition", "string"),
    TableColumn("rows", "int"),
    TableColumn("bytes", "int"),
    TableColumn("first_offset", "int"),
    TableColumn("last_offset", "int"),
]
_MOST_FILES = 20
"""Dagster keeps events for ever, so a commit of many files shows only the first; `hudi-ingest files` shows all."""


def _file_row(report: SliceReport, file: BaseFile | LogFile) -> dict[str, str | int]:
    return {
        "path": file.path,
        "partition": str(report.slice.source),
        "rows": file.rows,
        "bytes": file.size_bytes,
        "first_offset": file.first_offset,
        "last_offset": file.last_offset,
    }


def metadata_table(columns: list[TableColumn], rows: Sequence[dict[str, Any]]) -> MetadataValue[Any]:
    return MetadataValue.table([TableRecord(row) for row in rows], schema=TableSchema(columns))
