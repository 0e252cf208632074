"""The cost of idle pipelines: CPU, memory and ticks of a whole stack whose pipelines come from one template file, or have a file each.

    python -m benchmarks.idle_pipelines HOME 200 [--minutes 3] [--files]

The first call makes topics and tables, which stay in HOME for the next; a larger number adds the missing ones. All sensors are on, with
default intervals, and all topics have one committed transaction. CPU, not wall clock: other work may go on beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import ProcessTrees
from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home
from hudi_ingest.kafka.cluster import Topic, kept_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import free_port
from hudi_ingest.local.stack import Stack, StackSettings, bring_down, bring_up
from hudi_ingest.operations.topic_discovery import refresh_topics
from hudi_ingest.pipeline.folder import find_template, load_folder
from hudi_ingest.pipeline.pipeline import COORDINATOR, Pipeline
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest.transaction.run import run_transaction

PARTITIONS = 4
_RECORDS = 20
SETTLE_SECONDS = 60
"""For what a code server does once after it has loaded the pipelines, before what it does all the time is measured."""
_FIRST_TICK_SECONDS = 900
_ALL_READ_SECONDS = 3600
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since it started, and memory in MB, of a process with all its children."""

    cpu_seconds: float
    memory_mb: float


def topic(number: int) -> str:
    return f"idle.{number:04d}"


def write_template(home: Home, *, enabled: bool, interval_seconds: float | None) -> None:
    settings = _settings(home, "{topic}", enabled=enabled, interval_seconds=interval_seconds)
    _write(home, "idle", {**settings, "source": {**settings["source"], "topics_pattern": r"idle\..+"}})


def write_files(home: Home, count: int, *, enabled: bool, interval_seconds: float | None) -> None:
    """Give each of the first `count` topics a file, instead of the template."""
    (home.pipelines / "idle.yaml").unlink(missing_ok=True)
    for name in map(topic, range(count)):
        settings = _settings(home, name, enabled=enabled, interval_seconds=interval_seconds)
        own = {"name": name.replace(".", "_"), "source": {**settings["source"], "topics": [name]}}
        _write(home, name, {**settings, **own})


def _settings(home: Home, topic: str, *, enabled: bool, interval_seconds: float | None) -> dict[str, Any]:
    return {
        "name": topic,
        "enabled": enabled,
        "source": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}"},
        "table": {"base_path": f"{home.tables}/{topic}", "schema": "id string not null, n long, amount decimal(10,2)"},
        # One op for all Kafka partitions: docs/many-topics.md advises it where there are hundreds of topics.
        "transaction": {"ops": "one", **({"interval_seconds": interval_seconds} if interval_seconds else {})},
    }


def _write(home: Home, name: str, settings: Mapping[str, Any]) -> None:
    home.pipelines.mkdir(parents=True, exist_ok=True)
    path = home.pipelines / f"{name}.yaml"
    if not path.exists() or path.read_text() != yaml.safe_dump(settings):
        path.write_text(yaml.safe_dump(settings))


def make_topics(servers: str, count: int) -> list[str]:
    """Create those of the first `count` topics that are missing, with a few records, and return them."""
    admin = AdminClient({"bootstrap.servers": servers})
    existing = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
    missing = [name for name in map(topic, range(count)) if name not in existing]
    if not missing:
        return []
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in missing]).values():
        created.result(_TIMEOUT_SECONDS)
    produce(Producer({"bootstrap.servers": servers}), missing, _RECORDS)
    return missing


def produce(producer: Producer, topics: Iterable[str], records: int) -> None:
    """Send each topic so many records, and wait until the broker has them."""
    for name in topics:
        for number in range(records):
            record = json.dumps({"id": f"{name}-{number}", "n": number, "amount": "1.50"})
            producer.produce(name, record, partition=number % PARTITIONS)
    if producer.flush(_TIMEOUT_SECONDS):
        raise TimeoutError(f"the broker did not take all records within {_TIMEOUT_SECONDS} s")


def find_topics(home: Home, template: str) -> None:
    """Give the template the topics that the broker has, at once."""
    with Ledger.open(home.ledger_url) as ledger:
        refresh_topics(find_template(home.pipelines, template), home, ledger, datetime.now(timezone.utc))


