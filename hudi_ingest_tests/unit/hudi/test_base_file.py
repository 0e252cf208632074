"""The base-file writer: marker before file, bounded files, fencing, and nothing left of a failed attempt."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import Fenced
from hudi_ingest.hudi.files import base_file, file_groups, new_files
from hudi_ingest.hudi.files.base_file import BaseFileWriter, write_empty_base_file
from hudi_ingest.hudi.files.file_groups import RowSource
from hudi_ingest.hudi.files.new_files import BaseFileLayout, Fence, NewFiles
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import heartbeat_path, marker_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import BaseFile
from hudi_ingest_tests.support.partition_split import split_by_partition

INSTANT = "20261121120000000"
LATER = "20261121120001000"
EPOCH = Epoch(4, "t-1")
ORDERS_3 = RowSource(TopicPartition("orders", 3), "3-0-0")


def layout(**changes: object) -> BaseFileLayout:
    settings = {
        "instant": INSTANT,
        "epoch": EPOCH,
        "partition_by": ("dt",),
        "rows_per_file": 1000,
        "target_file_bytes": 1 << 30,
        "compression": "zstd",
        **changes,
    }
    return BaseFileLayout(**settings)  # type: ignore[arg-type]


def files_of(writer: BaseFileWriter) -> list[BaseFile]:
    return [file for files in writer.files.values() for file in files]


@pytest.fixture
def storage(tmp_path: Path) -> TableStorage:
    return opened_table(tmp_path / "table")


def opened_table(path: Path) -> TableStorage:
    """A table that may be written in INSTANT and EPOCH."""
    found = LocalStorage(str(path))
    found.write(heartbeat_path(INSTANT), b"")
    TableEpoch(found).advance(EPOCH.number, EPOCH.transaction_id)
    return found


def rows(start: int, count: int, days: int = 2, partition: int = 3) -> pa.Table:
    offsets = range(start, start + count)
    return pa.table(
        {
            "id": [f"o-{offset}" for offset in offsets],
            "dt": [f"d{offset % days}" for offset in offsets],
            "_kafka_partition": pa.array([partition] * count, pa.int32()),
            "_kafka_offset": pa.array(offsets, pa.int64()),
        }
    )


def test_r4_files_say_where_they_came_from_and_rows_carry_hudis_columns(storage: TableStorage) -> None:
    with BaseFileWriter(storage, layout()) as writer:
        writer.write(ORDERS_3, rows(100, 10))
        writer.write(ORDERS_3, rows(110, 5))
        writer.close()
    assert sorted(file.partition_path for file in files_of(writer)) == ["dt=d0", "dt=d1"]
    assert sum(file.rows for file in files_of(writer)) == 15
    for file in files_of(writer):
        assert file_groups.decode(file.file_id) == file_groups.FileOrigin(3, file.first_offset)
        found = pq.read_table(f"{storage.base_path}/{file.path}", partitioning=None)
        assert found.num_rows == file.rows
        assert storage.size(file.path) == file.size_bytes
        assert set(found["_hoodie_commit_time"].to_pylist()) == {INSTANT}
        assert set(found["_hoodie_file_name"].to_pylist()) == {file.path.split("/")[-1]}
        assert set(found["_hoodie_partition_path"].to_pylist()) == {file.partition_path}
        offsets = found["_kafka_offset"].to_pylist()
        assert found["_hoodie_record_key"].to_pylist() == [f"orders-3-{offset}" for offset in offsets]
        assert (file.first_offset, file.last_offset) == (offsets[0], offsets[-1])
        assert storage.exists(marker_path(INSTANT, file.path))
        assert storage.exists(f"{file.partition_path}/.hoodie_partition_metadata")


class FullDisk(LocalStorage):
    """Space for names, none for bytes."""

    def open_output(self, path: str, ready: Callable[[], object] | None = None) -> IO[bytes]:
        super().open_output(path).close()
        raise OSError(errno.ENOSPC, "No space left on device", path)


def test_p3_a_folder_s_metadata_is_whole_or_not_there(storage: TableStorage) -> None:
    """A file that exists but is empty stays empty, and Hudi finds no table for a path below it."""
    metadata = f"{storage.base_path}/dt=d0/.hoodie_partition_metadata"
    with pytest.raises(OSError, match="No space left"):
        NewFiles[BaseFile](FullDisk(storage.base_path), INSTANT, EPOCH)._ensure_partition_metadata("dt=d0")
    assert not Path(metadata).exists()
    for _ in range(2):
        with BaseFileWriter(storage, layout()) as writer:
            writer.write(ORDERS_3, rows(0, 1))
            writer.close()
        assert "partitionDepth=1\n" in Path(metadata).read_text()
        # As an earlier version may have left it.
        Path(metadata).write_bytes(b"")


def test_columns_with_few_values_are_plain_text_in_the_file_by_one_dictionary_a_row_group(
    storage: TableStorage,
) -> None:
    # Batches of three Kafka partitions meet in one row group, and each meets the table partitions in another order.
    sources = [
        ORDERS_3,
        RowSource(TopicPartition("orders", 4), "4-0-0"),
        RowSource(TopicPartition("orders", 5), "5-0-0"),
    ]
    wanted: list[tuple[str | None, str]] = []
    # A column of the key must be there when the keys are made.
    partition_by, key = ("x", "dt", "_kafka_topic"), ("id", "dt")
    with BaseFileWriter(storage, layout(partition_by=partition_by, record_key=key, hive_style=False)) as writer:
        for start, source in enumerate(sources):
            batch = rows(start, 6, partition=source.source.partition)
            texts = [None, "", "a", None, "", "a"]
            batch = batch.append_column("x", pa.array(texts[start:] + texts[:start], pa.string()))
            batch = batch.append_column("_kafka_topic", pa.array(["orders"] * 6, pa.string()))
            wanted += zip(batch["x"].to_pylist(), batch["dt"].to_pylist(), strict=True)
            writer.write(source, batch)
        writer.close()
    found: list[tuple[str | None, str]] = []
    for file in files_of(writer):
        path = f"{storage.base_path}/{file.path}"
        table, footer = pq.read_table(path, partitioning=None), pq.read_metadata(path).row_group(0)
        for name in ("x", "dt", "_kafka_topic", "_hoodie_commit_time", "_hoodie_file_name"):
            assert table.schema.field(name).type == pa.string()
            chunk = footer.column(table.schema.get_field_index(name))
            assert chunk.path_in_schema == name
            assert chunk.has_dictionary_page
            assert chunk.statistics is None or chunk.statistics.null_count == table[name].null_count
        assert set(table["_kafka_topic"].to_pylist()) == {"orders"}
        keys = [f"id:{row['id']},dt:{row['dt']}" for row in table.select(["id", "dt"]).to_pylist()]
        assert table["_hoodie_record_key"].to_pylist() == keys
        found += zip(table["x"].to_pylist(), table["dt"].to_pylist(), strict=True)
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_columns_get_dictionaries_if_their_first_rows_show_that_values_repeat(storage: TableStorage) -> None:
    count = 5000
    batch = rows(0, count)
    place = pa.array([{"city": "x", "codes": [1, 2], "by": {"k": 1}}] * count, PLACE)
    times = pa.array([number**3 for number in range(count)], pa.timestamp("us", "UTC"))
    whole = {"number": pa.array([-(number**5) for number in range(count)]), "at": times}
    many = {
        "order": [f"o-{number}" for number in range(count)],
        "amount": [number / 7 for number in range(count)],
        **whole,
    }
    few = {"note": [f"n{number % 3000}" for number in range(count)], "none": pa.nulls(count, pa.int64())}
    for name, column in {**many, **few, "place": place}.items():
        batch = batch.append_column(name, column if isinstance(column, pa.Array) else pa.array(column))
    with BaseFileWriter(storage, layout(partition_by=(), rows_per_file=10_000)) as writer:
        writer.write(ORDERS_3, batch)
        writer.close()
    (file,) = files_of(writer)
    path = f"{storage.base_path}/{file.path}"
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    dictionaries = {name for name, column in columns.items() if column.has_dictionary_page}
    inside = {"place.city", "place.codes.list.element", "place.by.key_value.key", "place.by.key_value.value"}
    assert dictionaries >= {*few, *inside}
    assert not dictionaries & {*many, "_hoodie_record_key", "_kafka_offset"}
    assert {name for name, column in columns.items() if "DELTA_BINARY_PACKED" in column.encodings} == {
        "_kafka_offset",
        *whole,
    }
    assert {name for name, column in columns.items() if not column.is_stats_set} == {
        "_hoodie_commit_seqno",
        "_hoodie_file_name",
    }
    assert pq.read_table(path).select(batch.column_names).equals(batch)


def test_x4_offsets_that_come_again_get_other_record_keys(storage: TableStorage) -> None:
    again = layout(partition_by=(), generations={"orders": 2, "payments": 1})
    with BaseFileWriter(storage, again) as writer:
        writer.write(ORDERS_3, rows(7, 2))
        writer.close()
    found = pq.read_table(f"{storage.base_path}/{files_of(writer)[0].path}", partitioning=None)
    assert found["_hoodie_record_key"].to_pylist() == ["orders-3-7-g2", "orders-3-8-g2"]


def test_h3_files_rotate_by_rows_and_by_bytes(storage: TableStorage) -> None:
    with BaseFileWriter(storage, layout(rows_per_file=400, partition_by=())) as writer:
        writer.write(ORDERS_3, rows(0, 1000))
        writer.close()
    assert [file.rows for file in files_of(writer)] == [400, 400, 200]
    assert [file.first_offset for file in files_of(writer)] == [0, 400, 800]
    small = layout(target_file_bytes=1, rows_per_file=200, partition_by=())
    with BaseFileWriter(storage, small) as writer:
        writer.write(ORDERS_3, rows(0, 1000))
        writer.close()
    assert len(files_of(writer)) == 5


slices = st.lists(st.tuples(st.sampled_from(["orders", "payments"]), st.integers(0, 3)), unique=True, min_size=1)


@given(slices, st.integers(1, 7), st.integers(1, 3), st.integers(2, 40))
def test_r4_h1_a_base_file_holds_one_kafka_partition_and_says_which_offsets(
    tmp_path_factory: pytest.TempPathFactory, sources: list[tuple[str, int]], size: int, batches: int, per_file: int
) -> None:
    storage = opened_table(tmp_path_factory.mktemp("table"))
    with BaseFileWriter(storage, layout(rows_per_file=per_file, generations={"payments": 1})) as writer:
        for topic, number in sources:
            for start in range(0, batches * size, size):
                origin = RowSource(TopicPartition(topic, number), f"{number}-0-0")
                writer.write(origin, rows(100 * number + start, size, partition=number))
        writer.close()
    assert {(source.topic, source.partition) for source in writer.files} == set(sources)
    keys: list[str] = []
    for source, files in writer.files.items():
        for file in files:
            found = pq.read_table(f"{storage.base_path}/{file.path}", partitioning=None)
            offsets = found["_kafka_offset"].to_pylist()
            assert set(found["_kafka_partition"].to_pylist()) == {source.partition}
            assert (file.first_offset, file.last_offset, file.rows) == (offsets[0], offsets[-1], len(offsets))
            assert offsets == sorted(offsets)
            assert file.rows <= per_file
            assert file_groups.decode(file.file_id) == file_groups.FileOrigin(source.partition, offsets[0])
            assert f"_{source.partition}-0-0_" in file.path
            keys += found["_hoodie_record_key"].to_pylist()
    assert sorted(keys) == sorted(
        f"{topic}-{number}-{100 * number + step}" + ("-g1" if topic == "payments" else "")
        for topic, number in sources
        for step in range(batches * size)
    )


def test_p3_a_failed_attempt_leaves_no_data_file(storage: TableStorage) -> None:
    with pytest.raises(RuntimeError), BaseFileWriter(storage, layout(rows_per_file=3)) as writer:
        writer.write(ORDERS_3, rows(0, 100))
        raise RuntimeError("the task dies")
    assert not list(Path(storage.base_path).rglob("*.parquet"))
    assert list(Path(storage.base_path).rglob("*.marker.CREATE")), "the marker stays: it lets Hudi clean up too"


def test_p4_a_rolled_back_instant_can_be_written_no_more(storage: TableStorage) -> None:
    writer = BaseFileWriter(storage, layout())
    writer.write(ORDERS_3, rows(0, 10))
    storage.delete(heartbeat_path(INSTANT))
    with pytest.raises(Fenced, match=r"orders:3.*must not write"):
        writer.close()


def test_p4_a_newer_epoch_fences_a_writer_whose_instant_could_not_be_rolled_back(storage: TableStorage) -> None:
    writer = BaseFileWriter(storage, layout())
    writer.write(ORDERS_3, rows(0, 10))
    TableEpoch(storage).advance(EPOCH.number + 1, "t-2")
    with pytest.raises(Fenced, match=r"orders:3.*epoch 4 of transaction t-1 is over.*epoch 5 of transaction t-2"):
        writer.close()


@pytest.mark.parametrize("point", ["marker_written", "file_opened", "rows_written", "file_ready", "file_closed"])
def test_p4_files_that_are_closed_after_the_rollback_are_deleted(
    storage: TableStorage, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence is checked once for all files that are closed together."""
    reached: list[str] = []

    def roll_back_at(name: str) -> None:
        reached.append(name)
        if reached.count(point) == 2:
            storage.delete(heartbeat_path(INSTANT))

    monkeypatch.setattr(new_files, "reach", roll_back_at)
    with pytest.raises(Fenced), BaseFileWriter(storage, layout()) as writer:
        writer.write(ORDERS_3, rows(0, 30, days=5))
        writer.close()
    assert not files_of(writer)
    assert not list(Path(storage.base_path).rglob("*.parquet"))


