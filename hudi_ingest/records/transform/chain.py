"""A pipeline's transforms in order: their output, each row's outcome, and which of its values messages may show. The last class is
the transform `python`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import pyarrow as pa

from hudi_ingest.exceptions import TransformFailed
from hudi_ingest.exceptions.problems import quoted
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, is_kafka
from hudi_ingest.records.transform import (
    Judges,
    Origins,
    Problem,
    Transform,
    Transformed,
    TransformProblems,
    kafka_columns,
    record_names,
    selected,
    unchanged,
)
from hudi_ingest.records.transform.casts import without_rejected
from hudi_ingest.records.transform.columns import Filter, Mask
from hudi_ingest.records.transform.sql import Expect
from hudi_ingest.records.transform.timestamps import EventTimeLimits

_NOT_FOR_DELETES = (Filter, EventTimeLimits, Expect)

HIDDEN = "a value that is not shown, because the field is masked"
HIDDEN_RECORD = "something else, which is not shown because the pipeline masks fields"


@dataclass(frozen=True, slots=True)
class Step:
    """One transform, and its name in messages."""

    name: str
    """Its place, for example `transforms[1].cast`."""
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
        return self._fields_of(columns, self._paths[-1])

    def computed_from(self, fields: Collection[str]) -> frozenset[str] | None:
        """Return the columns of `output` that are computed from these fields of the record alone; None if a column is computed from one of
        them and something else, or a step decides by one of them whether a row stays."""
        own = {*fields}
        of_columns = {name: self.sources([name]) for name in self.output.names}
        judged = {
            field
            for step, schema, paths in zip(self.steps, self._schemas, self._paths, strict=False)
            if isinstance(step.transform, Judges)
            for field in self._fields_of(step.transform.judged(schema), paths)
        }
        touched = {name: sources for name, sources in of_columns.items() if sources & own}
        return None if judged & own or any(not sources <= own for sources in touched.values()) else frozenset(touched)

    def without_rules_on(self, fields: Collection[str]) -> Chain:
        """Return the chain without the expectations that read a column that is computed from one of these fields of the record; itself
        if there are none."""
        steps = tuple(
            step
            for step, schema, paths in zip(self.steps, self._schemas, self._paths, strict=False)
            if not isinstance(step.transform, Expect)
            or self._fields_of(step.transform.reads(schema), paths).isdisjoint(fields)
        )
        return self if len(steps) == len(self.steps) else Chain(self.record, steps)

    def _fields_of(self, columns: Collection[str], paths: Mapping[str, frozenset[str]]) -> frozenset[str]:
        fields = self._paths[0]
        traced = _traced(columns, paths)
        return frozenset(path if path in fields else path.partition(".")[0] for path in traced)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        """Apply all steps. `batch` has the record's fields, then at least the Kafka columns of `kafka`; the result has
        `output`, then the same Kafka columns.

        Raises TransformFailed when a user's own function is wrong; bad content never raises.
        """
        rows, places, filtered = batch, None, 0
        rejected: list[Rejected] = []
        violations: dict[str, int] = {}
        for step, concealed in zip(self.steps, self._concealed, strict=False):
            transformed = step.transform.apply(rows)
            for refusal in transformed.rejected:
                rejected.append(
                    Rejected(
                        refusal.index if places is None else places[refusal.index].as_py(),
                        refusal.field,
                        f"{refusal.expected}, by {step.name}",
                        HIDDEN if refusal.field in concealed else refusal.found,
                        rule=refusal.rule,
                    )
                )
            if transformed.kept is not None:
                places = transformed.kept if places is None else places.take(transformed.kept)
            rows, filtered = transformed.rows, filtered + transformed.filtered
            violations |= transformed.violations
        rejected.sort(key=lambda refusal: refusal.index)
        return Transformed(rows, places, tuple(rejected), filtered, violations)

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


PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""`package.module:function`."""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """`python`: calls the user's own function, which takes the record's fields and returns as many rows of `schema`, in the same order.

    If it raises, it is called again with halves of the rows, and only rows that make it raise on their own are rejected. So
    the function must treat each row independently, and may see a row more than once.
    """

    path: str
    """`package.module:function`, which the Spark workers can import."""
    schema: pa.Schema

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        return pa.schema([*self.schema, *kafka_columns(incoming)])

    def origins(self, incoming: pa.Schema) -> Origins:
        everything = frozenset(record_names(incoming))
        kafka = pa.schema(kafka_columns(incoming))
        return {**dict.fromkeys(self.schema.names, everything), **unchanged(kafka)}

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        """Call the function. Raises TransformFailed when it cannot be imported or does not return what is declared."""
        rejected: dict[int, Rejected] = {}
        record = selected(batch, record_names(batch.schema))
        pieces = self._called(_imported(self.path), record, 0, rejected) if batch.num_rows else []
        table = pa.Table.from_batches(pieces, schema=self.schema).combine_chunks()
        columns = [table[name].combine_chunks() for name in self.schema.names]
        for field, column in zip(self.schema, columns, strict=True):
            if not field.nullable and column.null_count:
                for index in column.is_null().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
                    rejection = Rejected(index, field.name, f"a value, because {self.path} declares NOT NULL", "null")
                    rejected.setdefault(index, rejection)
        kafka = [batch[name] for name in batch.schema.names if is_kafka(name)]
        rows = pa.RecordBatch.from_arrays([*columns, *kafka], schema=self.output_schema(batch.schema))
        return without_rejected(rows, rejected)

    def _called(
        self,
        function: Callable[[pa.RecordBatch], object],
        rows: pa.RecordBatch,
        start: int,
        rejected: dict[int, Rejected],
    ) -> list[pa.RecordBatch]:
        try:
            result = function(rows)
        except Exception as error:  # noqa: BLE001 - the user's own code may raise anything for a bad record
            if rows.num_rows == 1:
                # Without the error's text, which may contain any field's value.
                rejected[start] = Rejected(
                    start, "", f"a record that {self.path} takes", f"it raised {type(error).__name__}"
                )
                return [
                    pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in self.schema], schema=self.schema)
                ]
        else:
            return [self._checked(result, rows.num_rows)]
        half = rows.num_rows // 2
        first_half = self._called(function, rows.slice(0, half), start, rejected)
        return first_half + self._called(function, rows.slice(half), start + half, rejected)

    def _checked(self, result: object, count: int) -> pa.RecordBatch:
        if not isinstance(result, pa.RecordBatch):
            raise TransformFailed(
                f"function {self.path} returned a {type(result).__name__}; it must return a pyarrow.RecordBatch. Correct the function."
            )
        if result.num_rows != count:
            raise TransformFailed(
                f"function {self.path} returned {result.num_rows} rows for {count}; it must return one for each, in the same order. "
                "Add a column that says which rows to leave out, and use the transform `filter` on it."
            )
        if result.schema.names != self.schema.names or result.schema.types != self.schema.types:
            raise TransformFailed(
                f"function {self.path} returned columns ({_columns(result.schema)}), but the pipeline file declares "
                f"({_columns(self.schema)}). Make the two equal."
            )
        return pa.RecordBatch.from_arrays(result.columns, schema=self.schema)


def _imported(path: str) -> Callable[[pa.RecordBatch], object]:
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise TransformFailed(
            f"function {path} cannot be imported in a Spark worker: {type(error).__name__}: {error}. Install its package where "
            "the workers run, or correct `python.function` in the pipeline file."
        ) from error
    if not callable(function):
        raise TransformFailed(f"{path} is not a function; correct `python.function` in the pipeline file.")
    return function  # type: ignore[no-any-return]


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
