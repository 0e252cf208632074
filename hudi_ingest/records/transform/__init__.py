"""Transforms turn decoded rows into the table's rows: whole Arrow batches in, whole Arrow batches out.

A batch has the record's fields, then the Kafka columns that are needed downstream. Every transform can read the Kafka
columns (`_kafka_…`) and passes them through, so a row never loses its offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from hudi_ingest.exceptions.problems import Place, quoted, suggestion
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.kafka_columns import is_kafka
from hudi_ingest.records.schema.columns import column_problems

Origins = Mapping[str, frozenset[str]]
"""The paths that each column is computed from, such as `customer` or `customer.city`."""


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
    violations: Mapping[str, int] = field(default_factory=dict)
    """How many rows violate an expectation, by its name; those are rows or rejected."""


class Transform(Protocol):
    """Frozen, picklable, without state between calls: the outcome for a row does not depend on its neighbours."""

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        """Return the schema of `apply`'s rows for a batch with schema `incoming`. Raises TransformProblems."""

    def origins(self, incoming: pa.Schema) -> Origins:
        """Return the incoming columns that each output column is computed from. `output_schema` has accepted `incoming`."""

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        """Transform the batch, whose schema `output_schema` has accepted. Bad content never raises."""


@runtime_checkable
class Judges(Protocol):
    """A transform that leaves rows out, or says where they go."""

    def judged(self, incoming: pa.Schema) -> frozenset[str]:
        """Return the incoming columns by which it decides."""


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


def record_names(schema: pa.Schema) -> list[str]:
    """Return the names of the record's fields, without the Kafka columns."""
    return [name for name in schema.names if not is_kafka(name)]


def kafka_columns(schema: pa.Schema) -> list[pa.Field]:
    """Return the Kafka columns, which follow the record's fields."""
    return [field for field in schema if is_kafka(field.name)]


def missing_fields(names: Sequence[tuple[Place, str]], incoming: pa.Schema, kafka: bool = False) -> Iterator[Problem]:
    """Yield a problem for each (place, name) that is not a field of the record; with `kafka`, Kafka columns are fine too."""
    names_of_record = record_names(incoming)
    for place, name in names:
        if kafka and is_kafka(name) and name in incoming.names:
            continue
        if is_kafka(name):
            yield Problem(place, f"{name} is a Kafka column, which transforms cannot change; copy it with insert_kafka")
        elif name not in names_of_record:
            parent = name.partition(".")[0]
            if "." in name and parent in names_of_record:
                advice = f"; transforms see whole columns, so flatten {parent} first"
            else:
                advice = suggestion(name, names_of_record)
            text = f"no field is called {quoted(name)} here; allowed: {', '.join(names_of_record)}{advice}"
            yield Problem(place, text, missing=name)


def repeated(names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each repeated name."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem((index,), f"found {quoted(name)} twice in the list; remove one")


def require(problems: Sequence[Problem]) -> None:
    """Raise TransformProblems when there are any."""
    if problems:
        raise TransformProblems(problems)


def unchanged(schema: pa.Schema) -> dict[str, frozenset[str]]:
    """Return origins in which every column comes from itself."""
    return {name: frozenset([name]) for name in schema.names}


def with_columns(schema: pa.Schema, added: list[pa.Field]) -> pa.Schema:
    """Return the record's fields, the added ones, then the Kafka columns."""
    return pa.schema([*(field for field in schema if not is_kafka(field.name)), *added, *kafka_columns(schema)])


def with_arrays(batch: pa.RecordBatch, added: list[pa.Field], arrays: list[pa.Array]) -> pa.RecordBatch:
    """Return the rows with the added columns, in the order of `with_columns`."""
    names = batch.schema.names
    columns = [batch[name] for name in names if not is_kafka(name)]
    kafka = [batch[name] for name in names if is_kafka(name)]
    return pa.RecordBatch.from_arrays([*columns, *arrays, *kafka], schema=with_columns(batch.schema, added))


def name_problems(output: pa.Schema, places: Mapping[str, Place]) -> Iterator[Problem]:
    """Yield a problem for each column that Hudi or Spark could not store next to the others. `places` says where the settings
    introduce new names."""
    columns = pa.schema([field for field in output if not is_kafka(field.name)])
    reserved = [name for name in places if is_kafka(name)]
    for name in reserved:
        yield Problem(places[name], f"names beginning with _kafka_ belong to hudi-ingest; found {name}; choose another")
    # The others may yet be renamed, dropped, or be the `delete_field`.
    for text in column_problems(columns, set(columns.names) - places.keys()):
        named = text.removeprefix("column ").partition(":")[0].partition(".")[0]
        yield Problem(places.get(named, ()), text)


def selected(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the rows with these columns only."""
    schema = pa.schema([batch.schema.field(name) for name in names])
    return pa.RecordBatch.from_arrays([batch[name] for name in names], schema=schema)
