"""What transactions cost and what a workload needs, computed from measured constants. Pure.

One transaction of each pipeline begins every interval. Its records are spread evenly over the pipeline's Kafka partitions, and
over the table partitions that get records. All CPU figures are seconds of one core of the machine that measured them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hudi_ingest.pipeline.sections.transaction import TICK_SECONDS
from hudi_ingest.pipeline.sections.transaction import Transaction as TransactionSettings
from hudi_ingest.transaction.write.job import rows_per_task

INTERVALS = (5, 10, 20, 30, 60, 120, 300, 600, 900, 1800)
BUSY = 0.7
"""More than this share of a resource in use, and queues grow with every slow moment."""
_DAY_SECONDS = 86_400


def measured(value: float, unit: str, how: str, date: str = "2026-11-23") -> Any:
    return field(default=value, metadata={"unit": unit, "how": how, "date": date})


def _fitted(value: float, unit: str) -> Any:
    return measured(value, unit, "scale --fit, of the six points in FITTED", "2026-11-27")


@dataclass(frozen=True, slots=True)
class Costs:
    """The constants. Replace them after `python -m benchmarks.scale_points` on another machine or version."""

    transaction_cpu: float = _fitted(0.261, "driver's CPU s per transaction")
    file_driver_cpu: float = _fitted(0.00113, "driver's CPU s per base file")
    job_cpu: float = _fitted(0.0052, "workers' CPU s per transaction")
    record_cpu: float = _fitted(2.52e-07, "workers' CPU s per record")
    byte_cpu: float = _fitted(4.01e-09, "workers' CPU s per byte of values")
    file_worker_cpu: float = _fitted(0.00119, "workers' CPU s per base file")
    partition_worker_cpu: float = _fitted(0.00161, "workers' CPU s per Kafka partition")
    begin_commit_seconds: float = measured(
        0.5, "s under the table's lock", "trial freshness: begin and commit, p50, on a local disk", "2026-11-27"
    )
    commit_file_seconds: float = measured(0.001, "s per base file under the table's lock", "point orders-1k@4x100")
    start_seconds: float = measured(1.0, "s from tick to first op", "events of small runs, Dagster in one process")
    run_cpu: float = measured(
        1.8,
        "CPU s of Dagster per run with ops in its process",
        "trial freshness_stock by Dagster's code server, without what follows",
        "2026-11-27",
    )
    op_cpu: float = measured(0.2, "CPU s of Dagster per parallel op", "orders-10m: with Dagster less without")
    run_postgres_cpu: float = measured(
        0.19, "CPU s of PostgreSQL per run, for Dagster", "trial freshness_stock, without the ledger", "2026-11-27"
    )
    tick_code_cpu: float = measured(0.018, "code server's CPU s per tick", "trial idle_files", "2026-11-27")
    tick_daemon_cpu: float = measured(0.009, "daemon's CPU s per tick", "trial idle_files", "2026-11-27")
    look_code_cpu: float = measured(0.12, "code server's CPU s per transaction", "trial freshness", "2026-11-27")
    look_daemon_cpu: float = measured(0.08, "daemon's CPU s per transaction", "trial freshness", "2026-11-27")
    tick_postgres_cpu: float = measured(
        0.005, "CPU s of PostgreSQL per tick, for Dagster", "50 idle sensors on PostgreSQL, our storage", "2026-11-27"
    )
    tick_partition_cpu: float = measured(0.00025, "CPU s per tick and Kafka partition", "growth.json, plan_seconds")
    events: float = measured(38, "Dagster events per run", "20 pipelines: 78 with 4 write ops")
    op_events: float = measured(10, "Dagster events per write op", "20 pipelines: 78 with 4 write ops")
    ledger_statements: float = measured(
        50, "SQL statements per transaction and tick", "benchmarks.ledger, 1 and 4 ops", "2026-11-27"
    )
    ledger_op_statements: float = measured(
        18, "SQL statements per write op", "benchmarks.ledger, 1 and 4 ops", "2026-11-27"
    )
    ledger_partition_statements: float = measured(
        1, "SQL statements per Kafka partition", "benchmarks.ledger, 2,000", "2026-11-27"
    )
    ledger_cpu: float = measured(
        0.024, "CPU s of PostgreSQL per transaction and tick", "benchmarks.ledger, 1 and 4 ops", "2026-11-27"
    )
    ledger_op_cpu: float = measured(
        0.009, "CPU s of PostgreSQL per write op", "benchmarks.ledger, 1 and 4 ops", "2026-11-27"
    )
    ledger_partition_cpu: float = measured(
        8e-5, "CPU s of PostgreSQL per Kafka partition", "benchmarks.ledger, 2,000", "2026-11-27"
    )
    tick_requests: float = measured(3, "S3 requests per tick", "docs/object-stores.md: a plan", "2026-11-27")
    begin_requests: float = measured(14, "S3 requests per begin", "docs/object-stores.md", "2026-11-27")
    commit_requests: float = measured(
        37, "S3 requests per commit, markers aside", "docs/object-stores.md", "2026-11-27"
    )
    write_requests: float = measured(5, "S3 requests of the write", "docs/object-stores.md: of the fence", "2026-11-27")
    rare_requests: float = measured(
        31,
        "S3 requests of compaction and cleaning",
        "docs/object-stores.md: a tenth of 20 and of 220, a twentieth of 145",
        "2026-11-28",
    )
    file_requests: float = measured(
        2, "S3 requests per base file", "docs/object-stores.md: marker and object", "2026-11-27"
    )
    folder_requests: float = measured(1, "S3 requests per table partition", "docs/object-stores.md", "2026-11-27")
    heap: float = measured(55e6, "bytes of the engine's heap in use when idle", "its GC log beside the points")
    file_heap: float = measured(
        12e3, "bytes of heap per base file of an open commit", "its GC log beside orders-1k@1000x1"
    )
    broker_cpu: float = measured(0.08e-6, "CPU s of the broker per record", "orders-10m")


@dataclass(frozen=True, slots=True)
class Workload:
    """All pipelines together; each has its even part. `table_partitions`: of each table, that get records in an interval; `sensors`: one for
    each file, which the pipelines of a template share."""

    records_per_second: float = 1e6
    record_bytes: float = 190
    kafka_partitions: int = 10_000
    pipelines: int = 200
    sensors: int = 1
    table_partitions: int = 3
    object_store: bool = True


@dataclass(frozen=True, slots=True)
class Site:
    """What there is to run it on. Nothing here is measured."""

    executor_cores: float = 4
    driver_cores: float = 8
    driver_heap: float = 8e9
    runs: float = 25
    """Dagster's max_concurrent_runs."""
    write_ops: float = 8
    """Ops of a transaction at most."""
    code_cores: float = 1
    """Ticks run in threads of one Python process."""
    dagster_cores: float = 8
    """Of the hosts on which runs have their processes."""
    postgres_cores: float = 4
    tick_seconds: float = 0
    """Between ticks of one sensor; 0 is what the pipelines' interval gives."""
    request_seconds: float = 0.03
    """Of one request to the object store; those of begin and commit follow one another."""
    put_limit: float = 3500
    """Writing requests a second to the prefix of one table."""
    brokers: float = 12
    broker_bytes: float = 100e6
    """A second, of one broker."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What one transaction of one pipeline costs. CPU in seconds, `lock_seconds` under the table's lock."""

    records: float
    files: float
    write_cpu: float
    driver_cpu: float
    dagster_cpu: float
    ledger_cpu: float
    lock_seconds: float
    requests: float
    events: float
    statements: float

    @property
    def data_cpu(self) -> float:
        """Of the data path without Dagster."""
        return self.write_cpu + self.driver_cpu


