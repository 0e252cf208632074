"""Measure how a transaction's cost grows with the table's history, Kafka and table partitions, and pipelines.

All axes but the last are measured on the data path alone, with a warm engine. `fixed_seconds` is the time of a transaction
with hardly any records, `plan_seconds` that of a sensor tick without Dagster: reading the table's timeline and the
broker's offsets.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import fleet, topics
from benchmarks.contenders import Assignment, Outcome, Task
from benchmarks.contenders.dagster_stack import DagsterStack
from benchmarks.contenders.hudi_ingest_api import table_rows
from benchmarks.contenders.process import Worker
from benchmarks.loads import Load, even, orders_load
from benchmarks.measure import ProcessTrees
from benchmarks.pipelines import compaction_is_due, made_pipeline
from benchmarks.results import API, UPSERTS
from benchmarks.run import Settings, preamble, require_disk, write_results
from hudi_ingest.exceptions import EnvironmentProblem, NothingToDo
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, Home
from hudi_ingest.local.broker import BrokerSettings, start_broker
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.local.progress import Report
from hudi_ingest.local.stack import StackSettings, bring_down
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe, plan_next

AXES: Mapping[str, tuple[int, ...]] = {
    "history": (1, 100, 500, 1000),
    "keyed_history": (1, 50, 100, 200, 300, 400, 450, 500),
    "kafka_partitions": (1, 10, 100, 1000),
    "table_partitions": (1, 10, 100, 500),
    "pipelines": (1, 5, 20),
    "fleet": (200,),
}
"""What grows, and the points at which it is measured."""

_BULK_RECORDS = 500_000
_PIPELINE_RECORDS = 20_000
_TINY_RECORDS = 10
_WARM_RECORDS = 200_000
_RECENT = 10
_TICKS = 5
_SECONDS = 1200.0
_TELL_SECONDS = 5.0
_KAFKA_PARTITIONS = 4

Keep = Callable[[str, list[dict[str, Any]]], None]


def parse_axes(text: str) -> dict[str, tuple[int, ...]]:
    """Parse `history=200,pipelines` into axes with their points up to and including the limit; all axes for "".

    Raises ValueError, which says what is allowed.
    """
    if not text.strip():
        return dict(AXES)
    axes: dict[str, tuple[int, ...]] = {}
    for axis in text.split(","):
        name, equals, limit = axis.strip().partition("=")
        if name not in AXES or (equals and not (limit.isdecimal() and int(limit) > 0)):
            raise ValueError(
                f"{axis.strip()!r} is not an axis; allowed: {', '.join(AXES)}, each alone or with a limit like history=200"
            )
        points = AXES[name]
        axes[name] = tuple(sorted({*(p for p in points if p <= int(limit)), int(limit)})) if limit else points
    return axes


def run_growth(
    home: Home, axes: Mapping[str, tuple[int, ...]], settings: Settings, output: Path, report: Report
) -> dict[str, Any]:
    """Measures the axes and gives the results, which are in `output`, too, after each point.

    `home` is made empty first and removed when all went well. Raises EnvironmentProblem; what was measured is kept.
    """
    # An earlier run that was killed may have left its stack running.
    bring_down(home, report)
    require_disk(home.root, [_bulk("disk", 1)])
    results: dict[str, Any] = {**preamble(settings, settings.engine), "axes": {}}

    def keep(axis: str, points: list[dict[str, Any]]) -> None:
        results["axes"][axis] = points
        write_results(output, results)

    for axis, points in axes.items():
        report(
            f"{axis}: {', '.join(f'{point:,}' for point in points)}; about {_minutes(axis, points, settings):.0f} minutes on 2 cores"
        )
        shutil.rmtree(home.root, ignore_errors=True)
        home.pipelines.mkdir(parents=True)
        _MEASURES[axis](home, settings, points, keep, report)
    shutil.rmtree(home.root, ignore_errors=True)
    return results


@dataclass(frozen=True, slots=True)
class Ground:
    """A broker and a warm process that runs transactions."""

    home: Home
    bootstrap_servers: str
    worker: Worker
    report: Report

    def pipeline(self, load: Load) -> tuple[Pipeline, Path]:
        folder = self.home.root / "growth"
        table = self.home.tables / load.pipeline
        pipeline = made_pipeline(folder, load.pipeline, load, self.bootstrap_servers, table)
        return pipeline, folder / f"{load.pipeline}.yaml"

    def transaction(self, load: Load, file: Path) -> float:
        """Produce the load's records, and return the seconds of the transaction that publishes them."""
        topics.append(load, self.bootstrap_servers, self.report)
        return self.run(load, file, Task.WRITE).seconds

    def run(self, load: Load, file: Path, task: Task) -> Outcome:
        assignment = Assignment(str(file), str(self.home.root), load.record_bytes, reads_back=False, task=task)
        return self.worker.run(assignment, _SECONDS)


