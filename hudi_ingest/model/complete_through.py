"""Up to which Kafka timestamp a table has all records, by Kafka partition; see decision 37. Pure.

Times are milliseconds since 1970, as Kafka's. A look at the broker gives a mark: where a partition ended at a known time. Whoever
appends later does so with a later timestamp, or with one that is earlier by the declared lateness at most. So once everything before
the mark is committed, no record can come with a timestamp before the mark's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hudi_ingest.model.offsets import Offsets, TopicPartition, Watermarks

BROKER_TIME_SECONDS = 2.0
"""How much later than its timestamp by the broker's clock a record may become readable, by this machine's: the difference of the
clocks. Records that are not replicated for longer are noticed."""
LATER_SECONDS = 1.0
"""Marks this close to the newest one are as good as it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Under the declared rules, no record at `offset` or after it has a timestamp before `since`."""

    offset: int
    since: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """The state of one Kafka partition."""

    through: int | None = None
    """No record with an earlier timestamp can still be committed; None if nothing is known."""
    pending: Mark | None = None
    """The mark that becomes `through` once its offset is committed."""
    seen: int | None = None
    """The greatest timestamp of a committed record; None if none had any."""

    def at(self, committed: int, mark: Mark | None = None) -> Completeness:
        """Return the state when everything before the offset `committed` is in the table, and a look has found `mark`.

        A mark that is out of reach does not replace the pending one, or a partition that lags for ever would never come to one.
        """
        through, pending = self.through, None
        for each in (self.pending, mark):
            if each is None:
                continue
            if each.offset <= committed:
                through = each.since if through is None else max(through, each.since)
            elif pending is None:
                pending = each
        return Completeness(through, pending, self.seen)

    def with_seen(self, latest: int | None) -> Completeness:
        """Return the state after a commit of records up to the timestamp `latest`."""
        if latest is None:
            return self
        return replace(self, seen=latest if self.seen is None else max(self.seen, latest))


Completenesses = Mapping[TopicPartition, Completeness]


@dataclass(frozen=True, slots=True)
class TimesRead:
    """The Kafka timestamps of some records of one partition."""

    earliest: int | None = None
    latest: int | None = None
    """None if no record has any."""
    late: int = 0
    """How many records are earlier than what was complete before they came."""
    earliest_late: int | None = None

    @staticmethod
    def combined(parts: Iterable[TimesRead]) -> TimesRead:
        parts = tuple(parts)
        return TimesRead(
            min((part.earliest for part in parts if part.earliest is not None), default=None),
            max((part.latest for part in parts if part.latest is not None), default=None),
            sum(part.late for part in parts),
            min((part.earliest_late for part in parts if part.earliest_late is not None), default=None),
        )


NO_TIMES = TimesRead()


UNKNOWN = Completeness()


def mark_of(marks: Watermarks, lateness_seconds: float | None) -> Mark | None:
    """Return the mark of a look, None if nothing follows from it: the partition has no leader, or producers set the timestamps and no
    lateness is declared."""
    if not marks.led or marks.written is None or marks.asked_at is None:
        return None
    if lateness_seconds is None and not marks.broker_time:
        return None
    if marks.hides:
        # Not None, by which the partition would lose what is known of it.
        return Mark(marks.written, 0)
    seconds = BROKER_TIME_SECONDS if lateness_seconds is None else lateness_seconds
    return Mark(marks.written, marks.asked_at - round(seconds * 1000))


def of_table(states: Completenesses) -> int | None:
    """Return the table's time: the earliest of its partitions; None if one of them has none, or there are none."""
    times = [state.through for state in states.values()]
    known = [time for time in times if time is not None]
    return min(known) if known and len(known) == len(times) else None


def seen_in_all(states: Completenesses) -> int | None:
    """Return the earliest of the partitions' greatest timestamps, which proves nothing; None if no record had any."""
    return min((state.seen for state in states.values() if state.seen is not None), default=None)


def holding_back(states: Completenesses) -> tuple[TopicPartition, ...]:
    """Return the partitions that keep the table's time from being later, in order; none if all are equally far, or unknown."""
    times = {source: state.through for source, state in states.items()}
    latest = max((time for time in times.values() if time is not None), default=None)
    if latest is None:
        return ()
    behind = latest - round(LATER_SECONDS * 1000)
    return tuple(sorted(source for source, time in times.items() if time is None or time < behind))


def state_of(source: TopicPartition, states: Completenesses, known_topics: Iterable[str]) -> Completeness:
    """Return the partition's state. One that was added to a topic after the last commit has only records that were appended since."""
    if source in states:
        return states[source]
    return Completeness(of_table(states)) if source.topic in known_topics else Completeness()


def late_before(
    sources: Iterable[TopicPartition], states: Completenesses, topics: Iterable[str], said: int | None = None
) -> dict[TopicPartition, int]:
    """Return before which timestamp a partition's records are late. `topics`: those that the table has read. Of a topic that is new to
    it they may be of any time, but what was said of the table before is untrue then. `said`: through which time the table was said to
    be complete since the last commit."""
    known, table = [*topics], of_table(states)
    times = {source: (state_of(source, states, known).through, table, said) for source in sources}
    return {
        source: max(time for time in each if time is not None)
        for source, each in times.items()
        if any(time is not None for time in each)
    }


def next_states(
    states: Completenesses,
    topics: Iterable[str],
    ends: Offsets,
    marks: Mapping[TopicPartition, Mark],
    *,
    restarted: Iterable[TopicPartition] = (),
    not_asked: Iterable[TopicPartition] = (),
) -> dict[TopicPartition, Completeness]:
    """Return the states of partitions after a commit, or after a look that commits nothing.

    `topics`: those that the table has read before; `ends`: up to which offsets it has these partitions then; `marks`: of the look, of
    a commit its plan's; `restarted`: partitions that begin once more, with other offsets; `not_asked`: those whose leader was away,
    also new ones, which are not among `ends` yet, but may have records. Other partitions without a mark have no rule, so nothing is
    known of them any longer. One that is stopped is not among `ends`: its state stays as it is.
    """
    known, fresh, away = [*topics], {*restarted}, {*not_asked}
    following = {source: state_of(source, states, known) for source in away - ends.keys()}
    for source, end in ends.items():
        state = state_of(source, states, known)
        if source in fresh:
            state = replace(state, pending=None)
        if source not in marks and source not in away:
            state = Completeness(seen=state.seen)
        following[source] = state.at(end, marks.get(source))
    return following


def to_dict(states: Completenesses) -> dict[str, dict[str, list[int | None]]]:
    """Return the states for JSON: by topic and partition, what is complete, what was seen, and the pending mark's offset and time."""
    texts: dict[str, dict[str, list[int | None]]] = {}
    for source, state in sorted(states.items()):
        pending = [state.pending.offset, state.pending.since] if state.pending else []
        texts.setdefault(source.topic, {})[str(source.partition)] = [state.through, state.seen, *pending]
    return texts


def from_dict(texts: Mapping[str, Mapping[str, list[int | None]]]) -> dict[TopicPartition, Completeness]:
    """Undo `to_dict`. Raises ValueError, TypeError."""
    states = {}
    for topic, partitions in texts.items():
        for partition, (through, seen, *pending) in partitions.items():
            mark = Mark(*pending) if pending else None  # type: ignore[arg-type]
            states[TopicPartition(topic, int(partition))] = Completeness(through, mark, seen)
    return states
