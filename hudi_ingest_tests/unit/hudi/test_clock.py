"""P5: a clock that was set back is waited for when that is soon over, and named when it is not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hudi_ingest.exceptions import ClockBehind
from hudi_ingest.hudi.timeline.clock import LONGEST_WAIT_SECONDS, clock_of, wait_for_clock
from hudi_ingest.hudi.timeline.timeline import Timeline, instant_time

NEWEST = "20261122100000000"
AT = datetime(2026, 11, 22, 10, tzinfo=timezone.utc)
NO_INSTANT = "-2147483648"
"""What Hudi says in a driver that has given none."""


def slept(table: str, driver: str, behind: float) -> float:
    """Seconds until instants may be given, with a clock that is `behind` AT at first."""
    now = [AT - timedelta(seconds=behind)]
    began = now[0]

    def sleep(seconds: float) -> None:
        now[0] += timedelta(seconds=seconds)

    wait_for_clock("/data/orders", table, driver, lambda: now[0], sleep)
    return (now[0] - began).total_seconds()


@pytest.mark.parametrize("behind", [0, 0.5, LONGEST_WAIT_SECONDS - 1])
@pytest.mark.parametrize("newest", [(NEWEST, NO_INSTANT), ("", NEWEST), (NEWEST, "20251122100000000")])
def test_a_clock_a_little_behind_is_waited_for(newest: tuple[str, str], behind: float) -> None:
    assert slept(*newest, behind) == pytest.approx(behind + 0.001)


@pytest.mark.parametrize("newest", [("", NO_INSTANT), ("20261122095958999", "20261122095958999")])
def test_a_right_clock_is_not(newest: tuple[str, str]) -> None:
    assert slept(*newest, 1) == 0


@pytest.mark.parametrize(
    ("table", "driver", "remedy"),
    [
        (NEWEST, NO_INSTANT, r"roll back the commits with instants in the future"),
        ("", NEWEST, r"restart the engine, which forgets"),
    ],
)
def test_p6_one_that_is_far_behind_is_named(table: str, driver: str, remedy: str) -> None:
    with pytest.raises(ClockBehind, match=rf"clock says 2026-11-22 09:00:00 UTC.*{NEWEST}.* 3,600 s later.*{remedy}"):
        slept(table, driver, 3600)


def test_the_newest_instant_is_of_any_action_and_either_time(tmp_path: Path, timeline: Callable[..., Timeline]) -> None:
    assert Timeline(str(tmp_path)).newest_instant() == ""
    assert timeline("20261122090000000.rollback.requested").newest_instant() == "20261122090000000"
    assert timeline("20261122090000001_20261122090000002.commit", "history").newest_instant() == "20261122090000002"
    assert timeline("20261122090000003.inflight").newest_instant() == "20261122090000003"


@pytest.fixture
def timeline(tmp_path: Path) -> Callable[..., Timeline]:
    def make(*names: str) -> Timeline:
        folder = tmp_path / ".hoodie" / "timeline"
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).touch()
        return Timeline(str(tmp_path))

    return make


def test_milliseconds_are_a_clock() -> None:
    assert clock_of(lambda: int(AT.timestamp() * 1000))() == AT


def test_an_instant_has_milliseconds() -> None:
    assert instant_time("20261121140405123") == datetime(2026, 11, 21, 14, 4, 5, 123_000, timezone.utc)
