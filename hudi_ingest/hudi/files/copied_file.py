"""Copy the rows of a base file that a replay does not rewrite to a new file group, which replaces the old one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from hudi_ingest.exceptions import WriteIncomplete
from hudi_ingest.hudi.files import file_ids
from hudi_ingest.hudi.files.base_file import ROW_GROUP_ROWS, BaseFileLayout, parquet_writer
from hudi_ingest.hudi.files.offsets_in_files import in_slices
from hudi_ingest.hudi.files.row_source import RowSource
from hudi_ingest.hudi.storage.paths import marker_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.fence import Fence
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import ReplacedFile
from hudi_ingest.model.report import BaseFile
from hudi_ingest.records.kafka_columns import OFFSET, PARTITION, TOPIC

_FILE_NAME = "_hoodie_file_name"


def copy_other_rows(
    storage: TableStorage, layout: BaseFileLayout, source: RowSource, old: ReplacedFile, slices: Sequence[Slice]
) -> BaseFile:
    """Write the rows of `old` that are in none of the slices to a new base file in the same table partition.

    Rows keep their commit times, so incremental readers do not see them again. The file id is made from the first row that
    has Kafka columns, so a sweep recognizes the file as ours. `source` identifies the writer in messages and in the write
    token. Raises Fenced, OSError, and WriteIncomplete when there are not `old.kept` such rows.
    """
    fence = Fence(storage, layout.instant, layout.epoch)
    fence.require_open(source)
    with storage.parquet_file(old.path) as file:
        batches = file.iter_batches(batch_size=ROW_GROUP_ROWS)
        kept = (rows.filter(pc.invert(in_slices(rows, slices))) for rows in map(_as_table, batches))
        kept = (rows for rows in kept if rows.num_rows)
        buffered: list[pa.Table] = []
        first = None
        for rows in kept:
            buffered.append(rows)
            with_offset = rows.filter(pc.is_valid(rows[OFFSET]))
            if with_offset.num_rows:
                first = with_offset.slice(0, 1)
                break
        if first is None:
            raise WriteIncomplete(
                f"{old.path}: no row other than those of {source} has Kafka columns. Nothing is visible."
            )
        topic = first[TOPIC][0].as_py() if TOPIC in first.column_names else source.source.topic
        partition, first_offset = first[PARTITION][0].as_py(), first[OFFSET][0].as_py()
        folder = old.partition_path
        file_id = file_ids.file_id(topic, partition, first_offset, folder, layout.instant)
        name = f"{file_id}_{source.write_token}_{layout.instant}.parquet"
        path = f"{folder}/{name}" if folder else name
        storage.write(marker_path(layout.instant, path), b"")
        try:
            with storage.open_output(path) as stream:
                with parquet_writer(stream, buffered[0].schema, buffered[0], layout.compression) as writer:
                    count = 0
                    for part in (*buffered, *kept):
                        writer.write_table(_renamed(part, name))
                        count += part.num_rows
                    fence.require_open(source)
                size = stream.tell()
            # Closing may take long: see BaseFileWriter.
            fence.require_open(source)
            if count != old.kept:
                raise WriteIncomplete(f"{old.path}: {count} rows were copied, but the plan says {old.kept}")
        except BaseException:
            # pyarrow completes even an unfinished file. One that cannot be deleted now has a marker.
            with suppress(OSError):
                storage.delete(path)
            raise
    return BaseFile(folder, file_id, path, count, size, first_offset, first_offset)


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _renamed(rows: pa.Table, name: str) -> pa.Table:
    place = rows.schema.get_field_index(_FILE_NAME)
    return rows.set_column(place, rows.schema.field(place), pa.repeat(name, rows.num_rows))
