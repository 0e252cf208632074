"""The timeline's history as Hudi writes it: parquet files of archived instants, which a manifest names."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from hudi_ingest.hudi.storage.paths import HISTORY
from hudi_ingest.hudi.storage.storage import TableStorage

_TEXT = ["null", {"type": "string", "avro.java.string": "String"}]
_STAT = {
    "type": "record",
    "name": "HoodieWriteStat",
    "fields": [
        {"name": "fileId", "type": _TEXT},
        {"name": "path", "type": _TEXT},
        {"name": "numWrites", "type": ["null", "long"]},
        {"name": "fileSizeInBytes", "type": ["null", "long"]},
        {"name": "numDeletes", "type": ["null", "long"]},
        {"name": "logVersion", "type": ["null", "int"]},
        {"name": "bytes", "type": "bytes"},
        {"name": "share", "type": "double"},
        {"name": "part", "type": "float"},
        {"name": "small", "type": "boolean"},
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieReplaceCommitMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {
            "name": "partitionToWriteStats",
            "type": ["null", {"type": "map", "values": {"type": "array", "items": _STAT}}],
        },
        {"name": "other", "type": ["null", "HoodieWriteStat"]},
        {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}]},
        {"name": "operationType", "type": _TEXT},
        {
            "name": "partitionToReplaceFileIds",
            "type": ["null", {"type": "map", "values": {"type": "array", "items": "string"}}],
        },
    ],
}


def commit_metadata(paths: Sequence[str], replaced: Sequence[str] = (), codec: str = "null") -> bytes:
    """A commit's metadata as Avro. `paths`: the files that it published; `replaced`: files whose file groups it replaced."""
    more = {"numDeletes": None, "logVersion": 1, "bytes": b"\0x", "share": 0.5, "part": 0.5, "small": True}
    stats: dict[str, list[dict[str, Any]]] = {}
    ids: dict[str, list[str]] = {}
    for path in paths:
        stats.setdefault(path.rpartition("/")[0], []).append(
            {"fileId": "", "path": path, "numWrites": 5, "fileSizeInBytes": 300, **more}
        )
    for path in replaced:
        folder, _, name = path.rpartition("/")
        ids.setdefault(folder, []).append(name.partition("_")[0])
    content = io.BytesIO()
    record = {
        "partitionToWriteStats": stats,
        "other": None,
        "extraMetadata": {"schema": "{}"},
        "operationType": "INSERT",
        "partitionToReplaceFileIds": ids,
    }
    fastavro.writer(content, SCHEMA, [record], codec=codec)
    return content.getvalue()


def archive(
    storage: TableStorage, commits: Mapping[str, bytes | None], number: int = 1, action: str = "commit"
) -> None:
    """Write a file of the history and its manifest, which names only that. `commits`: metadata by instant."""
    instants = sorted(commits)
    rows = pa.table(
        {
            "instantTime": instants,
            "completionTime": [f"{int(instant) + 1}" for instant in instants],
            "action": [action for _ in instants],
            "metadata": pa.array([commits[instant] for instant in instants], pa.binary()),
        }
    )
    content = io.BytesIO()
    pq.write_table(rows, content)
    name = f"{instants[0]}_{instants[-1]}_0.parquet"
    storage.write_whole(f"{HISTORY}/{name}", content.getvalue())
    storage.write_whole(
        f"{HISTORY}/manifest_{number}", json.dumps({"files": [{"fileName": name, "fileLen": 1}]}).encode()
    )
    storage.write_whole(f"{HISTORY}/_version_", str(number).encode())
