"""The metadata of a table's asset: its columns, and of each commit the figures, lag, files, slices and bad records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from dagster import (
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableRecord,
    TableSchema,
)

from hudi_ingest.exceptions.problems import listed
from hudi_ingest.model.accounting import SliceAccount
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.complete_through import Completenesses, holding_back, of_table
from hudi_ingest.model.counts import Counts
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.report import BaseFile, CommitReceipt, LogFile, SliceReport, rows_appended
from hudi_ingest.operations.health.judgement import LAG_RECORDS, LAG_SECONDS
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.pipeline.settings.model import read_text
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TIMESTAMP, TOPIC
from hudi_ingest.records.schema.avro import avro_descriptions
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.schema.ddl import ddl_comments
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.plan.arithmetic import SHOWN, left_out_text

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
        **{f"violations/{name}": count for name, count in receipt.violations.items()},
        **({"fields": text} if receipt.fields is not None and (text := receipt.fields.text) else {}),
        "files": receipt.files,
        "bytes": receipt.size_bytes,
        "bytes per file": receipt.size_bytes // receipt.files if receipt.files else 0,
        **({"small files": small} if small else {}),
        **({"schema changes": "\n".join(plan.schema_changes)} if plan.schema_changes else {}),
        **complete_metadata(receipt.checkpoint.complete),
        **left_out_text(plan.pipeline, plan.stopped, plan.resets, plan.leaderless),
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


def complete_metadata(states: Completenesses) -> dict[str, Any]:
    """Return through which Kafka timestamp the table is complete, and which partitions hold it back; empty if it is known of no
    time."""
    through = of_table(states)
    if through is None or as_datetime(through) is None:
        return {}
    back = holding_back(states)
    return {
        "complete through": MetadataValue.timestamp(through / 1000),
        **({"held back by": listed(back, SHOWN)} if back else {}),
    }


def row_count(pipeline: Pipeline, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return how many rows the table has; empty if the commits do not say, as those of a keyed table."""
    table = pipeline.table
    rows = None if table.is_keyed or table.ttl is not None else rows_appended(checkpoint)
    return {} if rows is None else {"dagster/row_count": rows}


def changes_of(slices: Iterable[SliceReport | SliceAccount]) -> dict[str, int]:
    """Sum what only a commit to a keyed table counts; empty if there is none of it."""
    counts = Counts.total(slices).counts
    return {name: counts[name] for name in ("deletes", "superseded", "moves", "truncated") if counts[name]}


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
    "truncated",
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


def lag_metadata(waiting: int, seconds: float | None) -> dict[str, Any]:
    """Return the lag as metadata. `waiting`: records; `seconds`: age of the oldest, None if unknown."""
    return {LAG_RECORDS: waiting, **({} if seconds is None else {LAG_SECONDS: MetadataValue.float(round(seconds, 1))})}


def pipeline_columns(
    pipeline: Pipeline, columns: pa.Schema, descriptions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the columns of the pipeline's table as Dagster metadata, with what the pipeline file says about them, or else
    `descriptions`, what the registry's schemas say."""
    return column_schema(columns, pipeline.table.partition_columns, _declared(pipeline) or descriptions)


def _declared(pipeline: Pipeline) -> dict[str, str]:
    """Return the descriptions of columns from DDL comments or the docs of an Avro file."""
    table = pipeline.table
    if table.schema_file is not None:
        return avro_descriptions(read_text(table.schema_file))
    return ddl_comments(table.schema_ or "") if table.declares_schema else {}


def column_schema(
    columns: pa.Schema, partition_by: Collection[str] = (), comments: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a table's columns as Dagster metadata."""
    return {"dagster/column_schema": _table_schema(columns, tuple(partition_by), tuple((comments or {}).items()))}


# The pipelines of a template mostly have the same columns.
@lru_cache(maxsize=64)
def _table_schema(
    columns: pa.Schema, partition_by: Collection[str], comments: Sequence[tuple[str, str]]
) -> TableSchema:
    described = dict(comments)
    return TableSchema(
        [
            TableColumn(
                column.name,
                ddl_type(column.type),
                description=described.get(column.name) or _column_description(column.name, partition_by),
                constraints=TableColumnConstraints(nullable=column.nullable),
            )
            for column in columns
        ]
    )


_KAFKA_COLUMNS = {
    TOPIC: "Kafka topic of the record",
    PARTITION: "Kafka partition of the record",
    OFFSET: "Offset of the record in its partition",
    TIMESTAMP: "When the record was produced or when the broker received it, as the topic is configured; null if it has none",
}


def _column_description(column: str, partition_by: Collection[str]) -> str | None:
    if column in partition_by:
        return "Partition column"
    return _KAFKA_COLUMNS.get(column)
