"""The offsets that a person asks a backfill or replay for, and the slices that they are now.

The command line, the Launchpad and REST name the parts of a selection differently. They share the rules, and the sentences
that explain a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from hudi_ingest.exceptions import LeaderMissing, NothingToDo, RangeRefused
from hudi_ingest.kafka.cluster import kept_cluster
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.operations.observation import Observation, look_at
from hudi_ingest.operations.requests.replaced_files import accounted_slices
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.plan.planning import Situation

_AWARE_TIME = TypeAdapter(AwareDatetime)
Bound = TypeVar("Bound", int, datetime)
_YEAR = re.compile(r"\d{4}-", re.ASCII)


class WrongSelection(ValueError):
    """A selection that is incomplete, ambiguous or malformed."""


class EmptyRange(WrongSelection):
    """The range ends where it starts, or before."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a surface has for the parts of a selection. `choice` lists the ways to select, `place` is put before what is
    wrong with a range, whose index replaces its `{}`."""

    choice: str
    partition: str
    start: str
    end: str
    from_time: str
    to_time: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one Kafka partition, up to the committed one if there is no `end`."""

    source: TopicPartition
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Offsets selected in exactly one way: as `ranges`, by Kafka timestamps in all partitions, [from_time, to_time), up to the
    committed offsets if there is no `to_time`, or as everything that the transaction `read_by` read."""

    ranges: tuple[OffsetRange, ...] = ()
    from_time: datetime | None = None
    to_time: datetime | None = None
    read_by: str | None = None


AskedRange = tuple[TopicPartition | None, int | None, int | None]
"""A range's partition, start and end, as far as they are given."""


def select(
    names: Names,
    pipeline: Pipeline,
    *,
    ranges: Sequence[AskedRange] = (),
    from_time: datetime | None = None,
    to_time: datetime | None = None,
    read_by: str | None = None,
) -> Selection:
    """Return the selection that a person has described. Ends may be left out for a keyed table only, which
    is read up to the committed offsets.

    Raises WrongSelection unless it selects in exactly one way, and completely; EmptyRange.
    """
    open_ends = pipeline.table.is_keyed
    by_time = from_time is not None or to_time is not None
    if bool(ranges) + by_time + (read_by is not None) != 1:
        raise WrongSelection(f"give one of: {names.choice}")
    if by_time:
        if from_time is None or (to_time is None and not open_ends):
            raise WrongSelection(
                f"{names.from_time} and {names.to_time} go together; a keyed table needs no {names.to_time}"
            )
        _require_order(names.from_time, from_time, names.to_time, to_time)
    complete = []
    for index, (source, start, end) in enumerate(ranges):
        place = names.place.format(index)
        if source is None or start is None or (end is None and not open_ends):
            raise WrongSelection(
                f"{place}{names.partition}, {names.start} and {names.end} go together; a keyed table needs no {names.end}"
            )
        if start < 0:
            raise WrongSelection(f"{place}{names.start} must be 0 or more; found {start}")
        _require_order(f"{place}{names.start}", start, names.end, end)
        complete.append(OffsetRange(source, start, end))
    return Selection(tuple(complete), from_time, to_time, read_by)


def iso_time(text: object) -> datetime:
    """Parse a point in time. Raises ValueError, for its name to be put before."""
    try:
        # A bare number would be taken for seconds since 1970.
        if isinstance(text, str) and _YEAR.match(text):
            return _AWARE_TIME.validate_python(text)
    except ValidationError:
        pass
    raise ValueError(f"expects ISO 8601 with a time zone, e.g. 2026-01-31T00:00:00Z; found {text!r}")


def named_time(name: str, text: str | None) -> datetime | None:
    """Parse a point in time of this name; None if there is none. Raises WrongSelection."""
    try:
        return None if text is None else iso_time(text)
    except ValueError as error:
        raise WrongSelection(f"{name} {error}") from None