def test_p4_files_of_short_ranges_share_a_check_and_are_all_deleted_after_the_rollback(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[str] = []

    def count(self: Fence, source: RowSource) -> None:
        checks.append(str(source))
        require_open(self, source)

    require_open = Fence.require_open
    monkeypatch.setattr(Fence, "require_open", count)
    monkeypatch.setattr(new_files, "CHECK_SECONDS", 60)
    storage.write(heartbeat_path(LATER), b"")
    ranges = [RowSource(TopicPartition("orders", number), f"{number}-0-0") for number in range(4)]
    with BaseFileWriter(storage, layout()) as writer:
        for source in ranges:
            writer.write(source, rows(0, 2))
        writer.close()
    assert checks == ["orders:0", "orders:3"]
    assert [*writer.files] == [source.source for source in ranges]

    with pytest.raises(Fenced), BaseFileWriter(storage, layout(instant=LATER)) as writer:
        for source in ranges:
            writer.write(source, rows(0, 2))
        storage.delete(heartbeat_path(LATER))
        writer.close()
    assert not files_of(writer)
    assert not list(Path(storage.base_path).rglob(f"*{LATER}.parquet"))


def test_attempts_never_share_a_file(storage: TableStorage) -> None:
    names = set()
    for token in ("3-0-0", "3-1-0", "3-0-1"):
        with BaseFileWriter(storage, layout()) as writer:
            writer.write(replace(ORDERS_3, write_token=token), rows(0, 4))
            writer.close()
        names |= {file.path for file in files_of(writer)}
    assert len(names) == 6


MANY_FOLDERS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from hudi_ingest.hudi.files import base_file
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest_tests.unit.hudi.test_base_file import ORDERS_3, files_of, layout, rows
base_file.BUFFERED_BYTES = 5_000
with base_file.BaseFileWriter(LocalStorage(sys.argv[1]), layout()) as writer:
    for start in range(0, 400, 200):
        writer.write(ORDERS_3, rows(start, 200, days=300))
    writer.close()
print(sum(file.rows for file in files_of(writer)))
"""


def test_h4_more_table_partitions_than_a_process_may_open_files(storage: TableStorage) -> None:
    """In a process of its own, because the limit cannot be raised again."""
    command = [sys.executable, "-c", MANY_FOLDERS, storage.base_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "400\n"), done.stderr
    found = pq.read_table(storage.base_path, partitioning=None, columns=["_kafka_offset", "dt"])
    assert sorted(found["_kafka_offset"].to_pylist()) == list(range(400))
    assert len(set(found["dt"].to_pylist())) == 300


def test_spark_reads_old_dates_of_a_file_as_they_are(storage: TableStorage) -> None:
    with BaseFileWriter(storage, layout()) as writer:
        writer.write(ORDERS_3, rows(0, 1))
        writer.close()
    footer = pq.read_metadata(f"{storage.base_path}/{files_of(writer)[0].path}").metadata
    assert footer[b"org.apache.spark.version"] == version("pyspark").encode()


PLACE = pa.struct([("city", pa.string()), ("codes", pa.list_(pa.int64())), ("by", pa.map_(pa.string(), pa.int64()))])


def test_a_partition_of_nearly_all_rows_is_not_copied_and_the_others_are() -> None:
    days = ["b"] * 3 + ["a"] * 2000 + ["b"] * 2 + ["a"] * 1000
    table = pa.table({"day": days, "_kafka_offset": range(len(days))})
    parts = dict(split_by_partition(table, ("day",)))
    offsets = {path: part["_kafka_offset"] for path, part in parts.items()}
    assert {path: column.to_pylist() for path, column in offsets.items()} == {
        f"day={day}": [offset for offset, each in enumerate(days) if each == day] for day in "ab"
    }
    data = table["_kafka_offset"].chunk(0).buffers()[1].address
    assert {chunk.buffers()[1].address for chunk in offsets["day=a"].chunks} == {data}
    assert data not in {chunk.buffers()[1].address for chunk in offsets["day=b"].chunks}


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=30), min_size=1, max_size=12),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([100, 1_000, 1 << 20]),
)
def test_every_row_is_in_the_file_of_its_table_partition_however_full_the_buffer(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], full: int, per_file: int, buffered: int
) -> None:
    storage = opened_table(tmp_path_factory.mktemp("table"))
    expected: dict[str, list[int]] = {}
    offset = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_file, "ROW_GROUP_ROWS", full)
        patch.setattr(base_file, "BUFFERED_BYTES", buffered)
        writer = BaseFileWriter(storage, layout(rows_per_file=per_file))
        for days in batches:
            batch = rows(offset, len(days))
            batch = batch.set_column(1, "dt", pa.array([f"d{day}" for day in days]))
            for day in days:
                expected.setdefault(f"dt=d{day}", []).append(offset)
                offset += 1
            writer.write(ORDERS_3, batch)
        writer.close()
    written: dict[str, list[int]] = {}
    for file in files_of(writer):
        table = pq.read_table(f"{storage.base_path}/{file.path}", partitioning=None)
        assert {f"dt={day}" for day in table["dt"].to_pylist()} == {file.partition_path}
        assert table["_hoodie_commit_seqno"].to_pylist() == [
            f"orders-3-{o}" for o in table["_kafka_offset"].to_pylist()
        ]
        assert table.num_rows == file.rows <= per_file
        written.setdefault(file.partition_path, []).extend(table["_kafka_offset"].to_pylist())
    assert written == expected


def test_rows_that_lie_grouped_by_table_partition_are_not_copied() -> None:
    table = rows(0, 6).set_column(1, "dt", pa.array(["b", "b", "a", "a", "a", "c"]))
    parts = split_by_partition(table, ("dt",))
    assert [(path, part.num_rows) for path, part in parts] == [("dt=b", 2), ("dt=a", 3), ("dt=c", 1)]
    memory = table["_kafka_offset"].chunk(0).buffers()[1].address
    assert [part["_kafka_offset"].chunk(0).buffers()[1].address for _, part in parts] == [memory] * 3


values = st.lists(st.tuples(st.sampled_from(["a", "b", "", None]), st.sampled_from([1, 2, None])), max_size=60)


@given(values)
def test_splitting_keeps_every_row_once_and_in_order(found: list[tuple[str | None, int | None]]) -> None:
    table = pa.table(
        {
            "x": pa.array([x for x, _ in found], pa.string()),
            "y": pa.array([y for _, y in found], pa.int64()),
            "_kafka_offset": pa.array(range(len(found)), pa.int64()),
        }
    )
    parts = split_by_partition(table, ("x", "y"))
    assert len({path for path, _ in parts}) == len(parts)
    offsets = [part["_kafka_offset"].to_pylist() for _, part in parts]
    assert all(each == sorted(each) for each in offsets)
    assert sorted(offset for each in offsets for offset in each) == list(range(len(found)))
    for path, part in parts:
        for row in part.to_pylist():
            x = row["x"] or "__HIVE_DEFAULT_PARTITION__"
            y = "__HIVE_DEFAULT_PARTITION__" if row["y"] is None else row["y"]
            assert path == f"x={x}/y={y}"


def test_p3_the_first_file_of_a_new_file_group_has_its_marker(storage: TableStorage) -> None:
    columns = pa.schema([pa.field("id", pa.string())])
    file = write_empty_base_file(storage, INSTANT, "dt=1", "00000001-0000-0000-0000-000000000000-0", columns, "zstd")
    assert storage.exists(marker_path(INSTANT, file.path))
    assert storage.parquet_footer(file.path).num_rows == 0
