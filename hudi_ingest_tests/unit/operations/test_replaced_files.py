"""Which files a replay replaces: found by statistics, made sure of by rows, and copied without the range's (P1, P2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.exceptions import Fenced, RangeRefused, WriteIncomplete
from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.base_file import META_COLUMNS
from hudi_ingest.hudi.files.file_groups import RowSource
from hudi_ingest.hudi.files.new_files import BaseFileLayout
from hudi_ingest.hudi.files.replaced_files import copy_other_rows
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import heartbeat_path, marker_path
from hudi_ingest.hudi.storage.storage import TableStorage
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.hudi.timeline.timeline import TableFile
from hudi_ingest.model.offsets import Slice, TopicPartition, ranges
from hudi_ingest.model.plan import ReplacedFile
from hudi_ingest.operations.requests.replaced_files import (
    AccountedSlice,
    MissingRows,
    files_to_replace,
    first_offsets,
    missing_rows,
)

INSTANT = "20261121120000000"
Places = Sequence[tuple[str, int, int] | None]
TAKEN = [Slice("orders", 0, 10, 20), Slice("orders", 2, 0, 30)]


def kafka_columns(places: Places) -> pa.Table:
    columns = list(zip(*[place or (None, None, None) for place in places], strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int32(), pa.int64())
    return pa.table(
        {
            name: pa.array(values, kind)
            for name, values, kind in zip(
                ("_kafka_topic", "_kafka_partition", "_kafka_offset"), columns, types, strict=True
            )
        }
    )


def table_file(path: str, places: Places, statistics: bool = True) -> TableFile:
    known = [place for place in places if place is not None] if statistics and None not in places else []
    bounds = [(min(values), max(values)) for values in zip(*known, strict=True)]
    topics, partitions, offsets = bounds or (None, None, None)
    return TableFile(path, "1", len(places), 100, None, topics, partitions, offsets)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("first", "last", "rows", "kept"),
    [
        (5, 9, 0, 5),
        (5, 10, 1, 5),
        (9, 19, 10, 1),
        (10, 19, 10, 0),
        (10, 20, 10, 1),
        (19, 19, 1, 0),
        (19, 20, 1, 1),
        (20, 25, 0, 6),
    ],
)
def test_p1_p2_files_that_end_or_begin_at_a_border_of_the_range(
    first: int, last: int, rows: int, kept: int, statistics: bool
) -> None:
    """Taken whole with its first row behind the range, a file would lose that row; left with the range's first row, double it."""
    places = [("orders", 0, offset) for offset in range(first, last + 1)]
    found = files_to_replace(
        [table_file("d/f_t_1.parquet", places, statistics)],
        [Slice("orders", 0, 10, 20)],
        lambda path: kafka_columns(places),
        "a test",
    )
    assert [(each.rows, each.kept) for each in found] == ([(rows, kept)] if rows else [])


place = st.tuples(st.sampled_from(["orders", "payments"]), st.integers(0, 3), st.integers(0, 40))


@given(st.lists(st.lists(place, min_size=1, max_size=6), max_size=6), st.booleans())
def test_p1_p2_every_file_with_a_row_of_the_range_is_found_and_no_other(
    contents: list[list[tuple[str, int, int]]], statistics: bool
) -> None:
    named = {f"d/f{number}_t_1.parquet": rows for number, rows in enumerate(contents)}
    files = [table_file(path, rows, statistics) for path, rows in named.items()]
    found = files_to_replace(files, TAKEN, lambda path: kafka_columns(named[path]), "a test")
    wanted = {}
    for path, rows in named.items():
        mine = [
            row
            for row in rows
            if any(s.topic == row[0] and s.partition == row[1] and s.start <= row[2] < s.end for s in TAKEN)
        ]
        if mine:
            wanted[path] = (len(mine), len(rows) - len(mine))
    assert {each.path: (each.rows, each.kept) for each in found} == wanted
    for each in found:
        assert any(row[:2] == (each.topic, each.partition) for row in named[each.path])


def test_a_file_whose_statistics_tell_all_is_not_read() -> None:
    def unread(path: str) -> pa.Table:
        raise AssertionError(f"{path} is read")

    whole = table_file("d/a_t_1.parquet", [("orders", 0, 10), ("orders", 0, 19)])
    beside = table_file("d/b_t_1.parquet", [("orders", 0, 20), ("orders", 0, 90)])
    (found,) = files_to_replace([whole, beside], TAKEN, unread, "a test")
    assert (found.file_id, found.partition_path, found.rows, found.kept) == ("a", "d", 2, 0)


def test_rows_of_which_nobody_knows_where_they_are_from_are_kept_or_the_replay_is_refused() -> None:
    rows: Places = [("orders", 0, 12), None, ("orders", 0, 50)]
    (found,) = files_to_replace([table_file("a_t_1", rows)], TAKEN, lambda path: kafka_columns(rows), "a test")
    assert (found.rows, found.kept) == (1, 2)
    with pytest.raises(RangeRefused, match="holds 1 rows of the range and 1 of another writer"):
        files_to_replace([table_file("a_t_1", rows[:2])], TAKEN, lambda path: kafka_columns(rows[:2]), "a test")
    foreign = pa.table({"id": ["x"]})
    with pytest.raises(RangeRefused, match="by another writer without Kafka columns"):
        files_to_replace([table_file("a_t_1", [None])], TAKEN, lambda path: foreign, "a test")


