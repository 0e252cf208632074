"""The model of costs: what grows must not become cheaper, and units must fit."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import Typer
from typer.testing import CliRunner

from benchmarks import scale
from benchmarks.scale_model import (
    BUSY,
    INTERVALS,
    Costs,
    Site,
    Workload,
    best,
    estimate,
    files_of,
    seconds_between_ticks,
    sources,
    transaction,
)
from benchmarks.scale_points import Point, points

COSTS, SITE = Costs(), Site()
WORKLOADS = st.builds(
    Workload,
    records_per_second=st.floats(1, 1e7),
    record_bytes=st.floats(1, 1e5),
    kafka_partitions=st.integers(1000, 100_000),
    pipelines=st.integers(1, 1000),
    sensors=st.integers(1, 1000),
    table_partitions=st.integers(1, 1000),
    object_store=st.booleans(),
)
ANY_INTERVAL = st.floats(5, 3600)
FACTORS = st.floats(1, 100)


def cost(workload: Workload, interval: float, costs: Costs = COSTS) -> float:
    """CPU seconds of one transaction."""
    records = workload.records_per_second * interval / workload.pipelines
    partitions = workload.kafka_partitions / workload.pipelines
    shape = (workload.record_bytes, partitions, workload.table_partitions)
    one = transaction(costs, records, *shape, SITE, SITE.executor_cores, workload.object_store)
    return one.data_cpu + one.dagster_cpu + one.ledger_cpu


@pytest.mark.parametrize("grows", ["records_per_second", "table_partitions"])
@given(workload=WORKLOADS, interval=ANY_INTERVAL, factor=FACTORS)
def test_more_of_it_never_costs_a_transaction_less(
    grows: str, workload: Workload, interval: float, factor: float
) -> None:
    more = replace(workload, **{grows: type(getattr(workload, grows))(getattr(workload, grows) * factor)})
    assert cost(more, interval) >= cost(workload, interval) * (1 - 1e-9)


@given(WORKLOADS, ANY_INTERVAL, st.integers(1, 100))
def test_each_file_kafka_partition_and_byte_costs_something(workload: Workload, interval: float, factor: int) -> None:
    assert cost(replace(workload, record_bytes=workload.record_bytes * factor), interval, _by_bytes()) >= cost(
        workload, interval, _by_bytes()
    )
    wider = replace(workload, kafka_partitions=workload.kafka_partitions * factor)
    assert cost(wider, interval, _by_partitions()) >= cost(workload, interval, _by_partitions()) * (1 - 1e-9)


def _only(*names: str) -> Costs:
    return Costs(**{each.name: getattr(Costs(), each.name) if each.name in names else 0.0 for each in fields(Costs)})


def _by_bytes() -> Costs:
    return _only("byte_cpu", "record_cpu")


def _by_partitions() -> Costs:
    return _only("partition_cpu", "ledger_partition_cpu", "ledger_op_cpu", "op_cpu")


@given(
    records=st.floats(1, 1e9),
    kafka_partitions=st.integers(1, 10_000),
    table_partitions=st.integers(1, 1000),
    record_bytes=st.floats(1, 1e5),
    cores=st.integers(1, 1000),
)
def test_files_are_between_one_a_range_and_one_a_record(
    records: float, kafka_partitions: int, table_partitions: int, record_bytes: float, cores: int
) -> None:
    files = files_of(records, kafka_partitions, table_partitions, record_bytes, cores)
    assert min(records, kafka_partitions) * (1 - 1e-9) <= files <= max(records, 1) * (1 + 1e-6) + table_partitions


def test_files_are_those_that_were_counted() -> None:
    """1,836 files of 5,000 orders at random in 500 days, in four Kafka partitions."""
    assert files_of(5000, 4, 500, 190, 2) == pytest.approx(1836, rel=0.01)


@given(WORKLOADS, st.floats(5, 600))
def test_a_rate_is_the_same_in_other_units(workload: Workload, interval: float) -> None:
    """Twice the pipelines, each with as much: the same transactions, twice as many of them and twice the executors."""
    twice = replace(
        workload,
        records_per_second=2 * workload.records_per_second,
        kafka_partitions=2 * workload.kafka_partitions,
        pipelines=2 * workload.pipelines,
    )
    one, two = (estimate(Costs(), each, SITE, interval) for each in (workload, twice))
    assert two.transaction.data_cpu == pytest.approx(one.transaction.data_cpu)
    assert two.files_a_day == pytest.approx(2 * one.files_a_day)
    assert 2 * one.executors - 1 <= two.executors <= 2 * one.executors


@given(WORKLOADS)
def test_the_best_interval_leaves_room_or_is_the_least_bad(workload: Workload) -> None:
    found = best(Costs(), workload, SITE)
    assert found.loads[0].share == max(load.share for load in found.loads)
    assert found.fits == (found.loads[0].share <= BUSY)
    if not found.fits:
        assert not any(estimate(COSTS, workload, SITE, interval).fits for interval in INTERVALS)


def test_long_intervals_have_fewer_ticks_but_never_none_for_long() -> None:
    assert [seconds_between_ticks(interval) for interval in (5, 60, 120, 300, 3600)] == [5, 10, 15, 35, 35]
    only_ticks = replace(COSTS, look_daemon_cpu=0.0)
    at_a_minute, at_an_hour = (
        {load.resource: load.share for load in estimate(only_ticks, Workload(sensors=1), SITE, interval).loads}
        for interval in (60, 3600)
    )
    assert at_an_hour["ticks: daemon"] == pytest.approx(at_a_minute["ticks: daemon"] * 10 / 35)


def test_each_constant_names_its_measurement() -> None:
    for unit, how, day in sources().values():
        assert unit
        assert how
        assert date.fromisoformat(day)


def test_the_model_is_checked_against_points_that_it_was_not_fitted_to() -> None:
    """The measured points of this repository; docs/scale.md shows the error of each."""
    checked = {point.name: error for point, _, error in scale.check(Costs(), points())}
    assert set(scale.FITTED) <= checked.keys()
    assert len(checked.keys() - set(scale.FITTED)) >= 6
    assert all(1 / 1.3 < 1 + error < 1.3 for error in checked.values()), checked


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--interval", "60", "--local"],
        ["--site", "runs=50", "--cost", "record_cpu=4e-7"],
        ["--check"],
        ["--constants"],
    ],
)
def test_tables_are_printed(options: list[str]) -> None:
    app = Typer()
    app.command()(scale.main)
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    unknown: Any = CliRunner().invoke(app, ["--cost", "luck=1"])
    assert unknown.exit_code == 2


def test_the_error_is_relative_to_what_was_measured() -> None:
    point = Point("x", 10, 190, 4, 3, 10, 1.0, 1.0, 0.5, "2026-11-23")
    ((_, cpu, error),) = scale.check(Costs(), [point])
    assert error == pytest.approx(cpu / 1.5 - 1)
