"""`python -m benchmarks.scale`: what a workload needs and what breaks first, computed from measured constants.

Without options: a million records a second, 10,000 Kafka partitions, 200 pipelines. docs/scale.md says how far to trust it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.scale_model import (
    BUSY,
    INTERVALS,
    Costs,
    Estimate,
    Site,
    Workload,
    best,
    estimate,
    sources,
    transaction,
)
from benchmarks.scale_points import RESULTS, Point, fitted, points

FITTED = (
    "tiny",
    "orders-1m",
    "large-10k",
    "orders-300@300x3",
    "orders-1k@4x100",
    "orders-1k@1000x1",
    "orders-500k@100x3",
)
"""The points that the constants come from; all others check them."""
_DEFAULT, _SITE = Workload(), Site()
_LOCAL_CORES = 2
_T = TypeVar("_T", Costs, Site)
_out = Console(width=140, highlight=False)


def check(costs: Costs, measured: Iterable[Point]) -> list[tuple[Point, float, float]]:
    """Each point with the CPU seconds that the model gives it, and the model's error: 0.1 is ten percent too much."""
    checked = []
    for point in measured:
        one = transaction(
            costs,
            point.records,
            point.record_bytes,
            point.kafka_partitions,
            point.table_partitions,
            _SITE,
            _LOCAL_CORES,
            object_store=False,
        )
        checked.append((point, one.data_cpu, one.data_cpu / point.cpu - 1))
    return checked


def main(
    records_per_second: float = _DEFAULT.records_per_second,
    record_bytes: float = _DEFAULT.record_bytes,
    kafka_partitions: int = _DEFAULT.kafka_partitions,
    pipelines: int = _DEFAULT.pipelines,
    locations: Annotated[
        int, typer.Option(help="Code locations or folders of pipelines, each with a sensor.")
    ] = _DEFAULT.sensors,
    table_partitions: Annotated[
        int, typer.Option(help="Of each table, that get records in an interval.")
    ] = _DEFAULT.table_partitions,
    local: Annotated[bool, typer.Option("--local", help="Tables on disks instead of an object store.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds; the best one of several without it.")] = 0,
    site: Annotated[list[str] | None, typer.Option(help="What there is, e.g. runs=50; see --constants.")] = None,
    cost: Annotated[list[str] | None, typer.Option(help="Another constant, e.g. record_cpu=4e-7.")] = None,
    constants: Annotated[bool, typer.Option("--constants", help="Show the constants and what measured them.")] = False,
    fit: Annotated[bool, typer.Option("--fit", help="Show the constants that fit the measured points best.")] = False,
    checked: Annotated[bool, typer.Option("--check", help="Compare the model with measured transactions.")] = False,
) -> None:
    """Say which interval, how many executors, and what breaks first."""
    costs, place = _changed(Costs(), cost or []), _changed(_SITE, site or [])
    if fit:
        _out.print(fitted([point for point in points() if point.name in FITTED]))
    elif constants:
        _out.print(_constants(costs, place))
    elif checked:
        _out.print(_checks(costs))
    else:
        workload = Workload(
            records_per_second=records_per_second,
            record_bytes=record_bytes,
            kafka_partitions=kafka_partitions,
            pipelines=pipelines,
            sensors=locations,
            table_partitions=table_partitions,
            object_store=not local,
        )
        answer = estimate(costs, workload, place, interval) if interval else best(costs, workload, place)
        _out.print(_answer(answer, place), _loads(answer), _intervals(costs, workload, place), sep="\n")


def _changed(record: _T, changes: list[str]) -> _T:
    names = {field.name for field in fields(record)}
    for change in changes:
        name, _, value = change.partition("=")
        if name not in names:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(sorted(names))}")
        record = replace(record, **{name: float(value)})
    return record


def _answer(answer: Estimate, site: Site) -> str:
    one, first = answer.transaction, answer.loads[0]
    return (
        f"every {answer.interval:g} s with {answer.executors} executors of {site.executor_cores} cores: "
        f"{one.records:,.0f} records and {one.files:,.0f} files ({answer.file_bytes / 1e6:.1f} MB of values each) a "
        f"transaction, which takes {answer.run_seconds:.0f} s; {answer.files_a_day / 1e6:.2f} million files a day\n"
        f"{'breaks first' if answer.fits else 'too much for'}: {first.resource}, {first.share:.0%} ({first.detail})"
    )


def _loads(answer: Estimate) -> Table:
    table = Table("resource", "in use", "", title=f"every {answer.interval:g} s")
    for load in answer.loads:
        table.add_row(load.resource, f"{load.share:.0%}{'' if load.share <= BUSY else ' !'}", load.detail)
    return table


def _intervals(costs: Costs, workload: Workload, site: Site) -> Table:
    table = Table("interval", "executors", "files", "run takes", "busiest", "in use", title="other intervals")
    for interval in INTERVALS:
        answer = estimate(costs, workload, site, interval)
        first = answer.loads[0]
        table.add_row(
            f"{interval} s",
            str(answer.executors),
            f"{answer.transaction.files:,.0f}",
            f"{answer.run_seconds:.0f} s",
            first.resource,
            f"{first.share:.0%}",
        )
    return table


def _checks(costs: Costs, path: Path = RESULTS) -> Table:
    table = Table(
        "point", "files", "measured CPU s", "model", "error", "", title="CPU seconds of a transaction, data path"
    )
    for point, cpu, error in check(costs, points(path)):
        fitted = "fitted" if point.name in FITTED else ""
        table.add_row(point.name, str(point.files), f"{point.cpu:.2f}", f"{cpu:.2f}", f"{error:+.0%}", fitted)
    return table


def _constants(costs: Costs, site: Site) -> Table:
    table = Table("name", "value", "unit", "from", "date", title="constants; those of a site are assumptions")
    for name, (unit, how, date) in sources().items():
        table.add_row(name, f"{getattr(costs, name):.4g}", unit, how, date)
    for assumption in fields(site):
        table.add_row(assumption.name, f"{getattr(site, assumption.name):.4g}", "", "assumed", "")
    return table


if __name__ == "__main__":
    typer.run(main)
