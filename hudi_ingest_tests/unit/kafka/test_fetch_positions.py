"""A silent consumer that gets on is told from a silent broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hudi_ingest.exceptions import KafkaUnreachable
from hudi_ingest.kafka import range_reader
from hudi_ingest.kafka.backlog import FetchPositions, statistics_options
from hudi_ingest.kafka.range_reader import read_ranges
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.pipeline.sections.source import KafkaSource

pytestmark = pytest.mark.fast

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
SOURCE = KafkaSource(bootstrap_servers="b:1", topics=("t",), format="json", request_timeout_seconds=8)


def statistics(next_offsets: Mapping[int, int]) -> bytes:
    """As librdkafka's; the partition -1 has records that have none yet."""
    partitions = {str(partition): {"next_offset": offset} for partition, offset in {-1: 0, **next_offsets}.items()}
    return json.dumps({"topics": {"t": {"partitions": partitions}, "other": {"partitions": {}}}}).encode()


def test_only_a_partition_that_is_waited_for_counts_and_only_once() -> None:
    fetched = FetchPositions({ZERO: 100, ONE: 5})
    assert not fetched.advance([ZERO, ONE]), "nothing is known yet"
    for offsets, waited_for, advances in (
        ({0: -1001, 1: 0}, [ZERO, ONE], False),
        ({0: 100, 1: 5}, [ZERO, ONE], False),
        ({0: 100, 1: 9}, [ZERO], False),
        ({0: 101, 1: 9}, [ZERO], True),
        ({0: 101, 1: 9}, [ZERO, ONE], True),
        ({0: 101, 1: 9}, [ZERO, ONE], False),
        ({1: 9}, [ZERO, ONE], False),
    ):
        fetched.take(statistics(offsets))
        assert fetched.advance(waited_for) is advances, offsets
        assert not fetched.advance(waited_for), "the same statistics prove nothing twice"


def test_p5_a_long_run_of_aborted_records_is_no_silent_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class Passing:
        """Delivers nothing, and fetches 1,000 offsets a second for a minute."""

        def __init__(self, on_statistics: Callable[[bytes], None]) -> None:
            self._on_statistics = on_statistics

        def assign(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
            assert positions == {ZERO: 0}

        def poll(self, addresses: Any, milliseconds: int) -> int:
            nonlocal now
            now += 2
            self._on_statistics(statistics({0: int(min(now, 60) * 1000)}))
            return 0

        def close(self) -> None:
            pass

    monkeypatch.setattr(range_reader, "_consumer", lambda *arguments: Passing(arguments[3]))
    monkeypatch.setattr("hudi_ingest.kafka.range_reader.time.monotonic", lambda: now)
    with pytest.raises(KafkaUnreachable, match="no answer"):
        next(read_ranges(SOURCE, "g", [Slice("t", 0, 0, 10**9)]))
    assert 60 + 8 <= now <= 60 + 8 + 4


def test_statistics_come_several_times_within_the_timeout() -> None:
    assert statistics_options(8) == {"statistics.interval.ms": "2000"}
    assert statistics_options(0.001) == {"statistics.interval.ms": "1"}
