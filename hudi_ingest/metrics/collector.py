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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, Protocol

import hudi_ingest
from hudi_ingest.exceptions import ConfigError, IngestError
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.files.read_amplification import files_to_merge
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.admin_clients import settings_of
from hudi_ingest.kafka.records import first_times
from hudi_ingest.ledger import Ledger, Overview
from hudi_ingest.ledger.tables import is_over
from hudi_ingest.metrics.definitions import Family
from hudi_ingest.metrics.families import DagsterRecord, Scene, families
from hudi_ingest.model.deadline import started
from hudi_ingest.model.finding import Finding
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.operations.looks import Looks, observe_all
from hudi_ingest.operations.observation import Observation
from hudi_ingest.operations.state import PipelineState, TableSize, table_state
from hudi_ingest.operations.upkeep.partition_ttl import aged_partitions
from hudi_ingest.pipeline.folder import BrokenFile, folder_version, load_each
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation

_logger = logging.getLogger(__name__)
KEPT_SECONDS = 10.0
"""Scrapes within this time get the same values."""
LONGEST_SECONDS = 8.0
"""Seconds for one scene; Prometheus gives up after ten by default."""
RELOAD_SECONDS = 60.0
MOST_ASKED = 200
"""Partitions of one cluster that are asked about for one scene, those with the largest lag first."""
_KEPT_SIZE_SECONDS = 600.0
_ON_COMMITS_SECONDS = 600.0
"""How long the findings about a table's commits serve, if they are good."""


