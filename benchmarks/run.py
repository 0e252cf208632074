"""Run the benchmark: for each load all contenders in turn, round by round, on the same topic and broker.

Each load gets fresh engines; their first round is the cold one. The order rotates by one each round, so that no contender
always follows the same other one. Each round of a contender is the second commit of a table of its own: a few records
create the tables before the load is produced, as users rarely wait for a transaction that creates a table.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import topics
from benchmarks.contenders import Assignment, Outcome
from benchmarks.contenders.dagster_stack import DagsterStack
from benchmarks.contenders.process import Worker
from benchmarks.loads import Load
from benchmarks.machine import commit, machine
from benchmarks.measure import Meter
from benchmarks.pipelines import made_pipeline, write_pipeline
from benchmarks.results import API, CONTENDERS, DAGSTER, LIMITS, STREAMING, Measured, load_results
from benchmarks.sites import CLUSTER, LOCAL, Site, started_site
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, Home
from hudi_ingest.local.broker import BrokerSettings, start_broker
from hudi_ingest.local.processes import ProcessRecord, free_port, stop
from hudi_ingest.local.progress import Report
from hudi_ingest.local.stack import StackSettings
from hudi_ingest.pipeline.engine import EngineSettings
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import session_options

_FIXED_SECONDS = {
    "hudi_ingest_dagster": 7.0,
    "hudi_ingest_api": 2.0,
    "spark_streaming": 2.5,
    "limit": 0.5,
    "hudi_limit": 0.5,
    "spark_limit": 1.0,
}
_MB_A_SECOND = {
    "hudi_ingest_dagster": 45.0,
    "hudi_ingest_api": 55.0,
    "spark_streaming": 22.0,
    "limit": 150.0,
    "hudi_limit": 120.0,
    "spark_limit": 80.0,
}
"""Rough speed on two cores, only used to estimate how long the benchmark takes."""
_PRODUCED_MB_A_SECOND = 60.0
_START_SECONDS = 75.0
_TABLES_SECONDS = 12.0
_SPARE_BYTES = 2 << 30
_FIRST_RECORDS = 10
"""Maximum number of records per Kafka partition in the commit that creates a table."""
_FIRST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run. `rounds` counts warm rounds; a cold one precedes them. `on`: one of SITES; `minutes`: how long each of the
    fleet's trials lasts."""

    loads: tuple[Load, ...]
    rounds: int = 3
    contenders: tuple[str, ...] = CONTENDERS
    master: str = "local[*]"
    driver_memory: str = "2g"
    on: str = LOCAL
    minutes: float = 15.0

    @property
    def engine(self) -> dict[str, str]:
        """What engine.yaml would say."""
        return {"master": self.master, "driver_memory": self.driver_memory}


def estimated_seconds(settings: Settings) -> float:
    """Estimate how long the run takes on two cores."""
    return sum(_load_seconds(load, settings) for load in settings.loads)


def needed_bytes(loads: Sequence[Load]) -> int:
    """Disk that the largest load takes: its topic, and one table or parquet folder at a time, both taken as uncompressed."""
    return max(2 * load.records * load.record_bytes for load in loads) + _SPARE_BYTES


def require_disk(folder: Path, loads: Sequence[Load]) -> None:
    """Raises EnvironmentProblem when the largest load will not fit."""
    folder.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(folder).free, needed_bytes(loads)
    if free < needed:
        raise EnvironmentProblem(
            f"the disk that holds {folder} has {free >> 20:,} MB free, and these loads need {needed >> 20:,} MB; free some, set "
            f"{HOME_VARIABLE} to a folder on another disk, or name smaller loads."
        )


def run_benchmark(home: Home, settings: Settings, output: Path, report: Report) -> dict[str, Any]:
    """Measures all loads and gives the results, which are in `output`, too, after each load.

    `home` is made empty first and removed when all went well. Raises EnvironmentProblem, also when a contender published
    another number of rows than the topic has; what was measured before is kept in `output`.
    """
    require_disk(home.root, settings.loads)
    minutes = estimated_seconds(settings) / 60
    report(
        f"{len(settings.loads)} loads, {settings.rounds} warm rounds each: about {max(1, round(minutes))} minutes on 2 cores"
    )
    with Arena(home, settings, report) as arena:
        results = {**preamble(settings, arena.engine), "loads": {}}
        for number, load in enumerate(settings.loads, 1):
            report(f"load {number} of {len(settings.loads)}: {load.name}, {load.records:,} records")

            def keep(rounds: Sequence[Measured], load: Load = load) -> None:
                results["loads"][load.name] = {
                    "records": load.records,
                    "kafka_partitions": len(load.counts),
                    "value_bytes": rounds[0].value_bytes,
                    **load_results(rounds),
                }
                write_results(output, results)

            arena.measure(load, keep)
    shutil.rmtree(home.root, ignore_errors=True)
    return results


