"""Which stored files no transaction will ever need: pure, decided from three readings of one table. `operations/upkeep/sweep.py` makes
the readings and deletes the files.

The order of the readings makes this safe without any lock: first the storage, then the timeline, then the table's file
list. A file that was on the storage belongs to an instant that had begun by then, so at the second reading that
instant is pending, or it has ended. If it ended by a commit, the commit listed its files before it completed, so the
third reading has them. If it is neither pending nor listed, it was rolled back or published without the file, and
neither can be undone. In the other order a commit between the readings would make a live file look like an orphan.

The table's list alone proves nothing, because a damaged metadata table has less than its commits. So a data file that any commit names, an
archived one included, is never an orphan, and one of which the commits do not decide stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime

from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.file_groups import BUCKET_FILE_ID, FileOrigin, is_token_of
from hudi_ingest.hudi.storage.paths import (
    COPIED_LETTERS,
    DEAD_LETTERS,
    HEARTBEATS,
    HISTORY,
    HOODIE,
    MARKERS,
    METADATA_HISTORY,
    METADATA_TIMELINE,
    OWN_FILES,
    PARTITION_METADATA,
    PRIMARY,
    TIMELINE,
)
from hudi_ingest.hudi.storage.storage import StoredFile, Upload
from hudi_ingest.hudi.timeline.timeline import Instants

_BASE_FILE = re.compile(
    r"(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-0)_[0-9]+-[0-9]+-[0-9]+_(?P<instant>\d{17})\.parquet"
)
_KEYED_FILE = re.compile(
    rf"\.?(?P<id>{BUCKET_FILE_ID})(?:_0-0-0_(?P<base>\d{{17}})\.parquet|_(?P<log>\d{{17}})\.log\.\d+_\d+-\d+-\d+)"
)
"""A log file of a keyed table, or the empty base file of a file group. Other writers' files of these groups match, too: one that
is not listed although its instant has ended is an orphan, too."""
_LOG_FILE = re.compile(
    r"\.\d{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-0_(?P<log>\d{17})\.log\.1_(?P<token>\d+-\d{19}-\d{20,})"
)
"""A log file in a file group with an id of its own, which another writer made, or which replaced one: only the token is ours."""
_DATA_FILE = re.compile(r".+_(?P<base>\d{17})\.parquet|\..+_(?P<log>\d{17})\.log\.\d+.*")
"""Any writer's."""
# A dead-letter file is named like a base file in its folder; the manifest beside it has its own name.
MANIFEST = re.compile(
    rf"{re.escape(DEAD_LETTERS)}/(?P<instant>\d{{17}})/[0-9a-f]{{16}}\.json(?:\.[0-9a-f]{{32}}\.partial)?"
)
PARTIAL = re.compile(
    rf"(?:{re.escape(OWN_FILES)}/.+|{re.escape(PRIMARY)}|(?:.+/)?)\.[0-9a-f]{{32}}\.partial"
    rf"|(?:{re.escape(TIMELINE)}|{re.escape(METADATA_TIMELINE)})/(?P<instant>\d{{17}})[^/]+"
    r"\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    rf"|(?:{re.escape(HISTORY)}|{re.escape(METADATA_HISTORY)})/(?:manifest_\d+|_version_)"
    r"\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""Partial files of atomic writes: those of storage.py that belong to no instant (the epoch, the mark of copies, the table's
properties, and those of data folders, whose names are hidden), and Hudi's on its timelines (see `INSTANT_FILE`) and of the lists of their
history."""
_LEFT_BEHIND = re.compile(rf"(?:{re.escape(MARKERS)}|{re.escape(HEARTBEATS)})/\.?(?P<instant>\d{{17}})(?:\.crc)?")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A base file, dead-letter file, log file, heartbeat file, marker or unfinished file of ours that may be deleted. Only the
    first two have an `origin`."""

    file: StoredFile
    instant: str
    """"" for files that belong to no instant."""
    reason: str
    origin: FileOrigin | None = None
    upload: Upload | None = None
    """Set if the file does not exist yet, because its upload was not completed."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that the table does not list and that is no orphan, and why."""

    file: StoredFile
    instant: str
    """"" if its name has none that means something here."""
    reason: str
    is_named: bool = False
    """Whether a commit names it."""


