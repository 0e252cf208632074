"""`filter`: keep the rows that match one comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions.problems import describe
from hudi_ingest.records.schema.columns import ddl_type
from hudi_ingest.records.transform import Origins, Problem, Transformed
from hudi_ingest.records.transform.casts import scalar_of
from hudi_ingest.records.transform.fields import missing_fields, require, unchanged

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
