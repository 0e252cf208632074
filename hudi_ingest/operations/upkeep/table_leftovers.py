"""Files below a table's `.hoodie/hudi_ingest` that nobody needs any more: damaged instants that a repair put aside, dead-letter files
whose letters a retry has taken, and lists of dead letters that newer ones have replaced.

A rollback or restore may bring an older list of dead letters back, and with it letters that were taken. It cannot go behind the
active timeline, and nothing behind a savepoint is archived. So only what changed before the oldest commit on it may go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from hudi_ingest.exceptions import TableUnreachable
from hudi_ingest.hudi.files.orphans import MANIFEST
from hudi_ingest.hudi.storage.paths import COPIED_LETTERS, DEAD_LETTERS, PUT_ASIDE
from hudi_ingest.hudi.storage.storage import StoredFile, advice
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.timeline import instant_time
from hudi_ingest.model.checkpoint import LettersHead
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.transaction.dead_letters.log import DeadLetterLog


@dataclass(frozen=True, slots=True)
class TableLeftovers:
    """The leftovers of one pipeline's table that are older than these times."""

    pipeline: Pipeline
    put_aside_before: datetime
    letters_before: datetime

    def find(self) -> list[StoredFile]:
        """Raises TableUnreachable."""
        table = PipelineTable(self.pipeline)
        if not table.timeline.exists():
            return []
        try:
            aside = [file for file in table.storage.files(PUT_ASIDE) if file.modified < self.put_aside_before]
            letters = [file for file in table.storage.files(DEAD_LETTERS) if file.path != COPIED_LETTERS]
        except OSError as error:
            raise self._unreachable("listed", error) from error
        return [*aside, *(self._needless(table, letters) if letters else ())]

    def delete(self, files: list[StoredFile]) -> None:
        """Raises TableUnreachable."""
        storage = PipelineTable(self.pipeline).storage
        try:
            for file in files:
                storage.delete(file.path)
        except OSError as error:
            raise self._unreachable("deleted", error) from error

    def _needless(self, table: PipelineTable, letters: list[StoredFile]) -> Iterator[StoredFile]:
        checkpoint = table.committed().checkpoint
        head = checkpoint.letters if checkpoint else None
        if head is None:
            return
        oldest = min(table.timeline.instants().completed, default="")
        replaced_at = self._replaced_at(DeadLetterLog(table.storage), head, letters)
        for file in letters:
            instant = replaced_at.get(file.path, "")
            if instant and instant < oldest and instant_time(instant) < self.letters_before:
                yield file

    def _replaced_at(self, log: DeadLetterLog, head: LettersHead, letters: list[StoredFile]) -> dict[str, str]:
        """By path, the instant whose commit made the file needless."""
        entries, current = log.entries(head), {*log.manifests(head)}
        replaced = {path: entry.instant for entry in entries for path in entry.taken}
        for file in letters:
            manifest = MANIFEST.fullmatch(file.path)
            if manifest is not None and file.path not in current:
                # Of a commit, because a rolled-back transaction has replaced nothing.
                later = (entry.instant for entry in entries if entry.instant > manifest["instant"])
                replaced[file.path] = min(later, default="")
        return replaced

    def _unreachable(self, done: str, error: OSError) -> TableUnreachable:
        return TableUnreachable(
            f"what is left over in the table at {self.pipeline.table.base_path} could not be {done}: {error}. {advice(error)} "
            "The next housekeeping tries again."
        )
