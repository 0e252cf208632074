"""Changes that come late, as retried dead letters do: whatever was compacted and cleaned meanwhile, the table is what the applied changes
come to in their order, as a dictionary has it, and those are held that could undo a newer one."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files import keyed_writer
from hudi_ingest.hudi.files.base_file import parquet_writer, with_keys, with_meta_columns
from hudi_ingest.hudi.files.current_rows import CurrentRows
from hudi_ingest.hudi.files.file_groups import RowSource, fixed_id
from hudi_ingest.hudi.files.keyed_writer import KeyedFileWriter
from hudi_ingest.hudi.files.late_changes import FORGOTTEN, OUTDATED, TRUNCATED, UNORDERED, _Known
from hudi_ingest.hudi.files.log_file import delete_block
from hudi_ingest.hudi.files.new_files import KeyedLayout, Past, PastCommit
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import TIMELINE, heartbeat_path
from hudi_ingest.hudi.timeline.epoch import Epoch, TableEpoch
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.records.changes import DELETED, LEFT_OUT

SOURCE = TopicPartition("orders", 0)
TOKEN = RowSource(SOURCE, "0-0-17")
KEYS, DAYS = "abc", ("d1", "d2")
META = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
DECIMAL = {"type": "fixed", "name": "at", "size": 7, "logicalType": "decimal", "precision": 15, "scale": 2}
NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)

Slot = tuple[str, str]
"""A table partition and a key."""


@dataclass(frozen=True)
class Ordering:
    """An ordering column: its types, and its value for a number. Several offsets share one, unless the offset itself orders."""

    kind: pa.DataType
    avro: Any
    value: Callable[[int], Any]
    column: str = "at"


ORDERINGS = {
    "offset": Ordering(pa.int64(), "long", lambda number: number, "_kafka_offset"),
    "long": Ordering(pa.int64(), "long", lambda number: number),
    "string": Ordering(pa.string(), "string", lambda number: f"{number:09}"),
    "timestamp": Ordering(
        pa.timestamp("us", "UTC"),
        {"type": "long", "logicalType": "timestamp-micros"},
        lambda number: NOON.replace(microsecond=number),
    ),
    "decimal": Ordering(pa.decimal128(15, 2), DECIMAL, lambda number: Decimal(number) / 4),
}


@dataclass(frozen=True)
class Change:
    day: str
    key: str
    offset: int
    note: str | None
    """None deletes."""


@dataclass
class Table:
    """A keyed table with a bucket in each of its partitions, whose commits are files on a timeline and nothing else."""

    storage: LocalStorage
    ordering: Ordering
    number: int = 0
    commits: list[PastCommit] = field(default_factory=list)
    compacted: str = ""
    """The instant of the last compaction, which was one of all table partitions."""
    held: dict[int, str] = field(default_factory=dict)
    """Of the last late transaction: the reasons by offset."""

    @property
    def instant(self) -> str:
        return f"202611211200{self.number:05d}"

    def layout(self, past: Past | None = None) -> KeyedLayout:
        names = [*(f"_hoodie_{name}" for name in META), "id", "note", "dt"]
        fields: list[dict[str, Any]] = [{"name": name, "type": ["null", "string"]} for name in names]
        if self.ordering.column == "at":
            fields.append({"name": "at", "type": self.ordering.avro})
        fields += [{"name": "_kafka_partition", "type": "int"}, {"name": "_kafka_offset", "type": "long"}]
        schema = json.dumps({"type": "record", "name": "r", "fields": fields})
        epoch = Epoch(self.number + 1, "t")
        return KeyedLayout(self.instant, epoch, ("dt",), ("id",), (self.ordering.column,), 1, schema, "zstd", past=past)

    def columns(self, changes: Sequence[Change], ties: int) -> dict[str, pa.Array]:
        columns = {
            "id": pa.array([change.key for change in changes], pa.string()),
            "note": pa.array([change.note for change in changes], pa.string()),
            "dt": pa.array([change.day for change in changes], pa.string()),
        }
        if self.ordering.column == "at":
            values = [self.ordering.value(change.offset // ties) for change in changes]
            columns["at"] = pa.array(values, self.ordering.kind)
        columns["_kafka_partition"] = pa.array([0] * len(changes), pa.int32())
        columns["_kafka_offset"] = pa.array([change.offset for change in changes], pa.int64())
        return columns

    def apply(
        self,
        changes: Sequence[Change],
        ties: int,
        *,
        late: bool = False,
        read: Sequence[Slice] = (),
        leaves_values_out: bool = False,
        lacking: Collection[int] = (),
        truncates: Sequence[int] = (),
    ) -> KeyedFileWriter:
        """Write one transaction. `lacking`: the offsets whose note is left out. `truncates`: those of truncates."""
        layout = self.layout(Past(tuple(self.commits), leaves_values_out) if late else None)
        self.storage.write(heartbeat_path(self.instant), b"")
        TableEpoch(self.storage).advance(layout.epoch.number, layout.epoch.transaction_id)
        self.held = {}

        def refuse(source: TopicPartition, rows: pa.Table, reasons: Sequence[str]) -> None:
            self.held |= zip(rows["_kafka_offset"].to_pylist(), reasons, strict=True)

        with KeyedFileWriter(self.storage, layout, refuse) as writer:
            waiting = sorted(truncates)
            for offset, record in itertools.groupby(changes, lambda change: change.offset):
                parts = [*record]
                while waiting and waiting[0] < offset:
                    writer.truncate(TOKEN, waiting.pop(0))
                gone = pa.array([change.note is None for change in parts])
                if offset in lacking:
                    parts = [replace(change, note="placeholder") for change in parts]
                rows = pa.table({**self.columns(parts, ties), DELETED: gone})
                if offset in lacking:
                    rows = rows.append_column(LEFT_OUT, pa.array([["note"]], pa.list_(pa.string())))
                writer.write(TOKEN, rows)
            for offset in waiting:
                writer.truncate(TOKEN, offset)
            writer.close()
        paths = {file.path for files in writer.files.values() for file in files}
        known = {path.partition("/")[0] for commit in self.commits for path in commit.files}
        for folder in {path.partition("/")[0] for path in paths} - known:
            # The empty base file of a new file group, which readers do without.
            paths.add(f"{folder}/{fixed_id(0)}_0-1-0_{self.instant}.parquet")
        counted = tuple((slice_, writer.truncated[SOURCE]) for slice_ in read) if truncates else ()
        self.complete("deltacommit", PastCommit(tuple(read), counted, tuple(paths)))
        return writer

    def complete(self, action: str, commit: PastCommit) -> None:
        self.storage.write(f"{TIMELINE}/{self.instant}_{self.instant[:-1]}5.{action}", b"")
        self.commits.append(commit)
        self.number += 10

    def rows(self) -> dict[Slot, Change]:
        """Read the newest slices."""
        found: dict[Slot, Change] = {}
        for day in DAYS:
            columns = {"note": pa.string(), "_kafka_offset": pa.int64(), self.ordering.column: self.ordering.kind}
            there = CurrentRows(self.storage, self.layout()).find(f"dt={day}", 0, pa.array([*KEYS]), columns, ())
            for key, place in there.places.items():
                if place is not None:
                    row = there.rows[place[0]].slice(place[1], 1).to_pylist()[0]
                    found[day, key] = Change(day, key, row["_kafka_offset"], row["note"])
        return found

    def compact(self, ties: int) -> None:
        """Replace the log files by base files of the same rows."""
        paths = []
        folders = {path.partition("/")[0] for commit in self.commits for path in commit.files}
        for day in (day for day in DAYS if f"dt={day}" in folders):
            rows = [row for row in self.rows().values() if row.day == day]
            table = pa.table(self.columns(rows, ties))
            keyed = with_meta_columns(with_keys("orders-0", table, table["id"]), self.instant, f"dt={day}", "f")
            paths.append(f"dt={day}/{fixed_id(0)}_0-1-0_{self.instant}.parquet")
            with (
                self.storage.open_output(paths[-1]) as stream,
                parquet_writer(stream, keyed.schema, keyed, "zstd") as writer,
            ):
                writer.write_table(keyed)
        self.compacted = self.instant
        self.complete("commit", PastCommit(files=tuple(paths)))

    def clean(self, dice: random.Random) -> None:
        """Delete some of the files that no reader needs."""
        before = self.compacted
        for commit in self.commits:
            for path in commit.files:
                old = path.rpartition("_")[2].removesuffix(".parquet")
                if ".log." in path:
                    old = path.partition(".log.")[0].rpartition("_")[2]
                if old < before and dice.random() < 0.6 and self.storage.exists(path):
                    self.storage.delete(path)


def come_to(changes: Iterable[Change], ties: int) -> dict[Slot, Change]:
    """Apply the changes in their order."""
    latest: dict[Slot, Change] = {}
    for change in sorted(changes, key=lambda change: (change.offset // ties, change.offset)):
        latest[change.day, change.key] = change
    return {slot: change for slot, change in latest.items() if change.note is not None}


class Upstream:
    """Draws records. One whose row moves to another table partition has two changes."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._days: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self.offset = 0
        self.lacking: set[int] = set()
        """The offsets of changes that leave out their note, which they do not change."""

    def record(self) -> list[Change]:
        key, offset = self._dice.choice(KEYS), self.offset
        self.offset += 1
        before = self._days.get(key)
        if before is not None and self._dice.random() < 0.4:
            del self._days[key]
            return [Change(before, key, offset, None)]
        day = self._days[key] = self._dice.choice(DAYS)
        moved = [Change(before, key, offset, None)] if before not in (None, day) else []
        if before == day and self._dice.random() < 0.5:
            self.lacking.add(offset)
        else:
            self._notes[key] = f"note {offset}"
        return [*moved, Change(day, key, offset, self._notes[key])]


