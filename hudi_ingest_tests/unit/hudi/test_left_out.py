"""Values that the database left out: filled from the key's earlier change or its current row, wherever that is, as a dictionary has it;
and truncates, which delete all rows before them.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hudi_ingest.hudi.files import keyed_writer, log_reader
from hudi_ingest.hudi.files.base_file import RECORD_KEY, parquet_writer, with_keys, with_meta_columns
from hudi_ingest.hudi.files.current_rows import Completed, CurrentRows, Slice, column_of, slice_before
from hudi_ingest.hudi.files.file_groups import RowSource, fixed_id
from hudi_ingest.hudi.files.keyed_writer import KeyedFileWriter
from hudi_ingest.hudi.files.left_out import DELETED_BEFORE, NOT_KNOWN, NOT_THERE, OLD_KEY_NOT_THERE
from hudi_ingest.hudi.files.log_file import (
    AVRO_BLOCK,
    INSTANT_HEADER,
    SCHEMA_HEADER,
    _block,
    avro_block,
    delete_block,
    parquet_block,
)
from hudi_ingest.hudi.files.log_reader import Deletes, UnreadableLog, Upserts, changes_in
from hudi_ingest.hudi.files.new_files import KeyedLayout
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import TIMELINE, heartbeat_path
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.records.changes import DELETED, LEFT_OUT, OLD_KEY
from hudi_ingest_tests.support.log_blocks import read_log
from hudi_ingest_tests.unit.hudi import test_avro_rows

SOURCE = RowSource(TopicPartition("orders", 0), "0-0-17")
META = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
FIELDS = {
    **{f"_hoodie_{name}": ["null", "string"] for name in META},
    "id": "string",
    "a": ["null", "string"],
    "b": ["null", {"type": "array", "items": ["null", "int"]}],
    "_kafka_offset": "long",
}
SCHEMA = json.dumps(
    {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
)
TYPES = {"id": pa.string(), "a": pa.string(), "b": pa.list_(pa.int32()), "_kafka_offset": pa.int64()}
GONE: dict[str, Any] = {"a": "placeholder", "b": [0]}
MOVED, MOVED_FROM_ELSEWHERE = "the change before deletes the old key", "another transaction deletes the old key"
"""Among the columns that are left out of a row whose key the database changed."""

INSTANT = "20261121120000000"
COMMAND = _block(0, {}, b"")
PARTIAL = _block(3, {7: "true"}, b"")

Values = dict[str, Any]
TRUNCATE: tuple[str, None, Sequence[str]] = ("", None, ())
"""A change of all keys."""


@dataclass
class Table:
    """A table of one bucket without partitions, whose commits are files on a timeline and nothing else."""

    storage: LocalStorage
    transactions: int = 0
    offset: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)

    def layout(self) -> KeyedLayout:
        epoch = Epoch(self.transactions + 1, "t")
        return KeyedLayout(
            self.instant,
            epoch,
            (),
            key=("id",),
            ordering=("_kafka_offset",),
            buckets=1,
            schema_json=SCHEMA,
            compression="zstd",
        )

    @property
    def instant(self) -> str:
        return f"202611211200{self.transactions:05d}"

    def complete(self, action: str) -> None:
        self.storage.write(f"{TIMELINE}/{self.instant}_{self.instant[:-1]}5.{action}", b"")
        self.transactions += 10

    def apply(self, changes: Sequence[tuple[str, Values | None, Sequence[str]]], batch: int = 1000) -> KeyedFileWriter:
        """Write one transaction: of each change its key, its values (None deletes) and the columns that are left out; or TRUNCATE."""
        layout = self.layout()
        self.storage.write(heartbeat_path(self.instant), b"")
        TableEpoch(self.storage).advance(layout.epoch.number, layout.epoch.transaction_id)

        def refuse(source: TopicPartition, rows: pa.Table, reasons: Sequence[str]) -> None:
            self.refused += zip(rows["_kafka_offset"].to_pylist(), reasons, strict=True)

        with KeyedFileWriter(self.storage, layout, refuse) as writer:
            for start in range(0, len(changes), batch):
                numbered = [*enumerate(changes[start : start + batch], self.offset)]
                self.offset += len(numbered)
                offsets = [offset for offset, change in numbered if change != TRUNCATE]
                part = [change for _, change in numbered if change != TRUNCATE]
                for offset in [offset for offset, change in numbered if change == TRUNCATE][-1:]:
                    writer.truncate(SOURCE, offset)
                if not part:
                    continue
                rows = pa.table(
                    {
                        "id": pa.array([key for key, _, _ in part], pa.string()),
                        **{
                            name: pa.array(
                                [GONE[name] if name in gone else (values or {}).get(name) for _, values, gone in part],
                                TYPES[name],
                            )
                            for name in ("a", "b")
                        },
                        "_kafka_offset": pa.array(offsets, pa.int64()),
                        DELETED: pa.array([values is None for _, values, _ in part]),
                    }
                )
                if any(gone for _, _, gone in part):
                    lists = [[name for name in gone if name in GONE] or None for _, _, gone in part]
                    rows = rows.append_column(LEFT_OUT, pa.array(lists, pa.list_(pa.string())))
                    old = [
                        offset - 1 if MOVED in gone else -1 if MOVED_FROM_ELSEWHERE in gone else None
                        for offset, (_, _, gone) in zip(offsets, part, strict=True)
                    ]
                    rows = rows.append_column(OLD_KEY, pa.array(old, pa.int64()))
                writer.write(SOURCE, rows)
            writer.close()
        self.complete("deltacommit")
        return writer

    def rows(self, keys: str) -> dict[str, Values]:
        """The current rows."""
        kinds = {name: TYPES[name] for name in ("a", "b")}
        found = CurrentRows(self.storage, self.layout()).find("", 0, pa.array([*keys]), kinds, ())
        columns = {name: column_of(found, name, kind).to_pylist() for name, kind in kinds.items()}
        starts = [0]
        for table in found.rows:
            starts.append(starts[-1] + table.num_rows)
        return {
            key: {name: values[starts[place[0]] + place[1]] for name, values in columns.items()}
            for key, place in found.places.items()
            if place is not None
        }

    def compact(self, keys: str) -> None:
        """Replace the log files by a base file of the same rows, with their offsets."""
        rows = self.rows(keys)
        found = CurrentRows(self.storage, self.layout()).find("", 0, pa.array([*keys]), {}, ())
        table = pa.table(
            {
                "id": pa.array([*rows], pa.string()),
                **{name: pa.array([row[name] for row in rows.values()], TYPES[name]) for name in ("a", "b")},
                "_kafka_offset": pa.array([found.ordering[key] for key in rows], pa.int64()),
            }
        )
        table = with_meta_columns(with_keys("orders-0", table, table["id"]), self.instant, "", "f")
        with (
            self.storage.open_output(f"{fixed_id(0)}_0-1-0_{self.instant}.parquet") as stream,
            parquet_writer(stream, table.schema, table, "zstd") as writer,
        ):
            writer.write_table(table, row_group_size=2)
        self.complete("commit")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(LocalStorage(str(tmp_path / "table")))


def block_of_others(instant: str, schema: str, rows: pa.Table) -> bytes:
    """An Avro block as other writers and older versions write it, with arrays and maps."""
    content, parsed = struct.pack(">ii", 3, rows.num_rows), fastavro.parse_schema(json.loads(schema))
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        content += struct.pack(">i", stream.tell()) + stream.getvalue()
    return _block(AVRO_BLOCK, {INSTANT_HEADER: instant, SCHEMA_HEADER: schema}, content)


CHANGE: st.SearchStrategy[Any] = st.just(TRUNCATE) | st.tuples(
    st.sampled_from("abcd"),
    st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {"a": st.sampled_from([None, "x", "y" * 9]), "b": st.lists(st.integers(0, 9), max_size=2)}
        ),
    ),
    st.sampled_from([(), (), ("a",), ("b",), ("a", "b")]),
)
MOVE = st.tuples(CHANGE, st.sampled_from("abcd"))
"""A change of a row's key, and the old one."""
STEP = st.one_of(st.just("compact"), st.lists(st.one_of(CHANGE, MOVE), min_size=1, max_size=12))


