"""Writing a slice, as far as it needs no Spark: accounting, refusals, batch sizes, and the worker's task on plain Arrow."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from pyspark import TaskContext

from hudi_ingest.exceptions import (
    ExpectationViolated,
    Fenced,
    IngestError,
    LogTruncated,
    RangeRefused,
    RegistryUnreachable,
    SchemaOutdated,
    TableUnreachable,
    WriteIncomplete,
)
from hudi_ingest.hudi.files import keyed_writer
from hudi_ingest.hudi.files.left_out import NOT_THERE
from hudi_ingest.hudi.files.new_files import BaseFileLayout, KeyedLayout
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.kafka.records import RECORDS
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.certificate import Certificate
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan, ReplacedFile
from hudi_ingest.model.report import BaseFile, SliceReport
from hudi_ingest.pipeline.sections.source import KafkaSource
from hudi_ingest.records.changes import KeyedRows
from hudi_ingest.records.convert.connect.debezium import (
    UNAVAILABLE,
    AvailableValues,
    DebeziumConverter,
    NamingFields,
    event_schema,
)
from hudi_ingest.records.convert.connect.json import ConnectJsonConverter
from hudi_ingest.records.convert.converter import Decoded
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.row_maker import RowMaker
from hudi_ingest.records.transform.chain import Chain, Step
from hudi_ingest.records.transform.columns import Drop, Filter, InsertKafka, Mask, Redact
from hudi_ingest.records.transform.sql import Expect
from hudi_ingest.transaction.checks import require_complete
from hudi_ingest.transaction.dead_letters.letter_file import LetterLayout
from hudi_ingest.transaction.write.job import root_cause
from hudi_ingest.transaction.write.reports import longest_gaps, require_all_replaced, slice_report
from hudi_ingest.transaction.write.task import (
    LONGEST_GAPS,
    CopyTask,
    OutOfOrder,
    RangeProgress,
    RangesToRead,
    TaskReport,
    WriteTask,
    _note_offsets,
    outcomes,
    packed,
    require_none,
    run_copies,
    run_ranges,
)
from hudi_ingest_tests.support.task_reports import reports_of, written

INSTANT = "20261121120000000"
RECORD = pa.schema([("id", pa.string()), ("n", pa.int64())])
COLUMNS = pa.schema(
    [*RECORD, pa.field("_kafka_partition", pa.int32(), False), pa.field("_kafka_offset", pa.int64(), False)]
)
WHOLE = Slice("orders", 3, 10, 30)


def task(first: int, last: int, rows: int, **counts: int) -> TaskReport:
    return TaskReport(
        topic="orders",
        partition=3,
        first_offset=first,
        last_offset=last,
        rows=rows,
        value_bytes=rows * 10,
        files=(),
        bad_records=(),
        **counts,  # type: ignore[arg-type]
    )


def test_p1_each_count_of_tasks_is_that_of_the_slice_and_of_the_accounting() -> None:
    """All numbers differ, so that no two can change places."""
    first = task(10, 79, 1, skipped=2, filtered=4, rejected=8, deletes=16, superseded=32, moves=3)
    control = {"heartbeats": 41, "boundaries": 42, "ddl": 43, "messages": 44, "truncates": 28, "truncated": 45}
    second = task(80, 1099, 100, skipped=200, filtered=300, rejected=400, deletes=5, superseded=6, moves=7, **control)
    expected = {
        "rows": 101,
        "skipped": 202,
        "filtered": 304,
        "rejected": 408,
        "gaps": 1090 - 101 - 202 - 304 - 408,
        "deletes": 21,
        "superseded": 38,
        "moves": 10,
        **control,
    }
    whole = Slice("orders", 3, 10, 1100)
    report = slice_report(whole, 9, [second, first], 1.0)
    assert report.accounted
    assert report.counts == expected
    plan = IngestPlan("orders", "t1", 1, (whole,))
    (account,) = json.loads(Accounting.of(plan, [report]).to_json())["slices"]
    place = {"topic": "orders", "partition": 3, "start": 10, "end": 1100, "attempt": 9}
    assert account == place | expected


def test_p1_violations_of_tasks_add_up_in_the_accounting() -> None:
    tasks = [
        replace(task(10, 19, 10), violations={"paid": 2}),
        replace(task(20, 29, 10), violations={"paid": 1, "x": 4}),
    ]
    report = slice_report(WHOLE, 0, tasks, 1.0)
    assert SliceReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    accounting = Accounting.of(IngestPlan("orders", "t1", 1, (WHOLE,)), [report])
    assert Accounting.from_json(accounting.to_json()).violations == {"paid": 3, "x": 4}
    assert (
        "violations"
        not in Accounting.of(IngestPlan("orders", "t1", 1, (WHOLE,)), [slice_report(WHOLE, 0, [], 1.0)]).to_json()
    )


def test_expectations_are_counted_and_those_that_are_fatal_end_the_task(writing: WriteTask) -> None:
    steps = [Step("e", Expect("even", "n % 2 = 0", rejects=False)), Step("f", Expect("small", "n < 7", rejects=True))]
    judging = replace(writing, maker=replace(writing.maker, chain=Chain.of(RECORD, steps)), most_bad=None)
    values: list[bytes | None] = [json.dumps({"id": "a", "n": n}).encode() for n in range(5, 10)]
    report = run(judging, batch(10, values))
    assert (report.rows, report.rejected, report.violations) == (2, 3, {"even": 3, "small": 3})
    (failed,) = outcomes(
        replace(judging, fatal=frozenset({"small"})), iter([(TopicPartition("orders", 3), batch(10, values))])
    )
    assert isinstance(failed, bytes)
    with pytest.raises(ExpectationViolated) as raised:
        require_none([failed])
    place = raised.value
    assert (place.topic, place.partition, place.offset) == ("orders", 3, 12)
    assert str(place).startswith(
        "orders:3:12 field n: expected small: n < 7, by f, found 7, and 2 records after it: the severity of expectation small is fail"
    )


def test_p1_what_the_tasks_did_not_see_is_a_gap() -> None:
    report = slice_report(WHOLE, 0, [task(21, 29, 8, skipped=1), task(10, 19, 9)], 1.0)
    assert (report.rows, report.skipped, report.gaps) == (17, 1, 2)
    assert report.accounted
    empty = slice_report(WHOLE, 0, [], 1.0)
    assert (empty.rows, empty.gaps) == (0, 20)


def test_p1_x3_the_longest_gaps_of_a_slice_are_known() -> None:
    tasks = [replace(task(21, 28, 4), longest_gaps=((22, 25), (27, 28))), task(12, 19, 8)]
    found = longest_gaps([WHOLE, Slice("orders", 4, 5, 9), Slice("orders", 5, 5, 5)], tasks)
    assert [(each.partition, each.start, each.end) for each in found] == [
        (3, 22, 25),
        (3, 10, 12),
        (3, 20, 21),
        (4, 5, 9),
    ]
    assert longest_gaps([WHOLE], [task(10, 29, 20)]) == ()


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(1, 7))
def test_p1_x3_a_task_reports_its_longest_gaps(offsets: set[int], rows: int) -> None:
    found = sorted(offsets)
    seen: dict[TopicPartition, RangeProgress] = {}
    source = TopicPartition("orders", 3)
    for at in range(0, len(found), rows):
        _note_offsets(seen, source, pa.record_batch({"offset": pa.array(found[at : at + rows], pa.int64())}))
    gaps = [(a + 1, b) for a, b in itertools.pairwise(found) if b > a + 1]
    assert len(seen[source].gaps) == min(len(gaps), LONGEST_GAPS)
    assert set(seen[source].gaps) <= set(gaps)
    lengths = sorted((end - start for start, end in gaps), reverse=True)
    assert [end - start for start, end in seen[source].gaps] == lengths[:LONGEST_GAPS]


@pytest.mark.parametrize("tasks", [[(10, 20), (20, 29)], [(9, 12)], [(10, 30)], [(10, 12), (11, 11)]])
def test_p2_tasks_that_overlap_or_leave_the_range_are_refused(tasks: list[tuple[int, int]]) -> None:
    with pytest.raises(WriteIncomplete, match=r"orders:3\[10,30\)"):
        slice_report(WHOLE, 0, [task(first, last, 1) for first, last in tasks], 1.0)


def test_rivals_wound_a_report_stays_small_however_long_the_slice_is() -> None:
    """Hudi's Kafka Connect sink reports 91 bytes a record, and stalls without a word at a message limit of 1 MiB."""
    rows, days, rows_per_file = 5_000_000, 3, 2_000_000
    tasks = []
    for first in range(0, rows, rows_per_file):
        count = min(rows_per_file, rows - first)
        files = tuple(
            BaseFile(
                f"dt=2026-01-0{day}",
                "0199aa00-0000-8003-8000-00000000000a-0",
                f"dt=2026-01-0{day}/0199aa00-0000-8003-8000-00000000000a-0_3-0-0_{INSTANT}.parquet",
                count // days,
                120_000_000,
                first,
                first + count - 1,
            )
            for day in range(days)
        )
        tasks.append(replace(task(first, first + count - 1, count), value_bytes=count * 190, files=files))
    report = slice_report(Slice("orders", 3, 0, rows), 0, tasks, 100.0)
    assert report.rows == rows
    assert len(json.dumps(report.to_dict())) < 4096
    assert all(len(json.dumps(asdict(each))) < 2048 for each in tasks)


