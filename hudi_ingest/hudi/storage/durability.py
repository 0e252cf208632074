"""Flush a table to disk in an order that survives a power cut: files before the commit that names them, the commit before
it is reported.

Neither Hudi nor Spark flushes anything to a local disk. Without this, a completed instant may be on disk after a power
cut while the files that it names are empty. What a power cut does between Hudi's write and a flush here is found and repaired
by damaged_instants.py and transaction/timeline_repair.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from hudi_ingest.hudi.storage.paths import HOODIE, partition_metadata_path
from hudi_ingest.hudi.storage.storage import StoredFile, TableStorage

_NOT_KEPT = {".temp", ".heartbeat"}
"""Markers and heartbeats may be lost: no committed transaction needs them, and the sweep finds what they leave behind."""


class Durability:
    """Flushes one table on a local or mounted file system. Every method raises OSError."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def sync_files(self, paths: Iterable[str]) -> None:
        """Sync base files, dead-letter files and manifests, and the metadata that marks their folders as partitions."""
        files = {*paths}
        folders = {path.rpartition("/")[0] for path in files if not path.startswith(f"{HOODIE}/")}
        partitions = (partition_metadata_path(folder) for folder in folders)
        self._storage.sync([*files, *(path for path in partitions if self._storage.exists(path))])

    def look(self) -> frozenset[StoredFile]:
        """List the files below .hoodie."""
        return frozenset(self._storage.files_beside(HOODIE, _NOT_KEPT))

    def sync_changes(self, since: frozenset[StoredFile]) -> None:
        """Sync the files below .hoodie that are new or changed since an earlier `look`: instants, the metadata table, the
        table's properties. An empty look syncs everything, for when a process may have died before it could."""
        changed = self.look() - since
        while changed:
            try:
                self._storage.sync(file.path for file in changed)
                return
            except FileNotFoundError:
                # Archival or another writer's cleaning removed a file, which then need not be synced.
                changed &= self.look()


class NoDurability(Durability):
    """Leaves flushing to the operating system: after a power cut the table may need a restore."""

    def sync_files(self, paths: Iterable[str]) -> None:
        return

    def look(self) -> frozenset[StoredFile]:
        return frozenset()

    def sync_changes(self, since: frozenset[StoredFile]) -> None:
        return


def durability_of(storage: TableStorage, fsync: bool) -> Durability:
    # An object store keeps what it has acknowledged.
    return (Durability if fsync and storage.is_local else NoDurability)(storage)
