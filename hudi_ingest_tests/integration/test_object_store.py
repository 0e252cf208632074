"""A table on S3: the promises hold there too, also when the store is down, slow, or silent about what it did.

versitygw where it is installed, else moto; before it a proxy that counts requests and makes trouble.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hudi import HudiTable

from hudi_ingest.exceptions import CommitRefused, IngestError, TableUnreachable
from hudi_ingest.faults import InjectedFault
from hudi_ingest.hudi.storage.s3_access import hudi_rs_options
from hudi_ingest.hudi.timeline import timeline
from hudi_ingest.hudi.timeline.epoch import Epoch
from hudi_ingest.hudi.timeline.pipeline_table import PipelineTable
from hudi_ingest.hudi.timeline.publication import Publication
from hudi_ingest.hudi.timeline.timeline import ReadCommits, Timeline
from hudi_ingest.hudi.write_client import HudiWriter
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.processes import free_port, stop
from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.operations.upkeep.savepoints import create_savepoint, savepoints_of
from hudi_ingest.operations.upkeep.sweep import run_sweep, safe_age
from hudi_ingest.operations.upkeep.table_services import run_services
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.lab.object_store import ObjectStore, find_versitygw, start_object_store
from hudi_ingest_tests.simulation.trace import CHANGED_BY_HAND, add
from hudi_ingest_tests.support.command_line import answer
from hudi_ingest_tests.support.fault import Fault
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.requesting import requested
from hudi_ingest_tests.support.s3_proxy import Request, S3Proxy, s3_proxy

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

BUCKET = "lake"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    home = tmp_path_factory.mktemp("store")
    found = start_object_store(home, free_port(), lambda line: None, program=find_versitygw(home, os.environ))
    found.make_bucket(BUCKET)
    yield found
    stop([found.record])


@pytest.fixture(scope="module")
def proxy(store: ObjectStore) -> Iterator[S3Proxy]:
    with s3_proxy(store.port) as found:
        yield found


@dataclass(frozen=True)
class Lake:
    """A test's pipeline whose table is on S3."""

    ground: Ground
    pipeline: Pipeline
    proxy: S3Proxy

    def rows(self) -> list[tuple[int, int]]:
        """(partition, offset) of all rows, sorted, read by hudi-rs."""
        table = self.pipeline.table
        options = dict(hudi_rs_options(table.base_path, table.storage_options))
        rows = pa.Table.from_batches(HudiTable(table.base_path, options).read())
        return sorted(zip(rows["_kafka_partition"].to_pylist(), rows["_kafka_offset"].to_pylist(), strict=True))

    def is_exact(self) -> bool:
        return self.rows() == sorted(self.ground.produced)

    def rows_of_spark(self, query: str = "snapshot") -> int:
        reader = current_session(self.ground.home).read.format("hudi").option("hoodie.datasource.query.type", query)
        return int(reader.load(self.pipeline.table.base_path).count())

    def stray_objects(self) -> set[str]:
        """Data files in the bucket that are not in the table."""
        timeline = Timeline(self.pipeline.table.base_path, self.pipeline.table.storage_options)
        paths = {file.path for file in timeline.storage.data_files()}
        stored = {path for path in paths if path.endswith(".parquet") or ".log." in path}
        return stored - {file.path for file in timeline.files()} - {file.path for file in timeline.log_files()}


def make_lake(ground: Ground, store: ObjectStore, proxy: S3Proxy, **more: Any) -> Lake:
    table = {
        "base_path": f"s3a://{BUCKET}/shop/{ground.name}",
        "storage": store.settings(proxy.endpoint),
        "retain_commits": 1,
        **more,
    }
    return Lake(ground, make_pipeline(ground, table=table), proxy)


@pytest.fixture
def lake(ground: Ground, topic: str, store: ObjectStore, proxy: S3Proxy) -> Lake:
    return make_lake(ground, store, proxy)


def test_p1_p2_p3_s1_transactions_services_and_a_replay_are_read_back_exactly(lake: Lake) -> None:
    ground, pipeline = lake.ground, lake.pipeline
    for start in (0, 30):
        for partition in (0, 1):
            ground.send_rows(partition, 30, start)
        ground.run(pipeline)
    assert lake.is_exact()
    merged = run_services(pipeline, home=ground.home)
    assert merged.replaced > merged.written > 0
    again = [Slice(ground.name, 0, 10, 20)]
    assert [receipt.rows for receipt in requested(ground, pipeline, TransactionKind.REPLAY, again)] == [10]
    assert lake.is_exact()
    assert lake.rows_of_spark() == 120
    assert not run_sweep(pipeline, safe_age(pipeline, None), delete=True, home=ground.home).orphans


