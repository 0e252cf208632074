"""Who is measured, each in a module of its own, and how the benchmark talks to their processes.

Each contender but the Dagster stack is one process (`python -m benchmarks.contenders.worker NAME`) with a Spark
driver of its own that lives for a whole load. They share no JVM: what one contender's classes teach the JIT compiler about
Spark's and Kafka's common code must not slow another down, and CPU and memory belong to one contender each. All are warmed
by the same thing, a whole round of the same load, and that round is reported as the cold one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Assignment:
    """One round: what to read and where to write it. `pipeline_file` names topic, schema and table for everyone, so that
    nobody can read or keep other columns; `folder` is the table's own, where the commit that makes it and the one that is
    measured find each other."""

    pipeline_file: str
    folder: str
    record_bytes: int
    """Mean length of a value, which sizes the Arrow batches as a pipeline's last commit would."""
    reads_back: bool = True
    """Whether the table's files are counted afterwards; of a table with a long history that takes longer than the round."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Assignment:
        return cls(**found)


@dataclass(frozen=True, slots=True)
class Outcome:
    """When a round began and when its rows were published, in seconds since the epoch; how many rows are there, told by
    what was written and not by who wrote it."""

    began: float
    ended: float
    rows: int
    """-1 when they were not counted."""
    at_rest: float | None = None
    """When its processes had nothing left to do, where that is later than `ended`."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began