STEPS = st.lists(st.sampled_from(["records", "records", "compact", "clean", "retry"]), min_size=2, max_size=12)


@given(
    steps=STEPS,
    seed=st.integers(0, 2**32),
    name=st.sampled_from(sorted(ORDERINGS)),
    ties=st.integers(1, 3),
    buffered=st.sampled_from([1, 1 << 20]),
)
def test_the_table_is_what_the_applied_changes_come_to_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[str], seed: int, name: str, ties: int, buffered: int
) -> None:
    dice = random.Random(seed)
    ordering = ORDERINGS[name]
    ties = 1 if name == "offset" else ties
    table = Table(LocalStorage(str(tmp_path_factory.mktemp("table"))), ordering)
    upstream, applied, letters, cleaned = Upstream(dice), [], [], False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_writer, "BUFFERED_BYTES", buffered)
        for step in [*steps, "records", "compact", "clean", "retry"]:
            if step == "records":
                start = upstream.offset
                records = [upstream.record() for _ in range(dice.randrange(1, 8))]
                bad = [dice.random() < 0.3 for _ in records]
                good = [change for record, is_bad in zip(records, bad, strict=True) if not is_bad for change in record]
                letters += [record for record, is_bad in zip(records, bad, strict=True) if is_bad]
                applied += good
                table.apply(good, ties, read=[Slice("orders", 0, start, upstream.offset)])
            elif step == "compact":
                table.compact(ties)
            elif step == "clean":
                table.clean(dice)
                cleaned = True
            else:
                tried = [record for record in letters if dice.random() < 0.7]
                changes = [change for record in tried for change in record]
                writer = table.apply(changes, ties, late=True)
                held = table.held.keys()
                possible = ({FORGOTTEN} if cleaned else set()) | ({UNORDERED} if ties > 1 else set())
                assert {*table.held.values()} <= possible
                retried = [record for record in tried if record[0].offset not in held]
                letters = [record for record in letters if record not in retried]
                applied += [change for record in retried for change in record]
                written = sum(file.rows for files in writer.files.values() for file in files)
                all_held = sum(change.offset in held for change in changes)
                assert written + writer.superseded[SOURCE] + all_held == len(changes)
            assert table.rows() == come_to(applied, ties)