def test_the_root_cause_of_a_spark_error_is_one_line() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n'
        "OSError: [Errno 28] No space left on device\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.run(PythonRunner.scala:1)\n"
    )
    assert root_cause(text) == "OSError: [Errno 28] No space left on device"
    assert root_cause("") == "no text"


@pytest.fixture
def writing(tmp_path: Path) -> WriteTask:
    storage = LocalStorage(str(tmp_path / "table"))
    storage.write(heartbeat_path(INSTANT), b"")
    epoch = TableEpoch(storage).advance(1, "t-1")
    layout = BaseFileLayout(INSTANT, epoch, (), 1000, 1 << 30, "zstd")
    maker = RowMaker(converter_for("json", RECORD), Chain.of(RECORD, ()), COLUMNS)
    return WriteTask(storage, layout, maker, {TopicPartition("orders", 3): 2})


def batch(first: int, values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["orders"] * count,
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.binary()),
        }
    )


def run(writing: WriteTask, *batches: pa.RecordBatch) -> TaskReport:
    (report,) = reports_of(written(writing, iter(batches)))
    return report


def good(number: int) -> bytes:
    return json.dumps({"id": f"o{number}", "n": number}).encode()


def test_a_task_writes_rows_and_counts_tombstones(writing: WriteTask) -> None:
    report = run(writing, batch(5, [good(5), None, good(7)]), batch(8, []), batch(20, [good(20)]))
    assert (report.first_offset, report.last_offset) == (5, 20)
    assert (report.rows, report.skipped, report.rejected) == (3, 1, 0)
    (file,) = report.files
    assert "_3-2-0_" in file.path, "partition, the op's attempt and the task's attempt are in the write token"
    assert writing.storage.parquet_footer(file.path).num_rows == 3


