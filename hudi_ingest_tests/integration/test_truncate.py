"""Truncates of Debezium on a real broker, Spark and Hudi: after each step, Spark, hudi-rs and CDC queries have what the source has.
Random changes of a mirror, truncates among them, are test_keyed_model.py's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.exceptions import BadRecord, IngestError, NothingToDo
from hudi_ingest.faults import InjectedFault
from hudi_ingest.hudi.files.late_changes import TRUNCATED
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.broker import create_topic
from hudi_ingest.model.counts import Counts
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.operations.health.judgement import accounting_holds
from hudi_ingest.operations.requests.dead_letter_retry import RetryResult
from hudi_ingest.operations.requests.planning import new_request
from hudi_ingest.operations.requests.work import file_request, retry_result, work_off
from hudi_ingest.operations.upkeep.table_services import services_for
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.write import job
from hudi_ingest_tests.integration.test_keyed_model import compact, seen_by_hudi_rs, seen_by_spark, told_by_cdc
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, fresh_ground, make_pipeline
from hudi_ingest_tests.support.requesting import requested

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

DAYS = ("d0", "d1", "d2")


@dataclass
class Source:
    """A table of a database, and Debezium's events of its changes in a topic."""

    ground: Ground
    cdc: bool = True
    """Whether CDC queries are compared, too."""
    keeps_letters: bool = False
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent: int = 0

    def pipeline(self, *, takes_texts: bool = False, **source: Any) -> Pipeline:
        """`takes_texts`: as numbers."""
        return make_pipeline(
            self.ground,
            on_bad_record="dead_letter" if takes_texts or self.keeps_letters else "fail",
            transforms=[{"cast": {"n": "long"}}] if takes_texts else [],
            source={"envelope": "debezium", "before_image": "row", **source},
            table={
                "mode": "upsert",
                "key": ["id"],
                "buckets": 2,
                "schema": f"id string not null, n {'string' if takes_texts else 'long'} not null, note string, dt string",
                "cdc": self.cdc,
                "compaction": {"delta_commits": 2},
            },
        )

    def put(self, *keys: str, day: str | None = None) -> None:
        """Insert rows, or update them, which moves them if their day is another."""
        for key in keys:
            row = {"id": key, "n": self.sent, "note": f"note {self.sent}", "dt": day or DAYS[ord(key[0]) % 3]}
            self._send({"op": "u" if key in self.rows else "c", "before": self.rows.get(key), "after": row})
            self.rows[key] = row

    def put_bad(self, key: str) -> dict[str, Any]:
        """Insert a row that is bad because its number is a text. Returns it as it is meant."""
        row = {"id": key, "n": self.sent, "note": "bad", "dt": "d0"}
        self._send({"op": "c", "before": None, "after": row | {"n": str(self.sent)}})
        return row

    def delete(self, key: str) -> None:
        self._send({"op": "d", "before": self.rows.pop(key), "after": None})

    def truncate(self) -> None:
        self._send({"op": "t", "before": None, "after": None})
        self.rows.clear()

    def _send(self, event: dict[str, Any]) -> None:
        self.ground.send(0, [json.dumps(event).encode()])
        self.sent += 1

    def run(self) -> Counts:
        """Ingest all events, and return what became of them."""
        receipt = self.ground.run(self.pipeline())
        self.require_same()
        return counted(receipt)

    @property
    def expected(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["dt"], key): row for key, row in self.rows.items()}

    def require_same(self, *, compacted: bool = False) -> None:
        """All readers have the rows of the source, and CDC queries come to them."""
        expected = self.expected
        spark = current_session(self.ground.home).newSession()
        assert seen_by_hudi_rs(self.ground) == expected
        assert seen_by_spark(spark, self.ground) == expected
        if self.cdc:
            assert told_by_cdc(spark, self.ground) == expected
        if compacted:
            assert seen_by_spark(spark, self.ground, "read_optimized") == expected

    def log_files(self, instant: str) -> set[str]:
        paths = Path(self.ground.base_path).glob(f"*/.*_{instant}.log.*")
        return {path.name for path in paths if path.suffix != ".crc"}


def counted(receipt: CommitReceipt) -> Counts:
    return Counts.total(receipt.reports)


@pytest.fixture
def source(bootstrap_servers: str, tmp_path: Path) -> Iterator[Source]:
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 1)
        yield Source(ground)


@pytest.mark.tier(1)
def test_p1_p8_s15_a_truncate_deletes_all_rows_before_it_and_none_after_it(source: Source, fault: Fault) -> None:
    source.put(*"abcdef")
    source.run()
    source.put("a", "g")
    source.truncate()
    source.put("a", "h")
    counts = source.run()
    # Rows of the table; those of the transaction never were in a file.
    assert (counts.rows, counts.truncates, counts.superseded, counts.truncated) == (4, 1, 2, 6)
    commits = PipelineTable(source.pipeline()).commits()
    checkpoint = PipelineTable(source.pipeline()).committed().checkpoint
    assert accounting_holds(source.pipeline(), checkpoint, commits).passed
    compact(source.ground, source.pipeline())
    source.require_same(compacted=True)
    source.truncate()
    counts = source.run()
    assert (counts.rows, counts.truncates, counts.truncated) == (0, 1, 2)
    source.truncate()
    source.put("b")
    for point in ("rows_written", "slices_written", "commit_leased"):
        fault.arm(point, "raise")
        with pytest.raises((InjectedFault, IngestError)):
            source.ground.run(source.pipeline())
        assert fault.was_reached(point)
    source.run()
    source.truncate()
    source.truncate()
    source.put("c")
    fault.arm("commit_landed", "raise")
    with pytest.raises(InjectedFault):
        source.ground.run(source.pipeline())
    source.require_same()
    with pytest.raises(NothingToDo):
        source.ground.run(source.pipeline())


