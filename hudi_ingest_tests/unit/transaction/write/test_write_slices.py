"""The driver of a write, whole: its own code and its tasks', over librdkafka's mock cluster and real files. Only Spark runs in this process.

The functions have tests of their own; these fail if one of them is no longer called."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from hudi_ingest.exceptions import Fenced, IngestError, LogTruncated, OffsetsLost, RangeRefused, WriteIncomplete
from hudi_ingest.hudi.files.new_files import PastCommit
from hudi_ingest.hudi.storage.local import LocalStorage
from hudi_ingest.hudi.storage.paths import heartbeat_path
from hudi_ingest.hudi.timeline.epoch import TableEpoch
from hudi_ingest.hudi.timeline.timeline import CommittedInstant
from hudi_ingest.kafka import range_reader
from hudi_ingest.model.accounting import Accounting
from hudi_ingest.model.certificate import Certificate
from hudi_ingest.model.offsets import LastRecord, Slice, TopicPartition, TopicVersion
from hudi_ingest.model.plan import IngestPlan, ReplacedFile, ReplayPlan, RetryPlan, TransactionPlan
from hudi_ingest.model.report import BaseFile, SliceReport
from hudi_ingest.model.transaction import OpenTransaction, TransactionSchema
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.records.schema.columns import spark_json, table_schema
from hudi_ingest.transaction.checks import shape_of
from hudi_ingest.transaction.write import job, reports, task
from hudi_ingest.transaction.write.job import write_slices
from hudi_ingest_tests.support.in_process_spark import in_process_spark
from hudi_ingest_tests.support.pipeline_files import Write, load

INSTANT = "20261121120000000"
RECORDS = 40
P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with two partitions of RECORDS records each, in which id is `<partition>-<offset>` and n the offset."""
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    for offset in range(RECORDS):
        for source in (P0, P1):
            value = json.dumps({"id": f"{source.partition}-{offset}", "n": offset})
            producer.produce("orders", value, b"key", source.partition, timestamp=1000 * (offset + 1))
    assert producer.flush(120) == 0
    (broker,) = producer.list_topics(timeout=120).brokers.values()
    yield f"{broker.host}:{broker.port}"


@dataclass
class Driver:
    """A table, an open transaction of it, and what its broker says of the topic now."""

    pipeline: Pipeline
    storage: LocalStorage
    spark: Any
    topic_id: str = "id-1"

    def write(self, plan: TransactionPlan, attempts: int = 1, **fields: Any) -> tuple[SliceReport, ...]:
        columns = table_schema(self.pipeline.table.record, self.pipeline.table.kafka_columns)
        now = datetime.now(timezone.utc)
        transaction = OpenTransaction(
            plan,
            INSTANT,
            1,
            now,
            now + timedelta(minutes=5),
            TransactionSchema("declared", spark_json(columns.record), columns.spark_json),
            shape_of(self.pipeline),
            **fields,
        )
        busy = plan.busy
        return write_slices(
            self.spark, self.pipeline, transaction, busy, {slice_.source: attempts for slice_ in busy}, 0
        )

    def offsets(self, report: SliceReport) -> list[int]:
        rows = [pq.read_table(f"{self.storage.base_path}/{file.path}") for file in report.files]
        return sorted(offset for table in rows for offset in table["_kafka_offset"].to_pylist())


Making = Callable[..., Driver]


