"""The write tokens of our log files: Hudi requires three numbers, and readers merge an instant's files in their order. Pure."""

from __future__ import annotations

import zlib

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
