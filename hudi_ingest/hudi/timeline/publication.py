"""What one commit publishes, what must hold when it does, and the statistics of its files in Hudi's own JSON. `write_client.py` publishes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.model.plan import ReplacedFile, TransactionKind
from hudi_ingest.model.report import BaseFile, LogFile
from hudi_ingest.model.transaction import TransactionSchema


@dataclass(frozen=True, slots=True)
class Publication:
    """A commit: `instant` publishes exactly `files` and `log_files`, which replace `replaced`, and gives the table the schema's
    columns."""

    instant: str
    files: Sequence[BaseFile]
    metadata: Mapping[str, str]
    """Extra metadata of the commit: checkpoint and accounting."""
    expected_checkpoint: str | None
    """The text of the checkpoint that the plan starts from; the guard compares it with the table's."""
    epoch: Epoch
    """The transaction's epoch; the guard compares it with the table's."""
    schema: TransactionSchema
    kind: TransactionKind = TransactionKind.INGEST
    log_files: Sequence[LogFile] = ()
    """The rows of a keyed table, whose `files` are the empty base files of new file groups."""
    before: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """If CDC queries are to read the commit: by partition path and file id, the base file and the log files of each file group that
    the log files extend, as they were before."""
    replaced: Sequence[ReplacedFile] = ()
    """The guard checks that the table still has them."""
    seen: Collection[str] = ()
    """The completed instants that the plan knows. If not empty, the guard refuses when there are others, or another writer is active."""
    read: Collection[str] = ()
    """Completed instants whose commits the caller has read: none is of this transaction, and the greatest checkpoint of theirs is
    the expected one. The guard reads only newer ones."""
    clean: bool = True
    """Whether Hudi cleans old replaced files after the commit."""


def base_file_stat(file: BaseFile) -> dict[str, Any]:
    """Return the HoodieWriteStat of the first base file of a file group."""
    return {
        **_common(file),
        "prevCommit": "null",
        "numWrites": file.rows,
        "numInserts": file.rows,
    }


def first_file_stat(file: BaseFile) -> dict[str, Any]:
    """Return the HoodieDeltaWriteStat of the empty base file of a new file group."""
    return {**base_file_stat(file), "baseFile": _name(file), "logFiles": []}


def log_file_stat(instant: str, before: Mapping[tuple[str, str], Sequence[str]], file: LogFile) -> dict[str, Any]:
    """Return the HoodieDeltaWriteStat of a log file of the instant. How many keys are new is unknown without reading the table.

    `before`: by partition path and file id, the file group's base file and log files before the instant, of which CDC queries
    read the rows before the change; empty for tables without them.
    """
    base_file, *log_files = before.get((file.partition_path, file.file_id), ("",))
    name = _name(file)
    version, _, _ = name.rpartition(".log.")[2].partition("_")
    return {
        **_common(file),
        "prevCommit": instant,
        "baseFile": base_file,
        "logFiles": [*log_files, name],
        "logVersion": int(version),
        "logOffset": 0,
        "numWrites": file.upserts,
        "numUpdateWrites": file.upserts,
        "numDeletes": file.deletes,
    }


def _name(file: BaseFile | LogFile) -> str:
    """Return the name of the file in its folder."""
    return file.path.rpartition("/")[2]


def _common(file: BaseFile | LogFile) -> dict[str, Any]:
    return {
        "fileId": file.file_id,
        "path": file.path,
        "partitionPath": file.partition_path,
        "totalWriteBytes": file.size_bytes,
        "fileSizeInBytes": file.size_bytes,
    }
