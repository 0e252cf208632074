"""The committed truth, read without a JVM by hudi-rs: checkpoints, transactions and the table's identity."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hudi import HudiTable

from hudi_ingest.exceptions import IngestError, OffsetsLost, TableMismatch, TableUnreachable
from hudi_ingest.hudi import file_ids
from hudi_ingest.hudi.file_ids import FileOrigin
from hudi_ingest.hudi.other_writers import HUDI_STREAMER, last_ingest, other_writer
from hudi_ingest.hudi.paths import PRIMARY, TIMELINE
from hudi_ingest.hudi.properties_file import PropertiesFile
from hudi_ingest.hudi.storage import TableStorage
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC
from hudi_ingest.records.schema.columns import columns_of

PIPELINE_PROPERTY = "hudi_ingest.pipeline"
RECORD_PROPERTY = "hudi_ingest.record_schema"
"""What the records of a pipeline that declares no columns are decoded to, as the JSON of a Spark StructType."""
NEWEST_COMMITS = 20
"""Of how many commits `committed` says the transactions."""
_INSTANT_FILE = re.compile(r"(?P<requested>\d+)(?P<completed>_\d+)?\.(?P<rest>.+)")
"""`<requested>_<completed>.<action>`, or `<requested>.` and anything else while it is pending."""


@dataclass(frozen=True, slots=True)
class CommittedInstant:
    """A completed instant, its extra metadata, the files that it published (path → bytes), and their rows."""

    instant: str
    metadata: Mapping[str, str]
    completed_at: datetime
    files: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    operation: str = ""
    """Hudi's name of what the commit did, such as INSERT or CLUSTER; "" where it does not say."""

    @property
    def size_bytes(self) -> int:
        return sum(self.files.values())

    def accounting(self, transaction_key: str) -> Accounting:
        """Of a commit of the pipeline with this key. Raises KeyError for others."""
        return Accounting.from_json(self.metadata[transaction_key])


@dataclass(frozen=True, slots=True)
class Instants:
    """Requested times on the active timeline, of every writer's actions. Archived ones are on neither side."""

    pending: frozenset[str]
    completed: frozenset[str]
    undoing: frozenset[str] = frozenset()
    """The pending rollbacks and restores."""


@dataclass(frozen=True, slots=True)
class CommittedState:
    """What a table says of one pipeline. `checkpoint` is None before the first commit."""

    exists: bool
    checkpoint: Checkpoint | None = None
    checkpoint_text: str | None = None
    """The checkpoint exactly as the commit carries it, for the commit guard to compare."""
    last_began_at: datetime | None = None
    """When the newest of the pipeline's own instants began that moved its offsets."""
    last_committed_at: datetime | None = None
    """When that one was completed; when it began, where its own commit is archived."""
    last_rejected: int = 0
    """Bad records of the pipeline's last transaction; 0 also when its commit is archived."""
    transactions: tuple[str, ...] = ()
    """Ids of the pipeline's newest commits that are not archived, oldest first, at most NEWEST_COMMITS."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A live base file. `origin` is what its file id tells (None for other writers' files, such as clustering's); the
    ranges are (least, greatest) of its rows' Kafka columns, None where the file has no statistics of them or a row without."""

    path: str
    instant: str
    rows: int
    size_bytes: int
    origin: FileOrigin | None
    topics: tuple[Any, Any] | None
    partitions: tuple[Any, Any] | None
    offsets: tuple[Any, Any] | None