def make_tables(home: Home) -> None:
    """Run the first pipeline's first transaction, and give the other pipelines copies of its table, with their own topic in it."""
    pipelines = load_folder(home.pipelines).pipelines
    first = pipelines[0]
    if not (Path(first.table.base_path) / ".hoodie").exists():
        run_transaction(first)
    ids = {name: described.topic_id for source in pipelines for name, described in topics_of(source).items()}
    for pipeline in pipelines[1:]:
        if not (Path(pipeline.table.base_path) / ".hoodie").exists():
            _copy_table(first, pipeline, ids)


def topics_of(pipeline: Pipeline) -> dict[str, Topic]:
    with kept_cluster(pipeline.source) as cluster:
        return cluster.topics()


def _copy_table(first: Pipeline, other: Pipeline, ids: Mapping[str, str]) -> None:
    """Idle ticks read the timeline only, so the names and ids in it are enough; they are as long as those of the first."""
    (old_topic,), (new_topic,) = first.source.topics, other.source.topics
    names = {old_topic: new_topic, first.name: other.name, ids[old_topic]: ids[new_topic]}
    shutil.copytree(first.table.base_path, other.table.base_path)
    for file in (Path(other.table.base_path) / ".hoodie").rglob("*"):
        # hoodie.properties has a checksum of its table's name.
        if file.is_file() and "metadata" not in file.parts and file.name != "hoodie.properties":
            content = file.read_bytes()
            for old, new in names.items():
                content = content.replace(old.encode(), new.encode())
            file.write_bytes(content)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def usages(stack: Stack) -> dict[str, Usage]:
    found = {record.name: _usage(record.pid) for record in stack.processes}
    server = next(record for record in stack.processes if record.name == "dagster-code-server")
    # The parent watches and forwards, the child has loaded the code.
    own = _own(psutil.Process(server.pid))
    whole = found["dagster-code-server"]
    found["dagster-code-server"] = Usage(whole.cpu_seconds - own.cpu_seconds, whole.memory_mb - own.memory_mb)
    found["its watching parent"] = own
    return found


def _own(process: psutil.Process) -> Usage:
    times = process.cpu_times()
    return Usage(times.user + times.system, process.memory_info().rss / 2**20)


