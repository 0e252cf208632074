"""Apply a pipeline's transforms in order: their output, each row's outcome, and what messages may show of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import pyarrow as pa

from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, is_kafka
from hudi_ingest.records.transform import Problem, Transform, Transformed, TransformProblems, unchanged
from hudi_ingest.records.transform.columns import Filter, Mask
from hudi_ingest.records.transform.timestamps import EventTimeLimits

_NOT_FOR_DELETES = (Filter, EventTimeLimits)

HIDDEN = "a value that is not shown, because the field is masked"
HIDDEN_RECORD = "something else, which is not shown because the pipeline masks fields"


@dataclass(frozen=True, slots=True)
class Step:
    """One transform, and its name in messages."""

    name: str
    """For example `transforms[1].cast`."""
    transform: Transform


class ChainProblems(TransformProblems):
    """All problems of the first step that does not fit the output of the steps before it."""

    def __init__(self, step: int, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.step = step

    def __reduce__(self) -> tuple[type[ChainProblems], tuple[int, tuple[Problem, ...]]]:  # type: ignore[override]
        return (ChainProblems, (self.step, self.problems))


@dataclass(frozen=True)
class Chain:
    """Steps that fit together, for records of one schema. Picklable."""

    record: pa.Schema
    """The fields that records are decoded to."""
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, record: pa.Schema, steps: Sequence[Step]) -> Chain:
        """Chain the steps. Raises ChainProblems when one does not fit."""
        chain = cls(record, tuple(steps))
        _ = chain.output
        return chain

    @cached_property
    def output(self) -> pa.Schema:
        """The record's fields after all steps: the table's columns without its Kafka columns."""
        return pa.schema([field for field in self._schemas[-1] if not is_kafka(field.name)])

    @cached_property
    def kafka(self) -> frozenset[str]:
        """The Kafka columns that the steps read, by their keys in KAFKA_FIELDS."""
        needed = set()
        for kind in KAFKA_FIELDS if self.steps else ():
            without = [field for kafka_kind, field in KAFKA_FIELDS.items() if kafka_kind != kind]
            try:
                _schemas(pa.schema([*self.record, *without]), self.steps)
            except ChainProblems:
                needed.add(kind)
        return frozenset(needed)

    @cached_property
    def times_of_kafka(self) -> frozenset[str]:
        """The columns of `output` that are computed from the Kafka timestamp, which not all records have."""
        source = KAFKA_FIELDS["timestamp"].name
        return frozenset(name for name in self.output.names if source in self._paths[-1][name])

    @cached_property
    def masked(self) -> frozenset[str]:
        """Paths of the record's fields (and Kafka columns) whose values must not appear in messages, logs or dead letters."""
        return frozenset(
            path
            for step, paths in zip(self.steps, self._paths, strict=False)
            if isinstance(step.transform, Mask)
            for name in step.transform.fields
            for path in paths[name]
        )

    def at(self, begin: datetime) -> Chain:
        """Return the chain for the transaction that began then, so that all attempts at its records have the same outcome."""
        steps = [
            replace(step, transform=step.transform.at(begin)) if isinstance(step.transform, EventTimeLimits) else step
            for step in self.steps
        ]
        return Chain(self.record, tuple(steps))

    @cached_property
    def for_deletes(self) -> Chain:
        """The chain for rows that have little more than a key: all fields may be null, and no step leaves rows out on purpose
        or judges their times."""
        record = pa.schema([field.with_nullable(True) for field in self.record])
        return Chain(record, tuple(step for step in self.steps if not isinstance(step.transform, _NOT_FOR_DELETES)))

    def sources(self, columns: Collection[str]) -> frozenset[str]:
        """Return the fields of the record, and Kafka columns, that these columns of `output` are computed from."""
        fields = self._paths[0]
        paths = {path for name in columns for path in self._paths[-1][name]}
        return frozenset(path if path in fields else path.partition(".")[0] for path in paths)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        """Apply all steps. `batch` has the record's fields, then at least the Kafka columns of `kafka`; the result has
        `output`, then the same Kafka columns.

        Raises TransformFailed when a user's own function is wrong; bad content never raises.
        """
        rows, places, filtered = batch, None, 0
        rejected: list[Rejected] = []
        for step, concealed in zip(self.steps, self._concealed, strict=False):
            transformed = step.transform.apply(rows)
            for refusal in transformed.rejected:
                rejected.append(
                    Rejected(
                        refusal.index if places is None else places[refusal.index].as_py(),
                        refusal.field,
                        f"{refusal.expected}, by {step.name}",
                        HIDDEN if refusal.field in concealed else refusal.found,
                    )
                )
            if transformed.kept is not None:
                places = transformed.kept if places is None else places.take(transformed.kept)
            rows, filtered = transformed.rows, filtered + transformed.filtered
        rejected.sort(key=lambda refusal: refusal.index)
        return Transformed(rows, places, tuple(rejected), filtered)

    def hides(self, column: str) -> bool:
        """Return whether the values of this column of `output` must not be shown."""
        return column in self._concealed[-1]

    def redact(self, rejected: Rejected) -> Rejected:
        """Remove masked content from a converter's refusal of a record, both values and map keys."""
        if not self.masked:
            return rejected
        if not rejected.field:
            return replace(rejected, found=HIDDEN_RECORD)
        path = rejected.field.partition("[")[0]
        near = [masked_path for masked_path in sorted(self.masked) if _overlap(masked_path, path)]
        if not near:
            return rejected
        return replace(rejected, field=min(path, near[0], key=len), found=HIDDEN)

    @cached_property
    def _schemas(self) -> tuple[pa.Schema, ...]:
        """The schemas before each step and after the last."""
        return _schemas(pa.schema([*self.record, *KAFKA_FIELDS.values()]), self.steps)

    @cached_property
    def _paths(self) -> tuple[Mapping[str, frozenset[str]], ...]:
        """Before each step and after the last: the paths in the record that each column is computed from."""
        paths_per_step: list[Mapping[str, frozenset[str]]] = [unchanged(self._schemas[0])]
        for step, schema in zip(self.steps, self._schemas, strict=False):
            before = paths_per_step[-1]
            origins = step.transform.origins(schema)
            paths_per_step.append({name: _traced(paths, before) for name, paths in origins.items()})
        return tuple(paths_per_step)

    @cached_property
    def _concealed(self) -> tuple[frozenset[str], ...]:
        """Before each step and after the last: the columns whose values must not be shown."""
        return tuple(
            frozenset(
                name
                for name, origins in paths.items()
                if any(_overlap(origin, hidden) for origin in origins for hidden in self.masked)
            )
            for paths in self._paths
        )