def test_p1_a_tombstone_is_skipped_a_row_or_a_bad_record_and_always_accounted_for(writing: WriteTask) -> None:
    records = [good(5), None, good(7), None]
    whole = Slice("orders", 3, 5, 9)
    skipping = run(writing, batch(5, records))
    assert (skipping.rows, skipping.skipped, skipping.rejected) == (2, 2, 0)
    assert slice_report(whole, 0, [skipping], 1.0).accounted
    as_rows = run(replace(writing, maker=replace(writing.maker, on_tombstone="row")), batch(5, records))
    assert (as_rows.rows, as_rows.skipped, as_rows.rejected) == (4, 0, 0)
    assert slice_report(whole, 0, [as_rows], 1.0).accounted
    (file,) = as_rows.files
    found = pq.read_table(f"{writing.storage.base_path}/{file.path}").select(["id", "n", "_kafka_offset"]).to_pylist()
    assert found[1::2] == [
        {"id": None, "n": None, "_kafka_offset": 6},
        {"id": None, "n": None, "_kafka_offset": 8},
    ]
    failing = run(replace(writing, maker=replace(writing.maker, on_tombstone="fail")), batch(5, records))
    assert (failing.rejected, failing.files) == (2, ())
    told = "orders:3:6: expected a value, because on_tombstone is fail, found a tombstone"
    assert str(failing.bad_records[0]).startswith(told)


def test_p1_a_task_counts_control_records_by_kind_and_accounts_for_them_once(writing: WriteTask) -> None:
    rows = ConnectJsonConverter(event_schema(RECORD, NamingFields(())), framed=False)
    events = DebeziumConverter(rows, RECORD, NamingFields(()), inserts_only=True, refused_truncates="")
    row = {"op": "c", "after": json.loads(good(1))}
    values = [{"ts_ms": 5}, row, {"op": "t"}, {"ts_ms": 6}, {"op": "m"}]
    mirror = replace(writing, maker=replace(writing.maker, converter=events))
    report = run(mirror, batch(5, [*(json.dumps(value).encode() for value in values), None]))
    whole = slice_report(Slice("orders", 3, 5, 11), 2, [report], 1.0)
    assert (whole.rows, whole.skipped, whole.heartbeats, whole.truncates, whole.messages) == (1, 5, 2, 1, 1)
    assert whole.accounted
    assert SliceReport.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole


def test_p1_p8_a_task_of_a_keyed_table_counts_deletes_and_changes_that_were_superseded(writing: WriteTask) -> None:
    record = pa.schema([*RECORD, ("gone", pa.bool_())])
    schema = json.dumps({"type": "record", "name": "order", "fields": [{"name": "id", "type": ["null", "string"]}]})
    layout = KeyedLayout(INSTANT, writing.layout.epoch, (), ("id",), ("_kafka_offset",), 2, schema, "zstd")
    maker = RowMaker(
        converter_for("json", record),
        Chain.of(record, ()),
        COLUMNS,
        record_key=("id",),
        keyed=KeyedRows(("id",), delete_field="gone"),
    )
    changes = [("a", 1, False), ("b", 1, False), ("a", 2, True), ("c", 1, True), ("", 1, False), ("b", 3, False)]
    changes += [("b", 4, False), ("d", 5, True), ("e", 6, True)]
    values: list[bytes | None] = [json.dumps({"id": key, "n": n, "gone": gone}).encode() for key, n, gone in changes]
    report = run(replace(writing, layout=layout, maker=maker, most_bad=None), batch(5, values))
    whole = slice_report(Slice("orders", 3, 5, 16), 2, [report], 1.0)
    assert (whole.rows, whole.rejected, whole.gaps, whole.deletes, whole.superseded) == (8, 1, 2, 4, 3)
    assert whole.accounted
    assert whole.files == ()
    assert sum(file.rows for file in whole.written) == whole.rows_in_files == 5
    assert (sum(file.upserts for file in whole.log_files), sum(file.deletes for file in whole.log_files)) == (1, 4)
    assert SliceReport.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole


