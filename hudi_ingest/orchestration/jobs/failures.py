"""Turns our errors into Dagster failures; the only place that does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from dagster import Failure

from hudi_ingest.exceptions import IngestError, Transient
from hudi_ingest.ledger import AttemptRow, AttemptState

STOPPED = "Stopped, because "
"""Prefix of an op's failure that is not its own: another op of the run failed."""
_SHOWN_LINES = 2
"""Lines of an error to show: what happened, and the first place where it did."""


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
