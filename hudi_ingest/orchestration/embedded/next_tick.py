"""When a sensor has to tick next. Its cursor says so to this folder's daemon; Dagster's own goes by the sensor's minimum interval
alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_PREFIX = "hudi_ingest next tick "


@dataclass(frozen=True, slots=True)
class NextTick:
    """When, in seconds since 1970, the next tick is `due`, or infinity; `runs`: by the id of a run, when the tick that follows its end is
    due."""

    due: float = math.inf
    runs: Mapping[str, float] = field(default_factory=dict)

    def is_due(self, ticked: float, now: float, ended_at: Callable[[str], float]) -> bool:
        """Whether a tick has become due since the sensor `ticked`. `ended_at`: when a run ended, infinity if it has not."""
        due = [self.due, *(max(due, ended_at(run_id)) for run_id, due in self.runs.items())]
        return any(ticked < each <= now for each in due)

    @property
    def cursor(self) -> str:
        return _PREFIX + json.dumps([self.due, dict(self.runs)])

    @classmethod
    def of(cls, cursor: str | None) -> NextTick | None:
        """Read a sensor's cursor; None if it says something else."""
        if cursor is None or not cursor.startswith(_PREFIX):
            return None
        try:
            due, runs = json.loads(cursor.removeprefix(_PREFIX))
            by_run = {str(run_id): float(at) for run_id, at in runs.items()}
            return cls(float(due), by_run)
        except (ValueError, TypeError, AttributeError):
            return None