def mirroring(writing: WriteTask) -> WriteTask:
    """Of a keyed table with Debezium's events."""
    names = {"_hoodie_record_key": ["null", "string"], "_kafka_offset": "long"}
    fields = [{"name": name, "type": kind} for name, kind in names.items()]
    schema = json.dumps({"type": "record", "name": "order", "fields": fields})
    naming = NamingFields(("id",))
    events = ConnectJsonConverter(event_schema(RECORD, naming), framed=False)
    maker = RowMaker(
        DebeziumConverter(events, RECORD, naming, refused_truncates=""),
        Chain.of(RECORD, ()),
        COLUMNS,
        record_key=("id",),
        keyed=KeyedRows(("id",)),
        applies_truncates=True,
    )
    layout = KeyedLayout(INSTANT, writing.layout.epoch, (), ("id",), ("_kafka_offset",), 2, schema, "zstd")
    return replace(writing, layout=layout, maker=maker, most_bad=None)


def events_of(*keys: str) -> list[bytes | None]:
    """Inserts of keys; t truncates."""
    rows = [{"op": "t"} if key == "t" else {"op": "c", "after": {"id": key, "n": 1}} for key in keys]
    return [json.dumps(row).encode() for row in rows]


def test_p1_p8_a_task_accounts_for_a_truncate_and_for_what_it_deletes(
    writing: WriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_writer, "BUFFERED_BYTES", 1)
    whole = Slice("orders", 3, 5, 14)
    batches = (
        batch(5, events_of("a", "b")),
        batch(7, events_of("c", "t", "d", "t", "e")),
        batch(12, events_of("f", "g")),
    )
    report = slice_report(whole, 2, [run(mirroring(writing), *batches)], 1.0)
    # a and b are in a file before the truncate; c and d never are.
    counts = report.rows, report.skipped, report.truncates, report.superseded, report.truncated
    assert counts == (7, 2, 2, 2, 2)
    assert report.accounted
    assert sum(file.rows for file in report.written) == report.rows_in_files == 7
    assert SliceReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    require_complete(IngestPlan("orders", "t1", 1, (whole,)), [report])
    control = replace(mirroring(writing), maker=replace(mirroring(writing).maker, applies_truncates=False))
    skipped = run(replace(control, attempts={TopicPartition("orders", 3): 3}), *batches)
    assert (skipped.rows, skipped.truncates, skipped.truncated, skipped.superseded) == (7, 2, 0, 0)


def test_a_truncate_is_left_to_a_task_that_reads_the_whole_slice(writing: WriteTask) -> None:
    source = TopicPartition("orders", 3)
    task = replace(mirroring(writing), divided=frozenset([source]))
    assert run(task, batch(5, events_of("a"))).rows == 1
    (error,) = outcomes(task, iter([(source, batch(6, events_of("a", "t")))]))
    assert isinstance(error, bytes)
    with pytest.raises(OutOfOrder):
        require_none([error])


def filling(writing: WriteTask) -> WriteTask:
    """Of a keyed table whose text `note` may be left out."""
    record = pa.schema([*RECORD, ("note", pa.string())])
    names = {"id": ["null", "string"], "note": ["null", "string"]}
    fields = [{"name": name, "type": kind} for name, kind in names.items()]
    schema = json.dumps({"type": "record", "name": "order", "fields": fields})
    maker = RowMaker(
        AvailableValues(converter_for("json", record), filled=True),
        Chain.of(record, ()),
        pa.schema([*record, *(COLUMNS.field(place) for place in (2, 3))]),
        record_key=("id",),
        keyed=KeyedRows(("id",)),
    )
    layout = KeyedLayout(INSTANT, writing.layout.epoch, (), ("id",), ("_kafka_offset",), 1, schema, "zstd")
    return replace(writing, layout=layout, maker=maker, most_bad=None)


def noted(*notes: tuple[str, str]) -> list[bytes | None]:
    return [json.dumps({"id": key, "n": 1, "note": note}).encode() for key, note in notes]


def test_p1_rows_that_nothing_fills_are_bad_records_and_dead_letters(writing: WriteTask) -> None:
    task = replace(filling(writing), letters=LetterLayout(INSTANT, "orders", "t-1", "shape", False))
    values = noted(("a", "one"), ("a", UNAVAILABLE), ("b", UNAVAILABLE), ("c", "three"))
    report = run(task, with_keys_and_headers(batch(5, values)))
    whole = slice_report(Slice("orders", 3, 5, 9), 2, [report], 1.0)
    assert (whole.rows, whole.rejected, whole.superseded, whole.rows_in_files) == (3, 1, 1, 2)
    assert whole.accounted
    ((note,), (letters,)) = report.bad_records, report.letters
    assert (note.offset, note.field, note.found) == (7, "note", NOT_THERE)
    assert "snapshot" in note.expected
    (letter,) = pq.read_table(f"{task.storage.base_path}/{letters.path}").to_pylist()
    assert (letter["offset"], letter["value"], letter["field"]) == (7, values[2], "note")
    strict = replace(task, most_bad=0, attempts={TopicPartition("orders", 3): 3})
    refused = run(strict, with_keys_and_headers(batch(5, values)))
    assert (refused.rejected, refused.files, refused.letters) == (1, (), ())


