"""The tiers of tests: `make test` runs 1, CI also 2, and `make nightly` also 3.

`@pytest.mark.tier(1)` puts a test into one. Without a mark, the tests of `unit` are in tier 1 and all others in tier 2. So a mark is for the few
tests on real services that prove a row of docs/features.md in `make test`, for slow tests of `unit`, and for tests that take minutes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

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
    """The tier that the closest mark says, which is that of the parameters, of the function or of the file."""
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