@given(steps=STEPS, seed=st.integers(0, 2**32), retry_all=st.booleans())
def test_once_no_letter_is_left_the_rows_have_all_values_that_the_database_left_out(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[str], seed: int, retry_all: bool
) -> None:
    """Changes that cannot be filled are letters, too."""
    dice = random.Random(seed)
    table = Table(LocalStorage(str(tmp_path_factory.mktemp("table"))), ORDERINGS["offset"])
    upstream, changes, letters = Upstream(dice), [], []
    for step in [*steps, "retry"]:
        if step == "records":
            start = upstream.offset
            records = [upstream.record() for _ in range(dice.randrange(1, 8))]
            changes += [change for record in records for change in record]
            bad = {record[0].offset for record in records if dice.random() < 0.2}
            good = [change for record in records for change in record if change.offset not in bad]
            table.apply(good, 1, read=[Slice("orders", 0, start, upstream.offset)], lacking=upstream.lacking)
            letters += [record for record in records if record[0].offset in bad | table.held.keys()]
        elif step == "compact":
            table.compact(1)
        elif step == "clean":
            table.clean(dice)
        else:
            tried = [record for record in letters if retry_all or dice.random() < 0.5]
            late = [change for record in tried for change in record]
            table.apply(late, 1, late=True, leaves_values_out=True, lacking=upstream.lacking)
            retried = [record for record in tried if record[0].offset not in table.held]
            letters = [record for record in letters if record not in retried]
        if not letters:
            assert table.rows() == come_to(changes, 1)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(LocalStorage(str(tmp_path / "table")), ORDERINGS["offset"])


