"""What a keyed table must hold, as dictionaries. Pure; it shares no code with the product.

Of each key of each table partition the change with the greatest ordering value wins, the later offset among equals. A delete
wins like any other change, and keeps its key deleted against changes that order before it until a compaction forgets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one key: the upsert of `row`, or a delete if that is None, of all keys if `key` is "". `ordering` is None if
    offsets order."""

    table_partition: str
    key: str
    kafka_partition: int
    offset: int
    row: Mapping[str, Any] | None
    ordering: int | None = None

    @property
    def rank(self) -> tuple[int, int]:
        return (self.offset if self.ordering is None else self.ordering, self.offset)


Slot = tuple[str, str]
"""A table partition and a key: a bucket index finds a key only within its table partition."""


class KeyedModel:
    """The changes that a table remembers, deletes among them."""

    def __init__(self) -> None:
        self._latest: dict[Slot, Change] = {}
        self._truncated_at = -1
        """The offset of the last delete of all keys."""

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply the changes of one commit, in any order; an equal change (a replay's) takes the other's place."""
        changes = [*changes]
        self._truncated_at = max([self._truncated_at, *(change.offset for change in changes if not change.key)])
        older = [slot for slot, change in self._latest.items() if change.offset < self._truncated_at]
        for slot in older:
            del self._latest[slot]
        for change in changes:
            if change.offset <= self._truncated_at:
                continue
            slot = change.table_partition, change.key
            known = self._latest.get(slot)
            if known is None or known.rank <= change.rank:
                self._latest[slot] = change

    def compact(self) -> None:
        """Forget the deletes, as a compaction of the whole table does."""
        self._latest = {slot: change for slot, change in self._latest.items() if change.row is not None}

    def rows(self) -> dict[Slot, Mapping[str, Any]]:
        """The rows that a snapshot must show."""
        return {slot: change.row for slot, change in self._latest.items() if change.row is not None}

    def rows_of(self, changes: Collection[Change]) -> dict[Slot, Mapping[str, Any]]:
        """Those of the rows that are as these changes left them."""
        return {
            slot: change.row for slot, change in self._latest.items() if change.row is not None and change in changes
        }
