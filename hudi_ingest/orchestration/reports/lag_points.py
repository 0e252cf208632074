"""Lag metadata of commits and, while there are none, of ticks. The names are the same, so Dagster plots them together."""

from __future__ import annotations

from typing import Any

from dagster import MetadataValue

from hudi_ingest.operations.health.judgement import LAG_RECORDS, LAG_SECONDS

__all__ = ["LAG_RECORDS", "LAG_SECONDS", "lag_metadata"]


def lag_metadata(waiting: int, seconds: float | None) -> dict[str, Any]:
    """Return the lag as metadata. `waiting`: records; `seconds`: age of the oldest, None if unknown."""
    return {LAG_RECORDS: waiting, **({} if seconds is None else {LAG_SECONDS: MetadataValue.float(round(seconds, 1))})}
