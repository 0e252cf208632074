"""Audits of a keyed table in log files and base files, which tests damage by hand; the topic's records are in memory."""

from __future__ import annotations

import json
import random
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.hudi.files.file_groups import FileGroup
from hudi_ingest.hudi.files.log_file import MAGIC, avro_block, parquet_block
from hudi_ingest.hudi.files.log_reader import UnreadableLog, Upserts, all_changes
from hudi_ingest.hudi.files.new_files import KeyedLayout
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.kafka.records import RECORDS
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.stretches import stretches_of
from hudi_ingest.operations import keyed_audit
from hudi_ingest.operations.audit import Audit, Auditor
from hudi_ingest.operations.keyed_audit import Comparison, KeyFault, Layout, NewestChanges
from hudi_ingest.pipeline.file import load_pipeline
from hudi_ingest.records.changes import DELETED, LEFT_OUT, KeyedRows
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.digests import key_hashes
from hudi_ingest.records.row_maker import BatchOutcome, RowMaker
from hudi_ingest.records.transform.chain import Chain
from hudi_ingest.transaction.write.reports import slice_report
from hudi_ingest.transaction.write.task import WriteTask, outcomes
from hudi_ingest_tests.support.task_reports import reports_of

pytestmark = pytest.mark.fast

SOURCES = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
RECORD = pa.schema([("id", pa.string()), ("n", pa.int64()), ("rank", pa.int64()), ("gone", pa.bool_())])
KAFKA = [pa.field("_kafka_partition", pa.int32(), False), pa.field("_kafka_offset", pa.int64(), False)]
COLUMNS = pa.schema([*RECORD, *KAFKA])
META = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
AVRO = {pa.string(): "string", pa.int64(): "long", pa.int32(): "int", pa.bool_(): "boolean"}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            *({"name": f"_hoodie_{name}", "type": ["null", "string"]} for name in META),
            *(
                {"name": name, "type": ["null", AVRO[kind]]}
                for name, kind in zip(RECORD.names, RECORD.types, strict=True)
            ),
            {"name": "_kafka_partition", "type": "int"},
            {"name": "_kafka_offset", "type": "long"},
        ],
    }
)
HUDI = pa.schema([*((f"_hoodie_{name}", pa.string()) for name in META), *COLUMNS])
KEYS, EACH, TRANSACTIONS, BUCKETS = 60, 40, 4, 2


