"""What the reader tells, a line for each poll."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """Rows of a partition's offsets [start, end), of one version of the converter and one instant."""

    partition: int
    start: int
    end: int
    version: int
    instant: str


@dataclass(frozen=True)
class Poll:
    """Times are seconds since the epoch. `error`: why the table could not be read, or ""."""

    at: float
    until: float
    rows: int = 0
    foreign: int = 0
    runs: tuple[Run, ...] = ()
    error: str = ""

    @classmethod
    def from_json(cls, line: str) -> Poll:
        found = json.loads(line)
        if "error" in found:
            return cls(found["at"], found["at"], error=found["error"])
        return cls(
            found["at"],
            found["until"],
            found["rows"],
            found["foreign"],
            tuple(Run(*each) for each in found["runs"]),
        )

    @property
    def ends(self) -> dict[int, int]:
        """Of each partition the offset behind its last row."""
        return {run.partition: run.end for run in self.runs}
