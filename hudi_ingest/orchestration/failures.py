"""Failures in Dagster: our errors as those of ops, why a run failed, and how long to wait after runs that failed in a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRunStatus, Failure, RunsFilter

from hudi_ingest.exceptions import IngestError, Transient
from hudi_ingest.orchestration import tags

STOPPED = "Stopped, because "
"""Prefix of an op's failure that is not its own: another op of the run failed."""
HOUSEKEEPING = "hudi_ingest_housekeeping"
"""The job whose failures are no pipeline's."""
LONGEST_BACKOFF_SECONDS = 900


@contextmanager
def as_dagster_failures() -> Iterator[None]:
    """Raise Failure for our errors: transient ones are retried by the op's RetryPolicy, all others fail the op at once."""
    try:
        yield
    except IngestError as error:
        raise Failure(
            description=f"{type(error).__name__}: {error}", allow_retries=isinstance(error, Transient)
        ) from error


def backoff_seconds(failures: int, interval_seconds: float) -> float:
    """Return how long to wait after `failures` failed runs in a row: not at all after the first, then doubling."""
    if failures < 2:
        return 0.0
    return float(min(LONGEST_BACKOFF_SECONDS, interval_seconds * 2 ** min(failures - 2, 20)))


def why_failed(instance: DagsterInstance, run_id: str) -> str:
    """Return the error of the op that failed first, or of the run if no op did, e.g. after a kill; "" if unknown."""
    steps = instance.all_logs(run_id, of_type=DagsterEventType.STEP_FAILURE)
    texts = [_step_error(entry.dagster_event) for entry in steps if entry.dagster_event]
    own = [text for text in texts if text and not text.startswith(STOPPED)]
    if own or texts:
        return (own or texts)[0]
    ends = instance.all_logs(run_id, of_type=DagsterEventType.RUN_FAILURE)
    return next((entry.message or entry.user_message for entry in ends), "")


def _step_error(event: DagsterEvent) -> str:
    failure = event.step_failure_data
    if failure.user_failure_data is not None and failure.user_failure_data.description:
        return failure.user_failure_data.description
    return failure.error.message.strip() if failure.error else ""


def why_housekeeping_failed(instance: DagsterInstance) -> str:
    """Why the newest run of housekeeping that has ended failed; "" if it succeeded, or none has ended."""
    statuses = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
    runs = instance.get_runs(RunsFilter(tags={tags.HOUSEKEEPING: "true"}, statuses=statuses), limit=1)
    if not runs or runs[0].status is DagsterRunStatus.SUCCESS:
        return ""
    reason = why_failed(instance, runs[0].run_id) or "its page says why"
    return (
        f"The last run of {HOUSEKEEPING}, {runs[0].run_id[:8]}, failed: {reason} While it fails, old runs, events and rows of the ledger pile "
        "up. The next one comes within an hour; `hudi-ingest housekeeping` does its work now."
    )
