"""Settings shared by all ops and runs of a pipeline: retries, pool, maximum runtime, and which runs have ended."""

from __future__ import annotations

from collections.abc import Callable

from dagster import (
    Backoff,
    DagsterInstance,
    DagsterRunStatus,
    Jitter,
    RetryPolicy,
)

from hudi_ingest.pipeline.pipeline import Pipeline

START_SECONDS = 120
ACTIVE = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
"""The statuses of runs that have not ended."""
NO_RUN_RETRIES = "0"
"""The sensor plans the run that follows a failed one. One that the instance's `run_retries` repeats would be in its way: its
transaction is rolled back."""


def max_runtime(pipeline: Pipeline) -> str:
    """Return how many seconds a run may take: its transaction's timeout, plus time for its processes to start and end."""
    return str(pipeline.transaction.timeout_seconds + START_SECONDS)


def retry_policy(pipeline: Pipeline) -> RetryPolicy:
    settings = pipeline.transaction
    return RetryPolicy(
        max_retries=settings.retries,
        delay=settings.retry_delay_seconds,
        backoff=Backoff.EXPONENTIAL,
        jitter=Jitter.PLUS_MINUS,
    )


def pool(pipeline: Pipeline) -> str:
    """Return the Dagster pool that lets only one run at a time change the pipeline's table."""
    return f"hudi_ingest_{pipeline.name}"


def run_is_finished(instance: DagsterInstance) -> Callable[[str], bool | None]:
    """Return a function that says whether a run has ended, or None if this instance does not know the run."""

    def finished(run_id: str) -> bool | None:
        run = instance.get_run_by_id(run_id)
        # An unknown run may belong to another instance, and be alive.
        return None if run is None else run.is_finished

    return finished
