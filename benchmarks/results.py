"""Measured rounds become the figures of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

DAGSTER, API, STREAMING, LIMIT = "hudi_ingest_dagster", "hudi_ingest_api", "spark_streaming", "limit"
CONTENDERS = (DAGSTER, API, STREAMING, LIMIT)
RATIOS: Mapping[str, tuple[str, str]] = {
    "dagster_to_streaming": (DAGSTER, STREAMING),
    "api_to_streaming": (API, STREAMING),
    "api_to_limit": (API, LIMIT),
    "dagster_to_api": (DAGSTER, API),
}
"""By name, whose records a second are divided by whose."""

SMOKE_LEAST: Mapping[str, float] = {
    # Wide on purpose: one short round on a machine that may be busy. They catch a data path that has lost its lead or its
    # sense, not a slow day; the real figures are those of the whole benchmark.
    # Seen on two cores: 1.5 to 1.7, and 0.52 to 0.59. Half of either fails.
    "api_to_streaming": 1.0,
    "api_to_limit": 0.3,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One round of one contender, its rows already checked. `cold`: the first one of a fresh engine."""

    contender: str
    cold: bool
    records: int
    value_bytes: int
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    peak_worker_rss_bytes: int
    broker_cpu_seconds: float


def load_results(rounds: Iterable[Measured]) -> dict[str, Any]:
    """What one load's rounds come to: each contender's figures, and the ratios of those that have any."""
    found = list(rounds)
    by_contender = {
        name: contender_results([each for each in found if each.contender == name])
        for name in CONTENDERS
        if any(each.contender == name for each in found)
    }
    return {**by_contender, "ratios": ratios(by_contender)}


def contender_results(rounds: Sequence[Measured]) -> dict[str, Any]:
    """Medians of the warm rounds, and the cold round apart. Until a warm one is there, its figures are absent."""
    warm = [each for each in rounds if not each.cold]
    cold = [each for each in rounds if each.cold]
    results: dict[str, Any] = {**_figures(warm), "rounds": len(warm)} if warm else {"rounds": 0}
    if warm:
        results["seconds_of_each_round"] = [round(each.seconds, 3) for each in warm]
    return {**results, **({"cold": _figures(cold)} if cold else {})}


def ratios(by_contender: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Ratios of records a second, for pairs that were both measured."""
    rates = {name: found.get("records_per_second") for name, found in by_contender.items()}
    return {
        name: round(above / below, 3)
        for name, (over, under) in RATIOS.items()
        if (above := rates.get(over)) and (below := rates.get(under))
    }


def smoke_failures(ratios: Mapping[str, float]) -> list[str]:
    """A line for each ratio that is missing or below what SMOKE_LEAST asks for."""
    return [
        f"{name} is {ratios.get(name, 'missing')}, and must be at least {least}"
        for name, least in SMOKE_LEAST.items()
        if ratios.get(name, 0.0) < least
    ]


def _figures(rounds: Sequence[Measured]) -> dict[str, Any]:
    """Medians. Rates are of the median seconds; CPU is of the contender's own processes, the broker's beside it."""
    seconds = median(each.seconds for each in rounds)
    millions = rounds[0].records / 1e6
    return {
        "records_per_second": round(rounds[0].records / seconds, 3),
        "mb_per_second": round(rounds[0].value_bytes / 1e6 / seconds, 3),
        "cpu_seconds": round(median(each.cpu_seconds for each in rounds), 3),
        "cpu_seconds_per_million": round(median(each.cpu_seconds for each in rounds) / millions, 3),
        "broker_cpu_seconds_per_million": round(median(each.broker_cpu_seconds for each in rounds) / millions, 3),
        "peak_rss_bytes": int(median(each.peak_rss_bytes for each in rounds)),
        "peak_worker_rss_bytes": int(median(each.peak_worker_rss_bytes for each in rounds)),
        "seconds": round(seconds, 3),
    }
