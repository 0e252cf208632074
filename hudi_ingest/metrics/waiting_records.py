"""How long the first waiting record of each partition has waited, by its Kafka timestamp."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hudi_ingest.exceptions import IngestError
from hudi_ingest.kafka.records import first_times
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.pipeline.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
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
            _LOG.warning("how long records of %s wait is unknown: %s", pipeline.source.bootstrap_servers, error)
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
