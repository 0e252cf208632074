"""The time through which a table is complete, in a world of random schedules: no record that is not committed may be earlier."""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from hudi_ingest.model.complete_through import (
    BROKER_TIME_SECONDS,
    Completeness,
    Mark,
    from_dict,
    holding_back,
    late_before,
    mark_of,
    next_states,
    of_table,
    seen_in_all,
    to_dict,
)
from hudi_ingest.model.offsets import TopicPartition, Watermarks

SCHEDULES = int(os.environ.get("COMPLETE_SCHEDULES", "100000"))
MARGIN = int(BROKER_TIME_SECONDS * 1000)
HOUR = 3_600_000
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@dataclass(slots=True)
class _Log:
    """A partition on the broker. `times`: of its records, and since when each can be read, once its producer has ended its transaction."""

    times: list[int] = field(default_factory=list)
    readable_at: list[int] = field(default_factory=list)
    open_from: int | None = None
    committed: int = 0
    stopped: bool = False
    recreated: bool = False
    known: bool = True
    """Whether a commit has read it."""

    def marks(self, now: int, clock: int, by_broker: bool) -> Watermarks:
        written = bisect_right(self.readable_at, now)
        end = written if self.open_from is None else min(written, self.open_from)
        return Watermarks(0, end, written=written, asked_at=clock, broker_time=by_broker)