def with_keys_and_headers(records: pa.RecordBatch) -> pa.RecordBatch:
    headers = pa.array([None] * records.num_rows, RECORDS.field("headers").type)
    keys = pa.array([None] * records.num_rows, pa.binary())
    return records.append_column("key", keys).append_column("headers", headers)


def test_a_task_that_reads_a_part_of_a_slice_leaves_rows_that_need_an_earlier_one_to_one_that_reads_it_whole(
    writing: WriteTask,
) -> None:
    parts = tuple((Slice("orders", 3, start, start + 5),) for start in (0, 5))
    reading = RangesToRead(None, "", (*parts, (Slice("orders", 4, 0, 9),)), frozenset())  # type: ignore[arg-type]
    source = TopicPartition("orders", 3)
    assert [list(reading.divided(number)) for number in range(3)] == [[source], [source], []]
    task = replace(filling(writing), divided=frozenset(reading.divided(1)))
    assert run(task, batch(5, noted(("a", "one")))).rows == 1
    (error,) = outcomes(task, iter([(TopicPartition("orders", 3), batch(6, noted(("a", UNAVAILABLE))))]))
    assert isinstance(error, bytes)
    with pytest.raises(OutOfOrder):
        require_none([error])


def test_p1_a_replay_counts_records_whose_rows_go_and_writes_no_others_if_deletes_are_respected(
    writing: WriteTask,
) -> None:
    replaced = {TopicPartition("orders", 3): ((5, 6), (7, 9), (20, 22))}
    records = [batch(5, [good(5), good(6), None, good(8)]), batch(20, [good(20)])]
    again = run(replace(writing, replaced=replaced), *records)
    assert (again.rows, again.skipped, again.filtered, again.replaced) == (4, 1, 0, 4)
    kept = run(replace(writing, replaced=replaced, only_replaced=True), *records)
    assert (kept.rows, kept.skipped, kept.filtered, kept.replaced) == (3, 1, 1, 4)
    none = run(replace(writing, only_replaced=True), *records)
    assert (none.rows, none.filtered, none.files) == (0, 5, ())
    with pytest.raises(RangeRefused, match="orders:3: 1 of 5 records with a row in the table are no longer in Kafka"):
        require_all_replaced("t", replaced, [kept])
    require_all_replaced("t", {TopicPartition("orders", 3): ((5, 6), (7, 9), (20, 21))}, [kept])


def test_a_task_with_a_bad_record_reports_it_and_leaves_no_file(writing: WriteTask) -> None:
    report = run(writing, batch(5, [good(5), b"{}}"]), batch(7, [good(7), b'{"n": "x"}']))
    assert report.rejected == 2
    assert str(report.bad_records[0]).startswith("orders:3:6: expected")
    assert str(report.bad_records[1]) == 'orders:3:8 field n: expected int (64 bit), found "x"'
    assert report.files == ()
    assert list(Path(writing.storage.base_path).rglob("*.parquet")) == []


def test_a_report_is_small_however_many_records_are_bad(writing: WriteTask) -> None:
    report = run(writing, batch(0, [b"bad"] * 5000))
    assert report.rejected == 5000
    assert len(report.bad_records) == 5


@pytest.mark.parametrize(
    ("value", "size"), [("z" * 252, 255), ("z" * 253, 256), ("/" * 84, 255), ("/" * 85, 258), ("é" * 126, 255)]
)
def test_h4_a_value_too_long_for_a_folders_name_is_a_bad_record(writing: WriteTask, value: str, size: int) -> None:
    columns = ("n", "id")
    partitioned = replace(
        writing,
        layout=replace(writing.layout, partition_by=columns),
        maker=replace(writing.maker, partition_by=columns),
    )
    records: list[bytes | None] = [
        good(5),
        json.dumps({"id": value, "n": 6}).encode(),
        json.dumps({"id": None, "n": 7}).encode(),
    ]
    report = run(partitioned, batch(5, records))
    if size <= 255:
        assert (report.rejected, report.rows) == (0, 3)
        return
    assert (report.rejected, report.files) == (1, ())
    assert list(Path(writing.storage.base_path).rglob("*.parquet")) == []
    (told,) = report.bad_records
    assert str(told).startswith("orders:3:6 field id: expected a value that makes a folder name of at most 255 bytes")
    assert f"found one of {size} bytes, '{value[:20]}'…" in str(told)


def of(partition: int, first: int, values: list[bytes | None], topic: str = "orders") -> pa.RecordBatch:
    made = batch(first, values)
    return pa.RecordBatch.from_pydict(
        {
            **{name: made[name] for name in made.schema.names},
            "topic": [topic] * len(values),
            "partition": pa.array([partition] * len(values), pa.int32()),
        }
    )


