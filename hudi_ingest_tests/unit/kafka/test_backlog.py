"""What is read of several ranges at a time is handed on one partition after another, whole, in order, and within bounds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.kafka.backlog import BATCH_BYTES, Backlog
from hudi_ingest.model.offsets import Slice, TopicPartition

pytestmark = pytest.mark.fast

MEBIBYTE = 1024 * 1024
MOST_WAITING = 2 * BATCH_BYTES
LARGEST = 3 * MEBIBYTE


def record(offset: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"offset": pa.array([offset], pa.int64()), "value": pa.array([b"v"])})


@given(st.data())
def test_p2_each_range_is_handed_on_whole_and_in_order_whatever_the_order_of_reading(data: st.DataObject) -> None:
    ranges = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), min_size=1, max_size=5))
    slices = [Slice("t", number, start, start + count) for number, (start, count) in enumerate(ranges)]
    # Offsets that the broker does not deliver.
    gaps = data.draw(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 45)), max_size=20))
    size = data.draw(st.sampled_from([100, MEBIBYTE, LARGEST]))
    backlog = Backlog(slices, MOST_WAITING)
    handed_on: dict[TopicPartition, list[int]] = {slice_.source: [] for slice_ in slices}
    order: list[TopicPartition] = []
    rounds = 0

    def hand_on() -> None:
        for source, batch in backlog.ready():
            handed_on[source] += batch["offset"].to_pylist()
            if order[-1:] != [source]:
                order.append(source)

    while positions := backlog.begin_round():
        rounds += 1
        assert rounds <= len(slices), "each round completes a range"
        hand_on()
        while backlog.is_reading:
            # As a consumer that answers for any partition, also for those that were held meanwhile.
            source = data.draw(st.sampled_from(sorted(positions)))
            range_ = backlog.range_of(source)
            if range_ is None:
                continue
            offset = positions[source]
            if (source.partition, offset) not in gaps and offset < range_.slice.end:
                backlog.add(range_, record(offset), size)
            positions[source] += 1
            backlog.advance(range_, offset + 1)
            hand_on()
            backlog.hold()
            waiting = sum(open_range.size for open_range in backlog._open.values())
            assert waiting <= MOST_WAITING + BATCH_BYTES + LARGEST
    assert len(set(order)) == len(order), "no partition is handed on in two pieces"
    assert handed_on == {
        slice_.source: [offset for offset in range(slice_.start, slice_.end) if (slice_.partition, offset) not in gaps]
        for slice_ in slices
    }


def test_small_ranges_wait_until_they_are_whole_and_a_large_one_is_streamed() -> None:
    backlog = Backlog([Slice("t", 0, 0, 100), Slice("t", 1, 0, 2)], MOST_WAITING)
    assert backlog.begin_round() == {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}

    def read(partition: int, offset: int, size: int) -> list[int]:
        range_ = backlog.range_of(TopicPartition("t", partition))
        assert range_ is not None
        backlog.add(range_, record(offset), size)
        backlog.advance(range_, offset + 1)
        return [source.partition for source, _ in backlog.ready()]

    assert read(1, 0, 10) == []
    assert read(0, 0, BATCH_BYTES) == [0]
    assert read(1, 1, 10) == [], "not in between"
    assert read(0, 99, 10) == [0, 1]
    assert not backlog.is_reading
    assert backlog.begin_round() == {}


def test_what_has_no_room_is_read_in_another_round() -> None:
    backlog = Backlog([Slice("t", number, 0, 100) for number in range(3)], MOST_WAITING)
    backlog.begin_round()
    zero, one, two = (TopicPartition("t", number) for number in range(3))
    for source, size in ((zero, BATCH_BYTES), (one, MOST_WAITING + 1)):
        range_ = backlog.range_of(source)
        assert range_ is not None
        backlog.add(range_, record(0), size)
        backlog.advance(range_, 1)
        list(backlog.ready())
    assert backlog.hold() == [one, two]
    assert (backlog.range_of(one), backlog.range_of(two)) == (None, None)
    assert [str(slice_) for slice_ in backlog.reading] == ["t:0[0,100)"]
    streamed = backlog.range_of(zero)
    assert streamed is not None
    backlog.advance(streamed, 100)
    # The one that waits with a whole batch is next, and goes on in the next round.
    assert [source for source, _ in backlog.ready()] == [one]
    assert not backlog.is_reading
    assert backlog.begin_round() == {one: 1, two: 0}
