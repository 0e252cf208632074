"""Records keep what they hold on the way through JSON, and say when they do not add up."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hudi_ingest.model.checkpoint import Checkpoint, next_checkpoint
from hudi_ingest.model.offsets import Slice, TopicPartition, TopicVersion
from hudi_ingest.model.plan import IngestPlan
from hudi_ingest.model.report import BaseFile, SliceReport, mean_record_bytes
from hudi_ingest.model.transaction import OpenTransaction, RecentFields, TransactionSchema

sources = st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 10**6))
checkpoints = st.builds(
    Checkpoint,
    st.integers(1, 10**9),
    st.text(),
    st.dictionaries(sources, st.integers(0, 2**56)),
    st.integers(0, 10**7),
    st.dictionaries(st.text(min_size=1), st.builds(TopicVersion, st.text(), st.integers(0, 9))),
    st.from_regex(r"\d{17}", fullmatch=True),
    taken_over=st.dictionaries(sources, st.integers(0, 2**56)),
)


@given(checkpoints)
def test_r6_a_checkpoint_survives_its_text(found: Checkpoint) -> None:
    assert Checkpoint.from_json(found.to_json()) == found
    shuffled = replace(
        found,
        offsets=dict(reversed(list(found.offsets.items()))),
        topics=dict(reversed(list(found.topics.items()))),
    )
    assert shuffled.to_json() == found.to_json(), "equal checkpoints are equal texts: the guard compares texts"


def test_a_checkpoint_of_a_newer_version_is_refused() -> None:
    text = json.loads(Checkpoint(1, "t", {}).to_json()) | {"version": 4}
    with pytest.raises(ValueError, match="version 4"):
        Checkpoint.from_json(json.dumps(text))


def test_a_checkpoint_of_version_1_is_read_and_its_topics_are_taken_from_the_next_plan() -> None:
    text = '{"version":1,"sequence":4,"transaction":"t","offsets":{"orders":{"0":9}},"record_bytes":7}'
    found = Checkpoint.from_json(text)
    assert found == Checkpoint(4, "t", {TopicPartition("orders", 0): 9}, 7)
    plan = IngestPlan("orders", "t5", 5, (Slice("orders", 0, 9, 9),), {"orders": TopicVersion("id")})
    assert next_checkpoint(found, plan, 0).topics == {"orders": TopicVersion("id")}


def test_a_report_survives_json() -> None:
    file = BaseFile("dt=1", "id-0", "dt=1/id-0_0-0-0_1.parquet", 4, 1000, 0, 4)
    report = SliceReport(Slice("orders", 0, 0, 5), 2, (file,), rows=4, gaps=1, value_bytes=90, seconds=0.5)
    assert SliceReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_p1_a_report_accounts_for_each_offset_or_says_so() -> None:
    each = Slice("orders", 0, 10, 20)
    assert SliceReport(each, 0, rows=7, skipped=2, gaps=1).accounted
    assert not SliceReport(each, 0, rows=7, skipped=2).accounted
    assert not SliceReport(each, 0, rows=11, gaps=-1).accounted


def test_the_next_checkpoint_keeps_partitions_that_the_plan_does_not_name() -> None:
    one, two = TopicPartition("orders", 0), TopicPartition("orders", 1)
    current = Checkpoint(4, "t4", {one: 5, two: 8}, 120)
    found = next_checkpoint(current, IngestPlan("orders", "t5", 5, (Slice("orders", 0, 5, 9),)), 0, "30")
    assert found == Checkpoint(5, "t5", {one: 9, two: 8}, 120, instant="30")


def test_mean_record_bytes_rounds_up_and_knows_empty_transactions() -> None:
    each = Slice("orders", 0, 0, 3)
    assert mean_record_bytes([SliceReport(each, 0, rows=3, value_bytes=10)]) == 4
    assert mean_record_bytes([SliceReport(each, 0, gaps=3)]) == 0


def test_a_slice_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="0 <= start <= end"):
        Slice("orders", 0, 5, 4)


def test_an_open_transaction_keeps_its_columns_on_the_way_to_its_ops() -> None:
    schema = TransactionSchema(
        "version 2 of orders-value",
        "{}",
        "{}",
        False,
        (("a", "b"), ("c",)),
        (1, 2),
        ("a is added",),
        ("a guess",),
        recent=RecentFields(("a",), {"orders:0": 5}),
    )
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    plan = IngestPlan("orders", "t5", 5, (Slice("orders", 0, 5, 9),), schema_changes=schema.changes)
    groups = {"dt=a|1": "00000001-x-0"}
    found = OpenTransaction(plan, "20260101000000000", 3, now, now, schema, "digest", groups=groups, record_bytes=7)
    assert OpenTransaction.from_dict(json.loads(json.dumps(found.to_dict()))) == found
