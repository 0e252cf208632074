"""Show results: a table and bars in the terminal, and a chart as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.results import (
    API,
    APPENDS,
    CONTENDERS,
    DAGSTER,
    HUDI_LIMIT,
    LIMIT,
    SPARK_LIMIT,
    SPARK_UPSERTS,
    STREAMING,
    UPSERTS,
)
from hudi_ingest.exceptions import EnvironmentProblem

TITLES: Mapping[str, str] = {
    DAGSTER: "hudi-ingest, sensor tick to commit",
    API: "hudi-ingest, data path alone",
    STREAMING: "Spark Structured Streaming + bulk_insert",
    LIMIT: "limit: plain parquet, no Spark, no Hudi",
    HUDI_LIMIT: "limit: Hudi's base files, no Spark",
    SPARK_LIMIT: "limit of Spark's Kafka source",
    UPSERTS: "hudi-ingest, keyed table",
    APPENDS: "hudi-ingest, append table",
    SPARK_UPSERTS: "Spark Structured Streaming + upsert",
}
_COLOURS: Mapping[str, str] = {
    DAGSTER: "#1f6f8b",
    API: "#4fb0c6",
    STREAMING: "#d98c3f",
    LIMIT: "#8a8a8a",
    HUDI_LIMIT: "#a9a9a9",
    SPARK_LIMIT: "#c8c8c8",
}
_TERMINAL: Mapping[str, str] = {
    DAGSTER: "cyan",
    API: "bright_cyan",
    STREAMING: "yellow",
    LIMIT: "white",
    HUDI_LIMIT: "white",
    SPARK_LIMIT: "bright_black",
}
_BAR_WIDTH = 40
_NO_MATPLOTLIB = "the chart was not drawn, because matplotlib cannot be loaded; `pip install 'hudi-ingest[dev]'` has it"


def results_view(results: Mapping[str, Any]) -> RenderableType:
    """All loads as tables, each with bars of its records a second."""
    return Group(*(part for name, load in results["loads"].items() for part in _load_view(name, load)))


def _load_view(name: str, load: Mapping[str, Any]) -> Sequence[RenderableType]:
    title = f"{name}: {load['records']:,} records, {load['value_bytes'] / 1e6:,.1f} MB, {load['kafka_partitions']} Kafka partitions"
    table = Table(title=title, title_justify="left")
    table.add_column("contender")
    for column in ("seconds", "records/s", "MB/s", "CPU s", "CPU s per 10⁶", "peak MB", "cold s", "rounds"):
        table.add_column(column, justify="right")
    for contender, figures in _measured(load):
        cold = figures.get("cold")
        table.add_row(
            TITLES[contender],
            f"{figures['seconds']:.2f}",
            _rate(figures["records_per_second"]),
            f"{figures['mb_per_second']:,.1f}",
            f"{figures['cpu_seconds']:,.1f}",
            f"{figures['cpu_seconds_per_million']:,.2f}",
            f"{figures['peak_rss_bytes'] / 1e6:,.0f}",
            f"{cold['seconds']:.2f}" if cold else "-",
            str(figures["rounds"]),
        )
    shown = ", ".join(f"{ratio.replace('_to_', ' / ')} {value:.2f}" for ratio, value in load["ratios"].items())
    return [table, *_bars(load), Text(f"records/s: {shown}" if shown else ""), Text()]


def _bars(load: Mapping[str, Any]) -> list[Text]:
    measured = _measured(load)
    most = max((figures["records_per_second"] for _, figures in measured), default=1.0)
    width = max(map(len, TITLES.values()))
    lines = []
    for contender, figures in measured:
        rate = figures["records_per_second"]
        line = Text(f"{TITLES[contender]:<{width}} ")
        line.append("█" * max(1, round(_BAR_WIDTH * rate / most)), style=_TERMINAL[contender])
        lines.append(line.append(f" {_rate(rate)}/s"))
    return lines


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _measured(load: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the load's contenders with warm rounds, in their fixed order."""
    return [(name, load[name]) for name in CONTENDERS if load.get(name, {}).get("rounds")]


