"""The digests by which anybody can check that a table has the rows that a slice of Kafka became; docs/guarantees.md defines them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Certificate:
    """Digests of a slice, from 0 to 2**64 - 1. Those of disjoint slices add up."""

    read: int = 0
    """Digest of its records, as they were read."""
    rows: int | None = 0
    """Digest of its rows, as they were written; None in a keyed table, where later changes replace them."""

    def __add__(self, other: Certificate) -> Certificate:
        rows = None if self.rows is None or other.rows is None else (self.rows + other.rows) % _MODULUS
        return Certificate((self.read + other.read) % _MODULUS, rows)

    def __sub__(self, other: Certificate) -> Certificate:
        return self + Certificate(-other.read, None if other.rows is None else -other.rows)

    @classmethod
    def total(cls, parts: Iterable[Certificate | None]) -> Certificate | None:
        """Return the sum; None if a part has none, because an older version wrote it."""
        whole = cls()
        for part in parts:
            if part is None:
                return None
            whole += part
        return whole

    def to_dict(self) -> dict[str, str]:
        """In hexadecimal: many readers of JSON keep 53 bits of a number."""
        return {"read": f"{self.read:016x}", **({} if self.rows is None else {"rows": f"{self.rows:016x}"})}

    @classmethod
    def from_dict(cls, digests: Mapping[str, str] | None) -> Certificate | None:
        if digests is None:
            return None
        return cls(int(digests["read"], 16), int(digests["rows"], 16) if "rows" in digests else None)


@dataclass(frozen=True, slots=True)
class Certified:
    """The certificate of all offsets of a partition from `start` to the committed one. It outlives the commits of its slices, which
    Hudi archives."""

    start: int
    rows: int
    certificate: Certificate
