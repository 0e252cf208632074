"""The contenders, a module each, and how the benchmark talks to their processes.

Each contender except the Dagster stack is one process (`python -m benchmarks.contenders.worker NAME`) with its own Spark
driver, which lives for a whole load. They do not share a JVM, so that one contender's profile of Spark's and Kafka's common
code in the JIT compiler cannot slow down another, and CPU and memory belong to one contender each. All are warmed up by a
whole round of the same load, which is reported as the cold round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Task(str, Enum):
    """What a contender does in a round; all but the contenders of keyed tables only write."""

    WRITE = "write"
    READ = "read"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One round: what to read and where to write it. `pipeline_file` defines topic, schema and table for all contenders, so
    that all read and keep the same columns; `folder` belongs to the table, and is shared by the commit that creates it and
    the one that is measured."""

    pipeline_file: str
    folder: str
    record_bytes: int
    """Mean length of a value; it determines the size of Arrow batches, as a pipeline's last commit would."""
    reads_back: bool = True
    """Whether the table's rows are counted afterwards, which takes longer than the round if the table has a long history."""
    task: Task = Task.WRITE

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Assignment:
        return cls(**{**facts, "task": Task(facts["task"])})


@dataclass(frozen=True, slots=True)
class Outcome:
    """When a round began and when its rows were published, in seconds since the epoch; and the number of rows, counted in the
    files rather than reported by the contender."""

    began: float
    ended: float
    rows: int
    """-1 if they were not counted."""
    at_rest: float | None = None
    """When its processes had finished all work, if later than `ended`."""
    checksum: int = 0
    """Of the rows that a READ saw."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began
