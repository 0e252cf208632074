"""The parts of `table` that have keys of their own (`event_time`, `compaction`, `ttl`), and the columns that a keyed table can have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from hudi_ingest.exceptions.problems import Place, quoted, suggestion
from hudi_ingest.pipeline.settings.model import Model, Seconds, Whole
from hudi_ingest.records.hudi_keys import KEY_TYPES, is_ordering_type
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, OFFSET
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.transform.casts import cast_of

UNSTEADY = ("timestamp", "offset", "headers")
"""Kafka columns that differ between records of a key."""
KEY_TYPES_TEXT = "string, int or long"
COMPACTED_SECONDS = 86_400
"""The age at which a commit is compacted, however small: read-optimized queries return only this."""
_LOG_BYTES_A_COMMIT = 4 * 1024**3 // 5
ORDERING_TYPES_TEXT = "long, timestamp, string, or decimal(p,s) with s and p - s up to 15"


def keyed_column_problems(
    columns: pa.Schema,
    key: Sequence[str],
    ordering: str | None,
    delete_field: str | None,
    partition_columns: Sequence[str],
) -> Iterator[tuple[Place, str]]:
    """Yield why a keyed table cannot have these columns, by their place in `table`. `columns`: those after the transforms."""
    for index, name in enumerate(key):
        if problem := _problem(name, columns, KEY_TYPES.__contains__, KEY_TYPES_TEXT):
            can_cast = name in columns.names and cast_of(columns.field(name).type, pa.string()) is not None
            remedy = (
                f"; make it a string: `transforms: [{{cast: {{{name}: string}}}}]`, which in a file of several tables may stand under the "
                "topic in `tables`"
            )
            yield ("key", index), problem + remedy * can_cast
    if ordering == OFFSET:
        yield ("ordering",), f"found {OFFSET}, which decides anyway; remove it"
    elif ordering is not None and (problem := _problem(ordering, columns, is_ordering_type, ORDERING_TYPES_TEXT)):
        yield ("ordering",), problem
    if delete_field is None:
        return
    if problem := _problem(delete_field, columns, pa.types.is_boolean, "boolean"):
        yield ("delete_field",), problem
    elif delete_field in (*key, ordering, *partition_columns):
        yield (
            ("delete_field",),
            f"found {quoted(delete_field)}, which the key, the ordering or partition_by needs as a column of the table",
        )


def unsteady_partition(sources: Collection[str]) -> str:
    """Why a keyed table cannot be partitioned by a column with these sources; "" if it can."""
    unsteady = [KAFKA_FIELDS[kind].name for kind in UNSTEADY if KAFKA_FIELDS[kind].name in sources]
    if not unsteady:
        return ""
    return (
        f"computed from {unsteady[0]}, which differs between the records of a key, so that each of them would be another row; use "
        "a field that stays the same"
    )


def _problem(name: str, columns: pa.Schema, is_allowed: Callable[[pa.DataType], bool], types_text: str) -> str:
    if name not in columns.names:
        known = ", ".join(columns.names)
        return f"found {quoted(name)}; allowed: a column of the rows ({known}){suggestion(name, columns.names)}"
    kind = columns.field(name).type
    return "" if is_allowed(kind) else f"column {name} has type {ddl_type(kind)}; allowed: {types_text}"


class EventTime(Model):
    """Limits for a record's own time."""

    field: Annotated[str, StringConstraints(min_length=1)]
    """A timestamp field, as it is after the transforms. Null is within the limits."""

    late_after_seconds: Annotated[Seconds, Field(ge=0, le=10_000_000_000)] | None = None
    """A record is late when its time is more than this before `relative_to`; without it, no record is."""

    future_after_seconds: Annotated[Seconds, Field(ge=0, le=10_000_000_000)] | None = Field(
        default=None, validate_default=True
    )
    """A record is ahead when its time is more than this after `relative_to`; without it, no record is."""

    relative_to: Literal["kafka_timestamp", "transaction"] = "kafka_timestamp"
    """`kafka_timestamp` is when the record was produced or when the broker received it, depending on the topic's
    configuration; `transaction` is when the transaction began, whichever attempt writes the record."""

    action: Literal["reject", "route"] = "reject"
    """`reject` makes it a bad record. `route` puts it into partition `late` or `future` instead of each time in
    `table.partition_by` that is derived from `field`."""

    @field_validator("future_after_seconds")
    @classmethod
    def _a_limit(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is None and info.data.get("late_after_seconds", 0) is None:
            raise ValueError("neither it nor `late_after_seconds` is set; add one, or remove event_time")
        return value


class CompactionLimits(Model):
    """When compaction is due. Only with `mode: upsert`."""

    delta_commits: Annotated[Whole, Field(ge=1, le=500)] = 5
    """Compaction is due when this many commits have log files that are not compacted, or when a file group has four times as many such log
    files, or all of them together 0.8 GiB times as many bytes, or one is a day old. The more, the longer queries take; the fewer, the more
    often base files are rewritten."""

    timeout_seconds: Annotated[Seconds, Field(ge=60, le=86_400)] = 3600
    """A compaction that takes longer is cancelled, and a later run begins it again. One compaction rewrites about 16 GB."""

    @property
    def log_files(self) -> int:
        """Log files of a file group that make a compaction due: each costs a reader as much as some thousand rows, however small it is. A
        transaction writes one to a group for each Spark task, so large transactions reach this first."""
        return 4 * self.delta_commits

    @property
    def log_bytes(self) -> int:
        """Bytes of all log files that make a compaction due."""
        return _LOG_BYTES_A_COMMIT * self.delta_commits


class Ttl(Model):
    """Which table partitions are dropped, by a nightly schedule that is on with this setting; see docs/operations.md."""

    days: Annotated[Whole, Field(ge=1, le=36_500)]
    """A partition is dropped when it ended this many days ago."""

    by: Literal["time", "commit"] = "time"
    """When a partition ended: with `time`, the end of the year, month, day or hour that its `column` names; with `commit`, its
    newest commit, which clustering and compaction renew."""

    column: str | None = Field(
        default=None, json_schema_extra={"default": "the finest time of partition_by, or its only column"}
    )
    """The column of `partition_by` with the time, as 2026, 2026-01, 2026-01-31 or 2026-01-31-23 in `partition_zone`. A partition
    with another value is kept; a year only counts if the column is named here or in a `year(…)`. Only with `by: time`."""
