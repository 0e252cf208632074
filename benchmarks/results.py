"""Turn measured rounds into a report's figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

DAGSTER, API, STREAMING = "hudi_ingest_dagster", "hudi_ingest_api", "spark_streaming"
LIMIT, HUDI_LIMIT, SPARK_LIMIT = "limit", "hudi_limit", "spark_limit"
UPSERTS, APPENDS, SPARK_UPSERTS = "hudi_ingest_upserts", "hudi_ingest_appends", "spark_upserts"
"""Contenders of `upserts-<n>`: our keyed table, our append table for the same records, and plain Spark's upsert."""
LIMITS = (LIMIT, HUDI_LIMIT, SPARK_LIMIT)
"""They publish no tables."""
CONTENDERS = (DAGSTER, API, STREAMING, *LIMITS)
RATIOS: Mapping[str, tuple[str, str]] = {
    "dagster_to_streaming": (DAGSTER, STREAMING),
    "api_to_streaming": (API, STREAMING),
    "api_to_limit": (API, LIMIT),
    "api_to_hudi_limit": (API, HUDI_LIMIT),
    "dagster_to_api": (DAGSTER, API),
}
"""By name, whose records a second are divided by whose."""

SMOKE_LEAST: Mapping[str, float] = {
    # Wide on purpose: one short round on a machine that may be busy. They catch a data path that has lost its lead or its
    # sense, not a slow day; the real figures are those of the whole benchmark.
    # Seen on two cores: 2.1 and 0.10. Half of either fails.
    "api_to_streaming": 1.0,
    "api_to_limit": 0.05,
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
    """Summarize one load's rounds: each contender's figures, and their ratios."""
    all_rounds = list(rounds)
    by_contender = {
        name: contender_results([measured for measured in all_rounds if measured.contender == name])
        for name in CONTENDERS
        if any(measured.contender == name for measured in all_rounds)
    }
    return {**by_contender, "ratios": ratios(by_contender)}


def contender_results(rounds: Sequence[Measured]) -> dict[str, Any]:
    """Return the medians of the warm rounds, and the cold round separately. Without warm rounds there are no medians."""
    warm = [measured for measured in rounds if not measured.cold]
    cold = [measured for measured in rounds if measured.cold]
    results: dict[str, Any] = {**_figures(warm), "rounds": len(warm)} if warm else {"rounds": 0}
    if warm:
        results["seconds_of_each_round"] = [round(measured.seconds, 3) for measured in warm]
    return {**results, **({"cold": _figures(cold)} if cold else {})}


def ratios(by_contender: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the ratios of records per second of pairs that were both measured."""
    rates = {name: figures.get("records_per_second") for name, figures in by_contender.items()}
    return {
        name: round(above / below, 3)
        for name, (over, under) in RATIOS.items()
        if (above := rates.get(over)) and (below := rates.get(under))
    }


def smoke_failures(ratios: Mapping[str, float]) -> list[str]:
    """Return a line for each ratio that is missing or below its minimum in SMOKE_LEAST."""
    return [
        f"{name} is {ratios.get(name, 'missing')}, but must be at least {least}"
        for name, least in SMOKE_LEAST.items()
        if ratios.get(name, 0.0) < least
    ]


def _figures(rounds: Sequence[Measured]) -> dict[str, Any]:
    """Return medians. Rates are based on the median seconds. The contender's CPU excludes the broker's, which is separate."""
    seconds = median(measured.seconds for measured in rounds)
    millions = rounds[0].records / 1e6
    return {
        "records_per_second": round(rounds[0].records / seconds, 3),
        "mb_per_second": round(rounds[0].value_bytes / 1e6 / seconds, 3),
        "cpu_seconds": round(median(measured.cpu_seconds for measured in rounds), 3),
        "cpu_seconds_per_million": round(median(measured.cpu_seconds for measured in rounds) / millions, 3),
        "broker_cpu_seconds_per_million": round(
            median(measured.broker_cpu_seconds for measured in rounds) / millions, 3
        ),
        "peak_rss_bytes": int(median(measured.peak_rss_bytes for measured in rounds)),
        "peak_worker_rss_bytes": int(median(measured.peak_worker_rss_bytes for measured in rounds)),
        "seconds": round(seconds, 3),
    }
