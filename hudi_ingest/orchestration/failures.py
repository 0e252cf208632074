"""Failures in Dagster: our errors as those of ops, and how long to wait after runs that failed in a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import Failure

from hudi_ingest.exceptions import IngestError, Transient

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