def _schemas(first: pa.Schema, steps: Sequence[Step]) -> tuple[pa.Schema, ...]:
    schemas = [first]
    for index, step in enumerate(steps):
        try:
            schemas.append(step.transform.output_schema(schemas[-1]))
        except TransformProblems as error:
            problems = [_with_history(problem, schemas, steps) for problem in error.problems]
            raise ChainProblems(index, problems) from None
    return tuple(schemas)


def _with_history(problem: Problem, schemas: Sequence[pa.Schema], steps: Sequence[Step]) -> Problem:
    """Name the earlier step that removed a missing field, if one did."""
    for step, schema in zip(reversed(steps[: len(schemas) - 1]), reversed(schemas[:-1]), strict=True):
        if problem.missing and problem.missing in schema.names:
            text = f"no field is called {quoted(problem.missing)} after {step.name}; use it before that, or let that keep it"
            return replace(problem, text=text)
    return problem


def _traced(paths: Collection[str], before: Mapping[str, frozenset[str]]) -> frozenset[str]:
    traced = set()
    for path in paths:
        # A field's own name may have points.
        root, dot, rest = (path, "", "") if path in before else path.partition(".")
        traced |= {f"{origin}{dot}{rest}" for origin in before[root]}
    return frozenset(traced)


def _overlap(first: str, second: str) -> bool:
    """Return whether one path equals or contains the other, so that values of one may contain values of the other."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")
