"""Drops table partitions by Hudi's own delete-partition, a replacecommit without new files."""

from __future__ import annotations

from collections.abc import Collection

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.storage.choice import storage_at
from hudi_ingest.hudi.storage.durability import durability_of
from hudi_ingest.hudi.storage.storage import advice
from hudi_ingest.hudi.write_client import HudiWriter, java_errors

REPLACE = "replacecommit"


class HudiPartitions(HudiWriter):
    """Deletion of one table's partitions.

    The commit carries the pipeline's checkpoint forward, as every writer's does by the table's properties. A process that paused
    for longer than its heartbeat lasts is refused by Hudi inside the lock.
    """

    def delete(self, partitions: Collection[str]) -> str:
        """Remove all file groups that these partitions have now, and return the instant. Readers of earlier instants see them until
        they are cleaned. Raises TableUnreachable, also while a clustering or compaction of them is pending, and EngineLost."""
        durability = durability_of(
            storage_at(self._base_path, self._pipeline.table.storage_options), self._pipeline.table.fsync
        )
        try:
            before = durability.look()
            instant = self._delete(partitions)
            durability.sync_changes(before)
        except OSError as error:
            raise TableUnreachable(
                f"cannot flush the timeline of the table at {self._base_path}: {error}. {advice(error)}"
            ) from error
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
