"""Bad records as a write task leaves them, the list of dead letters, and what a retry takes: no broker, no JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.cli.views import letter_text, letters_text, retry_survey_text, retry_text
from hudi_ingest.exceptions import BadRecord, TableUnreachable, WriteIncomplete
from hudi_ingest.hudi.files import file_groups
from hudi_ingest.hudi.files.file_groups import FileOrigin
from hudi_ingest.hudi.files.late_changes import FORGOTTEN
from hudi_ingest.hudi.files.new_files import BaseFileLayout, KeyedLayout, Past, PastCommit
from hudi_ingest.hudi.files.orphans import judge_files
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import DEAD_LETTERS, dead_letters_folder, heartbeat_path
from hudi_ingest.hudi.storage.storage import StoredFile, TableStorage
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.hudi.timeline.timeline import Instants
from hudi_ingest.model.checkpoint import Checkpoint, LettersHead
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import PLAN_TYPES, RetriedFile, Retry, TransactionKind, TransactionPlan
from hudi_ingest.model.report import BadRecordNote, LetterFile, SliceReport
from hudi_ingest.operations.requests.dead_letter_retry import RetryResult, RetrySurvey, plan_letters, untried
from hudi_ingest.records.changes import KeyedRows
from hudi_ingest.records.convert.formats import converter_for
from hudi_ingest.records.row_maker import RowMaker
from hudi_ingest.records.times import KAFKA_TIME
from hudi_ingest.records.transform.chain import Chain, Step
from hudi_ingest.records.transform.columns import Filter, Hash, Mask
from hudi_ingest.transaction.dead_letters.copies import behind, connect_headers
from hudi_ingest.transaction.dead_letters.letter_file import (
    HEADERS,
    LETTERS,
    LetterLayout,
    read_letters,
    require_bad_accounted,
    withholds_bytes,
)
from hudi_ingest.transaction.dead_letters.log import (
    PAGE,
    PREVIEW_CHARACTERS,
    DeadLetterLog,
    LetterEntry,
    count_letters,
    find_letters,
    preview,
    waiting_files,
)
from hudi_ingest.transaction.write.task import TaskReport, WriteTask, run_retry
from hudi_ingest_tests.support.pipeline_files import Write, load, problem
from hudi_ingest_tests.support.task_reports import reports_of, written

INSTANT = "20261121120000000"
RECORD = pa.schema([("id", pa.string()), ("n", pa.int64())])
COLUMNS = pa.schema(
    [*RECORD, pa.field("_kafka_partition", pa.int32(), False), pa.field("_kafka_offset", pa.int64(), False)]
)
SOURCE = TopicPartition("orders", 3)


@pytest.fixture
def storage(tmp_path: Path) -> TableStorage:
    found = LocalStorage(str(tmp_path / "table"))
    found.write(heartbeat_path(INSTANT), b"")
    return found


@pytest.fixture
def writing(storage: TableStorage) -> WriteTask:
    epoch = TableEpoch(storage).advance(1, "t-1")
    return WriteTask(
        storage,
        BaseFileLayout(INSTANT, epoch, (), 1000, 1 << 30, "zstd"),
        RowMaker(converter_for("json", RECORD), Chain.of(RECORD, ()), COLUMNS),
        {SOURCE: 2, TopicPartition("orders", 4): 0},
        letters=LetterLayout(INSTANT, "orders", "t-1", "shape", withhold=False),
        most_bad=None,
    )


def batch(first: int, values: Sequence[bytes | None], partition: int = 3) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["orders"] * count,
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array(range(count), pa.timestamp("us", "UTC")),
            "value": pa.array(values, pa.binary()),
            "key": pa.array([f"k{number}".encode() for number in range(count)], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"\xff"}]] * count, HEADERS),
        }
    )


def good(number: int) -> bytes:
    return json.dumps({"id": f"o{number}", "n": number}).encode()


def run(task: WriteTask, *batches: pa.RecordBatch) -> list[TaskReport]:
    return reports_of([*written(task, iter(batches))])


def letters_in(task: WriteTask, reports: Sequence[TaskReport]) -> pa.Table:
    return pa.concat_tables(
        [LETTERS.empty_table(), *(read_letters(task.storage, file.path) for each in reports for file in each.letters)]
    )


def offsets_of_rows(task: WriteTask, reports: Sequence[TaskReport]) -> list[int]:
    return [
        offset
        for each in reports
        for file in each.files
        for offset in pq.read_table(f"{task.storage.base_path}/{file.path}")["_kafka_offset"].to_pylist()
    ]


def test_p1_good_records_of_a_batch_become_rows_and_bad_ones_letters(writing: WriteTask) -> None:
    (report,) = run(writing, batch(5, [good(5), b"{bad", None, b'{"n": "x"}', good(9)]), batch(20, [b"[", good(21)]))
    assert (report.rows, report.skipped, report.rejected) == (3, 1, 3)
    assert offsets_of_rows(writing, [report]) == [5, 9, 21]
    found = letters_in(writing, [report])
    assert found.schema.equals(LETTERS)
    assert found["offset"].to_pylist() == [6, 8, 20]
    assert found["value"].to_pylist() == [b"{bad", b'{"n": "x"}', b"["]
    assert found["key"].to_pylist() == [b"k1", b"k3", b"k0"]
    assert found["headers"].to_pylist()[0] == [{"key": "h", "value": b"\xff"}]
    told = found.to_pylist()[1]
    assert (told["stage"], told["field"], told["found"]) == ("decoding", "n", '"x"')
    assert (told["pipeline"], told["transaction_id"], told["shape"]) == ("orders", "t-1", "shape")
    (file,) = report.letters
    assert (file.letters, file.size_bytes) == (3, writing.storage.size(file.path))
    assert "_3-2-0_" in file.path, "partition, the op's attempt and the task's attempt are in its name"


def test_p1_every_kind_of_badness_is_a_letter_and_filtered_records_are_not(writing: WriteTask) -> None:
    chain = Chain.of(RECORD, [Step("transforms[0].filter", Filter("n", ">", (1,)))])
    partitioned = replace(
        writing,
        maker=replace(writing.maker, chain=chain, partition_by=("id",)),
        layout=replace(writing.layout, partition_by=("id",)),
    )
    long = json.dumps({"id": "z" * 300, "n": 7}).encode()
    (report,) = run(partitioned, batch(0, [good(0), long, b"{", good(2), long]))
    assert (report.rows, report.filtered, report.rejected) == (1, 1, 3)
    assert offsets_of_rows(writing, [report]) == [3]
    found = letters_in(writing, [report])
    assert found["offset"].to_pylist() == [1, 2, 4]
    assert found["stage"].to_pylist() == ["partitioning", "decoding", "partitioning"]
    assert found["value"].to_pylist() == [long, b"{", long]


@given(st.lists(st.sampled_from(["good", "bad", "filtered", "tombstone"]), max_size=40), st.integers(1, 7))
def test_p1_p2_each_record_has_one_fate(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], batch_rows: int
) -> None:
    storage = LocalStorage(str(tmp_path_factory.mktemp("t")))
    storage.write(heartbeat_path(INSTANT), b"")
    chain = Chain.of(RECORD, [Step("transforms[0].filter", Filter("n", ">=", (0,)))])
    task = WriteTask(
        storage,
        BaseFileLayout(INSTANT, TableEpoch(storage).advance(1, "t-1"), (), 1000, 1 << 30, "zstd"),
        RowMaker(converter_for("json", RECORD), chain, COLUMNS),
        {SOURCE: 0},
        letters=LetterLayout(INSTANT, "orders", "t-1", "shape", withhold=False),
        most_bad=None,
    )
    contents = {"good": good(1), "bad": b"{", "filtered": good(-1), "tombstone": None}
    whole = pa.Table.from_batches([batch(10, [contents[kind] for kind in kinds])])
    reports = run(task, *whole.to_batches(max_chunksize=batch_rows))
    at = {kind: [10 + place for place, each in enumerate(kinds) if each == kind] for kind in contents}
    assert offsets_of_rows(task, reports) == at["good"]
    assert letters_in(task, reports)["offset"].to_pylist() == at["bad"]
    assert sum(each.filtered for each in reports) == len(at["filtered"])
    assert sum(each.skipped for each in reports) == len(at["tombstone"])


def test_a_skipped_record_is_counted_and_leaves_no_file(writing: WriteTask) -> None:
    (report,) = run(replace(writing, letters=None), batch(5, [good(5), b"{bad", good(7)]))
    assert (report.rows, report.rejected, report.letters) == (2, 1, ())
    assert str(report.bad_records[0]).startswith("orders:3:6: expected")
    assert not writing.storage.files(".hoodie/hudi_ingest/dead_letters")


def test_beyond_the_limit_a_task_leaves_no_file_at_all(writing: WriteTask) -> None:
    limited = replace(writing, most_bad=2)
    (report,) = run(limited, batch(0, [b"{", good(1), b"{"]))
    assert (report.rejected, len(report.letters), len(report.files)) == (2, 1, 1)
    for path in (*Path(writing.storage.base_path).rglob("*.parquet"),):
        path.unlink()
    (report,) = run(limited, batch(0, [b"{", good(1), b"{"]), batch(3, [b"{", good(4)]))
    assert (report.rejected, report.letters, report.files) == (3, (), ())
    assert [*Path(writing.storage.base_path).rglob("*.parquet")] == []


def test_p3_a_task_that_fails_leaves_no_letters(writing: WriteTask) -> None:
    with pytest.raises(WriteIncomplete):
        run(writing, batch(5, [b"{"] * 20_000), batch(5, [good(5)]))
    assert [*Path(writing.storage.base_path).rglob("*.parquet")] == []


def test_a_masked_value_is_in_no_letter_unless_it_is_asked_for(writing: WriteTask) -> None:
    secret = "4111-1111"
    values = [json.dumps({"id": secret, "n": "x"}).encode(), json.dumps({"id": [secret], "n": 1}).encode()]
    masking = Chain.of(RECORD, [Step("transforms[0].mask", Mask(("id",), Hash()))])
    maker = replace(writing.maker, chain=masking)
    withholding = replace(writing, maker=maker, letters=replace(writing.letters, withhold=True))  # type: ignore[type-var]
    (report,) = run(withholding, batch(0, values))
    found = letters_in(writing, [report])
    assert (found["value"].null_count, found["key"].null_count, found["headers"].null_count) == (2, 2, 2)
    assert secret not in str(found.to_pylist()) + str(report.bad_records)
    (kept,) = run(replace(withholding, letters=writing.letters, attempts={SOURCE: 3}), batch(0, values))
    found = letters_in(writing, [kept])
    assert found["value"].to_pylist() == values
    assert secret not in str(found.drop_columns(["value"]).to_pylist())


def test_letters_of_masked_records_hold_bytes_if_the_file_says_so_and_in_a_retry(write: Write) -> None:
    masking: dict[str, Any] = {
        "on_bad_record": "dead_letter",
        "transforms": [{"mask": {"fields": ["id"], "method": "redact"}}],
    }
    masked, kept = load(write, **masking), load(write, **masking, dead_letters={"keep_masked": True})
    assert withholds_bytes(masked, TransactionKind.INGEST)
    assert not withholds_bytes(kept, TransactionKind.INGEST)
    assert not withholds_bytes(masked, TransactionKind.RETRY), "without its bytes a letter could never be a row"


def test_a_folder_name_made_of_a_masked_value_is_not_shown(writing: WriteTask) -> None:
    chain = Chain.of(RECORD, [Step("transforms[0].mask", Mask(("id",), Hash()))])
    assert chain.hides("id")
    assert not chain.hides("n")


# ---- A retry reads letters instead of Kafka


def test_p2_a_retry_makes_rows_of_what_is_good_now_and_letters_of_the_rest(writing: WriteTask) -> None:
    texts = [b'{"id": "a", "n": "1"}', good(1), b"{", b'{"id": "c", "n": "3"}']
    first = run(writing, batch(5, texts), batch(40, [b'{"id": "d", "n": "4"}'], partition=4))
    (file,) = (file for each in first for file in each.letters)
    wider = pa.schema([("id", pa.string()), ("n", pa.string())])
    columns = pa.schema([*wider, *(each for each in COLUMNS if each.name.startswith("_kafka"))])
    fixed = replace(
        writing,
        maker=RowMaker(converter_for("json", wider), Chain.of(wider, ()), columns),
        layout=replace(writing.layout, instant="20261121120001000"),
        letters=LetterLayout("20261121120001000", "orders", "t-2", "other", withhold=False),
    )
    writing.storage.write(heartbeat_path("20261121120001000"), b"")
    files = (RetriedFile(file.path, file.letters),)
    slices = [Slice("orders", 3, 5, 9), Slice("orders", 4, 40, 41)]
    reports = reports_of([*run_retry(fixed, files, slices, iter([0]))])
    assert [(each.partition, each.rows, each.rejected) for each in reports] == [(3, 2, 1), (4, 1, 0)]
    assert offsets_of_rows(fixed, reports) == [5, 8, 40]
    again = letters_in(fixed, reports).to_pylist()
    assert [(each["offset"], each["value"], each["key"], each["transaction_id"]) for each in again] == [
        (7, b"{", b"k2", "t-2")
    ]
    paths = [made.path for report in reports for made in report.files]
    tables = [pq.read_table(f"{fixed.storage.base_path}/{path}", partitioning=None) for path in paths]
    keys = [key for table in tables for key in table["_hoodie_record_key"].to_pylist()]
    assert keys == ["orders-3-5", "orders-3-8", "orders-4-40"], "what ingest would have given"
    replaced = (RetriedFile(file.path, 1, (Slice("orders", 3, 0, 8),)),)
    part = reports_of([*run_retry(replace(fixed, attempts={SOURCE: 9}), replaced, slices[:1], iter([0]))])
    assert offsets_of_rows(fixed, part) == [8], "only letters that count, and of the op's own slices"


def test_p8_letters_of_a_keyed_table_are_retried_in_their_order_and_those_that_may_be_outdated_stay(
    writing: WriteTask,
) -> None:
    """Those before offset 8 were read by a commit whose log files are all there."""
    texts = [json.dumps({"id": key, "n": "1"}).encode() for key in "abac"]
    (later,) = (file for each in run(writing, batch(7, texts[2:])) for file in each.letters)
    attempt = replace(writing, attempts={SOURCE: 3, TopicPartition("orders", 4): 1})
    earlier = run(attempt, batch(5, texts[:2]), batch(40, [texts[1]], partition=4))
    (file,) = (file for each in earlier for file in each.letters)
    fields = [{"name": name, "type": ["null", "string"]} for name in ("id", "n")]
    layout = KeyedLayout(
        "20261121120001000",
        writing.layout.epoch,
        (),
        ("id",),
        ("_kafka_offset",),
        1,
        json.dumps({"type": "record", "name": "order", "fields": fields}),
        "zstd",
        past=Past((PastCommit((Slice("orders", 3, 0, 8), Slice("orders", 4, 0, 50))),)),
    )
    wider = pa.schema([("id", pa.string()), ("n", pa.string())])
    fixed = replace(
        writing,
        maker=RowMaker(
            converter_for("json", wider),
            Chain.of(wider, ()),
            pa.schema([*wider, *(each for each in COLUMNS if each.name.startswith("_kafka"))]),
            record_key=("id",),
            keyed=KeyedRows(("id",)),
        ),
        layout=layout,
        letters=LetterLayout(layout.instant, "orders", "t-2", "other", withhold=False),
    )
    writing.storage.write(heartbeat_path(layout.instant), b"")
    files = [
        RetriedFile(later.path, later.letters, sources=("orders:3",)),
        RetriedFile(file.path, file.letters, sources=("orders:3", "orders:4")),
    ]
    slices = [Slice("orders", 3, 5, 9), Slice("orders", 4, 40, 41)]
    reports = reports_of([*run_retry(fixed, files, slices, iter([0, 1]))])
    assert [(each.partition, each.rows, each.superseded, each.rejected) for each in reports] == [
        (3, 3, 2, 1),
        (4, 1, 0, 0),
    ]
    (letter,) = letters_in(fixed, reports).to_pylist()
    assert (letter["offset"], letter["value"], letter["key"]) == (8, texts[3], b"k1")
    assert (letter["stage"], letter["found"]) == ("partitioning", FORGOTTEN)
    assert "Replay from this offset (`hudi-ingest replay`)" in letter["expected"]
    assert str(reports[0].bad_records[0]).startswith("orders:3:8: expected a change that can be applied late")


# ---- The list of dead letters


def plan(number: int, kind: TransactionKind = TransactionKind.INGEST, **changes: Any) -> TransactionPlan:
    slices = (Slice("orders", 3, 10 * number, 10 * number + 10),)
    return replace(PLAN_TYPES[kind]("orders", f"t-{number}", number, slices), **changes)


def letters_file(storage: TableStorage, number: int, offsets: Sequence[int], partition: int = 3) -> LetterFile:
    count = len(offsets)
    table = pa.Table.from_pydict(
        {
            **{each.name: [""] * count for each in LETTERS if each.type == pa.string()},
            "topic": ["orders"] * count,
            "partition": [partition] * count,
            "offset": offsets,
            "timestamp": pa.array([0] * count, LETTERS.field("timestamp").type),
            "key": [None] * count,
            "value": [b"{"] * count,
            "headers": pa.nulls(count, HEADERS),
            "expected": ["a JSON object"] * count,
        },
        schema=LETTERS,
    )
    path = f".hoodie/hudi_ingest/dead_letters/{number:017}/{partition}-{offsets[0]}.parquet"
    with storage.open_output(path) as stream:
        pq.write_table(table, stream)
    return LetterFile(path, count, storage.size(path))


def extend(
    log: DeadLetterLog,
    before: Checkpoint | None,
    made: TransactionPlan,
    files: Sequence[LetterFile] = (),
    rows: int = 0,
) -> Checkpoint:
    """The checkpoint of the plan's commit."""
    rejected = sum(each.letters for each in files)
    report = SliceReport(made.slices[0], 0, rows=rows, rejected=rejected, letters=tuple(files))
    head = log.extend(before, made, f"{made.sequence:017}", [report], withheld=False)
    return Checkpoint(made.sequence, made.transaction_id, {}, letters=head)