@contextmanager
def started_ground(home: Home, settings: Settings, report: Report, contender: str = API) -> Iterator[Ground]:
    broker = BrokerSettings(home.kafka, free_port(), free_port())
    with ExitStack() as running:
        running.callback(stop, [start_broker(broker, report)])
        environment = {HOME_VARIABLE: str(home.root), LEDGER_VARIABLE: home.ledger_url}
        report("starting Spark")
        worker = Worker(contender, settings.engine, home.logs / f"{contender}.log", environment)
        running.callback(worker.stop)
        worker.await_ready()
        ground = Ground(home, broker.bootstrap, worker, report)
        _warm(ground)
        yield ground


def _warm(ground: Ground) -> None:
    """Warm up the engine: classes that a fresh JVM loads and compiles are not part of the growth."""
    ground.report("warming the engine")
    load = orders_load("growth-warm", even(_WARM_RECORDS, _KAFKA_PARTITIONS))
    topics.produce(orders_load(load.name, (1,) * _KAFKA_PARTITIONS), ground.bootstrap_servers, ground.report)
    _, file = ground.pipeline(load)
    for _ in range(3):
        ground.transaction(load, file)


# ---- The axes


def _history(home: Home, settings: Settings, points: tuple[int, ...], keep: Keep, report: Report) -> None:
    """Run tiny transactions one after another, and keep the seconds of each."""
    load = orders_load("growth-history", (_TINY_RECORDS,))
    results: list[dict[str, Any]] = []
    seconds: list[float] = []
    reported_at = 0.0
    with started_ground(home, settings, report) as ground:
        topics.create(load, ground.bootstrap_servers)
        pipeline, file = ground.pipeline(load)
        for number in range(1, points[-1] + 1):
            seconds.append(ground.transaction(load, file))
            if time.monotonic() - reported_at > _TELL_SECONDS:
                reported_at = time.monotonic()
                report(f"history: {number:,} of {points[-1]:,} commits, the last one in {seconds[-1]:.2f} s")
            if number in points:
                since = results[-1]["at"] if results else 0
                results.append(
                    {
                        "at": number,
                        "fixed_seconds": round(median(seconds[-_RECENT:]), 3),
                        "slowest_seconds": round(max(seconds[since:]), 3),
                        "plan_seconds": _plan_seconds(pipeline),
                        "seconds_of_each": [round(duration, 3) for duration in seconds[since:]],
                    }
                )
                keep("history", results)
        _require_rows(pipeline, points[-1] * _TINY_RECORDS)


