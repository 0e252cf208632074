"""The log-file writer: the last change of each key, one file per bucket, fencing, and nothing left of a failed attempt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import Fenced
from hudi_ingest.hudi.files import keyed_writer, new_files
from hudi_ingest.hudi.files.buckets import bucket_ids
from hudi_ingest.hudi.files.file_groups import RowSource
from hudi_ingest.hudi.files.keyed_writer import KeyedFileWriter
from hudi_ingest.hudi.files.new_files import KeyedLayout
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import heartbeat_path, marker_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.report import LogFile, whole_files
from hudi_ingest.records.changes import DELETED
from hudi_ingest_tests.support.log_blocks import AVRO, PARQUET, read_log
from hudi_ingest_tests.unit.hudi.test_log_file import HUDIS_PATTERN

TIME = pa.timestamp("us", tz="UTC")
INSTANT = "20261121120000000"
EPOCH = Epoch(4, "t-1")
ORDERS_3 = RowSource(TopicPartition("orders", 3), "3-0-17")
META_COLUMNS = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
COLUMNS = {
    **{f"_hoodie_{name}": "string" for name in META_COLUMNS},
    "id": "string",
    "dt": ["null", "string"],
    "at": "long",
    "_kafka_topic": "string",
    "_kafka_offset": "long",
}
SCHEMA = json.dumps(
    {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in COLUMNS.items()]}
)


def layout(**changes: Any) -> KeyedLayout:
    settings = {
        "instant": INSTANT,
        "epoch": EPOCH,
        "partition_by": ("dt",),
        "hive_style": True,
        "escaped_folders": True,
        "key": ("id",),
        "ordering": ("at", "_kafka_offset"),
        "buckets": 2,
        "schema_json": SCHEMA,
        "compression": "zstd",
        **changes,
    }
    return KeyedLayout(**settings)


@pytest.fixture
def storage(tmp_path: Path) -> TableStorage:
    return opened_table(tmp_path / "table")


def opened_table(path: Path) -> TableStorage:
    """A table that may be written in INSTANT and EPOCH."""
    table = LocalStorage(str(path))
    table.write(heartbeat_path(INSTANT), b"")
    TableEpoch(table).advance(EPOCH.number, EPOCH.transaction_id)
    return table


@dataclass(frozen=True)
class Change:
    id: str
    dt: str | None
    at: int
    offset: int
    deleted: bool = False


def rows(changes: list[Change]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([change.id for change in changes], pa.string()),
            "dt": pa.array([change.dt for change in changes], pa.string()),
            "at": pa.array([change.at for change in changes], pa.int64()),
            "_kafka_topic": pa.array(["orders"] * len(changes), pa.string()),
            "_kafka_offset": pa.array([change.offset for change in changes], pa.int64()),
            DELETED: pa.array([change.deleted for change in changes], pa.bool_()),
        }
    )


def some(start: int, count: int) -> pa.Table:
    return rows(
        [Change(f"k{offset}", f"d{offset % 2}", 0, offset, offset % 5 == 0) for offset in range(start, start + count)]
    )


def files_of(writer: KeyedFileWriter) -> list[LogFile]:
    return [file for files in writer.files.values() for file in files]


def log_files_below(storage: TableStorage) -> list[str]:
    return [file.path for file in storage.data_files() if ".log." in file.path]


def contents(storage: TableStorage, writer: KeyedFileWriter) -> list[Change]:
    """What the files hold, after checks of what they say about themselves."""
    held = []
    for file in files_of(writer):
        content = storage.read(file.path)
        assert len(content) == file.size_bytes
        assert storage.exists(marker_path(INSTANT, file.path))
        assert storage.exists(f"{file.partition_path}/.hoodie_partition_metadata")
        changes = []
        for block in read_log(content):
            assert (block.instant, block.schema) == (INSTANT, SCHEMA)
            if block.rows is not None:
                assert DELETED not in block.rows.column_names
                assert set(block.rows["_hoodie_commit_time"].to_pylist()) == {INSTANT}
                assert set(block.rows["_hoodie_partition_path"].to_pylist()) == {file.partition_path}
                assert set(block.rows["_hoodie_file_name"].to_pylist()) == {file.file_id}
                assert block.rows["_hoodie_record_key"].to_pylist() == block.rows["id"].to_pylist()
                for row in block.rows.to_pylist():
                    assert row["_hoodie_commit_seqno"] == f"orders-3-{row['_kafka_offset']}"
                    changes.append(Change(row["id"], row["dt"], row["at"], row["_kafka_offset"]))
            for key, path, ordering in block.deletes:
                assert path == file.partition_path
                (_, at), (_, offset) = ordering
                changes.append(Change(key, path.removeprefix("dt="), at, offset, True))
        assert (file.upserts, file.deletes) == (
            sum(not change.deleted for change in changes),
            sum(change.deleted for change in changes),
        )
        offsets = [change.offset for change in changes]
        assert (file.first_offset, file.last_offset) == (min(offsets), max(offsets))
        buckets = set(bucket_ids(pa.array([change.id for change in changes]), ["id"], 2).tolist())
        assert buckets == {int(file.file_id[:8])}
        held += changes
    return held


CHANGES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y"]), st.integers(0, 3), st.booleans()), max_size=12
    ),
    max_size=6,
)


@given(CHANGES, st.sampled_from([1, 400, 1 << 20]), st.sampled_from([0, 200, 1 << 20]))
def test_the_last_change_of_each_key_is_written_and_all_others_are_counted(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[str, str, int, bool]]],
    buffered: int,
    most_avro_bytes: int,
) -> None:
    storage = opened_table(tmp_path_factory.mktemp("table"))
    expected: dict[tuple[str, str | None], Change] = {}
    offset = 0
    with pytest.MonkeyPatch.context() as patch, KeyedFileWriter(storage, layout()) as writer:
        patch.setattr(keyed_writer, "BUFFERED_BYTES", buffered)
        patch.setattr(keyed_writer, "MOST_AVRO_BYTES", most_avro_bytes)
        for batch in batches:
            changes = []
            for key, day, at, deleted in batch:
                changes.append(Change(key, day, at, offset, deleted))
                offset += 1
            for change in changes:
                place = (change.id, change.dt)
                expected[place] = max(expected.get(place, change), change, key=lambda one: (one.at, one.offset))
            if changes:
                writer.write(ORDERS_3, rows(changes))
        writer.close()
    held = contents(storage, writer)
    assert len(held) + writer.superseded[ORDERS_3.source] == offset
    last: dict[tuple[str, str | None], Change] = {}
    for change in held:
        place = (change.id, change.dt)
        last[place] = max(last.get(place, change), change, key=lambda one: (one.at, one.offset))
    assert last == expected
    if buffered > 1 << 19:
        assert len(held) == len(expected)


def test_kafka_partitions_of_a_task_share_files(storage: TableStorage) -> None:
    """A reader pays for each file, however small it is."""
    orders_7, payments_3 = (
        RowSource(TopicPartition(topic, n), f"{n}-0-17") for topic, n in (("orders", 7), ("payments", 3))
    )
    with KeyedFileWriter(storage, layout(partition_by=(), buckets=1)) as writer:
        writer.write(ORDERS_3, rows([Change("a", "x", 5, 10), Change("b", "x", 1, 11), Change("c", "x", 1, 12, True)]))
        writer.write(orders_7, rows([Change("a", "x", 4, 70), Change("b", "x", 2, 71)]))
        writer.write(orders_7, rows([Change("d", "x", 2, 72)]))
        writer.write(payments_3, rows([Change("e", "x", 9, 0, True)]))
        writer.close()
    ((of_3,), (of_7,), (of_payments,)) = (writer.files[source.source] for source in (ORDERS_3, orders_7, payments_3))
    assert +writer.superseded == {ORDERS_3.source: 1, orders_7.source: 1}
    counts = [
        (part.upserts, part.deletes, part.first_offset, part.last_offset, part.file_rows)
        for part in (of_3, of_7, of_payments)
    ]
    assert counts == [(1, 1, 10, 12, 5), (2, 0, 71, 72, 5), (0, 1, 0, 0, 5)]
    (file,) = whole_files(files_of(writer))
    content = storage.read(file.path)
    assert (file.upserts, file.deletes, file.size_bytes) == (3, 2, len(content))
    upserts, deletes = read_log(content)
    assert upserts.rows is not None
    assert upserts.rows.select(["_hoodie_commit_seqno", "_kafka_topic", "id"]).to_pylist() == [
        {"_hoodie_commit_seqno": f"orders-{place}", "_kafka_topic": "orders", "id": key}
        for place, key in (("3-10", "a"), ("7-71", "b"), ("7-72", "d"))
    ]
    assert [key for key, *_ in deletes.deletes] == ["c", "e"]


@pytest.mark.parametrize(("size", "kind"), [(1_000_000, AVRO), (3_000_000, PARQUET)])
def test_few_bytes_are_an_avro_block_and_many_a_parquet_one(storage: TableStorage, size: int, kind: int) -> None:
    with KeyedFileWriter(storage, layout(partition_by=(), buckets=1)) as writer:
        writer.write(ORDERS_3, rows([Change(f"{number}-{'x' * (size // 10)}", "x", 0, number) for number in range(5)]))
        writer.close()
    (file,) = files_of(writer)
    assert [block.kind for block in read_log(storage.read(file.path))] == [kind]


@pytest.mark.parametrize(
    ("kind", "needs"),
    [
        (TIME, False),
        (pa.string(), False),
        (pa.list_(pa.string()), True),
        (pa.map_(pa.string(), pa.int32()), True),
        (pa.struct({"x": pa.struct({"y": pa.list_(pa.int32())})}), True),
        (pa.struct({"x": pa.struct({"at": TIME})}), True),
        (pa.struct({"timestamp": pa.int64()}), False),
    ],
)
def test_what_hudi_rs_does_not_read_from_avro_blocks_is_found_at_any_depth(kind: pa.DataType, needs: bool) -> None:
    assert keyed_writer._needs_parquet(kind) is needs


def test_rows_that_wait_for_more_keep_their_kafka_partition(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 10_000)
    orders_4 = RowSource(TopicPartition("orders", 4), "4-0-17")
    with KeyedFileWriter(storage, layout(partition_by=(), buckets=1)) as writer:
        for source, name in ((ORDERS_3, "a"), (orders_4, "b")):
            for start in range(0, 2000, 20):
                writer.write(source, rows([Change(f"{name}{n % 3}", "x", 0, start + n) for n in range(20)]))
        writer.close()
    assert writer.superseded == {ORDERS_3.source: 1997, orders_4.source: 1997}
    parts = [writer.files[source.source] for source in (ORDERS_3, orders_4)]
    assert [(part.first_offset, part.last_offset, part.rows) for (part,) in parts] == [(1997, 1999, 3)] * 2


def test_readers_merge_the_shared_files_of_a_task_in_the_order_of_their_offsets(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 1)
    with KeyedFileWriter(storage, layout(partition_by=(), buckets=1)) as writer:
        for partition in (9, 10):
            for offset in range(5):
                writer.write(RowSource(TopicPartition("orders", partition), f"{partition}-0-17"), some(offset, 1))
        writer.close()
    paths = [file.path for file in files_of(writer)]
    assert len(paths) == 10
    assert paths == sorted(paths)


def test_keys_that_change_often_do_not_fill_files(storage: TableStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 10_000)
    with KeyedFileWriter(storage, layout()) as writer:
        for start in range(0, 2000, 20):
            writer.write(ORDERS_3, rows([Change(f"k{n % 3}", "x", 0, start + n) for n in range(20)]))
        writer.close()
    assert {change.offset for change in contents(storage, writer)} == {1980 + n for n in (17, 18, 19)}
    assert writer.superseded == {ORDERS_3.source: 1997}


def test_a_truncate_deletes_the_keys_of_all_partitions_and_buckets(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 1)
    before = [Change(f"k{n}", f"d{n % 3}", 0, n) for n in range(20)]
    with KeyedFileWriter(storage, layout(ordering=("_kafka_offset",))) as writer:
        writer.write(ORDERS_3, rows(before))
        early = {*log_files_below(storage)}
        writer.truncate(ORDERS_3, 22)
        writer.write(ORDERS_3, rows([Change("late", "d9", 0, 21), Change("k1", "d1", 0, 23)]))
        writer.close()
    assert (writer.superseded, writer.truncated) == ({ORDERS_3.source: 1}, {ORDERS_3.source: 20})
    deleting = [file for file in files_of(writer) if file.first_offset == 22]
    places = {file.path: (file.partition_path, file.file_id) for file in files_of(writer)}
    assert sorted(places[file.path] for file in deleting) == sorted(places[path] for path in early)
    deletes = [one for file in deleting for block in read_log(storage.read(file.path)) for one in block.deletes]
    assert sorted(deletes) == sorted((change.id, f"dt={change.dt}", ("long", 22)) for change in before)
    (newer,) = [file for file in files_of(writer) if file.first_offset > 22]
    assert (newer.upserts, newer.last_offset) == (1, 23)


def test_no_value_and_an_empty_one_share_a_folder_and_its_keys(storage: TableStorage) -> None:
    with KeyedFileWriter(storage, layout()) as writer:
        writer.write(ORDERS_3, rows([Change("a", None, 0, 0), Change("a", "", 0, 1)]))
        writer.close()
    (file,) = files_of(writer)
    assert (file.partition_path, file.upserts, file.first_offset) == ("dt=__HIVE_DEFAULT_PARTITION__", 1, 1)


def test_several_key_columns_are_hashed_and_written_as_hudi_does(storage: TableStorage) -> None:
    with KeyedFileWriter(storage, layout(key=("id", "at"), ordering=("_kafka_offset",), partition_by=())) as writer:
        writer.write(ORDERS_3, rows([Change("a,b:c", "x", 1, 0), Change("a,b:c", "x", 2, 1)]))
        writer.close()
    keys = []
    for file in files_of(writer):
        (block,) = read_log(storage.read(file.path))
        assert block.rows is not None
        keys += block.rows["_hoodie_record_key"].to_pylist()
        assert file.partition_path == ""
    assert sorted(keys) == ["id:a,b:c,at:1", "id:a,b:c,at:2"]


def test_groups_of_other_writers_keep_their_file_ids(storage: TableStorage) -> None:
    own = layout(groups={"dt=d1|1": "00000001-9f1c-4f5e-8f3a-000000000001-0"})
    with KeyedFileWriter(storage, own) as writer:
        writer.write(ORDERS_3, some(0, 20))
        writer.close()
    ids = {(file.partition_path, file.file_id) for file in files_of(writer)}
    assert ids == {
        ("dt=d0", "00000000-0000-0000-0000-000000000000-0"),
        ("dt=d0", "00000001-0000-0000-0000-000000000000-0"),
        ("dt=d1", "00000000-0000-0000-0000-000000000000-0"),
        ("dt=d1", "00000001-9f1c-4f5e-8f3a-000000000001-0"),
    }


def test_two_attempts_chunks_or_topics_never_share_a_file(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 1)
    paths: list[str] = []
    for source in (
        ORDERS_3,
        RowSource(ORDERS_3.source, "3-1-17"),
        RowSource(ORDERS_3.source, "3-0-18"),
        RowSource(TopicPartition("payments", 3), "3-0-17"),
    ):
        with KeyedFileWriter(storage, layout(partition_by=(), buckets=1)) as writer:
            writer.write(source, some(0, 1))
            writer.write(source, some(1, 1))
            writer.close()
        paths += [file.path for file in files_of(writer)]
    assert len(set(paths)) == len(paths) == 8
    assert all(HUDIS_PATTERN.match(path) for path in paths)


def test_readers_merge_the_files_of_a_partition_in_the_order_of_their_offsets(
    storage: TableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They sort the names as text, so an equal ordering value in a later file wins."""
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 1)
    paths = []
    for task, start in (("3-0-9", 1000), ("3-0-10", 98)):
        with KeyedFileWriter(storage, layout(partition_by=(), buckets=1)) as writer:
            for offset in range(start, start + 4):
                writer.write(RowSource(ORDERS_3.source, task), some(offset, 1))
            writer.close()
        paths += [(file.first_offset, file.path) for file in files_of(writer)]
    assert [path for _, path in sorted(paths)] == sorted(path for _, path in paths)