def at(offset: int, note: str | None, key: str = "a", day: str = "d1") -> Change:
    return Change(day, key, offset, note)


def read(start: int, end: int) -> list[Slice]:
    return [Slice("orders", 0, start, end)]


def delete_logs(table: Table) -> None:
    for commit in table.commits:
        for path in commit.files:
            if ".log." in path:
                table.storage.delete(path)


def test_a_change_is_held_once_the_delete_that_undid_it_may_be_forgotten(table: Table) -> None:
    """The record at 1 was bad, and its row was deleted at 2."""
    table.apply([at(0, "old")], 1, read=read(0, 2))
    table.apply([at(2, None)], 1, read=read(2, 3))
    table.compact(1)
    table.apply([at(1, "late")], 1, late=True)
    assert (table.held, table.rows()) == ({}, {}), "the log file with the delete is still there"
    delete_logs(table)
    table.apply([at(1, "late")], 1, late=True)
    assert (table.held, table.rows()) == ({1: FORGOTTEN}, {})
    table.commits = []
    table.apply([at(1, "late"), at(1, "late", "b")], 1, late=True)
    assert {*table.held.values()} == {FORGOTTEN}, "the commit that read it is archived"


def test_where_the_key_has_a_row_nothing_is_forgotten(table: Table) -> None:
    table.apply([at(0, "old"), at(4, "new", "b")], 1, read=read(0, 5))
    table.compact(1)
    delete_logs(table)
    table.commits = []
    writer = table.apply([at(1, "late"), at(2, "late", "b"), at(3, None, "c")], 1, late=True)
    assert table.held == {}
    assert writer.superseded[SOURCE] == 1, "a newer row is there"
    assert {slot: row.note for slot, row in table.rows().items()} == {("d1", "a"): "late", ("d1", "b"): "new"}


def test_a_record_that_moves_its_row_is_held_as_a_whole(table: Table) -> None:
    """An earlier letter of the same key then is the newest where the row was."""
    table.apply([at(0, "old")], 1, read=read(0, 3))
    changes = [at(1, "late"), at(2, None), at(2, "later", day="d2")]
    commits = table.commits
    table.commits = [replace(commit, replaced=frozenset({("dt=d2", fixed_id(0))})) for commit in commits]
    table.apply(changes, 1, late=True)
    assert table.held == {2: FORGOTTEN}, "the other table partition may have been dropped since"
    assert [row.offset for row in table.rows().values()] == [1]
    table.commits = [*commits, *table.commits[1:]]
    table.apply(changes[1:], 1, late=True)
    assert table.held == {}
    assert [(row.day, row.offset) for row in table.rows().values()] == [("d2", 2)]


def test_a_change_from_before_a_truncate_brings_no_row_back(table: Table) -> None:
    """Not even one whose key the truncate did not find, because the record was bad."""
    table.apply([at(0, "old")], 1, read=read(0, 3))
    table.apply([at(4, "old")], 1, read=read(3, 7), truncates=[5])
    table.apply([at(8, "new", "b")], 1, read=read(7, 9))
    assert [*table.rows()] == [("d1", "b")]
    writer = table.apply([at(1, "late"), at(2, "late", "c")], 1, late=True)
    assert (writer.superseded[SOURCE], table.held) == (2, {})
    table.apply([at(3, "late", "c"), at(6, "late", "a")], 1, late=True)
    assert table.held == {3: TRUNCATED}, "at 6 there is nothing after it but the end of the slice"
    table.apply([], 1, read=read(9, 12), truncates=[10])
    table.compact(1)
    table.apply([], 1, read=read(12, 13), truncates=[12])
    writer = table.apply([at(7, "late", "c")], 1, late=True)
    assert (writer.superseded[SOURCE], table.held, table.rows()) == (1, {}, {})
    writer = table.apply([at(11, "late", "c")], 1, late=True)
    assert (table.held, table.rows()) == ({11: TRUNCATED}, {}), (
        "the last one deleted nothing, and may have been skipped"
    )


