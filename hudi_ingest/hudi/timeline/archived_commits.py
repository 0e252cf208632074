"""The commits that Hudi has taken off the active timeline, read without a JVM: rows of parquet files in the timeline's history, which its
newest manifest names. Their metadata is Avro with its schema, as on the active timeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

from hudi_ingest.hudi.storage.paths import HISTORY
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.damaged_instants import read_long
from hudi_ingest.hudi.timeline.timeline import CommittedInstant, commit_of

_ACTIONS = ("commit", "deltacommit", "replacecommit", "clustering", "compaction")
_VERSION = f"{HISTORY}/_version_"
_TRIES = 3
_BATCH_ROWS = 256
_MAGIC, _SYNC_BYTES = b"Obj\x01", 16


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
    try:
        return _record(content)
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"no Avro file with one record: {error!r}") from error


def _record(content: bytes) -> dict[str, Any]:
    if not content.startswith(_MAGIC):
        raise ValueError("no Avro file")
    reader = _Reader(content, len(_MAGIC))
    header = reader.value({"type": "map", "values": "bytes"})
    if header.get("avro.codec", b"null") != b"null":
        raise ValueError(f"its codec is {header['avro.codec'].decode()}")
    reader.position += _SYNC_BYTES
    if reader.long() != 1:
        raise ValueError("its first block has not one record")
    reader.long()
    record: dict[str, Any] = reader.value(json.loads(header["avro.schema"]))
    return record


class _Reader:
    def __init__(self, content: bytes, position: int) -> None:
        self.content = content
        self.position = position
        self._named: dict[str, Any] = {}

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self.value(schema[self.long()])
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, (dict, list)):
            return self.value(kind)
        if kind == "record":
            self._named[schema["name"]] = schema
            self._named[f"{schema.get('namespace', '')}.{schema['name']}"] = schema
            return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in self._items()]
        if kind == "map":
            return {self._text(): self.value(schema["values"]) for _ in self._items()}
        if kind in self._named:
            return self.value(self._named[kind])
        return _PRIMITIVES[kind](self)

    def long(self) -> int:
        number, self.position = read_long(self.content, self.position)
        return number

    def bytes(self, size: int) -> bytes:
        begin, self.position = self.position, self.position + size
        if size < 0 or self.position > len(self.content):
            raise IndexError(f"{size} bytes from {begin} on are not there")
        return self.content[begin : self.position]

    def _text(self) -> str:
        return self.bytes(self.long()).decode()

    def _items(self) -> Iterator[int]:
        while count := self.long():
            if count < 0:
                # The block's size in bytes follows.
                self.long()
            yield from range(abs(count))


_PRIMITIVES: dict[str, Callable[[_Reader], Any]] = {
    "null": lambda reader: None,
    "boolean": lambda reader: reader.bytes(1) == b"\x01",
    "int": _Reader.long,
    "long": _Reader.long,
    "float": lambda reader: reader.bytes(4),
    "double": lambda reader: reader.bytes(8),
    "bytes": lambda reader: reader.bytes(reader.long()),
    "string": _Reader._text,
}
"""Hudi's metadata has no number with a fraction that matters here."""
