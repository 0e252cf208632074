"""What a metric is, and the values that a scrape has of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A counter's name ends with `_total`; `unit` is "" for plain counts."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    origin: str = ""
    """Where its values come from."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's value: how many observations each bucket has, by its upper bound, and their sum. The last bound is infinite."""

    counts: tuple[tuple[float, int], ...]
    sum: float

    @property
    def count(self) -> int:
        return sum(count for _, count in self.counts)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its values, by the values of its labels."""

    metric: Metric
    samples: Mapping[tuple[str, ...], float | Distribution]
