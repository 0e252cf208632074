"""A ledger that was wiped, a deleted consumer group and a lost home: what goes on by itself, and what recover brings back."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from hudi_ingest.exceptions import Fenced, TableMismatch, TransactionInFlight
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.verification import verify
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.upkeep.recovery import recover
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.simulation.trace import CHANGED_BY_HAND, add
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.ground import Ground, make_pipeline

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def never(run_id: str) -> bool | None:
    return None


def wipe(ground: Ground, pipeline: Pipeline) -> None:
    """All that is not the topic, the table, the pipeline file, this process's Spark or the trace that the test is judged by is gone."""
    ground.close()
    ground.__dict__.pop("ledger", None)
    for path in ground.home.root.iterdir():
        if path not in (Path(ground.base_path), ground.home.pipelines, ground.home.spark, ground.home.logs):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if group_offsets(pipeline):
        admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers, "log_level": 0})
        for answer in admin.delete_consumer_groups([pipeline.group_id], request_timeout=120).values():
            answer.result(300)
    assert group_offsets(pipeline) == {}


def group_offsets(pipeline: Pipeline) -> dict[int, int]:
    partitions = [TopicPartition(topic, number) for topic in pipeline.source.topics for number in range(2)]
    found = KafkaCluster(pipeline.source).group_offsets(pipeline.group_id, partitions)
    return {source.partition: offset for source, offset in found.items()}


