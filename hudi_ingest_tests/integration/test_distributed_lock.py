"""Writers in several JVMs and one table lock in ZooKeeper: real servers, real drivers, read back by hudi-rs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hudi_ingest.exceptions import CommitOutcomeUnknown, TableUnreachable
from hudi_ingest.home.folder import Home
from hudi_ingest.hudi.options import LOCK_SESSION_SECONDS, lock_place, write_options
from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.timeline.timeline import Timeline
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.processes import stop, wait_until
from hudi_ingest.local.verification import verify
from hudi_ingest.model.checkpoint import next_checkpoint
from hudi_ingest.model.plan import TransactionPlan
from hudi_ingest.model.transaction import OpenTransaction
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.checks import shape_of
from hudi_ingest.transaction.commit_contents import commit_metadata
from hudi_ingest.transaction.protocol import TransactionProtocol
from hudi_ingest_tests.support.driver import Driver
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.slow_guard import write_slow_guard
from hudi_ingest_tests.support.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, Driver]]:
    """Two processes, each with a JVM of its own."""
    home = tmp_path_factory.mktemp("drivers")
    started = (Driver.start(home / "one"), Driver.start(home / "two"))
    try:
        for each in started:
            each.wait_until_ready()
        yield started
    finally:
        stop([each.record for each in started])


@pytest.fixture
def locked(ground: Ground, topic: str, zookeeper: ZooKeeperServer) -> Pipeline:
    """The ground's pipeline with its lock in ZooKeeper."""
    return make_pipeline(ground, table={"lock": {"zookeeper": zookeeper.address}})


@dataclass(frozen=True)
class TableLock:
    """The table's lock node, seen and held by a ZooKeeper client of the test's own."""

    path: str
    zookeeper: Any
    classes: Any

    def claims(self) -> int:
        """How many hold the lock or wait for it."""
        if self.zookeeper.exists(self.path, False) is None:
            return 0
        return int(self.zookeeper.getChildren(self.path, False).size())

    def wait_for_claims(self, count: int) -> None:
        wait_until(lambda: self.claims() == count, what=f"{count} hold or want {self.path}", timeout_seconds=240)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else gets the lock: it is the first of the sequential nodes, as Curator's mutex makes them."""
        everyone = self.classes.ZooDefs.Ids.OPEN_ACL_UNSAFE
        mode = self.classes.CreateMode.EPHEMERAL_SEQUENTIAL
        node = self.zookeeper.create(f"{self.path}/test-lock-", bytearray(), everyone, mode)
        assert self.claims() == 1
        try:
            yield
        finally:
            self.zookeeper.delete(node, -1)


@contextmanager
def table_lock(home: Home, pipeline: Pipeline) -> Iterator[TableLock]:
    assert pipeline.table.lock is not None
    jvm: Any = current_session(home)._jvm
    curator = jvm.org.apache.hudi.org.apache.curator
    client = curator.framework.CuratorFrameworkFactory.newClient(
        pipeline.table.lock.zookeeper, curator.retry.RetryOneTime(1000)
    )
    client.start()
    try:
        assert client.blockUntilConnected(120, jvm.java.util.concurrent.TimeUnit.SECONDS)
        zookeeper = client.getZookeeperClient().getZooKeeper()
        yield TableLock(lock_place(pipeline.table).rpartition(" node ")[2], zookeeper, jvm.org.apache.zookeeper)
    finally:
        client.close()


def finished(run_id: str) -> bool:
    return True


def opened(protocol: TransactionProtocol, plan: TransactionPlan) -> OpenTransaction:
    """An instant that the ledger knows nothing of."""
    if not protocol.timeline.exists():
        protocol.instants.create_table(protocol.resolve_schema())
    if protocol.epoch.current().transaction_id != plan.transaction_id:
        protocol.epoch.advance(plan.sequence, plan.transaction_id)
    now = datetime.now(timezone.utc)
    later = now + timedelta(seconds=protocol.pipeline.transaction.timeout_seconds)
    schema = protocol.resolve_schema()
    instant = protocol.instants.begin(plan, schema)
    shape = shape_of(protocol.pipeline)
    return OpenTransaction(plan, instant, protocol.epoch.current().number, now, later, schema, shape)