def test_p7_a_truncate_commits_beside_a_compaction_that_was_planned_after_its_begin(source: Source) -> None:
    source.cdc = False
    source.put(*"abcdef")
    source.run()
    source.put("a", "b")
    source.run()
    source.truncate()
    source.put("b", "i")
    pipeline = source.pipeline()
    protocol = source.ground.protocol(pipeline)
    opened = protocol.begin(source.ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    services = services_for(pipeline, source.ground.ledger, current_session(source.ground.home), source.ground.home)
    assert services.compactor.plan_compaction() is not None
    protocol.commit(opened, protocol.write(opened, opened.plan.busy))
    source.require_same()
    assert services.run(clean=False, report=lambda line: None).compactions
    source.require_same()
    source.put("a")
    source.run()
    compact(source.ground, pipeline)
    source.require_same(compacted=True)


def test_p8_a_replay_applies_truncates_and_leaves_what_came_after_them(source: Source) -> None:
    source.put(*"abc")
    source.truncate()
    source.put("c", "d")
    skipped = counted(source.ground.run(source.pipeline(on_truncate="skip")))
    assert (skipped.truncates, skipped.truncated) == (1, 0)
    assert sorted(key for _, key in seen_by_hudi_rs(source.ground)) == [*"abcd"]
    source.put("e")
    pipeline = source.pipeline()
    source.ground.run(pipeline)
    for start in (0, 3, 2):
        asked = [Slice(source.ground.name, 0, start, source.sent)]
        assert list(requested(source.ground, pipeline, TransactionKind.REPLAY, asked))
        source.require_same()
        compact(source.ground, pipeline)


def test_p7_statements_of_another_writer_come_before_a_truncate_or_after_it(source: Source) -> None:
    # Not beside statements that run while a transaction commits.
    source.cdc = False
    # So many that each bucket has one: a new file group of another writer has no base file for hudi-rs.
    source.put(*"abcdefgh", day="d0")
    source.run()
    source.truncate()
    source.put("d", day="d0")
    pipeline = source.pipeline()
    protocol = source.ground.protocol(pipeline)
    opened = protocol.begin(source.ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    reports = protocol.write(opened, opened.plan.busy)
    spark = current_session(source.ground.home).newSession()
    name = source.ground.name
    spark.sql(f"create table if not exists {name} using hudi location '{source.ground.base_path}'")
    spark.sql(f"update {name} set note = 'updated' where id = 'a'")
    spark.sql(
        f"insert into {name} (id, n, note, dt, _kafka_topic, _kafka_partition, _kafka_offset) "
        "values ('sql', 1L, 'inserted', 'd0', '', 0, 0L)"
    )
    protocol.commit(opened, reports)
    # The update changes a row that the truncate deletes; the insert adds one that it has not seen.
    keys = ["d", "sql"]
    assert sorted(key for _, key in seen_by_hudi_rs(source.ground)) == keys
    assert sorted(key for _, key in seen_by_spark(spark, source.ground)) == keys
    source.truncate()
    source.ground.run(pipeline)
    assert seen_by_hudi_rs(source.ground) == seen_by_spark(spark, source.ground) == {}


def test_p1_a_slice_that_is_cut_for_several_tasks_is_read_by_one_if_it_has_a_truncate(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.put(*"abcd")
    source.run()
    monkeypatch.setattr(job, "rows_per_task", lambda *_: 4)
    source.put(*"abcdefgh")
    source.put(*"abc")
    source.truncate()
    source.put(*"bcijkl")
    receipt = source.ground.run(source.pipeline())
    source.require_same()
    assert source.log_files(receipt.instant) == {
        Path(file.path).name for report in receipt.reports for file in report.written
    }


def test_p1_truncates_of_a_topic_with_several_partitions_are_refused(bootstrap_servers: str, tmp_path: Path) -> None:
    with fresh_ground(bootstrap_servers, tmp_path) as ground:
        create_topic(bootstrap_servers, ground.name, 2)
        source = Source(ground)
        source.put("a")
        ground.send(1, [json.dumps({"op": "t"}).encode()])
        with pytest.raises(
            BadRecord,
            match="because the table is written from 2 Kafka partitions, so nothing says which rows it deletes",
        ):
            ground.run(source.pipeline())
        skipped = counted(ground.run(source.pipeline(on_truncate="skip")))
        assert (skipped.rows, skipped.truncates, skipped.truncated) == (1, 1, 0)
        asked = [Slice(ground.name, 1, 0, 1)]
        with pytest.raises(BadRecord, match="because the table is written from 2 Kafka partitions"):
            list(requested(ground, source.pipeline(), TransactionKind.REPLAY, asked))


def test_p8_a_retried_change_from_before_a_truncate_brings_no_row_back(source: Source) -> None:
    source.keeps_letters = True

    def retried() -> RetryResult:
        pipeline, ground = source.pipeline(takes_texts=True), source.ground
        request = file_request(new_request(pipeline, TransactionKind.RETRY), ground.home)
        for _ in work_off(pipeline, request, home=ground.home, report=lambda line: None):
            pass
        source.require_same()
        return retry_result(pipeline, ground.ledger, request.request_id)

    source.put("a")
    source.put_bad("before")
    assert source.run().rejected == 1
    source.truncate()
    source.put("b")
    source.run()
    after = source.put_bad("after")
    source.run()
    source.rows["after"] = after
    result = retried()
    assert (result.tried, result.rows, result.waiting) == (2, 2, 0)
    source.put_bad("doubtful")
    source.truncate()
    source.put("c")
    source.run()
    result = retried()
    assert (result.tried, result.rows, result.waiting) == (1, 0, 1)
    (reason,) = result.reasons
    assert TRUNCATED in reason
