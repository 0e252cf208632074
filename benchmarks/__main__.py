"""`python -m benchmarks`: compares hudi-ingest with plain Spark and with the machine's limit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from benchmarks.growth import parse_axes, run_growth
from benchmarks.loads import DEFAULT_LOADS, parse_loads
from benchmarks.report import growth_view, results_view, upserts_view, write_chart, write_growth_chart
from benchmarks.run import Settings, bench_home, contenders_on, run_benchmark
from benchmarks.sites import CLUSTER, LOCAL, SITES
from benchmarks.smoke import run_smoke
from benchmarks.upsert_load import parse_upserts
from benchmarks.upserts import run_upserts
from hudi_ingest.exceptions import EnvironmentProblem, IngestError
from hudi_ingest.home.folder import Home

_out = Console(width=None if sys.stdout.isatty() else 140)
_err = Console(stderr=True, soft_wrap=True, highlight=False)


def bench(
    axes: Annotated[
        str,
        typer.Argument(
            metavar="[AXES]",
            help="Requires --growth: axes to measure, with optional limits, e.g. history=200,pipelines.",
        ),
    ] = "",
    loads: Annotated[
        str,
        typer.Option(
            help="Loads to measure, e.g. orders-1m,wide-200k,tiny; or upserts-1m alone. Default: all but upserts."
        ),
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Number of warm rounds for each contender.")] = 3,
    growth: Annotated[
        bool, typer.Option("--growth", help="Measure how the cost of a transaction grows instead.")
    ] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Run one short round; exit 1 if a ratio is far off.")] = False,
    master: Annotated[str, typer.Option(help="Spark master of the engine.")] = "local[*]",
    memory: Annotated[str, typer.Option(help="Driver memory of the engine.")] = "2g",
    on: Annotated[
        str, typer.Option(help="`local`, or `cluster`: tables on S3, executors on a Spark cluster here.")
    ] = LOCAL,
    results: Annotated[Path, typer.Option(help="Folder for the JSON and PNG results.")] = Path("benchmarks/results"),
    minutes: Annotated[float, typer.Option(help="How long a trial of the fleet lasts at most.")] = 15.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Compare hudi-ingest with plain Spark and with the limit of this machine."""
    home = bench_home(Home.from_environment())
    if on not in SITES:
        raise typer.BadParameter(f"--on {on!r} is not known; allowed: {', '.join(SITES)}")
    if on == CLUSTER and (growth or smoke or master != "local[*]"):
        raise typer.BadParameter("--on cluster has its own master, and compares loads only")
    if smoke:
        _smoke(home)
        return
    try:
        upserts = parse_upserts(loads)
        settings = Settings(
            () if upserts else parse_loads(loads or ",".join(DEFAULT_LOADS)),
            rounds,
            contenders_on(on),
            master,
            memory,
            on,
            minutes,
        )
        axis_points = parse_axes(axes)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if axes and not growth:
        raise typer.BadParameter("AXES require --growth; select loads with --loads")
    if upserts is not None and (growth or on == CLUSTER):
        raise typer.BadParameter("upserts-<n> is measured on this machine alone, and without --growth")
    if upserts is not None:
        measurements = run_upserts(home, upserts, settings, results / "upserts.json", _progress)
        _show(measurements, upserts_view, as_json=as_json)
        return
    if growth:
        # An hour of a fleet does not replace the figures of the other axes.
        name = "fleet" if [*axis_points] == ["fleet"] else "growth"
        measurements = run_growth(home, axis_points, settings, results / f"{name}.json", _progress)
        view, draw, chart = growth_view, write_growth_chart, results / f"{name}.png"
    else:
        name = "latest" if on == LOCAL else on
        measurements = run_benchmark(home, settings, results / f"{name}.json", _progress)
        view, draw, chart = results_view, write_chart, results / f"{name}.png"
    try:
        draw(measurements, chart)
    except EnvironmentProblem as error:
        # The figures are complete; only the chart is missing.
        _progress(str(error))
    _show(measurements, view, as_json=as_json)


def _show(measurements: dict[str, Any], view: Callable[[Mapping[str, Any]], RenderableType], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(measurements, indent=2) + "\n")
    else:
        _out.print(view(measurements))


def _smoke(home: Home) -> None:
    result = run_smoke(home, _progress)
    ratios = ", ".join(f"{name} {ratio}" for name, ratio in result.ratios.items())
    _out.print(f"bench-smoke {'failed' if result.failures else 'passed'}: {'; '.join(result.failures) or ratios}")
    if result.failures:
        raise typer.Exit(1)


def _progress(text: str) -> None:
    _err.print(f"· {text}", style="dim", markup=False)


if __name__ == "__main__":
    try:
        typer.run(bench)
    except IngestError as error:
        _err.print(f"error: {error}", style="red", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