@dataclass(frozen=True, slots=True)
class Archive:
    """What is known of instants that are not on the active timeline."""

    files: Mapping[str, Collection[str]]
    """The files of each that was committed and is archived."""
    receipts: Set[str] = frozenset()
    """Instants that the ledger has as committed."""
    begin: str = ""
    """The oldest instant on the active timeline."""
    doubt: str = ""
    """Why it is not known which older ones were committed; "" if it is."""


@dataclass(frozen=True, slots=True)
class Findings:
    """A sweep's findings about the files that the table does not list."""

    orphans: list[Orphan]
    kept: list[KeptFile]


def judge_files(
    stored: Iterable[StoredFile],
    instants: Instants,
    listed: Set[str],
    *,
    named: Set[str] = frozenset(),
    topics: Iterable[str],
    older_than: datetime,
) -> Findings:
    """Tell the orphans in `stored`, in its order, from files that stay; the three readings must have been made in the order of the
    arguments. `named`: files of commits on the timeline.

    No orphans are files that are `listed` (live, or replaced and not cleaned yet), with their checksums, or `named`, that belong to
    a pending instant or one newer than all on the timeline, that changed after `older_than`, or that another writer wrote: a file
    id must be a bucket's in a keyed table, or else exactly the one that this software gives to a file of that partition folder,
    instant, and one of `topics`. Finds nothing while a rollback or restore is pending.
    """
    newest = max(instants.pending | instants.completed, default="")
    findings = Findings([], [])
    if instants.undoing or not newest:
        return findings
    known_topics = tuple(topics)
    for file in stored:
        if file.path in listed or _summed_file(file.path) in listed or _is_part_of_table(file.path):
            continue
        candidate = _candidate(file, instants, known_topics)
        if file.path in named:
            reason = "a commit on the timeline names it, although the table does not list it"
            findings.kept.append(KeptFile(file, instant_in(file.path), reason, is_named=True))
            continue
        reason = _why_foreign(file.path) if candidate is None else _why_not_yet(candidate, instants, newest, older_than)
        if candidate is not None and not reason:
            findings.orphans.append(candidate)
        else:
            findings.kept.append(KeptFile(file, candidate.instant if candidate else "", reason))
    return findings


def undecided_instants(findings: Findings, completed: Set[str]) -> frozenset[str]:
    """Return the instants of found data files that are not on the active timeline. `completed`: those whose commits' files were `named` to
    `judge_files`."""
    paths = [*(orphan.file.path for orphan in findings.orphans), *(kept.file.path for kept in findings.kept)]
    return frozenset(instant for path in paths if (instant := instant_in(path)) and instant not in completed)


def judge_archived(findings: Findings, archive: Archive) -> Findings:
    """Keep the data files that archived commits name, or of which nothing proves that they name them not."""
    judged = Findings([], [])
    for orphan in findings.orphans:
        instant, path = orphan.instant, orphan.file.path
        reason, is_data = "", bool(instant_in(path))
        is_named = is_data and path in archive.files.get(instant, ())
        if is_named:
            reason = _NAMED
        elif is_data and instant not in archive.files and instant in archive.receipts:
            reason = (
                f"the ledger has its instant {instant} as committed, but no timeline has the commit, which may name it"
            )
        elif is_data and instant not in archive.files and instant < archive.begin:
            reason = archive.doubt
        if reason:
            judged.kept.append(KeptFile(orphan.file, instant, reason, is_named))
        elif is_data and instant in archive.files:
            judged.orphans.append(replace(orphan, reason="its instant is committed without it, and archived"))
        else:
            judged.orphans.append(orphan)
    for kept in findings.kept:
        is_named = kept.file.path in archive.files.get(instant_in(kept.file.path), ())
        judged.kept.append(replace(kept, reason=_NAMED, is_named=True) if is_named else kept)
    return judged


_NAMED = "an archived commit names it, although the table does not list it"


def instant_in(path: str) -> str:
    """Return the instant in a data file's name; "" if it is the name of no data file."""
    found = None if path.startswith(f"{HOODIE}/") else _DATA_FILE.fullmatch(path.rpartition("/")[2])
    return (found["base"] or found["log"]) if found else ""