@given(
    steps=st.lists(STEP, min_size=1, max_size=6),
    batch=st.sampled_from([1, 3, 20]),
    buffered=st.sampled_from([1, 600, 1 << 20]),
    most_avro_bytes=st.sampled_from([0, 1 << 20]),
)
def test_each_row_is_what_its_changes_come_to(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], batch: int, buffered: int, most_avro_bytes: int
) -> None:
    table = Table(LocalStorage(str(tmp_path_factory.mktemp("table"))))
    expected: dict[str, Values] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_writer, "BUFFERED_BYTES", buffered)
        patch.setattr(keyed_writer, "MOST_AVRO_BYTES", most_avro_bytes)
        # Tables have Avro blocks with arrays that an older version wrote.
        patch.setattr(keyed_writer, "_needs_parquet", lambda kind: False)
        patch.setattr(keyed_writer, "avro_block", block_of_others)
        for step in steps:
            if step == "compact":
                table.compact("abcd")
                continue
            pending = dict(expected)
            changes = []
            for change in step:
                change, old = change if len(change) == 2 else (change, None)
                key, values, gone = change
                source = pending.get(key)
                if old is not None and values is not None and old != key and key not in pending:
                    source = pending.pop(old, None)
                    changes.append((old, None, ()))
                    gone = (*gone, MOVED) if gone else ()
                if not key:
                    pending.clear()
                elif values is None:
                    gone = ()
                    pending.pop(key, None)
                elif not gone:
                    pending[key] = values
                elif source is not None:
                    # A database leaves out no null.
                    gone = tuple(name for name in gone if name not in GONE or source[name] is not None)
                    pending[key] = {**values, **{name: source[name] for name in gone if name in GONE}}
                else:
                    # There is no such row. Two changes may have each other's values; that is another test's matter.
                    gone = ("a", "b", *gone)
                changes.append((key, values, gone))
            expected = pending
            before = table.offset, len(table.refused)
            writer = table.apply(changes, batch)
            written = sum(file.rows for files in writer.files.values() for file in files)
            refused = len(table.refused) - before[1]
            records = sum(change != TRUNCATE for change in changes) + writer.truncated[SOURCE.source]
            assert written + writer.superseded[SOURCE.source] + refused == records
            assert table.rows("abcd") == expected


