"""How far other tools that write Kafka topics into Hudi tables have got, as their commits tell it. Pure.

Hudi Streamer keeps `topic,0:123,1:456` under `streamer.checkpoint.key.v2` (before table version 8 under
`deltastreamer.checkpoint.key`), the Kafka Connect sink `0=123,1=456` under `kafka.commit.offsets`; both are the next offsets to
read. Spark Structured Streaming keeps only the number of its micro-batch; its offsets are in the query's own checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

STREAMER_KEY = "streamer.checkpoint.key.v2"
_STREAMER = (STREAMER_KEY, "deltastreamer.checkpoint.key")
_CONNECT = "kafka.commit.offsets"
_STREAMING = "_hudi_streaming_sink_checkpoint"
_OURS = "hudi_ingest.transaction."

HUDI_STREAMER = "Hudi Streamer"
KAFKA_CONNECT = "the Hudi sink of Kafka Connect"
SPARK_STREAMING = "Spark Structured Streaming"

APPENDS = frozenset({"INSERT", "INSERT_PREPPED", "BULK_INSERT", "BULK_INSERT_PREPPED"})
"""Hudi's operations that add rows and touch none that are there."""
_NO_RECORDS = frozenset(
    {
        *("CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX", "ALTER_SCHEMA", "BUCKET_RESCALE"),
        *("DELETE", "DELETE_PREPPED", "DELETE_PARTITION"),
    }
)
"""Operations that cannot have brought records from Kafka: they move rows, or take some away."""


class Commit(Protocol):
    """A completed instant; see hudi/timeline.py."""

    @property
    def instant(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...
    @property
    def operation(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OtherWriter:
    """Who wrote, and the next offset of each Kafka partition; `topic` is "" and offsets are empty where it does not tell."""

    name: str
    topic: str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    """Of Spark Structured Streaming: the last micro-batch of each query that the commit names."""


@dataclass(frozen=True, slots=True)
class LastIngest:
    """The newest commit of a table that brought records from Kafka, as far as that can be told."""

    writer: OtherWriter
    instant: str
    operation: str
    strangers: tuple[str, ...]
    """Newer commits that wrote rows and do not say from where."""


def other_writer(metadata: Mapping[str, str]) -> OtherWriter | None:
    """Which tool left offsets in a commit's extra metadata. None for a commit without any, and for one of ours."""
    if any(key.startswith(_OURS) for key in metadata):
        return None
    for key in _STREAMER:
        if (text := metadata.get(key)) is not None:
            topic, _, rest = text.partition(",")
            return OtherWriter(HUDI_STREAMER, topic, _offsets(rest, ":"))
    if (text := metadata.get(_CONNECT)) is not None:
        return OtherWriter(KAFKA_CONNECT, "", _offsets(text, "="))
    if (text := metadata.get(_STREAMING)) is not None:
        return OtherWriter(SPARK_STREAMING, batches=_batches(text))
    return None


def last_ingest(commits: Sequence[Commit]) -> LastIngest | None:
    """Of the newest commit that tells; `commits` are in the order of their completion, newest first.

    None when no commit tells, or one of hudi-ingest's own comes first.
    """
    strangers: list[str] = []
    for each in commits:
        writer = other_writer(each.metadata)
        if writer is not None:
            return LastIngest(writer, each.instant, each.operation, tuple(strangers))
        if any(key.startswith(_OURS) for key in each.metadata):
            return None
        if each.operation not in _NO_RECORDS:
            strangers.append(f"{each.instant} ({each.operation or 'of an unknown operation'})")
    return None


def batches_of(commits: Iterable[Commit]) -> dict[str, int]:
    """The newest micro-batch of each query of Spark Structured Streaming."""
    found: dict[str, int] = {}
    for each in commits:
        writer = other_writer(each.metadata)
        for query, batch in (writer.batches if writer else {}).items():
            found[query] = max(batch, found.get(query, batch))
    return found


def streamer_text(topic: str, offsets: Mapping[int, int]) -> str:
    """The offsets as Hudi Streamer keeps them."""
    return ",".join([topic, *(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))])


def _offsets(text: str, sign: str) -> dict[int, int]:
    """Empty unless all of it reads as `partition<sign>offset,…`: the checkpoint of another source than Kafka does not."""
    pairs = [re.fullmatch(rf"(\d+){sign}(\d+)", each) for each in text.split(",")]
    return {int(each[1]): int(each[2]) for each in pairs if each} if all(pairs) else {}


def _batches(text: str) -> dict[str, int]:
    try:
        return {str(query): int(batch) for query, batch in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        return {}
