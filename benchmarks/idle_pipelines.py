"""What idle pipelines cost: CPU, memory and ticks of a whole stack whose pipelines come from one template file.

    python -m benchmarks.idle_pipelines HOME 200 [--minutes 3]

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

import psutil
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import ProcessTrees
from hudi_ingest.home.folder import HOME_VARIABLE, LEDGER_VARIABLE, PIPELINES_VARIABLE, Home
from hudi_ingest.kafka.cluster import Topic, kept_cluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.local.processes import free_port
from hudi_ingest.local.stack import Stack, StackSettings, bring_down, bring_up
from hudi_ingest.operations.topic_discovery import refresh_topics
from hudi_ingest.pipeline.folder import find_template, load_folder
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.run import run_transaction

PARTITIONS = 4
_RECORDS = 20
_SETTLE_SECONDS = 30
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since it started, and memory in MB, of a process with all its children."""

    cpu_seconds: float
    memory_mb: float


def topic(number: int) -> str:
    return f"idle.{number:04d}"


def write_template(home: Home, *, enabled: bool, interval_seconds: float | None) -> None:
    home.pipelines.mkdir(parents=True, exist_ok=True)
    settings = {
        "name": "{topic}",
        "enabled": enabled,
        "source": {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics_pattern": r"idle\..+"},
        "table": {
            "base_path": f"{home.tables}/{{topic}}",
            "schema": "id string not null, n long, amount decimal(10,2)",
        },
        **({"transaction": {"interval_seconds": interval_seconds}} if interval_seconds else {}),
    }
    path = home.pipelines / "idle.yaml"
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
    producer = Producer({"bootstrap.servers": servers})
    for name in missing:
        for number in range(_RECORDS):
            record = json.dumps({"id": f"{name}-{number}", "n": number, "amount": "1.50"})
            producer.produce(name, record, partition=number % PARTITIONS)
    if producer.flush(_TIMEOUT_SECONDS):
        raise TimeoutError(f"the broker did not take all records within {_TIMEOUT_SECONDS} s")
    return missing


def make_tables(home: Home) -> None:
    """Run the first pipeline's first transaction, and give the other pipelines copies of its table, with their own topic in it."""
    with Ledger.open(home.ledger_url) as ledger:
        refresh_topics(find_template(home.pipelines, "idle"), home, ledger, datetime.now(timezone.utc))
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
    """Seconds between two ticks of one pipeline's sensor."""


def ticks_since(home: Home, since: float) -> Ticks:
    database = home.dagster / "schedules" / "schedules.db"
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT status, tick_body FROM job_ticks WHERE type = 'SENSOR'").fetchall()
    seconds, statuses, began = [], dict[str, int](), dict[str, list[float]]()
    for status, text in rows:
        data = json.loads(text)
        if data["timestamp"] < since or not data.get("end_timestamp"):
            continue
        statuses[status] = statuses.get(status, 0) + 1
        name = data.get("instigator_name") or data.get("job_name") or ""
        if name.endswith(("_coordinator", "_coordinators")):
            seconds.append(data["end_timestamp"] - data["timestamp"])
            began.setdefault(name, []).append(data["timestamp"])
    gaps = [
        later - earlier
        for times in began.values()
        for earlier, later in zip(sorted(times), sorted(times)[1:], strict=False)
    ]
    return Ticks(seconds, statuses, gaps)


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


def measure(home: Home, stack: Stack, minutes: float) -> None:
    """Wait until every pipeline has ticked, then print what each process used in `minutes`."""
    count = len(load_folder(home.pipelines).pipelines)
    began = time.time()
    while len(ticks_since(home, began).seconds) < count:
        time.sleep(2)
        if time.time() > began + 900:
            raise TimeoutError(
                f"not all of {count} pipelines have ticked within 900 s: {ticks_since(home, began).statuses}"
            )
    say(f"all have ticked after {time.time() - began:.0f} s")
    time.sleep(_SETTLE_SECONDS)
    before, since = usages(stack), time.time()
    time.sleep(minutes * 60)
    after, passed = usages(stack), (time.time() - since) / 60
    ticks = ticks_since(home, since)
    total = 0.0
    say(f"{count} pipelines, {passed:.1f} minutes, load {os.getloadavg()[0]:.1f}")
    for name, usage in after.items():
        cpu = (usage.cpu_seconds - before[name].cpu_seconds) / passed
        total += cpu
        say(f"  {name:22} {cpu:6.1f} CPU s a minute, {usage.memory_mb:6.0f} MB")
    say(f"  {'all':22} {total:6.1f} CPU s a minute: {total / 60:.2f} cores")
    if ticks.seconds:
        slowest = sorted(ticks.seconds)[int(0.95 * len(ticks.seconds))]
        say(
            f"  {len(ticks.seconds) / passed:.0f} ticks a minute; a tick {median(ticks.seconds):.2f} s, 95 % below {slowest:.2f} s; "
            f"every {median(ticks.gaps or [0.0]):.0f} s, at most {max(ticks.gaps, default=0):.0f} s; {ticks.statuses}"
        )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("pipelines", type=int)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--interval", type=float, help="interval_seconds, if not the default")
    parser.add_argument("--wait", action="store_true", help="stay up until a line comes in")
    options = parser.parse_args()
    root = options.home.resolve()
    home = Home(root, root / "pipelines", f"sqlite:///{root / 'ledger.db'}")
    write_template(home, enabled=False, interval_seconds=options.interval)
    with running(home) as stack:
        make_topics(stack.bootstrap_servers, options.pipelines)
        make_tables(home)
        write_template(home, enabled=True, interval_seconds=options.interval)
        say(f"stack {json.dumps({record.name: record.pid for record in stack.processes})} {stack.url}")
        measure(home, stack, options.minutes)
        if options.wait:
            sys.stdin.readline()


if __name__ == "__main__":
    main()