@pytest.mark.tier(1)
def test_p5_r6_recover_brings_back_the_ledger_and_the_group(ground: Ground, pipeline: Pipeline) -> None:
    for start in (0, 10):
        ground.send_rows(0, 10, start)
        ground.send_rows(1, 3, start)
        ground.run(pipeline)
    before = ground.ledger.transactions.history(pipeline.name)
    slices = [ground.ledger.transactions.slices(row.transaction_id) for row in before]
    wipe(ground, pipeline)
    told = answer(ground.home, "recover", pipeline.name, "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["restored"] == [row.transaction_id for row in reversed(before)]
    assert found["moved"] == {f"{ground.name}:0": [None, 20], f"{ground.name}:1": [None, 6]}
    after = ground.ledger.transactions.history(pipeline.name)
    facts = [(row.transaction_id, row.sequence, row.state, row.instant) for row in after]
    assert facts == [(row.transaction_id, row.sequence, row.state, row.instant) for row in before]
    assert [(row.rows, row.files, row.size_bytes) for row in after] == [
        (row.rows, row.files, row.size_bytes) for row in before
    ]
    assert all(row.ended_at and row.began_at < row.ended_at for row in after)
    assert [ground.ledger.transactions.slices(row.transaction_id) for row in after] == slices
    assert group_offsets(pipeline) == {0: 20, 1: 6}
    again = recover(ground.protocol(pipeline), roll_back=True)
    assert (again.restored, again.moved, again.unknown) == ((), {}, ())
    ground.send_rows(0, 5, 20)
    assert ground.run(pipeline).rows == 5
    assert verify(ground.base_path, ground.produced).exact


def test_p5_recover_corrects_a_transaction_that_the_table_shows_committed(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 10)
    receipt = ground.run(pipeline)
    before = ground.ledger.transactions.find(receipt.plan.transaction_id)
    with sqlite3.connect(ground.home.root / "ledger.db") as database:
        # As a commit leaves it whose process was killed before it told the ledger.
        database.execute("UPDATE ingest_transactions SET state = 'open', ended_at = NULL, rows = NULL, files = NULL")
    found = recover(ground.protocol(pipeline), roll_back=False)
    assert (found.restored, found.open_transaction) == ((receipt.plan.transaction_id,), None)
    after = ground.ledger.transactions.find(receipt.plan.transaction_id)
    assert before is not None
    assert after is not None
    assert (after.state, after.rows, after.files) == (TransactionState.COMMITTED, before.rows, before.files)


def test_p4_recover_tells_of_an_unknown_instant_and_ends_it_only_when_asked(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 10)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    known = recover(protocol, roll_back=True)
    assert (known.open_transaction, known.unknown) == (opened.plan.transaction_id, ()), "a known one is left alone"
    wipe(ground, pipeline)
    protocol = ground.protocol(pipeline)
    [told] = recover(protocol, roll_back=False).unknown
    assert (told.instant, told.leased, told.rolled_back) == (opened.instant, True, False)
    left = (told.expires_at - opened.deadline).total_seconds()
    assert abs(left) < 60, "a heartbeat is a little later than the plan it is of, and neither is two minutes old"
    assert ground.data_files()
    [ended] = recover(protocol, roll_back=True).unknown
    assert ended.rolled_back
    assert ground.data_files() == []
    with pytest.raises(Fenced):
        protocol.commit(opened, reports)
    assert recover(protocol, roll_back=True).unknown == ()
    assert ground.run(pipeline).rows == 10
    assert verify(ground.base_path, ground.produced).exact


def test_p6_recover_leaves_another_pipelines_table_alone(ground: Ground, pipeline: Pipeline) -> None:
    other = make_pipeline(ground, name=f"{ground.name}_other")
    empty = recover(ground.protocol(other), roll_back=True)
    assert (empty.committed, empty.restored, empty.moved) == (0, (), {}), "there is no table yet"
    ground.send_rows(0, 3)
    ground.run(pipeline)
    with pytest.raises(TableMismatch, match=f"belongs to pipeline {ground.name}"):
        recover(ground.protocol(other), roll_back=True)
    assert ground.ledger.transactions.history(other.name) == ()


def test_p5_everything_but_the_table_is_lost_between_two_transactions(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 10)
    ground.run(pipeline)
    wipe(ground, pipeline)
    ground.send_rows(0, 5, 10)
    receipt = ground.run(pipeline)
    assert (receipt.plan.sequence, receipt.rows) == (2, 5)
    assert group_offsets(pipeline) == {0: 15, 1: 0}
    assert verify(ground.base_path, ground.produced).exact


def test_p5_everything_but_the_table_is_lost_before_the_commit(ground: Ground, pipeline: Pipeline) -> None:
    """The files are written, so the commit needs nothing of what was lost."""
    ground.send_rows(0, 10)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    wipe(ground, pipeline)
    assert ground.protocol(pipeline).commit(opened, reports).rows == 10
    assert group_offsets(pipeline) == {0: 10, 1: 0}
    ground.send_rows(0, 5, 10)
    assert ground.run(pipeline).rows == 5
    assert verify(ground.base_path, ground.produced).exact


def test_p4_p5_everything_but_the_table_is_lost_in_mid_transaction(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 10)
    ground.send_rows(1, 10)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    first, second = opened.plan.slices
    protocol.write(opened, [first])
    wipe(ground, pipeline)
    protocol = ground.protocol(pipeline)
    with pytest.raises(Fenced, match="unknown to this ledger"):
        protocol.write(opened, [second])
    with pytest.raises(TransactionInFlight, match=f"{opened.instant}.*this ledger does not know it"):
        ground.run(pipeline)
    heartbeat = Path(ground.base_path) / ".hoodie" / ".heartbeat" / opened.instant
    past = time.time() - pipeline.transaction.timeout_seconds - 1
    os.utime(heartbeat, (past, past))
    assert ground.run(pipeline).rows == 20
    assert not heartbeat.exists()
    assert verify(ground.base_path, ground.produced).exact


def test_p5_p6_a_metadata_table_that_was_deleted_is_built_by_hudi_as_the_refusal_says(
    ground: Ground, pipeline: Pipeline
) -> None:
    ground.send_rows(0, 10)
    ground.run(pipeline)
    shutil.rmtree(Path(ground.base_path) / ".hoodie" / "metadata")
    ground.send_rows(0, 5, 10)
    timeline = Path(ground.base_path) / ".hoodie" / "timeline"
    before = sorted(timeline.iterdir())
    with pytest.raises(TableMismatch, match=r"\.hoodie/metadata, is gone.*call delete_metadata_table") as refused:
        ground.run(pipeline)
    assert sorted(timeline.iterdir()) == before, "no instant was begun"
    create, call = str(refused.value).split("`")[1].replace("<base path>", ground.base_path).split("; ")
    spark = current_session(ground.home)
    spark.sql(create)
    spark.sql(call)
    spark.sql("drop table t")
    assert ground.run(pipeline).rows == 5
    assert verify(ground.base_path, ground.produced).exact


def test_p1_one_pipeline_does_not_fill_two_tables(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 10)
    ground.run(pipeline)
    moved_path = str(ground.home.root / "moved")
    elsewhere = make_pipeline(ground, table={"base_path": moved_path})
    with pytest.raises(TableMismatch) as refused:
        ground.run(elsewhere)
    assert ground.base_path in str(refused.value) and moved_path in str(refused.value)
    assert not Path(moved_path, ".hoodie").exists()

    shutil.copytree(ground.base_path, moved_path)
    ground.send_rows(0, 5, 10)
    assert ground.run(elsewhere).rows == 5
    with pytest.raises(TableMismatch, match=moved_path):
        ground.run(pipeline)

    anew = make_pipeline(ground, table={"base_path": str(ground.home.root / "anew")})
    assert answer(ground.home, "recover", anew.name, "--new-table").returncode == 0
    assert ground.run(anew).rows == 15


def test_p1_a_table_that_was_moved_away_is_begun_anew_as_the_docs_say(ground: Ground, pipeline: Pipeline) -> None:
    for start in (0, 10):
        ground.send_rows(0, 10, start)
        ground.run(pipeline)
    table = Path(ground.base_path)
    table.rename(table.with_name("old"))
    add(ground.home.transactions_log, CHANGED_BY_HAND)
    ground.send_rows(1, 5)
    # What a table keeps for ever may differ now.
    anew = make_pipeline(ground, table={"partition_by": []})
    planned = answer(ground.home, "plan", anew.name, "--json")
    assert [each["start"] for each in json.loads(planned.stdout)["slices"]] == [0, 0]
    assert ground.run(anew).rows == 25
    assert verify(ground.base_path, ground.produced).exact
    ground.send_rows(1, 5, 5)
    assert ground.run(anew).rows == 5
    offsets = KafkaCluster(anew.source).group_offsets(anew.group_id, [TopicPartition(ground.name, n) for n in range(2)])
    assert sorted(offsets.values()) == [10, 20]