def test_p1_the_list_holds_what_each_commit_added_however_long_it_is(storage: TableStorage) -> None:
    log = DeadLetterLog(storage)
    checkpoint: Checkpoint | None = None
    numbers = range(1, 2 * PAGE + 3)
    for number in numbers:
        checkpoint = extend(log, checkpoint, plan(number), [LetterFile(f"f{number}", number, 1)])
    assert checkpoint is not None
    assert Checkpoint.from_json(checkpoint.to_json()) == checkpoint
    assert len(checkpoint.to_json()) < 400
    entries = log.entries(checkpoint.letters)
    assert [each.transaction_id for each in entries] == [f"t-{number}" for number in numbers]
    assert checkpoint.letters is not None
    assert checkpoint.letters.waiting == sum(numbers)
    reads: list[str] = []

    class Counted(LocalStorage):
        def read(self, path: str) -> bytes:
            reads.append(path)
            return super().read(path)

    assert DeadLetterLog(Counted(storage.base_path)).entries(checkpoint.letters) == entries
    assert len(reads) == 3


def test_a_transaction_without_bad_records_leaves_the_list_as_it_is(storage: TableStorage) -> None:
    log = DeadLetterLog(storage)
    assert extend(log, None, plan(1)).letters is None
    before = extend(log, None, plan(1), [LetterFile("f", 1, 1)])
    assert extend(log, before, plan(2)).letters == before.letters


