"""The names of data files: where their rows come from, file ids that say so, and write tokens. Pure.

A base file's id is `<UUID>-0`. The UUID is of version 8 (RFC 9562, section 5.8: custom layout) and holds, from its most
significant bit: 48 bits of the first offset, 4 bits version, 8 more bits of the first offset and 4 of the Kafka
partition, 2 bits variant, 16 more bits of the partition, 46 bits of a hash of (topic, table partition, instant).

The instant is part of the id: the same id in two commits would be one file group, whose newer file hides the older one.
Hudi's record index expects ids of this shape.
"""

from __future__ import annotations

import hashlib
import uuid
import zlib
from dataclasses import dataclass

from hudi_ingest.model.offsets import TopicPartition

_OFFSET_BITS = 56
_PARTITION_BITS = 20
_HASH_BITS = 46
MAX_OFFSET = (1 << _OFFSET_BITS) - 1
MAX_PARTITION = (1 << _PARTITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """Where a base file's first record came from. The topic is not in the id, only a hash that depends on it."""

    partition: int
    first_offset: int


def file_id(topic: str, partition: int, first_offset: int, partition_path: str, instant: str) -> str:
    """Compute the id of the base file whose first record is at `first_offset`; the same arguments give the same id.

    Raises ValueError when the partition needs more than 20 bits or the offset more than 56.
    """
    if not 0 <= partition <= MAX_PARTITION:
        raise ValueError(
            f"Kafka partition {partition} of {topic} does not fit into a file id; the maximum is {MAX_PARTITION}"
        )
    if not 0 <= first_offset <= MAX_OFFSET:
        raise ValueError(
            f"offset {first_offset} of {topic}:{partition} does not fit into a file id; the maximum is {MAX_OFFSET}"
        )
    digest = hashlib.sha256("\0".join((topic, partition_path, instant)).encode()).digest()
    hashed = int.from_bytes(digest[:8], "big") >> (64 - _HASH_BITS)
    payload = (first_offset << _PARTITION_BITS | partition) << _HASH_BITS | hashed
    high, rest = payload >> 74, payload & ((1 << 74) - 1)
    middle, low = rest >> 62, rest & ((1 << 62) - 1)
    return f"{uuid.UUID(int=high << 80 | 8 << 76 | middle << 64 | 2 << 62 | low)}-0"


def decode(text: str) -> FileOrigin | None:
    """Decode the origin from a file id (or a file name that begins with one); None for other writers' ids."""
    try:
        identifier = uuid.UUID(text[:36])
    except ValueError:
        return None
    if identifier.version != 8 or identifier.variant != uuid.RFC_4122:
        return None
    bits = identifier.int
    payload = (bits >> 80) << 74 | ((bits >> 64) & 0xFFF) << 62 | bits & ((1 << 62) - 1)
    origin = payload >> _HASH_BITS
    return FileOrigin(partition=origin & MAX_PARTITION, first_offset=origin >> _PARTITION_BITS)


@dataclass(frozen=True, slots=True)
class RowSource:
    """The Kafka partition of rows, and the write token of files whose first row comes from it."""

    source: TopicPartition
    write_token: str

    def __str__(self) -> str:
        return str(self.source)


_TOPIC_DIGITS = 9


def log_token(topic: str, write_token: str, number: int) -> str:
    """Return the token of a log file: the task's first Kafka partition, `number`, and what tells attempts and topics apart.

    Readers merge the files of an instant in the order of this text, so that of two changes with the same ordering value in
    two files the later one wins. A task numbers its files from its first offset, each with at least one offset more than the one
    before; so they stay below those of a task that reads the same Kafka partition from a later offset. Tasks that read
    several Kafka partitions read the whole slice of each. Partitions of two topics may have the same number and write to
    the same bucket.
    """
    partition, attempt, task = write_token.split("-")
    return f"{partition}-{number:019d}-{attempt}{int(task):010d}{_number(topic)}"


def is_token_of(topic: str, token: str) -> bool:
    """Whether a log file with this token may have been written from the topic by `log_token`."""
    return token.endswith(_number(topic))


def _number(topic: str) -> str:
    return f"{zlib.crc32(topic.encode()) % 10**_TOPIC_DIGITS:0{_TOPIC_DIGITS}d}"
