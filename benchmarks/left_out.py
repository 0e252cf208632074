"""Measure what filling values that the database left out costs a write task: `python -m benchmarks.left_out`.

CPU seconds of writing the log files alone, without Kafka, decoding, Spark and commit: random changes of one bucket, whose base file has
a million rows, with all values and with a fifth of them without their text. As a compaction leaves it, the base file has keys in no order,
zstd and pages of 1 MiB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hudi_ingest.hudi.files.base_file import META_COLUMNS, with_keys, with_meta_columns
from hudi_ingest.hudi.files.file_groups import RowSource, fixed_id
from hudi_ingest.hudi.files.keyed_writer import KeyedFileWriter
from hudi_ingest.hudi.files.new_files import KeyedLayout
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import TIMELINE, heartbeat_path
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.changes import DELETED, LEFT_OUT

ROWS = 1_000_000
CHANGES = (2_000, 20_000, 100_000)
TEXTS = (300, 2_000)
"""Bytes of the text. PostgreSQL leaves values out that it stores apart, which rows of more than 2 kB have."""
ROUNDS = 3
_SOURCE = RowSource(TopicPartition("rows", 0), "0-0-17")
_COLUMNS = {"id": "string", "text": ["null", "string"], "n": "long", "_kafka_offset": "long"}
_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            *({"name": name, "type": ["null", "string"]} for name in META_COLUMNS),
            *({"name": name, "type": kind} for name, kind in _COLUMNS.items()),
        ],
    }
)


def rows(numbers: np.ndarray, text_bytes: int, first_offset: int) -> pa.Table:
    """Rows with these numbers as keys. zstd makes the texts two fifths as long."""
    words = pa.array([f"{word:x}" for word in np.random.default_rng(7).integers(0, 1 << 62, 4096)])
    count = text_bytes // 16
    picked = np.random.default_rng(int(numbers[0])).integers(0, len(words), len(numbers) * count)
    lists = pa.ListArray.from_arrays(
        pa.array(range(0, len(picked) + 1, count), pa.int32()), words.take(pa.array(picked))
    )
    return pa.table(
        {
            "id": pa.array(numbers).cast(pa.string()),
            "text": pc.binary_join(lists, " "),
            "n": pa.array(numbers),
            "_kafka_offset": pa.array(np.arange(first_offset, first_offset + len(numbers))),
        }
    )


def write_base(storage: LocalStorage, text_bytes: int, most_rows: int) -> None:
    instant = "20261121115900000"
    numbers = np.random.default_rng(3).permutation(most_rows)
    with storage.open_output(f"{fixed_id(0)}_0-1-0_{instant}.parquet") as stream:
        writer = None
        for part in np.array_split(numbers, 8):
            table = rows(part, text_bytes, 0)
            table = with_meta_columns(with_keys("rows-0", table, table["id"]), instant, "", "f")
            writer = writer or pq.ParquetWriter(
                stream,
                table.schema,
                compression="zstd",
                use_dictionary=False,
                write_page_checksum=True,
            )
            writer.write_table(table)
        assert writer is not None
        writer.close()
    storage.write(f"{TIMELINE}/{instant}_{instant[:-1]}5.commit", b"")


def seconds(storage: LocalStorage, changes: pa.Table, number: int) -> float:
    layout = KeyedLayout(
        f"202611211200{number:05d}",
        Epoch(number, "t"),
        (),
        key=("id",),
        ordering=("_kafka_offset",),
        buckets=1,
        schema_json=_SCHEMA,
        compression="zstd",
    )
    storage.write(heartbeat_path(layout.instant), b"")
    TableEpoch(storage).advance(number, "t")
    refused: list[int] = []
    with KeyedFileWriter(storage, layout, lambda _, rows, __: refused.append(rows.num_rows)) as writer:
        began = process_time()
        writer.write(_SOURCE, changes)
        writer.close()
        took = process_time() - began
        writer.discard()
    assert not refused
    return took


def main() -> None:
    number = 0
    for text_bytes in TEXTS:
        # As many bytes of text, and keys in proportion.
        most_rows = ROWS * TEXTS[0] // text_bytes if "--small" in sys.argv else ROWS
        with TemporaryDirectory() as folder:
            storage = LocalStorage(str(Path(folder, "table")))
            storage.make()
            write_base(storage, text_bytes, most_rows)
            for count in CHANGES:
                numbers = np.random.default_rng(5).choice(most_rows, count, replace=False)
                whole = rows(numbers, text_bytes, ROWS).append_column(DELETED, pa.array(np.zeros(count, bool)))
                lists = pa.array([["text"] if place % 5 == 0 else None for place in range(count)])
                took = {}
                for changes in (whole, whole.append_column(LEFT_OUT, lists)):
                    found = []
                    for _ in range(ROUNDS):
                        number += 1
                        found.append(seconds(storage, changes, number))
                    took[LEFT_OUT in changes.column_names] = min(found)
                sys.stdout.write(
                    f"{most_rows:,} rows with texts of {text_bytes:,} bytes, {count:,} changes: "
                    f"{took[False]:.3f} s, {took[True]:.3f} s with a fifth left out\n"
                )


if __name__ == "__main__":
    main()