def _keyed_history(home: Home, settings: Settings, points: tuple[int, ...], keep: Keep, report: Report) -> None:
    """Upsert a few rows of a keyed table again and again, with a compaction between two transactions whenever one is due."""
    load = orders_load("growth-keyed-history", even(_TINY_RECORDS * _KAFKA_PARTITIONS, _KAFKA_PARTITIONS))
    load = replace(load, table={"mode": "upsert", "key": ["id"], "buckets": 1})
    results: list[dict[str, Any]] = []
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    compactions: list[float] = []
    reported_at = 0.0
    with started_ground(home, settings, report, UPSERTS) as ground:
        topics.create(load, ground.bootstrap_servers)
        pipeline, file = ground.pipeline(load)
        processes = ProcessTrees((ground.worker.pid,))
        for number in range(1, points[-1] + 1):
            before = processes.sample().cpu_seconds
            seconds.append(ground.transaction(load, file))
            cpu_seconds.append(processes.sample().cpu_seconds - before)
            if compaction_is_due(pipeline):
                compactions.append(ground.run(load, file, Task.COMPACT).seconds)
            if time.monotonic() - reported_at > _TELL_SECONDS:
                reported_at = time.monotonic()
                report(f"keyed_history: {number:,} of {points[-1]:,} commits, the last one in {seconds[-1]:.2f} s")
            if number in points:
                since = results[-1]["at"] if results else 0
                results.append(
                    {
                        "at": number,
                        "fixed_seconds": round(median(seconds[-_RECENT:]), 3),
                        "median_seconds": round(median(seconds[since:]), 3),
                        "slowest_seconds": round(max(seconds[since:]), 3),
                        "plan_seconds": _plan_seconds(pipeline),
                        "seconds_of_each": [round(duration, 3) for duration in seconds[since:]],
                        "cpu_seconds_of_each": [round(used, 3) for used in cpu_seconds[since:]],
                        "compaction_seconds_of_each": [round(duration, 3) for duration in compactions],
                    }
                )
                compactions.clear()
                keep("keyed_history", results)
        rows = ground.run(load, file, Task.READ).rows
        if rows != load.records:
            raise EnvironmentProblem(f"table {pipeline.table.base_path} has {rows:,} rows, not {load.records:,}.")


def _kafka_partitions(home: Home, settings: Settings, points: tuple[int, ...], keep: Keep, report: Report) -> None:
    """Publish one record per partition, then half a million spread over them."""
    loads = [
        (point, orders_load(f"growth-kafka-{point}", (1,) * point), _bulk(f"growth-kafka-{point}", point))
        for point in points
    ]
    _few_then_many("kafka_partitions", home, settings, loads, keep, report)


def _table_partitions(home: Home, settings: Settings, points: tuple[int, ...], keep: Keep, report: Report) -> None:
    """Publish a few records per table partition, then half a million spread over them, from four Kafka partitions."""
    loads = [
        (
            point,
            orders_load(f"growth-days-{point}", even(10 * point, _KAFKA_PARTITIONS), days=point),
            orders_load(f"growth-days-{point}", even(_BULK_RECORDS, _KAFKA_PARTITIONS), days=point),
        )
        for point in points
    ]
    _few_then_many("table_partitions", home, settings, loads, keep, report)


def _few_then_many(
    axis: str,
    home: Home,
    settings: Settings,
    loads: list[tuple[int, Load, Load]],
    keep: Keep,
    report: Report,
) -> None:
    results = []
    with started_ground(home, settings, report) as ground:
        for point, few, many in loads:
            report(f"{axis} {point:,}")
            topics.create(few, ground.bootstrap_servers)
            pipeline, file = ground.pipeline(many)
            # The first one creates the table.
            first = ground.transaction(few, file)
            fixed = median(ground.transaction(few, file) for _ in range(3))
            seconds = ground.transaction(many, file)
            results.append(
                {
                    "at": point,
                    "first_seconds": round(first, 3),
                    "fixed_seconds": round(fixed, 3),
                    "plan_seconds": _plan_seconds(pipeline),
                    "records_per_second": round(many.records / seconds, 1),
                }
            )
            keep(axis, results)
            _require_rows(pipeline, 4 * few.records + many.records)
            shutil.rmtree(pipeline.table.base_path)
            topics.delete(few, ground.bootstrap_servers)


def _pipelines(home: Home, settings: Settings, points: tuple[int, ...], keep: Keep, report: Report) -> None:
    """Run this many pipelines on one Dagster daemon and engine, all turned on at once, each with its own topic."""
    results = []
    ports = StackSettings(free_port(), free_port(), settings.master, settings.driver_memory)
    servers = f"127.0.0.1:{ports.kafka_port}"
    stack = DagsterStack(home, ports, report)
    try:
        for point in points:
            report(f"pipelines {point:,}")
            # One more, to warm up the engine.
            loads = [
                orders_load(f"growth-{point}-of-{number}", even(_PIPELINE_RECORDS, _KAFKA_PARTITIONS))
                for number in range(point + 1)
            ]
            for old in home.pipelines.iterdir():
                old.unlink()
            pipelines = [
                made_pipeline(home.pipelines, load.pipeline, load, servers, home.tables / load.pipeline)
                for load in loads
            ]
            stack.renew()
            for load in loads:
                topics.produce(load, servers, report)
            stack.run(pipelines[:1], _SECONDS)
            first = _turned_on(stack, pipelines[1:], loads[1:], commit=1)
            # The tables exist by now, as they do every day but the first.
            for load in loads[1:]:
                topics.append(load, servers, report)
            second = _turned_on(stack, pipelines[1:], loads[1:], commit=2)
            results.append(
                {
                    "at": point,
                    **first,
                    "second_tick_to_commit_seconds": second["tick_to_commit_seconds"],
                    "second_all_committed_seconds": second["all_committed_seconds"],
                }
            )
            keep("pipelines", results)
    finally:
        stack.stop()


