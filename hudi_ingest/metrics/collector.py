"""Collects the scene from the ledger, the tables, the brokers and Dagster, and keeps it for a few seconds.

A scene is collected in bounded time: what has not answered by then is missing from the answer, its pipeline counts as not up, and the
others are complete. A question that hangs is not asked a second time before it has ended. Answers that take a broker's records or a
listing of a table's files are kept from one scene to the next.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Protocol

import hudi_ingest
from hudi_ingest.exceptions import ConfigError, IngestError
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.read_amplification import files_to_merge, read_amplification, why_due
from hudi_ingest.hudi.timeline.pipeline_table import CommittedState, PipelineTable
from hudi_ingest.kafka.admin_clients import settings_of
from hudi_ingest.kafka.records import first_times
from hudi_ingest.kafka.shared_clusters import ClusterSnapshot, snapshot
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.metrics.definitions import Family
from hudi_ingest.metrics.families import (
    DagsterRecord,
    LedgerRecord,
    OpenRecord,
    PipelineRecord,
    Scene,
    TableRecord,
    TableSize,
    families,
)
from hudi_ingest.model.finding import Finding
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.operations.health.status import PartitionStatus, findings_now, findings_on_commits, partition_statuses
from hudi_ingest.operations.upkeep.partition_ttl import aged_partitions
from hudi_ingest.pipeline.folder import BrokenFile, folder_version, load_each
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation, observe, stopped_partitions

_logger = logging.getLogger(__name__)
KEPT_SECONDS = 10.0
"""Scrapes within this time get the same values."""
LONGEST_SECONDS = 8.0
"""For one scene; Prometheus gives up after ten by default."""
TIMEOUT = "Timeout"
"""The error of a pipeline that has not answered in time."""
RELOAD_SECONDS = 60.0
_AT_ONCE = 8
MOST_ASKED = 200
"""Partitions of one cluster that are asked about for one scene, those with the largest lag first."""
_KEPT_SIZE_SECONDS = 600.0
_ON_COMMITS_SECONDS = 600.0
"""How long the findings about a table's commits serve, if they are good."""


class DagsterView(Protocol):
    """A view of Dagster's instance, which orchestration implements."""

    def look(self, pipelines: Sequence[Pipeline]) -> DagsterRecord: ...


@dataclass(frozen=True, slots=True)
class _Look:
    """The answers of one pipeline's table and broker. `committed` is None if the table, `situation` if either could not be read."""

    pipeline: Pipeline
    committed: CommittedState | None
    situation: Situation | None
    error: str = ""
    reason: str = ""