def _usage(pid: int) -> Usage:
    sample = ProcessTrees((pid,)).sample()
    return Usage(sample.cpu_seconds, sample.rss_bytes / 2**20)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Ended ticks of all sensors since a time."""

    seconds: Sequence[float]
    statuses: Mapping[str, int]
    gaps: Sequence[float]
    """Seconds between two ticks of one coordinator."""
    sensors: Set[str]
    """The coordinators that have ticked."""
    requested_at: Sequence[float]
    """When those began that requested runs, in seconds since 1970."""


def ticks_since(home: Home, since: float) -> Ticks:
    database = home.dagster / "schedules" / "schedules.db"
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT status, tick_body FROM job_ticks WHERE type = 'SENSOR'").fetchall()
    seconds, statuses, began, requested_at = [], dict[str, int](), dict[str, list[float]](), []
    for status, text in rows:
        data = json.loads(text)
        if data["timestamp"] < since or not data.get("end_timestamp"):
            continue
        statuses[status] = statuses.get(status, 0) + 1
        name = data.get("instigator_name") or data.get("job_name") or ""
        if name.startswith(COORDINATOR):
            seconds.append(data["end_timestamp"] - data["timestamp"])
            began.setdefault(name, []).append(data["timestamp"])
            if status == "SUCCESS":
                requested_at.append(data["timestamp"])
    gaps = [
        later - earlier
        for times in began.values()
        for earlier, later in zip(sorted(times), sorted(times)[1:], strict=False)
    ]
    return Ticks(seconds, statuses, gaps, began.keys(), requested_at)


@contextmanager
def running(home: Home) -> Iterator[Stack]:
    os.environ.update({HOME_VARIABLE: str(home.root), PIPELINES_VARIABLE: str(home.pipelines)})
    os.environ[LEDGER_VARIABLE] = home.ledger_url
    stack = bring_up(home, StackSettings(free_port(), free_port()), say)
    try:
        os.environ.update(stack.environment)
        yield stack
    finally:
        bring_down(home, say)


@contextmanager
def idle_stack(
    home: Home, count: int, interval_seconds: float | None = None, *, files: bool = False, copied: bool = True
) -> Iterator[Stack]:
    """Run a stack with so many pipelines, all on, whose tables have all that their topics have. `copied`: the tables are copies, which
    idle ticks take for their own, but no transaction does; without, each pipeline makes its own."""
    write_template(home, enabled=False, interval_seconds=interval_seconds)
    with running(home) as stack:
        make_topics(stack.bootstrap_servers, count)
        find_topics(home, "idle")
        if copied:
            make_tables(home)
        if files:
            write_files(home, count, enabled=True, interval_seconds=interval_seconds)
        else:
            write_template(home, enabled=True, interval_seconds=interval_seconds)
        if not copied:
            await_all_read(home)
        yield stack


def await_all_read(home: Home) -> None:
    """Wait until every pipeline has committed all that its topic has."""
    waiting, deadline = [*load_folder(home.pipelines).pipelines], time.monotonic() + _ALL_READ_SECONDS
    while waiting := [pipeline for pipeline in waiting if not _has_read_all(pipeline)]:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(waiting)} pipelines have not read all within {_ALL_READ_SECONDS} s, e.g. {waiting[0].name}"
            )
        time.sleep(1)


def _has_read_all(pipeline: Pipeline) -> bool:
    try:
        seen = observe(pipeline)
    except TableUnreachable:
        # The table is being made.
        return False
    return seen.committed.checkpoint is not None and not seen.lag.total


def await_ticks(home: Home) -> None:
    """Wait until each coordinator has ticked since now."""
    names = {COORDINATOR}
    began = time.time()
    while names - (ticks := ticks_since(home, began)).sensors:
        time.sleep(2)
        if time.time() > began + _FIRST_TICK_SECONDS:
            raise TimeoutError(
                f"{len(ticks.sensors)} of {len(names)} coordinators ticked in {_FIRST_TICK_SECONDS} s: {ticks.statuses}"
            )


def measure(home: Home, stack: Stack, minutes: float) -> dict[str, Any]:
    """Wait until every pipeline's sensor has ticked, then measure what each process uses in `minutes`."""
    await_ticks(home)
    time.sleep(SETTLE_SECONDS)
    before, since = usages(stack), time.time()
    time.sleep(minutes * 60)
    after, seconds = usages(stack), time.time() - since
    ticks = ticks_since(home, since)
    cores = {name: (usage.cpu_seconds - before[name].cpu_seconds) / seconds for name, usage in after.items()}
    ordered = sorted(ticks.seconds) or [0.0]
    return {
        "pipelines": len(load_folder(home.pipelines).pipelines),
        "minutes": round(seconds / 60, 1),
        "load": round(os.getloadavg()[0], 1),
        "cores": round(sum(cores.values()), 3),
        "cores_of": {name: round(used, 3) for name, used in cores.items()},
        "memory_mb_of": {name: round(usage.memory_mb) for name, usage in after.items()},
        "ticks_a_minute": round(len(ticks.seconds) / seconds * 60, 1),
        "tick_seconds": round(median(ordered), 3),
        "tick_p95_seconds": round(ordered[int(0.95 * (len(ordered) - 1))], 3),
        "seconds_between_ticks": round(median(ticks.gaps or [0.0]), 1),
        "longest_between_ticks_seconds": round(max(ticks.gaps, default=0.0), 1),
        "tick_statuses": ticks.statuses,
    }


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("pipelines", type=int)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--files", action="store_true", help="a file for each pipeline instead of a template")
    parser.add_argument("--interval", type=float, help="interval_seconds, if not the default")
    parser.add_argument("--wait", action="store_true", help="stay up until a line comes in")
    options = parser.parse_args()
    root = options.home.resolve()
    home = Home(root, root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
    with idle_stack(home, options.pipelines, options.interval, files=options.files) as stack:
        say(f"stack {json.dumps({record.name: record.pid for record in stack.processes})} {stack.url}")
        say(json.dumps(measure(home, stack, options.minutes), indent=2))
        if options.wait:
            sys.stdin.readline()


if __name__ == "__main__":
    main()