@dataclass
class Made:
    """A keyed table that one transaction after another changed, and what audits it. A key's changes are in one Kafka partition."""

    folder: Path
    ordering: str | None = None
    values: dict[TopicPartition, list[bytes | None]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        draw = random.Random(7)
        for number, source in enumerate(SOURCES):
            self.values[source] = [
                self.value(f"{number}-{draw.randrange(KEYS)}", n, draw.randrange(1000), draw.random() < 0.2)
                for n in range(EACH * TRANSACTIONS)
            ]
        settings = {
            "name": "orders",
            "source": {"bootstrap_servers": "localhost:9092", "topics": ["orders"]},
            "table": {
                "base_path": str(self.folder / "table"),
                "schema": "id string, n long, rank long, gone boolean",
                "mode": "upsert",
                "key": ["id"],
                "buckets": BUCKETS,
                "partition_by": [],
                "delete_field": "gone",
                **({"ordering": self.ordering} if self.ordering else {}),
            },
        }
        file = self.folder / "orders.yaml"
        file.write_text(yaml.safe_dump(settings))
        self.pipeline = load_pipeline(file)
        self.storage = LocalStorage(str(self.folder / "table"))
        by = self.ordering or "_kafka_offset"
        self.maker = RowMaker(
            converter_for("json", RECORD),
            Chain.of(RECORD, ()),
            COLUMNS,
            record_key=("id",),
            keyed=KeyedRows(("id",), by, "gone"),
        )
        self.accountings: dict[str, Accounting] = {}
        self.logs: dict[str, list[str]] = defaultdict(list)
        self.bases: dict[str, str] = {}
        for number in range(TRANSACTIONS):
            instant = f"2026112112000{number}000"
            self.storage.write(heartbeat_path(instant), b"")
            epoch = TableEpoch(self.storage).advance(number + 1, f"t-{number}")
            layout = KeyedLayout(instant, epoch, (), ("id",), (by,), BUCKETS, SCHEMA, "zstd")
            task = WriteTask(self.storage, layout, self.maker, dict.fromkeys(SOURCES, 0), most_bad=None, certifies=True)
            slices = [Slice(s.topic, s.partition, number * EACH, (number + 1) * EACH) for s in SOURCES]
            reports = {r.partition: r for r in reports_of(outcomes(task, self.read(slices, ["key"])))}
            slice_reports = [slice_report(each, 0, [reports[each.partition]], 1.0) for each in slices]
            for written in {file.path for each in slice_reports for file in each.log_files}:
                self.logs[written.removeprefix(".").partition("_")[0]].append(written)
            plan = IngestPlan("orders", f"t-{number}", number + 1, tuple(slices))
            self.accountings[instant] = Accounting.from_json(Accounting.of(plan, slice_reports).to_json())
        end = EACH * TRANSACTIONS
        self.checkpoint = Checkpoint(
            TRANSACTIONS, "t", dict.fromkeys(SOURCES, end), covered=dict.fromkeys(SOURCES, ((0, end),))
        )
        self.stretches = stretches_of(self.accountings.values(), self.checkpoint)

    @staticmethod
    def value(key: str, n: int, rank: int, gone: bool) -> bytes:
        return json.dumps({"id": key, "n": n, "rank": rank, "gone": gone}).encode()

    def read(
        self, slices: Collection[Slice], columns: Collection[str]
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        for slice_ in slices:
            for start in range(slice_.start, slice_.end, EACH):
                numbers = [*range(start, min(start + EACH, slice_.end))]
                values = [self.values[slice_.source][number] for number in numbers]
                there = [value is not None for value in values]
                content = {
                    "offset": pa.array(numbers, pa.int64()),
                    "timestamp": pa.repeat(pa.scalar(0, RECORDS.field("timestamp").type), len(numbers)),
                    "value": pa.array(values, pa.binary()),
                    "key": pa.nulls(len(numbers), pa.binary()),
                }
                yield slice_.source, pa.RecordBatch.from_pydict(content).filter(pa.array(there))

    def groups(self) -> list[FileGroup]:
        return [
            FileGroup("", file_id, files=(self.bases.get(file_id, ""), *reversed(self.logs[file_id])))
            for file_id in sorted({*self.logs, *self.bases})
        ]

    def compact(self, change: Callable[[dict[str, list[object]]], None] = lambda rows: None) -> None:
        """Put the rows of all groups into base files, as a compaction does. `change` alters the rows of the first."""
        rows = self.rows()
        for number, group in enumerate(self.groups()):
            own = {key: row for key, row in rows.items() if row[1] == group.file_id}
            content: dict[str, list[object]] = {name: [row[0][name] for row in own.values()] for name in HUDI.names}
            if number == 0:
                change(content)
            self.bases[group.file_id] = f"{group.file_id}_0-1-0_20261121120009000.parquet"
            nullable = pa.schema([column.with_nullable(True) for column in HUDI])
            pq.write_table(pa.table(content, nullable), self.path(self.bases[group.file_id]), write_page_checksum=True)
        self.logs.clear()

    def rows(self) -> dict[str, tuple[dict[str, object], str]]:
        """By key each row, by a model of our own, and its file group."""
        from hudi_ingest.hudi.files.buckets import bucket_ids
        from hudi_ingest.hudi.files.file_groups import fixed_id

        newest: dict[str, tuple[tuple[object, int], int, dict[str, object]]] = {}
        for source, values in self.values.items():
            for offset, value in enumerate(values):
                assert value is not None
                change = json.loads(value)
                by = (change["rank"] if self.ordering else offset, offset)
                if change["id"] not in newest or by >= newest[change["id"]][0]:
                    newest[change["id"]] = by, source.partition, change
        found = {}
        for key, ((_, offset), partition, change) in newest.items():
            if not change["gone"]:
                (bucket,) = bucket_ids(pa.array([key]), ("id",), BUCKETS).tolist()
                instant = next(
                    i
                    for i, a in self.accountings.items()
                    if any(s.slice.start <= offset < s.slice.end for s in a.slices)
                )
                meta = {
                    "_hoodie_commit_time": instant,
                    "_hoodie_commit_seqno": "x",
                    "_hoodie_record_key": key,
                    "_hoodie_partition_path": "",
                    "_hoodie_file_name": fixed_id(bucket),
                }
                kafka = {"_kafka_partition": partition, "_kafka_offset": offset}
                found[key] = ({**meta, **change, **kafka}, fixed_id(bucket))
        return found

    def path(self, name: str) -> Path:
        return self.folder / "table" / name

    def audit(
        self, readable_from: int = 0, asked_from: int = 0, asked_to: int = EACH * TRANSACTIONS, gone: Sequence[str] = ()
    ) -> Audit:
        numbers = dict(enumerate(self.stretches))
        return Auditor(
            "orders",
            self.storage,
            [],
            self.stretches,
            frozenset(index for index, each in numbers.items() if asked_from <= each.start < asked_to),
            frozenset(index for index, each in numbers.items() if each.start >= readable_from),
            self.read,
            lambda: self.maker,
            lambda line: None,
            self.pipeline.table,
            ("id",),
            by_instant=self.accountings,
            groups=self.groups(),
            schema=HUDI,
            gone=dict.fromkeys(gone, "its commit published it, but the table does not list it"),
            sizes=self.sizes,
        ).run()


@pytest.mark.parametrize("ordering", [None, "rank"])
def test_p8_a_keyed_table_as_it_was_written_has_no_fault_before_and_after_compaction(
    tmp_path: Path, ordering: str | None
) -> None:
    made = Made(tmp_path, ordering)
    found = made.audit()
    assert (found.faults, found.unexamined, found.is_whole) == ((), (), True)
    assert (found.rows, found.records) == (len(made.rows()), 2 * EACH * TRANSACTIONS)
    assert found.through == {"orders:0": EACH * TRANSACTIONS, "orders:1": EACH * TRANSACTIONS}
    assert found.files == sum(map(len, made.logs.values())) > BUCKETS
    made.compact()
    found = made.audit()
    assert (found.faults, found.unexamined, found.files) == ((), (), BUCKETS)
    assert found.rows == len(made.rows()) > 40


def test_p8_what_was_not_read_is_not_as_it_was_written(tmp_path: Path) -> None:
    made = Made(tmp_path)
    found = made.audit(readable_from=2 * EACH)
    assert found.faults == ()
    assert found.through == {"orders:0": 0, "orders:1": 0}
    assert not found.is_whole
    named = [text for text in found.unexamined if text.startswith("orders:0[0,40)")]
    assert named == [
        "orders:0[0,40): the broker no longer has its records, so the rows of its keys were read, but not compared"
    ]
    # Only what is asked for is judged, but later changes are known.
    found = made.audit(asked_from=2 * EACH)
    assert (found.faults, found.unexamined) == ((), ())
    assert found.records == EACH * TRANSACTIONS
    found = made.audit(asked_from=EACH, asked_to=2 * EACH)
    assert (found.faults, found.unexamined, found.records) == ((), (), 2 * EACH)
    assert found.through == {"orders:0": 2 * EACH, "orders:1": 2 * EACH}
    nothing = made.audit(readable_from=EACH * TRANSACTIONS)
    assert (nothing.faults, nothing.rows, nothing.through) == ((), len(made.rows()), {"orders:0": 0, "orders:1": 0})


def newest_log(made: Made) -> str:
    """The log file whose rows nothing replaced."""
    return next(name for names in made.logs.values() for name in names if "20261121120003000" in name)


def test_p8_a_flipped_byte_in_a_log_file_is_found(tmp_path: Path) -> None:
    made = Made(tmp_path)
    name = newest_log(made)
    path = made.path(name)
    content = path.read_bytes()
    draw = random.Random(3)
    # Hudi's columns come first in a row: the record key is compared with the row's own columns, the others decide nothing.
    file_id = name[1:].partition("_")[0].encode()
    (length,) = struct.unpack_from(">q", content, len(MAGIC))
    rows = [found.end() for found in re.finditer(re.escape(file_id), content[: len(MAGIC) + 8 + length])]
    assert len(rows) > 8
    values = [row + place for row in rows for place in range(12)]
    for place in [*range(0, 22, 3), *draw.sample(values, 16)]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(flipped))
        found = made.audit()
        assert not found.is_right, place
        damaged = [fault for fault in found.faults if fault.kind == "damaged"]
        if damaged:
            assert found.faults == (damaged[0],), "one line for a file"
            assert name in damaged[0].text
            assert found.through == {"orders:0": 0, "orders:1": 0}


def test_a_log_file_is_checked_block_by_block() -> None:
    rows = pa.table(
        {name: ["a"] if kind == pa.string() else [None] for name, kind in zip(HUDI.names, HUDI.types, strict=True)}
    )
    rows = rows.set_column(9, "_kafka_partition", pa.array([1])).set_column(10, "_kafka_offset", pa.array([7]))
    typed = rows.cast(pa.schema([column.with_nullable(True) for column in HUDI]))
    sink = pa.BufferOutputStream()
    # Any value would be one, but for the page's checksum.
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(typed, sink, write_page_checksum=True, **plain)
    parquet = sink.getvalue().to_pybytes()
    avro = avro_block("20261121120000000", SCHEMA, typed)
    good = avro + parquet_block("20261121120000000", SCHEMA, parquet)
    changes = [*all_changes(good, HUDI)]
    assert [change.rows.num_rows for change in changes if isinstance(change, Upserts)] == [1, 1]
    page = len(avro) + good[len(avro) :].index((7).to_bytes(8, "little"))
    wrong = {
        "two lengths": good[:-1] + bytes([good[-1] ^ 1]),
        "cut off": good[:-1],
        "no block begins": good + b"x",
        "format version": good[:17] + bytes([good[17] ^ 2]) + good[18:],
        "kind 5 that cannot be decoded": good[:page] + bytes([good[page] ^ 1]) + good[page + 1 :],
        "kind 3 that cannot be decoded": good[: len(avro) - 14]
        + bytes([good[len(avro) - 14] ^ 0x80])
        + good[len(avro) - 13 :],
    }
    for text, content in wrong.items():
        with pytest.raises(UnreadableLog, match=text):
            [*all_changes(content, HUDI)]


@pytest.mark.parametrize("size", [0, 3, 0.5, 0.9])
def test_p8_a_log_file_that_is_cut_or_gone_is_one_fault(tmp_path: Path, size: float) -> None:
    made = Made(tmp_path)
    name = newest_log(made)
    content = made.path(name).read_bytes()
    made.sizes = {name: len(content)}
    made.path(name).write_bytes(content[: int(size * len(content)) if size < 1 else int(size)])
    (fault,) = made.audit().faults
    assert (fault.kind, name in fault.text) == ("damaged", True)
    made.path(name).unlink()
    (fault,) = made.audit().faults
    assert (fault.kind, name in fault.text) == ("damaged", True)
    # Not even listed.
    made.logs[name.removeprefix(".").partition("_")[0]].remove(name)
    (fault,) = made.audit(gone=[name]).faults
    assert (fault.kind, "its commit published it" in fault.text) == ("damaged", True)
    # Nothing says that it was there: its changes are missed one by one.
    kinds = {each.kind for each in made.audit().faults}
    assert "lost" in kinds
    assert kinds <= {"lost", "moved"}


def test_p8_rows_of_a_base_file_that_are_altered_deleted_or_not_the_newest_are_named(tmp_path: Path) -> None:
    def altered(rows: dict[str, list[object]]) -> None:
        rows["n"][3] = -1

    def deleted(rows: dict[str, list[object]]) -> None:
        for values in rows.values():
            del values[5]

    def doubled(rows: dict[str, list[object]]) -> None:
        for values in rows.values():
            values.append(values[2])
        rows["_hoodie_record_key"][-1] = rows["id"][-1] = "another"

    def renamed(rows: dict[str, list[object]]) -> None:
        rows["_hoodie_record_key"][4] = "another"

    def moved_back(rows: dict[str, list[object]]) -> None:
        rows["_hoodie_commit_time"][1] = "20300101000000000"

    for change, place, kinds in (
        (altered, 3, ["altered"]),
        (deleted, 5, ["lost"]),
        (doubled, 2, ["moved"]),
        (renamed, 4, ["altered", "lost", "moved"]),
        (moved_back, 1, ["altered"]),
    ):
        folder = tmp_path / change.__name__
        folder.mkdir()
        made = Made(folder)
        file_id = min(made.logs)
        own = [row[0] for row in made.rows().values() if row[1] == file_id]
        made.compact(change)
        faults = made.audit().faults
        where = (own[place]["_kafka_partition"], own[place]["_kafka_offset"])
        assert {(each.partition, each.offset) for each in faults} == {where}, change.__name__
        assert sorted({each.kind for each in faults}) == kinds, change.__name__


def test_p8_an_older_row_and_one_that_was_deleted_are_named_by_the_change_that_is_lost(tmp_path: Path) -> None:
    made = Made(tmp_path)
    rows = made.rows()
    # The newest commit's files are gone, and nothing says that they were there.
    for names in made.logs.values():
        names[:] = [name for name in names if "20261121120003000" not in name]
    faults = made.audit().faults
    assert {fault.kind for fault in faults} == {"lost"}
    assert all(fault.offset >= 3 * EACH for fault in faults)
    newest = {
        (partition, offset)
        for row, _ in rows.values()
        for partition, offset in [(row["_kafka_partition"], row["_kafka_offset"])]
        if offset >= 3 * EACH  # type: ignore[operator]
    }
    assert newest <= {(fault.partition, fault.offset) for fault in faults}
    deletes = [fault for fault in faults if (fault.partition, fault.offset) not in newest]
    assert deletes
    assert all("it deletes its key, but the table still has that of" in fault.text for fault in deletes)


def test_p8_what_compaction_of_the_topic_removed_is_no_fault(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for source, values in made.values.items():
        last = {json.loads(value)["id"]: offset for offset, value in enumerate(values) if value is not None}
        made.values[source] = [
            value if value is not None and last[json.loads(value)["id"]] == offset else None
            for offset, value in enumerate(values)
        ]
    found = made.audit()
    assert found.faults == ()
    assert any("compacted away" in text for text in found.unexamined)
    assert found.through == {"orders:0": 0, "orders:1": 0}


def test_p8_a_row_that_is_written_while_the_table_is_read_is_no_fault(tmp_path: Path) -> None:
    made = Made(tmp_path)
    row, file_id = next(iter(made.rows().values()))
    later = {**row, "n": 5, "_kafka_offset": EACH * TRANSACTIONS + 7, "_hoodie_commit_time": "20261121120008000"}
    block = avro_block("20261121120008000", SCHEMA, pa.table({name: [later[name]] for name in HUDI.names}, HUDI))
    name = f".{file_id}_20261121120008000.log.1_0-{1:019d}-{1:020d}"
    made.path(name).write_bytes(block)
    made.logs[file_id].append(name)
    found = made.audit()
    assert (found.faults, found.unexamined) == ((), ())


def test_p8_rows_of_another_system_are_not_judged(tmp_path: Path) -> None:
    def theirs(rows: dict[str, list[object]]) -> None:
        for name in ("_kafka_partition", "_kafka_offset"):
            rows[name][2] = None

    made = Made(tmp_path)
    made.compact(theirs)
    found = made.audit()
    assert found.faults == ()
    assert any("rows without Kafka's columns" in text for text in found.unexamined)
    assert "the rows of 1 key: no record is known to be that of their rows" in found.unexamined
    base = made.path(min(made.bases.values()))
    pq.write_table(pq.ParquetFile(base).read().drop_columns(["_kafka_partition", "_kafka_offset"]), base)
    found = made.audit()
    assert {fault.kind for fault in found.faults} <= {"lost"}
    assert not found.is_whole


def test_p8_bad_records_leave_it_open_what_became_of_their_keys(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.compact(_without_first)
    (fault,) = made.audit().faults
    for instant, accounting in made.accountings.items():
        slices = tuple(replace(each, rejected=1) for each in accounting.slices)
        made.accountings[instant] = replace(accounting, slices=slices)
    found = made.audit()
    assert (fault.kind, found.faults) == ("lost", ())
    assert found.unexamined == (
        "the rows of 1 key: bad records, or values that the database left out, decide what became of them",
    )


def _without_first(rows: dict[str, list[object]]) -> None:
    for values in rows.values():
        del values[0]


Change = tuple[int, str, int, int, bool]
"""A Kafka partition, a key, an offset, an ordering value, and whether it deletes."""


def changes(
    layout: Layout, *batches: Sequence[Change], left_out: bool = False, truncated_at: int | None = None
) -> NewestChanges:
    found = NewestChanges(layout)
    for batch in batches:
        content = {
            "id": [key for _, key, *_ in batch],
            "n": [offset for _, _, offset, *_ in batch],
            "rank": [rank for *_, rank, _ in batch],
            "gone": [gone for *_, gone in batch],
            "_kafka_partition": [code for code, *_ in batch],
            "_kafka_offset": [offset for _, _, offset, *_ in batch],
        }
        rows = pa.table(content, COLUMNS).append_column(DELETED, pa.array([gone for *_, gone in batch], pa.bool_()))
        if left_out:
            rows = rows.append_column(LEFT_OUT, pa.array([["n"]] * len(batch), pa.list_(pa.string())))
        code = batch[0][0]
        found.note_read(code, rows["_kafka_offset"].to_numpy())
        outcome = BatchOutcome(rows, None, truncated_at=truncated_at if batch is batches[-1] else None)
        found.add(code, outcome, lambda rows: rows["n"].to_numpy())
    return found


def in_table(*rows: tuple[int, str, int]) -> pa.Table:
    """Rows with a Kafka partition, a key and an offset, as `changes` would hash them."""
    codes, keys, offsets = zip(*rows, strict=True) if rows else ((), (), ())
    numbers = {"code": codes, "offset": offsets, "hash": offsets}
    hashes = key_hashes("", pa.array(keys, pa.string()))
    return pa.table({**{name: pa.array(each, pa.int64()) for name, each in numbers.items()}, "key": hashes})


def judged(
    found: NewestChanges, rows: pa.Table, by_offset: bool = True, unread: bool = False
) -> tuple[list[KeyFault], list[str]]:
    covered = dict.fromkeys(SOURCES, ((0, 100),))
    asked = {SOURCES[0]: ((0, 100),), SOURCES[1]: ((50, 100),) if unread else ((0, 100),)}
    comparison = Comparison(SOURCES, found, covered, asked, by_offset=by_offset)
    faults = [*comparison.faults(rows)]
    return [(code, kind, offset, text.partition(";")[0]) for code, kind, offset, text in faults], [*comparison.doubts]


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return Layout(Made(tmp_path_factory.mktemp("layout")).pipeline.table, ("id",), True)


def test_p8_only_what_is_certain_is_a_fault(layout: Layout) -> None:
    lost = "its record has a row, which is not in the table"
    found = changes(layout, [(0, "a", 1, 0, False), (0, "b", 2, 0, False), (0, "a", 3, 0, False)])
    assert judged(found, in_table((0, "a", 3), (0, "b", 2))) == ([], [])
    assert judged(found, in_table((0, "a", 3))) == ([(0, "lost", 2, lost)], [])
    stale = "its row is its key's newest, but the table still has that of orders:0 offset 1"
    assert judged(found, in_table((0, "a", 1), (0, "b", 2))) == ([(0, "lost", 3, stale)], [])
    assert judged(found, in_table((0, "a", 3), (0, "b", 2), (0, "b", 2)))[0][0][:3] == (0, "doubled", 2)
    foreign = "the table has a row that its record does not leave"
    assert judged(found, in_table((0, "a", 3), (0, "b", 2), (0, "c", 1))) == ([(0, "moved", 1, foreign)], [])
    # A row whose record is no longer there: an older one is stale, a later one may be right.
    assert judged(found, in_table((0, "a", 0), (0, "b", 2)))[0][0][:3] == (0, "lost", 3)
    faults, doubts = judged(found, in_table((0, "a", 9), (0, "b", 2)))
    assert (faults, doubts) == ([], ["the records of their rows are no longer in the topics"])
    # A filled value is not known; the row's place is.
    filled = changes(layout, [(0, "a", 1, 0, False)], left_out=True)
    assert judged(filled, in_table((0, "a", 1)).set_column(2, "hash", pa.array([77])))[0] == []
    assert judged(filled, in_table((0, "a", 1)))[0] == []


def test_p8_changes_of_several_kafka_partitions_and_an_ordering_column(layout: Layout, tmp_path: Path) -> None:
    both = changes(layout, [(0, "a", 5, 0, False)], [(1, "a", 7, 0, True)], [(1, "b", 5, 0, False)])
    assert judged(both, in_table((1, "b", 5))) == ([], [])
    doubt = "a change that orders before their delete may have come after it"
    assert judged(both, in_table((1, "b", 5), (0, "a", 5))) == ([], [doubt])
    tie = changes(layout, [(0, "a", 5, 0, False)], [(1, "a", 5, 0, False)])
    for code in (0, 1):
        assert judged(tie, in_table((code, "a", 5)))[0] == []
    assert tie.crosses
    # An unread record of the other Kafka partition may have deleted a key, but only where keys cross.
    assert judged(both, in_table((1, "b", 5)), unread=True) == ([], [])
    crossing = changes(layout, [(0, "a", 5, 0, False), (0, "c", 6, 0, False)], [(1, "a", 7, 0, False)])
    assert judged(crossing, in_table((1, "a", 7)))[0][0][:3] == (0, "lost", 6)
    assert judged(crossing, in_table((1, "a", 7)), unread=True)[0] == []
    apart = changes(layout, [(0, "a", 5, 0, False), (0, "c", 6, 0, False)])
    assert judged(apart, in_table((0, "a", 5)), unread=True)[0][0][:3] == (0, "lost", 6)
    made = Made(tmp_path, "rank")
    ranked = changes(Layout(made.pipeline.table, ("id",), True), [(0, "a", 1, 9, False), (0, "a", 2, 3, False)])
    assert judged(ranked, in_table((0, "a", 1)), by_offset=False) == ([], [])
    assert judged(ranked, in_table((0, "a", 2)), by_offset=False)[0][0][:3] == (0, "lost", 1)


def test_p8_a_truncate_ends_what_was_before_it(layout: Layout) -> None:
    parts = [[(0, "a", 1, 0, False), (0, "b", 2, 0, False)], [(0, "c", 3, 0, False), (0, "d", 5, 0, False)]]
    found = changes(layout, *parts, truncated_at=4)
    assert judged(found, in_table((0, "d", 5))) == ([], [])
    assert judged(found, in_table((0, "d", 5), (0, "a", 1)))[0][0][:3] == (0, "moved", 1)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abc"), st.integers(0, 3), st.booleans()), max_size=12),
    st.integers(1, 4),
)
def test_p8_the_newest_change_of_each_key_is_that_of_a_dictionary(
    layout: Layout, drawn: list[tuple[int, str, int, bool]], waiting: int
) -> None:
    every = [(code, key, offset, rank, gone) for offset, (code, key, rank, gone) in enumerate(drawn)]
    newest: dict[str, Change] = {}
    for each in every:
        newest[each[1]] = each
    before, keyed_audit._MOST_WAITING = keyed_audit._MOST_WAITING, waiting
    try:
        found = changes(layout, *([each] for each in every))
    finally:
        keyed_audit._MOST_WAITING = before
    rows = in_table(*((code, key, offset) for code, key, offset, _, gone in newest.values() if not gone))
    assert judged(found, rows) == ([], [])
    held = found.newest()
    assert sorted(held["offset"].to_pylist()) == sorted(offset for _, _, offset, *_ in newest.values())
    assert found.crosses == any(len({c for c, k, *_ in every if k == key}) > 1 for key in "abc")
