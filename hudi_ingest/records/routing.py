"""Which records of a topic are one of several tables' own, by a field of their values. Pure.

Every table of a topic judges each record alike, and each judgement is one table's own: so each record is dealt with in exactly one
of them, and filtered in the others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.records.convert.converter import Converter, Rejected

Rest = Literal["own", "bad", "filtered"]
"""What a table does with records that no value claims."""


@dataclass(frozen=True, slots=True)
class Routing:
    """One table's part of a topic."""

    field: tuple[str, ...]
    """The field's path."""
    own: str | None
    """The value whose records are this table's; None for the table of the rest."""
    values: tuple[str, ...]
    """All values that have a table."""
    other_values: Rest
    """Records with another text in the field."""
    without_value: Rest
    """Records whose field is missing, null or no text, records that cannot be decoded, and records without a value."""

    @property
    def columns(self) -> pa.Schema:
        """What a record is decoded to, to look at its field."""
        field = pa.field(self.field[-1], pa.string())
        for name in reversed(self.field[:-1]):
            field = pa.field(name, pa.struct([field]))
        return pa.schema([field])

    def judge(self, converter: Converter, values: pa.BinaryArray) -> tuple[pa.Array, list[Rejected]]:
        """The int64 places of the table's own records, ascending, and the bad ones, which are nobody else's. `converter`: to
        `columns`."""
        texts = self._texts(converter, values)
        own = _is(texts, [self.own]) if self.own is not None else np.zeros(len(values), bool)
        known = _is(texts, self.values)
        tombstones = values.is_null().to_numpy(zero_copy_only=False)
        missing = texts.is_null().to_numpy(zero_copy_only=False) & ~tombstones
        if self.without_value != "filtered":
            # `on_tombstone` says what becomes of them.
            own = own | tombstones
        bad = np.zeros(len(values), bool)
        others = ~known & ~missing & ~tombstones
        for records, rest in ((others, self.other_values), (missing, self.without_value)):
            own = own | records if rest == "own" else own
            bad = bad | records if rest == "bad" else bad
        name, expected = ".".join(self.field), f"one of {', '.join(self.values)}, which have tables"
        rejected = []
        for index in np.flatnonzero(bad).tolist():
            text = texts[index].as_py()
            rejected.append(Rejected(index, name, expected, "no text" if text is None else f'"{text[:60]}"'))
        return pa.array(np.flatnonzero(own), pa.int64()), rejected

    def _texts(self, converter: Converter, values: pa.BinaryArray) -> pa.StringArray:
        """The field of each record; null where it has no text."""
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        if not len(present):
            return pa.nulls(len(values), pa.string())
        decoded = converter.decode(values.filter(values.is_valid()))
        places = present if decoded.kept is None else present[decoded.kept.to_numpy(zero_copy_only=False)]
        column = decoded.rows.column(0)
        for name in self.field[1:]:
            column = pc.struct_field(column, name)
        picks = np.full(len(values), -1)
        picks[places] = np.arange(len(places))
        return column.take(pa.array(picks, pa.int64(), mask=picks < 0))


def _is(texts: pa.StringArray, values: Collection[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found = pc.is_in(texts, value_set=pa.array(list(values), pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)