def test_p2_a_manifest_that_counts_is_never_changed(storage: TableStorage) -> None:
    log = DeadLetterLog(storage)
    one = extend(log, None, plan(1), [LetterFile("f", 1, 1)])
    assert extend(log, None, plan(1), [LetterFile("f", 1, 1)]) == one
    stale = extend(log, None, plan(1), [LetterFile("g", 1, 1)])
    assert stale.letters != one.letters
    assert [file.path for each in log.entries(one.letters) for file in each.files] == ["f"]


def test_p6_a_manifest_that_is_gone_is_said_and_does_not_stop_ingestion(storage: TableStorage) -> None:
    log = DeadLetterLog(storage)
    before = extend(log, None, plan(1), [LetterFile("f", 1, 1)])
    assert before.letters is not None
    storage.delete(before.letters.manifest)
    after = extend(log, before, plan(2), [LetterFile("g", 1, 1)])
    with pytest.raises(TableUnreachable, match="no longer exists"):
        log.entries(after.letters)
    storage.write(before.letters.manifest, b"{")
    with pytest.raises(TableUnreachable, match="cannot be read"):
        log.entries(before.letters)


def test_p2_a_retry_takes_files_and_a_replay_ranges(storage: TableStorage) -> None:
    log = DeadLetterLog(storage)
    files = [letters_file(storage, 1, [11, 12, 15]), letters_file(storage, 2, [21, 25])]
    one = extend(log, None, plan(1), files[:1])
    two = extend(log, one, plan(2), files[1:])
    replayed = plan(3, TransactionKind.REPLAY, slices=(Slice("orders", 3, 12, 22),))
    three = extend(log, two, replayed, [letters_file(storage, 3, [12])], rows=9)
    assert three.letters is not None
    assert three.letters.waiting == 3, "11 and 25 of old, 12 of the replay"
    waiting = log.waiting(three.letters)
    found = {each.file.path: read_letters(storage, each.file.path, None, each.without) for each in waiting}
    assert [letters["offset"].to_pylist() for letters in found.values()] == [[11], [25], [12]]
    retried = Retry(tuple(RetriedFile(each.file.path, 1, each.without) for each in waiting[:2]))
    four = extend(log, three, plan(4, TransactionKind.RETRY, retry=retried), rows=2)
    assert four.letters is not None
    assert four.letters.waiting == 1
    assert [each.file.path for each in log.waiting(four.letters)] == [waiting[2].file.path]
    with pytest.raises(WriteIncomplete, match="takes 2 dead letters, but 1 are accounted for"):
        extend(log, three, plan(4, TransactionKind.RETRY, retry=retried), rows=1)