def test_p3_a_failed_attempt_leaves_no_log_file(storage: TableStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 1)
    with pytest.raises(RuntimeError), KeyedFileWriter(storage, layout()) as writer:
        writer.write(ORDERS_3, some(0, 10))
        raise RuntimeError("the task dies")
    assert not log_files_below(storage)
    assert list(Path(storage.base_path).rglob("*.marker.CREATE")), "the marker stays: it lets Hudi clean up too"


@pytest.mark.parametrize("point", ["marker_written", "file_opened", "rows_written", "file_ready", "file_closed"])
def test_p4_log_files_that_are_closed_after_the_rollback_are_deleted(
    storage: TableStorage, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[str] = []

    def roll_back_at(name: str) -> None:
        reached.append(name)
        if reached.count(point) == 2:
            storage.delete(heartbeat_path(INSTANT))

    monkeypatch.setattr(new_files, "reach", roll_back_at)
    with pytest.raises(Fenced), KeyedFileWriter(storage, layout()) as writer:
        writer.write(ORDERS_3, some(0, 30))
        writer.close()
    assert not files_of(writer)
    assert not log_files_below(storage)


def test_p4_a_newer_epoch_fences_a_writer_of_log_files(storage: TableStorage) -> None:
    writer = KeyedFileWriter(storage, layout())
    writer.write(ORDERS_3, some(0, 10))
    TableEpoch(storage).advance(EPOCH.number + 1, "t-2")
    with pytest.raises(Fenced, match=r"orders:3.*epoch 4 of transaction t-1 is over.*epoch 5 of transaction t-2"):
        writer.close()