def test_a_truncate_that_is_retried_deletes_what_was_before_it(table: Table) -> None:
    table.apply([at(0, "old"), at(1, "old", "b"), at(5, "new", "b")], 1, read=read(0, 6))
    table.apply([at(2, "late", "c"), at(4, "late", "a", day="d2")], 1, late=True, truncates=[3])
    assert {slot: row.offset for slot, row in table.rows().items()} == {("d1", "b"): 5, ("d2", "a"): 4}


def test_values_that_a_newer_change_may_have_taken_from_an_older_row_are_not_passed_over(table: Table) -> None:
    table.apply([at(0, "old", key) for key in KEYS], 1, read=read(0, 4))
    table.apply([at(4, "placeholder"), at(5, "late", "b")], 1, read=read(4, 6), lacking=[4])
    letters = [at(1, "late"), at(2, "late", "b"), at(3, "placeholder", "c")]
    table.apply(letters, 1, late=True, leaves_values_out=True, lacking=[3])
    assert table.held == {1: OUTDATED}, "the newer row of b has the same value, and c has an older row"
    assert {row.key: row.note for row in table.rows().values()} == {"a": "old", "b": "late", "c": "old"}


def test_a_row_that_spark_sql_has_deleted_since_is_not_brought_back(table: Table) -> None:
    table.apply([at(0, "old")], 1, read=read(0, 2))
    layout = table.layout()
    block = delete_block(table.instant, layout.schema_json, "dt=d1", pa.array(["a"]), [pa.array([0])])
    log = f"dt=d1/.{fixed_id(0)}_{table.instant}.log.1_0-1-1"
    # An ordering value of int instead of long, as Spark has it.
    table.storage.write(log, block.replace(b"\x06\x00\x00", b"\x04\x00\x00"))
    table.complete("deltacommit", PastCommit(files=(log,)))
    assert table.rows() == {}
    writer = table.apply([at(1, "late")], 1, late=True)
    assert (writer.superseded[SOURCE], table.held, table.rows()) == (1, {}, {})


def test_a_record_that_was_late_when_it_was_read_is_held_if_a_delete_before_it_may_be_forgotten(tmp_path: Path) -> None:
    """At 7 came a change that orders before the delete at 2, in a transaction that wrote nothing to its bucket."""
    table = Table(
        LocalStorage(str(tmp_path / "table")), replace(ORDERINGS["long"], value=lambda number: [1, 9, 5][number])
    )
    letter = at(7, "late")
    table.apply([at(0, "old")], 3, read=read(0, 1))
    table.apply([at(3, None)], 3, read=read(1, 4))
    table.commits.append(PastCommit(tuple(read(4, 8))))
    for expected in ({}, {7: FORGOTTEN}):
        table.compact(3)
        table.apply([letter], 3, late=True)
        assert (table.held, table.rows()) == (expected, {})
        delete_logs(table)


def test_of_equal_values_the_record_that_came_later_wins(tmp_path: Path) -> None:
    table = Table(LocalStorage(str(tmp_path / "table")), ORDERINGS["long"])
    ties = 100
    table.apply([at(0, "old"), at(1, "old", "b"), at(2, None, "c")], ties, read=read(0, 6))
    table.apply([at(6, "new")], ties, read=read(6, 7))
    table.apply([at(3, "late"), at(4, "late", "b"), at(5, "late", "c")], ties, late=True)
    found: Mapping[str, str | None] = {row.key: row.note for row in table.rows().values()}
    assert found == {"a": "new", "b": "late"}
    assert table.held == {5: UNORDERED}, "of a delete only the commit is known"


@pytest.mark.parametrize(
    ("read", "needed"),
    [
        # Committed while the compaction ran that began slice 7: its deletes are in the slice before.
        (8, 3),
        (7, 3),
        (6, 1),
        (3, 1),
        # Of the first slice, which began with the file group.
        (2, 1),
    ],
)
def test_deletes_are_needed_from_the_slice_before_the_last(read: int, needed: int) -> None:
    slices = [(1, True), (3, False), (7, False)]
    assert _Known(None, None, (), 0, slices, False).needed_from(read) == needed
    # The first of the slices that are known is not the file group's first.
    only = _Known(None, None, (), 0, [(3, False), (7, False)], False)
    assert (only.needed_from(8), only.needed_from(5), only.needed_from(2)) == (3, None, None)
    assert _Known(None, None, (), 0, [(5, True)], False).needed_from(4) == 4
    assert _Known(None, None, (), 0, [], True).needed_from(4) == 4
