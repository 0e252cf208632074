"""A short run that only checks whether the data path's speed is still where it should be between plain Spark and the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.loads import parse_load
from benchmarks.results import API, LIMIT, STREAMING, Measured, load_results, smoke_failures
from benchmarks.run import Arena, Settings
from hudi_ingest.home.folder import Home

_LOAD = "orders-200k"


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """The ratios of one warm round, and a line for each that is below its threshold."""

    ratios: Mapping[str, float]
    failures: Sequence[str]


def run_smoke(home: Home, report: Callable[[str], None]) -> SmokeResult:
    """Run one cold and one warm round of the three contenders without Dagster, in about a minute and a half.

    `home` is emptied first. Raises EnvironmentProblem, also for a wrong number of rows.
    """
    measured: list[Measured] = []
    settings = Settings(loads=(parse_load(_LOAD),), rounds=1, contenders=(API, STREAMING, LIMIT), driver_memory="1g")
    with Arena(home, settings, report) as arena:
        arena.measure(settings.loads[0], lambda rounds: measured.extend(rounds[len(measured) :]))
    ratios: dict[str, float] = load_results(measured)["ratios"]
    return SmokeResult(ratios, smoke_failures(ratios))