def written(protocol: TransactionProtocol, transaction: OpenTransaction) -> Publication:
    """Writes the transaction; what HudiWriter.commit would publish."""
    plan = transaction.plan
    reports = protocol.write_files(transaction, plan.slices, {each.source: 1 for each in plan.slices}, 0)
    committed = protocol.table.committed()
    checkpoint = next_checkpoint(committed.checkpoint, plan, 0)
    files = [file for report in reports for file in report.files]
    metadata = commit_metadata(protocol.pipeline, plan, checkpoint, reports)
    epoch = Epoch(transaction.epoch, plan.transaction_id)
    return Publication(transaction.instant, files, metadata, committed.checkpoint_text, epoch, transaction.schema)


def published_at_once(
    ground: Ground, pipeline: Pipeline, drivers: tuple[Driver, Driver], commits: list[Publication], order: str
) -> list[str]:
    """What came of two commits in two JVMs that stood before the lock at the same time."""
    with table_lock(ground.home, pipeline) as lock:
        with lock.held():
            for driver, commit in zip(drivers, commits, strict=True):
                driver.publish(order, pipeline, commit)
            lock.wait_for_claims(3)
        return sorted(driver.outcome(order) for driver in drivers)


def test_p2_p4_two_jvms_that_publish_at_once_publish_once(
    ground: Ground, locked: Pipeline, drivers: tuple[Driver, Driver]
) -> None:
    """Without the ledger's lock: Hudi's, in ZooKeeper, and the guard inside it are all that is left."""
    protocol = ground.protocol(locked)
    ground.send_rows(0, 30)
    commit = written(protocol, opened(protocol, ground.plan(locked)))
    first, second = published_at_once(ground, locked, drivers, [commit, commit], "same-instant")
    assert first.startswith("CommitRefused: "), first
    assert "has already published" in first or "is already completed" in first
    assert second == "published"
    assert verify(ground.base_path, ground.produced).exact

    ground.send_rows(0, 20, 30)
    plan = ground.plan(locked)
    commits = [written(protocol, opened(protocol, plan)) for _ in range(2)]
    first, second = published_at_once(ground, locked, drivers, commits, "same-offsets")
    assert first.startswith("CommitRefused: "), first
    assert "has already published" in first
    assert second == "published"
    assert len(list(Path(ground.base_path, ".hoodie", "timeline").glob("*_*.commit"))) == 2
    found = verify(ground.base_path, ground.produced)
    assert found.exact, found
    assert found.rows == 50
    # What the losers left is cleared by the next transaction, which ends as any other.
    ground.send_rows(1, 5)
    ground.run(locked)
    assert verify(ground.base_path, ground.produced).exact


def test_p7_other_writers_with_default_settings_take_the_same_lock(ground: Ground, locked: Pipeline) -> None:
    ground.send_rows(0, 30)
    ground.run(locked)
    spark = current_session(ground.home)
    spark.sql(f"create table {ground.name} using hudi location '{ground.base_path}'")
    table = spark.read.format("hudi").load(ground.base_path)
    one = table.where("n = 29").drop(*[name for name in table.columns if name.startswith("_hoodie_")])

    def delete() -> None:
        spark.sql(f"delete from {ground.name} where n < 10")

    def append() -> None:
        one.write.format("hudi").option("hoodie.table.name", ground.name).mode("append").save(ground.base_path)

    with table_lock(ground.home, locked) as lock:
        for statement, before, after in ((delete, 30, 20), (append, 20, 21)):
            writing = threading.Thread(target=statement)
            with lock.held():
                writing.start()
                lock.wait_for_claims(2)
                assert ground.rows().num_rows == before
            writing.join(240)
            assert ground.rows().num_rows == after
    # Without the setting the table's own properties lead writers back to the lock inside each JVM.
    ground.send_rows(0, 10, 30)
    ground.run(make_pipeline(ground))
    assert Timeline(ground.base_path).properties()["hoodie.write.lock.provider"].endswith(".InProcessLockProvider")
    assert ground.rows().num_rows == 31