class Collector:
    """Safe to share between threads."""

    def __init__(
        self,
        home: Home,
        dagster: DagsterView | None = None,
        kept_seconds: float = KEPT_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._home = home
        self._dagster = dagster
        self._kept_seconds = kept_seconds
        self._longest_seconds = longest_seconds
        self._silence = f"Its table has not answered within {longest_seconds:g} s."
        self._lock = threading.Lock()
        self._seen: tuple[float, Scene, list[Family]] | None = None
        self._questions = _Questions()
        self._sizes = TableSizes()
        self._times: dict[tuple[Any, ...], WaitingTimes] = {}
        self._on_commits: dict[str, tuple[Pipeline, str, list[Finding], datetime]] = {}
        self._loaded: tuple[object, tuple[Pipeline, ...], tuple[BrokenFile, ...]] | None = None

    def families(self) -> list[Family]:
        """Every metric that has a value, at most `kept_seconds` old."""
        return self._newest()[1]

    def scene(self) -> Scene:
        """Return the newest scene, at most `kept_seconds` old."""
        return self._newest()[0]

    def _newest(self) -> tuple[Scene, list[Family]]:
        """Collect the scene for one caller; the others wait for it."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen[0] > self._kept_seconds:
                at, scene = time.monotonic(), self.look()
                self._seen = (at, scene, families(scene))
            return self._seen[1:]

    def close(self) -> None:
        self._questions.close()
        self._sizes.close()

    def look(self) -> Scene:
        """Look at everything now. Raises ConfigError if the pipelines folder cannot be read."""
        started, now = time.monotonic(), datetime.now(timezone.utc)
        until = started + self._longest_seconds
        pipelines, broken = self._pipelines()
        by_cluster: dict[tuple[Any, ...], list[Pipeline]] = defaultdict(list)
        for pipeline in pipelines:
            by_cluster[settings_of(pipeline.source)].append(pipeline)
        ask = self._questions.ask
        ledger = ask("ledger", self._ledger)
        dagster = ask("dagster", self._dagster.look, pipelines) if self._dagster else None
        patience = self._longest_seconds / 3
        clusters = {
            key: ask(("cluster", key), snapshot, [pipeline.source for pipeline in own], patience)
            for key, own in by_cluster.items()
        }
        # Half of the time, so that tables can be read if a broker does not answer.
        _wait(clusters.values(), started + self._longest_seconds / 2)
        looks = {
            pipeline.name: ask(("table", pipeline.name), _look, pipeline, _answer(clusters[key]))
            for key, own in by_cluster.items()
            for pipeline in own
        }
        _wait([*looks.values(), ledger, *([dagster] if dagster else [])], until)
        seen = {name: _answer(future) for name, future in looks.items()}
        waited = self._waited(by_cluster, [look for look in seen.values() if look is not None], now, until)
        of_dagster = _answer(dagster) if dagster else None
        records = [self._record(pipeline, seen[pipeline.name], waited, of_dagster, now) for pipeline in pipelines]
        return Scene(
            at=now,
            took_seconds=time.monotonic() - started,
            pipelines=tuple(records),
            broken_files=tuple(file.path.name for file in broken),
            ledger=_answer(ledger),
            dagster_up=of_dagster is not None if dagster and (of_dagster is None or of_dagster.is_there) else None,
            versions=(hudi_ingest.__version__, platform.python_version()),
        )

    def _pipelines(self) -> tuple[tuple[Pipeline, ...], tuple[BrokenFile, ...]]:
        # A template's pipelines change with its topics, too, which another machine's Dagster may have found.
        version = (folder_version(self._home.pipelines), time.monotonic() // RELOAD_SECONDS)
        if self._loaded is None or self._loaded[0] != version:
            try:
                pipelines, broken = load_each(self._home.pipelines)
            except ConfigError as error:
                pipelines, broken = (), (BrokenFile(self._home.pipelines, None, error.problems),)
            self._loaded = (version, pipelines, broken)
        return self._loaded[1], self._loaded[2]

    def _ledger(self) -> LedgerRecord:
        with Ledger.open(self._home.ledger_url) as ledger:
            overview = ledger.overview()
        return LedgerRecord(
            counters=overview.counters,
            open={
                table: OpenRecord(row.began_at, is_over(row, lambda run_id: None))
                for table, row in overview.open.items()
            },
            ticked=overview.ticked,
            requests=overview.requests,
            rows=overview.rows,
            size_bytes=overview.size_bytes,
            services=overview.services,
        )

    def _waited(
        self,
        by_cluster: Mapping[tuple[Any, ...], Sequence[Pipeline]],
        looks: Sequence[_Look],
        now: datetime,
        until: float,
    ) -> dict[tuple[str, TopicPartition], float]:
        keys = {pipeline.name: key for key, own in by_cluster.items() for pipeline in own}
        waiting: dict[tuple[Any, ...], list[Waiting]] = {key: [] for key in by_cluster}
        for look in looks:
            if look.situation is not None:
                waiting[keys[look.pipeline.name]] += _waiting(look.pipeline, look.situation)
        self._times = {key: self._times.get(key) or WaitingTimes() for key in waiting}
        questions = [
            self._questions.ask(("times", key), self._times[key].learn, pieces)
            for key, pieces in waiting.items()
            if pieces
        ]
        _wait(questions, until)
        found: dict[tuple[str, TopicPartition], float] = {}
        for key, pieces in waiting.items():
            found.update(ages(pieces, self._times[key], now.timestamp()))
        return found

    def _record(
        self,
        pipeline: Pipeline,
        look: _Look | None,
        waited: Mapping[tuple[str, TopicPartition], float],
        dagster: DagsterRecord | None,
        now: datetime,
    ) -> PipelineRecord:
        running = dagster.running.get(pipeline.name) if dagster else None
        record = PipelineRecord(
            name=pipeline.name,
            base_path=pipeline.table.base_path.rstrip("/"),
            sensor=pipeline.coordinator,
            enabled=pipeline.enabled if running is None else running,
            interval_seconds=pipeline.transaction.interval_seconds,
            error=TIMEOUT if look is None else look.error,
            reason=self._silence if look is None else look.reason,
            activity=dagster.activity.get(pipeline.name, "?") if dagster else "?",
            ttl_days=pipeline.table.ttl.days if pipeline.table.ttl else None,
            findings=dagster.findings.get(pipeline.name, ()) if dagster else (),
        )
        if look is None or look.committed is None:
            return record
        commits = look.committed.commits
        record = replace(record, table=_table(pipeline, look.committed, now))
        if commits:
            record = replace(record, size=self._sizes.of(pipeline, commits[0].instant))
        situation = look.situation
        if situation is None:
            return record
        own = {source: age for (name, source), age in waited.items() if name == pipeline.name}
        try:
            return replace(
                record,
                partitions=_partitions(pipeline, situation, own),
                findings=(*record.findings, *self._findings(pipeline, situation, own, now, running is False)),
            )
        except IngestError as error:
            return replace(record, error=type(error).__name__, reason=str(error))

    def _findings(
        self,
        pipeline: Pipeline,
        situation: Situation,
        own: Mapping[TopicPartition, float],
        now: datetime,
        paused: bool,
    ) -> list[Finding]:
        commits = situation.committed.commits
        newest = commits[0].instant if commits else ""
        known = self._on_commits.get(pipeline.name)
        if (
            known is None
            or known[:2] != (pipeline, newest)
            # What the table lists may be damaged at any time, and then nothing is committed any more.
            or (now - known[3]).total_seconds() >= _ON_COMMITS_SECONDS
            or not all(finding.passed for finding in known[2])
        ):
            known = (pipeline, newest, findings_on_commits(pipeline, situation), now)
            self._on_commits[pipeline.name] = known
        oldest = max(own.values(), default=None)
        return [*findings_now(pipeline, situation, now, oldest=lambda: oldest, paused=paused), *known[2]]


def _look(pipeline: Pipeline, cluster: ClusterSnapshot | None) -> _Look:
    """Look at the table, with what the broker said. A table that cannot be read is an error, as is a broker that did not answer."""
    if cluster is not None:
        try:
            situation = observe(pipeline, cluster.of(pipeline.source))
            return _Look(pipeline, situation.committed, situation)
        except IngestError as error:
            why, reason = type(error).__name__, str(error)
    else:
        why, reason = TIMEOUT, f"The brokers {pipeline.source.bootstrap_servers} have not answered in time."
    try:
        return _Look(pipeline, PipelineTable(pipeline).committed(), None, why, reason)
    except IngestError as error:
        return _Look(pipeline, None, None, type(error).__name__, str(error))


def _table(pipeline: Pipeline, committed: CommittedState, now: datetime) -> TableRecord:
    checkpoint = committed.checkpoint
    found = read_amplification(committed.commits) if pipeline.table.is_keyed else None
    return TableRecord(
        sequence=checkpoint.sequence if checkpoint else 0,
        totals=checkpoint.totals if checkpoint else {},
        expectations=tuple(expectation.name for expectation in pipeline.expectations),
        dead_letters=checkpoint.letters.waiting if checkpoint and checkpoint.letters else 0,
        committed_at=committed.last_committed_at,
        amplification=found,
        compaction_due=found is not None and bool(why_due(pipeline.table.compaction, found, now)),
    )


def _partitions(
    pipeline: Pipeline, situation: Situation, waited: Mapping[TopicPartition, float]
) -> tuple[PartitionStatus, ...]:
    return tuple(
        replace(each, lag_seconds=0.0 if each.lag == 0 else waited.get(each.source))
        for each in partition_statuses(situation, stopped_partitions(pipeline, situation))
    )


def _waiting(pipeline: Pipeline, situation: Situation) -> list[Waiting]:
    try:
        starts, lag = situation.starts, situation.lag.by_partition
    except IngestError:
        # Its record says so.
        return []
    return [
        Waiting(
            pipeline,
            situation.topic_ids.get(source.topic, ""),
            Slice(source.topic, source.partition, starts[source], situation.watermarks[source].end),
        )
        for source, count in lag.items()
        if count
    ]


class _Questions:
    """Questions that threads of this process are asking. One that has not ended is not asked again."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, "metrics")
        self._asked: dict[object, Future[Any]] = {}

    def ask(self, key: object, question: Any, *arguments: Any) -> Future[Any]:
        asked = self._asked.get(key)
        if asked is None or asked.done():
            asked = self._pool.submit(question, *arguments)
            self._asked[key] = asked
        return asked

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _wait(questions: Iterable[Future[Any]], until: float) -> None:
    wait(list(questions), timeout=max(0.0, until - time.monotonic()))


def _answer(question: Future[Any]) -> Any:
    """The answer; None if there is none yet, or it is an error, which is logged."""
    if not question.done():
        return None
    try:
        return question.result()
    except IngestError as error:
        _logger.warning("%s", error)
    except Exception:
        # Broad, because a scrape must not fail for all when one question finds something unexpected.
        _logger.exception("a question for metrics failed")
    return None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pipeline's range of waiting offsets in one partition. `topic_id` tells a recreated topic from the one before."""

    pipeline: Pipeline
    topic_id: str
    slice: Slice

    @property
    def first(self) -> tuple[str, TopicPartition, int]:
        return (self.topic_id, self.slice.source, self.slice.start)


class WaitingTimes:
    """The timestamps of one cluster's first waiting records. The record at an offset stays the same, so each is asked for once;
    while a partition does not move, it costs nothing."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, TopicPartition, int], tuple[int | None, int]] = {}

    def learn(self, waiting: Sequence[Waiting]) -> None:
        """Ask the broker, by one consumer, for what is not known. An unreachable broker leaves it unknown."""
        known = {piece.first: self._known[piece.first] for piece in waiting if piece.first in self._known}
        self._known = known
        unknown = [piece for piece in waiting if not self._is_known(piece)]
        # One range per partition: two pipelines of a topic take turns.
        asked = {
            piece.slice.source: piece for piece in sorted(unknown, key=lambda piece: piece.slice.count)[-MOST_ASKED:]
        }
        if not asked:
            return
        pipeline = next(iter(asked.values())).pipeline
        try:
            times = first_times(pipeline.source, pipeline.group_id, [piece.slice for piece in asked.values()])
        except IngestError as error:
            _logger.warning("how long records of %s wait is unknown: %s", pipeline.source.bootstrap_servers, error)
            return
        self._known = {
            **known,
            **{piece.first: (times.get(source), piece.slice.end) for source, piece in asked.items()},
        }

    def milliseconds(self, piece: Waiting) -> int | None:
        """The timestamp of the piece's first record; None if it is unknown, or the record has none."""
        return self._known.get(piece.first, (None, 0))[0]

    def _is_known(self, piece: Waiting) -> bool:
        # A range without any record, of transaction markers, may have one once it has grown.
        time, end = self._known.get(piece.first, (None, -1))
        return time is not None or end == piece.slice.end


def ages(
    waiting: Sequence[Waiting], times: WaitingTimes, now_seconds: float
) -> Mapping[tuple[str, TopicPartition], float]:
    """Return the age in seconds by pipeline and partition, without those that are unknown or in the future."""
    found = {(piece.pipeline.name, piece.slice.source): times.milliseconds(piece) for piece in waiting}
    seconds = {key: now_seconds - time / 1000 for key, time in found.items() if time is not None}
    return {key: age for key, age in seconds.items() if age >= 0}


class TableSizes:
    """`of` answers at once, with None until the table's files have been listed for the first time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, "table-sizes")
        self._known: dict[str, tuple[float, str, TableSize | None]] = {}
        self._queued = set[str]()
        self._lock = threading.Lock()

    def of(self, pipeline: Pipeline, instant: str) -> TableSize | None:
        """The size as of some minutes ago. `instant`: the table's newest commit; without a new one nothing is read again."""
        path = pipeline.table.base_path
        with self._lock:
            read_at, known_instant, size = self._known.get(path, (0.0, "", None))
            outdated = known_instant != instant and (size is None or self._clock() - read_at > _KEPT_SIZE_SECONDS)
            if outdated and path not in self._queued:
                self._queued.add(path)
                self._pool.submit(self._read, pipeline, instant)
        return size

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, pipeline: Pipeline, instant: str) -> None:
        path = pipeline.table.base_path
        size = None
        try:
            size = _size(pipeline)
        except IngestError as error:
            _logger.warning("the size of the table of %s is unknown: %s", pipeline.name, error)
        with self._lock:
            self._known[path] = (self._clock(), instant, size)
            self._queued.discard(path)


def _size(pipeline: Pipeline) -> TableSize:
    table = pipeline.table
    groups = PipelineTable(pipeline).timeline.file_groups()
    partitions = aged_partitions(table, groups)
    return TableSize(
        sum(partition.size_bytes for partition in partitions),
        len(partitions),
        None if table.is_keyed else files_to_merge(groups, table.target_file_bytes),
        tuple(partition.ended_at for partition in partitions if partition.ended_at) if table.ttl else (),
    )
