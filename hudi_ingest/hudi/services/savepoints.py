"""Hudi's savepoints (commits whose files cleaning keeps, and to which the table can be restored), and its deletion of partitions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hudi_ingest.hudi.java_errors import java_errors
from hudi_ingest.hudi.storage.open import storage_at
from hudi_ingest.hudi.storage.storage import durability_of, reaching
from hudi_ingest.hudi.write_client import HudiWriter

USER = "hudi-ingest"


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint of the commit `instant`."""

    instant: str
    by: str
    comment: str


class HudiSavepoints(HudiWriter):
    """Savepoints of one pipeline's table. Every method raises TableUnreachable and EngineLost."""

    def list(self) -> tuple[Savepoint, ...]:
        """Return them, oldest first."""
        savepoints = []
        with java_errors(f"list the savepoints of {self._base_path}"):
            timeline = self._meta_client().getActiveTimeline()
            done = timeline.getSavePointTimeline().filterCompletedInstants()
            for instant in done.getInstantsAsStream().toArray():
                facts = timeline.readSavepointMetadata(instant)
                savepoints.append(
                    Savepoint(str(instant.requestedTime()), str(facts.getSavepointedBy()), str(facts.getComments()))
                )
        return tuple(sorted(savepoints, key=lambda savepoint: savepoint.instant))

    def newest_commit(self) -> str | None:
        """The instant of the newest completed commit, of any writer; None in a table without one. Raises TableUnreachable, EngineLost."""
        with java_errors(f"read the timeline of {self._base_path}"):
            commits = self._meta_client().getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
            newest = commits.lastInstant()
            return str(newest.get().requestedTime()) if newest.isPresent() else None

    def create(self, instant: str, comment: str) -> None:
        """Keep the files of the commit `instant` until the savepoint is deleted; `comment` is for people. Raises TableUnreachable,
        EngineLost."""
        with (
            java_errors(f"savepoint {instant} of {self._base_path}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            client.savepoint(instant, USER, comment)

    def delete(self, instant: str) -> None:
        """Let the cleaner have the files that only the savepoint at `instant` has kept. Raises TableUnreachable, EngineLost."""
        with (
            java_errors(f"delete savepoint {instant} of {self._base_path}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            client.deleteSavepoint(instant)

    def restore(self, instant: str) -> None:
        """Take back every commit after `instant`, of all writers, with its files. Raises TableUnreachable, EngineLost."""
        with (
            java_errors(f"restore {self._base_path} to savepoint {instant}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            client.restoreToSavepoint(instant)


REPLACE = "replacecommit"


class HudiPartitions(HudiWriter):
    """Deletion of one table's partitions.

    The commit carries the pipeline's checkpoint forward, as every writer's does by the table's properties. A process that paused
    for longer than its heartbeat lasts is refused by Hudi inside the lock.
    """

    def delete(self, partitions: Collection[str]) -> str:
        """Remove all file groups that these partitions have now, and return the instant. Readers of earlier instants see them until
        they are cleaned. Raises TableUnreachable, also while a clustering or compaction of them is pending, and EngineLost."""
        storage = storage_at(self._base_path, self._pipeline.table.storage_options)
        durability = durability_of(storage, self._pipeline.table.fsync)
        with reaching(storage, "flush the timeline"):
            before = durability.look()
            instant = self._delete(partitions)
            durability.sync_changes(before)
        return instant

    def _delete(self, partitions: Collection[str]) -> str:
        schema = self.table_columns()
        with (
            java_errors(f"drop {len(partitions)} partitions of {self._base_path}", self._lock),
            self._locking_client(meta := self._meta_client(), schema) as client,
        ):
            client.setOperationType(self._hudi.common.model.WriteOperationType.DELETE_PARTITION)
            instant = str(client.startDeletePartitionCommit(meta))
            result = client.deletePartitions(self._java_list(partitions), instant)
            nothing = self._hudi.common.util.Option.empty()
            client.commit(
                instant,
                result.getWriteStatuses(),
                self._option(self._java_map({"hudi_ingest.ttl": self._pipeline.name})),
                REPLACE,
                result.getPartitionToReplaceFileIds(),
                nothing,
            )
        return instant
