"""The scene, all that has been collected at one moment, and the metric families that it becomes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hudi_ingest.ledger import Overview, ServiceRun, counters
from hudi_ingest.ledger.tables import normal_base_path
from hudi_ingest.metrics import definitions as m
from hudi_ingest.metrics.definitions import Distribution, Family, Metric
from hudi_ingest.model.counts import CONTROL
from hudi_ingest.model.finding import Finding
from hudi_ingest.model.report import violations_in
from hudi_ingest.operations.state import PipelineState


@dataclass(frozen=True, slots=True)
class DagsterRecord:
    """The part of Dagster's instance, by pipeline; one that it does not know is missing."""

    is_there: bool = True
    """Whether there is a Dagster."""

    running: Mapping[str, bool] = field(default_factory=dict)
    """Whether the sensor is on."""
    findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """The checks that only Dagster can answer."""
    activity: Mapping[str, str] = field(default_factory=dict)
    """Whether the sensor is on, in words with the next step."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything, at one moment."""

    at: datetime
    took_seconds: float
    pipelines: tuple[PipelineState, ...] = ()
    broken_files: tuple[str, ...] = ()
    ledger: Overview | None = None
    """None if it did not answer."""
    overdue: frozenset[str] = frozenset()
    """The base paths of the ledger's open transactions whose owner is gone, or past its deadline."""
    dagster_up: bool | None = None
    """None without a Dagster."""
    versions: tuple[str, str] = ("", "")
    """The versions of hudi-ingest and Python."""


_TOTALS: Mapping[str, Metric] = {
    "rows": m.ROWS,
    "bytes": m.BYTES,
    "files": m.FILES,
    "tombstones": m.TOMBSTONES,
    "filtered": m.FILTERED,
    "gaps": m.GAPS,
    "lost": m.LOST,
    "late": m.LATE,
    "deletes": m.DELETES,
    "superseded": m.SUPERSEDED,
    "moves": m.MOVES,
}
"""The metrics of the checkpoint's totals, by name."""
_FATES = {"bad_kept": "dead_letter", "bad_skipped": "skipped"}
_COUNTERS: Mapping[str, Metric] = {
    counters.ATTEMPTS_FAILED: m.ATTEMPT_FAILURES,
    counters.RETRIES: m.RETRIES,
    counters.BEGINS_REFUSED: m.BEGINS_REFUSED,
    counters.LOCK_WAITS: m.LOCK_WAITS,
    counters.LOCK_WAIT_SECONDS: m.LOCK_WAIT_SECONDS,
}
"""The metrics of the ledger's counters, by name."""
_LIVE = "ingest"


@dataclass(frozen=True)
class _Samples:
    values: dict[Metric, dict[tuple[str, ...], float | Distribution]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, metric: Metric, value: float | Distribution | None, *labels: str) -> None:
        """Leaves out what is unknown."""
        if value is not None:
            self.values[metric][labels] = value


def families(scene: Scene) -> list[Family]:
    """Return every family that has a value, in the order of METRICS."""
    samples = _Samples()
    samples.add(m.BUILD_INFO, 1, *scene.versions)
    samples.add(m.REFRESH_SECONDS, scene.took_seconds)
    samples.add(m.REFRESH_TIME, scene.at.timestamp())
    samples.add(m.LEDGER_UP, scene.ledger is not None)
    samples.add(m.DAGSTER_UP, scene.dagster_up)
    for file in scene.broken_files:
        samples.add(m.BROKEN_FILE, 1, file)
    if scene.ledger is not None:
        samples.add(m.LEDGER_BYTES, scene.ledger.size_bytes)
        for table, rows in scene.ledger.rows.items():
            samples.add(m.LEDGER_ROWS, rows, table)
        _housekeeping(samples, scene.ledger, scene.at)
    for pipeline in scene.pipelines:
        _pipeline(samples, pipeline, scene.at)
        if pipeline.sequence is not None:
            _table(samples, pipeline, pipeline.sequence)
        if scene.ledger is not None:
            _of_ledger(samples, pipeline, scene.ledger, scene)
    return [Family(metric, samples.values[metric]) for metric in m.METRICS if metric in samples.values]


def _pipeline(samples: _Samples, pipeline: PipelineState, at: datetime) -> None:
    name, ttl = pipeline.name, pipeline.pipeline.table.ttl
    samples.add(m.UP, not pipeline.error, name)
    if pipeline.error:
        samples.add(m.ERROR, 1, name, type(pipeline.error).__name__)
    samples.add(m.ENABLED, pipeline.is_on, name)
    samples.add(m.INTERVAL, pipeline.pipeline.transaction.interval_seconds, name)
    for partition in () if pipeline.error else pipeline.partitions:
        labels = (name, partition.topic, str(partition.partition))
        samples.add(m.COMMITTED, partition.committed, *labels)
        samples.add(m.END, partition.end, *labels)
        samples.add(m.LAG, partition.lag, *labels)
        samples.add(m.LAG_SECONDS, partition.lag_seconds, *labels)
        through = partition.complete.through
        samples.add(m.COMPLETE, None if through is None else through / 1000, *labels)
        samples.add(m.STOPPED, partition.stopped, *labels)
    for finding in pipeline.findings:
        failing = 0 if finding.passed else 1 if finding.warning else 2
        samples.add(m.CHECK, failing, name, finding.check)
    if pipeline.size is not None:
        samples.add(m.TABLE_BYTES, pipeline.size.size_bytes, name)
        samples.add(m.TABLE_PARTITIONS, pipeline.size.partitions, name)
        samples.add(m.SMALL_FILES, pipeline.size.small_files, name)
        if ttl is not None:
            before = at - timedelta(days=ttl.days)
            samples.add(m.EXPIRED_PARTITIONS, sum(end < before for end in pipeline.size.partition_ends), name)