def files_of(
    records: float, kafka_partitions: float, table_partitions: float, record_bytes: float, cores: float
) -> float:
    """Expected base files: one for each table partition of which a task's range has a record."""
    if records <= 0:
        return 0.0
    in_each = records / kafka_partitions
    longest = rows_per_task(math.ceil(records), math.ceil(cores), math.ceil(record_bytes))
    ranges = min(kafka_partitions, records) * max(1.0, in_each / longest)
    # Of `n` records at random in `d` partitions, d (1 - (1 - 1/d)^n) partitions have at least one.
    in_range = max(1.0, records / ranges)
    met = -table_partitions * math.expm1(in_range * math.log1p(-1 / table_partitions)) if table_partitions > 1 else 1.0
    return ranges * met


def transaction(
    costs: Costs,
    records: float,
    record_bytes: float,
    kafka_partitions: float,
    table_partitions: float,
    site: Site,
    cores: float,
    object_store: bool,
) -> Transaction:
    """`cores`: tasks that run at the same time, which decides how finely long partitions are cut."""
    files = files_of(records, kafka_partitions, table_partitions, record_bytes, cores)
    busy = min(kafka_partitions, records)
    ops = min(busy, site.write_ops)
    requests = costs.begin_requests + costs.commit_requests + costs.rare_requests
    return Transaction(
        records=records,
        files=files,
        write_cpu=costs.job_cpu
        + records * (costs.record_cpu + costs.byte_cpu * record_bytes)
        + files * costs.file_worker_cpu
        + busy * costs.partition_worker_cpu,
        driver_cpu=costs.transaction_cpu + files * costs.file_driver_cpu,
        dagster_cpu=costs.run_cpu + ops * costs.op_cpu,
        ledger_cpu=costs.ledger_cpu + ops * costs.ledger_op_cpu + busy * costs.ledger_partition_cpu,
        lock_seconds=costs.begin_commit_seconds
        + files * costs.commit_file_seconds
        + object_store * requests * site.request_seconds,
        requests=requests
        + costs.write_requests
        + files * costs.file_requests
        + table_partitions * costs.folder_requests,
        events=costs.events + ops * costs.op_events,
        statements=costs.ledger_statements
        + ops * costs.ledger_op_statements
        + busy * costs.ledger_partition_statements,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """How busy one resource is: 1 is all of it."""

    resource: str
    share: float
    detail: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """A workload at one interval. `loads`: the busiest first; executors are not among them, because they are what is asked for."""

    interval: float
    transaction: Transaction
    executors: int
    run_seconds: float
    file_bytes: float
    files_a_day: float
    loads: tuple[Load, ...]

    @property
    def fits(self) -> bool:
        return self.loads[0].share <= BUSY


def seconds_between_ticks(interval: float) -> float:
    """The daemon looks every 5 s for sensors whose last tick is old enough, and finds one of 5 s a little too young at the look that
    would be in time."""
    least = TransactionSettings(interval_seconds=interval).tick_seconds
    # From 5 s on it is the first look after `least`, and of multiples of 5 s the next.
    return TICK_SECONDS if least < TICK_SECONDS else least + TICK_SECONDS - least % TICK_SECONDS


def estimate(costs: Costs, workload: Workload, site: Site, interval: float) -> Estimate:
    """Estimate the workload with a transaction of each pipeline every `interval` seconds."""
    records = workload.records_per_second * interval / workload.pipelines
    partitions = workload.kafka_partitions / workload.pipelines
    rate = workload.pipelines / interval
    one = transaction(
        costs,
        records,
        workload.record_bytes,
        partitions,
        workload.table_partitions,
        site,
        site.executor_cores,
        workload.object_store,
    )
    executors = max(1, math.ceil(one.write_cpu * rate / (site.executor_cores * BUSY)))
    # Pipelines share the executors, so one at a time has its fair part; a task has a core of its own at best.
    at_once = max(1.0, min(site.runs, workload.pipelines))
    cores = max(1.0, min(executors * site.executor_cores / at_once, max(1.0, one.files)))
    write_seconds = one.write_cpu / cores
    run_seconds = costs.start_seconds + one.lock_seconds + write_seconds
    ticks = workload.sensors / (site.tick_seconds or seconds_between_ticks(interval))
    open_commits = min(site.runs, rate * one.lock_seconds)
    loads = {
        "table: one transaction at a time": (run_seconds / interval, f"{run_seconds:.1f} s of {interval:g} s"),
        "Dagster: places for runs": (
            rate * run_seconds / site.runs,
            f"{rate * run_seconds:.1f} runs at once, {site.runs} allowed",
        ),
        "Dagster: processes of runs": (
            rate * one.dagster_cpu / site.dagster_cores,
            f"{rate * one.dagster_cpu:.1f} of {site.dagster_cores} cores",
        ),
        "ticks: code server": (
            (ticks * costs.tick_code_cpu + rate * (costs.look_code_cpu + partitions * costs.tick_partition_cpu))
            / site.code_cores,
            f"{ticks:.1f} ticks and {rate:.1f} runs a second",
        ),
        # Its sensors tick in threads of one Python process, which cannot be divided.
        "ticks: daemon": (
            ticks * costs.tick_daemon_cpu + rate * costs.look_daemon_cpu,
            f"{ticks:.1f} ticks and {rate:.1f} runs a second",
        ),
        "PostgreSQL: Dagster": (
            (ticks * costs.tick_postgres_cpu + rate * costs.run_postgres_cpu) / site.postgres_cores,
            f"{rate * one.events * _DAY_SECONDS / 1e6:.1f} million events a day",
        ),
        "PostgreSQL: ledger": (
            rate * one.ledger_cpu / site.postgres_cores,
            f"{rate * one.statements:.0f} statements a second",
        ),
        "driver: CPU of begin and commit": (
            rate * one.driver_cpu / site.driver_cores,
            f"{rate * one.driver_cpu:.1f} of {site.driver_cores} cores",
        ),
        "driver: heap": (
            (costs.heap + max(1.0, open_commits) * one.files * costs.file_heap) / site.driver_heap,
            f"{max(1.0, open_commits):.1f} open commits of {one.files:.0f} files",
        ),
        "Kafka: fetching": (
            workload.records_per_second * workload.record_bytes / (site.brokers * site.broker_bytes),
            f"{workload.records_per_second * workload.record_bytes / 1e6:.0f} MB/s",
        ),
    }
    if workload.object_store:
        requests = rate * one.requests + ticks * costs.tick_requests
        loads["object store: requests to a table"] = (
            requests / workload.pipelines / site.put_limit,
            f"{requests:.0f} a second to all, {requests * _DAY_SECONDS / 1e6:.0f} million a day",
        )
    busiest = sorted(loads.items(), key=lambda load: -load[1][0])
    return Estimate(
        interval=interval,
        transaction=one,
        executors=executors,
        run_seconds=run_seconds,
        file_bytes=records * workload.record_bytes / max(1.0, one.files),
        files_a_day=rate * one.files * _DAY_SECONDS,
        loads=tuple(Load(resource, share, detail) for resource, (share, detail) in busiest),
    )


def best(costs: Costs, workload: Workload, site: Site) -> Estimate:
    """The shortest interval that leaves all resources below `BUSY`, or as many as possible: a long interval makes ticks no rarer
    than every 35 s."""
    estimates = [estimate(costs, workload, site, interval) for interval in INTERVALS]
    return min(estimates, key=lambda each: sum(load.share > BUSY for load in each.loads))


def sources() -> Mapping[str, tuple[str, str, str]]:
    """Each constant's unit, what measured it, and when."""
    return {each.name: (each.metadata["unit"], each.metadata["how"], each.metadata["date"]) for each in fields(Costs)}
