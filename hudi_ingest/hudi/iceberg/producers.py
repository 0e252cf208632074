"""What pyiceberg's snapshots lack: files of another partition spec than the table's newest, in the same snapshot. They rest on names of
pyiceberg's that are not public, which is why setup.py pins its minor version."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import ExpireSnapshots, _MergeAppendFiles, _OverwriteFiles, _SnapshotProducer

Producer = TypeVar("Producer", bound="_SnapshotProducer[Any]")


class _OfTwoSpecs(_SnapshotProducer[Any]):
    """Writes added files of another spec to a manifest of their own."""

    _others: list[DataFile]

    def append_data_file(self, data_file: DataFile) -> _SnapshotProducer[Any]:
        if data_file.spec_id == self._transaction.table_metadata.default_spec_id:
            return super().append_data_file(data_file)
        self._others = [*getattr(self, "_others", []), data_file]
        return self

    def _existing_manifests(self) -> list[ManifestFile]:
        existing = super()._existing_manifests()  # type: ignore[safe-super]
        others = getattr(self, "_others", [])
        if not others:
            return existing
        with self.new_manifest_writer(self.spec(others[0].spec_id)) as writer:
            for file in others:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return [writer.to_manifest_file(), *existing]

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006
        added = self._added_data_files
        self._added_data_files = [*added, *getattr(self, "_others", [])]
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files = added


class Append(_OfTwoSpecs, _MergeAppendFiles):
    """Adds files, and merges manifests once there are many."""

    @classmethod
    def of(cls, transaction: Transaction, io: FileIO, summary: dict[str, str]) -> Append:
        return cls(Operation.APPEND, transaction, io, snapshot_properties=summary)


class Overwrite(_OfTwoSpecs, _OverwriteFiles):
    """Removes named files and adds others."""

    @classmethod
    def of(cls, transaction: Transaction, io: FileIO, summary: dict[str, str]) -> Overwrite:
        return cls(Operation.OVERWRITE, transaction, io, snapshot_properties=summary)


def expire(transaction: Transaction, snapshots: Collection[int]) -> None:
    """Take snapshots that no branch or tag names out of the table's metadata, with the rest of the transaction."""
    named = {ref.snapshot_id for ref in transaction.table_metadata.refs.values()}
    if free := [each for each in snapshots if each not in named]:
        ExpireSnapshots(transaction).by_ids(free).commit()
