"""What was seen to go wrong in Hudi's Kafka Connect sink, tried here: each test names the wound."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from dagster import DagsterInstance, RunRequest, SkipReason

from hudi_ingest.hudi import write_client
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.processes import wait_until
from hudi_ingest.local.verification import verify
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest_tests.support.ground import Ground, make_pipeline
from hudi_ingest_tests.support.partitions import add_partitions
from hudi_ingest_tests.support.ticks import tick
from hudi_ingest_tests.support.transactions import transaction_job

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


_CACHED_THREADS = ("block-manager-ask-thread-pool-", "block-manager-storage-async-thread-pool-")
"""Spark's pools of threads that end a minute after their last work; each has at most 128."""


@pytest.fixture(autouse=True)
def environment(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.set_environment(monkeypatch)


def test_rivals_wound_a_malformed_record_fails_the_run_and_nothing_loops(ground: Ground, pipeline: Pipeline) -> None:
    """Wound: endless retries, 21,398 stack traces in 10 s, and the state said RUNNING."""
    ground.send_rows(0, 10)
    ground.send(1, [b"not json"])
    now = datetime.now(timezone.utc)
    with DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            request = tick(pipeline, instance, now)
            assert isinstance(request, RunRequest), request
            job = transaction_job(build_definitions([pipeline]), pipeline.name)
            result = job.execute_in_process(
                run_config=request.run_config, tags=request.tags, instance=instance, raise_on_error=False
            )
            assert not result.success
            assert not [event for event in result.all_events if event.is_step_up_for_retry]
            [failed] = [event for event in result.all_events if event.is_step_failure]
            assert f"{ground.name}:1:0" in str(failed.step_failure_data.error_display_string)
        waiting = tick(pipeline, instance, datetime.now(timezone.utc))
        assert isinstance(waiting, SkipReason)
        assert "the last 2 runs of this transaction failed" in str(waiting.skip_message)
        assert [run.status.value for run in instance.get_runs()] == ["FAILURE", "FAILURE"]
    assert ground.data_files() == []


def test_rivals_wound_an_idle_topic_gets_no_commits(ground: Ground, pipeline: Pipeline) -> None:
    """Wound: an empty commit in every interval."""
    ground.send_rows(0, 3)
    ground.run(pipeline)

    def table() -> list[Path]:
        return sorted(Path(ground.base_path).rglob("*"))

    before, now = table(), datetime.now(timezone.utc)
    with DagsterInstance.ephemeral() as instance:
        for number in range(1, 31):
            found = tick(pipeline, instance, now + timedelta(hours=number))
            assert isinstance(found, SkipReason), found
            assert "no new records" in str(found.skip_message)
    assert table() == before


def test_rivals_wound_k1_a_partition_that_appears_in_mid_transaction_is_the_next_ones(
    ground: Ground, pipeline: Pipeline
) -> None:
    """Wound: every commit times out for a minute, because the coordinator waits for a partition that nobody reads."""
    ground.send_rows(0, 5)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap_servers, "log_level": 0})
    add_partitions(admin, ground.name, 3)
    ground.producer.list_topics(ground.name, timeout=120)
    ground.send_rows(2, 9)
    receipt = protocol.commit(opened, protocol.write(opened, opened.plan.slices))
    assert (receipt.rows, len(receipt.plan.slices)) == (5, 2)
    after = ground.run(pipeline)
    assert [(each.partition, each.start, each.end) for each in after.plan.slices] == [(0, 5, 5), (1, 0, 0), (2, 0, 9)]
    assert verify(ground.base_path, ground.produced).exact


@pytest.mark.parametrize("transactions", [20, pytest.param(200, marks=pytest.mark.tier(3))])
def test_rivals_wound_transactions_leave_no_threads_sockets_or_files_open_and_hide_no_row(
    ground: Ground, topic: str, transactions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wounds: 22 threads of admin clients after 21 commits; and file ids that repeat across commits hide rows (apache/hudi#7806)."""
    pipeline = make_pipeline(ground, table={"partition_by": []})
    spark = current_session(ground.home)
    processes = {"python": psutil.Process(), "jvm": psutil.Process(spark.sparkContext._gateway.proc.pid)}

    def threads_of_jvm() -> Counter[str]:
        names = [str(each.getName()) for each in spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()]
        return Counter("".join(c for c in name if not c.isdigit()) for name in names)

    def usage() -> dict[str, int]:
        spark._jvm.java.lang.System.gc()
        threads = threads_of_jvm()
        # How many there are depends on how many transactions fit into the minute that they outlive their work by.
        cached = sum(threads.pop(name, 0) for name in _CACHED_THREADS)
        found = {"threads/python": threading.active_count(), "threads/jvm": threads.total()}
        for name, process in processes.items():
            found[f"threads of the system/{name}"] = process.num_threads() - (cached if name == "jvm" else 0)
            found[f"files/{name}"] = process.num_fds()
            found[f"sockets/{name}"] = len(process.net_connections())
        return found

    def transact(first: int, count: int) -> None:
        for number in range(first, first + count):
            ground.send_rows(0, 2, number * 2)
            ground.run(pipeline)

    def require_no_new_timer(point: str) -> None:
        # A caller that is killed here closes no client. A cancelled timer's thread ends a moment later.
        if point.startswith("instant_"):
            wait_until(
                lambda: threads_of_jvm()["Timer-"] <= names["Timer-"], what=f"no timer at {point}", timeout_seconds=60
            )

    transact(0, 5)
    before, names = usage(), threads_of_jvm()
    monkeypatch.setattr(write_client, "reach", require_no_new_timer)
    transact(5, transactions - 5)
    after, more = usage(), threads_of_jvm() - names
    grown = {name: f"{before[name]} → {count}" for name, count in after.items() if count > before[name] + 8}
    assert not grown, f"{grown}, threads {more}"
    assert not [name for name in threads_of_jvm() if "heartbeat" in name.lower() and "hoodie" in name.lower()]
    assert verify(ground.base_path, ground.produced).exact
    for listing in ("true", "false"):
        reader = spark.read.format("hudi").option("hoodie.metadata.enable", listing)
        assert reader.load(ground.base_path).count() == 2 * transactions