def test_p2_a_task_accounts_for_each_partition_that_it_reads(writing: WriteTask) -> None:
    sources = [TopicPartition("orders", 3), TopicPartition("orders", 4), TopicPartition("payments", 4)]
    writing = replace(writing, attempts=dict.fromkeys(sources, 0))
    table = pa.Table.from_batches(
        [
            of(3, 5, [good(1), good(2), None]),
            of(4, 9, [good(3)]),
            of(4, 20, [good(4), good(5)], "payments"),
            of(4, 23, [good(6)], "payments"),
        ]
    ).combine_chunks()
    batches = [*table.to_batches(max_chunksize=2), of(4, 24, [good(7)], "payments")]
    reports = reports_of(written(writing, iter(batches)))
    assert [
        (r.topic, r.partition, r.first_offset, r.last_offset, r.rows, r.skipped, len(r.files)) for r in reports
    ] == [
        ("orders", 3, 5, 7, 2, 1, 1),
        ("orders", 4, 9, 9, 1, 0, 1),
        ("payments", 4, 20, 24, 4, 0, 1),
    ]
    assert [report.files[0].rows for report in reports] == [2, 1, 4]
    back_again = [*batches, of(3, 7, [good(1)])]
    with pytest.raises(WriteIncomplete, match=r"orders:3.*out of order after 7"):
        reports_of(written(writing, iter(back_again)))


def test_one_bad_record_discards_the_files_of_all_partitions_of_its_task(writing: WriteTask) -> None:
    writing = replace(writing, attempts={TopicPartition("orders", number): 0 for number in (3, 4, 5)})
    batches = [of(3, 0, [good(1)]), of(4, 0, [b"bad"]), of(5, 0, [good(1)])]
    reports = reports_of(written(writing, iter(batches)))
    assert [(each.partition, each.rejected, each.files) for each in reports] == [(3, 0, ()), (4, 1, ()), (5, 0, ())]
    assert list(Path(writing.storage.base_path).rglob("*.parquet")) == []


def test_k4_transforms_make_the_rows_and_filtered_records_are_accounted_for(writing: WriteTask) -> None:
    chain = Chain.of(
        RECORD,
        [
            Step("transforms[0].filter", Filter("n", ">", (1,))),
            Step("transforms[1].insert_kafka", InsertKafka({"offset": "at", "key": "k"})),
            Step("transforms[2].drop", Drop(("id",))),
        ],
    )
    columns = pa.schema([*chain.output, *[field for field in COLUMNS if field.name.startswith("_kafka")]])
    writing = replace(writing, maker=replace(writing.maker, chain=chain, columns=columns))
    keyed = batch(5, [good(0), good(1), None, good(2), good(3)])
    keyed = keyed.append_column("key", pa.array([b"a", b"b", b"c", b"d", None], pa.binary()))
    report = run(writing, keyed)
    assert (report.rows, report.filtered, report.skipped, report.rejected) == (2, 2, 1, 0)
    found = pq.read_table(f"{writing.storage.base_path}/{report.files[0].path}")
    assert found.select(["n", "at", "k", "_kafka_offset"]).to_pylist() == [
        {"n": 2, "at": 8, "k": b"d", "_kafka_offset": 8},
        {"n": 3, "at": 9, "k": None, "_kafka_offset": 9},
    ]
    none_left = Chain.of(RECORD, [Step("f", Filter("n", ">", (100,)))])
    nothing = replace(writing, maker=replace(writing.maker, chain=none_left, columns=COLUMNS))
    assert (run(nothing, batch(5, [good(1)])).filtered, run(nothing, batch(5, [good(1)])).files) == (1, ())
    slice_of = Slice("orders", 3, 5, 10)
    assert slice_report(slice_of, 0, [report], 1.0).accounted


def test_keys_become_columns_and_what_is_masked_in_a_bad_one_is_not_told(writing: WriteTask) -> None:
    key = pa.schema([("user", pa.string()), ("region", pa.int32())])
    record = pa.schema([*RECORD, *key])
    chain = Chain.of(record, [Step("transforms[0].mask", Mask(("region",), Redact()))])
    columns = pa.schema([*chain.output, *[field for field in COLUMNS if field.name.startswith("_kafka")]])
    maker = replace(
        writing.maker, chain=chain, columns=columns, key_converter=converter_for("json", key), key_columns=key
    )
    writing = replace(writing, maker=maker)

    def keyed(*keys: bytes | None) -> pa.RecordBatch:
        made = batch(5, [good(number) for number in range(len(keys))])
        return made.append_column("key", pa.array(keys, pa.binary()))

    report = run(writing, keyed(b'{"user": "u1", "region": 4}', None))
    found = pq.read_table(f"{writing.storage.base_path}/{report.files[0].path}")
    assert found.select(["id", "user", "region", "_kafka_offset"]).to_pylist() == [
        {"id": "o0", "user": "u1", "region": None, "_kafka_offset": 5},
        {"id": "o1", "user": None, "region": None, "_kafka_offset": 6},
    ]
    report = run(writing, keyed(b'{"user": 7}', b'{"region": "secret"}', b"secret"))
    told = [*map(str, report.bad_records)]
    assert told[0] == "orders:3:5 field key.user: expected string, found 7"
    assert told[1].startswith("orders:3:6 field key.region: expected int (32 bit), found a value that is not")
    assert told[2].startswith("orders:3:7 field key: ")
    assert "secret" not in "".join(told)