class Timeline:
    """Completed instants of one table. Each call reads the storage anew."""

    def __init__(self, base_path: str) -> None:
        self.base_path = base_path
        self._storage = TableStorage(base_path)
        self._properties = PropertiesFile(self._storage)

    def committed(self, checkpoint_key: str, transaction_key: str) -> CommittedState:
        """The pipeline's checkpoint: of all that active completed instants carry, the one of the greatest sequence.

        Not the one of the newest instant: another writer's commit carries the checkpoint that it found when it began,
        and may sort after ours with an older one. Raises TableUnreachable; OffsetsLost when the pipeline's own table
        has commits but none carries its checkpoint, or the checkpoint counts a commit that was rolled back; TableMismatch
        when Hudi Streamer has read on since.
        """
        if not self.exists():
            return CommittedState(exists=False)
        best: Checkpoint | None = None
        best_text = None
        sequences: dict[str, int] = {}
        own: set[str] = set()
        accountings: dict[int, Accounting] = {}
        completed_at: dict[str, datetime] = {}
        commits = self.completed()
        for found in commits:
            sequences[found.instant] = 0
            text = found.metadata.get(checkpoint_key)
            if text is None:
                continue
            try:
                checkpoint = Checkpoint.from_json(text)
            except (ValueError, KeyError, TypeError) as error:
                raise TableUnreachable(
                    f"instant {found.instant} of {self.base_path} carries a checkpoint under {checkpoint_key} that cannot "
                    f"be read ({error}). Upgrade hudi-ingest if a newer version wrote it."
                ) from error
            sequences[found.instant] = checkpoint.sequence
            if transaction_key in found.metadata:
                own.add(found.instant)
                completed_at[found.instant] = found.completed_at
                accountings[checkpoint.sequence] = found.accounting(transaction_key)
            if best is None or checkpoint.sequence > best.sequence:
                best, best_text = checkpoint, text
        owned = checkpoint_key.endswith(f".{self.properties().get(PIPELINE_PROPERTY)}")
        # A table that is being taken over is ours before its first commit of ours: see take_over.py.
        if best is None and sequences and owned and last_ingest(commits) is None:
            # Starting anew would ingest everything twice.
            raise OffsetsLost(
                f"the table at {self.base_path} belongs to this pipeline, and none of its {len(sequences)} active commits carries "
                f"{checkpoint_key}: other writers' commits did not carry it on until archival removed the last that had it, "
                "or the table was restored. Nothing was written. Ingest into a table with a new name, or restore a copy "
                "whose commits carry it."
            )
        if best is None:
            return CommittedState(exists=True)
        self._require_none_missing(best, sequences, own)
        self._require_nobody_ahead(best, commits, own)
        newest = best.moved_by or best.instant
        began = instant_time(newest) if newest else None
        done = completed_at.get(newest, began)
        transactions = tuple(accountings[sequence].transaction_id for sequence in sorted(accountings)[-NEWEST_COMMITS:])
        last = accountings.get(best.sequence)
        rejected = last.rejected if last is not None else 0
        return CommittedState(True, best, best_text, began, done, rejected, transactions)

    def instant_of(self, transaction_key: str, transaction_id: str) -> str | None:
        """The completed instant that published the transaction, or None. Raises TableUnreachable."""
        if not self.exists():
            return None
        for found in self._completed():
            if transaction_key in found.metadata and found.accounting(transaction_key).transaction_id == transaction_id:
                return found.instant
        return None

    def commits_of(self, transaction_key: str) -> tuple[CommittedInstant, ...]:
        """The pipeline's own completed instants on the active timeline, oldest first. Raises TableUnreachable."""
        own = [found for found in self._completed() if transaction_key in found.metadata] if self.exists() else []
        return tuple(sorted(own, key=lambda found: found.instant))

    def completed(self) -> tuple[CommittedInstant, ...]:
        """The completed instants on the active timeline, of every writer, newest first by their completion.

        Raises TableUnreachable.
        """
        return tuple(sorted(self._completed(), key=lambda each: (each.completed_at, each.instant), reverse=True))

    def pending_writes(self) -> tuple[str, ...]:
        """Instants of every writer that may still add rows, with their actions. Raises TableUnreachable."""
        parsed = [found for name in self._names() if (found := _INSTANT_FILE.fullmatch(name))]
        completed = {each["requested"] for each in parsed if each["completed"]}
        open_ones = {
            # The inflight file of a commit has no action in its name.
            f"{each['requested']} ({each['rest'].partition('.')[0].replace('inflight', 'commit')})"
            for each in parsed
            if each["requested"] not in completed
            and not each["rest"].startswith(("clean.", "clustering.", "rollback.", "restore.", "savepoint."))
        }
        return tuple(sorted(open_ones))

    def schema(self) -> pa.Schema:
        """The table's columns without Hudi's own. Raises TableUnreachable."""
        try:
            return columns_of(HudiTable(self.base_path).get_schema())
        except Exception as error:
            raise self._unreadable("schema", error) from error

    def column_names(self) -> tuple[str, ...]:
        """Names of the table's columns, Hudi's own included. Raises TableUnreachable."""
        try:
            return tuple(HudiTable(self.base_path).get_schema().names)
        except Exception as error:
            raise self._unreadable("schema", error) from error

    def statistics_columns(self) -> tuple[str, ...]:
        """The columns of which the metadata table keeps statistics, Hudi's own left out; none where it does not say.

        Raises TableUnreachable.
        """
        path = self.properties().get("hoodie.table.index.defs.path", "")
        try:
            defined = json.loads(self._storage.read(path))["indexDefinitions"] if path else {}
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError) as error:
            raise self._unreadable("index definitions", error) from error
        columns = defined.get("column_stats", {}).get("sourceFields", ())
        return tuple(name for name in columns if not name.startswith("_hoodie_"))

    def exists(self) -> bool:
        """Whether there is a table at the path. Raises TableUnreachable, also when its properties are gone."""
        try:
            if self.properties():
                return True
        except OSError as error:
            raise self._unreadable("properties", error) from error
        if not self.is_empty():
            # To make a table here would be to begin anew on top of what is committed.
            raise TableUnreachable(
                f"the table at {self.base_path} has commits and no {PRIMARY}. Nothing was written. Put a copy of that file in its "
                "place; Hudi's own was deleted, or the path is not wholly mounted or restored."
            )
        return False

    def restore_properties(self) -> bool:
        """Puts Hudi's backup of hoodie.properties in place of a file that a crash left empty or cut, and says whether it did.

        Nothing can be read of the table before. Raises TableUnreachable.
        """
        try:
            return self._properties.restore()
        except OSError as error:
            raise self._unreadable("properties", error) from error

    def files(self) -> list[TableFile]:
        """The table's live base files and where their rows came from, by partition path and name. Raises TableUnreachable."""
        if not self.exists():
            return []
        try:
            slices = HudiTable(self.base_path).get_file_slices()
        except Exception as error:
            raise self._unreadable("files", error) from error
        found = []
        for each in slices:
            path = f"{each.partition_path}/{each.base_file_name}" if each.partition_path else each.base_file_name
            footer = self._storage.parquet_footer(path)
            found.append(
                TableFile(
                    path=path,
                    instant=each.creation_instant_time,
                    rows=footer.num_rows,
                    size_bytes=each.base_file_size,
                    origin=file_ids.decode(each.file_id),
                    topics=_range(footer, TOPIC),
                    partitions=_range(footer, PARTITION),
                    offsets=_range(footer, OFFSET),
                )
            )
        return sorted(found, key=lambda file: file.path)

    def is_empty(self) -> bool:
        """Whether no instant, of any state and any writer, is on the active timeline."""
        return not any(name[:1].isdigit() for name in self._names())

    def instants(self) -> Instants:
        """What is pending and what is completed, by the names on the storage. Raises TableUnreachable.

        An instant that is pending before and after the call is in `pending`, whatever happens meanwhile: its requested
        file is made before anything of it is written, and goes when it is rolled back or archived, not before.
        """
        names = self._names()
        seen, completed, undoing = set(), set(), set()
        for name in names:
            parsed = _INSTANT_FILE.fullmatch(name)
            if parsed is None:
                continue
            seen.add(parsed["requested"])
            if parsed["completed"]:
                completed.add(parsed["requested"])
            elif parsed["rest"].startswith(("rollback.", "restore.")):
                undoing.add(parsed["requested"])
        return Instants(frozenset(seen - completed), frozenset(completed), frozenset(undoing - completed))

    def newest_instant(self) -> str:
        """The latest requested or completion time on the active timeline, of every writer's actions; "" when there is none.

        Raises TableUnreachable.
        """
        parsed = [found for name in self._names() if (found := _INSTANT_FILE.fullmatch(name))]
        times = {time for each in parsed for time in (each["requested"], (each["completed"] or "").lstrip("_"))}
        return max(filter(is_instant, times), default="")

    def published_files(self) -> frozenset[str]:
        """Paths of the files that active completed instants published, also replaced and cleaned ones. Raises TableUnreachable."""
        return frozenset(path for found in self._completed() for path in found.files)

    def properties(self) -> dict[str, str]:
        """hoodie.properties, empty when there is no table. Raises TableUnreachable when the file is damaged."""
        return self._properties.read()

    def _require_none_missing(self, checkpoint: Checkpoint, sequences: Mapping[str, int], own: Set[str]) -> None:
        missing = missing_sequences(checkpoint, sequences, own, ())
        if missing:
            # Archival may keep a savepointed commit when it removes later ones.
            missing = missing_sequences(checkpoint, sequences, own, self._savepoints())
        if not missing:
            return
        later = sorted((each for each, sequence in sequences.items() if sequence >= missing[0]), reverse=True)
        raise OffsetsLost(
            f"the table at {self.base_path} lost rows that its checkpoint counts: another writer rolled back the commit of "
            f"transaction number {', '.join(map(str, missing[:5]))}{' and others' if missing[5:] else ''} of this pipeline, "
            f"and the commits {', '.join(later[:10])}{' and others' if later[10:] else ''}, which carry the checkpoint on, "
            "stayed. Nothing was written. First make sure of it: `hudi-ingest files` must show no file of the lost commits (if it "
            "does, archival took them beside a savepoint that was deleted since: run `CALL archive_commits(table => …)` and "
            "roll nothing back). Then roll these back too, in this order, by `CALL rollback_to_instant(table => …, "
            "instant_time => …)`, or restore a savepoint from before: the checkpoint goes back with them, and the next "
            "transaction reads the lost offsets again."
        )

    def _require_nobody_ahead(
        self, checkpoint: Checkpoint, commits: Collection[CommittedInstant], own: Set[str]
    ) -> None:
        """Raises TableMismatch when another system has ingested the same topics since our last commit.

        Our commits carry Hudi Streamer's key, so it goes on where we ended; what it reads, our checkpoint does not count. The
        others go on where they themselves ended, which is where this pipeline took the table over.
        """
        topics = {each.topic for each in checkpoint.offsets}
        ours = max((each.completed_at for each in commits if each.instant in own), default=None)
        for each in commits:
            writer = other_writer(each.metadata)
            later = each.completed_at > ours if ours else each.instant > checkpoint.instant
            if writer is None or not later:
                continue
            where = (
                f"{writer.name} has written into the table at {self.base_path} since this pipeline's last commit, in its commit "
                f"{each.instant}"
            )
            undo = f"roll it back (`CALL rollback_to_instant(table => …, instant_time => '{each.instant}')`)"
            if writer.name != HUDI_STREAMER:
                # Of which topics it is cannot be told, so it is only a matter where the pipeline took its place.
                if checkpoint.taken_over:
                    raise TableMismatch(
                        f"{where}, after this pipeline took the table over. It does not know what this pipeline has read, so "
                        f"records may be in the table twice. Nothing was written. Stop it, and {undo}: then this pipeline goes on."
                    )
                continue
            found = {TopicPartition(writer.topic, number): offset for number, offset in sorted(writer.offsets.items())}
            ahead = [
                f"{source} {offset}" for source, offset in found.items() if offset > checkpoint.offsets.get(source, 0)
            ]
            if ahead and writer.topic in topics:
                raise TableMismatch(
                    f"{where}. That goes on to {', '.join(ahead)}, which is ahead of the committed offsets: to go on from those would "
                    f"write its rows a second time, so nothing was written. Stop one of the two. To have its commit undone, {undo}. "
                    "To go on behind it, give the pipeline a new name and set table.take_over: hudi_streamer."
                )

    def _savepoints(self) -> frozenset[str]:
        return frozenset(name.split("_", 1)[0] for name in self._names() if name.endswith(".savepoint"))

    def _names(self) -> tuple[str, ...]:
        try:
            return self._storage.names(TIMELINE)
        except OSError as error:
            raise self._unreadable("timeline", error) from error

    def _completed(self) -> Iterator[CommittedInstant]:
        try:
            timeline = HudiTable(self.base_path).get_timeline()
            # A commit's file is <requested time>_<completion time>.<action>.
            names = [name.partition("_") for name in self._names()]
            completed = {requested: instant_time(rest) for requested, _, rest in names if rest.endswith("commit")}
            instants = [
                *timeline.get_completed_commits(desc=True),
                *timeline.get_completed_deltacommits(desc=True),
                *timeline.get_completed_replacecommits(desc=True),
            ]
            for instant in instants:
                content: dict[str, Any] = json.loads(timeline.get_instant_metadata_in_json(instant))
                stats = [each for found in (content.get("partitionToWriteStats") or {}).values() for each in found]
                yield CommittedInstant(
                    instant=instant.timestamp,
                    metadata=content.get("extraMetadata") or {},
                    completed_at=completed.get(instant.timestamp) or instant_time(instant.timestamp),
                    files={each["path"]: each["fileSizeInBytes"] for each in stats if each.get("path")},
                    rows=sum(each["numWrites"] for each in stats),
                    operation=content.get("operationType") or "",
                )
        except Exception as error:
            if isinstance(error, IngestError):
                raise
            raise self._unreadable("timeline", error) from error

    def _unreadable(self, what: str, error: Exception) -> TableUnreachable:
        return TableUnreachable(
            f"cannot read the {what} of the table at {self.base_path}: {error}. If it was being written just now, try "
            "again; else check the path, its permissions and the network."
        )


