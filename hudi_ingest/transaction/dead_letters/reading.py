"""Dead letters for people: how many there are and why, and single letters with a preview of their bytes."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.dead_letters.letter_file import letter_batches, read_letters
from hudi_ingest.transaction.dead_letters.log import LetterEntry, WaitingFile

PREVIEW_CHARACTERS = 200
_GROUP = ("topic", "partition", "stage", "field", "expected")


@dataclass(frozen=True, slots=True)
class LetterCount:
    """Pending dead letters of one transaction and Kafka partition with the same error."""

    instant: str
    transaction_id: str
    topic: str
    partition: int
    stage: str
    field: str
    expected: str
    letters: int
    first_offset: int
    last_offset: int
    withheld: bool
    """Whether their bytes were not kept, so that they cannot be retried."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One pending dead letter. `value`, `key` and the headers' values are Kafka's bytes; None if they are withheld or the
    record had none. `timestamp`: Kafka's milliseconds since 1970, which may be any number, -1 for none."""

    instant: str
    transaction_id: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    stage: str
    field: str
    expected: str
    found: str
    withheld: bool

    @property
    def reason(self) -> str:
        return f"{f'field {self.field}: ' if self.field else ''}expected {self.expected}, found {self.found}"

    def to_dict(self) -> dict[str, Any]:
        """For users' scripts: all bytes as text if they are UTF-8, else as hexadecimal digits; and as base64."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": time.isoformat() if (time := as_datetime(self.timestamp)) else None,
            "timestamp_ms": self.timestamp,
            "instant": self.instant,
            "transaction_id": self.transaction_id,
            "stage": self.stage,
            "field": self.field,
            "expected": self.expected,
            "found": self.found,
            "withheld": self.withheld,
            "key": whole(self.key),
            "key_base64": _base64(self.key),
            "value": whole(self.value),
            "value_base64": _base64(self.value),
            "headers": [
                {"key": name, "value": whole(value), "value_base64": _base64(value)} for name, value in self.headers
            ],
        }


def find_letters_of(storage: TableStorage, entry: LetterEntry) -> Iterator[DeadLetter]:
    """All letters that a transaction added, whether or not they still count. Raises TableUnreachable."""
    return find_letters(storage, [WaitingFile(file, entry, ()) for file in entry.files])


def count_letters(storage: TableStorage, waiting: Sequence[WaitingFile]) -> list[LetterCount]:
    """Count letters by commit, partition and error, sorted in this order. Raises TableUnreachable."""
    counts: dict[tuple[Any, ...], LetterCount] = {}
    for waiting_file in waiting:
        letters = read_letters(storage, waiting_file.file.path, [*_GROUP, "offset"], waiting_file.without)
        groups = letters.group_by([*_GROUP]).aggregate([("offset", "count"), ("offset", "min"), ("offset", "max")])
        for row in groups.to_pylist():
            key = (waiting_file.entry.instant, *(row[name] for name in _GROUP))
            previous = counts.get(key)
            counts[key] = LetterCount(
                instant=waiting_file.entry.instant,
                transaction_id=waiting_file.entry.transaction_id,
                **{name: row[name] for name in _GROUP},
                letters=row["offset_count"] + (previous.letters if previous else 0),
                first_offset=min(row["offset_min"], previous.first_offset if previous else row["offset_min"]),
                last_offset=max(row["offset_max"], previous.last_offset if previous else row["offset_max"]),
                withheld=waiting_file.entry.withheld,
            )
    return [counts[key] for key in sorted(counts)]


def find_letters(
    storage: TableStorage,
    waiting: Sequence[WaitingFile],
    *,
    source: TopicPartition | None = None,
    offset: int | None = None,
    text: str = "",
) -> Iterator[DeadLetter]:
    """The pending letters in commit order, filtered by Kafka partition, offset and a text in their error, each if given.
    Raises TableUnreachable."""
    for waiting_file in waiting:
        for batch in letter_batches(storage, waiting_file.file.path, None, waiting_file.without):
            place = batch.schema.get_field_index("timestamp")
            # Python's datetime cannot hold every time a producer may set.
            batch = batch.set_column(place, "timestamp", batch["timestamp"].cast(pa.int64()))
            for row in batch.to_pylist():
                letter = DeadLetter(
                    instant=waiting_file.entry.instant,
                    withheld=waiting_file.entry.withheld,
                    headers=tuple((header["key"], header["value"]) for header in row.pop("headers") or ()),
                    **{name: row[name] for name in DeadLetter.__dataclass_fields__ if name in row},
                )
                if (
                    (source is None or (letter.topic, letter.partition) == (source.topic, source.partition))
                    and (offset is None or letter.offset == offset)
                    and text.lower() in f"{letter.stage} {letter.reason}".lower()
                ):
                    yield letter


def preview(content: bytes | None) -> str | None:
    """Bytes for people to read: text if they are UTF-8, else hexadecimal digits; shortened."""
    if content is None:
        return None
    try:
        text = content[: 4 * PREVIEW_CHARACTERS].decode()
    except UnicodeDecodeError as error:
        # The last character may have been cut in two.
        if error.start < 4 * PREVIEW_CHARACTERS - 3:
            digits = content[: PREVIEW_CHARACTERS // 2].hex()
            return f"0x{digits}{'…' if 2 * len(content) > PREVIEW_CHARACTERS else ''}"
        text = content[: error.start].decode()
    printable = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    cut = len(printable) > PREVIEW_CHARACTERS or len(text.encode()) < len(content)
    return f"{printable[:PREVIEW_CHARACTERS]}…" if cut else printable


def whole(content: bytes | None) -> str | None:
    """Bytes as text if they are UTF-8, else as hexadecimal digits."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
