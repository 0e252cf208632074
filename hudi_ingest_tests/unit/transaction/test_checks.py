from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hudi_ingest.exceptions import PlanOutdated, WriteIncomplete
from hudi_ingest.model.checkpoint import Checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion
from hudi_ingest.model.plan import (
    BackfillPlan,
    IngestPlan,
    LossReason,
    OffsetLoss,
    ReplacedFile,
    ReplayPlan,
    TransactionPlan,
)
from hudi_ingest.model.report import BaseFile, LogFile, SliceReport
from hudi_ingest.transaction.checks import require_complete, require_current, require_lost, require_sums, shape_of
from hudi_ingest_tests.support.pipeline_files import Write, load

pytestmark = pytest.mark.fast


def test_p8_ops_that_would_place_keys_in_other_buckets_are_not_of_one_transaction(write: Write) -> None:
    def shape(buckets: int) -> str:
        return shape_of(load(write, table__mode="upsert", table__key=["id"], table__buckets=buckets))

    assert shape(4) == shape(4) != shape(8)


def test_ops_of_a_transaction_agree_on_what_becomes_of_records(write: Write) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"on_bad_record": "dead_letter"},
        {"on_bad_record": "dead_letter", "dead_letters__keep_masked": True},
        {"table__base_path": "/data/others"},
        {"table__partition_by": ["dt"]},
        {"table__schema": "id string, n long"},
        {"transforms": [{"filter": {"field": "n", "op": ">=", "value": 1}}]},
    )
    shapes = [shape_of(load(write, **change)) for change in changes]
    assert len({*shapes}) == len(changes)


P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TOPICS = {"orders": TopicVersion("id")}
COMMITTED = Checkpoint(3, "t3", {P0: 10, P1: 5}, topics=TOPICS, covered={P0: ((4, 10),), P1: ((0, 5),)})
LIVE = IngestPlan("orders", "t4", 4, (Slice("orders", 0, 10, 12), Slice("orders", 1, 5, 5)), topics=TOPICS)
LOST = OffsetLoss("orders", 0, 10, 20, 10, LossReason.RETENTION)
BACKFILL = BackfillPlan("orders", "t4", 4, (Slice("orders", 0, 0, 4),), topics=TOPICS)
REPLAY = ReplayPlan("orders", "t4", 4, (Slice("orders", 0, 4, 10),), topics=TOPICS)


def _from(offset: int) -> IngestPlan:
    return replace(LIVE, slices=(Slice("orders", 0, offset, 30), LIVE.slices[1]))


@pytest.mark.parametrize("plan", [LIVE, BACKFILL, REPLAY, replace(_from(20), resets=(LOST,))])
def test_p2_the_tables_next_plan_is_current(plan: TransactionPlan) -> None:
    require_current(plan, COMMITTED)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (replace(LIVE, sequence=3), "it is number 3"),
        (replace(LIVE, sequence=5), "it is number 5"),
        (_from(9), "orders:0 starts at 9, but 10 is committed"),
        (_from(11), "orders:0 starts at 11, but 10 is committed"),
        (replace(_from(20), resets=(replace(LOST, committed=9),)), "is reset from 9 to 20, but 10 is"),
        (replace(_from(21), resets=(LOST,)), "is reset from 10 to 20, but 10 is .* its slice starts at 21"),
        (replace(LIVE, stopped=(LOST,)), "orders:0 is stopped but has a slice"),
        (replace(LIVE, topics={}), "it has no id for topic orders"),
        (replace(LIVE, topics={"orders": TopicVersion("other")}), "topic orders has id other, but id is committed"),
        (replace(LIVE, topics={"orders": TopicVersion("id", 1)}), "has generation 1, but 0 is committed"),
        (replace(BACKFILL, topics={"orders": TopicVersion("other")}), "topic orders is "),
        (replace(BACKFILL, slices=(Slice("orders", 0, 9, 11),)), "is not before the committed offset 10"),
        (replace(BACKFILL, slices=(Slice("orders", 0, 0, 5),)), "is a backfill, but the table has "),
        (replace(REPLAY, slices=(Slice("orders", 0, 3, 10),)), "is a replay, but the table has "),
    ],
)
def test_p2_any_other_is_outdated(plan: TransactionPlan, said: str) -> None:
    with pytest.raises(PlanOutdated, match=said):
        require_current(plan, COMMITTED)


def test_p1_a_reset_gives_up_what_is_lost_and_no_more() -> None:
    plan = replace(_from(20), resets=(LOST,))
    require_lost(plan, (LOST,))
    for now in ((), (replace(LOST, restart=15, lost=5),)):
        with pytest.raises(PlanOutdated, match=r"losses have changed: planned: .* first is 20"):
            require_lost(plan, now)


def _file(offset: int, rows: int) -> BaseFile:
    return BaseFile("", f"id-{offset}", f"id-{offset}_0.parquet", rows, 10, offset, offset + rows - 1)


REPLACING = replace(REPLAY, replaces=(ReplacedFile("old.parquet", 6, 2, 10, "orders", 0),))
REPORT = SliceReport(REPLAY.slices[0], 0, (_file(4, 3), _file(7, 2)), rows=5, gaps=1, copies=(_file(2, 2),))


def test_p1_p3_reports_that_account_for_all_of_a_plan_are_complete() -> None:
    require_complete(REPLACING, [REPORT])


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ([], r"missing: orders:0\[4,10\)"),
        ([REPORT, replace(REPORT, attempt=1)], "reported twice or not planned: "),
        ([replace(REPORT, slice=Slice("orders", 0, 4, 9))], "missing: .* not planned: "),
        ([replace(REPORT, gaps=0)], "5 rows .* 0 gaps do not make 6 offsets"),
        ([replace(REPORT, rows=6, gaps=0)], "6 rows are reported, but its files hold 5"),
        ([replace(REPORT, copies=())], "hold rows of other ranges: .* but these were copied: "),
        ([replace(REPORT, copies=(_file(2, 1),))], "hold rows of other ranges: "),
        ([replace(REPORT, files=(_file(4, 3), _file(4, 2)))], "begin with the same topic, partition and offset"),
    ],
)
def test_p1_p2_p3_others_are_not(reports: list[SliceReport], said: str) -> None:
    with pytest.raises(WriteIncomplete, match=said):
        require_complete(REPLACING, reports)


def test_a_replay_moves_no_offset() -> None:
    require_sums(COMMITTED, replace(COMMITTED, sequence=4), REPLACING, [REPORT])
    with pytest.raises(WriteIncomplete, match="is a replay and must not change the committed offsets"):
        require_sums(COMMITTED, replace(COMMITTED, sequence=4, offsets={P0: 11, P1: 5}), REPLACING, [REPORT])


def test_p4_a_log_file_is_published_with_the_reports_of_all_its_kafka_partitions_or_not_at_all() -> None:
    part = LogFile("", "00000000-x-0", ".00000000-x-0_1.log.1_0-0-1", 2, 1, 60, 0, 2, file_rows=5)
    other = replace(part, upserts=2, deletes=0, size_bytes=40, first_offset=7, last_offset=8)
    first = SliceReport(Slice("orders", 0, 0, 3), 0, rows=3, log_files=(part,))
    second = SliceReport(Slice("orders", 1, 7, 9), 0, rows=2, log_files=(other,))
    plan = IngestPlan("orders", "t1", 1, (first.slice, second.slice))
    require_complete(plan, [first, second])
    again = replace(second, attempt=1, log_files=(replace(other, path=".00000000-x-0_1.log.1_0-0-2"),))
    with pytest.raises(WriteIncomplete, match=r"log\.1_0-0-1 holds 5 rows .* have 3 of them.*run the op"):
        require_complete(plan, [first, again])
