"""Transforms turn decoded rows into the table's rows: whole Arrow batches in, whole Arrow batches out.

A batch has the record's fields, then the Kafka columns that are needed downstream. Every transform can read the Kafka
columns (`_kafka_…`) and passes them through, so a row never loses its offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from hudi_ingest.exceptions.problems import Place
from hudi_ingest.records.convert.converter import Rejected

Origins = Mapping[str, frozenset[str]]
"""By column: the paths that it is computed from, such as `customer` or `customer.city`."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """The outcome of a batch. Each input row is a row, rejected, or filtered, and rows keep the input's order."""

    rows: pa.RecordBatch
    """Rows with exactly the schema that `output_schema` returns for the batch's."""
    kept: pa.Array | None
    """int64 input indexes of the rows, ascending; None when every input row was kept."""
    rejected: tuple[Rejected, ...] = ()
    """Ascending by index in the input."""
    filtered: int = 0
    """Rows that a filter dropped on purpose: accounted for, not lost."""


class Transform(Protocol):
    """Frozen, picklable, without state between calls: the outcome for a row does not depend on its neighbours."""

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        """Return the schema of `apply`'s rows for a batch with schema `incoming`. Raises TransformProblems."""

    def origins(self, incoming: pa.Schema) -> Origins:
        """Return the incoming columns that each output column is computed from. `output_schema` has accepted `incoming`."""

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        """Transform the batch, whose schema `output_schema` has accepted. Bad content never raises."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a transform does not fit its input columns."""

    place: Place
    """Where the problem is in the transform's settings."""
    text: str
    missing: str = ""
    """The missing field, if that is the problem."""


class TransformProblems(ValueError):
    """All problems of one transform."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.text for problem in self.problems))

    def __reduce__(self) -> tuple[type[TransformProblems], tuple[tuple[Problem, ...]]]:
        return (TransformProblems, (self.problems,))