def test_a_truncate_deletes_what_the_table_had_and_what_the_transaction_wrote_before_it(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = {"a": "one", "b": [1]}, {"a": "two", "b": [2]}
    table.apply([("a", one, ()), ("b", one, ()), ("c", one, ())])
    table.compact("abc")
    table.apply([("c", two, ()), ("d", two, ()), ("b", None, ())])
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 1)
    writer = table.apply(
        [("e", one, ()), ("a", two, ("b",)), TRUNCATE, TRUNCATE, ("a", two, ()), ("f", one, ()), ("f", None, ())], 1
    )
    assert table.rows("abcdef") == {"a": two}
    assert (table.refused, writer.superseded[SOURCE.source]) == ([], 0)
    # a, b and c of the base file, c and d of the log file; e and a of the transaction's own.
    assert writer.truncated[SOURCE.source] == 7
    (files,) = writer.files.values()
    (deleting,) = [file for file in files if file.deletes == 7]
    assert (deleting.first_offset, deleting.last_offset) == (9, 9)
    later = [file.path for file in files if file.first_offset > 9]
    assert all(deleting.path < path for path in later), "CDC queries read it before the rows that came after it"
    ordering = {value for block in read_log(table.storage.read(deleting.path)) for _, _, value in block.deletes or ()}
    assert ordering == {("long", 9)}
    # Each row of each file, whether it was deleted before or not: 3, 2, and the 4 of the last transaction.
    assert table.apply([TRUNCATE]).truncated[SOURCE.source] == 9
    assert table.rows("abcdef") == {}
    table.compact("abcdef")
    emptied = table.apply([TRUNCATE])
    assert (+emptied.truncated, emptied.files) == ({}, {})


