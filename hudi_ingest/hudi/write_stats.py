"""The statistics of a commit's files in Hudi's own JSON."""

from __future__ import annotations

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


def log_file_stat(instant: str, file: LogFile) -> dict[str, Any]:
    """Return the HoodieDeltaWriteStat of a log file of the instant. How many keys are new is unknown without reading the table."""
    name = file.path.rpartition("/")[2]
    version, _, _ = name.rpartition(".log.")[2].partition("_")
    return {
        **_common(file),
        "prevCommit": instant,
        "baseFile": "",
        "logFiles": [name],
        "logVersion": int(version),
        "logOffset": 0,
        "numWrites": file.upserts,
        "numUpdateWrites": file.upserts,
        "numDeletes": file.deletes,
    }


def _common(file: BaseFile | LogFile) -> dict[str, Any]:
    return {
        "fileId": file.file_id,
        "path": file.path,
        "partitionPath": file.partition_path,
        "totalWriteBytes": file.size_bytes,
        "fileSizeInBytes": file.size_bytes,
    }
