"""`cast`: convert fields to other types, keeping their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.transform import Origins, Problem, Transformed
from hudi_ingest.records.transform.casts import Conversion, cast_of, castable_to, convert_columns
from hudi_ingest.records.transform.fields import missing_fields, require, unchanged


@dataclass(frozen=True, slots=True)
class Cast:
    """Casts fields to other types. A value that the new type cannot hold exactly is rejected."""

    types: Mapping[str, pa.DataType]

    def output_schema(self, incoming: pa.Schema) -> pa.Schema:
        require([*missing_fields([((name,), name) for name in self.types], incoming)])
        problems = []
        for name, target in self.types.items():
            kind = incoming.field(name).type
            if cast_of(kind, target) is None:
                problems.append(Problem((name,), _no_way(name, kind, target)))
        require(problems)
        return pa.schema([_cast_field(field, self.types) for field in incoming])

    def origins(self, incoming: pa.Schema) -> Origins:
        return unchanged(incoming)

    def apply(self, batch: pa.RecordBatch) -> Transformed:
        conversions = {}
        for name, target in self.types.items():
            field = batch.schema.field(name)
            convert = cast_of(field.type, target)
            assert convert is not None, "output_schema accepts no other type"
            expected = f"a value that {ddl_type(target)} holds exactly"
            conversions[name] = Conversion(_cast_field(field, self.types), convert, expected)
        return convert_columns(batch, conversions)


def _cast_field(field: pa.Field, types: Mapping[str, pa.DataType]) -> pa.Field:
    return field.with_type(types.get(field.name, field.type))


def _no_way(name: str, kind: pa.DataType, target: pa.DataType) -> str:
    text = f"{name} has type {ddl_type(kind)}, which cannot be cast to {ddl_type(target)}"
    if {kind, target} == {pa.float64(), pa.float32()}:
        return f"{text}: it would round; keep double"
    if pa.types.is_timestamp(target):
        return f"{text}; use the transform `timestamp`, which says the format and the zone"
    if pa.types.is_struct(kind):
        return f"{text}; flatten it first, then cast its parts"
    allowed = ", ".join(castable_to(kind))
    return f"{text}; allowed: {allowed}" if allowed else f"{text}, nor to anything else"
