"""Hudi's savepoints: commits whose files cleaning keeps, and to which the table can be restored."""

from __future__ import annotations

from dataclasses import dataclass

from hudi_ingest.hudi.write_client import HudiWriter, java_errors

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
        with java_errors(f"read the timeline of {self._base_path}"):
            commits = self._meta_client().getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
            newest = commits.lastInstant()
            return str(newest.get().requestedTime()) if newest.isPresent() else None

    def create(self, instant: str, comment: str) -> None:
        with (
            java_errors(f"savepoint {instant} of {self._base_path}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            client.savepoint(instant, USER, comment)

    def delete(self, instant: str) -> None:
        with (
            java_errors(f"delete savepoint {instant} of {self._base_path}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            client.deleteSavepoint(instant)

    def restore(self, instant: str) -> None:
        """Take back every later commit, of all writers, with its files."""
        with (
            java_errors(f"restore {self._base_path} to savepoint {instant}", self._lock),
            self._locking_client(self._meta_client()) as client,
        ):
            client.restoreToSavepoint(instant)