def missing_sequences(
    checkpoint: Checkpoint, sequences: Mapping[str, int], own: Set[str], savepoints: Collection[str]
) -> tuple[int, ...]:
    """Numbers of the pipeline's transactions that the checkpoint counts and whose commits were rolled back.

    `sequences` are the active completed instants with the checkpoint's number that each carries, `own` those of them that
    made it. Archival takes instants from the oldest on, `savepoints` apart, so what is missing behind the oldest that is
    left was not archived.
    """
    left = [instant for instant in sequences if instant not in savepoints]
    present = {sequences[instant] for instant in own}
    archivable = [sequences[instant] for instant in left if instant in own]
    if archivable:
        first = min(archivable)
    elif left and checkpoint.instant >= min(left):
        first = checkpoint.sequence
    else:
        return ()
    return tuple(number for number in range(first, checkpoint.sequence + 1) if number not in present)


def _range(footer: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    names = footer.schema.to_arrow_schema().names
    if column not in names:
        return None
    index = [footer.schema.column(i).path for i in range(footer.num_columns)].index(column)
    groups = [footer.row_group(number).column(index).statistics for number in range(footer.num_row_groups)]
    if not groups or any(each is None or not each.has_min_max for each in groups):
        return None
    if any(not each.has_null_count or each.null_count for each in groups):
        # Another writer's rows, which say nothing of where they are from.
        return None
    return min(each.min for each in groups), max(each.max for each in groups)


def instant_time(instant: str) -> datetime:
    """The UTC time of an instant such as 20261121140405123; our tables keep their timeline in UTC."""
    return datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(
        microsecond=int(instant[14:17] or 0) * 1000, tzinfo=timezone.utc
    )


def is_instant(name: str) -> bool:
    """Whether the text is an instant as `instant_time` reads it."""
    try:
        return name.isdigit() and bool(instant_time(name))
    except ValueError:
        return False