def _turned_on(stack: DagsterStack, pipelines: list[Pipeline], loads: list[Load], commit: int) -> dict[str, float]:
    """Turn the pipelines on at once until each has published its commit of this number, and measure that."""
    outcomes = stack.run(pipelines, _SECONDS, commit)
    for outcome, load in zip(outcomes, loads, strict=True):
        if outcome.rows != commit * load.records:
            raise EnvironmentProblem(
                f"{load.pipeline} has {outcome.rows:,} rows instead of {commit * load.records:,} after commit {commit}."
            )
    began = min(outcome.began for outcome in outcomes)
    ticks = [
        tick
        for pipeline in pipelines
        for tick in stack.ticks(pipeline)
        if tick.ended is not None and tick.began >= began
    ]
    all_seconds = max(outcome.ended for outcome in outcomes) - began
    return {
        "tick_to_commit_seconds": round(median(outcome.seconds for outcome in outcomes), 3),
        "slowest_tick_to_commit_seconds": round(max(outcome.seconds for outcome in outcomes), 3),
        "tick_seconds": round(median((tick.ended or 0.0) - tick.began for tick in ticks), 3),
        "all_committed_seconds": round(all_seconds, 3),
        "records_per_second": round(len(pipelines) * _PIPELINE_RECORDS / all_seconds, 1),
    }


def _fleet(home: Home, settings: Settings, points: tuple[int, ...], keep: Keep, report: Report) -> None:
    """Run the fleet's trials with so many pipelines."""
    results: list[dict[str, Any]] = []
    for point in points:
        figures: dict[str, Any] = {"at": point}
        results.append(figures)
        for name in fleet.TRIALS:
            figures[name] = fleet.trial(name, home.root, point, settings.minutes, report)
            keep("fleet", results)


_MEASURES: Mapping[str, Callable[[Home, Settings, tuple[int, ...], Keep, Report], None]] = {
    "history": _history,
    "keyed_history": _keyed_history,
    "kafka_partitions": _kafka_partitions,
    "table_partitions": _table_partitions,
    "pipelines": _pipelines,
    "fleet": _fleet,
}


def _bulk(name: str, kafka_partitions: int) -> Load:
    return orders_load(name, even(_BULK_RECORDS, kafka_partitions))


def _plan_seconds(pipeline: Pipeline) -> float:
    """Return the median time to read timeline and offsets and to plan, in a process without a JVM."""
    seconds = []
    for _ in range(_TICKS):
        began = time.monotonic()
        with suppress(NothingToDo):
            plan_next(pipeline, observe(pipeline))
        seconds.append(time.monotonic() - began)
    return round(median(seconds), 4)


def _require_rows(pipeline: Pipeline, expected: int) -> None:
    rows = table_rows(pipeline)
    if rows != expected:
        raise EnvironmentProblem(
            f"table {pipeline.table.base_path} has {rows:,} rows, but {expected:,} records were produced. The speed of a wrong "
            "result means nothing, so the benchmark stops."
        )


def _minutes(axis: str, points: tuple[int, ...], settings: Settings) -> float:
    """Estimate how many minutes an axis takes."""
    if axis == "fleet":
        trials = (
            settings.minutes
            + 3 * min(settings.minutes, fleet.IDLE_MINUTES)
            + 2 * min(settings.minutes, fleet.FRESHNESS_MINUTES)
        )
        return len(points) * (trials + 2.0 * len(fleet.TRIALS))
    if axis in ("history", "keyed_history"):
        return 1 + points[-1] * 2.0 / 60
    return 1 + len(points) * (2.0 if axis == "pipelines" else 1.0) + sum(points) / 150
