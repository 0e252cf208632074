"""P1–P5, P7: what was written wrongly is written anew; a reader sees the old rows or the new ones, never both or neither."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa
import pytest
from hudi import HudiReadOptions, HudiTable
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import CommitRefused, IngestError
from hudi_ingest.faults import InjectedFault
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger import RequestProgress
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.observation import look_at
from hudi_ingest.operations.requests.asked_ranges import of_transaction
from hudi_ingest.operations.requests.planning import completed, new_request, next_transaction, survey_replay
from hudi_ingest.operations.upkeep.sweep import run_sweep
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.support.command_line import hudi_ingest
from hudi_ingest_tests.support.engine import own_spark_serves
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def says(ground: Ground, word: str, **changes: int) -> Pipeline:
    """The pipeline whose rows all say `word`."""
    return make_pipeline(
        ground,
        transforms=[{"constant": {"column": "word", "value": word}}],
        **({"transaction": changes} if changes else {}),
    )


@pytest.fixture
def spark(ground: Ground) -> SparkSession:
    """Another writer's session."""
    return current_session(ground.home).newSession()


def words(ground: Ground) -> dict[tuple[int, int], str]:
    """By partition and offset what the row says, read by hudi-rs; each may be there once."""
    options = HudiReadOptions().with_projection(["_kafka_partition", "_kafka_offset", "word"])
    rows = pa.Table.from_batches(HudiTable(ground.base_path).read(options))
    places = list(zip(rows["_kafka_partition"].to_pylist(), rows["_kafka_offset"].to_pylist(), strict=True))
    assert len(set(places)) == len(places), "P2: rows are there twice"
    return dict(zip(places, rows["word"].to_pylist(), strict=True))


