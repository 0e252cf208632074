"""`python -m benchmarks.scale_points`: what single transactions of the data path cost, for the constants and checks of `scale`.

Each point creates its table, then takes the median of three transactions in a warm Spark. CPU seconds hardly depend on what
else the machine does; seconds do.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import psutil
import typer

from benchmarks import topics
from benchmarks.growth import Ground, started_ground
from benchmarks.loads import Load, even, orders_load, parse_load
from benchmarks.measure import is_python_worker
from benchmarks.run import Settings, bench_home
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.timeline.timeline import Timeline

RESULTS = Path(__file__).parent / "results" / "scale.json"
_ROUNDS = 3
_KAFKA_PARTITIONS, _DAYS = 4, 3


@dataclass(frozen=True, slots=True)
class Point:
    """One transaction: its records, and what it took. `driver_cpu` is that of planning, begin, commit and the JVM; `worker_cpu`
    that of Spark's Python workers, which read, decode and write."""

    name: str
    records: int
    record_bytes: int
    kafka_partitions: int
    table_partitions: int
    files: int
    seconds: float
    driver_cpu: float
    worker_cpu: float
    measured: str
    """The date."""

    @property
    def cpu(self) -> float:
        return self.driver_cpu + self.worker_cpu


def load_of(name: str) -> Load:
    """Parse `orders-1m`, as the benchmark does, or `orders-500k@100x3`: over 100 Kafka partitions and 3 table partitions."""
    shape, at, places = name.partition("@")
    load = parse_load(shape)
    if not at:
        return load
    kafka_partitions, _, days = places.partition("x")
    safe = name.replace("@", "-")
    return orders_load(safe, even(load.records, int(kafka_partitions)), days=int(days or _DAYS))


def measure(place: Ground, name: str) -> Point:
    """Measure one point, in a topic and table that are removed afterwards."""
    load = load_of(name)
    topics.create(load, place.bootstrap_servers)
    pipeline, file = place.pipeline(load)
    place.transaction(load, file)
    rounds = []
    for _ in range(_ROUNDS):
        before = _cpu(place.worker.pid)
        seconds = place.transaction(load, file)
        after = _cpu(place.worker.pid)
        rounds.append((seconds, after[0] - before[0], after[1] - before[1]))
    files = len(Timeline(pipeline.table.base_path).files()) // (_ROUNDS + 1)
    seconds, driver, workers = (round(median(column), 3) for column in zip(*rounds, strict=True))
    days = int(name.partition("@")[2].partition("x")[2] or _DAYS)
    shutil.rmtree(pipeline.table.base_path)
    topics.delete(load, place.bootstrap_servers)
    return Point(
        name,
        load.records,
        load.record_bytes,
        len(load.counts),
        days,
        files,
        seconds,
        driver,
        workers,
        str(date.today()),
    )


def _cpu(pid: int) -> tuple[float, float]:
    """CPU seconds so far of the driver with its JVM, and of its Python workers."""
    driver = workers = 0.0
    process = psutil.Process(pid)
    for member in (process, *process.children(recursive=True)):
        # One that has just ended is in its parent's figures from now on.
        with suppress(psutil.NoSuchProcess):
            times, is_worker = member.cpu_times(), is_python_worker(member)
            own = times.user + times.system + times.children_user + times.children_system
            driver, workers = driver + own * (not is_worker), workers + own * is_worker
    return driver, workers


def fitted(measured: Sequence[Point]) -> dict[str, float]:
    """The data path's constants by least squares of relative errors; none is negative."""
    driver = {
        "transaction_cpu": [1.0 for _ in measured],
        "file_driver_cpu": [float(point.files) for point in measured],
    }
    workers = {
        "job_cpu": [1.0 for _ in measured],
        "record_cpu": [float(point.records) for point in measured],
        "byte_cpu": [float(point.records * point.record_bytes) for point in measured],
        "file_worker_cpu": [float(point.files) for point in measured],
        "partition_worker_cpu": [float(min(point.kafka_partitions, point.records)) for point in measured],
    }
    return {
        **_solved(driver, [point.driver_cpu for point in measured]),
        **_solved(workers, [point.worker_cpu for point in measured]),
    }


def _solved(columns: dict[str, list[float]], seconds: list[float]) -> dict[str, float]:
    rows = np.array(list(columns.values())).T / np.array(seconds)[:, None]
    found = np.linalg.lstsq(rows, np.ones(len(seconds)), rcond=None)[0]
    if (found >= 0).all():
        return {name: float(value) for name, value in zip(columns, found, strict=True)}
    # What would earn time costs nothing instead.
    worst = list(columns)[int(np.argmin(found * rows.mean(axis=0)))]
    rest = {name: column for name, column in columns.items() if name != worst}
    return {worst: 0.0, **_solved(rest, seconds)}


def points(path: Path = RESULTS) -> tuple[Point, ...]:
    return tuple(Point(**point) for point in json.loads(path.read_text())) if path.exists() else ()


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Points, e.g. tiny orders-1m wide-200k orders-300@300x3; without, those of the JSON file."),
    ] = None,
    results: Annotated[Path, typer.Option(help="JSON file; a point that it has is replaced.")] = RESULTS,
) -> None:
    """Measure points one after another."""
    home = bench_home(Home.from_environment())
    shutil.rmtree(home.root, ignore_errors=True)
    home.pipelines.mkdir(parents=True)
    kept = {point.name: point for point in points(results)}
    with started_ground(home, Settings((), 1), _report) as place:
        for name in names or [*kept]:
            kept[name] = measure(place, name)
            _report(str(kept[name]))
            _write(results, tuple(kept.values()))
    shutil.rmtree(home.root, ignore_errors=True)


def _write(path: Path, measured: Sequence[Point]) -> None:
    path.write_text(json.dumps([asdict(point) for point in measured], indent=1) + "\n")


def _report(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    typer.run(main)
