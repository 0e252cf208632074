"""The list of a pipeline's dead letters: a chain of immutable manifests whose end is in the table's checkpoint.
`letter_file.py` decides what becomes one.

A manifest is one JSON file, named by a digest of its text and written before its commit. It has the entries of up to PAGE
transactions, oldest first, and the path of the previous manifest. So commit metadata stays small, and archival, which
removes old commits from the timeline, removes nothing from the list. When another writer rolls commits back, the
checkpoint goes back, and the list with it.

The list is also read for people: how many letters there are and why, and single letters with a preview of their bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from hudi_ingest.exceptions import TableUnreachable, WriteIncomplete
from hudi_ingest.faults import reach
from hudi_ingest.hudi.storage.paths import dead_letters_folder
from hudi_ingest.hudi.storage.storage import TableStorage, advice
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import RangePlan, ReplayPlan, Retry, RetryPlan, TransactionPlan
from hudi_ingest.model.report import LetterFile, SliceReport
from hudi_ingest.records.times import as_datetime
from hudi_ingest.transaction.dead_letters.letter_file import letter_batches, read_letters

PAGE = 50
"""Maximum number of entries in a manifest."""


@dataclass(frozen=True, slots=True)
class LetterEntry:
    """One committed transaction's changes of the dead letters."""

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


PREVIEW_CHARACTERS = 200
_GROUP = ("topic", "partition", "stage", "field", "expected")


@dataclass(frozen=True, slots=True)
class LetterCount:
    """Pending dead letters of one transaction and Kafka partition with the same error."""

    instant: str
    transaction_id: str
    topic: str
    partition: int
    stage: str
    field: str
    expected: str
    letters: int
    first_offset: int
    last_offset: int
    withheld: bool
    """Whether their bytes were not kept, so that they cannot be retried."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One pending dead letter. `value`, `key` and the headers' values are Kafka's bytes; None if they are withheld or the
    record had none. `timestamp`: Kafka's milliseconds since 1970, which may be any number, -1 for none."""

    instant: str
    transaction_id: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    stage: str
    field: str
    expected: str
    found: str
    withheld: bool

    @property
    def reason(self) -> str:
        return f"{f'field {self.field}: ' if self.field else ''}expected {self.expected}, found {self.found}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for users' scripts: all bytes as text if they are UTF-8, else as hexadecimal digits; and as base64."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": time.isoformat() if (time := as_datetime(self.timestamp)) else None,
            "timestamp_ms": self.timestamp,
            "instant": self.instant,
            "transaction_id": self.transaction_id,
            "stage": self.stage,
            "field": self.field,
            "expected": self.expected,
            "found": self.found,
            "withheld": self.withheld,
            "key": whole(self.key),
            "key_base64": _base64(self.key),
            "value": whole(self.value),
            "value_base64": _base64(self.value),
            "headers": [
                {"key": name, "value": whole(value), "value_base64": _base64(value)} for name, value in self.headers
            ],
        }


def find_letters_of(storage: TableStorage, entry: LetterEntry) -> Iterator[DeadLetter]:
    """All letters that a transaction added, whether or not they still count. Raises TableUnreachable."""
    return find_letters(storage, [WaitingFile(file, entry, ()) for file in entry.files])


def count_letters(storage: TableStorage, waiting: Sequence[WaitingFile]) -> list[LetterCount]:
    """Count letters by commit, partition and error, sorted in this order. Raises TableUnreachable."""
    counts: dict[tuple[Any, ...], LetterCount] = {}
    for waiting_file in waiting:
        letters = read_letters(storage, waiting_file.file.path, [*_GROUP, "offset"], waiting_file.without)
        groups = letters.group_by([*_GROUP]).aggregate([("offset", "count"), ("offset", "min"), ("offset", "max")])
        for row in groups.to_pylist():
            key = (waiting_file.entry.instant, *(row[name] for name in _GROUP))
            previous = counts.get(key)
            counts[key] = LetterCount(
                instant=waiting_file.entry.instant,
                transaction_id=waiting_file.entry.transaction_id,
                **{name: row[name] for name in _GROUP},
                letters=row["offset_count"] + (previous.letters if previous else 0),
                first_offset=min(row["offset_min"], previous.first_offset if previous else row["offset_min"]),
                last_offset=max(row["offset_max"], previous.last_offset if previous else row["offset_max"]),
                withheld=waiting_file.entry.withheld,
            )
    return [counts[key] for key in sorted(counts)]


def find_letters(
    storage: TableStorage,
    waiting: Sequence[WaitingFile],
    *,
    source: TopicPartition | None = None,
    offset: int | None = None,
    text: str = "",
) -> Iterator[DeadLetter]:
    """The pending letters in commit order, filtered by Kafka partition, offset and a text in their error, each if given.
    Raises TableUnreachable."""
    for waiting_file in waiting:
        for batch in letter_batches(storage, waiting_file.file.path, None, waiting_file.without):
            place = batch.schema.get_field_index("timestamp")
            # Python's datetime cannot hold every time a producer may set.
            batch = batch.set_column(place, "timestamp", batch["timestamp"].cast(pa.int64()))
            for row in batch.to_pylist():
                letter = DeadLetter(
                    instant=waiting_file.entry.instant,
                    withheld=waiting_file.entry.withheld,
                    headers=tuple((header["key"], header["value"]) for header in row.pop("headers") or ()),
                    **{name: row[name] for name in DeadLetter.__dataclass_fields__ if name in row},
                )
                if (
                    (source is None or (letter.topic, letter.partition) == (source.topic, source.partition))
                    and (offset is None or letter.offset == offset)
                    and text.lower() in f"{letter.stage} {letter.reason}".lower()
                ):
                    yield letter


def preview(content: bytes | None) -> str | None:
    """Bytes for people to read: text if they are UTF-8, else hexadecimal digits; shortened."""
    if content is None:
        return None
    try:
        text = content[: 4 * PREVIEW_CHARACTERS].decode()
    except UnicodeDecodeError as error:
        # The last character may have been cut in two.
        if error.start < 4 * PREVIEW_CHARACTERS - 3:
            digits = content[: PREVIEW_CHARACTERS // 2].hex()
            return f"0x{digits}{'…' if 2 * len(content) > PREVIEW_CHARACTERS else ''}"
        text = content[: error.start].decode()
    printable = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    cut = len(printable) > PREVIEW_CHARACTERS or len(text.encode()) < len(content)
    return f"{printable[:PREVIEW_CHARACTERS]}…" if cut else printable


def whole(content: bytes | None) -> str | None:
    """Bytes as text if they are UTF-8, else as hexadecimal digits."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
