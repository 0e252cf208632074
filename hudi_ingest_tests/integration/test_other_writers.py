"""Promise 7: other writers with default settings work on the table while a transaction of ours is open, and after it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hudi_ingest.exceptions import Fenced, NothingToDo, OffsetsLost, PlanOutdated
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest_tests.simulation.trace import CHANGED_BY_HAND, add
from hudi_ingest_tests.support.ground import Ground, contents, make_pipeline, produced

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TIMEOUT = 7200


def never(run_id: str) -> bool | None:
    return None


@pytest.fixture
def pipeline(ground: Ground, topic: str) -> Pipeline:
    """A pipeline whose transactions may be open for two hours: much longer than Hudi's default of two minutes."""
    return make_pipeline(ground, transaction={"timeout_seconds": TIMEOUT})


@pytest.fixture
def spark(ground: Ground) -> SparkSession:
    """Another writer's session: none of Hudi's settings is set in it."""
    return current_session(ground.home).newSession()


def table_of(ground: Ground, spark: SparkSession) -> str:
    spark.sql(f"create table if not exists {ground.name} using hudi location '{ground.base_path}'")
    spark.catalog.refreshTable(ground.name)
    return ground.name


def heartbeat(ground: Ground, instant: str) -> Path:
    return Path(ground.base_path) / ".hoodie" / ".heartbeat" / instant


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def delete_and_update(ground: Ground, spark: SparkSession) -> None:
    table = table_of(ground, spark)
    spark.sql(f"delete from {table} where n < 10")
    spark.sql(f"update {table} set id = 'changed' where n = 20")


def append(ground: Ground, spark: SparkSession, options: Mapping[str, int] | None = None) -> None:
    rows = spark.read.format("hudi").load(ground.base_path).where("n = 20")
    kept = [name for name in rows.columns if not name.startswith("_hoodie")]
    rows.selectExpr(*[f"{'-1L as n' if name == 'n' else name}" for name in kept]).write.format("hudi").option(
        "hoodie.table.name", ground.name
    ).options(**(options or {})).mode("append").save(ground.base_path)


def clean(ground: Ground, spark: SparkSession) -> None:
    spark.sql(f"call run_clean(table => '{table_of(ground, spark)}', retain_commits => 1)")


def cluster(ground: Ground, spark: SparkSession) -> None:
    found = spark.sql(
        f"call run_clustering(table => '{table_of(ground, spark)}', op => 'scheduleAndExecute')"
    ).collect()
    assert [row.state for row in found] == ["COMPLETED"]


def another_pipeline(ground: Ground, spark: SparkSession) -> None:
    other = make_pipeline(ground, name=f"{ground.name}_other", table={"base_path": f"{ground.base_path}_other"})
    assert ground.run(other).rows == 30 + 7


