"""F1 and promise 4: several coordinators, runs and commits at the same moment."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import pytest
from dagster import DagsterInstance, RunRequest, SkipReason

from hudi_ingest.exceptions import IngestError
from hudi_ingest.ledger import Ledger
from hudi_ingest.ledger.owner import Owner
from hudi_ingest.local.verification import verify
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.orchestration.definitions import build_definitions
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest.spark.session import current_session
from hudi_ingest.transaction.plan.planning import observe
from hudi_ingest.transaction.run import protocol_for
from hudi_ingest_tests.support.command_line import COMMAND, environment
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.ticks import tick
from hudi_ingest_tests.support.transactions import transaction_job

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

T = TypeVar("T")


def at_once(*works: Callable[[threading.Barrier], T]) -> list[T]:
    """What each of the works returns; each runs in a thread and gets a barrier that lets all of them through together."""
    barrier = threading.Barrier(len(works), timeout=300)
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work, barrier) for work in works]
    return [future.result() for future in futures]


def own_commits(ground: Ground) -> list[Path]:
    return list((Path(ground.base_path) / ".hoodie" / "timeline").glob("*_*.commit"))


def test_f1_p4_two_sensors_and_a_person_launch_the_same_transaction(
    ground: Ground, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two daemons tick at the same moment, `hudi-ingest run` has planned it as well, and all three go on."""
    ground.set_environment(monkeypatch)
    ground.send_rows(0, 20)
    ground.send_rows(1, 20)
    current_session(ground.home)
    dagster_home = ground.home.root / "dagster"
    dagster_home.mkdir()

    def ticking(instance: DagsterInstance) -> Callable[[threading.Barrier], RunRequest | SkipReason]:
        def work(barrier: threading.Barrier) -> RunRequest | SkipReason:
            barrier.wait()
            return tick(pipeline, instance, datetime.now(timezone.utc))

        return work

    def running(instance: DagsterInstance, request: RunRequest | SkipReason) -> Callable[[threading.Barrier], str]:
        """Returns why the requested run failed, "" when it did not."""

        def work(barrier: threading.Barrier) -> str:
            assert isinstance(request, RunRequest), request
            job = transaction_job(build_definitions([pipeline]), pipeline.name)
            barrier.wait()
            result = job.execute_in_process(
                run_config=request.run_config, tags=request.tags, instance=instance, raise_on_error=False
            )
            return "\n".join(failures(result))

        return work

    with (
        DagsterInstance.from_config(str(dagster_home)) as one,
        DagsterInstance.from_config(str(dagster_home)) as other,
    ):
        # All three plan before any of them begins.
        requests = at_once(ticking(one), ticking(other))
        command = subprocess.Popen(
            [*COMMAND, "run", pipeline.name], env=environment(ground.home), stderr=subprocess.PIPE, text=True
        )
        assert command.stderr is not None
        planned = command.stderr.readline()
        assert "40 offsets of 2 partitions" in planned, planned
        told = at_once(running(one, requests[0]), running(other, requests[1]))
    _, by_command = command.communicate(timeout=240)
    told.append("" if command.returncode == 0 else by_command)
    assert told.count("") == 1, told
    for text in filter(None, told):
        assert "is no longer current" in text or "has been open since" in text, text
    assert len(own_commits(ground)) == 1
    assert verify(ground.base_path, ground.produced).exact
    ground.send_rows(0, 5, 20)
    with DagsterInstance.from_config(str(dagster_home)) as instance:
        request = tick(pipeline, instance, datetime.now(timezone.utc).replace(year=2100))
        assert isinstance(request, RunRequest), request
        job = transaction_job(build_definitions([pipeline]), pipeline.name)
        assert job.execute_in_process(run_config=request.run_config, tags=request.tags, instance=instance).success
    assert verify(ground.base_path, ground.produced).exact


def failures(result: Any) -> list[str]:
    return [
        f"{event.step_failure_data.error_display_string}\n{event.step_failure_data.user_failure_data}"
        for event in result.all_events
        if event.is_step_failure
    ]


@pytest.mark.tier(1)
@pytest.mark.parametrize("ledgers", ["one", "two"])
def test_p2_p4_two_commits_of_one_transaction_publish_it_once(ground: Ground, pipeline: Pipeline, ledgers: str) -> None:
    """With two ledgers nothing but the guard in Hudi's lock keeps the commits apart, as when the table's lock is lost."""
    ground.send_rows(0, 20)
    protocol = ground.protocol(pipeline)
    opened = protocol.begin(ground.plan(pipeline), Owner.this_process(), lambda run_id: None)
    reports = protocol.write(opened, opened.plan.slices)

    def commit(name: str) -> Callable[[threading.Barrier], CommitReceipt | IngestError]:
        def work(barrier: threading.Barrier) -> CommitReceipt | IngestError:
            with Ledger.open(f"sqlite:///{ground.home.root / name}") as ledger:
                try:
                    mine = protocol_for(pipeline, ledger, current_session(ground.home), ground.home)
                    barrier.wait()
                    return mine.commit(opened, reports)
                except IngestError as error:
                    return error

        return work

    results = at_once(commit("ledger.db"), commit("ledger.db" if ledgers == "one" else "other.db"))
    receipts = [each for each in results if isinstance(each, CommitReceipt)]
    assert receipts, results
    assert len(receipts) == 2 or ledgers == "two", results
    assert {(each.instant, each.checkpoint.sequence) for each in receipts} == {(opened.instant, 1)}
    assert len(own_commits(ground)) == 1
    assert observe(pipeline).lag.total == 0
    assert verify(ground.base_path, ground.produced).exact
    again = protocol.commit(opened, reports)
    assert again.instant == opened.instant
    ground.send_rows(0, 5, 20)
    assert ground.run(pipeline).rows == 5
    assert verify(ground.base_path, ground.produced).exact