def preamble(settings: Settings, engine: Mapping[str, Any]) -> dict[str, Any]:
    """What every results file begins with. Raises EnvironmentProblem."""
    options = session_options([], EngineSettings.model_validate(engine))
    return {
        "machine": machine(),
        "git": commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "settings": {
            "rounds": settings.rounds,
            "on": settings.on,
            "master": engine["master"],
            "driver_memory": engine["driver_memory"],
            # Not where jars are on this machine.
            "spark": {key: value for key, value in options.items() if key != "spark.jars" and "ClassPath" not in key},
        },
    }


def write_results(path: Path, results: Any) -> None:
    """Replaces the file at once, so that an interrupted run leaves a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(results, indent=2) + "\n")
    partial.rename(path)


class Arena:
    """The broker and the contenders' processes. Start it with `with`."""

    def __init__(self, home: Home, settings: Settings, report: Report) -> None:
        self._home = home
        self._settings = settings
        self._report = report
        self._ports = StackSettings(free_port(), free_port(), settings.master, settings.driver_memory)
        self.bootstrap_servers = f"127.0.0.1:{self._ports.kafka_port}"
        self._stack = DagsterStack(home, self._ports, report)
        self._broker: ProcessRecord | None = None
        self._workers: dict[str, Worker] = {}
        self._site = Site(settings.engine)
        self._running = ExitStack()

    @property
    def engine(self) -> Mapping[str, Any]:
        """Settings of the contenders' drivers."""
        return self._site.engine

    def __enter__(self) -> Arena:
        self._stack.stop()
        shutil.rmtree(self._home.root, ignore_errors=True)
        self._home.pipelines.mkdir(parents=True)
        settings = self._settings
        site = started_site(settings.on, settings.engine, self._home, self._report)
        self._site = self._running.enter_context(site)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_workers()
        self._stack.stop()
        if self._broker is not None:
            stop([self._broker])
        self._running.close()

    def measure(self, load: Load, keep: Callable[[Sequence[Measured]], None]) -> None:
        """Run all rounds of one load; `keep` gets the rounds so far after each. Raises EnvironmentProblem."""
        settings = self._settings
        contenders = taking_part(settings.contenders, load)
        for name in settings.contenders:
            if name not in contenders:
                self._report(f"{load.name}: without {name}, because {load.shape.left_out[name]}")
        published = self._write_dagster_pipelines(load)
        self._start_services()
        self._start_workers(contenders)
        report = self._report
        first = replace(load, counts=tuple(min(_FIRST_RECORDS, count) for count in load.counts))
        report(f"{load.name}: making {settings.rounds + 1} tables for each contender")
        topics.produce(first, self.bootstrap_servers, report)
        self._make_tables(contenders, load, first, published)
        report(f"{load.name}: producing")
        produced = topics.append(load, self.bootstrap_servers, report)
        report(
            f"{load.name}: {produced.records:,} records, {produced.value_bytes / 1e6:,.0f} MB in {produced.seconds:.1f} s"
        )
        rounds: list[Measured] = []
        for number in range(settings.rounds + 1):
            for contender in turned(contenders, number):
                title = f"{load.name}: {'cold round' if number == 0 else f'round {number} of {settings.rounds}'}, {contender}"
                report(f"{title} …")
                measured = self._round(contender, load, first.records, produced, number, published)
                rounds.append(measured)
                report(f"{title}: {measured.seconds:.2f} s, {measured.records / measured.seconds:,.0f} records/s")
            keep(rounds)
        self._stop_workers()
        topics.delete(load, self.bootstrap_servers)

    def _make_tables(self, contenders: Sequence[str], load: Load, first: Load, published: Sequence[Pipeline]) -> None:
        """Let each contender commit the first records, once for each round; the limits have no tables. As this is not timed, all
        contenders do it at the same time."""

        def make(contender: str) -> None:
            for outcome in self._first_commits(contender, load, published):
                require_rows(contender, load, outcome, first.records)

        makers = [contender for contender in contenders if contender not in LIMITS]
        with ThreadPoolExecutor(max(1, len(makers))) as pool:
            list(pool.map(make, makers))

    def _first_commits(self, contender: str, load: Load, published: Sequence[Pipeline]) -> Sequence[Outcome]:
        if contender == DAGSTER:
            return self._stack.run(published, _FIRST_SECONDS)
        return [
            self._workers[contender].run(self._assignment(contender, load, number, load.record_bytes), _FIRST_SECONDS)
            for number in range(self._settings.rounds + 1)
        ]

    def _round(
        self,
        contender: str,
        load: Load,
        before: int,
        produced: topics.Produced,
        number: int,
        published: Sequence[Pipeline],
    ) -> Measured:
        """Measure one round. `before`: records that the topic had before the load was produced."""
        pids = self._stack.pids if contender == DAGSTER else (self._workers[contender].pid, *self._site.pids)
        seconds = _FIRST_SECONDS + load.records / 5_000
        with Meter({contender: pids, "broker": (self._broker_pid,)}) as meter:
            if contender == DAGSTER:
                (outcome,) = self._stack.run([published[number]], seconds, commit=2)
            else:
                assignment = self._assignment(contender, load, number, produced.value_bytes // produced.records)
                outcome = self._workers[contender].run(assignment, seconds)
        # The limits have no table, and read as many records as one transaction may.
        require_rows(contender, load, outcome, produced.records if contender in LIMITS else before + produced.records)
        if contender == DAGSTER:
            shutil.rmtree(published[number].table.base_path, ignore_errors=True)
        else:
            self._site.remove(self._folder(contender, load, number))
        return measured(contender, number == 0, outcome, produced, meter)

    def _folder(self, contender: str, load: Load, number: int) -> Path:
        return self._home.root / "rounds" / f"{load.pipeline}_{contender}_{number}"

    def _assignment(self, contender: str, load: Load, number: int, record_bytes: int) -> Assignment:
        folder = self._folder(contender, load, number)
        name = f"{load.pipeline}_{number}"
        site = self._site
        file = write_pipeline(folder, name, load, self.bootstrap_servers, site.base_path(folder), site.storage)
        return Assignment(str(file), str(folder), record_bytes)

    def _write_dagster_pipelines(self, load: Load) -> list[Pipeline]:
        for old in self._home.pipelines.iterdir():
            old.unlink()
        if DAGSTER not in self._settings.contenders:
            return []
        names = [f"{load.pipeline}_{number}" for number in range(self._settings.rounds + 1)]
        return [
            made_pipeline(self._home.pipelines, name, load, self.bootstrap_servers, self._home.tables / name)
            for name in names
        ]

    def _start_services(self) -> None:
        """Start the broker once and, if the stack is measured, a fresh stack around it for each load."""
        if DAGSTER in self._settings.contenders:
            self._stack.renew()
        elif self._broker is None:
            self._broker = start_broker(
                BrokerSettings(self._home.kafka, self._ports.kafka_port, free_port()), self._report
            )

    @property
    def _broker_pid(self) -> int:
        return self._broker.pid if self._broker is not None else self._stack.broker_pid

    def _start_workers(self, contenders: Sequence[str]) -> None:
        names = [name for name in contenders if name != DAGSTER]
        self._report(f"starting {', '.join(names)}")
        for name in names:
            root = self._home.root / name
            environment = {HOME_VARIABLE: str(root), LEDGER_VARIABLE: f"sqlite:///{root / 'ledger.db'}"}
            root.mkdir(exist_ok=True)
            worker = Worker(
                name,
                self._site.engine,
                self._home.logs / f"{name}.log",
                environment,
            )
            self._workers[name] = worker
        for worker in self._workers.values():
            worker.await_ready()

    def _stop_workers(self) -> None:
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()


def contenders_on(on: str) -> tuple[str, ...]:
    """Return the contenders of a site. On a cluster, those that write tables by executors."""
    return (API, STREAMING) if on == CLUSTER else CONTENDERS


def taking_part(contenders: Sequence[str], load: Load) -> tuple[str, ...]:
    """Return the contenders that can read the load's records."""
    return tuple(name for name in contenders if name not in load.shape.left_out)


def turned(contenders: Sequence[str], number: int) -> tuple[str, ...]:
    """Rotate the contenders, so that each round begins with another one."""
    start = number % len(contenders)
    return (*contenders[start:], *contenders[:start])


def require_rows(contender: str, load: Load, outcome: Outcome, records: int) -> None:
    """Raise EnvironmentProblem unless exactly the topic's records were written."""
    if outcome.rows != records:
        raise EnvironmentProblem(
            f"{contender} published {outcome.rows:,} rows of load {load.name}, but its topic has {records:,} records. The "
            "speed of a wrong result means nothing, so the benchmark stops; see the contender's log."
        )


def measured(contender: str, cold: bool, outcome: Outcome, produced: topics.Produced, meter: Meter) -> Measured:
    """Return the round's figures, from its times and the samples taken meanwhile."""
    at_rest = outcome.at_rest or outcome.ended
    own = meter.usage(contender, outcome.began, at_rest)
    return Measured(
        contender=contender,
        cold=cold,
        records=produced.records,
        value_bytes=produced.value_bytes,
        seconds=outcome.seconds,
        cpu_seconds=own.cpu_seconds,
        peak_rss_bytes=own.peak_rss_bytes,
        peak_worker_rss_bytes=own.peak_worker_rss_bytes,
        broker_cpu_seconds=meter.usage("broker", outcome.began, at_rest).cpu_seconds,
    )


def bench_home(home: Home) -> Home:
    """Return the benchmark's own home inside the user's, so that it does not touch the user's stack."""
    root = home.root / "benchmark"
    return replace(home, root=root, pipelines=root / "pipelines", ledger_url=f"sqlite:///{root / 'ledger.db'}")


def _load_seconds(load: Load, settings: Settings) -> float:
    megabytes = load.records * load.record_bytes / 1e6
    per_round = sum(
        _FIXED_SECONDS[name] + megabytes / _MB_A_SECOND[name] for name in taking_part(settings.contenders, load)
    )
    # A cold round takes about twice as long.
    starting = _START_SECONDS + _TABLES_SECONDS * (settings.rounds + 1)
    return starting + megabytes / _PRODUCED_MB_A_SECOND + per_round * (settings.rounds + 2)