def test_a_later_replay_does_not_touch_letters_that_came_after_it() -> None:
    entries = [
        LetterEntry("1", "t-1", "replay", (LetterFile("a", 1, 1),), replaced=(Slice("orders", 3, 0, 9),)),
        LetterEntry("2", "t-2", "retry", (LetterFile("b", 1, 1),), taken=("a",)),
    ]
    (left,) = waiting_files(entries)
    assert (left.file.path, left.without) == ("b", ())
    again = LetterEntry("3", "t-3", "replay", replaced=(Slice("orders", 3, 0, 9),), generations={"orders": 1})
    assert waiting_files([*entries, again]) == (left,), "the offsets of a topic that was made again are others"


def test_what_a_rolled_back_transaction_left_is_forgotten(storage: TableStorage) -> None:
    log = DeadLetterLog(storage)
    letters_file(storage, 7, [1])
    extend(log, None, plan(7), [LetterFile("f", 1, 1)])
    log.forget(f"{7:017}")
    assert storage.files(".hoodie/hudi_ingest/dead_letters") == []


# ---- Plans of retries


def retry_plan(write: Write, storage: TableStorage, entries: Sequence[LetterEntry], most: int = 100) -> Retry | None:
    pipeline = load(write, transaction={"max_records": most})
    head = LettersHead("m", 1)
    found = plan_letters(pipeline, Checkpoint(5, "t-5", {}, letters=head), storage, waiting_files(entries))
    if found is None:
        return None
    assert (found.sequence, found.kind) == (6, TransactionKind.RETRY)
    assert TransactionPlan.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    return found.retry


