"""`python`: the user's own function on whole Arrow batches."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from hudi_ingest.exceptions import TransformFailed
from hudi_ingest.records.convert.converter import Rejected
from hudi_ingest.records.kafka_columns import is_kafka
from hudi_ingest.records.transform import Origins, Transformed, kafka_columns, record_names, selected, unchanged
from hudi_ingest.records.transform.casts import without_rejected

PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""`package.module:function`."""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """Calls a function that takes the record's fields and returns as many rows of `schema`, in the same order.

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