def without_and_changed(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    # Both were there before the delete: it does not see our open transaction's rows.
    return sorted((n, "changed" if n == 20 else i) for n, i in rows if n >= 10)


def test_p7_r6_an_open_transaction_survives_whatever_another_writer_does(
    ground: Ground, pipeline: Pipeline, spark: SparkSession
) -> None:
    """The open transaction is an hour old, which by the other writer's own settings would be long dead."""
    ground.send_rows(0, 30)
    ground.run(pipeline)
    before = expected = produced(ground)
    ground.send_rows(1, 7, 100)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    first, second = opened.plan.slices
    reports = protocol.write(opened, [first])
    for act, changed in (
        (append, lambda rows: sorted([*rows, (-1, "0-20")])),
        (delete_and_update, without_and_changed),
        (cluster, sorted),
        (clean, sorted),
        (another_pipeline, sorted),
    ):
        age(heartbeat(ground, opened.instant), 3600)
        act(ground, spark)
        expected = changed(expected)
        assert heartbeat(ground, opened.instant).exists(), act
        assert contents(ground, spark) == expected, f"nothing of an open transaction is visible after {act}"
    reports += protocol.write(opened, [second])
    receipt = protocol.commit(opened, reports)
    assert receipt.rows == 7
    after = [row for row in produced(ground) if row not in before]
    assert contents(ground, spark) == sorted([*expected, *after])
    # The other writer's commits sort after ours and carry the older checkpoint; ours counts.
    ground.send_rows(1, 3, 200)
    assert ground.run(pipeline).rows == 3
    assert len(contents(ground, spark)) == len(expected) + 10


def test_p7_clustering_scheduled_before_our_begin_and_executed_after_our_commit(
    ground: Ground, pipeline: Pipeline, spark: SparkSession
) -> None:
    ground.send_rows(0, 30)
    ground.run(pipeline)
    table = table_of(ground, spark)
    spark.sql(f"call run_clustering(table => '{table}', op => 'schedule')")
    ground.send_rows(0, 10, 30)
    assert ground.run(pipeline).rows == 10
    done = spark.sql(f"call run_clustering(table => '{table}', op => 'execute')").collect()
    assert [row.state for row in done] == ["COMPLETED"]
    assert contents(ground, spark) == produced(ground)
    ground.send_rows(0, 5, 40)
    assert ground.run(pipeline).rows == 5
    assert contents(ground, spark) == produced(ground)


@pytest.mark.tier(1)
@pytest.mark.parametrize("act", [clean, None], ids=["rolled_back_by_a_cleaner", "rolled_back_by_the_next_begin"])
def test_r7_d4_a_transaction_past_its_lease_leaves_no_trace_and_its_offsets_are_read_again(
    ground: Ground, pipeline: Pipeline, spark: SparkSession, act: Callable[[Ground, SparkSession], None] | None
) -> None:
    ground.send_rows(0, 30)
    ground.run(pipeline)
    ground.send_rows(1, 7, 100)
    protocol = ground.protocol(pipeline)
    dead = protocol.begin(ground.plan(pipeline), Owner.dagster_run("hangs"), never)
    reports = protocol.write(dead, dead.plan.slices)
    age(heartbeat(ground, dead.instant), TIMEOUT + 1)
    if act is not None:
        act(ground, spark)
        assert traces(ground, dead.instant) == []
    with pytest.raises(Fenced, match="is no longer open"):
        protocol.commit(dead, reports)
    again = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: True)
    assert again.plan.slices == dead.plan.slices
    assert traces(ground, dead.instant) == []
    row = ground.ledger.transactions.find(dead.plan.transaction_id)
    assert row is not None
    assert row.state is TransactionState.ABORTED
    protocol.commit(again, protocol.write(again, again.plan.slices))
    assert contents(ground, spark) == produced(ground)


def test_p4_a_late_commit_is_refused_before_a_cleaner_with_another_clock_takes_it_for_dead(
    ground: Ground, pipeline: Pipeline
) -> None:
    ground.send_rows(0, 30)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    age(heartbeat(ground, opened.instant), TIMEOUT - 2)
    with pytest.raises(Fenced, match="timeout_seconds are all but over"):
        protocol.commit(opened, reports)
    age(heartbeat(ground, opened.instant), TIMEOUT - 120)
    assert protocol.commit(opened, reports).rows == 30


def traces(ground: Ground, instant: str) -> list[Path]:
    """Files that bear the instant in their path: data, markers, heartbeat, fence, timeline; the metadata table's too."""
    return sorted(
        path for path in Path(ground.base_path).rglob("*") if instant in str(path.relative_to(ground.base_path))
    )


@pytest.mark.tier(1)
def test_p7_r6_offsets_outlive_our_own_commits(ground: Ground, pipeline: Pipeline, spark: SparkSession) -> None:
    """Rivals' wound: another writer's commits hide the offsets, or archival removes the last commit that had them."""
    ground.send_rows(0, 30)
    own = ground.run(pipeline).instant
    small = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    timeline = Path(ground.base_path) / ".hoodie" / "timeline"
    appended = 0
    while list(timeline.glob(f"{own}*")):
        assert appended < 20
        append(ground, spark, {**small, "hoodie.metadata.compact.max.delta.commits": 1})
        appended += 1
    situation = observe(pipeline)
    assert situation.committed.checkpoint is not None
    assert (situation.committed.checkpoint.sequence, situation.lag.total) == (1, 0)
    with pytest.raises(NothingToDo):
        ground.run(pipeline)
    ground.send_rows(0, 5, 30)
    assert ground.run(pipeline).rows == 5
    assert contents(ground, spark) == sorted([*produced(ground), *[(-1, "0-20")] * appended])