def judge_uploads(
    uploads: Iterable[Upload], instants: Instants, *, topics: Iterable[str], older_than: datetime
) -> Findings:
    """Tell the uploads of base files and dead-letter files whose instants have ended from those that stay, under the rules of
    `judge_files`.

    A file that the table lists has been completed by another upload, so lists do not matter here.
    """
    known_topics, all_findings = tuple(topics), Findings([], [])
    for upload in uploads:
        as_file = [StoredFile(upload.path, 0, upload.began)]
        findings = judge_files(as_file, instants, frozenset(), topics=known_topics, older_than=older_than)
        all_findings.orphans.extend(
            replace(orphan, reason="its upload was never completed", upload=upload) for orphan in findings.orphans
        )
        all_findings.kept.extend(replace(kept, reason=f"an open upload: {kept.reason}") for kept in findings.kept)
    return all_findings


def _why_not_yet(candidate: Orphan, instants: Instants, newest: str, older_than: datetime) -> str:
    """Why a file with one of our names may still be needed; "" if it cannot."""
    if candidate.instant in instants.pending:
        return f"its instant {candidate.instant} is still open"
    if candidate.instant > newest:
        return f"its instant {candidate.instant} is newer than all on the timeline, so its transaction may be about to begin"
    if candidate.file.modified >= older_than:
        return f"too young: it changed after {older_than:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def _summed_file(path: str) -> str:
    """The file whose checksums Hadoop's local file system keeps in this one, where another writer's Hudi wrote both; "" if its name
    is none of such a file."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else ""


def _is_part_of_table(path: str) -> bool:
    """Whether the file belongs to the table, whatever its listing says: no sweep has to explain why it stays."""
    name = path.rpartition("/")[2].removesuffix(".crc").lstrip(".")
    if name == PARTITION_METADATA.lstrip("."):
        return True
    return path.startswith(f"{OWN_FILES}/") and not (
        (path.startswith(f"{DEAD_LETTERS}/") and path != COPIED_LETTERS) or PARTIAL.fullmatch(path)
    )


def _why_foreign(path: str) -> str:
    name = path.rpartition("/")[2]
    if _BASE_FILE.fullmatch(name) or _LOG_FILE.fullmatch(name):
        return (
            "no proof that it is this pipeline's: its name fits none of its topics in this folder and instant. Another writer, or "
            "a pipeline of another topic, wrote it, or it was moved here"
        )
    return "not a name that this pipeline gives: another writer or a person put it there"


def _candidate(file: StoredFile, instants: Instants, topics: tuple[str, ...]) -> Orphan | None:
    """The file as an orphan, if its name is one that only this pipeline gives."""
    leftover = _LEFT_BEHIND.fullmatch(file.path) or MANIFEST.fullmatch(file.path)
    if leftover is not None:
        ended = "is committed" if leftover["instant"] in instants.completed else "is no longer on the timeline"
        return Orphan(file, leftover["instant"], f"left behind: its instant {ended}")
    partial = PARTIAL.fullmatch(file.path)
    if partial is not None:
        return Orphan(file, partial["instant"] or "", "never finished: its writer died")
    folder, _, name = file.path.rpartition("/")
    keyed = _KEYED_FILE.fullmatch(name)
    if keyed is not None:
        instant = keyed["base"] or keyed["log"]
        return Orphan(file, instant, _reason(instant, instants))
    log = _LOG_FILE.fullmatch(name)
    if log is not None:
        ours = any(is_token_of(topic, log["token"]) for topic in topics)
        return Orphan(file, log["log"], _reason(log["log"], instants)) if ours else None
    base = _BASE_FILE.fullmatch(name)
    origin = file_groups.decode(base["id"]) if base is not None else None
    if base is None or origin is None:
        return None
    instant, partition, offset = base["instant"], origin.partition, origin.first_offset
    own_ids = (file_groups.file_id(topic, partition, offset, folder, instant) for topic in topics)
    # Another writer's UPDATE keeps our file id under its own instant; the hash in the id distinguishes it from ours.
    return Orphan(file, instant, _reason(instant, instants), origin) if base["id"] in own_ids else None


def _reason(instant: str, instants: Instants) -> str:
    committed = instant in instants.completed
    return "its instant is committed without it" if committed else "its instant was never committed with it"
