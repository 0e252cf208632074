"""Which fields records have and which of them are columns, as far as a few records show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hudi_ingest.exceptions.problems import listed, namesake

MOST_NAMED = 50
"""How many fields without a column are kept: the keys of a map at the top of the records may be as many as records."""
_SHOWN = 10
_DELETE_MARKER = "_hoodie_is_deleted"


@dataclass(frozen=True, slots=True)
class FieldsSeen:
    """The fields of some records, compared with the columns that the records' own fields become."""

    absent: tuple[str, ...] = ()
    """Columns for which no record had a value, in the columns' order."""
    others: tuple[str, ...] = ()
    """Fields at the top of the first records that are no columns, sorted, at most MOST_NAMED."""
    matched: bool = True
    """Whether a record had a field for at least one column."""

    @classmethod
    def combined(cls, parts: Iterable[FieldsSeen | None]) -> FieldsSeen | None:
        """What all these records had; None if no part says."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        absent = tuple(name for name in known[0].absent if all(name in part.absent for part in known))
        others = sorted({name for part in known for name in part.others})[:MOST_NAMED]
        return cls(absent, tuple(others), any(part.matched for part in known))

    @property
    def text(self) -> str:
        """Name both for people; "" when each column has its field, and each field its column."""
        absent = [f"{name} (did you mean {other}?)" if (other := self._meant(name)) else name for name in self.absent]
        parts = [f"no record has a value for {listed(absent, _SHOWN)}"] if absent else []
        parts += [f"fields without a column: {listed(self.others, _SHOWN)}"] if self.others else []
        if _DELETE_MARKER in self.others:
            parts.append(
                f"{_DELETE_MARKER} deletes nothing: in a table of mode upsert declare it, and name it in `table.delete_field`"
            )
        return "; ".join(parts)

    @property
    def is_suspect(self) -> bool:
        """Whether a column without a value is named almost like a field without a column. Anything else may be on purpose:
        fields are often left out, and optional ones are null in every record of a small transaction. Deletes that are not
        applied are no purpose, either."""
        return _DELETE_MARKER in self.others or any(map(self._meant, self.absent))

    def _meant(self, column: str) -> str | None:
        # 0.8 is met by one or two wrong letters, but not by pairs like created_at and deleted_at.
        return namesake(column, self.others, 0.8)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> FieldsSeen | None:
        return None if fields is None else cls(tuple(fields["absent"]), tuple(fields["others"]), fields["matched"])
