"""`table.event_time` of a pipeline file: which records are too old, or too far ahead."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from hudi_ingest.pipeline.settings.model import Model, Seconds


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