@dataclass(frozen=True)
class FailsAt:
    """A converter whose records of a value end the task."""

    value: bytes
    error: Exception

    def decode(self, values: pa.Array) -> Decoded:
        if self.value in values.to_pylist():
            raise self.error
        return converter_for("json", RECORD).decode(values)


OUTDATED = SchemaOutdated(schema_id=7, subjects="orders-value", changes=["column more string is added"])


def test_an_error_of_ours_ends_a_task_as_data_and_its_files_are_deleted(writing: WriteTask) -> None:
    writing = replace(writing, maker=replace(writing.maker, converter=FailsAt(b"stop", OUTDATED)))
    writing = replace(writing, attempts={TopicPartition("orders", number): 0 for number in (3, 4)})
    batches = iter([of(3, 0, [good(1)]), of(4, 9, [b"stop"]), *(of(4, 10 + n, [good(n)]) for n in range(5))])
    outcomes = [*written(writing, batches)]
    assert [type(outcome) for outcome in outcomes] == [bytes]
    assert list(Path(writing.storage.base_path).rglob("*.parquet")) == []
    with pytest.raises(SchemaOutdated) as raised:
        reports_of(outcomes)
    error = raised.value
    assert (error.schema_id, error.subjects, error.changes) == (7, "orders-value", ("column more string is added",))
    assert (error.topic, error.partition, error.offset, str(error)) == ("orders", 4, 9, str(OUTDATED))
    assert "in decode" in str(error.__cause__), "the worker's traceback"


def test_an_error_of_others_ends_the_spark_job(writing: WriteTask) -> None:
    broken = OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        run(replace(writing, maker=replace(writing.maker, converter=FailsAt(b"stop", broken))), batch(0, [b"stop"]))
    assert list(Path(writing.storage.base_path).rglob("*.parquet")) == []


def test_p6_a_full_disk_is_an_error_of_ours_with_its_place(writing: WriteTask) -> None:
    full = OSError(28, "No space left on device")
    with pytest.raises(
        TableUnreachable, match=rf"table at {writing.storage.base_path} cannot be written: .*disk is full"
    ):
        run(replace(writing, maker=replace(writing.maker, converter=FailsAt(b"stop", full))), batch(0, [b"stop"]))
    assert list(Path(writing.storage.base_path).rglob("*.parquet")) == []


def placed(error: IngestError, topic: str, partition: int, offset: int | None) -> IngestError:
    error.topic, error.partition, error.offset = topic, partition, offset
    return error


def test_of_several_tasks_errors_a_terminal_one_is_raised_and_else_the_lowest() -> None:
    transient = [
        placed(RegistryUnreachable(f"{topic}:{partition}:{offset}"), topic, partition, offset)
        for topic, partition, offset in [("orders", 1, 0), ("orders", 0, 20), ("orders", 0, 7), ("payments", 0, 0)]
    ]
    terminal = [placed(Fenced("later"), "z", 3, 5), placed(Fenced("earlier"), "z", 3, None)]
    for errors in itertools.permutations([*map(packed, transient)]):
        with pytest.raises(RegistryUnreachable, match="orders:0:7"):
            require_none(errors)
    for errors in itertools.permutations([*map(packed, [*transient[:2], *terminal])]):
        with pytest.raises(Fenced, match="earlier"):
            require_none(errors)
    require_none([])