def selected_slices(pipeline: Pipeline, selection: Selection) -> tuple[tuple[Slice, ...], Observation]:
    """Return the slices that are selected, and the observation of table and broker.

    Raises EmptyRange, NothingToDo, RangeRefused, KafkaUnreachable, KafkaRefused, TableUnreachable.
    """
    observation = look_at(pipeline)
    if selection.read_by is not None:
        return of_transaction(observation, selection.read_by), observation.whole()
    situation = observation.situation
    if selection.from_time is not None:
        return in_time(pipeline, situation, selection.from_time, selection.to_time), observation
    slices = []
    for asked in selection.ranges:
        source, end = asked.source, asked.end
        if end is None:
            end = committed_end(situation, source, asked.start)
            _require_order("start", asked.start, "the committed offset,", end)
        slices.append(Slice(source.topic, source.partition, asked.start, end))
    return tuple(slices), observation


def committed_end(situation: Situation, source: TopicPartition, start: int) -> int:
    """Return the partition's committed offset; without one, an end that makes the range from `start` be judged, and refused."""
    checkpoint = situation.committed.checkpoint
    return checkpoint.offsets.get(source, start + 1) if checkpoint else start + 1


def in_time(pipeline: Pipeline, situation: Situation, start: datetime, end: datetime | None) -> tuple[Slice, ...]:
    """Return each partition's slice from its first record at or after `start` to its first record at or after `end`, cut
    at the committed offset: later records belong to live transactions. Without an `end` it is the committed offset.

    Times are the records' Kafka timestamps. If producers set them and they are out of order, the slice's ends are where
    Kafka's time index puts them. Raises NothingToDo, KafkaUnreachable, KafkaRefused; LeaderMissing rather than leave a partition
    out.
    """
    require_leaders(situation.leaderless)
    with kept_cluster(pipeline.source) as cluster:
        starts = cluster.offsets_at(start, situation.watermarks)
        ends = None if end is None else cluster.offsets_at(end, situation.watermarks)
    checkpoint = situation.committed.checkpoint
    committed = checkpoint.offsets if checkpoint else {}
    if ends is None:
        ends = {source: committed.get(source, starts[source]) for source in situation.watermarks}
    bounds = {
        source: (starts[source], min(ends[source], committed.get(source, ends[source])))
        for source in sorted(situation.watermarks)
    }
    slices = tuple(
        Slice(source.topic, source.partition, begin, stop) for source, (begin, stop) in bounds.items() if begin < stop
    )
    if not slices:
        raise NothingToDo(
            pipeline.name,
            f"Kafka has no records from {start.isoformat()}{f' to {end.isoformat()}' if end else ''} before the committed offsets",
        )
    return slices


def of_transaction(observation: Observation, transaction_id: str) -> tuple[Slice, ...]:
    """Return the slices that a committed transaction read. Raises RangeRefused if its commit is not on the active timeline,
    TableUnreachable."""
    pipeline, instant = observation.pipeline, observation.table.instant_of(transaction_id)
    commits = [commit for commit in observation.own_commits if commit.instant == instant]
    slices = tuple(
        account.slice for account in accounted_slices(commits, pipeline.transaction_key) if account.slice.count
    )
    if not slices:
        raise RangeRefused(
            f"transaction {transaction_id} of pipeline {pipeline.name}",
            [
                "the table's active timeline has no commit of it with records: its id is misspelt, or it was rolled back or archived. "
                f"`hudi-ingest status {pipeline.name}` shows the last ids; or give the offsets with --partition, --start and --end"
            ],
        )
    return tuple(sorted(slices))


def _require_order(start_name: str, start: Bound, end_name: str, end: Bound | None) -> None:
    if end is not None and start >= end:
        raise EmptyRange(f"{start_name} {start} is not before {end_name} {end}")


def require_leaders(leaderless: Collection[TopicPartition]) -> None:
    source = min(leaderless, default=None)
    if source is not None:
        raise LeaderMissing(
            f"{source} has no leader, so the range cannot be read whole. Nothing was written. Try again when the brokers that have "
            "the partition are up; `kafka-topics.sh --describe --unavailable-partitions` names them.",
            topic=source.topic,
            partition=source.partition,
        )
