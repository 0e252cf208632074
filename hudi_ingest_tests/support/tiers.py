"""The tiers of tests, a plugin of pytest: `make test` runs 1, CI also 2, and `make nightly` also 3.

`@pytest.mark.tier(1)` puts a test into one. Without a mark, the tests of `unit` are in tier 1 and all others in tier 2. So a mark is for the few
tests on real services that prove a row of docs/features.md in `make test`, for slow tests of `unit`, and for tests that take minutes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hudi_ingest.spark.jars import lock_text, parse_lock

TIERS = (1, 2, 3)
SECONDS_IN_TIER_1 = 10.0
"""A test that takes longer on a quiet machine belongs in tier 2."""
TESTS = Path(__file__).parents[1]
UNIT = TESTS / "unit"
DURATIONS = TESTS / "durations.json"
NEED_NO_JARS = frozenset({UNIT / "records", UNIT / "transaction" / "test_protocol_model.py"})
"""They run while `make test` fetches the jars."""
COLLECTED = pytest.StashKey[dict[tuple[Path, str], int]]()
"""Each test function that was collected, by file and name, with the lowest tier that any of its parameters is in."""


def tier_of(item: pytest.Item) -> int:
    """The tier that the closest mark says: that of the function or its parameters, or that of the file."""
    mark = item.get_closest_marker("tier")
    if mark is not None:
        return int(mark.args[0])
    return 1 if UNIT in item.path.parents else 2


def may_have(file: Path, tier: int) -> bool:
    """Whether a file may have tests of a tier: by its folder, or because it says so. Another need not be imported."""
    return tier == (1 if UNIT in file.parents else 2) or f"mark.tier({tier})" in file.read_text(encoding="utf-8")


def functions(items: Iterable[pytest.Item]) -> dict[tuple[Path, str], int]:
    """As `COLLECTED`."""
    found: dict[tuple[Path, str], int] = {}
    for item in items:
        place = item.path, getattr(item, "originalname", item.name)
        found[place] = min(tier_of(item), found.get(place, max(TIERS)))
    return found


def examples(tier: int | None, *, new: bool) -> int:
    """The most examples of a property test that does not say itself that fewer must do."""
    return 250 if new else 25 if tier == 1 else 100


def in_order(items: Iterable[pytest.Item], tier: int | None) -> list[pytest.Item]:
    """The tests file by file, those first that need no jars, and then the longest, so that no worker waits for another at the end."""
    kept: dict[str, dict[str, int]] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    seconds = Counter(kept.get(str(tier)))
    if tier is None:
        seconds = sum((Counter(each) for each in kept.values()), Counter[str]())

    def place(item: pytest.Item) -> tuple[bool, int]:
        return NEED_NO_JARS.isdisjoint({item.path, *item.path.parents}), -seconds[_file_of(item.nodeid)]

    return sorted(items, key=place)


def record(tier: int, reports: Iterable[pytest.TestReport]) -> None:
    """Keep the seconds of the files of a tier for `in_order`, but for those that take less than one."""
    took: dict[str, float] = {}
    for report in reports:
        took[_file_of(report.nodeid)] = took.get(_file_of(report.nodeid), 0.0) + report.duration
    kept = json.loads(DURATIONS.read_text(encoding="utf-8"))
    kept[str(tier)] = {name: round(seconds) for name, seconds in took.items() if seconds >= 1}
    DURATIONS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix("hudi_ingest_tests/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", type=int, choices=TIERS, help="run the tests of this tier only")
    parser.addoption("--record-durations", action="store_true", help=f"keep how long files took, in {DURATIONS.name}")


def pytest_report_header() -> str:
    """The versions that the tests ran with, so that a log says what it has shown."""
    packages = ("pyspark", "hudi", "dagster", "pyarrow", "duckdb", "polars", "confluent-kafka", "sqlalchemy")
    jars = {jar.module: jar.version for jar in parse_lock(lock_text())}
    named = {"Hudi": jars["hudi-java-client"], "Kafka": jars["kafka_2.13"]}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            named[name] = metadata.version(name)
    return f"versions: {', '.join(f'{name} {version}' for name, version in named.items())}"


def pytest_configure(config: pytest.Config) -> None:
    """A run that fails must fail for what was changed, so it takes the examples of the last one unless new ones are asked for.

    Workers side by side make each other slow, so neither an example nor drawing one has a deadline: speed is for the benchmark.
    """
    new = "HUDI_INGEST_NEW_EXAMPLES" in os.environ
    settings.register_profile(
        "hudi_ingest",
        max_examples=examples(config.getoption("--tier"), new=new),
        derandomize=not new,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("hudi_ingest")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A tier's run imports no file without a test of it, unless that file is asked for by name."""
    tier = config.getoption("--tier")
    if tier is None or collection_path.suffix != ".py" or may_have(collection_path, tier):
        return None
    return not any(collection_path == Path(each.partition("::")[0]).resolve() for each in config.args) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need neither broker nor JVM as fast, leave other tiers out, and put the longest files first."""
    config.stash[COLLECTED] = functions(items)
    for item in items:
        if not any(item.get_closest_marker(service) for service in ("kafka", "spark", "e2e")):
            item.add_marker(pytest.mark.fast)
    tier = config.getoption("--tier")
    if tier is not None:
        config.hook.pytest_deselected(items=[item for item in items if tier_of(item) != tier])
        items[:] = [item for item in items if tier_of(item) == tier]
    items[:] = in_order(items, tier)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In tier 1 a test that is skipped has failed: `make test` proves the same wherever the README's requirements are met."""
    report = yield
    if report.skipped and item.config.getoption("--tier") == 1 and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = (
            f"{reason}\nTier 1 skips nothing. If the README does not ask for what this needs: `@pytest.mark.tier(2)`"
        )
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the tests that are too long for `make test`, and keep the durations if asked to."""
    tier = config.getoption("--tier")
    reports = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
    ]
    if tier == 1:
        for report in reports:
            if report.when == "call" and report.duration > SECONDS_IN_TIER_1:
                terminalreporter.write_line(
                    f"{report.duration:.0f} s, too long for tier 1 unless the machine was busy: {report.nodeid}"
                )
    if tier is not None and config.getoption("--record-durations"):
        record(tier, reports)