def test_p2_p3_two_live_attempts_of_a_task_never_share_a_file(
    writing: WriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark repeats a stage whose executor is lost while that executor may still write, and numbers the attempts from 0 again."""
    letters = LetterLayout(INSTANT, "orders", "t", "", withhold=True)
    writing = replace(writing, most_bad=None, letters=letters)
    tokens: list[str] = []
    # The constructor keeps what it makes: without this, no later test of the process could start a Spark.
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    for task_attempt_id in (17, 18):
        context = TaskContext()
        context._attemptNumber, context._taskAttemptId = 0, task_attempt_id
        monkeypatch.setattr(TaskContext, "_taskContext", context)
        report = run(writing, batch(5, [good(1), b"bad"]))
        old = ReplacedFile(report.files[0].path, 0, 1, 1, "orders", 3)
        assert isinstance(writing.layout, BaseFileLayout)
        copying = CopyTask(writing.storage, writing.layout, (Slice("orders", 3, 100, 200),), writing.attempts)
        (copy,) = run_copies(copying, iter([old]))
        assert isinstance(copy, tuple)
        tokens += [path.split("_")[-2] for path in (report.files[0].path, report.letters[0].path, copy[1].path)]
    assert tokens == ["3-2-17"] * 3 + ["3-2-18"] * 3


def test_p4_a_copy_that_is_fenced_says_so_as_data(writing: WriteTask) -> None:
    storage, source = writing.storage, TopicPartition("orders", 3)
    storage.delete(heartbeat_path(INSTANT))
    files = iter([ReplacedFile("f_t_1.parquet", 1, 1, 10, "orders", 3)])
    assert isinstance(writing.layout, BaseFileLayout)
    (outcome,) = run_copies(CopyTask(storage, writing.layout, (WHOLE,), {source: 0}), files)
    assert isinstance(outcome, bytes)
    with pytest.raises(Fenced, match="is no longer open") as raised:
        require_none([outcome])
    assert (raised.value.topic, raised.value.partition) == ("orders", 3)


def test_offsets_that_do_not_grow_are_refused(writing: WriteTask) -> None:
    with pytest.raises(WriteIncomplete, match=r"orders:3.*out of order"):
        run(writing, batch(5, [good(5)]), batch(5, [good(5)]))
    two = batch(5, [good(5), good(6)])
    for offsets in ([5, 5], [6, 5]):
        place = two.schema.get_field_index("offset")
        with pytest.raises(WriteIncomplete, match=r"orders:3.*out of order"):
            run(writing, two.set_column(place, two.schema.field(place), pa.array(offsets, pa.int64())))


def test_a_task_without_records_reports_nothing(writing: WriteTask) -> None:
    assert list(written(writing, iter([]))) == []


def test_p1_a_certificate_is_of_all_batches_of_a_slice(writing: WriteTask) -> None:
    """A long slice has many batches, and may be read by several tasks, each of several partitions."""
    task = replace(writing, certifies=True, most_bad=None)
    parts = [batch(5, [good(n) for n in range(3)]), batch(8, [good(n) for n in range(3, 7)]), batch(12, [good(9)])]
    whole = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    other = TopicPartition("orders", 4)

    def certificates(*batches: tuple[TopicPartition, pa.RecordBatch]) -> list[Certificate | None]:
        attempt = next(attempts)
        sources = dict.fromkeys((TopicPartition("orders", 3), other), attempt)
        return [report.certificate for report in reports_of(outcomes(replace(task, attempts=sources), iter(batches)))]

    attempts = itertools.count(1)
    own = TopicPartition("orders", 3)
    (at_once,) = certificates((own, whole))
    assert at_once is not None
    assert at_once != Certificate()
    assert certificates(*((own, part) for part in parts)) == [at_once]
    two = certificates((own, parts[0]), (own, parts[1]), (other, parts[0]), (other, parts[1]))
    first = certificates((own, parts[0]), (own, parts[1]))
    assert two[0] == first[0]
    assert two[1] == certificates((other, parts[0]), (other, parts[1]))[0] != two[0]
    tasks = [run(task, *parts[:2]), run(replace(task, attempts={own: next(attempts)}), parts[2])]
    assert slice_report(Slice("orders", 3, 5, 13), 0, tasks, 1.0).certificate == at_once


def test_p1_a_task_says_its_last_record_and_is_refused_after_another_one(writing: WriteTask) -> None:
    """Over librdkafka's mock cluster: only the first range of a partition comes after the record that the plan knows."""
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    for n in range(9):
        producer.produce("orders", json.dumps({"id": "a", "n": n}), None, 3, timestamp=1000 * n)
    assert producer.flush(120) == 0
    (broker,) = producer.list_topics(timeout=120).brokers.values()
    servers = f"{broker.host}:{broker.port}"
    source = KafkaSource(bootstrap_servers=servers, topics=("orders",), format="json", request_timeout_seconds=120)
    three = TopicPartition("orders", 3)
    parts = Slice("orders", 3, 2, 5), Slice("orders", 3, 5, 9)
    tasks = tuple((part,) for part in parts)
    known = RangesToRead(source, "test", tasks, frozenset(), {three: LastRecord(1, 1000, 0)})
    writing = replace(writing, attempts={three: 0})
    reports = [report for number in (0, 1) for report in run_ranges(writing, known, iter([number]))]
    assert [isinstance(report, TaskReport) and report.last for report in reports] == [
        LastRecord(4, 4000, 0),
        LastRecord(8, 8000, 0),
    ]
    whole = slice_report(
        Slice("orders", 3, 2, 9), 0, [report for report in reports if isinstance(report, TaskReport)], 1.0
    )
    assert whole.last == LastRecord(8, 8000, 0)
    other = replace(known, follows={three: LastRecord(1, 999, 0)})
    (failed,) = run_ranges(writing, other, iter([0]))
    assert isinstance(failed, bytes)
    with pytest.raises(LogTruncated, match="orders:3: the records before offset 2") as raised:
        require_none([failed])
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("orders", 3, 2)
    assert isinstance(next(run_ranges(writing, other, iter([1]))), TaskReport)