def test_a_retry_takes_as_many_files_as_fit_one_transaction(write: Write, storage: TableStorage) -> None:
    files = [letters_file(storage, number, [10 * number, 10 * number + 1]) for number in range(1, 4)]
    entries = [LetterEntry(str(number), f"t-{number}", "ingest", (file,)) for number, file in enumerate(files)]
    found = retry_plan(write, storage, entries, 4)
    assert found is not None
    assert [each.path for each in found.files] == [each.path for each in files[:2]]
    one = retry_plan(write, storage, entries, 1)
    assert one is not None, "one file is taken, however large it is"
    assert one.letters == 2
    assert retry_plan(write, storage, []) is None


def test_a_retry_ends_although_bad_records_go_on_to_come() -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
    instants = ["20261122115959999", "20261122120000000", "20261122120000001", "20261122115900000", "20261122115800000"]
    entries = [LetterEntry(instant, instant, "ingest", (LetterFile(f"of-{instant}", 1, 1),)) for instant in instants]
    left = untried(waiting_files(entries), {"of-20261122115900000"}, {"20261122115800000"}, noon)
    assert [found.entry.instant for found in left] == instants[:2]


def test_a_retry_does_not_mix_generations_nor_files_that_overlap_nor_takes_withheld_ones(
    write: Write, storage: TableStorage
) -> None:
    files = [letters_file(storage, number, offsets) for number, offsets in enumerate([[1, 9], [5], [20], [30]])]
    entries = [
        LetterEntry("1", "t-1", "ingest", (files[0],)),
        LetterEntry("2", "t-2", "replay", (files[1],)),
        LetterEntry("3", "t-3", "ingest", (files[2],), generations={"orders": 1}),
        LetterEntry("4", "t-4", "ingest", (files[3],), withheld=True),
    ]
    found = retry_plan(write, storage, entries)
    assert found is not None
    assert [each.path for each in found.files] == [files[0].path]
    later = retry_plan(write, storage, entries[2:])
    assert later is not None
    assert (later.generations, [each.path for each in later.files]) == ({"orders": 1}, [files[2].path])