@pytest.mark.parametrize("table", [{}, {"mode": "upsert", "key": ["id"]}])
def test_head_and_query_show_its_rows(
    table: dict[str, Any], ground: Ground, topic: str, store: ObjectStore, proxy: S3Proxy
) -> None:
    pipeline = make_lake(ground, store, proxy, **table).pipeline
    early = answer(ground.home, "head", pipeline.name)
    assert (early.returncode, f"there is no table at {pipeline.table.base_path} yet" in early.stderr) == (1, True)
    for _ in range(2):
        ground.send_rows(0, 30)
        ground.run(pipeline)
    shown = answer(ground.home, "head", pipeline.name, "-n", "3", "--json")
    assert len(json.loads(shown.stdout)) == 3, shown.stderr
    found = answer(ground.home, "query", pipeline.name, f"select count(*), max(n) from {pipeline.name}", "--json")
    times = 1 if pipeline.table.is_keyed else 2
    assert [*json.loads(found.stdout)[0].values()] == [30 * times, 29], found.stderr


def test_p1_p5_p8_a_keyed_table_on_s3(
    ground: Ground, topic: str, store: ObjectStore, proxy: S3Proxy, fault: Fault
) -> None:
    keyed = make_lake(ground, store, proxy, mode="upsert", key=["id"], buckets=2)
    for _ in range(2):
        ground.send_rows(0, 30)
        assert ground.run(keyed.pipeline).rows == 30
    ground.send_rows(0, 10)
    fault.arm("commit_leased", "raise")
    with pytest.raises((IngestError, InjectedFault)):
        ground.run(keyed.pipeline)
    assert ground.run(keyed.pipeline).rows == 10
    newest = {ground.produced[0, offset]: (0, offset) for offset in range(70)}
    assert keyed.rows() == sorted(newest.values())
    assert keyed.rows_of_spark() == 30
    assert not keyed.stray_objects()

    lost_once = dict.fromkeys([".compaction.requested", "/hudi_ingest/compaction", ".parquet", ".commit"], 1)

    def first_of_its_kind(request: Request) -> bool:
        kind = next((kind for kind in lost_once if request.method == "PUT" and request.key.endswith(kind)), None)
        return kind is not None and lost_once.pop(kind) == 1

    with proxy.silent(first_of_its_kind, times=len(lost_once)):
        (compaction,) = run_services(keyed.pipeline, home=ground.home).compactions
    assert not lost_once
    assert (compaction.rows, compaction.log_files) == (30, 3 * compaction.file_groups)
    assert keyed.rows() == sorted(newest.values())
    assert keyed.rows_of_spark("read_optimized") == keyed.rows_of_spark() == 30
    assert not run_sweep(keyed.pipeline, safe_age(keyed.pipeline, None), delete=True, home=ground.home).orphans
    assert connections_of_jvms(proxy.port) < 16, "Hudi left streams of log files open, and each kept a connection"


@pytest.mark.tier(3)
def test_p1_p8_a_keyed_table_on_s3_is_restored_to_a_savepoint_behind_a_compaction(
    ground: Ground, topic: str, store: ObjectStore, proxy: S3Proxy
) -> None:
    keyed = make_lake(ground, store, proxy, mode="upsert", key=["id"], buckets=2)
    ground.send_rows(0, 30)
    ground.run(keyed.pipeline)
    before = keyed.rows()
    savepoint = create_savepoint(keyed.pipeline, ground.home, "before the next transaction")
    ground.send_rows(0, 10)
    ground.run(keyed.pipeline)
    after = keyed.rows()
    assert run_services(keyed.pipeline, home=ground.home).compactions
    with savepoints_of(keyed.pipeline, ground.home) as savepoints:
        savepoints.restore(savepoint.instant, lambda line: None)
        add(ground.home.transactions_log, CHANGED_BY_HAND)
    assert keyed.rows() == before, "without the later transaction and the compaction"
    assert ground.run(keyed.pipeline).rows == 10
    assert run_services(keyed.pipeline, home=ground.home).compactions
    assert keyed.rows() == after
    assert keyed.rows_of_spark("read_optimized") == keyed.rows_of_spark() == 30
    assert not run_sweep(keyed.pipeline, safe_age(keyed.pipeline, None), delete=True, home=ground.home).orphans


def connections_of_jvms(port: int) -> int:
    """How many connections the drivers started here have to the port."""
    drivers = [process for process in psutil.Process().children(recursive=True) if process.name() == "java"]
    connections = [connection for driver in drivers for connection in driver.net_connections("tcp")]
    return sum(bool(connection.raddr) and connection.raddr.port == port for connection in connections)


@pytest.mark.tier(1)
def test_p5_s1_objects_of_a_transaction_that_failed_are_gone(lake: Lake, fault: Fault) -> None:
    for number, point in enumerate(("file_closed", "commit_leased")):
        lake.ground.send_rows(0, 10, number * 10)
        fault.arm(point, "raise")
        with pytest.raises((IngestError, InjectedFault)):
            lake.ground.run(lake.pipeline)
        assert fault.was_reached(point)
        assert lake.ground.run(lake.pipeline).rows == 10
        assert lake.is_exact()
        assert not lake.stray_objects()


