"""How far other tools that write Kafka topics into Hudi tables have got, as their commits tell it.

Hudi Streamer keeps `topic,0:123,1:456` under `streamer.checkpoint.key.v2` (before table version 8 under
`deltastreamer.checkpoint.key`), the Kafka Connect sink `0=123,1=456` under `kafka.commit.offsets`; both are the next offsets to
read. Spark Structured Streaming keeps only the number of its micro-batch; its offsets are in the query's own checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_STREAMER = ("streamer.checkpoint.key.v2", "deltastreamer.checkpoint.key")
_CONNECT = "kafka.commit.offsets"
_STREAMING = "_hudi_streaming_sink_checkpoint"


@dataclass(frozen=True, slots=True)
class OtherWriter:
    """Who wrote, and the next offset of each Kafka partition; `topic` is "" and offsets are empty where it does not tell."""

    name: str
    topic: str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)

    def starting_offsets(self, topics: Iterable[str]) -> str:
        """What `source.starting_offsets` must be to go on there, as YAML on one line; "" where that is not known."""
        topic, topics = self.topic, list(topics)
        if not topic and len(topics) == 1:
            topic = topics[0]
        if not self.offsets or topic not in topics:
            return ""
        return f"{{{topic}: {{{', '.join(f'{partition}: {offset}' for partition, offset in sorted(self.offsets.items()))}}}}}"


def other_writer(commits: Iterable[Mapping[str, str]]) -> OtherWriter | None:
    """Of the newest commit that tells; `commits` are extra metadata, newest first. None when no commit does."""
    for metadata in commits:
        for key in _STREAMER:
            if (text := metadata.get(key)) is not None:
                topic, _, rest = text.partition(",")
                return OtherWriter("Hudi Streamer", topic, _offsets(rest, ":"))
        if (text := metadata.get(_CONNECT)) is not None:
            return OtherWriter("the Hudi sink of Kafka Connect", "", _offsets(text, "="))
        if metadata.get(_STREAMING) is not None:
            return OtherWriter("Spark Structured Streaming")
    return None


def _offsets(text: str, sign: str) -> dict[int, int]:
    """Empty unless all of it reads as `partition<sign>offset,…`: the checkpoint of another source than Kafka does not."""
    pairs = [re.fullmatch(rf"(\d+){sign}(\d+)", each) for each in text.split(",")]
    return {int(each[1]): int(each[2]) for each in pairs if each} if all(pairs) else {}