class _World:
    """Brokers' time runs from 0. A look's clock is off by half of the margin at most, and replication takes the other half at most."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.by_broker = self.random.random() < 0.5
        self.lateness = None if self.by_broker else self.random.choice([MARGIN, HOUR // 2, 2 * HOUR])
        self.now = HOUR
        self.logs = {TopicPartition("orders", number): _Log() for number in range(self.random.randint(1, 3))}
        self.states: dict[TopicPartition, Completeness] = {}
        self.topics: tuple[str, ...] = ()
        self.said: int | None = None

    def step(self) -> None:
        action = self.random.random()
        log = self.logs[self.random.choice([*self.logs])]
        if action < 0.35:
            self._append(log)
        elif action < 0.45:
            self.now += self.random.choice([1, MARGIN, HOUR // 3, HOUR])
        elif action < 0.55:
            # A transaction begins, or ends.
            log.open_from = len(log.times) if log.open_from is None else None
        elif action < 0.72:
            self._look()
        elif action < 0.92:
            self._commit()
        elif action < 0.94:
            # Retention passed the committed offset.
            log.stopped = log.stopped or (bool(self.topics) and log.known and log.committed < len(log.times))
        elif action < 0.96:
            self._recreate(log)
        elif action < 0.98:
            self.logs[TopicPartition("orders", len(self.logs))] = _Log(known=False)
        else:
            # Another process reads what the table has.
            self.states = from_dict(to_dict(self.states))

    def require_true(self) -> None:
        said = self.said
        if said is not None:
            for source, log in self.logs.items():
                unread = log.times[log.committed :]
                assert not unread or min(unread) >= said, f"{source} has {min(unread)}, complete through {said}"

    def _append(self, log: _Log) -> None:
        self.now += self.random.choice([0, 1, 500, 60_000])
        # A look's clock and replication take the margin.
        most = 0 if self.lateness is None else self.lateness - MARGIN
        late = self.random.choice([0, most // 2, most])
        log.times.append(self.now - late)
        # Replication keeps the order.
        at = self.now + self.random.choice([0, MARGIN // 2])
        log.readable_at.append(max([at, *log.readable_at[-1:]]))

    def _marks(self) -> dict[TopicPartition, Watermarks]:
        clock = self.now + self.random.choice([-MARGIN // 2, 0, MARGIN // 2])
        return {source: log.marks(self.now, clock, self.by_broker) for source, log in self.logs.items()}

    def _look(self) -> None:
        watermarks = self._marks()
        if not self.topics:
            return
        away = self._away()
        ends = {source: log.committed for source, log in self.logs.items() if not log.stopped}
        marks = self._of(watermarks, ends.keys() - away)
        self._say({**self.states, **next_states(self.states, self.topics, ends, marks, not_asked=away)})

    def _away(self) -> list[TopicPartition]:
        """Return the partitions without a leader now. A first transaction waits for them."""
        return [
            source
            for source, log in self.logs.items()
            if self.topics and not log.stopped and self.random.random() < 0.1
        ]

    def _of(
        self, watermarks: Mapping[TopicPartition, Watermarks], read: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Mark]:
        lateness = None if self.lateness is None else self.lateness / 1000
        found = {source: mark_of(watermarks[source], lateness) for source in read}
        return {source: mark for source, mark in found.items() if mark is not None}

    def _commit(self) -> None:
        watermarks, away = self._marks(), self._away()
        ends: dict[TopicPartition, int] = {}
        restarted: list[TopicPartition] = []
        for source, log in self.logs.items():
            if source in away:
                ends |= {source: log.committed} if log.known else {}
                continue
            begin, end = log.committed, max(log.committed, watermarks[source].end)
            if log.stopped:
                if self.random.random() < 0.5:
                    continue
                # The loss is accepted: some that was there is given up.
                begin = self.random.randint(begin, end)
                restarted += [source] if log.recreated else []
            # max_records may cut it anywhere.
            ends[source] = self.random.choice([end, end, self.random.randint(begin, end)])
        marks = self._of(watermarks, ends.keys() - away)
        if self.random.random() < 0.3:
            # Records come while it writes.
            self._append(self.logs[self.random.choice([*self.logs])])
        if self.random.random() < 0.1:
            return  # It was rolled back.
        read = next_states(self.states, self.topics, ends, marks, restarted=restarted, not_asked=away)
        self.states, self.topics = {**self.states, **read}, ("orders",)
        for source, end in ends.items():
            log = self.logs[source]
            log.committed, log.known, log.stopped, log.recreated = end, True, False, False
        self._say(self.states)

    def _recreate(self, log: _Log) -> None:
        """The topic is deleted with all that was not read, and made once more. Nothing is read before the loss is accepted."""
        log.times, log.readable_at, log.open_from, log.committed = [], [], None, 0
        log.stopped = log.recreated = bool(self.topics) and log.known

    def _say(self, states: dict[TopicPartition, Completeness]) -> None:
        said = of_table(states)
        if said is not None:
            self.said = said if self.said is None else max(self.said, said)


def test_no_hour_is_complete_while_a_record_of_it_is_unread() -> None:
    """Of idle, late, stopped, recreated and new partitions, open transactions, cut plans, aborted transactions, restarts."""
    said = 0
    for seed in range(SCHEDULES):
        world = _World(seed)
        for _ in range(8):
            world.step()
            world.require_true()
        said += world.said is not None
    assert said > SCHEDULES / 3, "the schedules prove something only where something was said"


def test_an_idle_partition_advances_and_one_that_lags_or_is_stopped_holds_the_table_back() -> None:
    committed = next_states({}, (), {FIRST: 5, SECOND: 0}, {FIRST: Mark(5, 1000), SECOND: Mark(3, 1000)})
    assert (of_table(committed), holding_back(committed)) == (None, (SECOND,))
    # Its pending mark is reached later, although there are more records by then.
    later = next_states(committed, ("orders",), {FIRST: 5, SECOND: 3}, {FIRST: Mark(5, 9000), SECOND: Mark(7, 9000)})
    assert (of_table(later), holding_back(later)) == (1000, (SECOND,))
    # A look that finds the second one stopped.
    looked = {**later, **next_states(later, ("orders",), {FIRST: 5}, {FIRST: Mark(5, 50_000)})}
    assert (of_table(looked), holding_back(looked)) == (1000, (SECOND,))


def test_a_partition_added_to_a_topic_begins_with_the_tables_time_and_one_of_a_new_topic_with_none() -> None:
    states = next_states({}, (), {FIRST: 5}, {FIRST: Mark(5, 1000)})
    other = TopicPartition("returns", 0)
    marks = {FIRST: Mark(5, 2000), SECOND: Mark(4, 2000), other: Mark(4, 2000)}
    found = next_states(states, ("orders",), {FIRST: 5, SECOND: 0, other: 0}, marks)
    assert [found[source].through for source in (FIRST, SECOND, other)] == [2000, 1000, None]
    # Whatever comes of it, what was said before of the table is untrue then.
    assert late_before([FIRST, SECOND, other], states, ["orders"]) == {FIRST: 1000, SECOND: 1000, other: 1000}
    assert late_before([FIRST], states, ["orders"], 5000) == {FIRST: 5000}
    assert late_before([FIRST], {}, []) == {}


def test_without_a_rule_nothing_is_complete_and_records_are_only_observed() -> None:
    marks = Watermarks(0, 5, written=5, asked_at=10_000)
    assert mark_of(marks, None) is None
    assert mark_of(marks, 1.5) == Mark(5, 8500)
    assert mark_of(Watermarks(0, 5, written=5, asked_at=10_000, broker_time=True), None) == Mark(5, 10_000 - MARGIN)
    hiding = mark_of(Watermarks(0, 5, written=5, asked_at=10_000, broker_time=True, hides=True), None)
    assert Completeness(7000).at(5, hiding) == Completeness(7000), "what is known stays, and nothing is added"
    assert mark_of(Watermarks(5, 5, led=False), 1.5) is None
    ruled = next_states({}, (), {FIRST: 5}, {FIRST: Mark(5, 1000)})
    unruled = next_states(ruled, ("orders",), {FIRST: 5}, {})
    assert of_table(unruled) is None
    away = next_states(ruled, ("orders",), {FIRST: 5}, {}, not_asked=[FIRST])
    assert of_table(away) == 1000
    assert seen_in_all({FIRST: Completeness().with_seen(7).with_seen(3), SECOND: Completeness()}) == 7


@pytest.mark.parametrize("states", [{}, {FIRST: Completeness(), SECOND: Completeness(1000, Mark(7, 2000), 900)}])
def test_states_read_back_as_they_were_written(states: dict[TopicPartition, Completeness]) -> None:
    assert from_dict(to_dict(states)) == states


def test_a_newer_mark_does_not_replace_one_that_a_lagging_partition_has_yet_to_reach() -> None:
    state = Completeness(None, Mark(10, 100)).at(5, Mark(20, 200))
    assert (state.through, state.pending) == (None, Mark(10, 100))
    assert state.at(10, Mark(30, 300)).through == 100


def test_the_mark_of_a_partition_that_begins_once_more_is_of_other_offsets() -> None:
    states = {FIRST: Completeness(50, Mark(5, 100))}
    after = next_states(states, ["orders"], {FIRST: 6}, {FIRST: Mark(9, 900)}, restarted=[FIRST])
    assert (after[FIRST].through, after[FIRST].pending) == (50, Mark(9, 900))
    assert next_states(states, ["orders"], {FIRST: 6}, {FIRST: Mark(9, 900)})[FIRST].through == 100
