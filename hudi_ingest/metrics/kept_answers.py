"""Answers that take a broker's records or a listing of a table's files, kept from one look to the next."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hudi_ingest.exceptions import IngestError
from hudi_ingest.hudi.files.read_amplification import files_to_merge
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.kafka.records import first_times
from hudi_ingest.metrics.exposition import TableSize
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.operations.upkeep.partition_age import aged_partitions
from hudi_ingest.pipeline.pipeline import Pipeline

_logger = logging.getLogger(__name__)
MOST_ASKED = 200
"""Partitions of one cluster that one look asks about, those with the largest lag first."""


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


KEPT_SECONDS = 600.0


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
            outdated = known_instant != instant and (size is None or self._clock() - read_at > KEPT_SECONDS)
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
