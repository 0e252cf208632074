"""Find instants that a power cut left damaged on the timeline of a table on a local or mounted file system.

Hudi writes a completed instant and the metadata table's files without flushing them; our flush follows some milliseconds
later. A power cut in between may keep a file's name and lose its content. An object store keeps an object whole or not at
all, so nothing is looked for there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from hudi import HudiTable

from hudi_ingest.hudi.storage.paths import INSTANT_FILE, METADATA_TABLE, METADATA_TIMELINE, TIMELINE
from hudi_ingest.hudi.storage.storage import StoredFile, TableStorage
from hudi_ingest.records.avro_bytes import AvroBytes, container

_ARCHIVE = "history"
_COMMITS = ("commit", "deltacommit", "replacecommit")
_INFLIGHT = ("inflight", "deltacommit.inflight", "replacecommit.inflight")
_PLANS = ("compaction.requested", "clustering.requested")
_CLEAN_PLAN = "clean.requested"
_NEWEST = 5
"""Completed instants whose content is checked; a power cut damages only what was not flushed yet."""


@dataclass(frozen=True, slots=True)
class DamagedInstant:
    """An instant with damaged files. `action` is commit, deltacommit, replacecommit, compaction, clustering or clean."""

    instant: str
    action: str
    files: tuple[str, ...]
    """What to put aside so that the instant is pending again, in this order; for a `plan`, so that it is gone."""
    why: str
    modified: datetime
    """When the newest of the damaged files was written."""
    transaction_id: str = ""
    """The pipeline's transaction that wrote it; "" for table services and other writers."""
    plan: bool = False
    """Whether it is the requested plan of a table service, which nothing can execute any more."""
    later: tuple[str, ...] = ()
    """Names of timeline files of instants that began or ended after this one was completed."""


def damaged_instants(
    storage: TableStorage, transaction_key: str, flushed: Callable[[], Iterable[str]]
) -> tuple[DamagedInstant, ...]:
    """List the damaged instants, oldest first. `flushed` returns instants that are known to have reached the disk.

    A look at the names and sizes suffices unless the newest commits may not have been flushed. Raises OSError.
    """
    if not storage.is_local:
        return ()
    timeline = _Folder(storage, TIMELINE)
    search = _Search(storage, timeline, transaction_key)
    completed = sorted(
        (entry for entry in timeline.entries if entry.completed and entry.rest in _COMMITS),
        key=lambda entry: entry.completed,
    )
    damaged = [search.judged(entry, "is empty") for entry in completed if not entry.file.size_bytes]
    suspects = [entry for entry in completed[-_NEWEST:] if entry.file.size_bytes]
    if suspects:
        known = frozenset(flushed())
        damaged += filter(None, (search.content(entry) for entry in suspects if entry.instant not in known))
    damaged += search.of_pending()
    return tuple(sorted(damaged, key=lambda instant: instant.instant))


@dataclass(frozen=True, slots=True)
class _Entry:
    file: StoredFile
    instant: str
    completed: str
    rest: str

    @property
    def name(self) -> str:
        return self.file.path.rpartition("/")[2]


class _Folder:
    """The instants of one timeline folder."""

    def __init__(self, storage: TableStorage, path: str) -> None:
        self.entries = [
            _Entry(file, match["requested"], match["completed"] or "", match["rest"])
            for file in storage.files_beside(path, {_ARCHIVE})
            if (match := INSTANT_FILE.fullmatch(file.path.rpartition("/")[2]))
        ]

    def of(self, instant: str) -> list[_Entry]:
        return [entry for entry in self.entries if entry.instant == instant]

    def completed(self, instant: str) -> _Entry | None:
        return next((entry for entry in self.of(instant) if entry.completed and entry.rest in _COMMITS), None)