def test_keys_are_deleted_some_at_a_time_and_in_files_of_some_blocks(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.apply([(key, {"a": key, "b": []}, ()) for key in "abcdefgh"])
    table.compact("abcdefgh")
    monkeypatch.setattr(log_reader, "_BATCH_KEYS", 2)
    monkeypatch.setattr(keyed_writer, "_MOST_DELETE_BLOCKS", 3)
    (files,) = table.apply([TRUNCATE, ("a", {"a": "new", "b": []}, ())]).files.values()
    assert [(file.upserts, file.deletes) for file in files] == [(0, 6), (0, 2), (1, 0)]
    assert [file.path for file in files] == sorted({file.path for file in files})
    blocks = [block for file in files for block in read_log(table.storage.read(file.path))]
    assert sorted(key for block in blocks for key, _, _ in block.deletes) == [*"abcdefgh"]
    assert table.rows("abcdefgh") == {"a": {"a": "new", "b": []}}


def test_what_is_left_out_after_a_truncate_is_not_filled_from_rows_before_it(table: Table) -> None:
    one = {"a": "one", "b": [1]}
    table.apply([("a", one, ()), ("b", one, ())])
    table.apply([("c", one, ()), TRUNCATE, ("a", one, ("a",)), ("c", one, ("a",)), ("b", one, ()), ("b", one, ("b",))])
    assert table.refused == [(4, DELETED_BEFORE), (5, NOT_THERE)]
    assert table.rows("abc") == {"b": one}


def test_a_truncate_that_is_replayed_leaves_what_came_after_it(table: Table) -> None:
    one, two = {"a": "one", "b": [1]}, {"a": "two", "b": [2]}
    changes = [("a", one, ()), TRUNCATE, ("b", two, ()), ("a", two, ())]
    table.apply(changes)
    table.compact("ab")
    # Another writer's row, whose ordering value is small.
    table.offset = 0
    table.apply([("c", one, ())])
    for start in (0, 1):
        table.offset = start
        table.apply(changes[start:])
        assert table.rows("abc") == {"a": two, "b": two}


def test_rows_without_an_offset_are_older_than_any_truncate(table: Table) -> None:
    keys = pa.table({RECORD_KEY: ["a", "b"]})
    with_offsets = keys.append_column("_kafka_offset", pa.array([None, 7], pa.int64()))
    for instant, rows in (("20261121115900000", keys), ("20261121115900001", with_offsets)):
        stream = pa.BufferOutputStream()
        pq.write_table(rows, stream)
        content = parquet_block(instant, SCHEMA, stream.getvalue().to_pybytes())
        table.storage.write(f".{fixed_id(0)}_{instant}.log.1_0-0-0", content)
    table.complete("deltacommit")
    current = CurrentRows(table.storage, table.layout())
    assert [keys.to_pylist() for _, _, keys in current.keys_before(8, {})] == [["a", "b"], ["a", "b"]]
    # For a truncate that is replayed, b came later.
    assert [keys.to_pylist() for _, _, keys in current.keys_before(7, {})] == [["a"], ["a"]]


def test_a_truncate_deletes_what_was_there_when_the_transaction_began(table: Table) -> None:
    one = {"a": "one", "b": [1]}
    table.apply([("a", one, ())])
    layout = table.layout()
    table.transactions += 1
    table.apply([("b", one, ())])
    table.compact("ab")
    for _ in range(2):
        parts = CurrentRows(table.storage, layout).keys_before(9, {})
        assert [(folder, bucket, keys.to_pylist()) for folder, bucket, keys in parts] == [("", 0, ["a"])]


def test_what_no_earlier_row_fills_is_refused_with_the_changes_before_it_that_lack_the_same(table: Table) -> None:
    one, two = {"a": "one", "b": [1]}, {"a": "two", "b": [2]}
    table.apply([("a", one, ("a",)), ("a", two, ("a", "b"))])
    assert table.refused == [(0, NOT_THERE), (1, NOT_THERE)]
    table.apply([("a", one, ()), ("b", one, ("a",)), ("b", None, ())])
    assert len(table.refused) == 2, "the delete makes it irrelevant"
    table.apply([("a", None, ()), ("a", two, ("a",)), ("b", two, ("b",))])
    assert table.refused[2:] == [(6, DELETED_BEFORE), (7, DELETED_BEFORE)]
    assert table.rows("ab") == {}, "the delete before a refused change counts"


def test_a_changed_key_is_filled_from_the_old_one_or_refused(table: Table) -> None:
    one, two = {"a": "one", "b": [1]}, {"a": "two", "b": [2]}
    table.apply([("a", one, ()), ("b", two, ())])
    # Twice in one transaction, a value changed in between, and the old key's own row is another one afterwards.
    moves = [("a", None, ()), ("c", two, ("a", MOVED)), ("a", two, ()), ("c", None, ()), ("d", two, ("a", "b", MOVED))]
    table.apply(moves)
    assert table.rows("abcd") == {"a": two, "b": two, "d": {"a": "one", "b": [2]}}
    table.apply([("b", None, ())])
    table.apply([("c", one, ("b", MOVED_FROM_ELSEWHERE)), ("c", one, ("a", "b"))])
    assert table.refused == [(8, OLD_KEY_NOT_THERE), (9, OLD_KEY_NOT_THERE)]
    assert table.rows("bc") == {}
    # A replay that begins behind the delete, and one that begins before it.
    for begin, moved in ((6, MOVED_FROM_ELSEWHERE), (5, MOVED)):
        table.offset = begin
        changes = [("c", None, ()), ("d", two, ("a", "b", moved))]
        table.apply(changes[begin - 5 :])
        assert len(table.refused) == 2
        assert table.rows("ad") == {"a": two, "d": {"a": "one", "b": [2]}}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("buffered", [1, 1 << 20])
def test_a_changed_key_that_is_sent_again_keeps_its_row(
    table: Table, monkeypatch: pytest.MonkeyPatch, together: bool, buffered: int
) -> None:
    """As a connector does that was killed: an update of the database that changes the key, and what came after it."""
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", buffered)
    row, moved, later = ({"a": text, "b": [1]} for text in ("row", "moved", "later"))
    table.apply([("a", row, ()), ("b", row, ())])
    pair: list[Any] = [("a", None, ()), ("c", moved, ("a", MOVED))]
    update: list[Any] = [("c", later, ("a",))]
    for changes in [[*pair, *pair, *update]] if together else [pair, pair, [*pair, *update], update]:
        table.apply(changes, 1)
    assert (table.refused, table.rows("abc")) == ([], {"b": row, "c": {"a": "row", "b": [1]}})
    # The old key has another row by now, which is not the one that became c.
    table.apply([("a", later, ())])
    table.apply([*pair, ("a", later, ())], 1)
    assert (table.refused, table.rows("abc")) == ([], {"a": later, "b": row, "c": {"a": "row", "b": [1]}})
    # Nothing says which delete of c it was that came between.
    table.apply([("c", None, ()), *pair, *pair, ("b", row, ("a",))], 1 if together else 100)
    assert (table.refused, table.rows("abc")) == ([], {"b": row, "c": {"a": "later", "b": [1]}})


def test_a_changed_key_is_not_filled_from_a_row_that_its_own_key_got_later(table: Table) -> None:
    one, two = {"a": "one", "b": [1]}, {"a": "two", "b": [2]}
    changes = [("a", one, ()), ("a", None, ()), ("c", one, ("a", MOVED)), ("c", None, ()), ("d", one, ("a", MOVED))]
    table.apply(changes[:4])
    table.offset += 1
    table.apply([("c", two, ())])
    # A replay with a record that had been left out.
    table.offset = 1
    table.apply([*changes[1:], ("c", two, ())])
    assert (table.refused, table.rows("acd")) == ([(4, OLD_KEY_NOT_THERE)], {"c": two})


def test_a_null_where_a_value_was_left_out_is_no_value(table: Table) -> None:
    null, two = {"a": None, "b": [1]}, {"a": "two", "b": [2]}
    table.apply([("a", null, ()), ("b", null, ())])
    # Of the table, of a row whose key was changed, and of an earlier change, which counts itself.
    table.apply([("a", two, ("a",)), ("b", None, ()), ("c", two, ("a", MOVED)), ("d", null, ()), ("d", two, ("a",))])
    assert table.refused == [(2, NOT_KNOWN), (4, NOT_KNOWN), (6, NOT_KNOWN)]
    assert table.rows("abcd") == {"a": null, "d": null}
    # The change before is one that can be filled.
    table.apply([("e", two, ()), ("f", {"a": "one", "b": [3]}, ())])
    table.apply([("f", {"a": None, "b": []}, ("b",)), ("f", two, ("a",))])
    assert (table.refused[3:], table.rows("f")) == ([(10, NOT_KNOWN)], {"f": {"a": None, "b": [3]}})


def test_a_null_that_transforms_make_of_every_value_is_one(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GONE, "a", None)
    table.apply([("a", {"a": None, "b": [1]}, ())])
    table.apply([("a", {"a": None, "b": [2]}, ("a",))])
    assert (table.refused, table.rows("a")) == ([], {"a": {"a": None, "b": [2]}})


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
@pytest.mark.parametrize("buffered", [1, 300, 500, 1 << 20])
def test_a_changed_key_is_filled_however_the_changes_before_it_are_written(
    table: Table, monkeypatch: pytest.MonkeyPatch, batch: int, buffered: int
) -> None:
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", buffered)
    one, two = {"a": "one", "b": [1]}, {"a": "two", "b": [2]}
    table.apply([("a", one, ())], batch)
    table.apply([("a", two, ()), ("b", one, ()), ("a", None, ()), ("c", one, ("a", MOVED)), ("b", None, ())], batch)
    assert (table.refused, table.rows("abc")) == ([], {"c": {"a": "two", "b": [1]}})


def test_a_replayed_change_that_a_later_delete_undoes_is_neither_written_nor_refused(table: Table) -> None:
    one = {"a": "one", "b": [1]}
    table.apply([("a", one, ()), ("a", one, ("a",)), ("a", None, ())])
    table.offset = 1
    writer = table.apply([("a", one, ("a",))])
    assert (table.refused, writer.files, writer.superseded[SOURCE.source]) == ([], {}, 1)


def test_another_attempt_finds_what_was_there_when_the_transaction_began(table: Table) -> None:
    one, two = {"a": "one", "b": [1]}, {"a": "two", "b": [2]}
    table.apply([("a", one, ())])
    layout = table.layout()
    table.transactions += 1
    table.apply([("a", two, ())])
    table.compact("a")
    found = CurrentRows(table.storage, layout).find("", 0, pa.array(["a"]), {"a": pa.string()}, ())
    assert column_of(found, "a", pa.string()).to_pylist() == ["one"]


def test_a_slice_begins_with_the_newest_completed_base_file_and_has_what_was_completed_since() -> None:
    times = {"20261121120000001": "20261121120000005", "20261121120000002": "20261121120000009"}
    completed = Completed.of(
        [f"{start}_{end}.deltacommit" for start, end in times.items()]
        + ["20261121120000006_20261121120000008.commit", "20261121120000007.deltacommit.requested", "history"]
    )
    id = fixed_id(0)
    names = [
        f"{id}_0-1-0_20261121120000001.parquet",
        f"{id}_0-1-0_20261121120000006.parquet",
        f"{fixed_id(1)}_0-1-0_20261121120000006.parquet",
        *(f".{id}_2026112112000000{n}.log.1_0-0-1" for n in (1, 2, 7)),
        f".{id}_20261121120000002.log.1_0-0-1.cdc",
        f".{id}_20261121120000002.log.1_0-0-0",
    ]
    old, log = names[0], f".{id}_20261121120000002.log.1_0-0-"
    assert slice_before(names, id, completed, "20261121120000010") == Slice(names[1], (f"{log}0", f"{log}1"))
    assert slice_before(names, id, completed, "20261121120000009") == Slice(names[1], ())
    assert slice_before(names, id, completed, "20261121120000006") == Slice(old, (names[3],))
    archived = Completed.of(["20261121120000008_20261121120000009.clean"])
    assert slice_before(names, id, archived, "20261121120000010").base == names[1]
    assert slice_before(names, id, archived, "20261121120000010").logs == (names[5],)


ALL_TYPES = test_avro_rows.FIELDS | test_avro_rows.OTHERS


def read_back(content: bytes, table: pa.Table) -> pa.Table:
    kinds = {field.name: field.type for field in table.schema if field.name != RECORD_KEY}
    (change,) = changes_in(content, table[RECORD_KEY].combine_chunks(), kinds)
    assert isinstance(change, Upserts)
    return change.rows


@settings(max_examples=15)
@given(test_avro_rows.some_rows(ALL_TYPES).filter(bool))
def test_log_files_give_back_values_of_all_types(rows: list[dict[str, Any]]) -> None:
    keys = pa.array([str(number) for number in range(len(rows))])
    table = test_avro_rows.columns(rows, ALL_TYPES).append_column(RECORD_KEY, keys)
    record = test_avro_rows.schema(ALL_TYPES)
    schema = json.dumps({**record, "fields": [*record["fields"], {"name": RECORD_KEY, "type": ["null", "string"]}]})
    by_avro = read_back(block_of_others(INSTANT, schema, table), table)
    assert by_avro.select(table.column_names).to_pylist() == table.to_pylist()
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream)
    by_parquet = read_back(parquet_block(INSTANT, schema, stream.getvalue().to_pybytes()), table)
    assert by_parquet.select(table.column_names).equals(table)


def test_rows_of_other_keys_are_not_decoded_and_deletes_have_their_order() -> None:
    table = pa.table({RECORD_KEY: ["a", "b"], "a": ["x", "y"]})
    fields = [{"name": name, "type": ["null", "string"]} for name in table.column_names]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    deletes = delete_block(INSTANT, schema, "", pa.array(["b", "c"]), [pa.array([5, 6])])
    content = avro_block(INSTANT, schema, table) + deletes
    upserts, deleted = changes_in(content, pa.array(["b"]), {"a": pa.string(), "new": pa.int64()})
    assert isinstance(upserts, Upserts)
    assert upserts.rows.to_pylist() == [{RECORD_KEY: "b", "a": "y"}]
    assert deleted == Deletes([("b", 5)])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"#HUDI", "no block begins at byte 0"),
        (COMMAND[:-1], "a block that is cut off"),
        (COMMAND, "a block of kind 0"),
        (PARTIAL, "a block of partial updates or of a log compaction"),
    ],
)
def test_a_log_file_that_is_not_as_our_writers_leave_it_stops_the_op(content: bytes, problem: str) -> None:
    with pytest.raises(UnreadableLog, match=problem):
        list(changes_in(content, pa.array(["a"]), {}))