def write_chart(results: Mapping[str, Any], path: Path) -> None:
    """Draw bars of records per second and of CPU, grouped by load. Raises EnvironmentProblem without matplotlib."""
    plot = _pyplot()
    loads = {name: load for name, load in results["loads"].items() if _measured(load)}
    figure, axes = plot.subplots(2, 1, figsize=(max(9.0, 1.9 * len(loads)), 8.5), layout="constrained")
    _draw_bars(axes[0], loads, "records_per_second", "records/s, share of the load's most")
    _draw_bars(axes[1], loads, "cpu_seconds_per_million", "CPU s per million records,\nshare of the load's most")
    axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, 1.28), ncols=2, frameon=False)
    machine = results["machine"]
    figure.suptitle(
        f"{machine['cpu']}, {machine['cores']} cores, Spark {machine['spark']}; medians of warm rounds", fontsize=10
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plot.close(figure)


def _draw_bars(axis: Any, loads: Mapping[str, Mapping[str, Any]], figure: str, label: str) -> None:
    """Draw one chart. Bars are comparable within a load; between loads only their labels are, as loads range from ten records
    to ten million."""
    width = 0.8 / len(CONTENDERS)
    for place, contender in enumerate(CONTENDERS):
        offsets, shares, labels = [], [], []
        for at, load in enumerate(loads.values()):
            by_contender = dict(_measured(load))
            if contender in by_contender:
                value = by_contender[contender][figure]
                most = max(figures[figure] for figures in by_contender.values())
                offsets.append(at + (place - (len(CONTENDERS) - 1) / 2) * width)
                shares.append(value / most if most else 0.0)
                labels.append(short(value))
        bars = axis.bar(offsets, shares, width, label=TITLES[contender], color=_COLOURS[contender])
        axis.bar_label(bars, labels, fontsize=7, padding=1)
    axis.set_ylim(0, 1.1)
    axis.set_xticks(range(len(loads)), list(loads))
    axis.set_ylabel(label)
    axis.spines[["top", "right"]].set_visible(False)


def growth_view(results: Mapping[str, Any]) -> RenderableType:
    """Build a table for each axis, with a column for each figure."""
    axes = dict(results["axes"])
    trials = axes.pop("fleet", ())
    return Group(
        *(_axis_view(name, points) for name, points in axes.items() if points), *(_fleet_view(each) for each in trials)
    )


def _fleet_view(trials: Mapping[str, Any]) -> Table:
    """Build a row for each figure that is a number."""
    table = Table(title=f"fleet of {trials['at']:,} pipelines", title_justify="left")
    for column in ("trial", "figure"):
        table.add_column(column)
    table.add_column("", justify="right")
    for trial, figures in trials.items():
        for name, value in figures.items() if isinstance(figures, Mapping) else ():
            if isinstance(value, (int, float)):
                table.add_row(trial.replace("_", " "), name.replace("_", " "), _cell(value))
    return table


def _axis_view(name: str, points: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=f"cost as {name.replace('_', ' ')} grow", title_justify="left")
    columns = [key for key in points[-1] if not isinstance(points[-1][key], list)]
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for point in points:
        table.add_row(*(_cell(point.get(column)) for column in columns))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}" if value < 100 else f"{value:,.0f}"


def upserts_view(results: Mapping[str, Any]) -> RenderableType:
    """Build a row for each contender of `upserts-<n>`, with its seconds of each phase, and a line of the ratios."""
    table = Table(title=f"{results['load']}: seconds", title_justify="left")
    table.add_column("contender")
    phases = (
        "base",
        "changes_cold",
        "changes",
        "changes_cpu",
        "small",
        "read_logs",
        "compaction",
        "read_compacted",
        "read_due",
    )
    for phase in phases:
        table.add_column(phase.replace("_", " "), justify="right")
    for contender in (UPSERTS, APPENDS, SPARK_UPSERTS):
        figures = results[contender]
        table.add_row(TITLES[contender], *(_cell(figures.get(f"{phase}_seconds")) for phase in phases))
    ratios = ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in results["ratios"].items())
    return Group(table, Text(ratios), Text())


def write_growth_chart(results: Mapping[str, Any], path: Path) -> None:
    """Plot the seconds of each axis against its size and, below, its records per second if measured. Raises
    EnvironmentProblem without matplotlib."""
    plot = _pyplot()
    measured = {name: points for name, points in results["axes"].items() if points and name != "fleet"}
    if not measured:
        return
    figure, axes = plot.subplots(2, len(measured), figsize=(5 * len(measured), 7), layout="constrained", squeeze=False)
    for column, (name, points) in enumerate(measured.items()):
        _draw_lines(axes[0][column], name, points, "_seconds", "seconds")
        _draw_lines(axes[1][column], name, points, "_per_second", "records/s")
        axes[0][column].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plot.close(figure)


def _draw_lines(axis: Any, name: str, points: Sequence[Mapping[str, Any]], suffix: str, label: str) -> None:
    """Draw a line for each figure whose name ends in the suffix; hide the plot if there is none."""
    keys = [key for key in points[0] if key.endswith(suffix)]
    axis.set_visible(bool(keys))
    for key in keys:
        drawn = [(point["at"], point[key]) for point in points if point.get(key) is not None]
        axis.plot([at for at, _ in drawn], [value for _, value in drawn], marker="o", label=key.replace("_", " "))
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel(name.replace("_", " "))
    axis.set_ylabel(label)
    axis.spines[["top", "right"]].set_visible(False)


def short(value: float) -> str:
    """Format a figure in at most five characters."""
    for least, unit in ((1e6, "M"), (1e3, "k")):
        if value >= least:
            return f"{value / least:.3g}{unit}"
    return f"{value:.3g}"


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise EnvironmentProblem(f"{_NO_MATPLOTLIB} ({error})") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot
