"""What all commits add up to: it goes on from the last checkpoint, by kind of transaction."""

from __future__ import annotations

from dataclasses import replace

from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition
from hudi_ingest.model.plan import IngestPlan, LossReason, OffsetLoss, ReplacedFile, ReplayPlan, TransactionPlan
from hudi_ingest.model.report import BaseFile, LogFile, SliceReport, rows_appended, with_commit

P0 = TopicPartition("orders", 0)
FILE = BaseFile("", "f", "f.parquet", 3, 100, 0, 9)


def test_each_commit_adds_to_the_totals_that_the_checkpoint_carries() -> None:
    piece = Slice("orders", 0, 10, 20)
    loss = OffsetLoss("orders", 0, 5, 10, 5, LossReason.RETENTION)
    plan = IngestPlan("orders", "t", 1, (piece,), resets=(loss,))
    report = SliceReport(piece, 0, (FILE,), rows=3, skipped=1, filtered=2, rejected=3, gaps=1)
    first = with_commit({}, plan, [report], keeps_bad=True)
    assert first == {
        "ingest": {
            "transactions": 1,
            "lost": 5,
            "rows": 3,
            "files": 1,
            "bytes": 100,
            "tombstones": 1,
            "filtered": 2,
            "bad_kept": 3,
            "gaps": 1,
        }
    }
    carried = Checkpoint.from_json(Checkpoint(1, "t", {P0: 20}, totals=first).to_json())
    following = next_checkpoint(carried, IngestPlan("orders", "u", 2, ()), 0)
    assert following.totals == first
    second = with_commit(following.totals, plan, [report], keeps_bad=False)["ingest"]
    assert (second["rows"], second["transactions"], second["bad_kept"], second["bad_skipped"]) == (6, 2, 3, 3)


def test_control_records_are_no_tombstones() -> None:
    piece = Slice("orders", 0, 0, 9)
    report = SliceReport(piece, 0, rows=2, skipped=7, heartbeats=3, truncates=2)
    own = with_commit({}, IngestPlan("orders", "t", 1, (piece,)), [report], keeps_bad=False)["ingest"]
    assert (own["tombstones"], own["heartbeats"], own["truncates"]) == (2, 3, 2)
    assert report.accounted


def test_a_log_file_that_kafka_partitions_share_counts_once() -> None:
    pieces = [Slice("orders", partition, 0, 2) for partition in (0, 1)]
    part = LogFile("", "f", ".f_1.log.1_0", 2, 0, 50, 0, 1, file_rows=4)
    reports = [SliceReport(piece, 0, rows=2, log_files=(part,)) for piece in pieces]
    own = with_commit({}, IngestPlan("orders", "t", 1, (*pieces,)), reports, keeps_bad=False)["ingest"]
    assert (own["files"], own["bytes"], own["rows"]) == (1, 100, 4)


def test_the_rows_of_an_append_table_are_known_while_every_commit_has_counted_its_own() -> None:
    piece = Slice("orders", 0, 0, 9)

    def after(checkpoint: Checkpoint, plan: TransactionPlan, rows: int) -> Checkpoint:
        totals = with_commit(checkpoint.totals, plan, [SliceReport(piece, 0, rows=rows)], keeps_bad=False)
        return Checkpoint(checkpoint.sequence + 1, "t", {P0: 9}, totals=totals)

    replay = ReplayPlan("orders", "r", 2, (piece,), replaces=(ReplacedFile("f.parquet", 7, 1, 10, "orders", 0),))
    ingested = after(Checkpoint(0, "", {}), IngestPlan("orders", "t", 1, (piece,)), 9)
    replayed = after(ingested, replay, 5)
    assert (rows_appended(ingested), rows_appended(replayed), rows_appended(after(replayed, replay, 7))) == (9, 7, 7)
    nothing_replaced = after(ingested, ReplayPlan("orders", "r", 2, (piece,)), 0)
    assert rows_appended(Checkpoint.from_json(nothing_replaced.to_json())) == 9
    assert rows_appended(replace(ingested, sequence=2)) is None, "a commit did not count"
    assert rows_appended(replace(ingested, taken_over={P0: 3})) is None
    older = replace(replayed, totals={**replayed.totals, "replay": {"transactions": 1, "rows": 5}})
    assert rows_appended(older) is None
    assert rows_appended(after(older, replay, 7)) is None, "older versions did not count what a replay replaced"
