"""The list of a pipeline's dead letters: a chain of immutable manifests whose end is in the table's checkpoint.

A manifest is one JSON file, named by a digest of its text and written before its commit. It has the entries of up to PAGE
transactions, oldest first, and the path of the previous manifest. So commit metadata stays small, and archival, which
removes old commits from the timeline, removes nothing from the list. When another writer rolls commits back, the
checkpoint goes back, and the list with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hudi_ingest.exceptions import TableUnreachable, WriteIncomplete
from hudi_ingest.faults import reach
from hudi_ingest.hudi.storage.paths import dead_letters_folder
from hudi_ingest.hudi.storage.storage import TableStorage, advice
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import RangePlan, ReplayPlan, Retry, RetryPlan, TransactionPlan
from hudi_ingest.model.report import LetterFile, SliceReport
from hudi_ingest.transaction.dead_letters.letter_file import read_letters

PAGE = 50
"""Maximum number of entries in a manifest."""


@dataclass(frozen=True, slots=True)
class LetterEntry:
    """What one committed transaction did to the dead letters."""

    instant: str
    transaction_id: str
    kind: str
    files: tuple[LetterFile, ...] = ()
    """Files it added."""
    withheld: bool = False
    """Whether the records' own bytes are not in `files`."""
    generations: Mapping[str, int] = field(default_factory=dict)
    """Generations of the transaction's recreated topics; see TopicVersion."""
    taken: tuple[str, ...] = ()
    """Files of earlier entries that no longer count: each of their letters became a row, was left out on purpose, or is in
    `files`."""
    replaced: tuple[Slice, ...] = ()
    """Ranges it rewrote: earlier letters in them no longer count."""

    @property
    def letters(self) -> int:
        return sum(file.letters for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LetterEntry:
        return cls(
            **{
                **content,
                "files": tuple(LetterFile(**file) for file in content["files"]),
                "taken": tuple(content["taken"]),
                "replaced": tuple(Slice(**slice_) for slice_ in content["replaced"]),
            }
        )


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A file with dead letters that have not become rows, and the entry that added it."""

    file: LetterFile
    entry: LetterEntry
    without: tuple[Slice, ...]
    """Ranges whose letters no longer count."""


def waiting_files(entries: Iterable[LetterEntry]) -> tuple[WaitingFile, ...]:
    """The files with pending dead letters after all `entries`, which are oldest first."""
    waiting: dict[str, WaitingFile] = {}
    for entry in entries:
        for path in entry.taken:
            waiting.pop(path, None)
        if entry.replaced:
            for path, waiting_file in waiting.items():
                waiting[path] = replace(
                    waiting_file, without=(*waiting_file.without, *_replaced(entry, waiting_file.entry))
                )
        for file in entry.files:
            waiting[file.path] = WaitingFile(file, entry, ())
    return tuple(waiting.values())


def _replaced(entry: LetterEntry, earlier: LetterEntry) -> Iterator[Slice]:
    """The ranges of `entry` whose topic has the same generation as in the earlier entry."""
    for slice_ in entry.replaced:
        if entry.generations.get(slice_.topic, 0) == earlier.generations.get(slice_.topic, 0):
            yield slice_


class DeadLetterLog:
    """Reads and extends the list. A manifest counts only through a commit whose checkpoint names it."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def entries(self, head: LettersHead | None) -> tuple[LetterEntry, ...]:
        """All entries of the list ending at `head`, oldest first. Raises TableUnreachable."""
        pages = [page for _, page in self._pages(head)]
        return tuple(entry for page in reversed(pages) for entry in page)

    def manifests(self, head: LettersHead | None) -> tuple[str, ...]:
        """The files of the list ending at `head`, newest first. Raises TableUnreachable."""
        return tuple(path for path, _ in self._pages(head))

    def _pages(self, head: LettersHead | None) -> Iterator[tuple[str, list[LetterEntry]]]:
        path = head.manifest if head else ""
        while path:
            try:
                previous, page = self._page(path)
            except FileNotFoundError as error:
                raise TableUnreachable(
                    f"the list of dead letters {path} of the table at {self._storage.base_path} no longer exists, so its "
                    "entries and older ones are unknown. Restore the file from a copy of the table. Ingestion continues "
                    "without it."
                ) from error
            yield path, page
            path = previous

    def waiting(self, head: LettersHead | None) -> tuple[WaitingFile, ...]:
        """Raises TableUnreachable."""
        return waiting_files(self.entries(head))

    def extend(
        self,
        before: Checkpoint | None,
        plan: TransactionPlan,
        instant: str,
        reports: Sequence[SliceReport],
        withheld: bool,
    ) -> LettersHead | None:
        """The list after the plan's commit, for its checkpoint. Writes a manifest if the plan changes the list; it counts
        once the commit does. Raises TableUnreachable, WriteIncomplete."""
        head = before.letters if before else None
        files = tuple(file for report in reports for file in report.letters)
        # Only a replay, or a backfill of a keyed table, touches offsets that may already have letters, and without a list there are none. A replay that
        # respects deletes writes nothing where there is no row, so pending letters stay pending.
        rewrites_all = isinstance(plan, ReplayPlan) and not plan.respect_deletes
        rewrites_all |= isinstance(plan, RangePlan) and plan.upserts
        replaced = plan.slices if rewrites_all and head else ()
        retry = plan.retry if isinstance(plan, RetryPlan) else None
        if not files and not replaced and retry is None:
            return head
        entry = LetterEntry(
            instant=instant,
            transaction_id=plan.transaction_id,
            kind=plan.kind.value,
            files=files,
            withheld=withheld,
            generations=dict(plan.generations),
            taken=tuple(file.path for file in retry.files) if retry else (),
            replaced=replaced,
        )
        if retry is not None:
            require_all_taken(plan.transaction_id, retry, reports)
        resolved = retry.letters if retry else self._count_replaced(head, entry)
        waiting = (head.waiting if head else 0) - resolved + entry.letters
        return LettersHead(self._append(entry, head), waiting)

    def forget(self, instant: str) -> None:
        """Delete what a rolled-back transaction left. Raises OSError."""
        self._storage.delete_folder(dead_letters_folder(instant))

    def _append(self, entry: LetterEntry, head: LettersHead | None) -> str:
        previous = ""
        page: list[LetterEntry] = []
        if head is not None:
            try:
                previous, page = self._page(head.manifest)
            except FileNotFoundError:
                # It was deleted from outside. Ingestion need not stop; reading the list reports it.
                previous = head.manifest
        if head is not None and len(page) >= PAGE:
            previous, page = head.manifest, []
        content = {"version": 1, "previous": previous, "entries": [listed.to_dict() for listed in [*page, entry]]}
        text = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
        path = f"{dead_letters_folder(entry.instant)}/{hashlib.sha256(text).hexdigest()[:16]}.json"
        try:
            # Named by its content: a repeated or stale commit attempt cannot change a manifest that counts.
            self._storage.replace(path, text)
        except OSError as error:
            raise self._unreachable("written", path, error) from error
        reach("letters_listed")
        return path

    def _page(self, path: str) -> tuple[str, list[LetterEntry]]:
        """The path of the previous manifest, and this manifest's entries. Raises FileNotFoundError, TableUnreachable."""
        try:
            manifest = json.loads(self._storage.read(path))
            if manifest["version"] != 1:
                raise ValueError(f"version {manifest['version']!r} is not known, upgrade hudi-ingest")
            return str(manifest["previous"]), [LetterEntry.from_dict(content) for content in manifest["entries"]]
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unreachable("read", path, error) from error

    def _count_replaced(self, head: LettersHead | None, entry: LetterEntry) -> int:
        """How many pending letters are in ranges that the entry replaces."""
        replaced_letters = 0
        for waiting_file in self.waiting(head) if entry.replaced else ():
            ranges = [*_replaced(entry, waiting_file.entry)]
            letters = read_letters(self._storage, waiting_file.file.path, _PLACE, waiting_file.without)
            replaced_letters += (
                letters.num_rows
                - read_letters(self._storage, waiting_file.file.path, _PLACE, (*waiting_file.without, *ranges)).num_rows
            )
        return replaced_letters

    def _unreachable(self, done: str, path: str, error: Exception) -> TableUnreachable:
        return TableUnreachable(
            f"the list of dead letters {path} of the table at {self._storage.base_path} cannot be {done}: {error}. "
            f"{advice(error)}"
        )


_PLACE = ("topic", "partition", "offset")


def require_all_taken(transaction_id: str, retry: Retry, reports: Sequence[SliceReport]) -> None:
    """Raises WriteIncomplete unless each letter that the retry takes became a row, was left out on purpose, or became a
    letter again."""
    counted = sum(report.rows + report.skipped + report.filtered + report.rejected for report in reports)
    if counted != retry.letters:
        raise WriteIncomplete(
            f"transaction {transaction_id} takes {retry.letters} dead letters, but {counted} are accounted for. "
            "Nothing was published; try again."
        )


def listed_paths(entries: Iterable[LetterEntry]) -> Iterator[str]:
    """The files in the list, including those whose letters no longer count."""
    for entry in entries:
        yield from (file.path for file in entry.files)