def expected(ground: Ground, new: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
    return {place: "right" if place in new else "wrong" for place in ground.produced}


@contextmanager
def watching(ground: Ground, *states: dict[tuple[int, int], str]) -> Iterator[list[int]]:
    """A reader that reads all the time; it may see only these states, in this order. Yields how often it saw each."""
    seen, failures, over = [0] * len(states), [], threading.Event()

    def read() -> None:
        newest = 0
        while not over.is_set():
            try:
                newest = states.index(words(ground), newest)
                seen[newest] += 1
            except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
                failures.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield seen
    finally:
        over.set()
        reader.join()
    assert not failures, failures


def cells(partition: int, start: int, end: int) -> set[tuple[int, int]]:
    return {(partition, offset) for offset in range(start, end)}


@pytest.mark.tier(1)
def test_p1_p2_p3_p5_x2_a_wrong_transform_is_put_right_in_files_shared_with_other_ranges(
    ground: Ground, topic: str, spark: SparkSession, fault: Fault
) -> None:
    wrong = says(ground, "wrong")
    ground.send_rows(0, 60)
    ground.send_rows(1, 40)
    first = ground.run(wrong)
    ground.send_rows(0, 30, 60)
    ground.run(wrong)
    right = says(ground, "right")
    asked = [Slice(ground.name, 0, 10, 75)]
    survey = survey_replay(look_at(right).whole(), asked)
    assert len(survey.rewritten) == len(survey.replaces) >= 3
    assert sum(each.rows for each in survey.replaces) == 65
    assert sum(each.kept for each in survey.replaces) == 10 + 15, (
        "of the same partition; others have files of their own"
    )
    old, new = expected(ground, set()), expected(ground, cells(0, 10, 75))
    arguments = (right.name, "--partition", f"{ground.name}:0", "--start", "10", "--end", "75")
    fault.arm("commit_leased", "kill")
    with watching(ground, old, new) as seen:
        with own_spark_serves(ground.home):
            killed = hudi_ingest(ground.home, "replay", *arguments)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        before = len(ground.data_files())
        (receipt,) = requested(ground, right, TransactionKind.REPLAY, asked)
    assert words(ground) == new
    assert min(seen[:1]) > 0
    assert (receipt.rows, receipt.plan.kind) == (65, TransactionKind.REPLAY)
    assert len(ground.data_files()) <= before + receipt.files + len(survey.rewritten)
    for metadata_table in ("true", "false"):
        reader = spark.read.format("hudi").option("hoodie.metadata.enable", metadata_table)
        rows = reader.load(ground.base_path).select("_kafka_partition", "_kafka_offset", "word").collect()
        assert sorted(map(tuple, rows)) == sorted((*place, word) for place, word in new.items())
    # Incremental readers get the rows that were written anew, and not those that were only copied.
    found = spark.read.format("hudi").load(ground.base_path).where(f"_hoodie_commit_time = '{receipt.instant}'").count()
    assert found == 65
    checkpoint = observe(right).committed.checkpoint
    assert checkpoint is not None
    assert checkpoint.offsets == {each.source: end for each, end in zip(first.plan.slices, (90, 40), strict=True)}
    # Live transactions go on, also into the files' folders, and a whole transaction can be replayed.
    ground.send_rows(0, 10, 90)
    ground.run(right)
    for _ in requested(
        ground, right, TransactionKind.REPLAY, of_transaction(look_at(right), first.plan.transaction_id)
    ):
        pass
    new |= dict.fromkeys(cells(0, 0, 60) | cells(1, 0, 40) | cells(0, 90, 100), "right")
    assert words(ground) == new


def test_p5_a_replay_that_breaks_off_at_any_step_is_done_again_and_leaves_nothing(
    ground: Ground, topic: str, fault: Fault
) -> None:
    ground.send_rows(0, 20)
    ground.send_rows(1, 20)
    ground.run(says(ground, "wrong"))
    right = says(ground, "right")
    asked = [Slice(ground.name, 0, 5, 20)]
    old, new = expected(ground, set()), expected(ground, cells(0, 5, 20))
    # Not at instant_requested: an instant without a plan may be anybody's, so replays wait until its lease has run out.
    for point in ("instant_inflight", "slices_written", "commit_leased", "commit_landed"):
        fault.arm(point, "raise")
        with pytest.raises((InjectedFault, IngestError)):
            list(requested(ground, right, TransactionKind.REPLAY, asked))
        assert fault.was_reached(point)
        assert words(ground) == (new if point == "commit_landed" else old)
    assert list(requested(ground, right, TransactionKind.REPLAY, asked)) == [], "the last try had landed"
    assert words(ground) == new
    checkpoint = observe(right).committed.checkpoint
    assert checkpoint is not None and checkpoint.sequence == 2
    assert not Timeline(ground.base_path).instants().pending
    # What was replaced is listed until it is cleaned, and what broke off is gone.
    found = run_sweep(right, timedelta(0), home=ground.home)
    assert [each for each in found.orphans if each.origin is not None] == []


def test_p7_deleted_rows_come_back_only_if_they_may(ground: Ground, topic: str, spark: SparkSession) -> None:
    """And in several transactions, over files that clustering made."""
    ground.send_rows(0, 60)
    ground.run(says(ground, "wrong"))
    spark.sql(f"create table {ground.name} using hudi location '{ground.base_path}'")
    spark.sql(f"delete from {ground.name} where n < 5")
    spark.sql(f"call run_clustering(table => '{ground.name}', op => 'scheduleAndExecute')").collect()
    right = says(ground, "right", max_records=25)
    asked = [Slice(ground.name, 0, 0, 50)]
    survey = survey_replay(look_at(right).whole(), asked)
    assert (survey.missing.deleted, survey.missing.unknown, survey.transactions) == (5, 0, 2)
    receipts = list(requested(ground, right, TransactionKind.REPLAY, asked, respect_deletes=True))
    assert [each.rows for each in receipts] == [20, 25]
    left = expected(ground, cells(0, 0, 50))
    assert words(ground) == {place: word for place, word in left.items() if place[1] >= 5}
    assert survey_replay(look_at(right).whole(), asked).missing.deleted == 5
    for _ in requested(ground, right, TransactionKind.REPLAY, asked):
        pass
    assert words(ground) == left


def test_p4_p7_a_replay_of_files_that_another_writer_changed_meanwhile_is_refused(
    ground: Ground, topic: str, spark: SparkSession
) -> None:
    wrong = says(ground, "wrong")
    ground.send_rows(0, 30)
    ground.run(wrong)
    right = says(ground, "right")
    asked = [Slice(ground.name, 0, 0, 20)]
    protocol = ground.protocol(right)

    def plans_of(when_written: str) -> None:
        """One replay, begun and written, with an SQL statement of another writer before its commit."""
        request, observation = new_request(right, TransactionKind.REPLAY, asked), look_at(right)
        first = next_transaction(observation, request, RequestProgress())
        assert first is not None
        plan = completed(observation, request, RequestProgress(), first)
        opened = protocol.begin(plan, Owner.this_process(), lambda run: None)
        reports = protocol.write(opened, opened.plan.slices)
        spark.sql(when_written).collect()
        try:
            protocol.commit(opened, reports)
        finally:
            protocol.abort(opened, "a test")

    spark.sql(f"create table {ground.name} using hudi location '{ground.base_path}'")
    with pytest.raises(CommitRefused, match=r"is no longer in the table .*another writer changed its rows"):
        plans_of(f"update {ground.name} set word = 'changed' where n = 7")
    after = expected(ground, set()) | {(0, 7): "changed"}
    assert words(ground) == after
    with pytest.raises(CommitRefused, match=r"a clustering of file .* is pending"):
        plans_of(f"call run_clustering(table => '{ground.name}', op => 'schedule')")
    assert words(ground) == after
    spark.sql(f"call run_clustering(table => '{ground.name}', op => 'execute')").collect()
    plans_of("select 1")
    assert words(ground) == expected(ground, cells(0, 0, 20))
    assert not Timeline(ground.base_path).instants().pending
