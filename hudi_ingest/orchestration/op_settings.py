"""What all ops of a pipeline share: retries, pool, the longest time of a run."""

from __future__ import annotations

from collections.abc import Callable

from dagster import (
    Backoff,
    DagsterInstance,
    Jitter,
    RetryPolicy,
)

from hudi_ingest.pipeline.pipeline import Pipeline

START_SECONDS = 120


def max_runtime(pipeline: Pipeline) -> str:
    """Seconds that a run may take: its transaction's timeout, and time for its processes to start and end."""
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
    """The Dagster pool that keeps all that changes the pipeline's table in one run at a time."""
    return f"hudi_ingest_{pipeline.name}"


def run_is_finished(instance: DagsterInstance) -> Callable[[str], bool | None]:
    """Tells of a run id whether the run has ended; None when this instance does not know the run."""

    def finished(run_id: str) -> bool | None:
        run = instance.get_run_by_id(run_id)
        # A run that this instance does not know may be another instance's, and alive.
        return None if run is None else run.is_finished

    return finished
