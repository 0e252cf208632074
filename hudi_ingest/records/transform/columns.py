"""Choose and name columns: drop, keep, rename, constant, and copies of the Kafka columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.exceptions.problems import Place
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, is_kafka
from hudi_ingest.records.transform import Origins, Problem, Transformed
from hudi_ingest.records.transform.casts import scalar_of
from hudi_ingest.records.transform.fields import (
    missing_fields,
    name_problems,
    record_names,
    repeated,
    require,
    selected,
    unchanged,
    with_arrays,
    with_columns,
)


@dataclass(frozen=True, slots=True)
class Drop:
    """Drops fields of the record."""

    fields: tuple[str, ...]

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        problems = [
            *repeated(self.fields),
            *missing_fields([((i,), name) for i, name in enumerate(self.fields)], incoming),
        ]
        if not problems and not set(record_names(incoming)) - set(self.fields):
            problems.append(Problem((), "nothing would be left; keep at least one field"))
        require(problems)
        return pa.schema([field for field in incoming if field.name not in self.fields])

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(self.output_schema(incoming))

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        return Transformed(selected(batch, [name for name in batch.schema.names if name not in self.fields]), None)


@dataclass(frozen=True, slots=True)
class Keep:
    """Drops all fields of the record except these, which stay in the record's order."""

    fields: tuple[str, ...]

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require(
            [*repeated(self.fields), *missing_fields([((i,), name) for i, name in enumerate(self.fields)], incoming)]
        )
        return pa.schema([field for field in incoming if field.name in self.fields or is_kafka(field.name)])

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(self.output_schema(incoming))

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        names = [name for name in batch.schema.names if name in self.fields or is_kafka(name)]
        return Transformed(selected(batch, names), None)


@dataclass(frozen=True, slots=True)
class Rename:
    """Renames fields, all at once: {a: b, b: a} swaps the two."""

    names: Mapping[str, str]

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        problems = [*missing_fields([((name,), name) for name in self.names], incoming)]
        require(problems)
        output = pa.schema([field.with_name(self.names.get(field.name, field.name)) for field in incoming])
        old = {new: former for former, new in self.names.items()}
        require([*name_problems(output, {new: (former,) for new, former in old.items()})])
        return output

    def origins(self, incoming: pa.Schema) -> Origins:
        return {self.names.get(name, name): frozenset([name]) for name in incoming.names}

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        fields = [field.with_name(self.names.get(field.name, field.name)) for field in batch.schema]
        return Transformed(pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields)), None)


@dataclass(frozen=True, slots=True)
class Constant:
    """Adds a column with the same value in every row."""

    column: str
    value: pa.Scalar

    @classmethod
    def of(cls, column: str, value: object, kind: pa.DataType) -> Constant:
        """Build the constant. Raises ValueError when the value is not of the type."""
        return cls(column, scalar_of(value, kind))

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        output = with_columns(incoming, [self._field()])
        require([*name_problems(output, {self.column: ("column",)})])
        return output

    def origins(self, incoming: pa.Schema) -> Origins:
        return {**unchanged(incoming), self.column: frozenset()}

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        return Transformed(with_arrays(batch, [self._field()], [pa.repeat(self.value, batch.num_rows)]), None)

    def _field(self) -> pa.Field:
        return pa.field(self.column, self.value.type, False)


@dataclass(frozen=True, slots=True)
class InsertKafka:
    """Copies a record's Kafka metadata into columns named by the user."""

    columns: Mapping[str, str]
    """By kind (a key of KAFKA_FIELDS): the new column's name."""

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        absent = [kind for kind in self.columns if KAFKA_FIELDS[kind].name not in incoming.names]
        require([Problem((kind,), f"the batch has no {KAFKA_FIELDS[kind].name}") for kind in absent])
        output = with_columns(incoming, self._fields())
        places: dict[str, Place] = {name: (kind,) for kind, name in self.columns.items()}
        require([*name_problems(output, places)])
        return output

    def origins(self, incoming: pa.Schema) -> Origins:
        copies = {name: frozenset([KAFKA_FIELDS[kind].name]) for kind, name in self.columns.items()}
        return {**unchanged(incoming), **copies}

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        arrays = [batch[KAFKA_FIELDS[kind].name] for kind in self.columns]
        return Transformed(with_arrays(batch, self._fields(), arrays), None)

    def _fields(self) -> list[pa.Field]:
        return [KAFKA_FIELDS[kind].with_name(name) for kind, name in self.columns.items()]
