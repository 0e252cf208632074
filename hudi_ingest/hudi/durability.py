"""What of a table outlives a power cut, and in which order: files before the commit that names them, the commit before anybody
is told of it.

Hudi flushes nothing to a local disk, and neither does Spark: without this, a completed instant may be on the disk after a
power cut, and the files that it names be empty.
"""

from __future__ import annotations

from collections.abc import Iterable

from hudi_ingest.hudi.paths import HOODIE, partition_metadata_path
from hudi_ingest.hudi.storage import StoredFile, TableStorage

_NOT_KEPT = {".temp", ".heartbeat"}
"""What is lost of markers and heartbeats is of no transaction that is committed: the sweep finds what it leaves behind."""


class Durability:
    """Of one table on a local or mounted file system. Every method raises OSError."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def sync_files(self, paths: Iterable[str]) -> None:
        """Base files, files of dead letters and manifests, with what tells readers that their folders are partitions."""
        files = {*paths}
        folders = {path.rpartition("/")[0] for path in files if not path.startswith(f"{HOODIE}/")}
        partitions = (partition_metadata_path(folder) for folder in folders)
        self._storage.sync([*files, *(each for each in partitions if self._storage.exists(each))])

    def look(self) -> frozenset[StoredFile]:
        """What there is below .hoodie now."""
        return frozenset(self._storage.files_beside(HOODIE, _NOT_KEPT))

    def sync_changes(self, since: frozenset[StoredFile]) -> None:
        """Syncs what is below .hoodie and was not there, or was another file, at an earlier look: instants, the metadata table,
        the table's properties. With an empty look all of it, where somebody may have died before he could."""
        changed = self.look() - since
        while changed:
            try:
                self._storage.sync(each.path for each in changed)
                return
            except FileNotFoundError:
                # Archival or another writer's cleaning took a file away; what is gone need not be kept.
                changed &= self.look()


class NoDurability(Durability):
    """Leaves all to the operating system: after a power cut the table may need a restore."""

    def sync_files(self, paths: Iterable[str]) -> None:
        return

    def look(self) -> frozenset[StoredFile]:
        return frozenset()

    def sync_changes(self, since: frozenset[StoredFile]) -> None:
        return


def durability_of(storage: TableStorage, fsync: bool) -> Durability:
    return (Durability if fsync else NoDurability)(storage)
