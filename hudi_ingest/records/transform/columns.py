"""The plain transforms: `drop`, `keep`, `rename`, `constant`, `insert_kafka`, `flatten`, `filter` and `mask`.

The chain also keeps masked values out of messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import reduce
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions.problems import Place, describe
from hudi_ingest.records.kafka_columns import KAFKA_FIELDS, is_kafka
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.transform import (
    Origins,
    Problem,
    Transformed,
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
from hudi_ingest.records.transform.casts import scalar_of


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
    """The new columns' names, by kind (a key of KAFKA_FIELDS)."""

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


@dataclass(frozen=True, slots=True)
class Flatten:
    """Replaces a struct with a column for each of its members, including those of nested structs.

    `customer.address.city` becomes `customer_address_city`. Lists and maps stay as they are. The members of a null struct
    are null.
    """

    fields: tuple[str, ...]

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([((i,), name) for i, name in enumerate(self.fields)], incoming)])
        problems = [
            Problem((index,), f"{name} has type {ddl_type(kind)}; only a struct can be flattened")
            for index, name in enumerate(self.fields)
            if not pa.types.is_struct(kind := incoming.field(name).type)
        ]
        require(problems)
        parts = [(field, path) for field, path, _ in self._parts(incoming)]
        output = pa.schema([field for field, _ in parts])
        places: dict[str, Place] = {
            field.name: (self.fields.index(path.partition(".")[0]),)
            for field, path in parts
            if path.partition(".")[0] in self.fields
        }
        named: dict[str, str] = {}
        together = [
            Problem(
                places[field.name],
                f"{first} and {path} would both be column {field.name}; rename one before",
            )
            for field, path in parts
            if (first := named.setdefault(field.name, path)) != path
        ]
        require(together)
        require([*name_problems(output, places)])
        return output

    def origins(self, incoming: pa.Schema) -> Origins:
        return {field.name: frozenset([path]) for field, path, _ in self._parts(incoming)}

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        fields, columns = [], []
        for field, _, steps in self._parts(batch.schema):
            column = batch[steps[0]]
            for index in steps[1:]:
                column = column.flatten()[index]  # unlike field(), it propagates the parent's nulls
            fields.append(field)
            columns.append(column)
        return Transformed(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), None)

    def _parts(self, incoming: pa.Schema) -> Iterator[tuple[pa.Field, str, tuple[int, ...]]]:
        """Yield each output column, its path in the record, and the indexes that lead to it."""
        for index, field in enumerate(incoming):
            if field.name in self.fields:
                yield from self._below(field, field.name, field.name, field.nullable, (index,))
            else:
                yield field, field.name, (index,)

    def _below(
        self, field: pa.Field, name: str, path: str, nullable: bool, steps: tuple[int, ...]
    ) -> Iterator[tuple[pa.Field, str, tuple[int, ...]]]:
        if not pa.types.is_struct(field.type):
            yield pa.field(name, field.type, nullable), path, steps
            return
        for index, part in enumerate(field.type):
            inner = f"{name}_{part.name}"
            yield from self._below(part, inner, f"{path}.{part.name}", nullable or part.nullable, (*steps, index))


