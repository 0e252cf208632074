"""How old a record is when readers see it: five pipelines with `interval_seconds: 2` get 200 records a second each, and hudi-rs reads every
commit as soon as it is on the timeline.

    python -m benchmarks.freshness HOME [--minutes 10] [--stock [--spawned]]

`--stock`: Dagster as its own commands start it, with its own daemon, on PostgreSQL through the storage that keeps its connections,
beside our broker, engine, launcher and code server; `--spawned`: with Dagster's own launcher.
What the seconds are made of is from Dagster's events of the runs, CPU from the processes. HOME must be new.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import psycopg2
import pyarrow as pa
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from dagster import DagsterInstance, DagsterRunStatus, RunRecord, RunsFilter
from hudi import HudiQueryType, HudiReadOptions, HudiTable

from benchmarks.idle_pipelines import find_topics, running, say
from benchmarks.measure import ProcessTrees
from hudi_ingest.home.folder import LEDGER_VARIABLE, Home
from hudi_ingest.hudi.storage.paths import INSTANT_FILE, TIMELINE
from hudi_ingest.local import dagster_api
from hudi_ingest.local.processes import ProcessRecord, free_port, start, stop, wait_until
from hudi_ingest.local.stack import DAGSTER, Stack
from hudi_ingest.orchestration import tags
from hudi_ingest.orchestration.embedded.step_logs import FileComputeLogManager
from hudi_ingest.orchestration.postgres_storage import PooledPostgresStorage
from hudi_ingest.orchestration.run_launcher import ForkingRunLauncher
from hudi_ingest_tests.lab import postgresql

PIPELINES = 5
RECORDS_A_SECOND = 200
INTERVAL_SECONDS = 2
PARTITIONS = 4
MINUTES = 10.0
_START_SECONDS = 600
_LAST_SECONDS = 300
_BATCHES_A_SECOND = 20
_LOOK_SECONDS = 0.05
_RESOLUTION_NS = 20_000_000
_TEMPLATE = "fresh"


@dataclass
class Seen:
    """What hudi-rs has returned from a table so far, as of a timeline that changed last at `changed_at` (ns). `ages`: seconds from a record's
    own time to when it was returned, by that time; `archived`: queries that failed because archival had deleted a file of the timeline since
    hudi-rs listed it, and were repeated."""

    base_path: str
    changed_at: int = 0
    instants: frozenset[str] = frozenset()
    newest: str = ""
    ends: dict[int, int] = field(default_factory=dict)
    ages: list[tuple[float, float]] = field(default_factory=list)
    archived: int = 0

    def look(self) -> None:
        """Read the commits that are new on the timeline."""
        try:
            self._look()
        except Exception as error:  # hudi-rs does not export its errors
            self.changed_at = 0
            if ".hoodie/timeline" not in str(error) or "not found" not in str(error):
                raise
            self.archived += 1

    def _look(self) -> None:
        timeline = Path(self.base_path, TIMELINE)
        changed_at = timeline.stat().st_mtime_ns if timeline.exists() else 0
        if changed_at == self.changed_at:
            return
        files = [file for path in timeline.iterdir() if (file := INSTANT_FILE.fullmatch(path.name))]
        completed = frozenset(file[0] for file in files if file["completed"])
        # A file that is added within the clock's resolution changes no time.
        self.changed_at = changed_at if time.time_ns() - changed_at > _RESOLUTION_NS else 0
        if not (new := completed - self.instants):
            return
        # Incremental queries go by when commits were completed.
        newest = max(file["completed"] or "" for file in files)
        options = HudiReadOptions().with_query_type(HudiQueryType.Incremental).with_end_timestamp(newest)
        if self.newest:
            options = options.with_start_timestamp(self.newest)
        rows = self._rows(options)
        if any(name.endswith(".commit") for name in new) and not self._goes_on(rows):
            raise LookupError(
                f"hudi-rs returned {len(rows)} rows of {self.base_path} for ({self.newest}, {newest}], which do not go on where those before "
                f"ended. New on the timeline: {' '.join(sorted(new))}"
            )
        now, ends = time.time(), dict(self.ends)
        self.instants, self.newest = completed, newest
        for partition, offset, at in rows:
            # A clustering's commit has rows that are known.
            if offset >= self.ends.get(partition, 0):
                self.ages.append((at / 1e6, now - at / 1e6))
                ends[partition] = max(offset + 1, ends.get(partition, 0))
        self.ends = ends

    def _rows(self, options: HudiReadOptions) -> list[tuple[int, int, int]]:
        """(partition, offset, microseconds of the record's time) of each row."""
        columns = ["_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
        batches = HudiTable(self.base_path).read(options.with_projection(columns))
        if not batches:
            return []
        rows = pa.Table.from_batches(batches)
        times = rows[columns[2]].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        return list(zip(rows[columns[0]].to_pylist(), rows[columns[1]].to_pylist(), times, strict=True))

    def _goes_on(self, rows: Sequence[tuple[int, int, int]]) -> bool:
        """Whether there are new rows, which continue where those before ended, offset by offset."""
        new: dict[int, list[int]] = defaultdict(list)
        for partition, offset, _ in rows:
            if offset >= self.ends.get(partition, 0):
                new[partition].append(offset)
        ends = {partition: max(offsets) + 1 for partition, offsets in new.items()}
        return bool(ends) and all(len(new[each]) == end - self.ends.get(each, 0) for each, end in ends.items())


def _produce(servers: str, topics: Sequence[str], counts: dict[str, int], ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    began, batch = time.monotonic(), 0
    while not ended.wait(max(0.0, began + batch / _BATCHES_A_SECOND - time.monotonic())):
        batch += 1
        for topic in topics:
            for _ in range(RECORDS_A_SECOND // _BATCHES_A_SECOND):
                number = counts[topic]
                record = json.dumps({"id": f"{topic}-{number}", "n": number, "amount": "1.50"})
                producer.produce(topic, record, partition=number % PARTITIONS)
                counts[topic] += 1
        producer.poll(0)
    if producer.flush(_LAST_SECONDS):
        raise TimeoutError("the broker did not take all records")


def _read(tables: Sequence[Seen], ended: threading.Event) -> None:
    while not ended.wait(_LOOK_SECONDS):
        for table in tables:
            table.look()


def _prepare(home: Home, servers: str) -> list[str]:
    topics = [f"{_TEMPLATE}.{number}" for number in range(PIPELINES)]
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        created.result(_START_SECONDS)
    settings = {
        "name": "{topic}",
        "enabled": True,
        "source": {"bootstrap_servers": servers, "topics_pattern": rf"{_TEMPLATE}\..+"},
        "table": {
            "base_path": f"{home.tables}/{{topic}}",
            "schema": "id string not null, n long, amount decimal(10,2)",
        },
        "transaction": {"interval_seconds": INTERVAL_SECONDS, "ops": "one"},
    }
    home.pipelines.mkdir(parents=True, exist_ok=True)
    (home.pipelines / f"{_TEMPLATE}.yaml").write_text(yaml.safe_dump(settings))
    find_topics(home, _TEMPLATE)
    return topics


@contextmanager
def stock_dagster(
    home: Home, stack: Stack, ledger_url: str, *, spawned: bool = False
) -> Iterator[tuple[Path, dict[str, int]]]:
    """Replace the stack's Dagster by one as Dagster's own commands start it, on PostgreSQL through the storage that keeps its
    connections, which `hudi-ingest code-server` serves. `spawned`: runs, by Dagster's own launcher. Yields its folder and the processes
    of both, by name."""
    by_name = {process.name: process for process in stack.processes}
    stop([by_name[name] for name in DAGSTER])
    folder = home.root / "stock"
    folder.mkdir()
    config = {"postgres_url": ledger_url.replace("+psycopg2", "")}
    storage = {
        "custom": {
            "module": PooledPostgresStorage.__module__,
            "class": PooledPostgresStorage.__name__,
            "config": config,
        }
    }
    logs = {
        "module": FileComputeLogManager.__module__,
        "class": FileComputeLogManager.__name__,
        "config": {"base_dir": str(folder / "logs")},
    }
    # The settings of an instance that docs/operations.md recommends for fresh tables.
    settings = {
        "storage": storage,
        "compute_logs": logs,
        "run_queue": {"dequeue_interval_seconds": 1, "dequeue_use_threads": True, "dequeue_num_workers": 4},
        "telemetry": {"enabled": False},
    }
    if not spawned:
        settings["run_launcher"] = {"module": ForkingRunLauncher.__module__, "class": ForkingRunLauncher.__name__}
    (folder / "dagster.yaml").write_text(yaml.safe_dump(settings))
    code_port = free_port()
    server = {"host": "127.0.0.1", "port": code_port, "location_name": dagster_api.LOCATION}
    (folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))
    environment = {**os.environ, **stack.environment, "DAGSTER_HOME": str(folder), LEDGER_VARIABLE: ledger_url}
    # Only one process at a time makes an instance's tables.
    with DagsterInstance.from_config(str(folder)):
        pass
    port = free_port()
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    serve = [sys.executable, "-m", "hudi_ingest.cli", "code-server", "--port", str(code_port)]
    records = list[ProcessRecord]()
    try:
        for name, each in {"code-server": serve, "dagster": command}.items():
            records.append(start(name, each, log=home.logs / "stock.log", env=environment, cwd=folder))
        wait_until(
            lambda: dagster_api.daemons_are_healthy(f"http://127.0.0.1:{port}"),
            what="Dagster's daemons have reported",
            timeout_seconds=_START_SECONDS,
            records_to_watch=records,
        )
        yield folder, {record.name: record.pid for record in records}
    finally:
        stop(records)


def postmaster(url: str) -> int:
    with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return psutil.Process(cursor.fetchone()[0]).ppid()


def _transactions(instance: DagsterInstance, since: float) -> list[RunRecord]:
    """Return the runs of the transactions that were requested after `since`."""
    after = RunsFilter(statuses=[DagsterRunStatus.SUCCESS], created_after=datetime.fromtimestamp(since, timezone.utc))
    return [each for each in instance.get_run_records(after) if tags.TRANSACTION in each.dagster_run.tags]


def _has_merged(instance: DagsterInstance) -> bool:
    merges = RunsFilter(statuses=[DagsterRunStatus.SUCCESS], tags={tags.MERGING: "true"})
    return instance.get_runs_count(merges) > 0


def _parts(instance: DagsterInstance, records: Sequence[RunRecord]) -> dict[str, dict[str, float]]:
    """Return p50 and p99, in seconds, of what a transaction's time is made of."""
    found = defaultdict[str, list[float]](list)
    by_pipeline = defaultdict[str, list[RunRecord]](list)
    for record in records:
        by_pipeline[record.dagster_run.tags[tags.PIPELINE]].append(record)
        created, started, ended = record.create_timestamp.timestamp(), record.start_time or 0.0, record.end_time or 0.0
        steps = sorted(
            (step.start_time or 0.0, step.end_time or 0.0, step.step_key)
            for step in instance.get_run_step_stats(record.dagster_run.run_id)
        )
        found["requested → run has started"].append(started - created)
        found["→ begin op"].append(steps[0][0] - started)
        found["begin"].append(steps[0][1] - steps[0][0])
        found["writes"].append(steps[-1][0] - steps[0][1])
        found["commit op"].append(steps[-1][1] - steps[-1][0])
        found["→ run has ended"].append(ended - steps[-1][1])
        found["requested → run has ended"].append(ended - created)
    for runs in by_pipeline.values():
        runs.sort(key=lambda record: record.create_timestamp)
        for earlier, later in pairwise(runs):
            created = later.create_timestamp.timestamp()
            found["requested → next requested"].append(created - earlier.create_timestamp.timestamp())
            found["ended → next requested"].append(created - (earlier.end_time or 0.0))
    return {name: _percentiles(seconds) for name, seconds in found.items()}


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"p50": round(median(ordered), 2), "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 2)}


def figures(
    root: Path, minutes: float, *, stock: bool, spawned: bool = False, report: Callable[[str], None]
) -> dict[str, Any]:
    """Measure for `minutes` with a stack of its own in `root`, a new folder. Raises TimeoutError if not all records are read."""
    with ExitStack() as started:
        ledger_url = f"sqlite:///{root / 'ledger.db'}"
        if stock:
            url = started.enter_context(postgresql.running())
            if url is None:
                raise FileNotFoundError("PostgreSQL is not installed")
            ledger_url = url
        home = Home(root, root / "pipelines", ledger_url)
        home.pipelines.mkdir(parents=True, exist_ok=True)
        stack = started.enter_context(running(home))
        topics = _prepare(home, stack.bootstrap_servers)
        dagster_home, trees = home.dagster, {record.name: record.pid for record in stack.processes}
        if stock:
            dagster_home, processes = started.enter_context(stock_dagster(home, stack, ledger_url, spawned=spawned))
            trees = {name: pid for name, pid in trees.items() if name not in DAGSTER}
            trees |= {**processes, "postgresql": postmaster(ledger_url)}
        instance = started.enter_context(DagsterInstance.from_config(str(dagster_home)))
        tables = [Seen(str(home.tables / topic)) for topic in topics]
        counts = dict.fromkeys(topics, 0)
        executor = started.enter_context(ThreadPoolExecutor(2))
        enough, all_read = threading.Event(), threading.Event()
        started.callback(all_read.set)
        started.callback(enough.set)
        works = [
            executor.submit(_read, tables, all_read),
            executor.submit(_produce, stack.bootstrap_servers, topics, counts, enough),
        ]
        _until(lambda: all(table.ages for table in tables), "each pipeline has committed", _START_SECONDS, works)
        report(
            "all pipelines have committed; waiting until files of one have been merged, so that the JVM has done all its work once"
        )
        _until(lambda: _has_merged(instance), "files of a table have been merged", _START_SECONDS, works)
        since, before = time.time(), cpu_seconds(trees)
        time.sleep(minutes * 60)
        until, used = time.time(), {name: cpu - before[name] for name, cpu in cpu_seconds(trees).items()}
        load = os.getloadavg()[0]
        enough.set()
        works[1].result()
        _until(
            lambda: all(len(table.ages) == counts[topic] for table, topic in zip(tables, topics, strict=True)),
            "hudi-rs has returned every record once",
            _LAST_SECONDS,
            works,
        )
        ages = [age for table in tables for at, age in table.ages if since <= at < until]
        transactions = _transactions(instance, since)
        return {
            **{f"visible_{name}_seconds": seconds for name, seconds in _percentiles(ages).items()},
            "transactions": len(transactions),
            "cpu_seconds_a_transaction": round(sum(used.values()) / len(transactions), 2),
            "pipelines": PIPELINES,
            "records": len(ages),
            "parts": _parts(instance, transactions),
            "cores": {name: round(seconds / (until - since), 3) for name, seconds in used.items()},
            "load": round(load, 1),
            "queries_beside_archival": sum(table.archived for table in tables),
            "live_files": [len(HudiTable(table.base_path).get_file_slices()) for table in tables],
        }


def cpu_seconds(trees: Mapping[str, int]) -> dict[str, float]:
    return {name: ProcessTrees((pid,)).sample().cpu_seconds for name, pid in trees.items()}


def _until(holds: Callable[[], bool], what: str, seconds: float, works: Sequence[Future[None]]) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        for work in works:
            if work.done():
                work.result()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(_LOOK_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--spawned", action="store_true")
    options = parser.parse_args()
    measured = figures(
        options.home.resolve(), options.minutes, stock=options.stock, spawned=options.spawned, report=say
    )
    say(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
