"""How far a consumer has fetched, by librdkafka's statistics. It delivers nothing of aborted transactions, however long it
takes to pass over them, so silence alone does not say that the broker is. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from hudi_ingest.model.offsets import TopicPartition

_A_TIMEOUT = 4
"""How often a client says how far it is, while it waits for as long as it may."""


def statistics_options(timeout_seconds: float) -> dict[str, str]:
    """librdkafka's settings for a client that waits this long for an answer."""
    return {"statistics.interval.ms": str(max(1, int(timeout_seconds * 1000 / _A_TIMEOUT)))}


class FetchPositions:
    """The next offset to fetch of each partition."""

    def __init__(self, starts: Mapping[TopicPartition, int]) -> None:
        self._positions = dict(starts)
        self._statistics: bytes | str = ""

    def take(self, statistics: bytes | str) -> None:
        """The client's newest statistics."""
        self._statistics = statistics

    def advance(self, waited_for: Collection[TopicPartition]) -> bool:
        """Whether the client has come further in one of these partitions since it was last asked."""
        if not self._statistics:
            return False
        topics, self._statistics = json.loads(self._statistics)["topics"], ""
        has_advanced = False
        for source in waited_for:
            partition = topics.get(source.topic, {}).get("partitions", {}).get(str(source.partition))
            # Negative until the client has begun to fetch.
            if partition is not None and partition["next_offset"] > self._positions[source]:
                self._positions[source] = partition["next_offset"]
                has_advanced = True
        return has_advanced
