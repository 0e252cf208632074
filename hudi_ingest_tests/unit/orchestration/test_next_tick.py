"""A coordinator's cursor says when it has to tick next."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.orchestration.embedded.next_tick import NextTick

TIMES = st.floats(min_value=0, allow_nan=False)


@given(st.builds(NextTick, due=TIMES, runs=st.dictionaries(st.text(), TIMES)))
def test_a_cursor_has_all_of_it(next_tick: NextTick) -> None:
    assert NextTick.of(next_tick.cursor) == next_tick


@pytest.mark.parametrize(
    "cursor",
    [
        None,
        "",
        "hudi_ingest due 1000.25",
        '{"states": {}}',
        *(
            f"hudi_ingest next tick {text}"
            for text in ("", "1", "[1]", "[1, []]", '["soon", {}]', '[1, {"a": null}]', "[1, {}, 2]")
        ),
    ],
)
def test_another_cursor_says_nothing(cursor: str | None) -> None:
    assert NextTick.of(cursor) is None


@pytest.mark.parametrize(
    ("next_tick", "is_due"),
    [
        (NextTick(), False),
        (NextTick(1000.25), True),
        (NextTick(998), False),
        (NextTick(1001.25), False),
        (NextTick(runs={"at work": 990.0}), False),
        (NextTick(runs={"ended": 990.0}), True),
        (NextTick(runs={"ended before": 990.0}), False),
        (NextTick(runs={"ended before": 1000.5}), True),
        (NextTick(runs={"ended": 1002.0}), False),
        (NextTick(runs={"at work": 990.0, "ended": 990.0}), True),
        (NextTick(1002.0, {"at work": 990.0}), False),
    ],
)
def test_s20_a_tick_is_due_once_an_interval_is_over_and_the_run_has_ended(next_tick: NextTick, is_due: bool) -> None:
    ended_at = {"at work": math.inf, "ended": 1000.5, "ended before": 998.0}
    assert next_tick.is_due(999.0, 1001.0, ended_at.__getitem__) == is_due