class _Search:
    def __init__(self, storage: TableStorage, timeline: _Folder, transaction_key: str) -> None:
        self._storage = storage
        self._timeline = timeline
        self._transaction_key = transaction_key
        self._metadata: _Folder | None = None

    def content(self, entry: _Entry) -> DamagedInstant | None:
        """Judge a completed instant that is not empty, but may not have been flushed."""
        if not is_whole(self._storage.read(entry.file.path)):
            return self.judged(entry, "is cut off")
        lost = self._lost_metadata(entry.instant)
        return None if lost is None else self.judged(entry, f"is whole, but {lost}")

    def of_pending(self) -> Iterator[DamagedInstant]:
        """Judge instants that are not completed: plans of services, and what the metadata table has of our transactions."""
        for entry in self._timeline.entries:
            if entry.completed or self._timeline.completed(entry.instant):
                continue
            is_plan = entry.rest in _PLANS or (entry.rest == _CLEAN_PLAN and self._follows_ours(entry.instant))
            if is_plan and not is_whole(self._storage.read(entry.file.path)):
                why = f"{entry.file.path} {'is cut off' if entry.file.size_bytes else 'is empty'}"
                yield DamagedInstant(
                    entry.instant,
                    entry.rest.partition(".")[0],
                    tuple(file.file.path for file in self._timeline.of(entry.instant)),
                    why,
                    entry.file.modified,
                    plan=True,
                )
            if entry.rest in _INFLIGHT and (transaction_id := self._transaction(entry.instant)):
                of_metadata = self._metadata_timeline.completed(entry.instant)
                if of_metadata is not None and not is_whole(self._storage.read(of_metadata.file.path)):
                    yield DamagedInstant(
                        entry.instant,
                        _action(entry.rest),
                        (of_metadata.file.path,),
                        f"{of_metadata.file.path} cannot be read",
                        of_metadata.file.modified,
                        transaction_id,
                    )

    def judged(self, entry: _Entry, damage: str) -> DamagedInstant:
        """Describe a damaged completed instant, with the files that keep it from being pending."""
        pending = {file.rest for file in self._timeline.of(entry.instant) if not file.completed}
        service = next((rest.partition(".")[0] for rest in pending if rest in _PLANS), "")
        of_metadata = self._metadata_timeline.completed(entry.instant)
        files = [entry.file]
        if of_metadata is not None and not is_whole(self._storage.read(of_metadata.file.path)):
            # First, so that a repair that dies in between finds the rest again.
            files.insert(0, of_metadata.file)
        return DamagedInstant(
            entry.instant,
            service or entry.rest,
            tuple(file.path for file in files),
            f"{entry.file.path} {damage}",
            max(file.modified for file in files),
            self._transaction(entry.instant),
            later=tuple(
                sorted(
                    other.name
                    for other in self._timeline.entries
                    if other.instant > entry.completed
                    or (other.completed > entry.completed and other.instant != entry.instant)
                )
            ),
        )

    def _follows_ours(self, instant: str) -> bool:
        """Whether the newest commit before an instant is one of the pipeline's transactions, or a table service's."""
        commits = [
            entry for entry in self._timeline.entries if entry.rest in _COMMITS and "" < entry.completed < instant
        ]
        if not commits:
            return False
        newest = max(commits, key=lambda entry: entry.completed).instant
        return bool(self._transaction(newest)) or any(entry.rest in _PLANS for entry in self._timeline.of(newest))

    @property
    def _metadata_timeline(self) -> _Folder:
        if self._metadata is None:
            self._metadata = _Folder(self._storage, METADATA_TIMELINE)
        return self._metadata

    def _transaction(self, instant: str) -> str:
        for entry in self._timeline.of(instant):
            if entry.rest in _INFLIGHT:
                return transaction_in(self._storage.read(entry.file.path), self._transaction_key)
        return ""

    def _lost_metadata(self, instant: str) -> str | None:
        """Say what the metadata table lacks of a completed instant: readers that go by it would not see those files."""
        of_instant = self._metadata_timeline.of(instant)
        if not of_instant:
            # The metadata table is younger than the instant, or there is none.
            return None
        completed = self._metadata_timeline.completed(instant)
        if completed is None:
            return "the metadata table's commit of it is gone"
        if not is_whole(self._storage.read(completed.file.path)):
            return f"{completed.file.path} cannot be read"
        if any(
            entry.rest == "commit" and entry.completed > completed.completed
            for entry in self._metadata_timeline.entries
        ):
            # Compacted since, so these files are no longer needed.
            return None
        for path, size in self._metadata_files(instant):
            stored = self._storage.file(f"{METADATA_TABLE}/{path}")
            if stored is None or stored.size_bytes < size:
                found = "is gone" if stored is None else f"has {stored.size_bytes} of its {size} bytes"
                return f"{METADATA_TABLE}/{path} {found}"
        return None

    def _metadata_files(self, instant: str) -> Iterator[tuple[str, int]]:
        timeline = HudiTable(f"{self._storage.base_path}/{METADATA_TABLE}").get_timeline()
        for commit in timeline.get_completed_deltacommits(desc=True):
            if commit.timestamp == instant:
                stats = json.loads(timeline.get_instant_metadata_in_json(commit))["partitionToWriteStats"]
                yield from ((stat["path"], stat["fileSizeInBytes"]) for files in stats.values() for stat in files)


def _action(inflight: str) -> str:
    """Return the action of an inflight file; that of a commit has none in its name."""
    return inflight.rpartition(".")[0] or "commit"


def transaction_in(inflight: bytes, transaction_key: str) -> str:
    """Return the id of the pipeline's transaction that wrote the inflight file; "" if another writer did."""
    _, key, rest = inflight.partition(transaction_key.encode())
    if not key:
        return ""
    try:
        # The plan follows its key, after its length; behind the beginning of a longer key there is no such text.
        return str(json.loads(AvroBytes(rest).bytes())["transaction_id"])
    except (ValueError, KeyError, TypeError):
        return ""


def is_whole(content: bytes) -> bool:
    """Whether the bytes are a complete Avro file, as Hudi writes instants: a header, then blocks that each end with its marker."""
    try:
        _, blocks = container(content)
    except ValueError:
        return False
    return len(blocks) > 0
