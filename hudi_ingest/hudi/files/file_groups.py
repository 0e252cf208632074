"""The ids of data files: of a keyed table's buckets, and of other base files, whose id says where their rows come from. Also the write
tokens in the names of files. Pure.

A bucket's file group has the same id for all, so that all ops of a transaction, and other writers, find it without asking: the one
that Hudi itself determines from the bucket's number. The exceptions are buckets whose file group another writer made under another
id, and those whose id was replaced (by `drop partition`), because Hudi hides a replaced id for ever.

The id of a base file in a table without keys is `<UUID>-0`. The UUID is of version 8 (RFC 9562, section 5.8: custom layout) and holds,
from its most significant bit: 48 bits of the first offset, 4 bits version, 8 more bits of the first offset and 4 of the Kafka
partition, 2 bits variant, 16 more bits of the partition, 46 bits of a hash of (topic, table partition, instant).

The instant is part of the id: the same id in two commits would be one file group, whose newer file hides the older one.
Hudi's record index expects ids of this shape.
"""

from __future__ import annotations

import hashlib
import uuid
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hudi_ingest.exceptions import CommitRefused, TableMismatch
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import BaseFile, LogFile

_FIXED = "-0000-0000-0000-000000000000-0"
BUCKET_FILE_ID = rf"\d{{8}}{_FIXED}"
"""A pattern of the file ids that only buckets have."""
_OFFSET_BITS = 56
_PARTITION_BITS = 20
_HASH_BITS = 46
MAX_OFFSET = (1 << _OFFSET_BITS) - 1
MAX_PARTITION = (1 << _PARTITION_BITS) - 1
_TOPIC_DIGITS = 9


@dataclass(frozen=True, slots=True)
class FileGroup:
    """A file group of a table partition, live or replaced."""

    partition_path: str
    file_id: str
    live: bool = True
    instant: str = field(default="", compare=False)
    """The newest instant that has a file in it, if it is live."""
    size_bytes: int = field(default=0, compare=False)
    """The size of its base file and log files, if it is live."""
    files: tuple[str, ...] = field(default=(), compare=False)
    """The names of its base file ("" if it has none) and of its log files, if it is live and they were asked for."""

    @property
    def bucket(self) -> str:
        """The bucket's number as file ids have it: eight digits."""
        return self.file_id[:8]


def bucket_key(partition_path: str, bucket: int) -> str:
    """Return the key of a bucket of a table partition in `exceptional_ids`."""
    return f"{partition_path}|{bucket}"


def fixed_id(bucket: int) -> str:
    """Return the id that Hudi determines from a bucket's number."""
    return f"{bucket:08d}{_FIXED}"


def exceptional_ids(base_path: str, groups: Iterable[FileGroup], buckets: int) -> dict[str, str]:
    """Return the file ids, by `bucket_key`, of the buckets whose id is not the fixed one.

    Raises TableMismatch if a file group is in no bucket or a bucket has two: a key could then have two rows.
    """
    live: dict[tuple[str, int], str] = {}
    replaced: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for group in groups:
        number = int(group.bucket) if group.bucket.isdecimal() else buckets
        place = (group.partition_path, number)
        if not group.live:
            replaced[place].add(group.file_id)
        elif number >= buckets or live.setdefault(place, group.file_id) != group.file_id:
            _raise_foreign(base_path, group, buckets, live.get(place, ""))
    ids = {bucket_key(*place): _new_id(*place, ids) for place, ids in replaced.items() if fixed_id(place[1]) in ids}
    ids |= {bucket_key(*place): file_id for place, file_id in live.items() if file_id != fixed_id(place[1])}
    return ids


def id_of(exceptional: Mapping[str, str], partition_path: str, bucket: int) -> str:
    """Return the file id of a bucket."""
    return exceptional.get(bucket_key(partition_path, bucket)) or fixed_id(bucket)


