from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from benchmarks.report import growth_view, results_view, short
from benchmarks.results import API, CONTENDERS, STREAMING, Measured, load_results


def results(*contenders: str) -> dict[str, Any]:
    rounds = [
        Measured(name, cold, 1_000_000, 190_000_000, 4.0 * (number + 1), 8.0, 2**31, 2**28, 1.0)
        for number, name in enumerate(contenders)
        for cold in (True, False)
    ]
    load = {"records": 1_000_000, "value_bytes": 190_000_000, "kafka_partitions": 4, **load_results(rounds)}
    return {"loads": {"orders-1m": load}}


def text(view: Any) -> str:
    console = Console(width=160, file=StringIO())
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_the_terminal_shows_each_contender_its_bar_and_the_ratios() -> None:
    shown = text(results_view(results(*CONTENDERS)))
    assert "orders-1m: 1,000,000 records, 190.0 MB" in shown
    assert "250,000" in shown and "█" * 40 in shown
    assert "api / streaming 1.50" in shown


def test_a_load_that_was_interrupted_is_shown_as_far_as_it_came() -> None:
    shown = text(results_view(results(API)))
    assert "data path alone" in shown
    assert STREAMING not in shown and "Structured Streaming" not in shown


def test_growth_shows_a_table_for_each_axis() -> None:
    points = [
        {"at": 1, "fixed_seconds": 0.5, "seconds_of_each": [0.5]},
        {"at": 1000, "fixed_seconds": 0.75, "seconds_of_each": []},
    ]
    shown = text(growth_view({"axes": {"history": points, "pipelines": []}}))
    assert "0.500" in shown and "1,000" in shown and "seconds of each" not in shown


def test_a_fleet_is_shown_with_a_row_for_each_number() -> None:
    idle = {"cores": 0.0625, "cores_of": {"broker": 0.01}, "pipelines": 200}
    shown = text(growth_view({"axes": {"history": [], "fleet": [{"at": 200, "idle": idle}]}}))
    assert "fleet of 200 pipelines" in shown and "0.062" in shown and "broker" not in shown


@pytest.mark.parametrize(
    ("value", "expected"), [(0.25, "0.25"), (12.345, "12.3"), (390_123, "390k"), (1_250_000, "1.25M")]
)
def test_a_bars_label_is_short(value: float, expected: str) -> None:
    assert short(value) == expected
