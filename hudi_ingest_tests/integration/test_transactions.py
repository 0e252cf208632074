"""One transaction after another on a real broker, real Spark and real Hudi, read back by hudi-rs. What the protocol alone decides is
in unit/transaction/test_protocol_steps.py."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTable

from hudi_ingest.exceptions import (
    BadRecord,
    ClockBehind,
    CommitRefused,
    Fenced,
    NothingToDo,
    OffsetsLost,
    SchemaRefused,
    TableMismatch,
    TableUnreachable,
    TransactionInFlight,
    WriteIncomplete,
)
from hudi_ingest.faults import InjectedFault
from hudi_ingest.hudi.storage.paths import TIMELINE
from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.hudi.timeline.pipeline_table import committed_state
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.kafka.cluster import KafkaCluster
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.broker import create_topic
from hudi_ingest.local.verification import verify
from hudi_ingest.metrics.collector import Collector
from hudi_ingest.metrics.definitions import Distribution
from hudi_ingest.model.offsets import TopicPartition
from hudi_ingest.model.transaction import TransactionState
from hudi_ingest.operations.upkeep.sweep import run_sweep
from hudi_ingest.pipeline.folder import load_file_alone
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest.transaction.run import protocol_for
from hudi_ingest.transaction.write import job
from hudi_ingest_tests.simulation.trace import POWER_CUT, add, read
from hudi_ingest_tests.support.damage import NewestCommit, cut
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, make_pipeline, write_pipeline
from hudi_ingest_tests.support.lineage_backend import told_of_transactions
from hudi_ingest_tests.support.partitions import add_partitions
from hudi_ingest_tests.support.power_cut import Disk
from hudi_ingest_tests.support.properties_text import empty_properties
from hudi_ingest_tests.support.slow_guard import write_slow_guard
from hudi_ingest_tests.support.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def never(run_id: str) -> bool | None:
    return None


@pytest.mark.tier(1)
def test_p1_p2_r6_r8_successive_transactions_lose_and_repeat_nothing(
    ground: Ground, pipeline: Pipeline, known_turns: None
) -> None:
    receipts, jobs = [], []
    scheduler = current_session(ground.home).sparkContext._jsc.sc().dagScheduler()
    for start in (0, 300, 600):
        ground.send_rows(0, 300, start)
        ground.send_rows(1, 7, start)
        before = scheduler.numTotalJobs()
        receipts.append(ground.run(pipeline))
        jobs.append(scheduler.numTotalJobs() - before)
    # It reads and writes. Hudi's own metadata table takes none.
    assert jobs == [1, 1, 1]
    found = verify(ground.base_path, ground.produced)
    assert found.exact, found
    assert found.rows == 921
    for before, after in itertools.pairwise(receipts):
        assert [each.end for each in before.plan.slices] == [each.start for each in after.plan.slices]
    situation = observe(pipeline)
    checkpoint = situation.committed.checkpoint
    assert checkpoint == receipts[-1].checkpoint
    assert checkpoint is not None
    assert checkpoint.sequence == 3
    assert situation.lag.total == 0
    ends = {TopicPartition(ground.name, 0): 900, TopicPartition(ground.name, 1): 21}
    assert dict(checkpoint.offsets) == ends
    assert KafkaCluster(pipeline.source).group_offsets(pipeline.group_id, ends) == ends
    history = ground.ledger.transactions.history(pipeline.name)
    assert [row.state for row in history] == [TransactionState.COMMITTED] * 3
    assert [row.rows for row in history] == [307, 307, 307]
    steps = [(line["transaction"], line["step"], line["outcome"]) for line in read(ground.home.transactions_log)]
    told = [("begin", "done"), ("write", "done"), ("commit", "published")]
    assert steps == [
        (receipt.plan.transaction_id, step, outcome)
        for receipt in receipts
        for step, end in told
        for outcome in ("started", end)
    ]
    with pytest.raises(NothingToDo, match="no new records"):
        ground.run(pipeline)
    ground.send_rows(1, 2, 900)
    metrics = scraped(ground)
    labels = {"pipeline": pipeline.name, "topic": ground.name, "partition": "1"}
    assert metrics("pipeline_up", pipeline=pipeline.name) == 1
    assert metrics("rows_total", pipeline=pipeline.name, kind="ingest") == 921
    assert metrics("transactions_total", pipeline=pipeline.name, outcome="committed") == 3
    assert metrics("transaction_seconds", pipeline=pipeline.name, phase="total") == 3
    assert (metrics("committed_offset", **labels), metrics("end_offset", **labels)) == (21, 23)
    assert metrics("lag_offsets", **labels) == 2
    assert 0 <= metrics("lag_seconds", **labels) < 60
    assert metrics("check_failing", pipeline=pipeline.name, check="accounting_holds") == 0
    # The ledger and the consumer group are wiped: the table alone tells where to go on.
    ground.close()
    (ground.home.root / "ledger.db").unlink()
    ground.send_rows(0, 5, 900)
    with told_of_transactions() as lineage:
        assert ground.run(pipeline).rows == 7
    assert [document["eventType"] for document in lineage.documents] == ["START", "COMPLETE"]
    [table] = lineage.documents[-1]["outputs"]
    assert (table["namespace"], table["name"]) == ("file", ground.base_path)
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert verify(ground.base_path, ground.produced).exact
    assert scraped(ground)("rows_total", pipeline=pipeline.name, kind="ingest") == 928, "the table has counted on"


def scraped(ground: Ground) -> Callable[..., float]:
    """Look once, and return a function from a metric and its labels to the value, of a histogram to its count."""
    with closing(Collector(ground.home)) as collector:
        found = {family.metric.name: family for family in collector.families()}

    def value(name: str, **labels: str) -> float:
        family = found[f"hudi_ingest_{name}"]
        sample = family.samples[tuple(labels[label] for label in family.metric.labels)]
        return sample.count if isinstance(sample, Distribution) else sample

    return value


def test_the_commit_tells_hudi_streamer_where_to_go_on(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 4)
    receipt = ground.run(pipeline)
    metadata = committed_metadata(ground, receipt.instant)
    assert metadata["streamer.checkpoint.key.v2"] == f"{ground.name},0:4,1:0"
    accounting = json.loads(metadata[pipeline.transaction_key])
    assert [(each["start"], each["end"], each["rows"]) for each in accounting["slices"]] == [(0, 4, 4), (0, 0, 0)]


@pytest.mark.tier(1)
def test_p1_tombstones_and_aborted_records_are_accounted(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 3)
    ground.send(0, [None, None])
    transactional = ground.transactional_producer()
    for commit in (False, True):
        transactional.begin_transaction()
        for number in range(4):
            value = json.dumps({"id": f"x{number}", "n": number, "dt": "d"}).encode()
            transactional.produce(ground.name, value, partition=0)
        transactional.flush(300)
        transactional.commit_transaction() if commit else transactional.abort_transaction()
    # The broker writes the marker of a commit after it has answered.
    wait_for(lambda: observe(pipeline).lag.total == 15, "the commit's marker is in the topic")
    report = ground.run(pipeline).reports[0]
    # 3 rows, 2 tombstones, 4 aborted and a marker, 4 committed and a marker.
    assert (report.slice.count, report.rows, report.skipped, report.gaps) == (15, 7, 2, 6)
    assert ground.rows().num_rows == 7
    assert observe(pipeline).lag.total == 0


@pytest.mark.tier(1)
def test_d3_a_malformed_record_refuses_the_transaction_and_names_the_place(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 10)
    ground.send(1, [b'{"id": "a", "n": 1, "dt": "d"}', b'{"id": "a", "n": "seven", "dt": "d"}', b"{broken"])
    with told_of_transactions() as lineage, pytest.raises(BadRecord) as caught:
        ground.run(pipeline)
    assert [document["eventType"] for document in lineage.documents] == ["START", "FAIL"]
    text = str(caught.value)
    assert f"{ground.name}:1:1 field n" in text
    assert '"seven"' in text
    assert f"{ground.name}:1:2" in text
    assert "on_bad_record is fail" in text
    assert ground.data_files() == []
    assert observe(pipeline).committed.checkpoint is None
    assert ground.ledger.transactions.open_in(ground.base_path) is None
    assert ground.ledger.transactions.history(pipeline.name)[0].state is TransactionState.ABORTED


def test_a_long_slice_is_split_over_tasks_and_files(
    ground: Ground, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(ground, table={"partition_by": []})
    monkeypatch.setattr(job, "ROWS_PER_FILE", 1000)
    ground.send_rows(0, 4500)
    receipt = ground.run(pipeline)
    assert receipt.files >= 5
    assert max(file.rows for report in receipt.reports for file in report.files) <= 1000
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(1)
def test_h3_max_records_bounds_a_transaction(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, transaction={"max_records": 100})
    ground.send_rows(0, 230)
    ground.send_rows(1, 20)
    assert [ground.run(pipeline).rows for _ in range(3)] == [100, 100, 50]
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(1)
def test_k1_a_new_partition_and_a_new_topic_are_picked_up_from_their_first_records(ground: Ground, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    # "latest" places the first start only.
    pipeline = make_pipeline(
        ground, source={"topics_pattern": rf"{topic}(\.more)?", "starting_offsets": "latest", "format": "json"}
    )
    ground.send_rows(0, 3)
    assert ground.run(pipeline).rows == 0
    ground.produced.clear()
    ground.send_rows(0, 5, 3)
    opened = ground.protocol(pipeline).begin(ground.plan(pipeline), Owner.this_process(), never)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers})
    add_partitions(admin, topic, 3)
    create_topic(ground.bootstrap_servers, f"{topic}.more", 1)
    ground.producer.list_topics(topic, timeout=120)
    ground.send_rows(2, 9)
    for number in range(7):
        ground.producer.produce(f"{topic}.more", json.dumps({"id": f"more-{number}", "dt": "d"}).encode(), partition=0)
    assert ground.producer.flush(300) == 0
    protocol = ground.protocol(pipeline)
    assert protocol.commit(opened, protocol.write(opened, opened.plan.slices)).rows == 5, "what its plan says"
    assert ground.run(pipeline).rows == 9 + 7
    rows = ground.rows()
    assert sorted(rows["id"].to_pylist()) == sorted([*ground.produced.values(), *(f"more-{n}" for n in range(7))])
    assert rows["_kafka_topic"].to_pylist().count(f"{topic}.more") == 7


def test_p5_a_run_that_begins_again_clears_its_own_first_attempt(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    run = Owner.dagster_run("a run whose begin op is tried again")
    plan = ground.plan(pipeline)
    first = protocol.begin(plan, run, lambda run_id: False)
    with pytest.raises(TransactionInFlight):
        protocol.begin(ground.plan(pipeline), Owner.dagster_run("another run"), lambda run_id: False)
    second = protocol.begin(plan, run, lambda run_id: False)
    assert second.plan.transaction_id == f"{plan.transaction_id}-2"
    assert ground.ledger.transactions.find(first.plan.transaction_id).state is TransactionState.ABORTED  # type: ignore[union-attr]
    protocol.commit(second, protocol.write(second, second.plan.slices))
    assert verify(ground.base_path, ground.produced).exact


def test_p5_a_table_whose_making_was_cut_off_is_finished(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    protocol.instants.create_table(protocol.resolve_schema())
    properties = Path(ground.base_path) / ".hoodie" / "hoodie.properties"
    kept = [line for line in properties.read_text().splitlines() if not line.startswith("hudi_ingest.")]
    properties.write_text("\n".join([*kept, ""]))
    properties.with_name(".hoodie.properties.crc").unlink()
    ground.run(pipeline)
    assert Timeline(ground.base_path).properties()["hudi_ingest.pipeline"] == pipeline.name
    assert verify(ground.base_path, ground.produced).exact


def test_p1_p5_properties_that_a_crash_emptied_are_restored(ground: Ground, pipeline: Pipeline) -> None:
    """Made over, the table would lose its metadata table, and Hudi would make one of whatever lies in the folders."""
    ground.send_rows(0, 5)
    first = ground.run(pipeline)
    before = Timeline(ground.base_path).properties()
    assert before["hoodie.table.metadata.partitions"]
    empty_properties(ground.base_path)
    ground.send_rows(0, 5, 5)
    second = ground.run(pipeline)
    assert (first.plan.sequence, second.plan.sequence) == (1, 2)
    assert Timeline(ground.base_path).properties() == before
    assert verify(ground.base_path, ground.produced).exact
    assert ground.protocol(pipeline).instants.listed_files(), "the metadata table is there"  # type: ignore[attr-defined]


@pytest.mark.tier(1)
@pytest.mark.parametrize("table", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
def test_p5_what_is_committed_outlives_a_power_cut(
    ground: Ground, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: dict[str, Any]
) -> None:
    """The table is put together again out of nothing but what was flushed to the disk, in that order."""
    pipeline = make_pipeline(ground, table=table)
    disk = Disk(tmp_path, monkeypatch)
    commit = HudiWriter.commit

    def commit_what_is_synced(self: HudiWriter, publication: Publication) -> None:
        paths = [file.path for file in publication.files] + [file.path for file in publication.log_files]
        assert paths
        assert not [path for path in paths if not disk.survives(Path(ground.base_path, path))], "published too early"
        commit(self, publication)

    monkeypatch.setattr(HudiWriter, "commit", commit_what_is_synced)
    for start in (0, 50):
        ground.send_rows(0, 50, start)
        ground.run(pipeline)
    disk.restore(tmp_path / "after")
    left = str(tmp_path / "after" / Path(ground.base_path).relative_to(tmp_path))
    found = verify(left, ground.produced)
    assert found.exact, found
    key = pipeline.checkpoint_key, pipeline.transaction_key
    assert committed_state(Timeline(left), *key) == committed_state(Timeline(ground.base_path), *key)
    # The driver's own reading goes by the metadata table.
    spark = current_session(ground.home)
    assert spark.read.format("hudi").option("hoodie.metadata.enable", "true").load(left).count() == 100


@pytest.mark.parametrize("table", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
def test_p5_a_commit_that_a_power_cut_damaged_is_read_again(ground: Ground, topic: str, table: dict[str, Any]) -> None:
    """Nobody was told about such a commit: a cut between Hudi's write and our flush leaves a transaction that its op never
    recorded, or with table.fsync: false any newest one."""
    pipeline = make_pipeline(ground, table={**table, "fsync": False})
    newest = NewestCommit(ground.base_path)
    produced = 0

    def send_and_run() -> None:
        nonlocal produced
        ground.send_rows(0, 10, produced)
        produced += 10
        ground.run(pipeline)

    def damage_all() -> None:
        cut(newest.in_metadata_table)
        cut(newest.file, 0.5)

    def lose_the_files() -> None:
        cut(newest.log_of_metadata_table)
        cut(newest.file, 1.0)

    def lose_the_commit() -> None:
        cut(newest.in_metadata_table, 0.5)
        newest.file.unlink()

    damages: dict[str, Callable[[], None]] = {
        "an empty instant": lambda: cut(newest.file),
        "half an instant, and an empty one in the metadata table": damage_all,
    }
    if pipeline.table.is_keyed:
        damages = {
            "a whole instant, whose files the metadata table lost": lose_the_files,
            "no instant, but half of one in the metadata table": lose_the_commit,
        }
    send_and_run()
    for damage, strike in damages.items():
        send_and_run()
        transaction = ground.ledger.transactions.history(pipeline.name, 1)[0].transaction_id
        files = newest.data_files()
        assert files
        strike()
        add(ground.home.transactions_log, POWER_CUT)
        send_and_run()
        assert not [path for path in files if path.exists()], f"{damage}: files that a later rebuild would list"
        row = ground.ledger.transactions.find(transaction)
        assert row is not None
        assert (row.state, row.rows) == (TransactionState.ABORTED, None), damage
        assert "as a power cut leaves it" in str(row.reason)
        found = verify(ground.base_path, ground.produced)
        assert found.exact, (damage, found)
    spark = current_session(ground.home)
    assert spark.read.format("hudi").option("hoodie.metadata.enable", "true").load(ground.base_path).count() == produced


def test_p1_p5_a_commit_that_was_killed_before_its_file_had_its_name_is_rolled_back(
    ground: Ground, pipeline: Pipeline, fault: Fault, tmp_path: Path
) -> None:
    """Hudi writes the commit's file under another name, and then renames it. All that it does before that is done."""
    ground.send_rows(0, 10)
    ground.run(pipeline)
    ground.send_rows(0, 10, 10)
    protocol = ground.protocol(pipeline)
    run = Owner.dagster_run("a run that is killed and goes on")
    opened = protocol.begin(ground.plan(pipeline), run, never)
    reports = protocol.write(opened, opened.plan.slices)
    hoodie = Path(ground.base_path, ".hoodie")
    before = {folder: shutil.copytree(hoodie / folder, tmp_path / folder) for folder in (".temp", ".heartbeat")}
    fault.arm("commit_landed", "raise")
    with pytest.raises(InjectedFault):
        protocol.commit(opened, reports)
    for folder, copy in before.items():
        shutil.copytree(copy, hoodie / folder, dirs_exist_ok=True)
    (commit,) = Path(ground.base_path, TIMELINE).glob(f"{opened.instant}_*.commit")
    unnamed = commit.rename(commit.with_name(f"{commit.name}.{uuid.uuid4()}"))
    assert ground.rows().num_rows == 10, "no reader sees it"
    files = [Path(ground.base_path, file.path) for report in reports for file in report.files]
    assert files
    assert all(file.exists() for file in files)
    with Ledger.open(f"sqlite:///{tmp_path / 'wiped.db'}") as wiped:
        stranger = protocol_for(pipeline, wiped, current_session(ground.home), ground.home)
        with pytest.raises(TransactionInFlight, match=f"{opened.instant}.*this ledger does not know it"):
            stranger.begin(ground.plan(pipeline), run, never)
    later = protocol.begin(ground.plan(pipeline), run, never)
    protocol.commit(later, protocol.write(later, later.plan.slices))
    assert not [file for file in files if file.exists()]
    found = verify(ground.base_path, ground.produced)
    assert found.exact, found
    spark = current_session(ground.home)
    assert spark.read.format("hudi").option("hoodie.metadata.enable", "true").load(ground.base_path).count() == 20
    then = time.time() - 7 * 3600
    os.utime(unnamed, (then, then))
    swept = run_sweep(pipeline, timedelta(hours=6), delete=True, home=ground.home, report=lambda line: None)
    assert [Path(ground.base_path, orphan.file.path) for orphan in swept.orphans] == [unnamed]
    assert not unnamed.exists()