@pytest.mark.tier(1)
def test_p4_s1_the_guard_reads_the_epoch_from_the_store(lake: Lake) -> None:
    lake.ground.send_rows(0, 5)
    protocol = lake.ground.protocol(lake.pipeline)
    opened = protocol.begin(lake.ground.plan(lake.pipeline), Owner.this_process(), lambda run_id: None)
    files = [file for report in protocol.write(opened, opened.plan.slices) for file in report.files]
    protocol.epoch.retire(opened.plan.transaction_id)
    epoch = Epoch(opened.epoch, opened.plan.transaction_id)
    with pytest.raises(CommitRefused, match="which is over"):
        protocol.instants.commit(Publication(opened.instant, files, {}, None, epoch, opened.schema))
    protocol.abort(opened, "the test's")
    assert lake.ground.run(lake.pipeline).rows == 5
    assert lake.is_exact()
    assert not lake.stray_objects()


LOST: dict[str, Callable[[Request], bool]] = {
    "epoch": lambda request: request.method == "PUT" and request.key.endswith("/epoch"),
    "marker": lambda request: request.method == "PUT" and ".marker" in request.key,
    "base file": lambda request: request.method == "PUT" and request.key.endswith(".parquet"),
    "commit": lambda request: request.method == "PUT" and request.key.endswith(".commit"),
    "heartbeat": lambda request: request.method == "DELETE" and "/.heartbeat/" in request.key,
}


def test_p1_p2_p5_lost_answers_and_a_busy_store_neither_lose_nor_repeat_anything(lake: Lake) -> None:
    lake.ground.send_rows(0, 10)
    lake.ground.run(lake.pipeline)
    lake.ground.send_rows(0, 10, 10)
    waiting = dict(LOST)

    def first_of_its_kind(request: Request) -> bool:
        kind = next((kind for kind, is_of in waiting.items() if is_of(request)), None)
        return kind is not None and waiting.pop(kind) is not None

    with lake.proxy.silent(first_of_its_kind, times=len(LOST)) as lost:
        lake.ground.run(lake.pipeline)
    assert not waiting
    assert lost() == len(LOST)
    assert lake.is_exact()
    lake.ground.send_rows(0, 10, 20)
    number = itertools.count()
    with lake.proxy.busy(lambda request: next(number) % 20 == 0):
        lake.ground.run(lake.pipeline)
    assert next(number) > 60
    assert lake.is_exact()
    assert not lake.stray_objects()


def test_what_is_wrong_with_a_store_is_named_and_forgotten_once_it_is_right(
    lake: Lake, store: ObjectStore, tmp_path: Path
) -> None:
    lake.ground.send_rows(0, 1)
    elsewhere = {"base_path": "s3a://missing/t", "storage": store.settings()}
    with pytest.raises(TableUnreachable, match=r"missing.*(does not exist|[Cc]reate)"):
        lake.ground.run(make_pipeline(lake.ground, table=elsewhere))
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    storage = {**store.settings(lake.proxy.endpoint), "secret_key": f"${{file:{secret}}}"}
    unreadable = make_pipeline(lake.ground, table={"base_path": lake.pipeline.table.base_path, "storage": storage})
    secret.unlink()
    # Hudi's client alone: everything before it would fail for the same reason.
    with pytest.raises(
        TableUnreachable, match=r"open instants of s3a://lake/.*file .*secret cannot be read where Spark runs"
    ):
        HudiWriter(current_session(lake.ground.home), unreadable).open_instants()
    assert lake.ground.run(lake.pipeline).rows == 1


def test_requests_of_a_transaction_are_few_and_do_not_grow_with_the_history(lake: Lake, known_turns: None) -> None:
    counts = []
    for number in range(4):
        lake.ground.send_rows(0, 3, number * 3)
        with lake.proxy.counted() as requests:
            lake.ground.run(lake.pipeline)
        counts.append(sum(requests.values()))
    assert counts[-1] <= 80
    assert counts[-1] - counts[1] <= 4, counts


@pytest.mark.parametrize("more", [{}, {"mode": "upsert", "key": ["id"], "buckets": 2}], ids=["append", "keyed"])
def test_p1_p2_a_commit_is_known_as_it_is_on_the_store_without_reading_it_again(
    ground: Ground,
    topic: str,
    store: ObjectStore,
    proxy: S3Proxy,
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = make_lake(ground, store, proxy, **more)
    ground.send_rows(0, 3)
    first = len(proxy.requests)
    assert ground.run(lake.pipeline).rows == 3
    asked = [request.key for request in proxy.requests[first:] if request.kind == "GET"]
    assert not [
        key for key in asked if key.startswith(f"shop/{ground.name}/.hoodie/timeline/") and key.endswith("commit")
    ]
    known = PipelineTable(lake.pipeline).timeline.completed()
    monkeypatch.setattr(timeline, "_read_commits", ReadCommits())
    assert PipelineTable(lake.pipeline).timeline.completed() == known
