"""The cluster demo: orders go to S3 by a Spark cluster and an ordinary Dagster on this machine, and a worker dies in the middle."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import yaml

from hudi_ingest.exceptions import EnvironmentProblem, KafkaUnreachable, TableUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.services.catalog_state import read_state
from hudi_ingest.hudi.storage.s3_access import hudi_rs_options
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.tables import AttemptState
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.processes import ProcessRecord, require_running, stop
from hudi_ingest.local.progress import Report, one_interrupt
from hudi_ingest.local.samples import PARTITIONS, TOPIC, OrderProducer
from hudi_ingest.local.verification import Verification, verify
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.lab.cluster_stack import (
    BUCKET,
    WORKERS,
    Platform,
    count_rows,
    emptied,
    running_ingest,
    running_platform,
)
from hudi_ingest_tests.lab.progress import elapsed

TRANSACTIONS = 4
"""Few, because an ordinary Dagster takes about 15 s to begin each; the worker is killed while one of them writes."""
INGEST_SECONDS = 900
_REPORT_SECONDS = 10.0
_STATUS_SECONDS = 2.0
_POLL_SECONDS = 0.1
_SAMPLE_SECONDS = 0.1
_HISTORY = 100


@dataclass(frozen=True, slots=True)
class KilledWorker:
    """A Spark worker that was killed, with all processes that it had started, while `transaction` was writing."""

    name: str
    pid: int
    transaction: str


@dataclass(frozen=True, slots=True)
class ClusterDemoResult:
    """The outcome. `verification` is by hudi-rs, `counted` through the catalog; `repeated`: transactions that were rolled back;
    `workers_left`: Spark's workers that its master had at the end; `store`: the S3 server."""

    records: int
    verification: Verification
    counted: int
    commits: int
    repeated: int
    killed: KilledWorker | None
    workers_left: int
    store: str
    database: str
    seconds: float

    @property
    def failures(self) -> list[str]:
        """Return the promises that did not hold, a sentence each."""
        rows = self.verification
        failures = []
        if not rows.exact:
            failures.append(
                f"hudi-rs does not find each order once: {rows.lost:,} lost, {rows.duplicate:,} duplicate, {rows.foreign:,} foreign"
            )
        counts = {"hudi-rs": rows.rows, "`select count(*)` through the catalog": self.counted}
        for reader, count in counts.items():
            if count != self.records:
                failures.append(f"{reader} finds {count:,} rows instead of {self.records:,}")
        if self.killed is None:
            failures.append("no worker was killed, because all orders were committed before")
        expected = WORKERS - (self.killed is not None)
        if self.workers_left != expected:
            failures.append(f"Spark's master has {self.workers_left} workers left instead of {expected}")
        return failures

    def in_words(self) -> list[str]:
        rows, killed = self.verification, self.killed
        lines = [
            f"{rows.rows:,} rows in {self.commits} commits on {self.store}, with the ledger on {self.database}",
            f"hudi-rs: {rows.lost:,} lost, {rows.duplicate:,} duplicate, {rows.foreign:,} foreign; {self.counted:,} rows through "
            "the catalog",
        ]
        if killed is not None:
            lines.append(
                f"{killed.name} was killed while {killed.transaction} was writing; transactions rolled back: {self.repeated}"
            )
        verdict = [f"it did NOT hold: {failure}" for failure in self.failures] or ["all of it held: exactly once"]
        return [*lines, *verdict, f"everything is stopped, after {self.seconds:.0f} s"]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "failures": self.failures}