# ---- Limits


def reports(rows: int, rejected: int, kept: int | None = None) -> list[SliceReport]:
    notes = tuple(BadRecordNote("orders", 3, number, "n", "int", "x") for number in range(min(rejected, 5)))
    files = (LetterFile("f", rejected if kept is None else kept, 1),) if rejected else ()
    return [
        SliceReport(
            Slice("orders", 3, 0, rows + rejected), 0, rows=rows, rejected=rejected, letters=files, bad_records=notes
        )
    ]


@pytest.mark.parametrize(
    ("limits", "rows", "rejected", "refused"),
    [
        ({"max_bad_records": 3}, 100, 3, ""),
        ({"max_bad_records": 3}, 100, 4, "4 records cannot become rows, and max_bad_records is 3"),
        ({"max_bad_records": 0}, 9, 1, "1 record cannot become a row, and max_bad_records is 0"),
        ({"max_bad_ratio": 0.25}, 3, 1, ""),
        ({"max_bad_ratio": 0.2}, 3, 1, r"1 of 4 records \(25.00%\) cannot become rows, and max_bad_ratio is 0.2"),
        ({"max_bad_ratio": 0.0}, 3, 0, ""),
        ({"max_bad_records": None}, 0, 1_000_000, ""),
        ({}, 0, 100_001, "max_bad_records is 100000"),
    ],
)
def test_d3_a_limit_says_which_it_is_and_names_records(
    write: Write, limits: dict[str, object], rows: int, rejected: int, refused: str
) -> None:
    # A null in the file is a limit that is taken away; the support's document drops keys that are None.
    pipeline = load(write, on_bad_record="dead_letter").model_copy(update=limits)
    if not refused:
        require_bad_accounted(pipeline, TransactionKind.INGEST, reports(rows, rejected))
        return
    with pytest.raises(BadRecord, match=refused) as raised:
        require_bad_accounted(pipeline, TransactionKind.INGEST, reports(rows, rejected))
    assert "orders:3:0 field n: expected int, found x" in str(raised.value)
    require_bad_accounted(pipeline, TransactionKind.RETRY, reports(rows, rejected))


