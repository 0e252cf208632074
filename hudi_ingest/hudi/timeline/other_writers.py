"""Read from commits how far other tools that write Kafka topics into Hudi tables have got. Pure.

Hudi Streamer keeps `topic,0:123,1:456` under `streamer.checkpoint.key.v2` (before table version 8 under
`deltastreamer.checkpoint.key`), the Kafka Connect sink `0=123,1=456` under `kafka.commit.offsets`; both are the next offsets to
read. Spark Structured Streaming only keeps the number of its micro-batch; its offsets are in the query's own checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hudi_ingest.hudi.timeline.timeline import CommittedInstant

STREAMER_KEY = "streamer.checkpoint.key.v2"
_STREAMER = (STREAMER_KEY, "deltastreamer.checkpoint.key")
_CONNECT = "kafka.commit.offsets"
_STREAMING = "_hudi_streaming_sink_checkpoint"
_OURS = "hudi_ingest.transaction."

HUDI_STREAMER = "Hudi Streamer"
KAFKA_CONNECT = "the Hudi sink of Kafka Connect"
SPARK_STREAMING = "Spark Structured Streaming"

APPENDS = frozenset({"INSERT", "INSERT_PREPPED", "BULK_INSERT", "BULK_INSERT_PREPPED"})
"""Hudi's operations that add rows and leave existing ones alone."""
_NO_RECORDS = frozenset(
    {
        *("CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX", "ALTER_SCHEMA", "BUCKET_RESCALE"),
        *("DELETE", "DELETE_PREPPED", "DELETE_PARTITION"),
    }
)
"""Operations that cannot have ingested records from Kafka: they move or remove rows."""


@dataclass(frozen=True, slots=True)
class OtherWriter:
    """Which tool wrote, and the next offset of each Kafka partition; `topic` and `offsets` are empty if not recorded."""

    name: str
    topic: str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    """Spark Structured Streaming: the last micro-batch of each query that the commit names."""


@dataclass(frozen=True, slots=True)
class LastIngest:
    """The newest commit of a table known to have ingested records from Kafka."""

    writer: OtherWriter
    instant: str
    operation: str
    strangers: tuple[str, ...]
    """Newer commits that wrote rows from an unknown source."""


def other_writer(metadata: Mapping[str, str]) -> OtherWriter | None:
    """Identify the tool that stored offsets in a commit's extra metadata. None if there are none, and for our own commits."""
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


def last_ingest(commits: Sequence[CommittedInstant]) -> LastIngest | None:
    """Find the newest commit that records offsets; `commits` are in order of completion, newest first.

    None if no commit does, or one of hudi-ingest's own comes first.
    """
    strangers: list[str] = []
    for commit in commits:
        writer = other_writer(commit.metadata)
        if writer is not None:
            return LastIngest(writer, commit.instant, commit.operation, tuple(strangers))
        if any(key.startswith(_OURS) for key in commit.metadata):
            return None
        if commit.operation not in _NO_RECORDS:
            strangers.append(f"{commit.instant} ({commit.operation or 'unknown operation'})")
    return None


def batches_of(commits: Iterable[CommittedInstant]) -> dict[str, int]:
    """Return the newest micro-batch of each Spark Structured Streaming query."""
    newest: dict[str, int] = {}
    for commit in commits:
        writer = other_writer(commit.metadata)
        for query, batch in (writer.batches if writer else {}).items():
            newest[query] = max(batch, newest.get(query, batch))
    return newest


def streamer_text(topic: str, offsets: Mapping[int, int]) -> str:
    """Format offsets as Hudi Streamer stores them."""
    return ",".join([topic, *(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))])


def _offsets(text: str, separator: str) -> dict[int, int]:
    """Parse `partition<separator>offset,…`; empty for any other text, such as the checkpoint of a source that is not Kafka."""
    pairs = [re.fullmatch(rf"(\d+){separator}(\d+)", pair) for pair in text.split(",")]
    return {int(pair[1]): int(pair[2]) for pair in pairs if pair} if all(pairs) else {}


def _batches(text: str) -> dict[str, int]:
    try:
        return {str(query): int(batch) for query, batch in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        return {}