@pytest.mark.tier(3)
def test_p5_without_zookeeper_nothing_is_half_done_and_with_it_the_next_transaction_works(
    ground: Ground, locked: Pipeline, zookeeper: ZooKeeperServer
) -> None:
    ground.send_rows(0, 10)
    protocol = ground.protocol(locked)
    opened = protocol.begin(ground.plan(locked), Owner.this_process(), finished)
    reports = protocol.write(opened, opened.plan.slices)
    zookeeper.stop()
    try:
        began = time.monotonic()
        with pytest.raises(CommitOutcomeUnknown, match=f"ZooKeeper at {zookeeper.address}.*no server there answered"):
            protocol.commit(opened, reports)
        assert time.monotonic() - began < 120
        assert protocol.table.committed().checkpoint is None
        zookeeper.start()
        protocol.commit(opened, reports)
        assert verify(ground.base_path, ground.produced).exact

        ground.send_rows(0, 10, 10)
        zookeeper.stop()
        timeline = Path(ground.base_path, ".hoodie", "timeline")
        before = sorted(timeline.iterdir())
        began = time.monotonic()
        with pytest.raises(TableUnreachable, match=f"ZooKeeper at {zookeeper.address}.*Start ZooKeeper, or correct"):
            protocol.begin(ground.plan(locked), Owner.this_process(), finished)
        assert time.monotonic() - began < 120
        assert sorted(timeline.iterdir()) == before
        assert ground.ledger.transactions.open_in(ground.base_path) is None
    finally:
        zookeeper.start()
    ground.run(locked)
    assert verify(ground.base_path, ground.produced).exact
    wait_until(lambda: zookeeper.connections() == 0, what="no client is left behind", timeout_seconds=120)


def test_a_lock_that_another_writer_keeps_ends_in_an_error_that_says_where_it_is(
    ground: Ground, locked: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(*arguments: Any, **named: Any) -> dict[str, str]:
        return {**write_options(*arguments, **named), "hoodie.write.lock.wait_time_ms": "500"}

    ground.send_rows(0, 10)
    ground.run(locked)
    ground.send_rows(0, 10, 10)
    with table_lock(ground.home, locked) as lock:
        with lock.held(), monkeypatch.context() as patched, pytest.raises(TableUnreachable) as refused:
            patched.setattr("hudi_ingest.hudi.write_client.write_options", impatient)
            ground.run(locked)
        lock.wait_for_claims(0)
    assert f"could not acquire the table's lock {lock_place(locked.table)} in time" in str(refused.value)
    ground.run(locked)
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.tier(3)
def test_p5_the_lock_of_a_killed_jvm_is_free_after_its_session(
    ground: Ground, locked: Pipeline, tmp_path: Path
) -> None:
    ground.send_rows(0, 10)
    protocol = ground.protocol(locked)
    transaction = protocol.begin(ground.plan(locked), Owner.dagster_run("killed"), finished)
    inside = tmp_path / "inside"
    write_slow_guard(tmp_path, inside, seconds=600)
    driver = Driver.start(tmp_path / "driver")
    try:
        driver.wait_until_ready()
        with table_lock(ground.home, locked) as lock:
            driver.publish("holder", locked, written(protocol, transaction), guard_folder=tmp_path)
            wait_until(inside.exists, what="the commit is inside the lock", timeout_seconds=240)
            killed = time.monotonic()
            driver.kill()
            assert lock.claims() == 1
    finally:
        stop([driver.record])
    following = protocol.begin(ground.plan(locked), Owner.this_process(), finished)
    waited = time.monotonic() - killed
    assert LOCK_SESSION_SECONDS / 2 < waited < LOCK_SESSION_SECONDS + 120
    protocol.commit(following, protocol.write(following, following.plan.slices))
    assert verify(ground.base_path, ground.produced).exact
