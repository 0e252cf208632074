"""Read the end offsets of a micro-batch from the checkpoint folder of a Spark Structured Streaming query.

`offsets/<batch>` is written before a micro-batch runs and holds its end offsets; `commits/<batch>` is written after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from hudi_ingest.exceptions import TableMismatch, TableUnreachable
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.model.offsets import TopicPartition


def offsets_after(folder: str, batch: int) -> dict[TopicPartition, int]:
    """Return the next offsets to read after the query's last micro-batch, which must be `batch`.

    Raises TableMismatch when the folder is not a Kafka query's, or `batch` cannot be its last one; TableUnreachable.
    """
    storage = LocalStorage(folder)
    try:
        planned, done = (_numbers(storage, name) for name in ("offsets", "commits"))
        if not planned:
            raise TableMismatch(f"{folder} holds no offsets of a Spark query: it is not a checkpointLocation")
        # A batch that Hudi has published may not be in `commits` yet, and the next one may be planned already.
        if batch not in planned or max(planned) > batch + 1 or max(done, default=batch) not in (batch - 1, batch):
            raise TableMismatch(
                f"the table's last micro-batch is {batch}, and the checkpoint at {folder} has planned {max(planned)} and "
                f"committed {max(done, default='none')}, so it is of another query, or the table was restored since"
            )
        text = storage.read(f"offsets/{batch}").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TableUnreachable(f"cannot read the Spark checkpoint at {folder}: {error}. Check the path.") from error
    return _offsets(folder, batch, text)


def _numbers(storage: LocalStorage, folder: str) -> set[int]:
    return {int(name) for name in storage.names(folder) if name.isdecimal()}


def _offsets(folder: str, batch: int, text: str) -> dict[TopicPartition, int]:
    version, *lines = text.strip().splitlines()
    # A line of metadata, then one for each source of the query.
    if version != "v1" or len(lines) != 2:
        raise TableMismatch(
            f"offsets/{batch} of the Spark checkpoint at {folder} has version {version} and {max(0, len(lines) - 1)} sources; "
            "only v1 with one source is supported"
        )
    try:
        offsets = json.loads(lines[1])
        if not isinstance(offsets, Mapping) or not offsets:
            raise ValueError("no offsets")
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise TableMismatch(
            f"offsets/{batch} of the Spark checkpoint at {folder} holds no Kafka offsets, but {lines[1][:100]!r}"
        ) from None
