"""Every metric: its name, kind, labels, unit and meaning; and the values that a scrape has of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Its name says what it is: a counter's ends with `_total`, and the unit is in front of that."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    origin: str = ""
    """Where its values come from."""
    is_histogram: bool = False

    @property
    def kind(self) -> Literal["gauge", "counter", "histogram"]:
        return "histogram" if self.is_histogram else "counter" if self.name.endswith("_total") else "gauge"

    @property
    def unit(self) -> str:
        """Return seconds or bytes, or nothing for plain counts."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's value: how many observations each bucket has, by its upper bound, and their sum. The last bound is infinite."""

    counts: tuple[tuple[float, int], ...]
    sum: float

    @property
    def count(self) -> int:
        return sum(count for _, count in self.counts)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its values, by the values of its labels."""

    metric: Metric
    samples: Mapping[tuple[str, ...], float | Distribution]


_PIPELINE = ("pipeline",)
_PARTITION = ("pipeline", "topic", "partition")
_KIND = ("pipeline", "kind")
_SERVICE = ("pipeline", "service")
_COMMITS = "commits"
_LEDGER = "ledger"
_BROKER = "table and broker"

BUILD_INFO = Metric("hudi_ingest_build_info", "Always 1; the labels name the versions.", ("version", "python"))
REFRESH_SECONDS = Metric("hudi_ingest_refresh_seconds", "How long the last look at everything took.")
REFRESH_TIME = Metric(
    "hudi_ingest_refresh_timestamp_seconds", "When these values were read; scrapes within ten seconds get the same."
)
BROKEN_FILE = Metric("hudi_ingest_broken_file", "1 for each pipeline file that cannot be loaded.", ("file",))
LEDGER_UP = Metric("hudi_ingest_ledger_up", "Whether the ledger answered.", origin=_LEDGER)
LEDGER_BYTES = Metric("hudi_ingest_ledger_bytes", "The ledger's size on disk.", origin=_LEDGER)
LEDGER_ROWS = Metric("hudi_ingest_ledger_rows", "Rows of each of the ledger's tables.", ("table",), _LEDGER)
DAGSTER_UP = Metric(
    "hudi_ingest_dagster_up", "Whether Dagster's instance answered; missing without one.", origin="Dagster"
)

UP = Metric(
    "hudi_ingest_pipeline_up",
    "Whether the table and the broker of the pipeline answered, and can be ingested from.",
    _PIPELINE,
)
ERROR = Metric(
    "hudi_ingest_pipeline_error", "1 while the pipeline is not up: the class of the error.", ("pipeline", "error")
)
ENABLED = Metric(
    "hudi_ingest_pipeline_enabled",
    "Whether the pipeline is on: its switch and that of the sensor, without Dagster `enabled` of the file.",
    _PIPELINE,
    "Dagster, pipeline file",
)
INTERVAL = Metric("hudi_ingest_interval_seconds", "`transaction.interval_seconds`.", _PIPELINE, "pipeline file")

COMMITTED = Metric(
    "hudi_ingest_committed_offset", "The next offset to read; missing before the first commit.", _PARTITION, "table"
)
END = Metric("hudi_ingest_end_offset", "The broker's end of what is committed there.", _PARTITION, "broker")
LAG = Metric("hudi_ingest_lag_offsets", "Offsets waiting to be ingested.", _PARTITION, _BROKER)
LAG_SECONDS = Metric(
    "hudi_ingest_lag_seconds",
    "Age of the oldest waiting record by its Kafka timestamp, 0 if none waits; missing if records have no timestamps.",
    _PARTITION,
    _BROKER,
)
COMPLETE = Metric(
    "hudi_ingest_complete_through_timestamp_seconds",
    "No record of the partition with an earlier Kafka timestamp can still be committed; the table's is the least. Missing if that is "
    "known of no time: see `source.lateness_seconds`.",
    _PARTITION,
    _BROKER,
)
STOPPED = Metric(
    "hudi_ingest_partition_stopped",
    "1 while the partition is stopped, because the broker no longer has its committed offset.",
    _PARTITION,
    _BROKER,
)

ROWS = Metric("hudi_ingest_rows_total", "Records that became rows, or changes of a keyed table.", _KIND, _COMMITS)
BYTES = Metric("hudi_ingest_written_bytes_total", "Bytes of the files with these rows.", _KIND, _COMMITS)
FILES = Metric("hudi_ingest_written_files_total", "Base files and log files with these rows.", _KIND, _COMMITS)
TOMBSTONES = Metric("hudi_ingest_tombstones_total", "Records without a value that were skipped.", _KIND, _COMMITS)
CONTROL_RECORDS = Metric(
    "hudi_ingest_control_records_total",
    "Records of a connector that become no row; `record` is `heartbeats`, `boundaries` of transactions, `ddl`, `messages` or `truncates`, applied or skipped.",
    ("pipeline", "kind", "record"),
    _COMMITS,
)
FILTERED = Metric("hudi_ingest_filtered_total", "Records that a transform left out.", _KIND, _COMMITS)
BAD = Metric(
    "hudi_ingest_bad_records_total",
    "Records that could not become rows; `fate` is `dead_letter` or `skipped`.",
    ("pipeline", "kind", "fate"),
    _COMMITS,
)
GAPS = Metric("hudi_ingest_gap_offsets_total", "Offsets that the broker does not deliver.", _KIND, _COMMITS)
LOST = Metric("hudi_ingest_lost_offsets_total", "Offsets whose loss was accepted.", _KIND, _COMMITS)
LATE = Metric(
    "hudi_ingest_late_records_total", "Records with Kafka timestamps before what was complete already.", _KIND, _COMMITS
)
VIOLATIONS = Metric(
    "hudi_ingest_violations_total",
    "Records that violate an expectation.",
    ("pipeline", "kind", "expectation"),
    _COMMITS,
)
DELETES = Metric("hudi_ingest_deletes_total", "Rows of a keyed table that delete their key.", _KIND, _COMMITS)
SUPERSEDED = Metric(
    "hudi_ingest_superseded_total",
    "Changes of a keyed table left out because the same task wrote a newer one of the key.",
    _KIND,
    _COMMITS,
)
MOVES = Metric(
    "hudi_ingest_moves_total", "Records that changed their key or partition of a keyed table.", _KIND, _COMMITS
)
DEAD_LETTERS = Metric("hudi_ingest_dead_letters", "Dead letters waiting to be retried.", _PIPELINE, "table")
LAST_COMMIT = Metric(
    "hudi_ingest_last_commit_timestamp_seconds",
    "When the last commit that moved offsets was completed.",
    _PIPELINE,
    "table",
)
TRANSACTIONS = Metric(
    "hudi_ingest_transactions_total",
    "Transactions by `outcome`: committed (as the table counts them) or aborted (as the ledger does).",
    ("pipeline", "outcome"),
    "commits, ledger",
)
TRANSACTION_SECONDS = Metric(
    "hudi_ingest_transaction_seconds",
    "Seconds of committed transactions by `phase`: begin, write, commit, between (processes starting) and total.",
    ("pipeline", "phase"),
    _LEDGER,
    is_histogram=True,
)
ATTEMPT_FAILURES = Metric(
    "hudi_ingest_attempt_failures_total", "Attempts at a partition's range that failed.", _PIPELINE, _LEDGER
)
RETRIES = Metric("hudi_ingest_retries_total", "Attempts after the first one.", _PIPELINE, _LEDGER)
BEGINS_REFUSED = Metric(
    "hudi_ingest_begins_refused_total",
    "Tries to begin that found another transaction, or the lease of a dead one, in the way; a waiting run tries each second.",
    _PIPELINE,
    _LEDGER,
)
LOCK_WAITS = Metric("hudi_ingest_lock_waits_total", "Waits of 50 ms or more for the table's lock.", _PIPELINE, _LEDGER)
LOCK_WAIT_SECONDS = Metric("hudi_ingest_lock_wait_seconds_total", "Seconds of these waits.", _PIPELINE, _LEDGER)
OPEN_SECONDS = Metric(
    "hudi_ingest_open_transaction_seconds", "Age of the open transaction, 0 if there is none.", _PIPELINE, _LEDGER
)
OPEN_OVERDUE = Metric(
    "hudi_ingest_open_transaction_overdue",
    "Whether the open transaction's owner is gone or its deadline has passed; the next begin ends it.",
    _PIPELINE,
    _LEDGER,
)
REQUESTS = Metric("hudi_ingest_active_requests", "Backfills, replays and retries at work or waiting.", _KIND, _LEDGER)
LAST_TICK = Metric(
    "hudi_ingest_last_tick_timestamp_seconds",
    "When the coordinator ticked last, to about half a minute; missing if it never has. `sensor`: Dagster's, which all pipelines of a code location share.",
    ("pipeline", "sensor"),
    _LEDGER,
)
TICK_FAILURES = Metric(
    "hudi_ingest_tick_failures_total",
    "Ticks that could not look at the table or the broker, by the class of the error.",
    ("pipeline", "error"),
    _LEDGER,
)
CHECK = Metric(
    "hudi_ingest_check_failing",
    "The table's check: 0 passes, 1 fails as a warning, 2 fails. `runs_succeed` only with Dagster.",
    ("pipeline", "check"),
    "table, broker, Dagster",
)
LOG_BYTES = Metric("hudi_ingest_log_bytes", "Bytes of log files that are not compacted.", _PIPELINE, "table")
BASE_BYTES = Metric(
    "hudi_ingest_log_base_bytes",
    "Bytes of the base files below these log files; missing while unknown.",
    _PIPELINE,
    "table",
)
LOG_FILES = Metric("hudi_ingest_log_files", "Log files that are not compacted.", _PIPELINE, "table")
LOG_FILES_MOST = Metric(
    "hudi_ingest_log_files_per_group_max", "The most log files that one file group has.", _PIPELINE, "table"
)
LOG_FILES_MEAN = Metric(
    "hudi_ingest_log_files_per_group_mean", "Log files per file group that has any.", _PIPELINE, "table"
)
UNCOMPACTED = Metric("hudi_ingest_uncompacted_commits", "Commits with such log files.", _PIPELINE, "table")
COMPACTION_DUE = Metric("hudi_ingest_compaction_due", "Whether compaction is due.", _PIPELINE, "table")
TABLE_BYTES = Metric(
    "hudi_ingest_table_bytes", "Bytes of the table's live files; read every ten minutes at most.", _PIPELINE, "table"
)
TABLE_PARTITIONS = Metric(
    "hudi_ingest_table_partitions", "Partitions of the table with files; read with the bytes.", _PIPELINE, "table"
)
SMALL_FILES = Metric(
    "hudi_ingest_small_files",
    "Small files of an append table that clustering would merge; read with the bytes.",
    _PIPELINE,
    "table",
)
EXPIRED_PARTITIONS = Metric(
    "hudi_ingest_expired_partitions",
    "Partitions older than `table.ttl`, which the next run of it drops; only with that setting, read with the bytes.",
    _PIPELINE,
    "table",
)
SERVICE_SUCCESS = Metric(
    "hudi_ingest_service_last_success_timestamp_seconds",
    "When the service's last successful run ended. `service`: clustering, compaction, cleaning, ttl, sweep or housekeeping.",
    _SERVICE,
    _LEDGER,
)
SERVICE_FAILING = Metric("hudi_ingest_service_failing", "Whether the service's last run failed.", _SERVICE, _LEDGER)
SERVICE_SECONDS = Metric("hudi_ingest_service_last_run_seconds", "How long that run took.", _SERVICE, _LEDGER)
SERVICE_DUE = Metric(
    "hudi_ingest_service_last_run_due",
    "What that run found to do, for `ttl` (partitions), `sweep` (orphans) and `housekeeping` (runs, rows, events, files).",
    _SERVICE,
    _LEDGER,
)
SERVICE_DONE = Metric(
    "hudi_ingest_service_last_run_done",
    "How much that run did: files merged or deleted, partitions dropped, and as above.",
    _SERVICE,
    _LEDGER,
)
SERVICE_RUNNING = Metric(
    "hudi_ingest_service_running_seconds",
    "Age of a run of the service that has not ended, or was killed; 0 if there is none.",
    _SERVICE,
    _LEDGER,
)
SERVICE_RUNS = Metric(
    "hudi_ingest_service_runs_total",
    "Runs of the service by `outcome`: succeeded or failed.",
    (*_SERVICE, "outcome"),
    _LEDGER,
)

METRICS: tuple[Metric, ...] = tuple(value for value in globals().values() if isinstance(value, Metric))
"""All of them, in the order of docs/metrics.md."""