def test_what_a_table_covers_is_found_in_commits_and_files() -> None:
    first, second, third = (TopicPartition("orders", number) for number in range(3))
    rows: Places = [("orders", 0, 30), ("orders", 1, 4)]
    accounts = [AccountedSlice(7, Slice("orders", 0, 40, 50), 10)]
    found = first_offsets(
        [table_file("a_t_1", rows)], accounts, [first, second, third], lambda path: kafka_columns(rows)
    )
    assert found == {first: 30, second: 4}


def test_deleted_rows_are_told_from_offsets_that_never_had_one() -> None:
    (wanted,) = [Slice("orders", 0, 0, 100)]
    here = {wanted.source: ranges([(0, 50), (60, 90)])}
    full = AccountedSlice(3, Slice("orders", 0, 0, 80), 80)
    assert missing_rows([wanted], here, [full]) == MissingRows(deleted=10, unknown=10)
    # A commit that is whole in the range: 5 of its offsets had no row, so 5 of the missing ones were deleted.
    part = AccountedSlice(4, Slice("orders", 0, 80, 100), 15)
    assert missing_rows([wanted], here, [part, full]) == MissingRows(deleted=15, unknown=0)
    beyond = AccountedSlice(4, Slice("orders", 0, 80, 120), 30)
    assert missing_rows([wanted], here, [beyond, full]) == MissingRows(deleted=10, unknown=10)


@pytest.fixture
def storage(tmp_path: Path) -> TableStorage:
    found = LocalStorage(str(tmp_path / "table"))
    found.write(heartbeat_path(INSTANT), b"")
    TableEpoch(found).advance(4, "t-1")
    return found


LAYOUT = BaseFileLayout(INSTANT, Epoch(4, "t-1"), ("dt",), 1000, 1 << 30, "zstd")
WHO = RowSource(TopicPartition("orders", 0), "0-1-0")


def write(storage: TableStorage, path: str, places: Places) -> ReplacedFile:
    columns = kafka_columns(places)
    meta = {name: [f"{name} of {number}" for number in range(len(places))] for name in META_COLUMNS}
    table = pa.table(
        {**meta, "id": list(map(str, range(len(places)))), **{n: columns[n] for n in columns.column_names}}
    )
    with storage.open_output(path) as stream:
        pq.write_table(table, stream, row_group_size=2)
    mine = sum(
        place is not None and any(place[1] == s.partition and s.start <= place[2] < s.end for s in TAKEN)
        for place in places
    )
    return ReplacedFile(path, mine, len(places) - mine, 10, "orders", 0)


@given(st.lists(st.tuples(st.just("orders"), st.integers(0, 3), st.integers(0, 40)) | st.none(), max_size=9))
def test_p1_a_copy_has_exactly_the_other_rows_with_their_commit_times(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[str, int, int] | None]
) -> None:
    places = [*places, ("orders", 0, 40)]
    storage = LocalStorage(str(tmp_path_factory.mktemp("table")))
    storage.write(heartbeat_path(INSTANT), b"")
    TableEpoch(storage).advance(4, "t-1")
    old = write(storage, "dt=1/f_t_1.parquet", places)
    copy = copy_other_rows(storage, LAYOUT, WHO, old, TAKEN)
    before, after = (pq.read_table(f"{storage.base_path}/{path}", partitioning=None) for path in (old.path, copy.path))
    kept = [
        row
        for row in before.to_pylist()
        if row["_kafka_offset"] is None
        or not any(row["_kafka_partition"] == s.partition and s.start <= row["_kafka_offset"] < s.end for s in TAKEN)
    ]
    name = copy.path.rpartition("/")[2]
    assert after.to_pylist() == [{**row, "_hoodie_file_name": name} for row in kept]
    assert after.schema.equals(before.schema)
    assert (copy.rows, copy.partition_path) == (len(kept), "dt=1")
    origin = file_groups.decode(copy.file_id)
    first = next(row for row in kept if row["_kafka_offset"] is not None)
    assert origin is not None
    assert (origin.partition, origin.first_offset) == (first["_kafka_partition"], first["_kafka_offset"])
    assert copy.file_id == file_groups.file_id("orders", origin.partition, origin.first_offset, "dt=1", INSTANT)
    assert storage.exists(marker_path(INSTANT, copy.path))


def test_p4_a_copy_of_an_instant_that_is_over_is_not_left(storage: TableStorage) -> None:
    old = write(storage, "dt=1/f_t_1.parquet", [("orders", 0, 12), ("orders", 0, 40)])
    wrong = ReplacedFile(old.path, 1, 7, 10, "orders", 0)
    with pytest.raises(WriteIncomplete, match="1 rows were copied, but the plan says 7"):
        copy_other_rows(storage, LAYOUT, WHO, wrong, TAKEN)
    storage.delete(heartbeat_path(INSTANT))
    with pytest.raises(Fenced):
        copy_other_rows(storage, LAYOUT, WHO, old, TAKEN)
    assert [file.path for file in storage.files("dt=1")] == [old.path]
