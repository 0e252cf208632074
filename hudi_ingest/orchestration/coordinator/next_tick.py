"""When a coordinator has to tick next. Its cursor says so to the embedded stack's daemon; Dagster's own goes by the sensor's minimum
interval alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_PREFIX = "hudi_ingest next tick "


@dataclass(frozen=True, slots=True)
class NextTick:
    """When, in seconds since 1970, transactions of a sensor's pipelines are `due`, or infinity; `runs`: by the run that is at work for a
    pipeline, when the transaction after it is due."""

    due: float = math.inf
    runs: Mapping[str, float] = field(default_factory=dict)

    def is_due(self, ticked: float, now: float, ended_at: Callable[[str], float]) -> bool:
        """Whether a transaction has become due since the sensor `ticked`. `ended_at`: when a run ended, infinity if it has not."""
        due = [self.due, *(max(due, ended_at(run_id)) for run_id, due in self.runs.items())]
        return any(ticked < each <= now for each in due)

    @property
    def cursor(self) -> str:
        return _PREFIX + json.dumps([self.due, dict(self.runs)])

    @classmethod
    def of(cls, cursor: str | None) -> NextTick | None:
        """Read a sensor's cursor; None if it is not a coordinator's, or if somebody has set it to something else: the next tick sets it
        anew."""
        if cursor is None or not cursor.startswith(_PREFIX):
            return None
        try:
            due, runs = json.loads(cursor.removeprefix(_PREFIX))
            by_run = {str(run_id): float(at) for run_id, at in runs.items()}
            return cls(float(due), by_run)
        except (ValueError, TypeError, AttributeError):
            return None
