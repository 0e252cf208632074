"""The lag as Dagster plots it, by commits and, while none come, by the ticks: under the same names, so in one plot."""

from __future__ import annotations

from typing import Any

from dagster import MetadataValue

LAG_RECORDS = "lag (records)"
LAG_SECONDS = "lag (seconds)"


def lag_metadata(waiting: int, seconds: float | None) -> dict[str, Any]:
    """`waiting`: records; `seconds`: the age of the oldest of them, None when it is not known."""
    return {LAG_RECORDS: waiting, **({} if seconds is None else {LAG_SECONDS: MetadataValue.float(round(seconds, 1))})}
