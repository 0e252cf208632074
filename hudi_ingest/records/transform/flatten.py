"""`flatten`: the parts of structs as columns of their own."""

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
    """Puts a column for each part of a struct, and of the structs in it, where the struct was.

    `customer.address.city` becomes `customer_address_city`. Lists and maps stay as they are. The parts of a struct that
    is null are null.
    """

    fields: tuple[str, ...]
    separator: str = "_"

    def output_schema(self, input: pa.Schema) -> pa.Schema:
        require([*missing_fields([(("fields", i), name) for i, name in enumerate(self.fields)], input)])
        problems = [
            Problem(("fields", index), f"{name} has type {ddl_type(kind)}; only a struct can be flattened")
            for index, name in enumerate(self.fields)
            if not pa.types.is_struct(kind := input.field(name).type)
        ]
        require(problems)
        parts = [(field, path) for field, path, _ in self._parts(input)]
        output = pa.schema([field for field, _ in parts])
        places: dict[str, Place] = {
            field.name: ("fields", self.fields.index(path.partition(".")[0]))
            for field, path in parts
            if path.partition(".")[0] in self.fields
        }
        require([*name_problems(output, places)])
        return output

    def origins(self, input: pa.Schema) -> Origins:
        return {field.name: frozenset([path]) for field, path, _ in self._parts(input)}

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        fields, columns = [], []
        for field, _, steps in self._parts(batch.schema):
            column = batch[steps[0]]
            for index in steps[1:]:
                column = column.flatten()[index]  # unlike field(), it hands the parent's nulls down
            fields.append(field)
            columns.append(column)
        return Transformed(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), None)

    def _parts(self, input: pa.Schema) -> Iterator[tuple[pa.Field, str, tuple[int, ...]]]:
        """Each output column, the path of what it is, and the indexes that lead there."""
        for index, field in enumerate(input):
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
