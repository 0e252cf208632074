"""`table.ttl` of a pipeline file: when table partitions are dropped because of their age."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hudi_ingest.pipeline.settings.model import Model, Whole


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
