"""Requests in tests: worked off in the test's own process, or by a coordinator whose ticks and runs the test makes."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone

from dagster import DagsterInstance, Definitions, RunRequest

from hudi_ingest.model.offsets import Slice
from hudi_ingest.model.plan import TransactionKind
from hudi_ingest.model.report import CommitReceipt
from hudi_ingest.operations.requests.planning import new_request
from hudi_ingest.operations.requests.work import file_request, work_off
from hudi_ingest.pipeline.pipeline import Pipeline
from hudi_ingest_tests.support.ground import Ground
from hudi_ingest_tests.support.ticks import tick
from hudi_ingest_tests.support.transactions import transaction_job


def requested(
    ground: Ground,
    pipeline: Pipeline,
    kind: TransactionKind,
    ranges: Sequence[Slice] = (),
    *,
    skip_covered: bool = False,
    respect_deletes: bool = False,
    lines: list[str] | None = None,
) -> Iterator[CommitReceipt]:
    """Files the request, and works it off here as the command line does without a coordinator; a receipt for each commit."""
    request = new_request(pipeline, kind, ranges, skip_covered=skip_covered, respect_deletes=respect_deletes)
    standing = file_request(request, ground.home)
    return work_off(pipeline, standing, home=ground.home, report=(lines if lines is not None else []).append)


@contextmanager
def dagster_on_disk() -> Iterator[DagsterInstance]:
    """A Dagster whose database waits for a lock. The one in memory shares SQLite's cache between threads, and refuses the second at
    once: "database table is locked"."""
    with tempfile.TemporaryDirectory() as folder, DagsterInstance.local_temp(folder) as instance:
        yield instance


@contextmanager
def coordinated(pipeline: Pipeline, definitions: Definitions, instance: DagsterInstance) -> Iterator[list[str]]:
    """A coordinator at work: the sensor ticks, and each run that it wants is executed. A live transaction is due as soon as records
    wait. Yields the runs' results as they come: the kind of each, live ones as "ingest". The instance is one on disk."""
    assert instance.is_persistent, "two threads use it: dagster_on_disk()"
    always = pipeline.transaction.model_copy(update={"interval_seconds": 0.1})
    ticking = pipeline.model_copy(update={"transaction": always})
    over = threading.Event()
    done: list[str] = []
    failures: list[BaseException] = []
    job = transaction_job(definitions, pipeline.name)

    def work() -> None:
        try:
            while not over.wait(0.2):
                wanted = tick(ticking, instance, datetime.now(timezone.utc))
                if isinstance(wanted, RunRequest):
                    result = job.execute_in_process(
                        run_config=wanted.run_config, tags=wanted.tags, instance=instance, raise_on_error=False
                    )
                    kind = wanted.tags.get("hudi_ingest/kind", "ingest")
                    done.append(kind if result.success else f"{kind} failed")
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield done
    finally:
        over.set()
        worker.join()
    assert not failures, failures