def test_p1_a_bad_record_that_is_in_no_file_refuses_the_commit(write: Write) -> None:
    keeping = load(write, on_bad_record="dead_letter")
    with pytest.raises(WriteIncomplete, match="3 bad records are reported, but the files of dead letters hold 2"):
        require_bad_accounted(keeping, TransactionKind.INGEST, reports(7, 3, 2))
    skipping = load(write, on_bad_record="skip")
    with pytest.raises(WriteIncomplete):
        require_bad_accounted(skipping, TransactionKind.INGEST, reports(7, 3))
    require_bad_accounted(skipping, TransactionKind.INGEST, [replace(reports(7, 3)[0], letters=())])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"on_bad_record": "no"}, "on_bad_record: not one of the allowed values"),
        ({"max_bad_records": -1}, "max_bad_records: "),
        ({"max_bad_ratio": 1.5}, "max_bad_ratio: "),
        ({"max_bad_ratio": True}, "max_bad_ratio: "),
        ({"dead_letters__topic": "a b"}, "dead_letters.topic: not a valid topic name"),
        ({"dead_letters__topic": "orders"}, "dead_letters.topic: found 'orders', which is one of source.topics"),
        ({"dead_letters__keep": True}, "dead_letters.keep: "),
    ],
)
def test_d3_what_a_file_may_say_of_bad_records(write: Write, changes: dict[str, Any], text: str) -> None:
    assert problem(write, **changes).startswith(text)


# ---- For people


def test_letters_are_counted_by_what_is_wrong_and_found_by_where_they_are(storage: TableStorage) -> None:
    files = [letters_file(storage, 1, [11, 12]), letters_file(storage, 1, [3], partition=4)]
    waiting = waiting_files([LetterEntry("1", "t-1", "ingest", tuple(files))])
    counts = count_letters(storage, waiting)
    assert [(each.partition, each.letters, each.first_offset, each.last_offset) for each in counts] == [
        (3, 2, 11, 12),
        (4, 1, 3, 3),
    ]
    found = [each.offset for each in find_letters(storage, waiting, source=TopicPartition("orders", 3))]
    assert found == [11, 12]
    (one,) = find_letters(storage, waiting, offset=12, text="json OBJECT")
    shown = one.to_dict()
    assert (shown["value"], shown["value_base64"], shown["key"]) == ("{", "ew==", None)
    assert json.dumps(shown)
    long = "x" * 2 * PREVIEW_CHARACTERS
    as_json = replace(one, value=long.encode(), key=b"\xff\x00").to_dict()
    assert (as_json["value"], as_json["key"]) == (long, "0xff00"), "programs get it whole"
    assert [*find_letters(storage, waiting, text="nothing like it")] == []


@pytest.mark.parametrize(
    ("content", "shown"),
    [(None, None), (b"plain", "plain"), ("é\n".encode(), "é\\n"), (b"\x00\xff", "0x00ff"), (b"", "")],
)
def test_bytes_are_shown_as_text_or_as_digits(content: bytes | None, shown: str | None) -> None:
    assert preview(content) == shown


@given(st.binary(max_size=2000) | st.text(max_size=2000).map(lambda text: text.encode("utf-8", "replace")))
def test_a_preview_is_short_and_printable(content: bytes) -> None:
    shown = preview(content)
    assert shown is not None
    assert len(shown) <= PREVIEW_CHARACTERS + 3
    assert shown.isprintable()


def test_a_copy_says_what_kafka_connect_would(storage: TableStorage) -> None:
    waiting = waiting_files([LetterEntry("1", "t-1", "ingest", (letters_file(storage, 1, [11]),))])
    (letter,) = find_letters(storage, waiting)
    stages = {"decoding": b"VALUE_CONVERTER", "transforming": b"TRANSFORMATION", "partitioning": b"TASK_PUT"}
    for stage, expected in stages.items():
        headers = dict(connect_headers("p", replace(letter, stage=stage, field="n", found="x")))
        assert headers["__connect.errors.stage"] == expected
        assert headers["__connect.errors.exception.message"] == b"field n: expected a JSON object, found x"
        assert headers["__connect.errors.offset"] == b"11"


@pytest.mark.parametrize(
    ("time", "shown", "as_json"),
    [
        (1_767_268_800_000, "2026-01-01 12:00:00 UTC", "2026-01-01T12:00:00+00:00"),
        (-62_135_596_800_000, "0001-01-01 00:00:00 UTC", "0001-01-01T00:00:00+00:00"),
        (-1, "no Kafka timestamp", None),
        (1_700_000_000_123_456, "Kafka timestamp 1700000000123456, which is 2023-11-14 22:13:20 UTC in micro", None),
        (2**63 - 1, "Kafka timestamp 9223372036854775807", None),
    ],
)
def test_any_kafka_timestamp_is_kept_shown_and_tried_again(
    writing: WriteTask, time: int, shown: str, as_json: str | None
) -> None:
    found = batch(11, [b"{"])
    found = found.set_column(3, "timestamp", pa.array([time], pa.int64()).cast(KAFKA_TIME))
    ((file,),) = [each.letters for each in run(writing, found)]
    (letter,) = find_letters(writing.storage, waiting_files([LetterEntry("1", "t-1", "ingest", (file,))]))
    assert letter_text(letter).startswith(f"orders:3:11 of {shown}")
    assert (letter.to_dict()["timestamp"], letter.to_dict()["timestamp_ms"]) == (as_json, time)
    numbers = iter([0])
    retried = run_retry(
        replace(writing, attempts={SOURCE: 3}), [RetriedFile(file.path, 1)], [Slice("orders", 3, 11, 12)], numbers
    )
    ((again,),) = [each.letters for each in reports_of([*retried])]
    assert read_letters(writing.storage, again.path)["timestamp"].cast(pa.int64()).to_pylist() == [time]