_COMPARE: Mapping[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_ORDERS = ("<", "<=", ">", ">=")
OPERATORS = (*_COMPARE, "in", "not_in", "is_null", "is_not_null")


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which the comparison is true. As in SQL, no comparison with null is true except is_null."""

    field: str
    """A field of the record, or a Kafka column."""
    op: str
    """One of OPERATORS."""
    values: tuple[object, ...] = ()
    """Plain values from the pipeline file: several for in and not_in, none for is_null and is_not_null, otherwise one."""

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([(("field",), self.field)], incoming, kafka=True)])
        kind = incoming.field(self.field).type
        if pa.types.is_nested(kind) and self.values:
            text = f"{self.field} has type {ddl_type(kind)}, which has no single value to compare; flatten it first"
            require([Problem(("field",), text)])
        if kind == pa.bool_() and self.op in _ORDERS:
            require([Problem(("op",), f"{self.field} is boolean, which has no order; allowed: ==, !=, in, not_in")])
        problems = []
        for index, value in enumerate(self.values):
            try:
                scalar_of(value, kind)
            except ValueError as error:
                place = ("value", index) if self.op in ("in", "not_in") else ("value",)
                text = f"{error}, which {self.field} has; found {describe(value)}"
                problems.append(Problem(place, text))
        require(problems)
        return incoming

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(incoming)

    def judged(self, incoming: pa.Schema) -> frozenset[str]:
        return frozenset([self.field])

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        column = batch[self.field]
        stays = self._stays(column)
        if not stays.null_count and pc.all(stays, min_count=0).as_py():
            return Transformed(batch, None)
        rows = batch.filter(stays)
        places = pc.indices_nonzero(stays).cast(pa.int64())
        return Transformed(rows, places, filtered=batch.num_rows - rows.num_rows)

    def _stays(self, column: pa.Array) -> pa.Array:
        if self.op == "is_null":
            return pc.is_null(column)
        if self.op == "is_not_null":
            return pc.is_valid(column)
        scalars = [scalar_of(value, column.type) for value in self.values]
        if self.op in _COMPARE:
            return _COMPARE[self.op](column, scalars[0])
        # Not is_in, for which 0.0 and -0.0 differ and NaN equals itself.
        matches = reduce(pc.or_, [pc.equal(column, scalar) for scalar in scalars])
        return matches if self.op == "in" else pc.invert(matches)


COVER = "****"
"""Replaces hidden characters, however many there are."""


class Masking(Protocol):
    """A way to replace values by others that reveal less. Picklable; equal values stay equal."""

    def output_field(self, incoming: pa.Field) -> pa.Field:
        """Return the masked column's field. Raises ValueError when this type of column cannot be masked this way."""

    def masked(self, column: pa.Array) -> pa.Array:
        """Mask the column, value by value."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Masks fields of the record."""

    fields: tuple[str, ...]
    masking: Masking

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([(("fields", i), name) for i, name in enumerate(self.fields)], incoming)])
        problems = []
        fields = {column.name: column for column in incoming}
        for index, name in enumerate(self.fields):
            try:
                fields[name] = self.masking.output_field(incoming.field(name))
            except ValueError as error:
                problems.append(Problem(("fields", index), f"{name} {error}"))
        require(problems)
        return pa.schema([*fields.values()])

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(incoming)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        columns = [
            self.masking.masked(column) if name in self.fields else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return Transformed(pa.RecordBatch.from_arrays(columns, schema=self.output_schema(batch.schema)), None)


@dataclass(frozen=True, slots=True)
class Hash:
    """Replaces a value by the SHA-256 of the salt and the value in UTF-8, as 64 hex digits: Spark's
    `sha2(concat(salt, value), 256)`.

    Whole numbers are hashed as their decimal text. Null stays null.
    """

    salt: str = dataclass_field(default="", repr=False)

    def output_field(self, incoming: pa.Field) -> pa.Field:
        if incoming.type not in (pa.string(), pa.binary(), pa.int32(), pa.int64()):
            raise ValueError(
                f"has type {ddl_type(incoming.type)}; a hash takes string, binary, int or long, so cast it first"
            )
        return incoming.with_type(pa.string())

    def masked(self, column: pa.Array) -> pa.Array:
        # Arrow has no SHA-256 kernel. Each distinct value is hashed once.
        text = column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())
        encoded = text.dictionary_encode()
        salted = hashlib.sha256(self.salt.encode())
        digests = []
        for value in encoded.dictionary.to_pylist():
            digest = salted.copy()
            digest.update(value)
            digests.append(digest.hexdigest())
        return pa.array(digests, pa.string()).take(encoded.indices)


@dataclass(frozen=True, slots=True)
class Redact:
    """Replaces every value, null included, by a constant; by null if there is no constant."""

    constant: str | int | float | bool | None = None

    def output_field(self, incoming: pa.Field) -> pa.Field:
        if self.constant is None:
            return incoming.with_nullable(True)
        if pa.types.is_nested(incoming.type):
            raise ValueError(f"has type {ddl_type(incoming.type)}, which cannot have a constant; leave `constant` out")
        try:
            scalar_of(self.constant, incoming.type)
        except ValueError as error:
            raise ValueError(f"gets a constant that is {error}; found {describe(self.constant)}") from None
        return incoming.with_nullable(False)

    def masked(self, column: pa.Array) -> pa.Array:
        if self.constant is None:
            return pa.nulls(len(column), column.type)
        return pa.repeat(scalar_of(self.constant, column.type), len(column))


@dataclass(frozen=True, slots=True)
class KeepLast:
    """Keeps only a text's last characters, after four stars; a text with no more characters than that becomes four stars."""

    characters: int

    def output_field(self, incoming: pa.Field) -> pa.Field:
        if incoming.type != pa.string():
            raise ValueError(f"has type {ddl_type(incoming.type)}; only a string has last characters, so cast it first")
        return incoming

    def masked(self, column: pa.Array) -> pa.Array:
        longer = pc.greater(pc.utf8_length(column), self.characters)
        tail = pc.if_else(longer, pc.utf8_slice_codeunits(column, -self.characters), "")
        return pc.binary_join_element_wise(COVER, tail, "")