def test_p5_p6_a_driver_whose_clock_was_set_back(ground: Ground, pipeline: Pipeline) -> None:
    """Hudi itself would wait for the time of its last instant at full speed, inside its lock."""
    ground.send_rows(0, 5)
    ground.run(pipeline)
    ground.send_rows(0, 5, 5)
    jvm: Any = current_session(ground.home)._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    generator = loader.loadClass("org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator")
    field = generator.getDeclaredField("LAST_INSTANT_TIME")
    field.setAccessible(True)
    last_instant = field.get(None)

    def set_back(seconds: float) -> str:
        now = datetime.now(timezone.utc) + timedelta(seconds=seconds)
        last_instant.set(f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03}")
        return str(last_instant.get())

    kept = last_instant.get()
    try:
        ahead = set_back(3600)
        with pytest.raises(ClockBehind, match=f"the driver already created instant {ahead}"):
            ground.run(pipeline)
        ahead = set_back(2)
        receipt = ground.run(pipeline)
        assert receipt.instant > ahead
    finally:
        last_instant.set(kept)
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(1)
def test_p4_the_guard_in_hudis_lock_refuses_a_second_publisher(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    files = [file for report in protocol.write(opened, opened.plan.slices) for file in report.files]
    key = {pipeline.checkpoint_key: "{}", pipeline.transaction_key: "{}"}
    epoch = protocol.epoch.current()
    with pytest.raises(CommitRefused, match="committed checkpoint is none"):
        protocol.instants.commit(Publication(opened.instant, files, key, '{"sequence":7}', epoch, opened.schema))
    assert observe(pipeline).committed.checkpoint is None


def test_p4_an_instant_that_another_writer_is_rolling_back_is_not_committed(ground: Ground, pipeline: Pipeline) -> None:
    """Hudi deletes its files after it has let go of the lock in which it planned that."""
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    writer = protocol.instants
    assert isinstance(writer, HudiWriter)
    meta, avro = writer._meta_client(), writer._hudi.avro.model
    state = getattr(writer._hudi.common.table.timeline, "HoodieInstant$State")
    now = f"{datetime.now(timezone.utc):%Y%m%d%H%M%S%f}"[:17]
    plan = avro.HoodieRollbackPlan(avro.HoodieInstantInfo(opened.instant, "commit"), writer._java_list([]), 1)
    meta.getActiveTimeline().saveToRollbackRequested(meta.createNewInstant(state.REQUESTED, "rollback", now), plan)
    with pytest.raises(CommitRefused, match=f"{opened.instant} is being rolled back by {now}"):
        protocol.commit(opened, reports)
    protocol.abort(opened, "the test gives up")
    assert ground.run(pipeline).rows == 5
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(1)
def test_p4_a_newer_epoch_fences_op_and_commit_whatever_the_ledger_and_the_heartbeat_say(
    ground: Ground, pipeline: Pipeline
) -> None:
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    protocol.epoch.advance(opened.epoch + 1, "newer")
    with pytest.raises(Fenced, match="in epoch 2 of transaction newer"):
        protocol.write(opened, opened.plan.slices)
    with pytest.raises(Fenced, match="in epoch 2 of transaction newer"):
        protocol.commit(opened, reports)
    files = [file for report in reports for file in report.files]
    with pytest.raises(CommitRefused, match=r"guard|epoch"):
        epoch = Epoch(opened.epoch, opened.plan.transaction_id)
        protocol.instants.commit(Publication(opened.instant, files, {}, None, epoch, opened.schema))
    assert observe(pipeline).committed.checkpoint is None


def test_p1_a_rollback_waits_for_a_commit_that_runs_and_leaves_it_alone(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever began the commit may have been killed while Hudi goes on with it: rolling it back would lose its rows."""
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.dagster_run("killed"), never)
    reports = protocol.write(opened, opened.plan.slices)
    writer = protocol.instants
    assert isinstance(writer, HudiWriter)
    inside = ground.home.root / "inside"
    write_slow_guard(ground.home.root, inside, seconds=4)
    monkeypatch.setattr("hudi_ingest.hudi.write_client.resources.files", lambda package: ground.home.root)
    committing = threading.Thread(target=protocol.commit, args=(opened, reports))
    committing.start()
    wait_for(inside.exists, "the commit is inside Hudi's lock")
    assert writer.roll_back(opened.instant) is False
    committing.join()
    assert verify(ground.base_path, ground.produced).exact
    assert observe(pipeline).committed.checkpoint is not None


@pytest.mark.parametrize("point", ["instant_requested", "instant_begun", "commit_leased", "commit_landed"])
def test_p4_the_lease_of_a_caller_that_died_is_renewed_by_no_timer(
    point: str, ground: Ground, pipeline: Pipeline, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine outlives its callers: its heartbeats for an instant that is rolled back would never end."""
    ground.send_rows(0, 5)
    jvm = current_session(ground.home)._jvm

    def timers() -> set[int]:
        threads = jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        return {thread.getId() for thread in threads if str(thread.getName()).startswith("Timer-")}

    before = timers()
    # A process that is killed closes nothing.
    monkeypatch.setattr("hudi_ingest.hudi.write_client._Closing.__exit__", lambda *_: None)
    fault.arm(point, "raise")
    with pytest.raises(InjectedFault):
        ground.run(pipeline)
    wait_for(lambda: timers() <= before, f"the timers that the JVM had before, and no other: {before}")


def test_a_transaction_of_nothing_but_tombstones_commits_its_offsets(ground: Ground, pipeline: Pipeline) -> None:
    ground.send(0, [None, None])
    receipt = ground.run(pipeline)
    assert (receipt.rows, receipt.files, receipt.reports[0].skipped) == (0, 0, 2)
    assert observe(pipeline).lag.total == 0
    ground.send_rows(0, 3)
    ground.run(pipeline)
    assert sorted(ground.rows()["n"].to_pylist()) == [0, 1, 2]


def test_starting_at_latest_commits_the_start_and_then_reads_all_that_comes(ground: Ground, topic: str) -> None:
    pipeline = make_pipeline(ground, source={"starting_offsets": "latest"})
    ground.send_rows(0, 10)
    first = ground.run(pipeline)
    assert [(each.start, each.end) for each in first.plan.slices] == [(10, 10), (0, 0)]
    ground.send_rows(0, 4, 10)
    ground.send_rows(1, 2)
    assert ground.run(pipeline).rows == 6
    assert sorted(ground.rows()["n"].to_pylist()) == [0, 1, 10, 11, 12, 13]


@pytest.mark.tier(1)
def test_p6_a_table_that_lost_its_checkpoint_is_not_read_again_from_the_start(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.send_rows(0, 3)
    ground.run(pipeline)
    for file in (Path(ground.base_path) / ".hoodie" / "timeline").glob("*.commit"):
        # What archival leaves after many commits of writers that do not carry the key on: commits without it.
        file.write_bytes(file.read_bytes().replace(b"hudi_ingest.checkpoint", b"hudi_ingest.otherpoint"))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    with pytest.raises(OffsetsLost, match="none of its 1 active commits carries"):
        observe(pipeline)


def test_a_pipeline_file_that_is_changed_in_mid_run_is_refused(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 3)
    opened = ground.protocol(pipeline).begin(ground.plan(pipeline), Owner.this_process(), never)
    changed = ground.protocol(make_pipeline(ground, table={"partition_by": []}))
    with pytest.raises(Fenced, match="was changed while it ran"):
        changed.write(opened, opened.plan.slices)
    changed.abort(opened, "the file was changed")
    assert ground.run(pipeline).rows == 3


@pytest.mark.tier(1)
def test_f2_p1_a_missing_report_blocks_the_commit(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 5)
    ground.send_rows(1, 5)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), never)
    reports = protocol.write(opened, opened.plan.slices)
    with pytest.raises(WriteIncomplete, match=rf"{ground.name}:1\[0,5\)"):
        protocol.commit(opened, reports[:1])
    with pytest.raises(WriteIncomplete, match="twice"):
        protocol.commit(opened, [*reports, reports[0]])
    protocol.commit(opened, reports)
    assert verify(ground.base_path, ground.produced).exact


def test_another_pipelines_table_and_another_schema_are_refused(ground: Ground, pipeline: Pipeline) -> None:
    ground.send_rows(0, 5)
    ground.run(pipeline)
    other = make_pipeline(ground, name=f"{ground.name}_other")
    with pytest.raises(TableMismatch, match=f"belongs to pipeline {ground.name}"):
        ground.run(other)
    ground.send_rows(0, 5, 5)
    changed = make_pipeline(ground, table={"schema": "id string, n string, dt string"})
    with pytest.raises(SchemaRefused, match="column n: expected long, as in the table, found string"):
        ground.run(changed)
    unpartitioned = make_pipeline(ground, table={"partition_by": []})
    with pytest.raises(TableMismatch, match="partitioned by"):
        ground.run(unpartitioned)


def test_a_path_that_cannot_be_written_says_so(ground: Ground, topic: str) -> None:
    (ground.home.root / "file").write_text("not a folder")
    pipeline = make_pipeline(ground, table={"base_path": str(ground.home.root / "file" / "table")})
    ground.send_rows(0, 5)
    with pytest.raises(TableUnreachable, match="file/table"):
        ground.run(pipeline)


def committed_metadata(ground: Ground, instant: str) -> dict[str, str]:
    from hudi import HudiTable

    timeline = HudiTable(ground.base_path).get_timeline()
    found = next(each for each in timeline.get_completed_commits() if each.timestamp == instant)
    extra: dict[str, str] = json.loads(timeline.get_instant_metadata_in_json(found))["extraMetadata"]
    return extra


@pytest.mark.tier(1)
def test_p1_p2_the_records_of_a_topic_are_routed_to_several_tables(ground: Ground, topic: str) -> None:
    path = write_pipeline(
        ground,
        f"{topic}_{{route}}",
        "routed.yaml",
        route={"field": "type", "tables": {"a": {}, "b": {"schema": "id string not null, n long"}}},
        table={"base_path": str(ground.home.root / "lake" / "{route}"), "schema": "id string", "partition_by": []},
        on_bad_record="dead_letter",
    )
    kinds = ["a", "b", "a", "c", None, "b"]
    ground.send(0, [json.dumps({"type": kind, "id": f"{at}", "n": at}).encode() for at, kind in enumerate(kinds)])
    ground.send(1, [b"no JSON", None])
    first, second = load_file_alone(path).pipelines
    receipts = [ground.run(pipeline) for pipeline in (first, second)]
    counted = [
        tuple(sum(getattr(report, name) for report in receipt.reports) for name in ("rows", "rejected", "filtered"))
        for receipt in receipts
    ]
    assert counted == [(2, 3, 2), (2, 0, 6)]
    rows = [HudiTable(pipeline.table.base_path).read() for pipeline in (first, second)]
    assert [sorted(pa.Table.from_batches(batches)["id"].to_pylist()) for batches in rows] == [["0", "2"], ["1", "5"]]