def run_cluster_demo(home: Home, records: int, report: Report) -> ClusterDemoResult:
    """Ingest `records` orders into the home, which is emptied first, kill a Spark worker meanwhile, read them back in two ways,
    and stop everything.

    Raises EnvironmentProblem, also if they are not all committed within INGEST_SECONDS.
    """
    began = time.monotonic()
    with one_interrupt() as ignore_further, emptied(home), ExitStack() as running:
        try:
            platform = running.enter_context(running_platform(home, report))
            create_topic(platform.bootstrap_servers, TOPIC, PARTITIONS)
            pipeline = _write_pipeline(platform, records)
            producer = _produce(platform, records, report)
            # What reads the table back needs neither engine nor Dagster, but the CPU that they use.
            with running_ingest(platform, report) as ingest, Ledger.open(platform.home.ledger_url) as ledger:
                killed = _ingest(pipeline, platform, ledger, ingest, records, report)
                history = ledger.transactions.history(pipeline.name, _HISTORY)
            return ClusterDemoResult(
                records=records,
                verification=_verify(pipeline, producer, report),
                counted=_count(pipeline, platform, report),
                commits=sum(row.state is TransactionState.COMMITTED for row in history),
                repeated=sum(row.state is TransactionState.ABORTED for row in history),
                killed=killed,
                workers_left=platform.cluster.workers_alive(),
                store=platform.store.server,
                database=platform.database,
                seconds=time.monotonic() - began,
            )
        finally:
            ignore_further()


