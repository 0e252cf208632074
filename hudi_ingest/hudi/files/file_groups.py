"""The file groups of a keyed table's buckets: which id each bucket's log files get. Pure.

A bucket's file group has the same id for everybody, so that all ops of a transaction, and other writers, find it without
asking: the one that Hudi itself determines from the bucket's number. The exceptions are buckets whose file group somebody
else made under another id, and those whose id was replaced (by `drop partition`), because Hudi hides a replaced id for ever.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hudi_ingest.exceptions import CommitRefused, TableMismatch
from hudi_ingest.model.report import BaseFile, LogFile

_FIXED = "-0000-0000-0000-000000000000-0"
BUCKET_FILE_ID = rf"\d{{8}}{_FIXED}"
"""A pattern of the file ids that only buckets have."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """A file group of a table partition, live or replaced."""

    partition_path: str
    file_id: str
    live: bool = True
    instant: str = field(default="", compare=False)
    """Of a live one: the newest instant that has a file in it."""
    size_bytes: int = field(default=0, compare=False)
    """Of a live one: its base file and log files."""
    files: tuple[str, ...] = field(default=(), compare=False)
    """Of a live one, if they were asked for: the names of its base file ("" if it has none) and of its log files."""

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
    """An id that was not replaced; the same ones for everybody who knows the same replaced ids."""
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
