"""The counts of the accounting: of each offset one, in a task, a slice or a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter

CONTROL = ("heartbeats", "boundaries", "ddl", "messages", "truncates")
"""The counts of records about the source's log itself, or about a whole table. None becomes a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Offsets by their outcome, by keyword only: a count in another's place would change the accounting unnoticed."""

    rows: int = 0
    skipped: int = 0
    """Records that are no rows, and not bad: tombstones, which have no value, and the control records below."""
    filtered: int = 0
    """Records that a transform dropped on purpose."""
    rejected: int = 0
    """Bad records: those that cannot become rows."""
    gaps: int = 0
    """Offsets that the broker does not deliver: compacted away, transaction markers, aborted records. In a retry, offsets of
    the range without a dead letter that it takes."""
    deletes: int = 0
    """Rows that delete their key, in a keyed table."""
    superseded: int = 0
    """Rows and moves of a keyed table that were left out because the same task wrote a newer row of the key, perhaps of another
    slice."""
    moves: int = 0
    """Records of a keyed table that also deleted a row elsewhere, because they changed its key or table partition."""

    heartbeats: int = 0
    """Skipped records of a connector that only show that it runs."""
    boundaries: int = 0
    """Skipped beginnings and ends of the source's transactions."""
    ddl: int = 0
    """Skipped statements that change tables of the source."""
    messages: int = 0
    """Skipped messages in the source's log, as of `pg_logical_emit_message`."""
    truncates: int = 0
    """Truncates, applied or skipped as `source.on_truncate` says."""
    truncated: int = 0
    """Deletes that truncates wrote to a keyed table: at least one for each row, and one more for each file that has its key, too."""

    @property
    def control(self) -> int:
        """Number of records that have a value and become no row."""
        return sum(getattr(self, name) for name in CONTROL)

    @property
    def counts(self) -> dict[str, int]:
        """All counts by name."""
        return dict(zip(_NAMES, _counts(self), strict=True))

    @staticmethod
    def total(parts: Iterable[Counts]) -> Counts:
        """Add up counts, each with its own kind."""
        columns = zip(*map(_counts, (Counts(), *parts)), strict=True)
        return Counts(**dict(zip(_NAMES, map(sum, columns), strict=True)))

    @property
    def counted(self) -> int:
        """Offsets accounted for; the slice's count, unless the accounting is wrong."""
        return self.rows + self.skipped + self.filtered + self.rejected + self.gaps

    @property
    def rows_in_files(self) -> int:
        """Number of rows that the files must hold."""
        return self.rows + self.moves + self.truncated - self.superseded


_NAMES = tuple(each.name for each in fields(Counts))
_counts = attrgetter(*_NAMES)


def added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up counts by name."""
    sums = Counter[str]()
    for part in parts:
        sums.update(part)
    return dict(sums)