def _write_pipeline(platform: Platform, records: int) -> Pipeline:
    content = {
        "name": TOPIC,
        "enabled": True,
        "source": {"bootstrap_servers": platform.bootstrap_servers, "topics": [TOPIC]},
        "table": {
            "base_path": f"s3a://{BUCKET}/{TOPIC}",
            "storage": platform.store.settings(),
            "schema": "id string, ts long, user string, amount double, note string, dt string",
            "partition_by": ["dt"],
        },
        "catalog": {"type": "hms", "uris": platform.metastore},
        "transaction": {
            "interval_seconds": 5,
            "max_records": -(-records // TRANSACTIONS),
            # The ops run in processes of their own even if the demo is a small one.
            "ops": "parallel",
        },
    }
    folder = platform.home.pipelines
    folder.mkdir(parents=True)
    path = folder / f"{TOPIC}.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return load_pipeline(path)


def _produce(platform: Platform, records: int, report: Report) -> OrderProducer:
    report(f"producing {records:,} orders to {PARTITIONS} Kafka partitions")
    producer = OrderProducer(platform.bootstrap_servers, seed=1)
    with elapsed(report, "producing orders"):
        producer.produce(records)
    return producer


def _ingest(
    pipeline: Pipeline,
    platform: Platform,
    ledger: Ledger,
    ingest: Sequence[ProcessRecord],
    records: int,
    report: Report,
) -> KilledWorker | None:
    """Wait until all records are committed, and kill a worker while one of the transactions writes. Returns None if there was no
    such moment."""
    report(f"waiting for Dagster's runs to commit them, in about {TRANSACTIONS} transactions")
    began = looked_at = reported_at = time.monotonic()
    progress = _Progress()
    killed: KilledWorker | None = None
    while True:
        require_running((*platform.processes, *ingest), "all orders were committed")
        killed = killed or _kill_if_writing(pipeline, platform, ledger, report)
        now = time.monotonic()
        if now - looked_at >= _STATUS_SECONDS:
            looked_at = now
            before, progress = progress.committed, _progress(pipeline, ledger) or progress
            if progress.committed != before or now - reported_at >= _REPORT_SECONDS:
                reported_at = now
                under_way = _under_way(pipeline, ledger)
                report(f"{now - began:.0f} s: {progress.committed:,} of {records:,} committed; {under_way}")
            if progress.committed >= records and progress.settled:
                return killed
        if now - began > INGEST_SECONDS:
            raise EnvironmentProblem(
                f"only {progress.committed:,} of {records:,} orders were committed and in the catalog within {INGEST_SECONDS} s. {_last_abort(pipeline, ledger)}"
                f"The runs' errors are in {platform.home.logs / 'dagster.log'}."
            )
        time.sleep(_POLL_SECONDS)


def _kill_if_writing(pipeline: Pipeline, platform: Platform, ledger: Ledger, report: Report) -> KilledWorker | None:
    """Kill the worker that works most, if an op is writing now, in a transaction after the first."""
    row = ledger.transactions.open_in(pipeline.table.base_path)
    # The first transaction creates the table: a worker that dies then is not in the middle.
    if row is None or row.sequence == 1 or not _writing(ledger, row.transaction_id):
        return None
    worker = _busiest(platform.cluster.workers)
    writing = _writing(ledger, row.transaction_id)
    if not writing:
        return None
    stop([worker], grace_seconds=0)
    report(f"{row.transaction_id} was writing {writing} of {PARTITIONS} Kafka partitions")
    report(f"killed {worker.name} (pid {worker.pid}), its executor and their Python workers")
    return KilledWorker(worker.name, worker.pid, row.transaction_id)


def _under_way(pipeline: Pipeline, ledger: Ledger) -> str:
    """Say what the next transaction is at."""
    row = ledger.transactions.open_in(pipeline.table.base_path)
    if row is None:
        return "no transaction is open"
    attempts = ledger.attempts.of_transaction(row.transaction_id)
    if not attempts:
        return f"{row.transaction_id} has begun"
    done = sum(attempt.state is AttemptState.DONE for attempt in attempts)
    return f"{row.transaction_id} has written {done} of {PARTITIONS} Kafka partitions"


def _writing(ledger: Ledger, transaction_id: str) -> int:
    return sum(attempt.state is AttemptState.RUNNING for attempt in ledger.attempts.of_transaction(transaction_id))


def _busiest(workers: Sequence[ProcessRecord]) -> ProcessRecord:
    before = [cpu_seconds(worker) for worker in workers]
    time.sleep(_SAMPLE_SECONDS)
    used = [cpu_seconds(worker) - seconds for worker, seconds in zip(workers, before, strict=True)]
    return workers[used.index(max(used))]


def cpu_seconds(record: ProcessRecord) -> float:
    """Return the CPU time that the recorded process and what it has started have used so far, without what has ended since."""
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        leader = psutil.Process(record.pid)
        for process in (leader, *leader.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system
    return seconds


@dataclass(frozen=True, slots=True)
class _Progress:
    """How many records the table has, and whether the transaction that brought them has done all its work, the catalog's too."""

    committed: int = 0
    settled: bool = False


def _progress(pipeline: Pipeline, ledger: Ledger) -> _Progress | None:
    """Return None if broker or store do not answer now."""
    try:
        committed = observe(pipeline).committed
        news = read_state(PipelineTable(pipeline).storage).news(pipeline.catalog_place, committed.commits)
    except (KafkaUnreachable, TableUnreachable):
        return None
    records = sum(committed.checkpoint.offsets.values()) if committed.checkpoint is not None else 0
    return _Progress(records, not news and ledger.transactions.open_in(pipeline.table.base_path) is None)


def _last_abort(pipeline: Pipeline, ledger: Ledger) -> str:
    reasons = [row.reason for row in ledger.transactions.history(pipeline.name, _HISTORY) if row.reason]
    return f"The last transaction that was rolled back: {reasons[0]} " if reasons else ""


def _verify(pipeline: Pipeline, producer: OrderProducer, report: Report) -> Verification:
    report("reading the table back with hudi-rs and comparing it with what Kafka acknowledged")
    table = pipeline.table
    with elapsed(report, "reading with hudi-rs"):
        options = hudi_rs_options(table.base_path, table.storage_options)
        found = verify(table.base_path, producer.acknowledged, options=options)
    report(f"hudi-rs: {found.rows:,} rows, {found.lost} lost, {found.duplicate} duplicate, {found.foreign} foreign")
    return found


def _count(pipeline: Pipeline, platform: Platform, report: Report) -> int:
    report(f"select count(*) from {pipeline.catalog_table}, in another Spark, which knows only the metastore")
    count = count_rows(pipeline.catalog_table, platform, report)
    report(f"through the catalog: {count:,} rows")
    return count