def test_p2_p7_a_restored_table_reads_the_removed_ranges_again(
    ground: Ground, pipeline: Pipeline, spark: SparkSession
) -> None:
    ground.send_rows(0, 10)
    first = ground.run(pipeline)
    table = table_of(ground, spark)
    spark.sql(f"call create_savepoint(table => '{table}', commit_time => '{first.instant}')")
    for start in (10, 20):
        ground.send_rows(0, 10, start)
        ground.run(pipeline)
    spark.sql(f"delete from {table} where n < 5")
    spark.sql(f"call rollback_to_savepoint(table => '{table}', instant_time => '{first.instant}')")
    add(ground.home.transactions_log, CHANGED_BY_HAND)
    assert observe(pipeline).committed.checkpoint == first.checkpoint
    assert [(each.start, each.end) for each in ground.run(pipeline).plan.slices] == [(10, 30), (0, 0)]
    assert contents(ground, spark) == produced(ground)


@pytest.mark.parametrize(
    "table_settings", [{}, {"mode": "upsert", "key": ["id"], "buckets": 1}], ids=["append", "upsert"]
)
def test_p7_queries_skip_no_rows_after_another_writer_restored_the_table(
    ground: Ground, topic: str, spark: SparkSession, table_settings: Mapping[str, object]
) -> None:
    pipeline = make_pipeline(ground, table=table_settings)
    ground.send_rows(0, 10)
    first = ground.run(pipeline)
    table = table_of(ground, spark)
    spark.sql(f"call create_savepoint(table => '{table}', commit_time => '{first.instant}')")
    ground.send_rows(0, 10, 10)
    ground.run(pipeline)
    spark.sql(f"call rollback_to_savepoint(table => '{table}', instant_time => '{first.instant}')")
    add(ground.home.transactions_log, CHANGED_BY_HAND)
    ground.run(pipeline)

    def numbers(condition: str) -> list[int]:
        rows = spark.read.format("hudi").load(ground.base_path).where(condition).collect()
        return sorted(row.n for row in rows)

    assert [numbers(f"n = {n}") for n in (5, 15)] == [[5], [15]]
    spark.sql(f"delete from {table} where n = 5")
    assert numbers("n between 4 and 6") == [4, 6]


def test_p2_p7_our_last_commit_rolled_back_by_another_is_read_again(
    ground: Ground, pipeline: Pipeline, spark: SparkSession
) -> None:
    """Also while a transaction of ours is open, which then must not commit: it starts behind the hole."""
    ground.send_rows(0, 10)
    ground.run(pipeline)
    ground.send_rows(0, 10, 10)
    last = ground.run(pipeline)
    ground.send_rows(0, 10, 20)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    roll_back(ground, spark, last.instant)
    with pytest.raises(PlanOutdated, match="is no longer current"):
        protocol.commit(opened, reports)
    protocol.abort(opened, "its plan is outdated")
    again = ground.run(pipeline)
    assert [(each.start, each.end) for each in again.plan.slices] == [(10, 30), (0, 0)]
    assert contents(ground, spark) == produced(ground)


def test_p6_p7_a_rolled_back_commit_under_later_ones_stops_until_they_are_rolled_back_too(
    ground: Ground, pipeline: Pipeline, spark: SparkSession
) -> None:
    """The later commit carries the checkpoint on, so going on would lose the rolled back rows without a word."""
    ground.send_rows(0, 10)
    ground.run(pipeline)
    ground.send_rows(0, 10, 10)
    last = ground.run(pipeline)
    delete_and_update(ground, spark)
    roll_back(ground, spark, last.instant)
    with pytest.raises(OffsetsLost, match=r"rolled back the commit of transaction number 2 of this pipeline"):
        ground.run(pipeline)
    with pytest.raises(OffsetsLost) as told:
        observe(pipeline)
    for carrier in re.findall(r"\b\d{17}\b", str(told.value)):
        roll_back(ground, spark, carrier)
    assert ground.run(pipeline).rows == 10
    assert contents(ground, spark) == produced(ground)


def roll_back(ground: Ground, spark: SparkSession, instant: str) -> None:
    table = table_of(ground, spark)
    found = spark.sql(f"call rollback_to_instant(table => '{table}', instant_time => '{instant}')").collect()
    assert [row.rollback_result for row in found] == [True]
    add(ground.home.transactions_log, CHANGED_BY_HAND)
