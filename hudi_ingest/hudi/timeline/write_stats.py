"""The statistics of a commit's files in Hudi's own JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hudi_ingest.model.report import BaseFile, LogFile


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