def _table(samples: _Samples, table: PipelineState, sequence: int) -> None:
    name, expectations = table.name, [each.name for each in table.pipeline.expectations]
    samples.add(m.DEAD_LETTERS, table.dead_letters, name)
    samples.add(m.TRANSACTIONS, sequence, name, "committed")
    if table.last_committed_at is not None:
        samples.add(m.LAST_COMMIT, table.last_committed_at.timestamp(), name)
    for kind in sorted({_LIVE, *table.totals}):
        totals = table.totals.get(kind, {})
        for counted, metric in _TOTALS.items():
            # A counter that begins at zero has its first increase seen.
            samples.add(metric, totals.get(counted, 0), name, kind)
        for record in CONTROL:
            samples.add(m.CONTROL_RECORDS, totals.get(record, 0), name, kind, record)
        for expectation, count in {**dict.fromkeys(expectations, 0), **violations_in(totals)}.items():
            samples.add(m.VIOLATIONS, count, name, kind, expectation)
        for counted, fate in _FATES.items():
            samples.add(m.BAD, totals.get(counted, 0), name, kind, fate)
    found = table.amplification
    if found is not None:
        samples.add(m.LOG_BYTES, found.log_bytes, name)
        samples.add(m.BASE_BYTES, found.base_bytes, name)
        samples.add(m.LOG_FILES, found.log_files, name)
        samples.add(m.LOG_FILES_MOST, found.most_log_files, name)
        samples.add(m.LOG_FILES_MEAN, found.mean_log_files, name)
        samples.add(m.UNCOMPACTED, found.delta_commits, name)
        samples.add(m.COMPACTION_DUE, table.compaction_due, name)


def _of_ledger(samples: _Samples, pipeline: PipelineState, ledger: Overview, scene: Scene) -> None:
    name, path = pipeline.name, normal_base_path(pipeline.pipeline.table.base_path)
    counts = ledger.counters.get(path, {})
    samples.add(m.TRANSACTIONS, counts.get(counters.ABORTED, 0), name, "aborted")
    for counted, metric in _COUNTERS.items():
        samples.add(metric, counts.get(counted, 0), name)
    for counted, value in counts.items():
        if counted.startswith(counters.TICK_FAILURES):
            samples.add(m.TICK_FAILURES, value, name, counted.removeprefix(counters.TICK_FAILURES))
    for phase, distribution in _seconds(counts):
        samples.add(m.TRANSACTION_SECONDS, distribution, name, phase)
    opened = ledger.open.get(path)
    samples.add(m.OPEN_SECONDS, max(0.0, (scene.at - opened.began_at).total_seconds()) if opened else 0, name)
    samples.add(m.OPEN_OVERDUE, path in scene.overdue, name)
    ticked = ledger.ticked.get(name)
    samples.add(m.LAST_TICK, ticked.timestamp() if ticked else None, name, pipeline.pipeline.coordinator)
    for (requested, kind), count in ledger.requests.items():
        if requested == name:
            samples.add(m.REQUESTS, count, name, kind)
    for run in ledger.services:
        if run.base_path == path:
            _service(samples, run, counts, name, scene.at)


def _housekeeping(samples: _Samples, ledger: Overview, at: datetime) -> None:
    """Housekeeping is no pipeline's, so its label `pipeline` is empty."""
    for run in ledger.services:
        if not run.base_path:
            _service(samples, run, ledger.counters.get("", {}), "", at)


def _service(samples: _Samples, run: ServiceRun, counts: Mapping[str, float], pipeline: str, at: datetime) -> None:
    labels = (pipeline, run.service)
    if run.succeeded_at is not None:
        samples.add(m.SERVICE_SUCCESS, run.succeeded_at.timestamp(), *labels)
    samples.add(m.SERVICE_RUNNING, 0 if run.ended_at else max(0.0, (at - run.began_at).total_seconds()), *labels)
    for outcome in (counters.SUCCEEDED, counters.FAILED):
        samples.add(m.SERVICE_RUNS, counts.get(f"{counters.SERVICES}{run.service}/{outcome}", 0), *labels, outcome)
    if run.seconds is None:
        return
    samples.add(m.SERVICE_FAILING, run.error is not None, *labels)
    samples.add(m.SERVICE_SECONDS, run.seconds, *labels)
    samples.add(m.SERVICE_DUE, run.due, *labels)
    samples.add(m.SERVICE_DONE, run.done, *labels)


def _seconds(counts: Mapping[str, float]) -> Iterator[tuple[str, Distribution]]:
    """Yield each phase's distribution. Buckets of other bounds, which another version used, count in the next higher one."""
    sums: dict[str, float] = {}
    observed: dict[str, dict[float, int]] = {}
    bounds = (*counters.BUCKETS, float("inf"))
    for counted, value in counts.items():
        if not counted.startswith(counters.SECONDS):
            continue
        _, phase, bucket = counted.split("/")
        buckets = observed.setdefault(phase, dict.fromkeys(bounds, 0))
        if bucket == counters.SUM:
            sums[phase] = value
        else:
            buckets[next(bound for bound in bounds if float(bucket) <= bound)] += int(value)
    for phase, buckets in observed.items():
        yield phase, Distribution(tuple(buckets.items()), sums.get(phase, 0.0))