def published_groups(paths: Iterable[str]) -> set[tuple[str, str]]:
    """Return the partition path and the id of the file group of each base file or log file, by its path."""
    parts = (path.rpartition("/")[::2] for path in paths)
    return {(folder, name.removeprefix(".").partition("_")[0]) for folder, name in parts}


def require_current_ids(log_files: Iterable[LogFile], exceptional: Mapping[str, str], transaction_id: str) -> None:
    """Raises CommitRefused if another writer has changed the file group of a log file's bucket since the transaction began: the
    log file's rows would be invisible, or a key would have two rows."""
    for file in log_files:
        current = id_of(exceptional, file.partition_path, int(file.file_id[:8]))
        if current != file.file_id:
            raise CommitRefused(
                f"transaction {transaction_id}: another writer replaced or made a file group of table partition "
                f"'{file.partition_path}' while it ran: its bucket's file group is {current} now, and {file.path} belongs to "
                f"{file.file_id}. Nothing was published; the next transaction reads the same offsets."
            )


def files_before(
    log_files: Iterable[LogFile], groups: Iterable[FileGroup], first: Iterable[BaseFile]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return, by partition path and id, the files (see `FileGroup.files`) of the file groups that the log files extend; of a new
    one that is its `first`, empty base file."""
    extended = {(file.partition_path, file.file_id) for file in log_files}
    known = {(group.partition_path, group.file_id): group.files for group in groups if group.live}
    known |= {(file.partition_path, file.file_id): (file.path.rpartition("/")[2],) for file in first}
    return {place: known[place] for place in extended}


def new_groups(log_files: Iterable[LogFile], groups: Collection[FileGroup]) -> list[tuple[str, str]]:
    """Return the partition path and the id of each file group that only the log files have, in order."""
    known = {(group.partition_path, group.file_id) for group in groups}
    return sorted({(file.partition_path, file.file_id) for file in log_files} - known)


def _new_id(partition_path: str, bucket: int, replaced: Collection[str]) -> str:
    """Return an id that was not replaced, the same one for the same replaced ids."""
    text = "\0".join((partition_path, *sorted(replaced)))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{bucket:08d}-{digest[:4]}-{digest[4:8]}-{digest[8:12]}-{digest[12:24]}-0"


def _raise_foreign(base_path: str, group: FileGroup, buckets: int, other: str) -> None:
    what = (
        f"bucket {int(group.bucket)} has two file groups, {other} and {group.file_id}"
        if other and other != group.file_id
        else f"file group {group.file_id} belongs to none of the {buckets} buckets"
    )
    raise TableMismatch(
        f"the table at {base_path}, partition '{group.partition_path}': {what}, so a key may have two rows. Another writer wrote "
        "it with index settings of its own, in spite of those in hoodie.properties. Nothing was written. Roll that "
        "writer's commits back (`CALL rollback_to_instant(table => …, instant_time => …)`), and let it write without "
        "`hoodie.index.type` and `hoodie.bucket.index.…` options."
    )


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


def log_token(topic: str, write_token: str, number: int) -> str:
    """Return the token of a log file: the task's first Kafka partition, `number`, and what tells attempts and topics apart.

    Readers merge the files of an instant in the order of this text, so that of two changes with the same ordering value in
    two files the later one wins. A task numbers its files from its first offset, each with at least one offset more than the one
    before; so they stay below those of a task that reads the same Kafka partition from a later offset. Tasks that read several Kafka
    partitions read the whole slice of each, and so does one with a truncate, whose deletes may be more files than there are offsets. Partitions of two topics may have the same number and write to
    the same bucket.
    """
    partition, attempt, task = write_token.split("-")
    return f"{partition}-{number:019d}-{attempt}{int(task):010d}{_number(topic)}"


def is_token_of(topic: str, token: str) -> bool:
    """Whether a log file with this token may have been written from the topic by `log_token`."""
    return token.endswith(_number(topic))


def _number(topic: str) -> str:
    return f"{zlib.crc32(topic.encode()) % 10**_TOPIC_DIGITS:0{_TOPIC_DIGITS}d}"