@pytest.fixture
def driver(address: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Making:
    numbers = count()

    def made(**changes: Any) -> Driver:
        pipeline = load(
            write,
            **{
                "source__bootstrap_servers": address,
                "table__base_path": str(tmp_path / f"table-{next(numbers)}"),
                "table__schema": "id string, n long",
                **changes,
            },
        )
        storage = LocalStorage(pipeline.table.base_path)
        storage.write(heartbeat_path(INSTANT), b"")
        TableEpoch(storage).advance(1, "t1")
        driver = Driver(pipeline, storage, in_process_spark())

        @contextmanager
        def cluster(source: object) -> Iterator[Any]:
            # The mock cluster has no ids of topics.
            yield SimpleNamespace(topics=lambda: {"orders": SimpleNamespace(topic_id=driver.topic_id)})

        monkeypatch.setattr(reports, "kept_cluster", cluster)
        return driver

    return made


def ingest(*slices: Slice, topic_id: str = "id-1", generation: int = 0) -> IngestPlan:
    return IngestPlan("orders", "t1", 1, slices, topics={"orders": TopicVersion(topic_id, generation)})


WHOLE = Slice("orders", 0, 0, RECORDS)
BOTH = (Slice("orders", 0, 5, 30), Slice("orders", 1, 0, RECORDS))


def lose(monkeypatch: pytest.MonkeyPatch, lost: Callable[[TopicPartition, int], bool]) -> None:
    """Records get lost between the broker and the tasks."""
    read = range_reader.read_ranges

    def leaky(*arguments: Any) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        for source, batch in read(*arguments):
            kept = [not lost(source, offset) for offset in batch["offset"].to_pylist()]
            yield source, batch.filter(pa.array(kept))

    monkeypatch.setattr(range_reader, "read_ranges", leaky)


def test_p1_p2_the_slices_are_read_whole_and_reported_each(driver: Making) -> None:
    driven = driver()
    found = driven.write(ingest(*BOTH))
    assert [report.slice for report in found] == [*BOTH]
    for report in found:
        assert report.accounted
        assert driven.offsets(report) == [*range(report.slice.start, report.slice.end)]
        assert (report.rows, report.gaps, report.attempt) == (report.slice.count, 0, 1)


@pytest.mark.parametrize("lost", [range(1), range(7, 9), range(RECORDS - 1, RECORDS)], ids=["first", "middle", "last"])
def test_p1_a_record_lost_between_broker_and_task_is_no_gap(
    driver: Making, monkeypatch: pytest.MonkeyPatch, lost: range
) -> None:
    driven = driver()
    lose(monkeypatch, lambda source, offset: offset in lost)
    with pytest.raises(WriteIncomplete, match=rf"did not read records that the broker has: .* without {lost[0]}\."):
        driven.write(ingest(WHOLE))


def test_p1_a_topic_recreated_while_it_is_read_is_noticed(driver: Making) -> None:
    driven = driver()
    driven.topic_id = "id-2"
    with pytest.raises(OffsetsLost, match="was deleted and recreated while transaction t1 read it"):
        driven.write(ingest(WHOLE))


def test_p1_a_log_that_was_cut_and_has_grown_since_is_not_read(driver: Making) -> None:
    """The tasks compare the record before their slices with the one that was read there."""
    slice_, before = Slice("orders", 0, 10, 20), LastRecord(9, 10_000)
    (report,) = driver().write(ingest(slice_), follows={P0: before})
    assert report.rows == 10
    with pytest.raises(LogTruncated):
        driver().write(ingest(slice_), follows={P0: replace(before, timestamp=10_001)})


def test_p2_record_keys_have_the_topics_generation(driver: Making) -> None:
    def keys(generation: int) -> list[str]:
        driven = driver()
        (report,) = driven.write(ingest(Slice("orders", 0, 0, 1), generation=generation))
        (file,) = report.files
        found: list[str] = pq.read_table(f"{driven.storage.base_path}/{file.path}")["_hoodie_record_key"].to_pylist()
        return found

    assert len({*keys(0), *keys(1), *keys(2)}) == 3


def replay(driven: Driver, *slices: Slice, **fields: Any) -> ReplayPlan:
    """A plan that replaces the files of an earlier write of `WHOLE`."""
    (before,) = driven.write(ingest(WHOLE), attempts=9)
    taken = set().union(*(range(slice_.start, slice_.end) for slice_ in slices))
    files = [_replaced(driven, file, taken) for file in before.files]
    return ReplayPlan(
        "orders",
        "t1",
        1,
        slices,
        topics={"orders": TopicVersion("id-1")},
        replaces=tuple(filter(None, files)),
        **fields,
    )


def _replaced(driven: Driver, file: BaseFile, taken: set[int]) -> ReplacedFile | None:
    offsets = pq.read_table(f"{driven.storage.base_path}/{file.path}")["_kafka_offset"].to_pylist()
    rows = len(taken.intersection(offsets))
    return ReplacedFile(file.path, rows, len(offsets) - rows, file.size_bytes, "orders", 0) if rows else None


def test_p1_p2_a_replay_writes_its_range_and_copies_the_other_rows(driver: Making) -> None:
    driven = driver()
    (report,) = driven.write(replay(driven, Slice("orders", 0, 10, 20)))
    assert driven.offsets(report) == [*range(10, 20)]
    (copy,) = report.copies
    copied = pq.read_table(f"{driven.storage.base_path}/{copy.path}")["_kafka_offset"].to_pylist()
    assert sorted(copied) == [*range(10), *range(20, RECORDS)]


def test_p1_a_replay_of_records_compacted_away_is_refused(driver: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = driver()
    plan = replay(driven, Slice("orders", 0, 10, 20))
    lose(monkeypatch, lambda source, offset: offset == 12)
    # The broker no longer has it either, so it is a true gap.
    monkeypatch.setattr(reports, "first_records_in", lambda source, group, gaps, seconds: dict.fromkeys(gaps))
    with pytest.raises(RangeRefused, match="1 of 10 records with a row in the table are no longer in Kafka"):
        driven.write(plan)


@pytest.mark.parametrize(("respects", "rows", "filtered"), [(True, 5, 5), (False, 10, 0)])
def test_a_replay_that_respects_deletes_writes_only_what_has_a_row(
    driver: Making, respects: bool, rows: int, filtered: int
) -> None:
    driven = driver()
    before = replay(driven, Slice("orders", 0, 10, 20))
    # Somebody deletes the rows with even numbers.
    for file in before.replaces:
        path = f"{driven.storage.base_path}/{file.path}"
        table = pq.read_table(path)
        pq.write_table(table.filter(pa.array([offset % 2 == 1 for offset in table["_kafka_offset"].to_pylist()])), path)
    replaces = tuple(replace(file, rows=5, kept=file.kept // 2) for file in before.replaces)
    (report,) = driven.write(replace(before, replaces=replaces, respect_deletes=respects))
    assert (report.rows, report.filtered) == (rows, filtered)
    assert report.accounted


def test_p1_certificates_of_a_slice_are_those_of_all_its_batches(
    driver: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is closed after so many records, and a slice may have many."""

    def certificate(slice_: Slice) -> Certificate | None:
        return driver(table__certificates=True).write(ingest(slice_))[0].certificate

    whole = certificate(WHOLE)
    assert whole is not None
    assert Certificate.total([certificate(Slice("orders", 0, 0, 21)), certificate(Slice("orders", 0, 21, 40))]) == whole
    read = range_reader.read_ranges

    def in_parts(*arguments: Any) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        for source, batch in read(*arguments):
            for start in range(0, batch.num_rows, 7):
                yield source, batch.slice(start, 7)

    monkeypatch.setattr(range_reader, "read_ranges", in_parts)
    assert certificate(WHOLE) == whole


def test_p1_tasks_that_share_a_slice_read_it_once(driver: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "SMALLEST_TASK_ROWS", 10)
    driven = driver()
    found = driven.write(ingest(*BOTH))
    assert driven.spark.sparkContext.tasks[0] > 1
    for report in found:
        assert driven.offsets(report) == [*range(report.slice.start, report.slice.end)]


def test_a_record_that_needs_one_of_another_task_has_each_slice_read_by_one(
    driver: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SMALLEST_TASK_ROWS", 10)
    driven = driver()
    first = iter([task.OutOfOrder("a record needs a row that another task may be writing")])
    run = task.run_ranges

    def refusing(*arguments: Any) -> Iterator[Any]:
        for error in first:
            yield task.packed(error)
            return
        yield from run(*arguments)

    monkeypatch.setattr(job, "run_ranges", refusing)
    found = driven.write(ingest(*BOTH))
    assert driven.spark.sparkContext.tasks[-1] == len(BOTH)
    assert all(report.accounted and report.gaps == 0 for report in found)


def test_p4_errors_of_a_transaction_that_was_rolled_back_are_said_to_be_that(
    driver: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = driver()

    def rolled_back(*arguments: Any) -> Iterator[bytes]:
        driven.storage.delete(heartbeat_path(INSTANT))
        yield task.packed(WriteIncomplete("orders:0: a file is gone"))

    monkeypatch.setattr(job, "run_ranges", rolled_back)
    with pytest.raises(Fenced, match="is no longer open"):
        driven.write(ingest(WHOLE))


def test_the_most_important_error_of_tasks_is_raised_and_its_jobs_are_cancelled(
    driver: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = driver()
    error = WriteIncomplete("orders:0: something")
    monkeypatch.setattr(job, "run_ranges", lambda *arguments: iter([task.packed(error)]))
    with pytest.raises(IngestError, match="orders:0: something"):
        driven.write(ingest(WHOLE))
    assert driven.spark.sparkContext.cancelled


@pytest.mark.parametrize("kind", [IngestPlan, ReplayPlan, RetryPlan])
def test_p8_a_retry_did_not_read_its_slices(kind: type[TransactionPlan]) -> None:
    """It took single letters of them, so a later one may still have to be compared with what came between."""
    slice_ = Slice("orders", 0, 5, 9)
    accounting = Accounting.of(kind("orders", "t", 1, (slice_,)), [SliceReport(slice_, 0, rows=4)])
    commit = CommittedInstant(INSTANT, {"transaction": accounting.to_json()}, datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert job._past_commit(commit, "transaction", True).read == (() if kind is RetryPlan else (slice_,))
    assert job._past_commit(commit, "transaction", False) == PastCommit()
    assert job._past_commit(commit, "of another pipeline", True) == PastCommit()
