"""The axis `fleet` of the growth benchmark: cost and promptness of many pipelines of one file, one trial for each figure.

    make bench-growth AXES=fleet                      # 200 pipelines, 500 topics; about an hour
    make bench-growth AXES=fleet=20 ARGS='--minutes 1'
    python -m benchmarks.fleet new_topic HOME 200     # one of them

Each trial has a folder and a stack of its own. CPU is in cores or seconds of all processes of the stack.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import SensorInstigatorData

from benchmarks import freshness, many_topics, topics
from benchmarks.contenders.dagster_stack import commit_time
from benchmarks.freshness import cpu_seconds, postmaster, stock_dagster
from benchmarks.idle_pipelines import (
    PARTITIONS,
    SETTLE_SECONDS,
    await_all_read,
    await_ticks,
    find_topics,
    idle_stack,
    make_topics,
    measure,
    produce,
    running,
    say,
    ticks_since,
    topic,
)
from benchmarks.loads import even, orders_load
from benchmarks.pipelines import write_template
from hudi_ingest.exceptions import EnvironmentProblem
from hudi_ingest.home.folder import Home
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import wait_until
from hudi_ingest.local.progress import Report
from hudi_ingest.local.stack import DAGSTER
from hudi_ingest.operations.health.judgement import LAG_BELOW_LIMIT
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.reports.checks import newest_results
from hudi_ingest.orchestration.tags import ACTIVE
from hudi_ingest.pipeline.folder import load_folder
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline
from hudi_ingest_tests.lab import postgresql

TOPICS_PER_PIPELINE = 2.5
"""So that the definitions are of 500 topics when 200 pipelines run."""
BUSY_RECORDS = 100
BUSY_INTERVAL_SECONDS = 60
TOGETHER_RECORDS = 20_000
IDLE_MINUTES = 3.0
FRESHNESS_MINUTES = 10.0
"""More than these changes nothing about the figures of idle pipelines and of freshness."""
_LAST_SECONDS = 900.0
_LOOK_SECONDS = 0.25
FIGURES = "figures.json"

Trial = Callable[[Path, int, float, Report], dict[str, Any]]


def trial(name: str, root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    """Run a trial, one of TRIALS, in a process of its own, because a process has one Spark, and return its figures. `minutes`: how long
    one lasts that has no end of its own. Raises EnvironmentProblem."""
    report(f"fleet: {name.replace('_', ' ')}")
    command = [sys.executable, "-m", "benchmarks.fleet", name, str(root / name), str(pipelines)]
    done = subprocess.run([*command, "--minutes", str(minutes)], stdout=sys.stderr, check=False)
    if done.returncode:
        raise EnvironmentProblem(f"the trial {name} failed: see above, and the logs in {root / name / 'logs'}.")
    figures: dict[str, Any] = json.loads((root / name / FIGURES).read_text())
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("home", type=Path)
    parser.add_argument("pipelines", type=int)
    parser.add_argument("--minutes", type=float, default=15.0)
    options = parser.parse_args()
    root = options.home.resolve()
    root.mkdir(parents=True, exist_ok=True)
    figures = TRIALS[options.trial](root, options.pipelines, options.minutes, say)
    text = json.dumps({"load": round(os.getloadavg()[0], 1), **figures}, indent=2)
    (root / FIGURES).write_text(text)
    say(text)


def _definitions(root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    return many_topics.measured(_topics(pipelines))


def _topics(pipelines: int) -> int:
    return round(pipelines * TOPICS_PER_PIPELINE)


def _home(root: Path) -> Home:
    return Home(root, root / "pipelines", f"sqlite:///{root / 'ledger.db'}")


def _idle(root: Path, pipelines: int, minutes: float, report: Report, *, files: bool = False) -> dict[str, Any]:
    home = _home(root)
    with idle_stack(home, pipelines, files=files) as stack:
        return measure(home, stack, min(minutes, IDLE_MINUTES))


def _idle_files(root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    return _idle(root, pipelines, minutes, report, files=True)


def _idle_stock(root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    minutes = min(minutes, IDLE_MINUTES)
    with ExitStack() as started:
        url = started.enter_context(postgresql.running())
        if url is None:
            raise EnvironmentProblem("PostgreSQL is not installed; on Debian, `apt-get install postgresql`.")
        home = Home(root, root / "pipelines", url)
        stack = started.enter_context(idle_stack(home, pipelines))
        folder, processes = started.enter_context(stock_dagster(home, stack, url))
        instance = started.enter_context(DagsterInstance.from_config(str(folder)))
        names = {COORDINATOR}
        began = time.time()
        while not names <= _ticked(instance, began):
            if time.time() > began + _LAST_SECONDS:
                raise EnvironmentProblem(
                    f"{len(names - _ticked(instance, began))} of {len(names)} coordinators have not ticked; see the logs in {home.logs}."
                )
            time.sleep(_LOOK_SECONDS)
        time.sleep(SETTLE_SECONDS)
        trees = {record.name: record.pid for record in stack.processes if record.name not in DAGSTER}
        trees |= {**processes, "postgresql": postmaster(url)}
        before, since = cpu_seconds(trees), time.time()
        time.sleep(minutes * 60)
        used, seconds = cpu_seconds(trees), time.time() - since
        cores = {name: round((used[name] - before[name]) / seconds, 3) for name in trees}
        return {"pipelines": pipelines, "minutes": minutes, "cores": round(sum(cores.values()), 3), "cores_of": cores}


def _ticked(instance: DagsterInstance, since: float) -> set[str]:
    states = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    return {
        state.instigator_name
        for state in states
        if isinstance(state.instigator_data, SensorInstigatorData)
        and (state.instigator_data.last_tick_timestamp or 0.0) >= since
    }


def _new_topic(root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    """Time from a topic's creation to the first run of its pipeline, and the ticks of the others meanwhile, once each has had the full
    look that follows a start."""
    home, topics = _home(root), _topics(pipelines)
    with idle_stack(home, topics) as stack, Ledger.open(home.ledger_url) as ledger:
        while len(ledger.requests.ticked()) < topics:
            time.sleep(_LOOK_SECONDS)
        await_ticks(home)
        began = time.time()
        make_topics(stack.bootstrap_servers, topics + 1)
        wanted = RunsFilter(tags={tags.PIPELINE: topic(topics).replace(".", "_")})
        with DagsterInstance.from_config(str(home.dagster)) as instance:
            while not (found := instance.get_run_records(wanted, limit=1)):
                if time.time() > began + _LAST_SECONDS:
                    raise EnvironmentProblem(
                        f"topic {topic(topics)} has had no run for {_LAST_SECONDS:g} s; see the logs in {home.logs}."
                    )
                time.sleep(_LOOK_SECONDS)
        ticks = ticks_since(home, began)
        return {
            "topics": topics,
            "topic_to_run_seconds": round(found[0].create_timestamp.timestamp() - began, 1),
            "ticks_meanwhile": len(ticks.seconds),
            "longest_between_ticks_seconds": round(max(ticks.gaps, default=0.0), 1),
        }


def _busy(root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    """Send each topic its records in each interval, and find out whether each pipeline has kept its interval."""
    home, intervals = _home(root), max(1, round(minutes * 60 / BUSY_INTERVAL_SECONDS))
    with idle_stack(home, pipelines, BUSY_INTERVAL_SECONDS, copied=False) as stack:
        loaded = load_folder(home.pipelines).pipelines
        began = time.time()
        producer = Producer({"bootstrap.servers": stack.bootstrap_servers})
        for interval in range(intervals):
            for number in range(pipelines):
                # Evenly: each topic has its own time within the interval.
                due = began + (interval + number / pipelines) * BUSY_INTERVAL_SECONDS
                time.sleep(max(0.0, due - time.time()))
                produce(producer, [topic(number)], BUSY_RECORDS)
            report(f"fleet: {(interval + 1) * BUSY_RECORDS * pipelines:,} records in {time.time() - began:.0f} s")
        load, produced_until = os.getloadavg()[0], time.time()
        await_all_read(home)
        read_after = time.time() - produced_until
        with DagsterInstance.from_config(str(home.dagster)) as instance:
            since = RunsFilter(created_after=datetime.fromtimestamp(began, timezone.utc))
            runs = [run for run in instance.get_run_records(since) if tags.TRANSACTION in run.dagster_run.tags]
            checks = newest_results(instance, loaded, LAG_BELOW_LIMIT)
        begun = defaultdict[str, list[float]](list)
        for run in runs:
            begun[run.dagster_run.tags[tags.PIPELINE]].append(run.create_timestamp.timestamp())
        gaps = sorted(later - earlier for times in begun.values() for earlier, later in pairwise(sorted(times)))
        return {
            "pipelines": pipelines,
            "intervals": intervals,
            "load": round(load, 1),
            "transactions": len(runs),
            "failed_runs": sum(run.dagster_run.status is DagsterRunStatus.FAILURE for run in runs),
            "between_transactions_p50_seconds": round(median(gaps), 1) if gaps else None,
            "between_transactions_p99_seconds": round(gaps[int(0.99 * (len(gaps) - 1))], 1) if gaps else None,
            "longest_between_transactions_seconds": round(gaps[-1], 1) if gaps else None,
            "all_read_after_seconds": round(read_after, 1),
            "lag_checks_green": sum(all(finding.passed for finding in found.values()) for found in checks.values()),
        }


def _together(root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    """Let a tenth of the pipelines commit at once: new tables first, and then those."""
    home, count = _home(root), max(1, round(pipelines / 10))
    load = orders_load("", even(TOGETHER_RECORDS, PARTITIONS))
    loads = [replace(load, name=f"together-{number:04d}") for number in range(count + 1)]
    home.pipelines.mkdir(parents=True)
    with running(home) as stack, Ledger.open(home.ledger_url) as ledger:
        for each in loads:
            topics.produce(each, stack.bootstrap_servers, report)
        write_template(home.pipelines, "together", load, stack.bootstrap_servers, home.tables)
        find_topics(home, "together")
        # The first one starts Python workers, and lets the JVM load its classes.
        first, *others = load_folder(home.pipelines).pipelines
        _commit_at_once(home, ledger, [first], 1)
        new = _commit_at_once(home, ledger, others, 1)
        for each in loads[1:]:
            topics.append(each, stack.bootstrap_servers, report)
        return {
            "pipelines": count,
            "all_committed_seconds": new,
            "second_all_committed_seconds": _commit_at_once(home, ledger, others, 2),
        }


def _commit_at_once(home: Home, ledger: Ledger, pipelines: Sequence[Pipeline], commit: int) -> float:
    """Switch the pipelines on until each has this number of commits; return the seconds from the first tick that requested one."""
    began, committed = time.time(), list[float]()
    for pipeline in pipelines:
        ledger.requests.switch(pipeline.name, True)
    for pipeline in pipelines:
        found = wait_until(
            partial(commit_time, pipeline.table.base_path, commit),
            what=f"{pipeline.name} has committed (the logs are in {home.logs})",
            timeout_seconds=_LAST_SECONDS,
        )
        committed.append(found)
    for pipeline in pipelines:
        ledger.requests.switch(pipeline.name, False)
    with DagsterInstance.from_config(str(home.dagster)) as instance:
        wait_until(
            lambda: not instance.get_run_ids(RunsFilter(statuses=ACTIVE)),
            what="all runs have ended",
            timeout_seconds=_LAST_SECONDS,
        )
    return round(max(committed) - min(ticks_since(home, began).requested_at), 1)


def _freshness(root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    return freshness.figures(root, min(minutes, FRESHNESS_MINUTES), stock=False, report=report)


def _freshness_stock(root: Path, pipelines: int, minutes: float, report: Report) -> dict[str, Any]:
    return freshness.figures(root, min(minutes, FRESHNESS_MINUTES), stock=True, report=report)


TRIALS: Mapping[str, Trial] = {
    "definitions": _definitions,
    "idle": _idle,
    "idle_files": _idle_files,
    "idle_stock": _idle_stock,
    "new_topic": _new_topic,
    "busy": _busy,
    "together": _together,
    "freshness": _freshness,
    "freshness_stock": _freshness_stock,
}


if __name__ == "__main__":
    main()
