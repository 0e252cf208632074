"""`flatten`: turn the members of structs into columns of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.exceptions.problems import Place
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.transform import Origins, Problem, Transformed
from hudi_ingest.records.transform.fields import missing_fields, name_problems, require


@dataclass(frozen=True, slots=True)
class Flatten:
    """Replaces a struct with a column for each of its members, including those of nested structs.

    `customer.address.city` becomes `customer_address_city`. Lists and maps stay as they are. The members of a null struct
    are null.
    """

    fields: tuple[str, ...]
    separator: str = "_"

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([(("fields", i), name) for i, name in enumerate(self.fields)], incoming)])
        problems = [
            Problem(("fields", index), f"{name} has type {ddl_type(kind)}; only a struct can be flattened")
            for index, name in enumerate(self.fields)
            if not pa.types.is_struct(kind := incoming.field(name).type)
        ]
        require(problems)
        parts = [(field, path) for field, path, _ in self._parts(incoming)]
        output = pa.schema([field for field, _ in parts])
        places: dict[str, Place] = {
            field.name: ("fields", self.fields.index(path.partition(".")[0]))
            for field, path in parts
            if path.partition(".")[0] in self.fields
        }
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
            inner = f"{name}{self.separator}{part.name}"
            yield from self._below(part, inner, f"{path}.{part.name}", nullable or part.nullable, (*steps, index))
