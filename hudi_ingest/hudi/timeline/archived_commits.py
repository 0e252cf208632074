"""The commits that Hudi has taken off the active timeline, read without a JVM: rows of parquet files in the timeline's history, which its
newest manifest names. Their metadata is Avro with its schema, as on the active timeline."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from hudi_ingest.hudi.storage.paths import HISTORY
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, commit_of
from hudi_ingest.records.avro_bytes import AvroBytes, ValueReaders, container

_ACTIONS = ("commit", "deltacommit", "replacecommit", "clustering", "compaction")
_VERSION = f"{HISTORY}/_version_"
_TRIES = 3
_BATCH_ROWS = 256


def archived_commits(storage: TableStorage, since: str, only: Collection[str] | None = None) -> list[CommittedInstant]:
    """Read the archived commits from instant `since` on, of these instants `only` unless that is None; any order.

    Raises OSError, also when a part of the history is missing, and ValueError if one cannot be read.
    """
    for _ in range(_TRIES - 1):
        try:
            return [*_read(storage, since, only)]
        except FileNotFoundError:
            # Hudi merges the files of its history, so those of an older manifest go.
            continue
    return [*_read(storage, since, only)]


def _read(storage: TableStorage, since: str, only: Collection[str] | None) -> Iterator[CommittedInstant]:
    if not storage.exists(_VERSION):
        if any(name.endswith(".parquet") for name in storage.names(HISTORY)):
            raise FileNotFoundError(_VERSION)
        return
    manifest = json.loads(storage.read(f"{HISTORY}/manifest_{storage.read(_VERSION).decode().strip()}"))
    for name in (file["fileName"] for file in manifest["files"]):
        # <first instant>_<last instant>_<layer>.parquet
        first, last, _ = name.split("_")
        if last < since or (only is not None and not any(first <= instant <= last for instant in only)):
            continue
        columns = ["instantTime", "completionTime", "action", "metadata"]
        with storage.parquet_file(f"{HISTORY}/{name}") as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                for row in batch.to_pylist():
                    instant, wanted = row["instantTime"], only is None or row["instantTime"] in only
                    if wanted and instant >= since and row["action"] in _ACTIONS and row["metadata"]:
                        yield commit_of(avro_record(row["metadata"]), instant, row["completionTime"])


def avro_record(content: bytes) -> dict[str, Any]:
    """Decode the only record of an Avro file, as Hudi writes instants. Raises ValueError."""
    header, blocks = container(content)
    if header.get("avro.codec", b"null") != b"null":
        raise ValueError(f"its codec is {header['avro.codec'].decode()}")
    if not blocks or blocks[0][0] != 1:
        raise ValueError("its first block has not one record")
    try:
        record: dict[str, Any] = ValueReaders(dict).of(json.loads(header["avro.schema"]))(AvroBytes(blocks[0][1]))
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no Avro file with one record: {error!r}") from error
    return record