class DagsterView(Protocol):
    """A view of Dagster's instance, which orchestration implements."""

    def look(self, pipelines: Sequence[Pipeline]) -> DagsterRecord: ...


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
        self._lock = threading.Lock()
        self._seen: tuple[float, Scene, list[Family]] | None = None
        self._looks = Looks[Any]("metrics")
        self._asked: dict[str, Future[Any]] = {}
        """What the ledger and Dagster were asked: a question that has not ended is not asked a second time."""
        self._sizes = TableSizes()
        self._times: dict[tuple[Any, ...], WaitingTimes] = {}
        self._on_commits: dict[str, tuple[Pipeline, str, Sequence[Finding], datetime]] = {}
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
        self._sizes.close()

    def look(self) -> Scene:
        """Look at everything now. Raises ConfigError if the pipelines folder cannot be read."""
        began, now = time.monotonic(), datetime.now(timezone.utc)
        until = began + self._longest_seconds
        pipelines, broken = self._pipelines()
        questions: dict[str, Callable[[], Any]] = {"ledger": self._ledger}
        if self._dagster is not None:
            questions["dagster"] = partial(self._dagster.look, pipelines)
        for name, question in questions.items():
            if name not in self._asked or self._asked[name].done():
                self._asked[name] = started(question)
        seen = observe_all(pipelines, self._longest_seconds, looks=self._looks)
        waited = self._waited([each for each in seen.values() if isinstance(each, Observation)], now, until)
        wait(self._asked.values(), timeout=max(0.0, until - time.monotonic()))
        ledger, of_dagster = (_answer(self._asked.get(each)) for each in ("ledger", "dagster"))
        states = [self._state(each, seen[each.name], waited.get(each.name, {}), of_dagster, now) for each in pipelines]
        return Scene(
            at=now,
            took_seconds=time.monotonic() - began,
            pipelines=tuple(states),
            broken_files=tuple(file.path.name for file in broken),
            ledger=ledger,
            overdue=frozenset(path for path, row in ledger.open.items() if is_over(row, lambda run_id: None))
            if ledger
            else frozenset(),
            dagster_up=of_dagster is not None
            if self._dagster and (of_dagster is None or of_dagster.is_there)
            else None,
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

    def _ledger(self) -> Overview:
        with Ledger.open(self._home.ledger_url) as ledger:
            return ledger.overview()

    def _waited(
        self, observations: Sequence[Observation], now: datetime, until: float
    ) -> dict[str, dict[TopicPartition, float]]:
        """Return the ages of the oldest waiting records, by pipeline and partition."""
        waiting: dict[tuple[Any, ...], list[Waiting]] = defaultdict(list)
        for each in observations:
            if each.observed is not None:
                waiting[settings_of(each.pipeline.source)] += _waiting(each.pipeline, each.observed)
        self._times = {key: self._times.get(key) or WaitingTimes() for key in waiting}
        questions = {("times", key): partial(self._times[key].learn, own) for key, own in waiting.items() if own}
        self._looks.ask(questions, until - time.monotonic())
        found: dict[str, dict[TopicPartition, float]] = defaultdict(dict)
        for key, pieces in waiting.items():
            for (name, source), age in ages(pieces, self._times[key], now.timestamp()).items():
                found[name][source] = age
        return found

    def _state(
        self,
        pipeline: Pipeline,
        seen: Observation | IngestError,
        own: Mapping[TopicPartition, float],
        dagster: DagsterRecord | None,
        now: datetime,
    ) -> PipelineState:
        """Return the state of the pipeline. `own`: the ages of its oldest waiting records."""
        known = dagster or DagsterRecord()
        on, activity = known.running.get(pipeline.name), known.activity.get(pipeline.name, "?")
        findings = known.findings.get(pipeline.name, ())
        if isinstance(seen, IngestError):
            return PipelineState(pipeline, error=seen, on=on, activity=activity, findings=findings)
        try:
            seen = replace(seen, ages=own, paused=on is False)
            state = table_state(seen)
            if seen.observed is not None:
                findings = (*findings, *self._findings(seen, now))
        except IngestError as error:
            state = table_state(replace(seen, observed=None, error=error))
        commits = seen.committed.commits
        size = self._sizes.of(seen.table, commits[0].instant) if commits else None
        return replace(state, on=on, activity=activity, findings=findings, size=size)

    def _findings(self, seen: Observation, now: datetime) -> list[Finding]:
        pipeline, commits = seen.pipeline, seen.committed.commits
        newest = commits[0].instant if commits else ""
        known = self._on_commits.get(pipeline.name)
        if (
            known is None
            or known[:2] != (pipeline, newest)
            # What the table lists may be damaged at any time, and then nothing is committed any more.
            or (now - known[3]).total_seconds() >= _ON_COMMITS_SECONDS
            or not all(finding.passed for finding in known[2])
        ):
            known = (pipeline, newest, seen.findings_on_commits, now)
            self._on_commits[pipeline.name] = known
        return [*seen.findings_now, *known[2]]


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


def _answer(question: Future[Any] | None) -> Any:
    """The answer; None if there is none yet, or it is an error, which is logged."""
    if question is None or not question.done():
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
    """`of` answers at once, with None until the table's files have been listed for the first time, one table after another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, str, TableSize | None]] = {}
        self._queued: dict[str, tuple[PipelineTable, str]] = {}
        self._reads = False
        self._lock = threading.Lock()

    def of(self, table: PipelineTable, instant: str) -> TableSize | None:
        """The size as of some minutes ago. `instant`: the table's newest commit; without a new one nothing is read again."""
        path = table.pipeline.table.base_path
        with self._lock:
            read_at, known_instant, size = self._known.get(path, (0.0, "", None))
            if known_instant != instant and (size is None or self._clock() - read_at > _KEPT_SIZE_SECONDS):
                self._queued.setdefault(path, (table, instant))
                if not self._reads:
                    self._reads = True
                    started(self._read)
        return size

    def close(self) -> None:
        with self._lock:
            self._queued.clear()

    def _read(self) -> None:
        while True:
            with self._lock:
                self._reads = bool(self._queued)
                if not self._reads:
                    return
                path, (table, instant) = next(iter(self._queued.items()))
            size = None
            try:
                size = _size(table)
            except Exception as error:  # noqa: BLE001 - the next table's turn comes all the same
                _logger.warning("the size of the table of %s is unknown: %s", table.pipeline.name, error)
            with self._lock:
                self._known[path] = (self._clock(), instant, size)
                self._queued.pop(path, None)


def _size(of: PipelineTable) -> TableSize:
    table, groups = of.pipeline.table, of.timeline.file_groups()
    partitions = aged_partitions(table, groups)
    return TableSize(
        sum(partition.size_bytes for partition in partitions),
        len(partitions),
        None if table.is_keyed else files_to_merge(groups, table.target_file_bytes),
        tuple(partition.ended_at for partition in partitions if partition.ended_at) if table.ttl else (),
    )