def test_letters_of_older_files_have_times_in_microseconds(storage: TableStorage) -> None:
    file = letters_file(storage, 1, [11])
    path = f"{storage.base_path}/{file.path}"
    place = LETTERS.get_field_index("timestamp")
    schema = LETTERS.set(place, pa.field("timestamp", pa.timestamp("us", "UTC"), False))
    old = pq.read_table(path).cast(LETTERS).to_pylist()
    pq.write_table(pa.Table.from_pylist([{**old[0], "timestamp": 1_767_268_800_000_000}], schema), path)
    (letter,) = find_letters(storage, waiting_files([LetterEntry("1", "t-1", "ingest", (file,))]))
    assert letter.timestamp == 1_767_268_800_000
    assert read_letters(storage, file.path)["timestamp"].cast(pa.int64()).to_pylist() == [1_767_268_800_000]


def test_k7_the_terminal_shows_letters_and_what_a_retry_came_to(storage: TableStorage) -> None:
    file = letters_file(storage, 1, [11, 12])
    waiting = waiting_files([LetterEntry("1", "t-1", "ingest", (file,), withheld=True)])
    text = letters_text(count_letters(storage, waiting))
    assert "orders:3  11-12    2" in text
    assert "pending dead letters: 2, 2 of them without their bytes" in text
    assert letters_text([]) == "no pending dead letters"
    (one, _) = find_letters(storage, waiting)
    assert "not kept, because the pipeline masks fields" in letter_text(one)
    assert letter_text(replace(one, withheld=False)).splitlines() == [
        "orders:3:11 of 1970-01-01 00:00:00 UTC, : expected a JSON object, found ",
        "  key    -",
        "  value  {",
    ]
    told = retry_text(RetryResult("orders", 3, 0, 0, 5, 2, (), ("why",)))
    assert told.startswith(
        "dead letters retried: 3, became rows: 0, in 0 commits; 5 still pending\n  - why\n2 cannot be retried"
    )
    assert retry_text(RetryResult("orders", 0, 0, 0, 0, 0, (), ())) == "no pending dead letters"
    told = retry_survey_text(RetrySurvey("orders", 2, 4, 1, 3, 2, ("why",)))
    assert told.splitlines()[:2] == [
        "dead letters to retry: 8, in 2 transactions; 4 would become rows, 1 would be left out, 3 would stay",
        "  - why",
    ]
    assert "2 cannot be retried" in told
    assert retry_survey_text(RetrySurvey("orders", 0, 0, 0, 0, 0, ())) == "no pending dead letters"


def test_r9_letters_that_no_list_names_are_orphans_once_their_instant_has_ended() -> None:
    past = datetime(2026, 1, 1, tzinfo=timezone.utc)
    pending, ended, newest = "20261121120000000", "20261121110000000", "20261121130000000"

    def stored(instant: str, offset: int) -> StoredFile:
        folder = dead_letters_folder(instant)
        identifier = file_groups.file_id("orders", 3, offset, folder, instant)
        return StoredFile(f"{folder}/{identifier}_3-0-0_{instant}.parquet", 1, past)

    manifests = [StoredFile(f"{dead_letters_folder(each)}/{'0' * 16}.json", 1, past) for each in (pending, ended)]
    others = [
        StoredFile(f"{DEAD_LETTERS}/copied", 1, past),
        StoredFile(f"{dead_letters_folder(ended)}/theirs.parquet", 1, past),
    ]
    listed, lost, open_ = stored(ended, 1), stored(ended, 2), stored(pending, 3)
    found = judge_files(
        [listed, lost, open_, *manifests, *others],
        Instants(frozenset({pending}), frozenset({ended, newest})),
        {listed.path},
        topics=["orders"],
        older_than=past + timedelta(hours=1),
    ).orphans
    assert [each.file for each in found] == [lost, manifests[1]]
    assert found[0].origin == FileOrigin(3, 2)


@pytest.mark.parametrize(
    ("copied", "left"),
    [
        ("", "30 10 20"),
        ("10 30", "20"),
        ("20 10 30", ""),
        # The newest ones were rolled back by another writer.
        ("25 10 30", "20"),
        ("99", "30 10 20"),
    ],
)
def test_p1_letters_are_copied_in_the_order_of_the_list_whatever_the_clock_said(copied: str, left: str) -> None:
    entries = [LetterEntry(instant, f"t-{instant}", "ingest") for instant in ("30", "10", "20")]
    assert [each.instant for each in behind(entries, copied.split())] == left.split()
