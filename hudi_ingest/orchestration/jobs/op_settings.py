"""Settings shared by all ops and runs of a pipeline: retries, and the failures that they are for, pool, maximum runtime, and which runs
have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from dagster import (
    Backoff,
    DagsterInstance,
    DagsterRunStatus,
    Failure,
    Jitter,
    RetryPolicy,
)

from hudi_ingest.exceptions import IngestError, Transient
from hudi_ingest.ledger import AttemptRow, AttemptState
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
STOPPED = "Stopped, because "
"""Prefix of an op's failure that is not its own: another op of the run failed."""
_SHOWN_LINES = 2
"""Lines of an error to show: what happened, and the first place where it did."""


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


@contextmanager
def as_dagster_failures() -> Iterator[None]:
    """Raise Failure for our errors: transient ones are retried by the op's RetryPolicy, all others fail the op at once."""
    try:
        yield
    except IngestError as error:
        raise Failure(
            description=f"{type(error).__name__}: {error}", allow_retries=isinstance(error, Transient)
        ) from error


def first_failure(attempts: Sequence[AttemptRow], own: Collection[tuple[str, int]]) -> AttemptRow | None:
    """Return the attempt of a transaction that was the first to fail for good, at a slice that is not one of `own`.

    `attempts` are in the order of their numbers; `own` are topics and partitions.
    """
    newest = {attempt.source: attempt for attempt in attempts}
    failed = [
        attempt
        for attempt in newest.values()
        if attempt.state is AttemptState.FAILED and (attempt.topic, attempt.partition) not in own
    ]
    return min(failed, key=lambda attempt: (attempt.ended_at, attempt.source), default=None)


def stopped(culprit: AttemptRow) -> Failure:
    """Return the failure of an op whose transaction is over because another op failed; it quotes that op's error."""
    error = " ".join(line.strip() for line in (culprit.error or "").splitlines()[:_SHOWN_LINES])
    return Failure(
        description=f"{STOPPED}{culprit.source} failed: {error}\nThis op wrote nothing visible.", allow_retries=False
    )
