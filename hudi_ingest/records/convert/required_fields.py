"""Columns that a record's schema has to have, because a row without one would erase its value in a keyed table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Decoded, Rejected, shortened
from hudi_ingest.records.convert.values import without_faults
from hudi_ingest.records.schema.evolution import absent, is_within
from hudi_ingest.records.schema.registered import RegisteredSchema

UNKNOWN = pa.null()
"""The shape of whatever has no fields, or may have any. The shape of a schema is a struct of its fields' names and shapes, by the
names of the columns that take them, and a list or map of its items' shape."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the records of one schema are bad that write a row. One that deletes a row has no columns to erase."""

    fault: Rejected
    of_events: bool

    def of(self, read: Decoded, count: int) -> Decoded:
        """The outcome of `count` records of the schema; `read`: the same by their bytes alone."""
        rows = read.rows
        writes = pc.not_equal(rows["op"], "d") if self.of_events else pa.repeat(True, rows.num_rows)
        faults = {index: replace(self.fault, index=index) for index in pc.indices_nonzero(writes).to_pylist()}
        rejected = tuple(
            replace(self.fault, index=each.index) if each.field == self.fault.field else each for each in read.rejected
        )
        return without_faults(replace(read, rejected=rejected), rows, count, faults)


def after_refusal(read: Decoded, refusal: Refusal | None, count: int) -> Decoded:
    """The outcome of `count` records of a schema, with its refusal if there is one; `read`: the same by their bytes alone."""
    return read if refusal is None else refusal.of(read, count)


@dataclass(frozen=True, slots=True)
class RequiredFields:
    """The columns of a keyed table that a record's schema has to have."""

    row: pa.Schema
    optional: frozenset[str] = frozenset()
    """Paths of columns that a schema may lack: they are null then."""
    within: str = ""
    """The event's field that holds the row; "" if the record is the row."""
    versions: tuple[tuple[RegisteredSchema, ...], ...] | None = None
    """The versions of each subject, ascending. A column is required if a version before the record's has it, because then the source
    has lost it; all are if None, because nothing shows what was before."""
    recent: frozenset[str] = frozenset()
    """Paths of columns that a schema may lack for now without being made optional."""

    @property
    def record(self) -> pa.StructType:
        """The row where it is in a record."""
        row = pa.struct(list(self.row))
        return pa.struct([pa.field(self.within, row)]) if self.within else row

    def refusal_of(
        self,
        shape: pa.DataType,
        is_written: Callable[[RegisteredSchema], bool] = lambda version: False,
        shape_of: Callable[[RegisteredSchema], pa.DataType] = lambda version: UNKNOWN,
    ) -> Refusal | None:
        """Why records with a schema of this shape are bad; None if they are not. `is_written`: whether a version is that schema;
        `shape_of`: a version's shape, UNKNOWN if no record can be read with it."""
        found = self._row_of(shape)
        if found is None:
            return None
        lacking = [path for path in absent(self.row, found) if path not in self.optional | self.recent]
        if lacking and self.versions is not None:
            rows = map(self._row_of, map(shape_of, self._before(is_written)))
            lacked = [absent(self.row, row) for row in rows if row is not None]
            lacking = [path for path in lacking if not all(is_within(path, paths) for paths in lacked)]
        if not lacking:
            return None
        fields = f"source.optional_fields: [{', '.join([*sorted(self.optional), *lacking])}]"
        expected = (
            "it in the record's schema, because a row without it would erase its value in the table; if the source renamed it, "
            "declare the new name; if the source dropped it or got "
            f"it later, set `{fields}`: it is null then"
        )
        new = [field.name for field in found if field.name not in self.row.names]
        others = f"; not among the columns: {', '.join(new)}" if new else ""
        path = f"{self.within}.{lacking[0]}".lstrip(".")
        return Refusal(Rejected(0, path, expected, shortened(f"no such field{others}")), bool(self.within))

    def _before(self, is_written: Callable[[RegisteredSchema], bool]) -> Iterator[RegisteredSchema]:
        """The versions before the one that `is_written`; all of a subject without it, because it was registered since."""
        own = [versions for versions in self.versions or () if any(map(is_written, versions))]
        for versions in own or self.versions or ():
            yield from takewhile(lambda version: not is_written(version), versions)

    def _row_of(self, shape: pa.DataType) -> pa.StructType | None:
        if self.within and pa.types.is_struct(shape):
            place = shape.get_field_index(self.within)
            shape = shape.field(place).type if place >= 0 else UNKNOWN
        return shape if pa.types.is_struct(shape) and shape.num_fields else None
